"""Trees of inner joins as one operator: what is merged, what is not, and in which order inputs meet."""

from __future__ import annotations

import pytest
from sql_builders import project

from lockstep.sql.explain import explain
from lockstep.sql.incremental import build_circuit
from lockstep.sql.plans.multiway import join_trees, path, routes
from lockstep.sql.plans.nodes import (
    Equality,
    Expression,
    Filter,
    Join,
    MultiwayJoin,
    Node,
    Output,
    Project,
    Scan,
)

T, U, V = Scan("t", ("a", "b")), Scan("u", ("c", "d")), Scan("v", ("e", "f"))


def merged(node: Node) -> Node:
    return join_trees([node])[0]


def joined(*equal: str, on: tuple[str, ...] = ()) -> MultiwayJoin:
    """Inputs x0 (k0, l0), x1 (k1, l1), … in one join; `equal` are pairs like 'k0 k1'."""
    count = 1 + max(int(name[1:]) for pair in (*equal, *on) for name in pair.split())
    inputs = tuple(Scan(f"x{n}", (f"k{n}", f"l{n}")) for n in range(count))
    equalities = tuple(Equality(*pair.split()) for pair in equal)
    conditions = tuple(
        Expression(" < ".join(f"`{name}`" for name in one.split()), tuple(one.split()))
        for one in on
    )
    return MultiwayJoin(inputs, equalities, conditions)


def order(node: MultiwayJoin, start: int) -> list[int]:
    return [hop.input for hop in path(node, start)]


def test_a_chain_is_one_join() -> None:
    chain = Join(Join(T, U, ("a",), ("c",)), V, ("d",), ("e",), Expression("`b` < `f`", ("b", "f")))
    assert merged(chain) == MultiwayJoin(
        (T, U, V),
        (Equality("a", "c"), Equality("d", "e")),
        (Expression("`b` < `f`", ("b", "f")),),
    )


def test_projections_and_filters_in_between_go_above() -> None:
    inner = Join(T, U, ("a",), ("c",), null_safe=(True,))
    sums = Project(
        Filter(inner, Expression("`b` > `d`", ("b", "d"))),
        (
            Output("key", Expression("`c` + 1", ("c",))),
            Output("sum", Expression("`b` + `d`", ("b", "d"))),
        ),
    )
    found = merged(Join(sums, V, ("key",), ("e",), Expression("`sum` < `f`", ("sum", "f"))))
    assert isinstance(found, Project)
    assert [(o.name, o.expression.text) for o in found.outputs] == [
        ("key", "`c` + 1"),
        ("sum", "`b` + `d`"),
        ("e", "`e`"),
        ("f", "`f`"),
    ]
    join = found.input
    assert isinstance(join, MultiwayJoin)
    assert [one.columns for one in join.inputs] == [("a", "b"), ("c", "d", "_equated"), ("e", "f")]
    assert [one.text for one in join.equalities] == ["`a` <=> `c`", "`_equated` = `e`"]
    assert [one.text for one in join.conditions] == ["`b` > `d`", "(`b` + `d`) < `f`"]


def test_columns_that_meet_get_names_of_their_own() -> None:
    hidden = Project(Join(T, U, ("a",), ("c",)), (Output("x", Expression.column("b")),))
    again = Project(Join(T, V, ("a",), ("e",)), (Output("y", Expression.column("a")),))
    found = merged(Join(hidden, again, ("x",), ("y",)))
    assert isinstance(found, Project)
    join = found.input
    assert isinstance(join, MultiwayJoin)
    assert join.columns == ("a", "b", "c", "d", "a_1", "b_1", "e", "f")
    assert [one.text for one in join.equalities] == ["`a` = `c`", "`a_1` = `e`", "`b` = `a_1`"]
    assert [o.expression.text for o in found.outputs] == ["`b`", "`a_1`"]


