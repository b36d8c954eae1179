"""What queries become: the plan, before and after the rewrites, has the rows that the query has."""

from __future__ import annotations

import duckdb
import pytest
from sql_builders import bag, database, outline, plan_sql, project, raw_plan
from sql_corpus import QUERIES

from lockstep.sql.duckdb_text import duckdb_statements, to_duckdb
from lockstep.sql.incremental import build_circuit
from lockstep.sql.plans.nodes import Aggregate


@pytest.mark.parametrize("name", QUERIES)
def test_plan_means_the_query(name: str) -> None:
    query = QUERIES[name]
    view = project(f"CREATE MATERIALIZED VIEW w AS {query}").views[0]
    raw, rewritten = raw_plan(query), view.plan
    assert rewritten.columns == raw.columns
    for seed in (1, 2):
        with database(seed) as connection:
            expected = bag(connection, to_duckdb(query, view.columns))
            assert bag(connection, plan_sql(raw)) == expected
            assert bag(connection, plan_sql(rewritten)) == expected


def test_some_query_has_rows() -> None:
    with database(1) as connection:
        empty = [name for name, query in QUERIES.items() if not bag(connection, to_duckdb(query))]
    assert empty == []


def test_views_on_views_in_any_order() -> None:
    found = project(
        """
        CREATE MATERIALIZED VIEW top AS SELECT a, n FROM counted WHERE n > 2;
        CREATE TEMPORARY VIEW counted AS SELECT a, count(*) AS n FROM positive GROUP BY a;
        CREATE VIEW positive (a, c) AS SELECT a, c FROM t WHERE a > 0;
        """
    )
    assert [view.published for view in found.views] == [True, False, True]
    with database(3) as connection:
        for statement in duckdb_statements(found):
            connection.execute(statement.statement)
        for view in found.views:
            assert bag(connection, plan_sql(view.plan)) == bag(
                connection, f"SELECT * FROM {view.name}"
            )


def test_written_case_is_kept() -> None:
    found = project("CREATE MATERIALIZED VIEW w AS SELECT A AS `Total Sum`, b AS Bee, C FROM t")
    assert found.views[0].columns == ("Total Sum", "Bee", "C")
    assert found.views[0].plan.columns == ("total sum", "bee", "c")


def test_no_column_of_a_query_has_a_name_of_the_engine() -> None:
    found = build_circuit(
        project(
            "CREATE MATERIALIZED VIEW w (x, y, z) AS SELECT q._step, q._a, r._weight "
            "FROM (SELECT a AS _a, count(*) AS _step FROM t GROUP BY a) q "
            "JOIN (SELECT a AS _a, max(d) AS _weight FROM u GROUP BY a) r ON q._a = r._a"
        )
    )
    names = {name for operator in found.operators for name in operator.node.columns}
    assert {"a", "step", "weight"} <= names
    assert [name for name in names if name.startswith("_")] == []


def test_a_call_is_a_name() -> None:
    found = project("CREATE MATERIALIZED VIEW w AS SELECT a, count(*), SUM(t.b) FROM t GROUP BY a")
    assert found.views[0].columns == ("a", "count(1)", "sum(b)")


def test_equal_subqueries_are_one_operator() -> None:
    counts = "SELECT a, count(*) AS n FROM t GROUP BY a"
    circuit = build_circuit(
        project(
            f"CREATE MATERIALIZED VIEW w AS SELECT x.a, y.top FROM ({counts}) x "
            f"JOIN (SELECT max(n) AS top FROM ( {counts.lower()} ) ) y ON x.n = y.top"
        )
    )
    aggregates = [
        outline(o.node).splitlines()[0] for o in circuit.operators if isinstance(o.node, Aggregate)
    ]
    assert aggregates == ["aggregate [a] [count = count(*)]", "aggregate [] [max_n = max(n)]"]


def test_a_doubled_quote_is_one_to_duckdb_too() -> None:
    text = to_duckdb("SELECT 'it''s' AS x, concat('a''''b', \"c\"\"d\", 'e' 'f') AS y")
    assert duckdb.sql(text).fetchall() == [("it's", "a''bc\"def")]


def test_a_list_of_nothing_is_empty_for_duckdb_too() -> None:
    query = (
        "SELECT collect_list(a) AS l, collect_set(a) AS s, collect_list(a) FILTER (WHERE a > 1) AS f, "
        "collect_list(b) AS b FROM VALUES (CAST(NULL AS INT), 1), (NULL, 2) AS t (a, b)"
    )
    assert duckdb.sql(to_duckdb(query)).fetchall() == [([], [], [], [1, 2])]
    over = (
        "SELECT collect_list(b) OVER (ORDER BY b ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING) AS l "
        "FROM VALUES (1), (2) AS t (b)"
    )
    assert duckdb.sql(to_duckdb(over)).fetchall() == [([],), ([1],)]


def test_a_match_condition_stands_in_on_for_duckdb() -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS FROM (VALUES (1, 5), (2, 3)) AS r (a, b)")
        connection.execute("CREATE TABLE u AS FROM (VALUES (1, 4), (1, 5), (1, 6)) AS r (a, d)")
        for shared in ("ON t.a = u.a", "USING (a)"):
            columns = "a, b, d" if shared.startswith("USING") else "t.a, t.b, u.d"
            query = (
                f"SELECT {columns} FROM t ASOF LEFT JOIN u MATCH_CONDITION (t.b >= u.d) {shared}"
            )
            found = connection.execute(to_duckdb(query)).fetchall()
            assert sorted(found) == [(1, 5, 5), (2, 3, None)]
