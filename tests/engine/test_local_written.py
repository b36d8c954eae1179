"""Rows that stand in a query: those that Spark makes of them, or left to it."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from lockstep.sql.plans.expressions import from_text
from lockstep.sql.plans.nodes import Values
from lockstep_engine.context import Context
from lockstep_engine.local.formulas import written
from lockstep_engine.told import fetched
from lockstep_engine.touched import rows_of


def values(*rows: str) -> Values:
    cells = tuple(tuple(from_text(cell) for cell in row.split(";")) for row in rows)
    return Values(tuple("abcd"[: len(cells[0])]), cells)


@pytest.mark.spark
@pytest.mark.parametrize(
    "node",
    [
        values("1;'one'", "-2;'zwei'", "NULL;'é'"),
        values("7L;TRUE;DATE '2026-01-31'", "-7L;FALSE;NULL"),
        values("0.25;1", "0.75;2"),
        values("1 + 2"),
    ],
    ids=str,
)
def test_rows_are_those_of_spark(spark: SparkSession, node: Values) -> None:
    found = written(node)
    assert found is not None
    rows, schema = fetched(rows_of(node, Context(spark, 1)))
    assert found.schema == schema
    assert found.table.to_pylist() == rows.to_pylist()


@pytest.mark.parametrize(
    "node",
    [
        values("1", "2L"),
        values("0.5", "0.25"),
        values("NULL"),
        values("1", "'a'"),
        values("1", "length('a')"),
        values("array(1)"),
        values("2147483647 + 1"),
    ],
    ids=str,
)
def test_what_is_left_to_spark(node: Values) -> None:
    assert written(node) is None
