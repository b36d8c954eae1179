"""Changes consolidated, and of state what they touch."""

from __future__ import annotations

import pytest
from batch import CHANGES, TABLE, Change, calls, check_like_batch, frame, row, sql
from pyspark.sql import SparkSession

from lockstep.sql.plans.nodes import Aggregate
from lockstep_engine.context import Context
from lockstep_engine.deltas import consolidate, merge_steps, only_keys

pytestmark = pytest.mark.spark

DELTA_TYPES = {"k": "string", "g": "double", "_weight": "bigint", "_step": "bigint"}


def test_consolidation_adds_equal_rows_of_a_step(spark: SparkSession) -> None:
    rows = [
        ("a", 0.0, 1, 1),
        ("a", -0.0, 2, 1),
        ("a", 0.0, -3, 2),
        (None, float("nan"), 1, 1),
        (None, -float("nan"), -1, 1),
    ]
    delta = frame(spark, rows, DELTA_TYPES)
    assert sorted(consolidate(delta, ["k", "g"]).collect()) == [("a", 0.0, -3, 2), ("a", 0.0, 3, 1)]
    assert merge_steps(delta, ["k", "g"]).collect() == []


@pytest.mark.parametrize("records", [10, 10_000_000])
def test_state_is_restricted_to_the_keys_of_the_delta(spark: SparkSession, records: int) -> None:
    state = frame(
        spark, [("a", 1.0), ("a", 2.0), (None, 3.0), ("b", None)], {"k": "string", "g": "double"}
    )
    delta = frame(spark, [("a", 9.0, 1, 1), ("a", 9.0, 1, 2), (None, 9.0, 1, 1)], DELTA_TYPES)
    context = Context(spark, records)
    found = {tuple(r) for r in only_keys(state, ("k",), delta, context).collect()}
    assert found == {("a", 1.0), ("a", 2.0), (None, 3.0)}
    assert only_keys(state, (), delta, context).count() == 4


@pytest.mark.parametrize("records", [10, 10_000_000])
def test_whole_numbers_are_looked_up_as_such_in_large_state(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], records: int
) -> None:
    state = frame(
        spark, [(0, "zero"), (None, "null"), (7, "7"), (8, "8")], {"i": "int", "v": "string"}
    )
    context = Context(spark, records, whole=frozenset("i"))
    changed: dict[tuple[int | None, ...], set[str]] = {
        (0, 7): {"zero", "7"},
        (None, 8): {"null", "8"},
        (0, None): {"zero", "null"},
    }
    for keys, expected in changed.items():
        delta = frame(spark, [(key,) for key in keys], {"i": "bigint"})
        held = only_keys(state, ("i",), delta, context)
        assert {row["v"] for row in held.collect()} == expected
        held.explain()
        looked_up = capsys.readouterr().out.split("Join ")[1].split("LeftSemi")[0]
        assert "coalesce(i" in looked_up
        assert "isnull" not in looked_up, "one number, and no row of two values"


@pytest.mark.parametrize("key", ["tiny", "i", "x", "d", "k"])
def test_groups_of_large_state_by_one_key(spark: SparkSession, key: str) -> None:
    changes: list[Change] = [
        *CHANGES,
        (row("z", 0.0, 0), 1, 1),
        (row("z", 0.0, 0), 1, 5),
        (row("n", 0.0, None), 1, 4),
        (row("n", 0.0, None), -1, 6),
    ]
    check_like_batch(
        spark,
        Aggregate(TABLE, (key,), calls("count", "sum x", "max ts")),
        f"SELECT {key}, {sql(calls('count', 'sum x', 'max ts'))} FROM t GROUP BY {key}",
        changes,
        large_state=0,
    )
