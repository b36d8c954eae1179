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
