"""A keyed table over rows that this process has: what its trace gets, interval by interval."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest
from intervals import circuit_of
from test_upsert_law import COLUMNS, SCHEMA, TABLE, folded, random_records

from lockstep.zset import ZSet
from lockstep_engine.local.rows import Rows
from lockstep_engine.local.upsert import upserted

KINDS = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
}
NAMES = [field.split() for field in SCHEMA.split(", ")]
INTERVALS = ((0, 9), (10, 10), (11, 30))


@pytest.mark.parametrize("seed", range(30))
def test_the_trace_is_the_table(seed: int) -> None:
    """And gets no row that is undone within an interval."""
    random = Random(seed)
    records = random_records(random, (0, 30), 80)
    [operator] = (one for one in circuit_of(TABLE, frozenset({"t"})).operators if one.traces)
    [trace] = operator.traces
    assert set(trace.row) == set(COLUMNS)
    held: list[Rows] = []
    for first, last in INTERVALS:
        own = [one for one in records if first <= one[-1] <= last]
        random.shuffle(own)
        columns = {
            name: pa.array([one[place] for one in own], KINDS[kind])
            for place, (name, kind) in enumerate(NAMES)
        }
        delta = Rows.of(pa.table(columns)).later(-first)
        made = upserted(operator, delta, {trace.table: Rows.together(held)} if held else {})
        appended = made.appends[trace.table]
        weights = appended.table["_weight"].to_pylist()
        assert len(of_trace([appended])) == len(weights), "one row for each that comes or goes"
        assert set(weights) <= {1, -1}
        held.append(appended)
        assert of_trace(held) == folded(records, last), f"after step {last}"


def of_trace(parts: list[Rows]) -> ZSet:
    rows = [row for part in parts for row in part.table.to_pylist()]
    return ZSet((tuple(row[name] for name in COLUMNS), row["_weight"]) for row in rows)
