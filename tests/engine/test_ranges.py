"""Ranges: what a change can touch is read, whatever else is left out."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import DateType, LongType

from lockstep.sql.circuit import Cost, Operator
from lockstep.sql.plans.nodes import (
    Aggregate,
    AggregateCall,
    AggregateFunction,
    Equality,
    Expression,
    Filter,
    MultiwayJoin,
    Node,
    Output,
    Project,
    Scan,
    SortKey,
    UnionAll,
    Window,
    WindowCall,
)
from lockstep_engine.operators.linear import leaf_below, leaves_below
from lockstep_engine.ranges import (
    Measured,
    Met,
    Range,
    Ranges,
    around,
    delta_ranges,
    measured,
    measured_rows,
    state_ranges,
    within,
)

T, U, V = Scan("t", ("a", "b")), Scan("u", ("c", "d")), Scan("v", ("e", "f"))
CHAIN = MultiwayJoin((T, U, V), (Equality("a", "c"), Equality("c", "e"), Equality("b", "f")))


def number(low: int, high: int) -> Range:
    return Range(LongType, low, high)


ROWS = WindowCall("n", Expression("row_number()"), (SortKey(Expression.column("b")),))
LONG = pa.int64()
RENAMED = (Output("x", Expression.column("a")), Output("y", Expression("`b` + 1", ("b",))))
A, B = number(1, 5), number(7, 9)
FEW, MANY = (Range(LongType, 1, n, np.arange(1, n + 1)) for n in (2, 20))


@pytest.mark.parametrize(
    ("node", "inputs", "expected"),
    [
        (Project(T, RENAMED), [{"a": A, "b": B}], {"x": A}),
        (Filter(T, Expression("`a` > 1", ("a",))), [{"a": A}], {"a": A}),
        (UnionAll((T, T)), [{"a": A, "b": A}, {"a": B}], {"a": number(1, 9)}),
        (UnionAll((T, T)), [{"a": A, "b": A}, None], {"a": A, "b": A}),
        (UnionAll((T, T)), [{"a": A}, {"a": Range(DateType, 1, 2)}], {}),
        (Aggregate(T, ("a",), ()), [{"a": A, "b": B}], {"a": A}),
        (Window(T, ("a",), (ROWS,)), [{"a": A, "b": B}], {"a": A}),
        # Only what all changes say of a column, or of one that is equal to it, holds for all.
        (CHAIN, [{"a": A, "b": B}, None, None], {"a": A, "b": B, "c": A, "e": A, "f": B}),
        (
            CHAIN,
            [{"a": A, "b": B}, {"c": B}, None],
            {"a": number(1, 9), "c": number(1, 9), "e": number(1, 9)},
        ),
        (CHAIN, [{"a": A}, {"d": B}, None], {}),
    ],
)
def test_ranges_of_a_change(node: Node, inputs: list[Ranges | None], expected: Ranges) -> None:
    assert delta_ranges(node, inputs) == expected


@pytest.mark.parametrize(
    ("place", "inputs", "expected"),
    [
        # The input's own change meets others, and not itself.
        (0, [{"a": A, "b": A}, {"c": B}, None], {"a": B}),
        (1, [{"a": A}, None, None], {"c": A}),
        (1, [{"a": A}, None, {"e": B}], {"c": number(1, 9)}),
        (2, [{"a": A, "b": B}, {"d": A}, None], {}),
    ],
)
def test_ranges_of_what_is_looked_up(
    place: int, inputs: list[Ranges | None], expected: Ranges
) -> None:
    assert state_ranges(CHAIN, place, inputs) == expected


@pytest.mark.parametrize(
    ("place", "inputs", "met", "expected"),
    [
        # The change of t says nothing of v's f, the rows of u that it meets do not either: b does.
        (2, [{"a": A}, None, None], {}, {"e": A}),
        (2, [{"d": A}, None, None], {0: {"b": B}}, {"f": B}),
        # What a change says of itself goes before what is said of all rows.
        (2, [{"a": A, "b": A}, None, None], {0: {"b": B}}, {"e": A, "f": A}),
        # Unless that is of fewer numbers.
        (2, [{"a": MANY}, None, None], {0: {"a": FEW}}, {"e": FEW}),
        (2, [{"a": FEW}, None, None], {0: {"a": MANY}}, {"e": FEW}),
        (2, [{"a": A}, None, None], {0: {"a": MANY}}, {"e": MANY}),
        # Another's change says of f what all rows of t do.
        (
            2,
            [{"a": A, "b": A}, {"c": B}, None],
            {0: {"b": B}},
            {"e": number(1, 9), "f": number(1, 9)},
        ),
        # Where nothing else has changed nothing is met.
        (2, [None, None, {"e": A}], {0: {"b": B}}, {}),
    ],
)
def test_ranges_go_on_through_rows_that_are_known(
    place: int, inputs: list[Ranges | None], met: Met, expected: Ranges
) -> None:
    assert state_ranges(CHAIN, place, inputs, met) == expected


def test_the_change_of_a_join_has_the_ranges_of_rows_that_it_meets() -> None:
    assert delta_ranges(CHAIN, [{"a": A}, None, None], {1: {"d": B}}) == {
        **dict.fromkeys("ace", A),
        "d": B,
    }


def test_a_range_around_all_rows() -> None:
    assert around([{"a": A, "b": A}, {"a": B}]) == {"a": number(1, 9)}
    assert around([{"a": A}]) == {"a": A}
    assert around([]) == {}


COLUMNS = "n tinyint, i bigint, d date, ts timestamp, s string, x double"
DAY = dt.date(2024, 2, 29)
NOON = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)


def rows(days: list[int | None]) -> list[tuple[Any, ...]]:
    return [
        (None,) * 6
        if day is None
        else (day, -day, DAY + dt.timedelta(day), NOON + dt.timedelta(day), f"{day}", float(day))
        for day in days
    ]


def known(*values: int | None, kind: pa.DataType = LONG) -> Range | None:
    """What is known of a column of rows that the driver has."""
    found = measured_rows(pa.table({"a": pa.array(values, kind)})).ranges
    return None if found is None else found.get("a")


def numbers_of(found: Range | None) -> list[int] | None:
    return None if found is None or found.numbers is None else found.numbers.tolist()


def test_the_numbers_of_rows_that_are_here_are_known() -> None:
    assert numbers_of(known(5, None, 3, 5)) == [3, 5]
    assert numbers_of(known(5, kind=pa.int8())) == [5]
    assert known(None) is None
    assert numbers_of(known(5, kind=pa.date32())) is None


@pytest.mark.parametrize("large", [1 << 53, -(1 << 53), (1 << 63) - 1])
def test_numbers_that_others_share_a_double_with_are_a_range_alone(large: int) -> None:
    found = known(3, large)
    assert found is not None
    assert found.numbers is None
    assert found.low <= min(3, large) <= max(3, large) <= found.high


def test_numbers_are_known_as_far_as_ranges_are() -> None:
    some, more = known(1, 5), known(5, 7)
    assert some is not None
    assert more is not None
    assert numbers_of(state_ranges(CHAIN, 1, [{"a": some}, None, {"e": more}])["c"]) == [1, 5, 7]
    assert numbers_of(state_ranges(CHAIN, 1, [{"a": some}, None, {"e": A}])["c"]) is None
    assert numbers_of(delta_ranges(Project(T, RENAMED), [{"a": some}])["x"]) == [1, 5]


def test_a_relation_of_the_rows_of_one_scan_or_aggregate() -> None:
    renamed = Project(Filter(T, Expression("`b` > 1", ("b",))), RENAMED)
    joined = MultiwayJoin((T, U), (Equality("a", "c"),))
    grouped = Aggregate(joined, ("a",), (AggregateCall("n", AggregateFunction.COUNT, None),))
    nodes: list[tuple[Node, tuple[int, ...]]] = [
        (T, ()),
        (renamed.input, (0,)),
        (renamed, (1,)),
        (Project(renamed, (Output("z", Expression.column("x")),)), (2,)),
        (U, ()),
        (joined, (0, 4)),
        (Filter(joined, Expression("`a` > 1", ("a",))), (5,)),
        (grouped, (5,)),
        (Filter(grouped, Expression("`n` > 1", ("n",))), (7,)),
    ]
    operators = [
        Operator(ref, node, inputs, (), True, True, Cost.CHANGE, 1)
        for ref, (node, inputs) in enumerate(nodes)
    ]
    scan = operators[0]
    assert leaf_below(operators, 0) == (scan, {"a": "a", "b": "b"})
    assert leaf_below(operators, 1) == (scan, {"a": "a", "b": "b"})
    # A column that is worked out is none of the scan's.
    assert leaf_below(operators, 2) == (scan, {"x": "a"})
    assert leaf_below(operators, 3) == (scan, {"z": "a"})
    assert leaf_below(operators, 6) is None
    assert list(leaves_below(operators, 3)) == [scan]
    assert list(leaves_below(operators, 6)) == [scan, operators[4]]
    # The groups are there, whatever they are of.
    assert leaf_below(operators, 8) == (operators[7], {"a": "a", "n": "n"})
    assert list(leaves_below(operators, 8)) == [operators[7]]


@pytest.mark.spark
def test_state_within_a_change(spark: SparkSession) -> None:
    change = spark.createDataFrame(rows([10, None, 20]), COLUMNS)
    found = measured(change).ranges
    assert found is not None
    assert sorted(found) == ["d", "i", "n", "ts"]
    state = spark.createDataFrame(rows([1, 9, 10, 15, 20, 30, None]), COLUMNS)
    types = {field.name: field.dataType for field in state.schema}
    # One more at either end: what a double may lose.
    kept = {
        name: [row["n"] for row in within(state, types, {name: found[name]}).collect()]
        for name in found
    }
    assert kept == {
        "n": [9, 10, 15, 20, None],
        "i": [9, 10, 15, 20, None],
        "d": [10, 15, 20, None],
        "ts": [10, 15, 20, None],
    }
    ends = spark.createDataFrame([(-128, -(1 << 63)), (127, (1 << 63) - 1)], "n tinyint, i bigint")
    everything = measured(ends).ranges
    assert everything is not None
    assert within(state, types, everything).count() == 7
    # A number says nothing of a text, though Spark compares them.
    assert within(state, types, {"s": found["n"], "x": found["n"]}).count() == 7
    assert measured(change).rows == 3
    assert measured(change.limit(0)) == Measured(0, None)
    for frame in (change, ends, change.limit(0), spark.createDataFrame(rows([None]), COLUMNS)):
        assert measured_rows(frame.toArrow()) == measured(frame)
