"""Iceberg sources: their options as the engine reads them, refusals, and how they print."""

from __future__ import annotations

import re

import pytest
from sql_builders import project

from lockstep.errors import NotSupported, ProjectError
from lockstep.sql.circuit import Cost, Project, TraceKind, TraceSpec
from lockstep.sql.explain import explain, explain_data
from lockstep.sql.incremental import build_circuit
from lockstep.sql.plans.nodes import Scan

VIEW = "CREATE MATERIALIZED VIEW w AS SELECT a, max(b) AS b FROM s GROUP BY a;"


def following(options: str, views: str = VIEW) -> Project:
    return project(
        views, sources=f"CREATE TABLE s (a INT, b INT) USING iceberg OPTIONS ({options});"
    )


@pytest.mark.parametrize("table", ["lake.other.orders", "other.orders"])
def test_the_table_is_named_in_full(table: str) -> None:
    [source] = following(f"table = '{table}'").sources
    assert (source.provider, source.table, source.topic) == ("iceberg", "lake.other.orders", "")
    assert not source.append_only


def test_rows_may_be_taken_away_unless_the_source_says_otherwise() -> None:
    changing = build_circuit(following("table = 'other.orders'"))
    growing = build_circuit(following("'table' = 'other.orders', 'append_only' = 'TRUE'"))
    assert not any(one.append_only for one in changing.operators)
    assert [one.append_only for one in growing.operators if isinstance(one.node, Scan)] == [True]
    # A maximum of rows that can be taken away has to remember them all.
    assert len(changing.traces) == 2
    assert len(growing.traces) == 1
    assert {one.cost for one in changing.operators} == {Cost.CHANGE}


JOINED = "CREATE MATERIALIZED VIEW w AS SELECT l.b, l.c FROM s l JOIN s r ON {condition};"
INDEXED = (
    "CREATE TABLE s (a INT, b INT, c INT) USING iceberg "
    "OPTIONS ('table' = 'other.orders', 'index' = '{index}'{more});"
)


def traces_of(view: str, index: str, more: str = "") -> list[TraceSpec]:
    return list(build_circuit(project(view, sources=INDEXED.format(index=index, more=more))).traces)


@pytest.mark.parametrize(
    ("condition", "index", "key"),
    [
        ("l.b = r.b", "B", ("b",)),
        ("l.c = r.b", "a, `b`", ("b",)),
        ("l.a = r.a AND l.b = r.b", "b", None),
        ("l.a = r.a AND l.b = r.b", "b, a", ("b", "a")),
        ("l.b + 1 = r.b + 1", "b", None),
        ("l.b < r.b", "b", None),
    ],
)
def test_rows_are_kept_by_an_index_that_has_all_columns_they_are_looked_up_by(
    condition: str, index: str, key: tuple[str, ...] | None
) -> None:
    """And else by the table alone: what is in the order of one column is in no order of another."""
    traces = traces_of(JOINED.format(condition=condition), index)
    assert all(trace.is_index and trace.kind is TraceKind.ROWS for trace in traces)
    assert {tuple(n.removesuffix("_1") for n in trace.key) for trace in traces} == (
        set() if key is None else {key}
    )


def test_an_index_serves_whatever_looks_rows_up_by_its_columns() -> None:
    first = (
        "CREATE MATERIALIZED VIEW w AS SELECT a, b FROM (SELECT *, row_number() OVER "
        "(PARTITION BY b ORDER BY a) AS place FROM s WHERE c > 1) WHERE place = 1;"
    )
    listed = "CREATE MATERIALIZED VIEW w AS SELECT b, collect_list(a) AS l FROM s GROUP BY b;"
    [ranked] = traces_of(first, "b")
    assert (ranked.kind, ranked.key, ranked.is_index) == (TraceKind.ROWS, ("b",), True)
    # Of rows that stay only the first are asked for, as of a topic's.
    [ranked] = traces_of(first, "b", ", 'append_only' = 'true'")
    assert (ranked.kind, ranked.is_index) == (TraceKind.FIRST, True)
    _, rows = traces_of(listed, "b")
    assert (rows.key, rows.columns, rows.is_index) == (("b",), ("a",), True)
    assert len(traces_of(listed, "a")) == 1