def test_what_others_read_stays_a_join_of_its_own() -> None:
    both = Join(T, U, ("a",), ("c",))
    roots = join_trees([both, Join(both, V, ("d",), ("e",))])
    two = MultiwayJoin((T, U), (Equality("a", "c"),))
    assert roots == (two, MultiwayJoin((two, V), (Equality("d", "e"),)))


def test_a_key_over_several_inputs_stays_below() -> None:
    sums = Project(
        Join(T, U, ("a",), ("c",)), (Output("sum", Expression("`b` + `d`", ("b", "d"))),)
    )
    found = merged(Join(sums, V, ("sum",), ("e",)))
    assert isinstance(found, MultiwayJoin)
    assert [type(one) for one in found.inputs] == [Project, Scan]
    assert isinstance(found.inputs[0], Project)
    assert isinstance(found.inputs[0].input, MultiwayJoin)


def test_a_lambda_does_not_capture_a_column() -> None:
    renames = Project(Join(T, U, ("a",), ("c",)), (Output("x", Expression.column("b")),))
    some = Expression("exists(`f`, b -> b = `x`)", ("f", "x"))
    found = merged(Join(renames, V, ("x",), ("e",), some))
    assert isinstance(found, MultiwayJoin)
    assert len(found.inputs) == 2
    assert found.conditions == (some,)


def test_an_equality_is_between_two_inputs() -> None:
    with pytest.raises(ValueError, match="within one input"):
        MultiwayJoin((T, U), (Equality("a", "b"),))
    with pytest.raises(ValueError, match="two or more"):
        MultiwayJoin((T,))


def test_a_change_meets_what_is_equated_first() -> None:
    chain = joined("l0 k1", "l1 k2", "l2 k3")
    assert [order(chain, n) for n in range(4)] == [
        [0, 1, 2, 3],
        [1, 0, 2, 3],
        [2, 1, 0, 3],
        [3, 2, 1, 0],
    ]


def test_tables_that_are_equated_by_way_of_a_third_are_far() -> None:
    # TPC-H q5: customer, orders, lineitem, supplier, nation, region; customer = supplier by nation.
    q5 = joined("k0 l1", "k1 k2", "l2 k3", "l0 l3", "l3 k4", "l4 k5")
    assert order(q5, 3) == [3, 2, 1, 0, 4, 5]
    assert order(q5, 5) == [5, 4, 3, 2, 1, 0]


def test_what_has_not_changed_is_met_once() -> None:
    # Orders and lineitem change; then customer, supplier, nation, region.
    q5 = joined("k0 l1", "k1 k2", "l2 k3", "l0 l3", "l3 k4", "l4 k5")
    found = routes(q5, [1, 2])
    assert {n: [hop.input for hop in hops] for n, hops in found.meetings.items()} == {
        1: [1, 2],
        2: [2, 1],
    }
    assert [hop.input for hop in found.onward] == [0, 3, 4, 5]
    # Both equalities with the supplier: its key, and the nation that it shares with the customer.
    assert [len(hop.equalities) for hop in found.onward] == [1, 2, 1, 1]


def test_what_stands_between_changes_is_met_by_each() -> None:
    chain = joined("l0 k1", "l1 k2", "l2 k3", on=("l0 l2", "l0 l3"))
    found = routes(chain, [0, 2])
    assert {n: [hop.input for hop in hops] for n, hops in found.meetings.items()} == {
        0: [0, 1, 2],
        2: [2, 1, 0],
    }
    assert [[one.text for one in hop.conditions] for hop in found.meetings[2]] == [
        [],
        [],
        ["`l0` < `l2`"],
    ]
    assert [(hop.input, len(hop.conditions)) for hop in found.onward] == [(3, 1)]
    [alone] = routes(chain, [3]).meetings.values()
    assert [hop.input for hop in alone] == [3]
    assert [hop.input for hop in routes(chain, [3]).onward] == [2, 1, 0]


