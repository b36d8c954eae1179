"""Random streams of changes for the sources of random plans, many cases at once."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
from plans import SPARK_TYPES, source_columns

Change = tuple[tuple[Any, ...], int, int]

START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)

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


def as_table(prefix: str, changes: list[Change]) -> pa.Table:
    """Changes as a delta of the source of that name: its columns, `_weight`, `_step`."""
    names = source_columns(prefix)
    arrays = {
        name: pa.array([row[place] for row, _, _ in changes], ARROW_TYPES[kind])
        for place, (name, kind) in enumerate(names.items())
    }
    arrays["_weight"] = pa.array([weight for _, weight, _ in changes], pa.int64())
    arrays["_step"] = pa.array([step for _, _, step in changes], pa.int64())
    return pa.table(arrays)
