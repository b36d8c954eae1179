"""Types that are told of expressions without Spark: those that it gives them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from lockstep.sql.plans.exact_types import exact_type
from lockstep.sql.plans.nodes import (
    Aggregate,
    AggregateCall,
    AggregateFunction,
    Expression,
    Filter,
    MultiwayJoin,
    Node,
    Output,
    Project,
    Scan,
    UnionAll,
)

COLUMNS = {
    "a": "TINYINT",
    "b": "smallint",
    "c": "INTEGER",
    "d": "Long",
    "e": "DECIMAL(15, 2)",
    "f": "decimal(38,10)",
    "g": "numeric",
    "h": "dec(5)",
    "x": "DOUBLE",
    "s": "STRING",
}
EXACT = "abcdefgh"
SCAN = Scan("t", tuple(COLUMNS))


def declared(scan: Scan, column: str) -> str | None:
    assert scan == SCAN
    return COLUMNS.get(column)


def expression(text: str) -> Expression:
    return Expression(text, tuple(name for name in COLUMNS if f"`{name}`" in text))


def of(text: str, node: Node = SCAN) -> str | None:
    return exact_type(node, expression(text), declared)


TERMS = st.recursive(
    st.sampled_from([f"`{name}`" for name in EXACT] + ["7", "1.25", "0.0001", "12345"]),
    lambda below: st.tuples(below, st.sampled_from("+-*"), below).map(
        lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
    ),
    max_leaves=4,
)


@pytest.mark.spark
@given(text=TERMS)
def test_it_is_sparks_type(spark: SparkSession, text: str) -> None:
    found = of(text)
    columns = ", ".join(f"CAST(NULL AS {kind}) AS {name}" for name, kind in COLUMNS.items())
    [field] = spark.sql(f"SELECT {text} AS y FROM (SELECT {columns})").schema
    assert found == field.dataType.simpleString()


@pytest.mark.parametrize("text", ["`x`", "`s`", "`c` + `x`", "`c` / `d`", "abs(`c`)", "`c` > 1"])
def test_other_types_are_not_told(text: str) -> None:
    assert of(text) is None


def renamed(node: Node, **names: str) -> Project:
    return Project(node, tuple(Output(new, expression(old)) for new, old in names.items()))


def test_columns_are_followed_to_where_they_are_declared() -> None:
    made = Project(SCAN, (Output("a", expression("`e` * `c`")), Output("b", expression("`x`"))))
    assert of("`a`", made) == "decimal(26,2)"
    assert of("`b`", made) is None
    assert of("`a`", Filter(made, expression("`b` > 1"))) == "decimal(26,2)"
    count = AggregateCall("c", AggregateFunction.COUNT, None)
    grouped = Aggregate(made, ("a",), (count,))
    assert (of("`a`", grouped), of("`c`", grouped)) == ("decimal(26,2)", None)
    # Iceberg has no narrow numbers, and a trace may have been read.
    narrow = Aggregate(SCAN, ("b", "c"), ())
    assert (of("`b`"), of("`b`", narrow), of("`c`", narrow)) == ("smallint", None, "int")
    joined = MultiwayJoin((made, renamed(SCAN, d="`h`")))
    assert (of("`a`", joined), of("`d`", joined)) == ("decimal(26,2)", "decimal(5,0)")
    assert of("`a`", UnionAll((made, made))) is None
