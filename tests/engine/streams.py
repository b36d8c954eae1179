"""Random streams of changes for the sources of random plans, many cases at once."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
from plans import KEYED, SPARK_TYPES, source_columns

from lockstep.sql.plans.nodes import CHANGE_COLUMNS

Change = tuple[tuple[Any, ...], int, int]

START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
NEVER = dt.datetime.min.replace(tzinfo=dt.UTC)
"""The watermark before the first value."""

VALUES: dict[str, list[Any]] = {
    "long": [None, -3, -1, 0, 1, 2, 2, 5, 1 << 53, -(1 << 57)],
    "int": [None, -2, 0, 1, 3, (1 << 31) - 1],
    "text": [None, "", "a", "b", "B", "é", "ab"],
    "decimal": [None, *map(Decimal, ("-1.25", "0.00", "0.10", "3.33", "9999.99"))],
    "date": [None, dt.date(2024, 1, 1), dt.date(1960, 2, 29)],
    "time": [None, *(START + dt.timedelta(seconds=s) for s in (0, 1, 3.5, 6, -1))],
    "flag": [None, True, False],
    "double": [None, 0.0, -0.0, 1.5, -2.25, 1e20, 0.1, 1e-300, math.nan, math.inf, -math.inf],
}

ARROW_TYPES = {
    "long": pa.int64(),
    "int": pa.int32(),
    "text": pa.string(),
    "decimal": pa.decimal128(6, 2),
    "date": pa.date32(),
    "time": pa.timestamp("us", tz="UTC"),
    "flag": pa.bool_(),
    "double": pa.float64(),
}


def random_changes(
    random: Random, cases: int, steps: tuple[int, int], rows: int, retracts: bool
) -> list[Change]:
    """At most `rows` changes a case over the steps first..last, in the order of the steps.

    Where `retracts`, about a third take back a row that is there; no row ever has negative weight at
    the end of a step.
    """
    changes: list[Change] = []
    for case in range(cases):
        present: list[tuple[Any, ...]] = []
        for step in sorted(random.randint(*steps) for _ in range(random.randint(0, rows))):
            if retracts and present and random.random() < 0.4:
                changes.append((present.pop(random.randrange(len(present))), -1, step))
                continue
            row = (case, *(random.choice(VALUES[kind]) for kind in SPARK_TYPES))
            copies = random.choice([1, 1, 1, 2])
            present.extend([row] * copies)
            changes.append((row, copies, step))
    return changes


def random_records(
    random: Random, cases: int, steps: tuple[int, int], rows: int, key: str
) -> list[Change]:
    """At most `rows` keyed records a case, their CHANGE_COLUMNS behind their values. The kind `key` is
    one of two values and never null; all of a case lie in one partition."""
    changes: list[Change] = []
    for case in range(cases):
        found = sorted(random.randint(*steps) for _ in range(random.randint(0, rows)))
        for offset, step in enumerate(found):
            values = (
                random.choice(VALUES[kind][1:3] if kind == key else VALUES[kind])
                for kind in SPARK_TYPES
            )
            is_deleted = random.random() < 0.3
            changes.append(((case, *values, case % 3, offset, is_deleted), 1, step))
    return changes


def folded(
    changes: Sequence[Change], place: int, delay: dt.timedelta, last: int
) -> tuple[list[Change], list[Change], dict[int, dt.datetime]]:
    """The changes on time, the late ones, and the watermark after each step, which is about the rows'
    column at `place`."""
    on_time: list[Change] = []
    late: list[Change] = []
    after: dict[int, dt.datetime] = {}
    mark = greatest = NEVER
    for step in range(last + 1):
        for change in changes:
            time, at = change[0][place], change[2]
            if at == step:
                (late if time is not None and time < mark else on_time).append(change)
                greatest = max(greatest, time or NEVER)
        mark = greatest - delay if greatest > NEVER else NEVER
        after[step] = mark
    return on_time, late, after


def as_table(prefix: str, changes: list[Change]) -> pa.Table:
    """Changes as a delta of the source of that name: its columns (and CHANGE_COLUMNS, where rows have
    them), `_weight`, `_step`."""
    types = {name: ARROW_TYPES[kind] for name, kind in source_columns(prefix).items()}
    if prefix == KEYED:
        types |= dict(zip(CHANGE_COLUMNS, (pa.int32(), pa.int64(), pa.bool_()), strict=True))
    arrays = {
        name: pa.array([row[place] for row, _, _ in changes], type_)
        for place, (name, type_) in enumerate(types.items())
    }
    arrays["_weight"] = pa.array([weight for _, weight, _ in changes], pa.int64())
    arrays["_step"] = pa.array([step for _, _, step in changes], pa.int64())
    return pa.table(arrays)
