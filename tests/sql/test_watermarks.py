"""Watermarks of sources, and views whose windows come out when they are over: what may be said."""

from __future__ import annotations

import pytest
from sql_builders import SOURCES, check_golden, project

from lockstep.errors import NotSupported, ProjectError
from lockstep.sql.circuit import TraceKind
from lockstep.sql.explain import explain
from lockstep.sql.incremental import build_circuit
from lockstep.sql.plans.nodes import Scan, Watermark

COLUMNS = "id INT, at TIMESTAMP, day DATE, note STRING"
SOURCE = (
    "CREATE TABLE s ({columns}) USING kafka OPTIONS ('kafka.bootstrap.servers' = 'b', "
    "subscribe = 's'{options});\n"
)
MARKED = SOURCE.format(
    columns=COLUMNS, options=", watermark = 'At', watermark_delay = '90 seconds'"
)
FINAL = "CREATE MATERIALIZED VIEW w TBLPROPERTIES ('emit' = 'final') AS "


def test_all_views_read_one_watermark_over_all_columns() -> None:
    found = project(
        "CREATE MATERIALIZED VIEW v AS SELECT id FROM s WHERE note = 'x';"
        "CREATE MATERIALIZED VIEW w AS SELECT day, count(*) AS n FROM s GROUP BY day",
        sources=MARKED,
    )
    circuit = build_circuit(found)
    [operator] = [one for one in circuit.operators if isinstance(one.node, Watermark)]
    columns = ("id", "at", "day", "note")
    assert operator.node == Watermark(Scan("s", columns), "at", 90_000_000)
    [trace] = operator.traces
    assert (trace.kind, trace.key, trace.columns) == (TraceKind.ACCUMULATORS, (), ())
    assert operator.uses == 2
    assert not circuit.reads_time


def test_without_a_delay_it_is_the_greatest_value() -> None:
    sources = SOURCE.format(columns=COLUMNS, options=", watermark = 'at'")
    [source] = project("CREATE VIEW v AS SELECT id FROM s", sources=sources).sources
    assert source.options["watermark_delay"] == "0 seconds"


@pytest.mark.parametrize(
    ("options", "kind", "message", "expected", "found"),
    [
        (
            ", watermark = 'when'",
            ProjectError,
            "s has an option 'watermark' that can't be read",
            "a declared column of type TIMESTAMP: at",
            "when",
        ),
        (
            ", watermark = 'day'",
            ProjectError,
            "s has an option 'watermark' that can't be read",
            "a declared column of type TIMESTAMP: at",
            "day DATE",
        ),
        (
            ", watermark = 'at', watermark_delay = '1 month'",
            ProjectError,
            "s has an option 'watermark_delay' that can't be read",
            "a length such as '10 seconds' or '1 hour 30 minutes'",
            "1 month",
        ),
        (
            ", watermark = 'at', watermark_delay = '-1 second'",
            ProjectError,
            "s has an option 'watermark_delay' that can't be read",
            "a length such as '10 seconds' or '1 hour 30 minutes'",
            "-1 second",
        ),
        (
            ", watermark_delay = '1 second'",
            ProjectError,
            "s has no option 'watermark'",
            "OPTIONS ('watermark' = 'ts', ...)",
            "kafka.bootstrap.servers, subscribe, watermark_delay, format",
        ),
        (
            ", watermark = 'at', format = 'upsert', key = 'id'",
            NotSupported,
            "s has a watermark, and records that replace each other by key",
            "a source whose records are rows",
            "'format' = 'upsert' with a key",
        ),
    ],
)
def test_options_that_are_refused(
    options: str, kind: type[ProjectError], message: str, expected: str, found: str
) -> None:
    sources = SOURCE.format(columns=COLUMNS, options=options)
    with pytest.raises(ProjectError) as caught:
        project("CREATE VIEW v AS SELECT id FROM s", sources=sources)
    assert type(caught.value) is kind
    assert caught.value.message == f"a_sources.sql:1:1: {message}"
    assert caught.value.expected == expected
    assert sorted(caught.value.found.split(", ")) == sorted(found.split(", "))


def test_a_view_is_not_named_like_the_late_table() -> None:
    with pytest.raises(ProjectError, match="has the name of a table made for s"):
        project("CREATE VIEW s_late AS SELECT id FROM s", sources=MARKED)


