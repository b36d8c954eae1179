"""What is refused, and how it reads: position, expected, found, next.

Each message stands whole in tests/golden/sql/errors/, to be read in review.
"""

from __future__ import annotations

import pytest
from sql_builders import SOURCES, SPEC, check_golden

from lockstep.errors import NotSupported, ProjectError
from lockstep.sql.circuit import ProjectFiles
from lockstep.sql.project import parse_project

KAFKA = "USING kafka OPTIONS ('kafka.bootstrap.servers' = 'b', subscribe = 's')"


def view(query: str) -> str:
    return f"CREATE MATERIALIZED VIEW w AS\n{query}"


WRONG = {
    "two_views_of_a_name": "CREATE VIEW w AS SELECT a FROM t;\nCREATE TEMPORARY VIEW W AS SELECT a "
    "FROM t",
    "view_with_a_sources_name": "CREATE VIEW T AS SELECT a FROM u",
    "view_named_like_an_outbox": "CREATE VIEW w AS SELECT a FROM t;\nCREATE VIEW w_changes AS SELECT a "
    "FROM t",
    "view_with_an_underscore": "CREATE VIEW _w AS SELECT a FROM t",
    "unknown_table": view("SELECT a\nFROM tt"),
    "other_database": view("SELECT a FROM elsewhere.t"),
    "unknown_column": view("SELECT a,\n       bb FROM t"),
    "unknown_column_of_a_relation": view("SELECT t.cc FROM t JOIN u ON t.a = u.a"),
    "unknown_relation": view("SELECT x.a FROM t"),
    "unknown_column_in_where": view("SELECT a FROM t WHERE dd > 1"),
    "ambiguous_column": view("SELECT a FROM t JOIN u ON t.b = u.d"),
    "two_relations_of_a_name": view("SELECT t.a FROM t JOIN t ON t.a = t.b"),
    "unknown_star": view("SELECT x.* FROM t"),
    "unknown_except": view("SELECT * EXCEPT (zz) FROM t"),
    "using_unknown_column": view("SELECT * FROM t JOIN u USING (b)"),
    "not_grouped": view("SELECT a, b, count(*) AS n FROM t GROUP BY a"),
    "not_grouped_star": view("SELECT * FROM t GROUP BY a"),
    "group_by_place": view("SELECT a FROM t GROUP BY 2"),
    "aggregate_in_where": view("SELECT a FROM t WHERE sum(b) > 1 GROUP BY a"),
    "aggregate_in_aggregate": view("SELECT sum(max(b)) AS s FROM t"),
    "two_arguments": view("SELECT sum(a, b) AS s FROM t"),
    "window_in_a_condition": view("SELECT a FROM t WHERE row_number() OVER (ORDER BY a) = 1"),
    "pivot_without_an_aggregate": view("SELECT * FROM t PIVOT (upper(c) FOR b IN (1))"),
    "unpivot_of_other_widths": view("SELECT * FROM t UNPIVOT ((v, w) FOR n IN (a, b))"),
    "pivot_of_other_widths": view("SELECT * FROM t PIVOT (sum(a) FOR b IN ((1, 2)))"),
    "session_gap": view("SELECT count(*) AS n FROM t GROUP BY session_window(ts, 'soon')"),
    "session_not_grouped": view("SELECT session_window(ts, '5 minutes').start AS s FROM t"),
    "window_in_a_window": view(
        "SELECT sum(rank() OVER (ORDER BY a)) OVER (ORDER BY b) AS s FROM t"
    ),
    "window_of_no_name": view("SELECT sum(a) OVER w AS s FROM t"),
    "generator_inside": view("SELECT 1 + explode(array(a)) AS x FROM t"),
    "two_generators": view("SELECT explode(array(a)) AS x, explode(array(b)) AS y FROM t"),
    "generator_without_names": view("SELECT * FROM t LATERAL VIEW inline(from_json(c, c || '')) q"),
    "order_by_place": view("SELECT a FROM t ORDER BY 3 LIMIT 1"),
    "limit_of_a_column": view("SELECT a FROM t LIMIT a"),
    "order_after_distinct": view("SELECT DISTINCT a FROM t ORDER BY b LIMIT 1"),
    "rows_of_values": view("SELECT * FROM VALUES (1, 2), (3) AS q (x, y)"),
    "in_of_two_columns": view("SELECT a FROM t WHERE a IN (SELECT a, d FROM u)"),
    "scalar_of_two_columns": view("SELECT (SELECT a, d FROM u) AS x FROM t"),
    "unknown_column_in_a_subquery": view(
        "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE zz = t.a)"
    ),
    "except_of_different_widths": view("SELECT a, b FROM t EXCEPT SELECT d FROM u"),
    "no_name": view("SELECT a, count(*) + 1 FROM t GROUP BY a"),
    "same_name_twice": view("SELECT a, b AS A FROM t"),
    "underscore_output": view("SELECT a,\n       b AS _V0 FROM t"),
    "underscore_output_of_a_star": view(
        "SELECT a AS x,\n       q.*\nFROM (SELECT a, b AS _b FROM t) q"
    ),
    "underscore_output_of_a_union": view(
        "SELECT a,\n  b AS _b FROM t\nUNION ALL SELECT d, f FROM v"
    ),
    "underscore_output_without_as": view("SELECT q._b FROM (SELECT b AS _b FROM t) q"),
    "underscore_in_a_column_list": "CREATE VIEW w (x,\n  _step) AS SELECT a, b FROM t",
    "underscore_in_a_temporary_view": "CREATE TEMPORARY VIEW w AS SELECT a AS _a FROM t",
    "column_list_too_short": "CREATE VIEW w (x) AS SELECT a, b FROM t",
    "union_of_different_widths": view("SELECT a, b FROM t\nUNION ALL\nSELECT d FROM u"),
    "recursion_without_an_anchor": view(
        "WITH RECURSIVE r AS (SELECT a FROM t JOIN r ON t.a = r.a)\nSELECT a FROM r"
    ),
    "recursion_in_the_anchor": view(
        "WITH RECURSIVE r AS (SELECT a FROM r UNION ALL SELECT a + 1 FROM r) SELECT a FROM r"
    ),
    "recursion_with_a_limit_of_rows": view(
        "WITH RECURSIVE r AS (SELECT a FROM t UNION ALL SELECT a + 1 FROM r LIMIT 5) SELECT a FROM r"
    ),
    "recursion_of_other_width": view(
        "WITH RECURSIVE r AS (SELECT a FROM t UNION ALL SELECT a, a + 1 FROM r) SELECT a FROM r"
    ),
    "recursion_of_no_level": view(
        "WITH RECURSIVE r MAX RECURSION LEVEL 0 AS (SELECT a FROM t UNION ALL SELECT a FROM r) "
        "SELECT a FROM r"
    ),
    "unread_expression_of_no_table": view(
        "SELECT a, (WITH q AS (SELECT x FROM nowhere) SELECT 1) AS y FROM t"
    ),
    "unread_expression_of_no_column": view(
        "SELECT a, (WITH q AS (SELECT t.a, nothing FROM u) SELECT 1) AS y FROM t"
    ),
    "recursion_not_said": view(
        "WITH r AS (SELECT a FROM t UNION ALL SELECT a FROM r) SELECT a FROM r"
    ),
    "window_size": view("SELECT window(ts, 'soon').start AS s FROM t"),
    "window_offset": view("SELECT window(ts, '1 hour', '1 hour', 'soon').start AS s FROM t"),
    "range_of_nothing": view("SELECT id FROM range()"),
    "window_of_months": view("SELECT window(ts, '1 month').start AS s FROM t"),
    "window_slide": view("SELECT window(ts, '1 minute', '2 minutes').start AS s FROM t"),
    "cycle": "CREATE VIEW x AS SELECT a FROM y;\nCREATE VIEW y AS SELECT a FROM "
    "z;\nCREATE VIEW z AS SELECT a FROM x",
    "view_on_itself": "CREATE VIEW x AS SELECT a FROM x",
    "not_sql": view("SELECT a FROM t WHERE (a > 1"),
    "not_a_query": "CREATE VIEW w AS 1 + 1",
    "view_without_query": "CREATE MATERIALIZED VIEW w USING parquet AS SELECT a FROM t",
    "open_quote": "CREATE VIEW w AS SELECT 'a FROM t",
    "unknown_variable": view("SELECT a FROM t\nWHERE c = '${nope}'"),
    "unknown_type": f"CREATE TABLE s (a INT, b TEXTT) {KAFKA}",
    "decimal_too_wide": f"CREATE TABLE s (a DECIMAL(40, 2)) {KAFKA}",
    "column_twice": f"CREATE TABLE s (a INT, A STRING) {KAFKA}",
    "underscore_column": f"CREATE TABLE s (a INT,\n  _key_0 INT) {KAFKA}",
    "underscore_column_in_backticks": f"CREATE TABLE s (a INT, `_Weight` INT) {KAFKA}",
    "no_subscribe": "CREATE TABLE s (a INT) USING kafka OPTIONS ('kafka.bootstrap.servers' = 'b')",
    "no_broker": "CREATE TABLE s (a INT) USING kafka OPTIONS (subscribe = 's')",
    "option_twice": "CREATE TABLE s (a INT) USING kafka OPTIONS (subscribe = 's', SUBSCRIBE 't')",
    "option_without_value": "CREATE TABLE s (a INT) USING kafka OPTIONS (subscribe =)",
    "no_options": "CREATE TABLE s (a INT) USING kafka",
    "no_columns": "CREATE TABLE s USING kafka OPTIONS (subscribe = 's')",
    "on_error": "CREATE TABLE s (a INT) USING kafka OPTIONS ('kafka.bootstrap.servers' "
    "'b', subscribe 's', on_error 'stop')",
    "missing_columns": "CREATE TABLE s (a INT) USING kafka OPTIONS ('kafka.bootstrap.servers' "
    "'b', subscribe 's', missing_columns 'skip')",
    "sink_of_nothing": "CREATE VIEW w AS SELECT a FROM t;\nCREATE SINK k FROM ww USING kafka "
    "OPTIONS (topic = 'k')",
    "sink_of_temporary": "CREATE TEMPORARY VIEW w AS SELECT a FROM t;\nCREATE SINK k FROM w USING "
    "kafka OPTIONS (topic 'k')",
    "sink_without_topic": "CREATE VIEW w AS SELECT a FROM t;\nCREATE SINK k FROM w USING kafka "
    "OPTIONS (format 'upsert')",
    "sink_format": "CREATE VIEW w AS SELECT a FROM t;\nCREATE SINK k FROM w USING kafka OPTIONS"
    " (topic 'k', 'kafka.bootstrap.servers' 'b', format 'csv')",
    "sink_steps_topic": "CREATE VIEW w AS SELECT a FROM t;\nCREATE SINK k FROM w USING kafka OPTIONS"
    " (topic 'k', 'kafka.bootstrap.servers' 'b', steps_topic 'k')",
    "sink_resume_after": "CREATE VIEW w AS SELECT a FROM t;\nCREATE SINK k FROM w USING kafka OPTIONS"
    " (topic 'k', 'kafka.bootstrap.servers' 'b', resume_after 'now')",
    "sink_steps_together": "CREATE VIEW w AS SELECT a FROM t;\nCREATE SINK k FROM w USING kafka "
    "OPTIONS (topic 'k', 'kafka.bootstrap.servers' 'b', steps_together 'always')",
    "publishes_nothing": "CREATE TEMPORARY VIEW w AS SELECT a FROM t",
}

