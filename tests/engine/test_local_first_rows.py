"""The first rows of partitions over rows that this process has: SQL's row_number after each step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from partitions import there_at, window_of

from lockstep.sql.circuit import Operator, TraceKind
from lockstep.sql.plans.nodes import Expression, Scan, SortKey, Window, WindowCall
from lockstep_engine.kernels import first_rows as kernel
from lockstep_engine.kernels.first_rows import Taken, changes_of_first
from lockstep_engine.local import window
from lockstep_engine.local.rows import Rows
from lockstep_engine.local.values import Unlike
from lockstep_engine.local.window import first_rows

Row = tuple[int, int | None, str]
STEPS = 30
BY_V = SortKey(Expression.column("v"), descending=True, nulls_first=False)


def operator_of(bound: int, by_key: bool = True, append_only: bool = False) -> Operator:
    call = WindowCall("r", Expression("row_number()"), (BY_V,))
    plan = Window(Scan("t", ("k", "v", "n")), ("k",) if by_key else (), (call,), bound)
    return window_of(plan, frozenset({"t"} if append_only else ()))


def some_changes(seed: int, stays: bool = False) -> list[tuple[Row, int, int]]:
    """Rows that come, some several times, and go, unless each `stays`; those of step -1 were there
    before."""
    random = np.random.default_rng(seed)
    held = Counter[Row]()
    found: list[tuple[Row, int, int]] = []
    for step in range(-1, STEPS):
        for _ in range(random.integers(0, 30 if step < 0 else 4)):
            v = int(random.integers(0, 5))
            row = (int(random.integers(0, 3)), v or None, str(random.choice(["x", "y"])))
            taken = int(random.integers(0, held[row] + 1))
            weight = -taken if taken and random.random() < 0.5 else int(random.integers(1, 3))
            held[row] += weight
            found.append((row, abs(weight) if stays else weight, step))
    return found


def rows_of(changes: list[tuple[Row, int, int]]) -> Rows:
    keys, values, names = (pa.array([c[0][n] for c in changes]) for n in range(3))
    numbers = {"_weight": [c[1] for c in changes], "_step": [c[2] for c in changes]}
    columns = {"k": keys.cast(pa.int64()), "v": values.cast(pa.int64()), "n": names.cast("string")}
    return Rows.of(pa.table({**columns, **numbers}))


def first_at(
    changes: list[tuple[Row, int, int]], step: int, bound: int, by_key: bool
) -> Counter[Any]:
    """The first copies of each key after a step, with their numbers, by the definition."""
    there = there_at(changes, step)
    found = Counter[Any]()
    for key in range(3) if by_key else [None]:
        own = [row for row in there.elements() if key in (None, row[0])]
        # Nulls last, ties by all columns, as they are sorted in Spark: null first.
        own.sort(key=lambda row: (row[1] is None, -(row[1] or 0), row[0], row[1] or -1, row[2]))
        found.update((*row, place + 1) for place, row in enumerate(own[:bound]))
    return found


@pytest.mark.parametrize("stays", [False, True], ids=["rows go", "rows stay"])
@pytest.mark.parametrize("by_key", [True, False])
@pytest.mark.parametrize("bound", [0, 1, 3, 50, 1 << 61])
@pytest.mark.parametrize("seed", range(8))
def test_what_is_first_after_each_step(
    seed: int, bound: int, by_key: bool, stays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Step by step, a few steps at a time, all of them.
    monkeypatch.setattr(kernel, "_ROOM", [1, 100, 1 << 20][seed % 3])
    changes = some_changes(seed, stays)
    events = [one for one in changes if one[2] >= 0]
    before = rows_of([one for one in changes if one[2] < 0]).select(["k", "v", "n", "_weight"])
    made = first_rows(operator_of(bound, by_key), rows_of(events), before)
    rows = made.delta.rows.table.to_pylist()
    for step in range(STEPS):
        found = first_at(changes, -1, bound, by_key)
        for row in rows:
            if row["_step"] <= step:
                found[row["k"], row["v"], row["n"], row["r"]] += row["_weight"]
        expected = first_at(changes, step, bound, by_key)
        assert {row: n for row, n in found.items() if n} == expected, f"after step {step}"
    identities = Counter((r["k"], r["v"], r["n"], r["r"], r["_step"]) for r in rows)
    assert set(identities.values()) <= {1}, "consolidated"


def sums(rows: Rows, names: Sequence[str]) -> Counter[Any]:
    """How many come of each, less those that go; of some there may be nothing."""
    found = Counter[Any]()
    for row in rows.table.to_pylist():
        found[tuple(row[name] for name in names)] += row["_weight"]
    return Counter({row: weight for row, weight in found.items() if weight})


@pytest.mark.parametrize("stays", [False, True], ids=["rows go", "rows stay"])
@pytest.mark.parametrize("bound", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_a_trace_gets_what_is_not_undone(seed: int, bound: int, stays: bool) -> None:
    """Of what comes in where rows go, else of what is first; each row at most once."""
    changes = some_changes(seed, stays)
    operator = operator_of(bound, append_only=stays)
    [trace] = operator.traces
    delta = rows_of([one for one in changes if one[2] >= 0])
    before = rows_of([one for one in changes if one[2] < 0]).select(["k", "v", "n", "_weight"])
    made = first_rows(operator, delta, before)
    expected = sums(made.delta.rows if trace.kind is TraceKind.FIRST else delta, trace.row)
    appended = made.appends[trace.table]
    assert sums(appended, trace.row) == expected
    assert stays or len(appended) == len(expected) < len(delta), "netted"


def test_more_than_some_seconds_work_is_left_to_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = [((0, 1, str(n)), 1, n) for n in range(20)]
    first_rows(operator_of(2), rows_of(changes))
    monkeypatch.setattr(window, "_MOST_LOOKED_AT", 30)
    for more in (changes, [*changes, ((0, 1, "0"), -1, 20)]):
        with pytest.raises(Unlike):
            first_rows(operator_of(2), rows_of(more))


def test_of_a_step_only_so_many_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many come, and however many copies of each there are."""
    # Two copies of those before and of each step; of all but one of them once more.
    monkeypatch.setattr(window, "_MOST_LOOKED_AT", 6 + 5)
    changes = [((0, 1, str(n)), 1 << 60, n % 2) for n in range(20)]
    before = rows_of([((0, 1, "9"), 1 << 60, 0)] * 3).select(["k", "v", "n", "_weight"])
    assert len(first_rows(operator_of(2), rows_of(changes)).delta.rows) == 2
    assert len(first_rows(operator_of(2), rows_of(changes), before).delta.rows) == 4


