"""Windows of which only the first rows are asked for: what they give, and what they remember."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from intervals import Runner, changes_of, circuit_of, up_to
from pyspark.sql import DataFrame, SparkSession

from lockstep.sql.circuit import TraceKind
from lockstep.sql.plans.nodes import Expression, Scan, SortKey, Window, WindowCall
from lockstep.zset import ZSet
from lockstep_engine import evaluation
from lockstep_engine.operators.window import first_before

FIRST = 2
LAST = 11
Row = tuple[int, int, str]
Change = tuple[Row, int, int]


def changes(append_only: bool) -> list[Change]:
    """Rows of few values, some several times, and where they may go some of them later gone."""
    random = Random(5)
    found: list[Change] = []
    for step in range(LAST + 1):
        for _ in range(12):
            row = (random.randrange(3), random.randrange(5), random.choice("ab"))
            found.append((row, random.choice([1, 1, 2]), step))
            if not append_only and random.random() < 0.4:
                taken = random.choice(found[:-1] or found)
                held = sum(w for one, w, _ in found if one == taken[0])
                if held > 1:
                    found.append((taken[0], -1, step))
    return found


def ranked(
    rank: str, rows: Sequence[Row], by_key: bool = True, bound: int = FIRST
) -> list[tuple[int, int, str, int]]:
    """The first rows by descending v, of each k, with their rank, as SQL defines it."""
    found = []
    for key in {row[0] for row in rows} if by_key else {None}:
        own = [row for row in rows if key in (None, row[0])]
        ordered = sorted(own, key=lambda r: (-r[1], r))
        for place, row in enumerate(ordered):
            greater = [other for other in ordered if other[1] > row[1]]
            number = {
                "row_number()": place + 1,
                "rank()": len(greater) + 1,
                "dense_rank()": len({other[1] for other in greater}) + 1,
            }[rank]
            if number <= bound:
                found.append((*row, number))
    return found


def copies(rows: Sequence[Change], step: int) -> list[Row]:
    """Every copy of every row that is there after a step."""
    return [row for row, weight in up_to(rows, step) for _ in range(weight)]


@pytest.mark.spark
@pytest.mark.parametrize("records", [10, 1_000_000])
@pytest.mark.parametrize("append_only", [True, False])
@pytest.mark.parametrize(
    ("rank", "bound"),
    [("row_number()", 1), ("row_number()", FIRST), ("rank()", FIRST), ("dense_rank()", FIRST)],
)
def test_first_rows(
    spark: SparkSession, rank: str, bound: int, append_only: bool, records: int
) -> None:
    by_v = SortKey(Expression.column("v"), descending=True, nulls_first=False)
    call = WindowCall("r", Expression(rank), (by_v,))
    plan = Window(Scan("t", ("k", "v", "n")), ("k",), (call,), bound)
    circuit = circuit_of(plan, frozenset({"t"}) if append_only else frozenset())
    [trace] = circuit.traces
    assert trace.kind is (TraceKind.FIRST if append_only else TraceKind.ROWS)
    runner = Runner(spark, circuit)
    rows = changes(append_only)
    found = []
    for first, end in ((0, 0), (1, 5), (6, LAST)):
        delta = spark.createDataFrame(
            [(*row, weight, step) for row, weight, step in rows if first <= step <= end],
            "k int, v int, n string, _weight bigint, _step bigint",
        )
        tables = runner.run({"t": delta}, (first, end), records, end == LAST)
        found += changes_of(tables["root"])
        if end < LAST:
            there = copies(rows, end)
            wanted = [row[:3] for row in ranked(rank, there, bound=bound)] if append_only else there
            assert runner.remembered(trace.table) == ZSet.of_rows(wanted)
    assert len({(row, step) for row, _, step in found}) == len(found), "it is consolidated"
    for step in range(LAST + 1):
        expected = ZSet.of_rows(ranked(rank, copies(rows, step), bound=bound))
        assert up_to(found, step) == expected, f"after step {step}"


@pytest.mark.spark
def test_copies_of_a_row_of_which_one_was_left_behind(spark: SparkSession) -> None:
    """The trace then has the row with two weights, in two pieces."""
    by_v = SortKey(Expression.column("v"), descending=True, nulls_first=False)
    call = WindowCall("r", Expression("row_number()"), (by_v,))
    plan = Window(Scan("t", ("k", "v", "n")), ("k",), (call,), FIRST)
    runner = Runner(spark, circuit_of(plan, frozenset({"t"})))
    rows: list[Change] = [
        ((1, 1, "a"), 2, 0),
        ((1, 2, "a"), 1, 1),
        ((1, 0, "a"), 1, 2),
        ((1, 3, "b"), 1, 3),
    ]
    found = []
    for step in range(4):
        delta = spark.createDataFrame(
            [(*row, weight, at) for row, weight, at in rows if at == step],
            "k int, v int, n string, _weight bigint, _step bigint",
        )
        tables = runner.run({"t": delta}, (step, step), 10, step == 3)
        found += changes_of(tables["root"])
        assert up_to(found, step) == ZSet.of_rows(ranked("row_number()", copies(rows, step)))


def taken_from_the_top() -> list[Change]:
    """Many rows at first; after that, at each step, the greatest goes, and a lesser one comes again."""
    there = [(number % 3, number, "a") for number in range(30)]
    found: list[Change] = [(row, 1, 0) for row in there]
    for step in range(1, LAST + 1):
        greatest = there.pop()
        found += [(greatest, -1, step), (there[step // 2], 1, step)]
    return found


@pytest.mark.spark
@pytest.mark.parametrize("records", [10, 1_000_000])
@pytest.mark.parametrize("rank", ["row_number()", "rank()"])
def test_a_limit_of_many_rows_looks_at_the_first(
    spark: SparkSession, rank: str, records: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_v = SortKey(Expression.column("v"), descending=True, nulls_first=False)
    plan = Window(
        Scan("t", ("k", "v", "n")), (), (WindowCall("r", Expression(rank), (by_v,)),), FIRST
    )
    looked_at: list[tuple[int, int]] = []

    def watched(node: Window, rows: DataFrame, delta: DataFrame, size: int) -> DataFrame:
        first = first_before(node, rows, delta, size)
        looked_at.append((first.count(), size))
        return first

    monkeypatch.setattr(evaluation, "first_before", watched)
    runner = Runner(spark, circuit_of(plan, frozenset()), large_state=0)
    rows = taken_from_the_top()
    found = []
    for first, end in ((0, 1), (2, 5), (6, 6), (7, LAST)):
        delta = spark.createDataFrame(
            [(*row, weight, step) for row, weight, step in rows if first <= step <= end],
            "k int, v int, n string, _weight bigint, _step bigint",
        )
        tables = runner.run({"t": delta}, (first, end), records, end == LAST)
        found += changes_of(tables["root"])
    for step in range(LAST + 1):
        expected = ZSet.of_rows(ranked(rank, copies(rows, step), by_key=False))
        assert up_to(found, step) == expected, f"after step {step}"
    if rank == "rank()":
        assert not looked_at, "of rows of one rank there may be any number"
    else:
        assert len(looked_at) == 3
        assert all(some < size for some, size in looked_at[1:])
