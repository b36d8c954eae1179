"""Aggregates without keys, where what changes does not reach their one row: it stays as it was."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from intervals import Runner, as_frame, changes_of
from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parents[1] / "sql"))
from sql_builders import project

from lockstep.sql.incremental import build_circuit

pytestmark = pytest.mark.spark

SOURCE = """
CREATE TABLE t (a INT, b INT, x DOUBLE) USING kafka OPTIONS
  ('kafka.bootstrap.servers' = 'b', subscribe = 't', format = 'debezium');
"""
SCHEMA = pa.schema(
    [("a", pa.int32()), ("b", pa.int32()), ("x", pa.float64()), ("_weight", pa.int64()),
     ("_step", pa.int64())]
)  # fmt: skip
VALUES = {
    "count(*)": (0, 2),
    "count(DISTINCT b)": (0, 1),
    "sum(b)": (None, 10),
    "min(b)": (None, 5),
    "max(x)": (None, 0.5),
    "sum(x)": (None, 0.75),
    "avg(x)": (None, 0.375),
    "var_pop(x)": (None, 0.015625),
    "collect_list(b)": ([], [5, 5]),
}
"""By aggregate of the rows where a = 1: what it is of none, and of `REACHING`."""
REACHING = [(1, 5, 0.25), (1, 5, 0.5)]
ELSEWHERE = [(2, 7, 0.7)]
STEPS: list[tuple[list[tuple[int, int, float]], int, bool]] = [
    (ELSEWHERE, 1, False),
    (ELSEWHERE, 1, False),
    (REACHING, 1, True),
    (ELSEWHERE, -1, True),
    (REACHING, -1, False),
    (ELSEWHERE, 1, False),
    (REACHING, 1, True),
]
"""What comes or goes, an interval each, and whether rows with a = 1 are there after it."""


@pytest.mark.parametrize("is_here", [False, True], ids=["by Spark", "here"])
@pytest.mark.parametrize("merges", [False, True], ids=["as written", "merged"])
@pytest.mark.parametrize(
    "calls", [["count(*)"], ["sum(x)"], [*VALUES]], ids=["one", "exact", "all"]
)
def test_the_row_stays(spark: SparkSession, calls: list[str], merges: bool, is_here: bool) -> None:
    listed = ", ".join(f"{call} AS c{place}" for place, call in enumerate(calls))
    view = f"CREATE MATERIALIZED VIEW w AS SELECT {listed} FROM t WHERE a = 1"
    runner = Runner(
        spark, build_circuit(project(view, sources=SOURCE)), merges_traces=merges, is_here=is_here
    )
    found = Counter[Any]()
    for step, (rows, weight, there) in enumerate(STEPS):
        columns = list(zip(*((*row, weight, step) for row in rows), strict=True))
        delta = pa.table(
            [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], SCHEMA
        )
        deltas = {"t": as_frame(spark, delta)}
        outputs = runner.run(deltas, (step, step), len(rows), step == len(STEPS) - 1)
        for row, count, _ in changes_of(outputs["w"]):
            found[repr(row)] += count
        wanted = tuple(_value(call, there) for call in calls)
        found = Counter({row: count for row, count in found.items() if count})
        assert found == Counter([repr(wanted)]), f"after step {step}"


def _value(call: str, there: bool) -> Any:
    return VALUES[call][there]
