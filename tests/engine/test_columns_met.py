"""By which columns the rows of traces are met, as far as that is known before anything is read."""

from __future__ import annotations

import pytest
from circuits import circuit_of

from lockstep_engine.touched import columns_met

SOURCES = "".join(
    f"CREATE TABLE {name} ({columns}) USING kafka OPTIONS ('kafka.bootstrap.servers' = 'b', "
    f"'subscribe' = '{name}');\n"
    for name, columns in {
        "lines": "l_order INT, l_part INT, amount INT",
        "orders": "o_order INT, o_customer INT",
        "customers": "c_customer INT, name STRING",
        "parts": "p_part INT, brand STRING",
    }.items()
)
"""What is met is looked up by the names of these columns."""


ALL = ("lines", "orders", "customers", "parts")


def met(query: str, *changing: str) -> set[tuple[tuple[str, ...], frozenset[str]]]:
    """Of each trace the columns of its key, and those by which one of the operators meets its rows."""
    text = f"{SOURCES}CREATE MATERIALIZED VIEW v AS {query};"
    circuit = circuit_of(text)
    found = columns_met(circuit, frozenset(changing or ALL))
    return {(one.key, by) for one in circuit.traces for by in found.get(one.table, ())}


def some(*names: str) -> frozenset[str]:
    return frozenset(names)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT l_order, count(*) AS n FROM lines GROUP BY l_order", {some("l_order")}),
        (
            "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY l_part ORDER BY amount) AS r "
            "FROM lines) WHERE r < 3",
            {some("l_part")},
        ),
        ("SELECT amount, name FROM lines JOIN customers ON l_order = c_customer", None),
    ],
)
def test_one_operator_meets_its_rows_by_its_keys(
    query: str, expected: set[frozenset[str]] | None
) -> None:
    found = met(query)
    assert all(by == frozenset(key) for key, by in found)
    assert expected is None or {by for _, by in found} == expected


def test_an_expression_of_a_key_is_not_known() -> None:
    """What `_key0` holds is found by evaluating it, which nobody has done yet."""
    [(key, by)] = met("SELECT l_order % 7 AS k, count(*) AS n FROM lines GROUP BY l_order % 7")
    assert (key, by) == (("_key0",), frozenset())


def test_a_join_goes_on_from_what_it_has_met() -> None:
    """From lines to their orders, and from these to their customers. Where both ends change, orders are
    not met by one of them alone."""
    query = (
        "SELECT amount, name FROM lines JOIN orders ON l_order = o_order "
        "JOIN customers ON o_customer = c_customer"
    )
    assert {by for _, by in met(query, "lines")} == {some("o_order"), some("c_customer")}
    assert {by for _, by in met(query, "lines", "customers")} == {some()}
    assert met(query, "parts") == set()


def test_groups_that_a_join_reads_are_met_by_those_of_their_keys_that_are_equated() -> None:
    grouped = "SELECT l_order, l_part, sum(amount) AS most FROM lines GROUP BY l_order, l_part"
    by_key = met(f"SELECT most, o_customer FROM ({grouped}) JOIN orders ON l_order = o_order")
    assert (("l_order", "l_part"), some("l_order")) in by_key
    by_value = met(f"SELECT l_part, o_customer FROM ({grouped}) JOIN orders ON most = o_order")
    assert (("most",), some("most")) in by_value
    assert (("l_order", "l_part"), some("l_order", "l_part")) in by_value, "by the aggregate alone"
