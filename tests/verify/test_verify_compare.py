"""Comparison of two relations as multisets: every single row counts, nulls and copies too."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from lockstep.adapters.verify_compare import Comparison, compare, inexact_columns
from lockstep.sql.plans.nodes import (
    BEFORE,
    LEVEL,
    Aggregate,
    AggregateCall,
    AggregateFunction,
    Expression,
    Output,
    Project,
    Recursive,
    Scan,
)


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        yield opened


def differ(
    connection: duckdb.DuckDBPyConnection, published: str, expected: str, *inexact: str
) -> Comparison:
    connection.execute(f"CREATE OR REPLACE TEMP TABLE p AS {published}")
    connection.execute(f"CREATE OR REPLACE TEMP TABLE e AS {expected}")
    return compare(connection, "p", "e", frozenset(inexact))


ROWS = "SELECT * FROM (VALUES (1, 'a'), (1, 'a'), (NULL, 'b'), (2, NULL)) t(x, y)"


def test_equal_in_any_order_with_copies_and_nulls(connection: duckdb.DuckDBPyConnection) -> None:
    found = differ(connection, f"{ROWS} ORDER BY x DESC", ROWS)
    assert found == Comparison(4, 4, 0, 0, ())


@pytest.mark.parametrize("dropped", ["x = 2", "x IS NULL"])
def test_one_row_less_is_missing(connection: duckdb.DuckDBPyConnection, dropped: str) -> None:
    found = differ(connection, f"{ROWS} WHERE ({dropped}) IS NOT TRUE", ROWS)
    assert (found.missing, found.unexpected) == (1, 0)
    assert found.sample[0].startswith("missing: x=")


def test_one_copy_too_many_is_unexpected(connection: duckdb.DuckDBPyConnection) -> None:
    found = differ(connection, f"{ROWS} UNION ALL SELECT 1, 'a'", ROWS)
    assert (found.missing, found.unexpected) == (0, 1)
    assert found.sample == ("unexpected: x=1, y=a",)


def test_null_is_not_an_empty_text(connection: duckdb.DuckDBPyConnection) -> None:
    found = differ(connection, "SELECT ''::VARCHAR AS x", "SELECT NULL::VARCHAR AS x")
    assert (found.missing, found.unexpected) == (1, 1)


def test_wider_types_do_not_hide_a_difference(connection: duckdb.DuckDBPyConnection) -> None:
    assert differ(connection, "SELECT 1::INT AS x", "SELECT 1::HUGEINT AS X").missing == 0
    assert differ(connection, "SELECT 1::INT AS x", "SELECT 1.5::DOUBLE AS x").missing == 1


def test_average_may_differ_in_the_last_digits_only(connection: duckdb.DuckDBPyConnection) -> None:
    third, near, off = "SELECT 1 AS k, {}::DOUBLE AS m", 0.333333333333, 0.3333
    expected = third.format(1 / 3)
    assert differ(connection, third.format(near), expected, "m").missing == 0
    assert differ(connection, third.format(off), expected, "m").missing == 1
    assert differ(connection, third.format(near), expected).missing == 1


def test_near_rows_pair_one_to_one(connection: duckdb.DuckDBPyConnection) -> None:
    published = "SELECT 0.1::DOUBLE AS m FROM range(3)"
    expected = "SELECT (0.1 + 1e-12)::DOUBLE AS m FROM range(2)"
    found = differ(connection, published, expected, "m")
    assert (found.missing, found.unexpected) == (0, 1)


def test_tolerance_needs_the_other_columns_equal(connection: duckdb.DuckDBPyConnection) -> None:
    found = differ(
        connection, "SELECT 1 AS k, 0.1::DOUBLE AS m", "SELECT 2 AS k, 0.1::DOUBLE AS m", "m"
    )
    assert (found.missing, found.unexpected) == (1, 1)


def test_other_columns_make_every_row_different(connection: duckdb.DuckDBPyConnection) -> None:
    found = differ(connection, "SELECT 1 AS x", "SELECT 1 AS y")
    assert (found.missing, found.unexpected) == (1, 1)
    assert found.sample == ("columns are x; expected y",)


def test_inexact_columns_are_those_that_come_from_sums() -> None:
    deviation = Expression("stddev(`v`)", ("v",))
    grouped = Aggregate(
        Scan("s", ("k", "v")),
        ("k",),
        (
            AggregateCall("mean", AggregateFunction.AVG, "v"),
            AggregateCall("top", AggregateFunction.MAX, "v"),
            AggregateCall("rows", AggregateFunction.COUNT, None),
            AggregateCall("spread", AggregateFunction.COLLECTED, None, deviation),
        ),
    )
    assert inexact_columns(grouped) == {"mean", "spread"}
    renamed = Project(grouped, (Output("m", Expression("`mean` * 2", ("mean",))),))
    assert inexact_columns(renamed) == {"m"}
    assert inexact_columns(
        Aggregate(renamed, (), (AggregateCall("best", AggregateFunction.MAX, "m"),))
    ) == {"best"}
    step = Project(
        Scan(BEFORE, ("k", "mean", LEVEL)),
        tuple(Output(c, Expression.column(c)) for c in ("k", "mean", LEVEL)),
    )
    anchor = Project(grouped, tuple(Output(c, Expression.column(c)) for c in ("k", "mean")))
    assert inexact_columns(Recursive(anchor, (), step, 9, "r")) == {"k", "mean"}
    calls = (AggregateCall("mean", AggregateFunction.SUM, "k"),)
    sums = Aggregate(Scan(BEFORE, ("k", "mean", LEVEL)), ("k", LEVEL), calls)
    added = Project(sums, step.outputs)
    whole = Scan("t", ("k", "mean"))
    assert inexact_columns(Recursive(whole, (), step, 9, "r")) == set()
    assert inexact_columns(Recursive(whole, (), added, 9, "r")) == {"k", "mean"}