def test_rows_with_a_computed_column_are_read_in_the_table() -> None:
    """A trace has the types that tables have, and a view those of its expressions."""
    view = (
        "CREATE MATERIALIZED VIEW w AS SELECT l.x, r.c FROM "
        "(SELECT b, CAST(a AS SMALLINT) AS x FROM s WHERE c > 1) l JOIN s r ON l.b = r.b;"
    )
    [trace] = traces_of(view, "b")
    assert (trace.key[0].removesuffix("_1"), len(trace.columns)) == ("b", 1)


def test_an_index_leaves_every_relation_what_it_is() -> None:
    """State that was kept without one is kept on, and nothing that is published changes."""
    without = following("table = 'other.orders'")
    with_one = following("table = 'other.orders', 'index' = 'b'")
    assert [o.digest for o in build_circuit(without).operators] == [
        o.digest for o in build_circuit(with_one).operators
    ]


def test_a_plan_shows_an_index() -> None:
    view = JOINED.format(condition="l.b = r.b")
    found = project(view, sources=INDEXED.format(index="b", more=", 'append_only' = 'true'"))
    text = explain(found, build_circuit(found))
    assert "  s: iceberg table lake.other.orders, append-only, index by b\n" in text
    assert re.search(r"\n       index _trace_\w{16} of rows by b: c\n", text)
    assert "as the tables have them" not in text
    [join] = [o for o in explain_data(found, build_circuit(found))["operators"] if o["traces"]]
    assert [trace["is_index"] for trace in join["traces"]] == [True, True]
    assert join["rows_in_tables"] == []


def test_a_plan_shows_the_table() -> None:
    found = following("table = 'other.orders', append_only = true")
    text = explain(found, build_circuit(found))
    assert "  s: iceberg table lake.other.orders, append-only\n" in text
    [source] = explain_data(found, build_circuit(found))["sources"]
    assert source["table"] == "lake.other.orders"
    assert "topic" not in source


@pytest.mark.parametrize(
    ("options", "kind", "message", "expected", "found"),
    [
        (
            "",
            ProjectError,
            "a_sources.sql:1:1: s has no option 'table'",
            "OPTIONS ('table' = 'lake.database.table', ...)",
            "no options",
        ),
        (
            "table = 'orders'",
            ProjectError,
            "a_sources.sql:1:1: s has an option 'table' that can't be read",
            "lake.database.table, or database.table",
            "orders",
        ),
        (
            "table = 'hive.other.orders'",
            NotSupported,
            "a_sources.sql:1:1: s reads a table in another catalog than the pipeline's",
            "a table in lake, which `catalog:` in the spec names",
            "hive.other.orders",
        ),
        (
            "table = 'other.orders', 'kafka.bootstrap.servers' = 'b'",
            NotSupported,
            "a_sources.sql:1:1: s has an option 'kafka.bootstrap.servers' that is not supported",
            "one of table, append_only, index, watermark, watermark_delay",
            "kafka.bootstrap.servers",
        ),
        (
            "table = 'other.orders', append_only = 'yes'",
            ProjectError,
            "a_sources.sql:1:1: s has an option 'append_only' that can't be read",
            "'false' (rows may be changed and taken away) or "
            "'true' (a snapshot that takes rows away ends the interval)",
            "yes",
        ),
        (
            "table = 'other.orders', 'index' = 'b', 'watermark' = 't'",
            NotSupported,
            "a_sources.sql:1:1: s has a watermark, and an index",
            "one of the two",
            "'index' = 'b'",
        ),
        *(
            (
                f"table = 'other.orders', 'index' = '{index}'",
                ProjectError,
                "a_sources.sql:1:1: s has an option 'index' that can't be read",
                "declared columns, with commas between: a, b",
                index,
            )
            for index in ("", "a, c", "a, a", "`")
        ),
        *(
            (
                f"table = 'shop.{own}'",
                ProjectError,
                "a_sources.sql:1:1: s reads a table that this pipeline writes",
                "a table that something else writes",
                f"lake.shop.{own}",
            )
            for own in ("w", "w_changes", "_steps")
        ),
    ],
)
def test_refusals(
    options: str, kind: type[ProjectError], message: str, expected: str, found: str
) -> None:
    with pytest.raises(ProjectError) as caught:
        following(options)
    assert type(caught.value) is kind
    assert caught.value.message == message
    assert (caught.value.expected, caught.value.found) == (expected, found)
