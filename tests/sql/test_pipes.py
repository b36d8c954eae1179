"""`|>`: a query by steps is the plan of the same query in one piece."""

from __future__ import annotations

import pytest
from sql_builders import bag, database, project, view_plan

from lockstep.errors import NotSupported, ProjectError
from lockstep.sql.duckdb_text import to_duckdb

SAME = {
    "where": (
        "FROM t |> WHERE t.a > 1 |> WHERE t.b > 2 |> SELECT t.b",
        "SELECT b FROM t WHERE a > 1 AND b > 2",
    ),
    "a filter behind a limit": (
        "TABLE t |> ORDER BY a, b |> LIMIT 4 |> WHERE b > 1 |> SELECT a",
        "SELECT a FROM (SELECT * FROM t ORDER BY a, b LIMIT 4) WHERE b > 1",
    ),
    "a filter before an outer join": (
        "FROM t |> WHERE b > 2 |> AS q |> FULL JOIN u ON q.a = u.a |> SELECT q.b, u.d",
        "SELECT q.b, u.d FROM (SELECT * FROM t WHERE b > 2) q FULL JOIN u ON q.a = u.a",
    ),
    "a filter before an inner join": (
        "FROM t |> WHERE b > 2 |> JOIN u ON t.a = u.a |> SELECT t.b, u.d",
        "SELECT t.b, u.d FROM t JOIN u ON t.a = u.a WHERE t.b > 2",
    ),
    "two limits": (
        "FROM t |> ORDER BY a |> LIMIT 5 |> ORDER BY b |> LIMIT 2",
        "SELECT * FROM (SELECT * FROM t ORDER BY a LIMIT 5) ORDER BY b LIMIT 2",
    ),
    "a limit of the whole": (
        "FROM t |> ORDER BY a |> LIMIT 5 ORDER BY b, a LIMIT 2",
        "SELECT * FROM (SELECT * FROM t ORDER BY a LIMIT 5) ORDER BY b, a LIMIT 2",
    ),
    "a limit behind a list": (
        "FROM t |> SELECT a, b ORDER BY b, a LIMIT 3",
        "SELECT * FROM (SELECT a, b FROM t) ORDER BY b, a LIMIT 3",
    ),
    "a union behind steps": (
        "FROM t |> WHERE a > 1 |> SELECT a UNION ALL SELECT d FROM u |> WHERE a > 2",
        "SELECT a FROM (SELECT a FROM t WHERE a > 1 UNION ALL SELECT d FROM u) WHERE a > 2",
    ),
    "limit and offset": (
        "FROM t |> ORDER BY a |> LIMIT 5 |> OFFSET 2",
        "SELECT * FROM (SELECT * FROM t ORDER BY a LIMIT 5) OFFSET 2",
    ),
    "distinct": ("FROM t |> SELECT DISTINCT a, c", "SELECT DISTINCT a, c FROM t"),
    "distinct behind a limit": (
        "FROM t |> ORDER BY a |> LIMIT 3 |> DISTINCT",
        "SELECT DISTINCT * FROM (SELECT * FROM t ORDER BY a LIMIT 3)",
    ),
    "a window by name": (
        "FROM t |> SELECT a, sum(b) OVER w AS s WINDOW w AS (PARTITION BY a) |> WHERE s > 3",
        "SELECT * FROM (SELECT a, sum(b) OVER (PARTITION BY a) AS s FROM t) WHERE s > 3",
    ),
    "set, one after another": (
        "FROM t |> SET a = a + 1, b = a * 2 |> DROP ts",
        "SELECT x.a, x.a * 2 AS b, x.c FROM (SELECT a + 1 AS a, b, c FROM t) x",
    ),
    "a key's own name": (
        "FROM t |> AGGREGATE count(*) AS n GROUP BY b, b + 1 AS a, upper(c) AS c",
        "SELECT b, b + 1 AS a, upper(c) AS c, count(*) AS n FROM t GROUP BY b, b + 1, upper(t.c)",
    ),
    "numbers of columns as keys": (
        "FROM t |> SELECT c, b, a |> AGGREGATE sum(b) AS s GROUP BY 1, 3",
        "SELECT c, a, sum(b) AS s FROM t GROUP BY c, a",
    ),
    "order and place of rows": (
        "FROM t |> SORT BY a DESC DISTRIBUTE BY b |> WHERE a > 1 |> CLUSTER BY c |> SELECT b",
        "SELECT b FROM t WHERE a > 1",
    ),
    "a relation's name behind a limit": (
        "FROM t AS z |> ORDER BY z.a |> LIMIT 3 |> WHERE z.a > 1 |> SELECT z.b",
        "SELECT b FROM (SELECT * FROM t ORDER BY a LIMIT 3) z WHERE a > 1",
    ),
    "a filter of names that the join has twice": (
        "FROM t |> WHERE a > 1 |> JOIN u ON t.a = u.a |> SELECT t.b, u.d",
        "SELECT t.b, u.d FROM (SELECT * FROM t WHERE a > 1) t JOIN u ON t.a = u.a",
    ),
    "a join behind generated rows": (
        "FROM t LATERAL VIEW explode(array(a, b)) z AS q |> JOIN u ON q = u.a |> SELECT q, d",
        "SELECT q, d FROM (SELECT * FROM t LATERAL VIEW explode(array(a, b)) z AS q) JOIN u ON q = u.a",
    ),
    "a relation's name behind new columns": (
        "FROM t |> EXTEND t.a + 1 AS z |> DROP ts |> EXTEND t.b * z AS y |> SET c = y |> WHERE t.a > 1 "
        "|> SELECT c",
        "SELECT b * (a + 1) AS c FROM t WHERE a > 1",
    ),
    "a pivot of a pivot": (
        "SELECT * FROM (SELECT a, b, c FROM t) PIVOT (sum(b) FOR c IN ('x', 'y')) "
        "|> UNPIVOT (val FOR k IN (x, y)) |> SELECT k, val",
        "SELECT k, val FROM (SELECT * FROM (SELECT a, b, c FROM t) PIVOT (sum(b) FOR c IN ('x', 'y'))) "
        "UNPIVOT (val FOR k IN (x, y))",
    ),
    "set to a condition": (
        "FROM t |> SET c = b AND true |> SELECT c",
        "SELECT b AND true AS c FROM t",
    ),
    "values": (
        "VALUES (1, 'x') AS q (k, l) |> JOIN t ON q.k = t.a |> SELECT l, b",
        "SELECT l, b FROM (VALUES (1, 'x')) AS q (k, l) JOIN t ON q.k = t.a",
    ),
    "tables as queries": (
        "TABLE u |> UNION ALL TABLE u |> AGGREGATE count(*) AS n GROUP BY a",
        "SELECT a, count(*) AS n FROM (SELECT * FROM u UNION ALL SELECT * FROM u) GROUP BY a",
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_steps_are_the_query_in_one_piece(name: str) -> None:
    piped, whole = SAME[name]
    assert view_plan(piped) == view_plan(whole)


@pytest.mark.parametrize(
    "name", [name for name in SAME if "LIMIT" not in SAME[name][0] and "numbers" not in name]
)
def test_they_are_translated_for_duckdb(name: str) -> None:
    """By which `lockstep verify` compares a view with its query."""
    piped, whole = SAME[name]
    plan = view_plan(whole)
    with database(1) as connection:
        expected = bag(connection, to_duckdb(whole, plan.columns))
        assert expected
        assert bag(connection, to_duckdb(piped, plan.columns)) == expected


@pytest.mark.parametrize(
    ("query", "kind", "message"),
    [
        ("FROM t |> SET nothing = 1", ProjectError, "there is no column 'nothing'"),
        (
            "FROM t |> AGGREGATE sum(b) AS s GROUP BY 9",
            ProjectError,
            "GROUP BY 9 behind |> names",
        ),
        ("FROM t |> SELECT a WHERE a > 1", ProjectError, "only a list can stand behind |> SELECT"),
        ("FROM t |> SET t.a = 1", ProjectError, "only column = expression can stand behind SET"),
        ("FROM t |> AGGREGATE count(*) AS n GROUP BY ALL", ProjectError, "keys of AGGREGATE"),
        ("FROM t |> TABLESAMPLE (5 ROWS)", NotSupported, "TABLESAMPLE"),
    ],
)
def test_what_no_step_is(query: str, kind: type[ProjectError], message: str) -> None:
    with pytest.raises(kind) as caught:
        project(f"CREATE MATERIALIZED VIEW w AS {query}")
    assert message in caught.value.message


def test_stack_names_its_columns() -> None:
    [view] = project("CREATE MATERIALIZED VIEW w AS SELECT a, stack(2, b, c, a, c) FROM t").views
    assert view.columns == ("a", "col0", "col1")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(table) AS n FROM (SELECT a AS table FROM u)",
        "SELECT DISTINCT table FROM (SELECT a AS table FROM u)",
        "SELECT (table) AS n FROM (SELECT a AS table FROM u)",
        "SELECT sum(a) table FROM u",
        "WITH q AS (SELECT a FROM u) TABLE q",
        "SELECT a, d, e FROM (TABLE u) UNION TABLE u",
    ],
)
def test_a_column_may_be_called_table(query: str) -> None:
    project(f"CREATE MATERIALIZED VIEW w AS {query}")
