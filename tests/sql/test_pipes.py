"""`|>`: a query by steps is the plan of the same query in one piece."""

from __future__ import annotations

import pytest
from sql_builders import project, view_plan

from lockstep.errors import NotSupported, ProjectError

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
    ("query", "kind", "message"),
    [
        ("FROM t |> SET nothing = 1", ProjectError, "there is no column 'nothing'"),
        ("FROM t |> SORT BY a", ProjectError, "can't be read"),
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
