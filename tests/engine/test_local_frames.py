"""Window functions over rows that this process has: SQL's definition after each step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from partitions import there_at, window_of
from pyspark.sql.types import StructType

from lockstep.sql.circuit import Operator
from lockstep.sql.plans.frames import Frame, FramedCall, framed_call
from lockstep.sql.plans.nodes import Expression, Scan, SortKey, Window, WindowCall
from lockstep_engine.kernels.frames import greatest, sums
from lockstep_engine.local import framed as module
from lockstep_engine.local.framed import framed, is_framed
from lockstep_engine.local.rows import Rows
from lockstep_engine.local.values import Unlike

Row = tuple[int, int | None, Decimal | None]
Change = tuple[Row, int, int]
STEPS = 12
COLUMNS = ("k", "v", "d")
TYPES = pa.schema([("k", pa.int64()), ("v", pa.int32()), ("d", pa.decimal128(9, 2))])
UP = (SortKey(Expression.column("v")),)
DOWN = (SortKey(Expression.column("v"), descending=True, nulls_first=False),)
ROWS, RANGE = "ROWS BETWEEN {} AND {}", "RANGE BETWEEN {} AND {}"
ALL = ROWS.format("UNBOUNDED PRECEDING", "UNBOUNDED FOLLOWING")


def call(name: str, text: str, order: tuple[SortKey, ...] = (), frame: str = "") -> WindowCall:
    references = tuple(column for column in COLUMNS if f"`{column}`" in text)
    return WindowCall(name, Expression(text, references), order, frame)


def operator_of(*calls: WindowCall, by_key: bool = True, first: int | None = None) -> Operator:
    plan = Window(Scan("t", COLUMNS), ("k",) if by_key else (), calls, first)
    return window_of(plan)


def some_changes(seed: int) -> list[Change]:
    """Rows that come, some several times, and go; those of step -1 were there before."""
    random = np.random.default_rng(seed)
    held = Counter[Row]()
    found: list[Change] = []
    for step in range(-1, STEPS):
        for _ in range(random.integers(0, 20 if step < 0 else 4)):
            v, cents = int(random.integers(-2, 4)), int(random.integers(-400, 400))
            row = (
                int(random.integers(0, 3)),
                v if v > -2 else None,
                Decimal(cents) / 100 if cents % 5 else None,
            )
            if held and random.random() < 0.4:
                row = list(held)[int(random.integers(0, len(held)))]
            taken = int(random.integers(0, held[row] + 1))
            weight = -taken if taken and random.random() < 0.6 else int(random.integers(1, 3))
            held[row] += weight
            found.append((row, weight, step))
    return found


def rows_of(changes: Sequence[Change]) -> Rows:
    columns = {
        name: pa.array([c[0][place] for c in changes], TYPES.field(name).type)
        for place, name in enumerate(COLUMNS)
    }
    numbers = {"_weight": [c[1] for c in changes], "_step": [c[2] for c in changes]}
    of = {name: pa.array(values, pa.int64()) for name, values in numbers.items()}
    return Rows.of(pa.table({**columns, **of}))


def in_order(rows: list[Row], order: tuple[SortKey, ...]) -> list[Row]:
    """By the key of the order, then by all columns, nulls first, as they are sorted in Spark."""
    tie = [(lambda x: (x is not None, x or 0))] * 3
    rows = sorted(rows, key=lambda row: [of(x) for of, x in zip(tie, row, strict=True)])
    if order == UP:
        rows.sort(key=lambda row: (row[1] is not None, row[1] or 0))
    elif order == DOWN:
        rows.sort(key=lambda row: (row[1] is None, -(row[1] or 0)))
    return rows


def ends(rows: list[Row], place: int, one: WindowCall) -> tuple[int, int]:
    """The frame of a row, by the definition: places of the first in it, and of one after the last."""
    found = framed_call(one)
    assert found is not None
    peers = [n for n, row in enumerate(rows) if not one.order or row[1] == rows[place][1]]
    lower, upper = (peers[0], peers[-1]) if found.frame.by_peers else (place, place)
    begin = 0 if found.frame.first is None else lower + found.frame.first
    end = len(rows) if found.frame.last is None else upper + found.frame.last + 1
    return max(begin, 0), max(min(end, len(rows)), 0)


def average(values: list[Any]) -> Any:
    if not values:
        return None
    exact = sum(values) / Decimal(len(values)) if isinstance(values[0], Decimal) else None
    return sum(values) / len(values) if exact is None else exact


OVER: Mapping[str, Callable[[list[Any]], Any]] = MappingProxyType(
    {
        "count": len,
        "sum": lambda values: sum(values) if values else None,
        "avg": average,
        "min": lambda values: min(values, default=None),
        "max": lambda values: max(values, default=None),
    }
)


def expected_of(rows: list[Row], place: int, one: WindowCall) -> Any:
    found = framed_call(one)
    assert found is not None
    smaller = [row for row in rows[:place] if row[1] != rows[place][1]]
    peers = sum(row[1] == rows[place][1] for row in rows)
    match found.function:
        case "row_number":
            return place + 1
        case "rank":
            return len(smaller) + 1
        case "dense_rank":
            return len({row[1] for row in smaller}) + 1
        case "percent_rank":
            return len(smaller) / (len(rows) - 1) if len(rows) > 1 else 0.0
        case "cume_dist":
            return (len(smaller) + peers) / len(rows)
    begin, end = ends(rows, place, one)
    inside = rows[begin:end]
    if found.column is None:
        return len(inside)
    values = [row[COLUMNS.index(found.column)] for row in inside]
    if found.function == "first_value":
        return values[0] if values else None
    if found.function == "last_value":
        return values[-1] if values else None
    return OVER[found.function]([value for value in values if value is not None])


def comparable(value: Any) -> Any:
    """Averages of decimals have six digits."""
    return round(value, 6) if isinstance(value, Decimal) else value


def expected_at(
    changes: list[Change], step: int, calls: Sequence[WindowCall], by_key: bool, first: int | None
) -> Counter[Any]:
    there = there_at(changes, step)
    found = Counter[Any]()
    for key in range(3) if by_key else [None]:
        own = [row for row in there.elements() if key in (None, row[0])]
        values: list[list[Any]] = []
        for one in calls:
            rows = in_order(own, one.order)
            made = [(row, expected_of(rows, place, one)) for place, row in enumerate(rows)]
            # The same copy of a row comes first in each order.
            values.append([value for _, value in sorted(made, key=lambda of: own_key(of[0]))])
        for row, *of in zip(sorted(own, key=own_key), *values, strict=True):
            if first is None or of[0] <= first:
                found[(*row, *map(comparable, of))] += 1
    return found


def own_key(row: Row) -> list[tuple[bool, Any]]:
    return [(value is not None, value or 0) for value in row]


CALLS = [
    [call("_a", "row_number()", UP), call("_b", "rank()", UP), call("_c", "dense_rank()", UP)],
    [call("_a", "percent_rank()", DOWN), call("_b", "cume_dist()", UP)],
    [call("_a", "count(*)"), call("_b", "count(1)", UP), call("_c", "count(`d`)", DOWN)],
    [call("_a", "sum(`v`)", UP), call("_b", "avg(`v`)", UP), call("_c", "MAX(`v`)", DOWN)],
    [call("_a", "sum(`d`)", DOWN), call("_b", "avg(`d`)", UP), call("_c", "min(`d`)")],
    [
        call("_a", "avg(`d`)", UP, ROWS.format("2 PRECEDING", "CURRENT ROW")),
        call("_b", "sum(`v`)", DOWN, ROWS.format("1 FOLLOWING", "3 FOLLOWING")),
        call("_c", "min(`v`)", UP, ROWS.format("3 PRECEDING", "1 FOLLOWING")),
        call("_d", "max(`d`)", UP, ROWS.format("CURRENT ROW", "UNBOUNDED FOLLOWING")),
    ],
    [
        call("_a", "lag(`d`)", UP),
        call("_b", "lead(`v`, 2)", DOWN),
        call("_c", "lag(`v`, 0)", UP),
        call("_d", "first_value(`d`)", UP),
        call("_e", "last(`d`)", UP),
    ],
    [
        call("_a", "last_value(`d`)", DOWN, ALL),
        call("_b", "first(`v`)", DOWN, RANGE.format("CURRENT ROW", "UNBOUNDED FOLLOWING")),
        call("_c", "count(`d`)", UP, ROWS.format("9 PRECEDING", "7 PRECEDING")),
        call("_d", "sum(`d`)", UP, RANGE.format("CURRENT ROW", "CURRENT ROW")),
    ],
]


@pytest.mark.parametrize("by_key", [True, False])
@pytest.mark.parametrize("calls", CALLS, ids=lambda calls: calls[0].function.text)
@pytest.mark.parametrize("seed", range(4))
def test_what_calls_give_after_each_step(
    seed: int, calls: Sequence[WindowCall], by_key: bool
) -> None:
    check(some_changes(seed), operator_of(*calls, by_key=by_key), calls, by_key, None)


@pytest.mark.parametrize("rank", ["rank()", "dense_rank()"])
@pytest.mark.parametrize("first", [0, 1, 3])
def test_the_first_by_rank_after_each_step(rank: str, first: int) -> None:
    calls = [call("r", rank, DOWN)]
    check(some_changes(7), operator_of(*calls, first=first), calls, True, first)


def check(
    changes: list[Change],
    operator: Operator,
    calls: Sequence[WindowCall],
    by_key: bool,
    first: int | None,
) -> None:
    assert is_framed(operator)
    events = rows_of([one for one in changes if one[2] >= 0])
    before = rows_of([one for one in changes if one[2] < 0]).select([*COLUMNS, "_weight"])
    made = framed(operator, events, before).delta.rows.table.to_pylist()
    names = [*COLUMNS, *(one.name for one in calls)]
    for step in range(STEPS):
        found = expected_at(changes, -1, calls, by_key, first)
        for row in made:
            if row["_step"] <= step:
                found[tuple(row[name] for name in names)] += row["_weight"]
        expected = expected_at(changes, step, calls, by_key, first)
        assert {row: n for row, n in found.items() if n} == expected, f"after step {step}"
    identities = Counter((*(row[name] for name in names), row["_step"]) for row in made)
    assert set(identities.values()) <= {1}, "consolidated"


@pytest.mark.parametrize(
    ("text", "order", "frame"),
    [
        ("lead(`v`, 2, -1)", UP, ""),
        ("lag(`v`, -1)", UP, ""),
        ("ntile(2)", UP, ""),
        ("last_value(`v`) IGNORE NULLS", UP, ""),
        ("sum(`v` + 1)", UP, ""),
        ("count(`v`, `d`)", UP, ""),
        ("collect_list(`v`)", UP, ""),
        ("sum(`v`)", UP, RANGE.format("1 PRECEDING", "CURRENT ROW")),
        ("sum(`v`)", UP, RANGE.format("INTERVAL '1' DAY PRECEDING", "CURRENT ROW")),
        ("rank()", (SortKey(Expression("abs(`v`)", ("v",))),), ""),
        # What Spark refuses.
        ("rank()", (), ""),
        ("row_number()", (), ""),
        ("lag(`v`)", (), ""),
        ("rank()", UP, ROWS.format("1 PRECEDING", "CURRENT ROW")),
        ("lag(`v`)", UP, ALL),
        ("sum(`v`)", UP, ROWS.format("3 FOLLOWING", "1 FOLLOWING")),
        ("sum(`v`)", UP, ROWS.format("UNBOUNDED FOLLOWING", "UNBOUNDED FOLLOWING")),
        ("sum(`v`)", (), RANGE.format("UNBOUNDED PRECEDING", "CURRENT ROW")),
        (
            "sum(`v`)",
            (*UP, SortKey(Expression.column("d"))),
            RANGE.format("0 PRECEDING", "CURRENT ROW"),
        ),
    ],
)
def test_what_is_left_to_spark(text: str, order: tuple[SortKey, ...], frame: str) -> None:
    assert framed_call(call("a", text, order, frame)) is None


def test_what_a_call_is_read_as() -> None:
    assert framed_call(call("a", "lag(`v`, 3)", UP)) == FramedCall(
        "first_value", "v", Frame(-3, -3)
    )
    assert framed_call(call("a", "mean(`v`)")) == FramedCall("avg", "v", Frame(None, 0, True))
    found = framed_call(call("a", "sum(`v`)", UP, ROWS.format("9 PRECEDING", "CURRENT ROW")))
    assert found == FramedCall("sum", "v", Frame(-9, 0))


def test_calls_that_read_what_others_give_are_left_to_spark() -> None:
    own = call("a", "lag(`v`)", UP)
    other = WindowCall("b", Expression("sum(`a`)", ("a",)), UP)
    assert not is_framed(operator_of(own, other))


def test_numbers_that_would_be_rounded_are_left_to_spark() -> None:
    def rows(kind: pa.DataType, *values: Any) -> Rows:
        columns = {"k": pa.array([1] * len(values)), "v": pa.array(values, kind)}
        ones = {"d": pa.array([None] * len(values), pa.int64())}
        return Rows.of(
            pa.table({**columns, **ones, "_weight": columns["k"], "_step": columns["k"]})
        )

    big, average, total = 1 << 52, call("a", "avg(`v`)", UP), call("a", "sum(`v`)", UP)
    framed(operator_of(average), rows(pa.int64(), -big, big))
    framed(operator_of(total), rows(pa.int64(), big, big))
    for one, values in (
        (average, rows(pa.int64(), big, big + 1)),
        (total, rows(pa.int64(), 1 << 62, 1 << 62)),
        (total, rows(pa.float64(), 1.0)),
        (average, rows(pa.float64(), 1.0)),
        (total, rows(pa.decimal128(19, 0), Decimal(1))),
        (total, rows(pa.string(), "1")),
    ):
        with pytest.raises(Unlike):
            framed(operator_of(one), values)


def test_more_than_some_seconds_work_is_left_to_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    changes: list[Change] = [((0, n, None), 1, n) for n in range(20)]
    monkeypatch.setattr(module, "_MOST_LAID_OUT", 210)
    framed(operator_of(call("a", "rank()", UP)), rows_of(changes))
    monkeypatch.setattr(module, "_MOST_LAID_OUT", 209)
    with pytest.raises(Unlike):
        framed(operator_of(call("a", "rank()", UP)), rows_of(changes))


def test_wide_rows_that_would_be_laid_out_too_often_are_left_to_spark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changes: list[Change] = [((0, n, None), 1, n) for n in range(20)]
    events = rows_of(changes)
    width = events.select(COLUMNS).table.nbytes / len(events)
    monkeypatch.setattr(module, "_MOST_BYTES", 211 * width)
    framed(operator_of(call("a", "rank()", UP)), events)
    monkeypatch.setattr(module, "_MOST_BYTES", 209 * width)
    with pytest.raises(Unlike):
        framed(operator_of(call("a", "rank()", UP)), events)


def test_more_texts_than_a_column_holds_are_left_to_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def overflown(*_: Any) -> Any:
        raise pa.ArrowInvalid("Take operation overflowed binary array capacity")

    monkeypatch.setattr(module._Making, "changes", overflown)
    with pytest.raises(Unlike):
        framed(operator_of(call("a", "rank()", UP)), rows_of([((0, 1, None), 1, 3)]))


def test_rows_that_are_there_less_than_never_are_left_to_spark() -> None:
    with pytest.raises(Unlike):
        framed(operator_of(call("a", "rank()", UP)), rows_of([((0, 1, None), -1, 3)]))


def test_more_copies_than_can_be_counted_are_left_to_spark() -> None:
    changes: list[Change] = [((0, n, None), 1 << 62, n) for n in range(4)]
    with pytest.raises(Unlike):
        framed(operator_of(call("a", "rank()", UP)), rows_of(changes))


def test_nothing_comes_of_nothing() -> None:
    changes: list[Change] = [((0, 1, None), 1, 3), ((0, 1, None), -1, 3)]
    made = framed(operator_of(call("a", "rank()", UP)), rows_of(changes)).delta.rows
    assert not len(made)
    assert isinstance(made.schema, StructType)


def test_the_greatest_of_frames_of_any_length() -> None:
    random = np.random.default_rng(3)
    values = random.integers(0, 9, 500)
    begin = random.integers(0, 500, 500)
    end = np.minimum(begin + random.integers(0, 300, 500), 500)
    found = greatest(values, begin, end)
    totals = sums(values, begin, end)
    for place, (one, other) in enumerate(zip(begin, end, strict=True)):
        inside = values[one:other]
        assert totals[place] == inside.sum()
        if len(inside):
            last = other - 1 - int(inside[::-1].argmax())
            assert found[place] == last
        else:
            assert found[place] == -1