NOT_SUPPORTED = {
    "filter_over": view("SELECT sum(a) FILTER (WHERE b > 1) OVER (PARTITION BY c) AS s FROM t"),
    "program": view("SELECT TRANSFORM (a) USING 'cat' AS (b) FROM t"),
    "computed_name": view("SELECT IDENTIFIER('a' || 'b') AS a FROM t"),
    "count_of_a_relation": view("SELECT count(t.*) AS n FROM t"),
    "distinct_over": view("SELECT count(DISTINCT a) OVER (PARTITION BY c) AS s FROM t"),
    "subquery_in_on": view(
        "SELECT t.a FROM t LEFT JOIN u ON t.a IN (SELECT d FROM v WHERE v.d = t.b AND v.f = u.d)"
    ),
    "sort_by": view("SELECT a FROM t SORT BY a LIMIT 3"),
    "full_join_around": view(
        "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u FULL JOIN v ON u.d = v.d AND u.a = t.a)"
    ),
    "rand": view("SELECT a, rand() AS r FROM t"),
    "uuid": view("SELECT a, uuid() AS r FROM t"),
    "table_function": view("SELECT * FROM read_files('x')"),
    "now_in_the_list": view("SELECT a, now() AS n FROM t"),
    "current_date_in_the_list": view("SELECT a, datediff(current_date, ts) AS days FROM t"),
    "now_in_an_aggregate": view("SELECT count_if(ts > now()) AS n FROM t"),
    "now_as_a_key": view("SELECT count(*) AS n FROM t GROUP BY ts > now()"),
    "now_beside_or": view("SELECT a FROM t WHERE b > 1 AND (ts > now() OR a = 1)"),
    "now_equal": view("SELECT a FROM t WHERE ts = now()"),
    "now_less_a_column": view("SELECT a FROM t WHERE now() - ts < INTERVAL 1 HOUR"),
    "now_less_a_month": view("SELECT a FROM t WHERE ts > now() - INTERVAL 1 MONTH"),
    "now_on_both_sides": view("SELECT a FROM t WHERE now() > now() - INTERVAL 1 HOUR"),
    "localtimestamp": view("SELECT a FROM t WHERE ts > localtimestamp()"),
    "two_windows": view(
        "SELECT window(ts, '1 hour').start AS s, window(ts, '2 hours').start AS r FROM t"
    ),
    "window_in_where": view("SELECT a FROM t WHERE window(ts, '1 hour').start > ts"),
    "two_sessions": view(
        "SELECT count(*) AS n FROM t GROUP BY session_window(ts, '5 minutes'), "
        "session_window(ts, '6 minutes')"
    ),
    "tablesample": view("SELECT a FROM t TABLESAMPLE (5 ROWS)"),
    "tablesample_in_steps": view(
        "TABLE t |> JOIN (SELECT a FROM u) TABLESAMPLE (9 PERCENT) REPEATABLE (0) q USING (a)"
    ),
    "map_with_a_program": view("FROM t MAP a, b USING 'cat' AS (k, v)"),
    **{
        f"recursion_{name}": view(f"WITH RECURSIVE r AS (SELECT a FROM t {step}) SELECT a FROM r")
        for name, step in {
            "union": "UNION SELECT a + 1 FROM r",
            "totals": "UNION ALL SELECT count(DISTINCT a) + max(a) FROM r WHERE a < 3",
            "total": "UNION ALL SELECT max(a) + 1 FROM r WHERE a < 3",
            "distinct_beside_rows": "UNION ALL (SELECT a + 1 FROM r WHERE a < 3 UNION SELECT d FROM v)",
            "outer_join": "UNION ALL SELECT d FROM u LEFT JOIN r ON r.a = u.a",
            "full_join": "UNION ALL SELECT d FROM r FULL JOIN u ON r.a = u.a",
            "beside_rows": "UNION ALL (SELECT a + 1 FROM r UNION ALL SELECT d FROM v)",
            "in_a_recursion": "UNION ALL (WITH RECURSIVE s AS (SELECT a FROM r UNION ALL SELECT "
            "a + 1 FROM s WHERE a < 3) SELECT a FROM s)",
        }.items()
    },
    "recursion_by_the_clock": view(
        "WITH RECURSIVE r AS (SELECT a, ts FROM t UNION ALL "
        "SELECT a + 1, ts FROM r WHERE a < 3 AND ts > now()) SELECT a FROM r"
    ),
    "recursion_joined_by_the_clock": view(
        "WITH RECURSIVE r AS (SELECT a, ts FROM t UNION ALL SELECT u.d, ts FROM r JOIN u ON r.a = u.a "
        "AND ts + make_interval(0, 0, 0, 0, 0, 0, u.d) > now()) SELECT a FROM r"
    ),
    "asof_without_a_time": view("SELECT t.a FROM t ASOF JOIN u ON t.a = u.a"),
    "asof_with_a_condition": view(
        "SELECT t.a FROM t ASOF JOIN u ON t.a = u.a AND t.b >= u.d AND u.e = 'x'"
    ),
    "asof_right": view("SELECT t.a FROM t ASOF RIGHT JOIN u ON t.a = u.a AND t.b >= u.d"),
    "jdbc_source": "CREATE TABLE s (a INT) USING jdbc OPTIONS (table = 'x')",
    "protobuf": "CREATE TABLE s (a INT) USING kafka OPTIONS ('kafka.bootstrap.servers' "
    "'b', subscribe 's', format 'protobuf')",
    "two_topics": "CREATE TABLE s (a INT) USING kafka OPTIONS ('kafka.bootstrap.servers' "
    "'b', subscribe 'x,y')",
    "unknown_option": "CREATE TABLE s (a INT) USING kafka OPTIONS ('kafka.bootstrap.servers' "
    "'b', subscribe 'x', fromat 'json')",
    "varchar": f"CREATE TABLE s (a VARCHAR(3)) {KAFKA}",
    "default": f"CREATE TABLE s (a INT DEFAULT 3) {KAFKA}",
    "streaming_table": "CREATE STREAMING TABLE s AS SELECT a FROM t",
    "flow": "CREATE FLOW f AS INSERT INTO s SELECT a FROM t",
    "insert": "INSERT INTO t VALUES (1)",
    "qualified_view": "CREATE VIEW shop.w AS SELECT a FROM t",
}


def _message(sql: str) -> ProjectError:
    project_files = ProjectFiles(SPEC, (("a_sources.sql", SOURCES), ("views.sql", sql)))
    with pytest.raises(ProjectError) as caught:
        parse_project(project_files, {})
    return caught.value


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name: str) -> None:
    error = _message(WRONG[name])
    assert not isinstance(error, NotSupported)
    assert error.expected
    check_golden(f"errors/{name}.txt", f"{WRONG[name]}\n\n{error}\n")


@pytest.mark.parametrize("name", NOT_SUPPORTED)
def test_not_supported(name: str) -> None:
    error = _message(NOT_SUPPORTED[name])
    assert isinstance(error, NotSupported)
    assert error.next_step or error.expected
    check_golden(f"errors/{name}.txt", f"{NOT_SUPPORTED[name]}\n\n{error}\n")