def test_a_product_comes_last() -> None:
    found = joined("k0 k2", on=("l0 l1",))
    assert order(found, 0) == [0, 2, 1]
    assert [len(hop.conditions) for hop in path(found, 0)] == [0, 0, 1]


def test_conditions_are_asked_as_soon_as_they_can_be() -> None:
    found = joined("k0 k1", "k1 k2", on=("l0 l1", "l1 k1", "l0 l2"))
    asked = [[one.text for one in hop.conditions] for hop in path(found, 1)]
    assert asked == [["`l1` < `k1`"], ["`l0` < `l1`"], ["`l0` < `l2`"]]


def test_rows_of_followed_tables_need_no_trace() -> None:
    sources = (
        "CREATE TABLE k (a INT, b INT) USING kafka "
        "OPTIONS ('kafka.bootstrap.servers' = 'b', subscribe = 'k');\n"
        "CREATE TABLE i (c INT, d INT) USING iceberg OPTIONS ('table' = 'lake.db.i');\n"
    )
    sql = (
        "CREATE VIEW w AS SELECT a, d FROM k JOIN i ON a = c JOIN (VALUES (1), (2)) x(y) ON d = y;"
        "CREATE VIEW m AS SELECT d, median(c) AS c FROM i WHERE c > 3 GROUP BY d"
    )
    parsed = project(sql, sources=sources)
    found = build_circuit(parsed)
    join = next(one for one in found.operators if isinstance(one.node, MultiwayJoin))
    assert [None if trace is None else trace.key for trace in join.rows] == [("a",), None, None]
    assert len(found.traces) == 2  # of k, and the groups of m
    assert "as the tables have them" in explain(parsed, found)


def test_the_same_relations_under_other_conditions_are_joins_with_keys() -> None:
    condition = "t.a = u.a AND u.d = v.d AND t.b = {value}"
    one = f"(SELECT count(*) AS {{name}} FROM t, u, v WHERE {condition}) {{name}}"
    query = " CROSS JOIN ".join(one.format(name=f"n{value}", value=value) for value in (8, 19))
    circuit = build_circuit(project(f"CREATE MATERIALIZED VIEW w AS SELECT n8, n19 FROM {query}"))
    joins = [o.node for o in circuit.operators if isinstance(o.node, MultiwayJoin)]
    assert sorted(len(join.equalities) for join in joins) == [0, 2, 2]
    # the one without a key is that of two rows
    product = next(join for join in joins if not join.equalities)
    assert product.columns == ("n8", "n19")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) AS n FROM t, u WHERE t.b <> u.d AND t.a = u.a",
        "SELECT count(*) AS n FROM t JOIN u ON t.b <> u.d WHERE t.a = u.a",
        "SELECT count(*) AS n FROM t, u WHERE t.b < u.d AND upper(t.c) <> u.e AND t.a = u.a",
    ],
)
def test_an_equality_behind_another_condition_is_a_key(query: str) -> None:
    circuit = build_circuit(project(f"CREATE MATERIALIZED VIEW w AS {query}"))
    [join] = [o.node for o in circuit.operators if isinstance(o.node, MultiwayJoin)]
    assert [(one.left, one.right) for one in join.equalities] == [("a", "a_1")]
    assert all("<" in condition.text for condition in join.conditions)


def test_a_condition_on_one_side_behind_another_moves_below_the_join() -> None:
    query = (
        "SELECT count(*) AS n FROM t, u WHERE t.b <> u.d AND t.a = u.a AND u.e = 'x' AND t.c > 'y'"
    )
    circuit = build_circuit(project(f"CREATE MATERIALIZED VIEW w AS {query}"))
    filters = [o.node.predicate.text for o in circuit.operators if isinstance(o.node, Filter)]
    [join] = [o.node for o in circuit.operators if isinstance(o.node, MultiwayJoin)]
    assert sorted(filters) == ["`c` > 'y'", "`e` = 'x'"]
    assert [condition.text for condition in join.conditions] == ["`b` <> `d`"]
