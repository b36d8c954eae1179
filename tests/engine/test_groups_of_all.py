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
        deltas = {"t": as_frame(spark, _delta([(row, step) for row in rows], weight))}
        outputs = runner.run(deltas, (step, step), len(rows), step == len(STEPS) - 1)
        for row, count, _ in changes_of(outputs["w"]):
            found[repr(row)] += count
        wanted = tuple(_value(call, there) for call in calls)
        found = Counter({row: count for row, count in found.items() if count})
        assert found == Counter([repr(wanted)]), f"after step {step}"


def _value(call: str, there: bool) -> Any:
    more = {"count(b)": (0, 2), "avg(b)": (None, 5.0), **dict.fromkeys(DECIMALS, (None, None))}
    return {**VALUES, **more}[call][there]


DECIMALS = ["sum(b * 0.01)", "avg(b * 0.01)", "max(b * 0.01)", "min(b * 0.01)"]
WORKED_OUT = ["count(*)", "count(b)", "sum(b)", "min(b)", "max(x)", "sum(x)", "avg(x)", "avg(b)"]


@pytest.mark.parametrize(
    "steps",
    [
        [ELSEWHERE],
        [ELSEWHERE, REACHING],
        [REACHING, ELSEWHERE],
        [ELSEWHERE, ELSEWHERE, REACHING, REACHING],
    ],
    ids=["none", "later", "at once", "twice"],
)
@pytest.mark.parametrize("form", ["debezium", "json"], ids=["changing", "growing"])
@pytest.mark.parametrize(
    "calls", [["count(*)"], ["avg(x)"], WORKED_OUT, DECIMALS], ids=["n", "exact", "all", "decimals"]
)
def test_the_row_of_a_first_interval_needs_no_spark(
    spark: SparkSession,
    calls: list[str],
    form: str,
    steps: list[list[tuple[int, int, float]]],
    by_spark: list[str],
) -> None:
    """It is there from the first step on, whatever comes, with the same changes at the same steps; and a
    second interval goes on from it, whoever works on that."""
    listed = ", ".join(f"{call} AS c{place}" for place, call in enumerate(calls))
    view = f"CREATE MATERIALIZED VIEW w AS SELECT {listed} FROM t WHERE a = 1"
    circuit = build_circuit(project(view, sources=SOURCE.replace("debezium", form)))
    last = len(steps) - 1
    first = as_frame(
        spark, _delta([(row, step) for step, rows in enumerate(steps) for row in rows])
    )
    second = as_frame(spark, _delta([(row, last + 1) for row in REACHING]))
    found = list[Any]()
    for is_here in (True, False):
        runner = Runner(spark, circuit, is_here=is_here)
        by_spark.clear()
        outputs = [runner.run({"t": first}, (0, last), 9, False)["w"]]
        assert bool(by_spark) is not is_here
        outputs.append(runner.run({"t": second}, (last + 1, last + 1), 2, True)["w"])
        found.append([sorted(map(repr, changes_of(one))) for one in outputs])
    assert found[0] == found[1]
    nothing = tuple(_value(call, there=False) for call in calls)
    assert any(row.startswith(f"({nothing!r}, 1, 0)") for row in found[0][0]) is (
        steps[0] != REACHING
    )


def _delta(rows: list[tuple[tuple[int, int, float], int]], weight: int = 1) -> pa.Table:
    """Of rows with their steps."""
    columns = list(zip(*((*row, weight, step) for row, step in rows), strict=True))
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], SCHEMA)