@pytest.mark.parametrize("copies", [1_000, 1 << 60])
def test_copies_are_laid_out_too(copies: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One row that is there many times, and one before it that comes and goes: what is laid out is
    bounded, and beyond that it is left to Spark before anything is."""
    laid_out = list[int]()
    changes = kernel._Stretch.changes

    def noted(self: kernel._Stretch) -> kernel.FirstRows:
        laid_out.append(self.size)
        return changes(self)

    monkeypatch.setattr(kernel._Stretch, "changes", noted)
    monkeypatch.setattr(kernel, "_ROOM", 10_000)
    steps = np.arange(100)
    events = Taken(np.zeros(100, np.int64), np.where(steps % 2 == 0, 1, -1), steps)
    held, partitions = np.array([0, copies]), np.array([0, 0])
    assert changes_of_first(held, events, partitions, copies, 10_000) is None
    found = changes_of_first(held, events, partitions, 500, 1_000_000)
    assert found is not None
    assert len(laid_out) > 5
    assert max(laid_out) <= 10_000
    # Copies are told apart by how many are before them.
    assert len(found.rows) == 200, "who is the very first"


@pytest.mark.parametrize("steps", [1, 50])
@pytest.mark.parametrize("first", [1, 2, 7, 32])
@pytest.mark.parametrize("seed", range(6))
def test_where_nothing_is_taken_back_both_ways_find_the_same(
    seed: int, first: int, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random, size = np.random.default_rng(seed), 3000
    partitions = np.sort(random.integers(0, [2, 60, 2000][seed % 3], size))
    held = np.where(random.random(size) < 0.3, random.integers(1, 4, size), 0)
    rows, at = random.integers(0, size, 2 * size), random.integers(0, steps, 2 * size)
    events = Taken(rows, random.choice([1, 1, 1, 2, 40], 2 * size), at)

    def changes() -> Counter[tuple[int, ...]]:
        found = changes_of_first(held, events, partitions, first, 1 << 40)
        assert found is not None
        return Counter(zip(*(column.tolist() for column in found), strict=True))

    by_arrivals = changes()
    monkeypatch.setattr(kernel, "_FEW_PLACES", 0)
    assert by_arrivals == changes()
    assert by_arrivals


def test_rows_that_are_there_less_than_never_are_left_to_spark() -> None:
    with pytest.raises(Unlike):
        first_rows(operator_of(2), rows_of([((0, 1, "x"), -1, 3)]))
    held, none = np.array([1, -1]), np.zeros(0, np.int64)
    assert changes_of_first(held, Taken(none, none, none), np.array([0, 0]), 2, 100) is None


def test_nothing_is_first_of_nothing() -> None:
    made = first_rows(operator_of(2), rows_of([((0, 1, "x"), 1, 3), ((0, 1, "x"), -1, 3)]))
    assert not len(made.delta.rows)
