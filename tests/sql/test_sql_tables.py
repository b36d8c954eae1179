"""Iceberg sources: their options as the engine reads them, refusals, and how they print."""

from __future__ import annotations

import pytest
from sql_builders import project

from lockstep.errors import NotSupported, ProjectError
from lockstep.sql.circuit import Cost, Project
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
            "one of table, append_only, watermark, watermark_delay",
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