WINDOWS = {
    "tumbling": "SELECT window.start AS since, note, count(*) AS n FROM s "
    "GROUP BY window(at, '1 minute'), note",
    "by_its_start": "SELECT window(at, '1 minute').start AS since, sum(id) AS total FROM s "
    "GROUP BY window(at, '1 minute').start HAVING count(*) > 1",
    "hopping": "SELECT window.end AS until, max(id) AS top FROM (SELECT at AS t, id FROM s "
    "WHERE note <> '') GROUP BY window(t, '1 minute', '20 seconds')",
    "beside_distinct": "SELECT window.end AS until, count(DISTINCT id) AS n, sum(id) AS total FROM s "
    "GROUP BY window(at, '1 minute')",
    "of_groups_beside_each_other": "SELECT window.end AS until, max(total) AS most, sum(n) AS n FROM "
    "(SELECT window, note, count(DISTINCT id) AS n, sum(id) AS total FROM s "
    "GROUP BY window(at, '1 minute'), note) GROUP BY window",
    "of_a_view": "SELECT window(at, '1 minute').end AS until, count(*) AS n FROM kept "
    "GROUP BY window(at, '1 minute')",
    "of_a_join": "SELECT window(at, '1 minute').end AS until, e, count(*) AS n FROM s JOIN u "
    "ON s.id = u.a GROUP BY window(at, '1 minute'), e",
    "of_a_union": "SELECT window(at, '1 minute').end AS until, count(*) AS n FROM "
    "(SELECT at FROM s UNION ALL SELECT at FROM s WHERE id > 1) GROUP BY window(at, '1 minute')",
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_come_out_when_they_are_over(name: str) -> None:
    sources = MARKED + SOURCES + "CREATE VIEW kept AS SELECT at, id FROM s WHERE id > 0;\n"
    found = project(FINAL + WINDOWS[name], sources=sources)
    check_golden(f"plans/final_{name}.txt", explain(found, build_circuit(found)))


JOINS = {
    "on_windows": "SELECT a.window.end AS until, a.n, b.n AS m FROM "
    "(SELECT window, id, count(*) AS n FROM s GROUP BY window(at, '1 minute'), id) a JOIN "
    "(SELECT window, id, count(*) AS n FROM r GROUP BY window(at, '1 minute'), id) b "
    "ON a.window = b.window AND a.id = b.id",
    "on_starts_of_three": "SELECT a.id FROM (SELECT id, window(at, '1 minute').start AS w FROM s) a "
    "JOIN (SELECT id, window(at, '1 minute').start AS w FROM r) b ON a.w = b.w "
    "JOIN (SELECT note, window(at, '1 minute').start AS w FROM r) c ON b.w = c.w AND b.id > 3",
    "between": "SELECT s.id, r.note FROM s JOIN r ON s.id = r.id "
    "AND r.at BETWEEN s.at AND s.at + INTERVAL 10 MINUTES",
    "one_side": "SELECT s.id, r.note FROM s JOIN r ON s.id = r.id "
    "AND r.at - INTERVAL 5 SECONDS < s.at + INTERVAL '1' HOUR",
    "until_a_column": "SELECT s.id, r.note FROM s JOIN r ON s.id = r.id "
    "WHERE s.day >= r.at AND r.at >= s.at",
    "at_the_same_time": "SELECT s.id, r.note FROM s JOIN r USING (at)",
    "left_between": "SELECT s.id, r.note FROM s LEFT JOIN r ON s.id = r.id "
    "AND r.at BETWEEN s.at AND s.at + INTERVAL 10 MINUTES",
    "full_at_the_same_time": "SELECT s.id, r.note FROM s FULL JOIN r ON s.at = r.at AND s.id > r.id",
    "not_exists_in_time": "SELECT id FROM s WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.id = s.id "
    "AND r.at >= s.at AND r.at < s.at + INTERVAL 1 HOUR)",
    "in_of_the_same_time": "SELECT id FROM s WHERE at IN (SELECT at FROM r WHERE note <> s.note)",
    "once_each": "SELECT DISTINCT id, at FROM s",
    "list_of_a_time": "SELECT at, collect_list(id) AS ids FROM s WHERE id > 0 GROUP BY at",
    "top_of_groups": "SELECT window.end AS until, max(n) AS most FROM "
    "(SELECT window, id, count(*) AS n FROM s GROUP BY window(at, '1 minute'), id) GROUP BY window",
    "ranked": "SELECT id, n FROM (SELECT window, id, n, "
    "rank() OVER (PARTITION BY window ORDER BY n DESC) AS place FROM "
    "(SELECT window, id, count(*) AS n FROM s GROUP BY window(at, '1 minute'), id)) WHERE place < 3",
}
"""What is forgotten when watermarks have passed it."""

KEPT = {
    "other lengths": "SELECT a.id FROM (SELECT id, window(at, '1 minute').start AS w FROM s) a "
    "JOIN (SELECT id, window(at, '2 minutes').start AS w FROM r) b ON a.w = b.w",
    "a third input": "SELECT a.id FROM (SELECT id, window(at, '1 minute').start AS w FROM s) a "
    "JOIN (SELECT id, window(at, '1 minute').start AS w FROM r) b ON a.w = b.w JOIN t ON t.a = b.id",
    "no watermark": "SELECT s.id FROM s JOIN t ON s.id = t.a AND t.ts BETWEEN s.at AND s.at",
    "no bound": "SELECT s.id FROM s JOIN r ON s.id = r.id AND r.at <> s.at",
    "months": "SELECT s.id FROM s JOIN r ON s.id = r.id AND r.at < s.at + INTERVAL 1 MONTH",
    "left without a bound": "SELECT s.id FROM s LEFT JOIN r ON s.id = r.id AND r.at <> s.at",
    "once each by another": "SELECT DISTINCT s.id, t.ts FROM s JOIN t ON s.id = t.a",
    "behind a join": "SELECT x.id FROM (SELECT s.id, s.at FROM s JOIN t ON s.id = t.a LIMIT 9) x "
    "JOIN r ON x.id = r.id AND x.at = r.at",
    "the clock": "SELECT s.id FROM (SELECT * FROM s WHERE at < now() - INTERVAL 1 HOUR) s "
    "JOIN r ON s.id = r.id AND r.at BETWEEN s.at AND s.at + INTERVAL 10 MINUTES",
}
BOTH = MARKED + MARKED.replace("TABLE s", "TABLE r") + SOURCES


@pytest.mark.parametrize("name", JOINS)
def test_rows_are_remembered_until_watermarks_have_passed_them(name: str) -> None:
    found = project(f"CREATE MATERIALIZED VIEW w AS {JOINS[name]}", sources=BOTH)
    check_golden(f"plans/past_{name}.txt", explain(found, build_circuit(found)))


@pytest.mark.parametrize("name", KEPT)
def test_rows_that_can_still_be_met_are_kept(name: str) -> None:
    found = project(f"CREATE MATERIALIZED VIEW w AS {KEPT[name]}", sources=BOTH)
    circuit = build_circuit(found)
    rows = [trace for operator in circuit.operators for trace in operator.rows if trace]
    assert len(rows) >= 2
    assert not any(trace.past for trace in rows)
    assert all(trace.kind is not TraceKind.RECENT for trace in rows)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("SELECT id FROM s", "no groups"),
        ("SELECT note, count(*) AS n FROM s GROUP BY note", "groups by note"),
        (
            "SELECT count(*) AS n FROM s GROUP BY window(CAST(day AS TIMESTAMP), '1 day')",
            "windows of _time, which no watermark is about",
        ),
        (
            "SELECT count(*) AS n FROM t GROUP BY window(ts, '1 day')",
            "windows of ts, which no watermark is about",
        ),
        (
            "SELECT count(*) AS n FROM (SELECT at FROM s UNION ALL SELECT ts FROM t) "
            "GROUP BY window(at, '1 day')",
            "windows of at, which no watermark is about",
        ),
    ],
)
def test_without_such_windows_nothing_is_final(query: str, found: str) -> None:
    with pytest.raises(ProjectError) as caught:
        project(FINAL + query, sources=MARKED + SOURCES)
    assert caught.value.found == found
    assert str(caught.value.position) == "views.sql:1:42"


def test_other_properties_are_refused() -> None:
    with pytest.raises(NotSupported, match="has a property that is not supported") as caught:
        project("CREATE VIEW w TBLPROPERTIES ('owner' = 'me') AS SELECT id FROM s", sources=MARKED)
    assert caught.value.found == "'owner' = 'me'"
    assert str(caught.value.position) == "views.sql:1:29"


def test_changes_are_what_is_emitted_anyway() -> None:
    query = "SELECT note, count(*) AS n FROM s GROUP BY note"
    plain, said = (
        project(f"CREATE VIEW w {clause} AS {query}", sources=MARKED).views[0].plan
        for clause in ("", "TBLPROPERTIES (emit = 'changes')")
    )
    assert plain == said
