"""Versioned tables through Spark Connect: one root whoever makes them, appends, reads at a snapshot."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from lake_builders import EVERY_TYPE, Lake, ensure_table
from pyiceberg.schema import assign_fresh_schema_ids

from lockstep.errors import EngineFailed, Refused, StateDiverged
from lockstep_engine.tables import append, configure_catalog, read_at, table_name

pytestmark = pytest.mark.spark


def test_a_session_learns_of_a_catalog_after_the_server_has_started(
    session: Any, lake: Lake
) -> None:
    from dataclasses import replace

    other = Lake(replace(lake.settings, name="elsewhere"))
    configure_catalog(session, other.settings)
    ensure_table(other.state, "t", session.range(1).schema)
    assert session.table(table_name(other.settings, "t")).count() == 0
    assert other.state.tables() == ("t",)
    assert lake.state.tables() == (), "the name is part of a catalog's key"


def test_creators_at_once_make_one_table_with_one_root(session: Any, lake: Lake) -> None:
    frame = session.range(3).selectExpr("id", "cast(id as tinyint) small", "'x' as text")
    with ThreadPoolExecutor(5) as pool:
        list(pool.map(lambda _: ensure_table(lake.state, "t", frame.schema), range(5)))
    table = lake.table("t")
    assert [snapshot.parent_snapshot_id for snapshot in table.snapshots()] == [None]
    assert table.scan().count() == 0
    assert all(not field.required for field in table.schema().fields)
    assert table.properties["write.distribution-mode"] == "none"
    assert lake.state.open_branch("t", "attempt_a", None) == table.snapshots()[0].snapshot_id


def test_a_table_with_other_columns_is_refused(session: Any, lake: Lake) -> None:
    ensure_table(lake.state, "t", session.range(1).schema)
    ensure_table(lake.state, "t", session.range(1).where("id is null").schema)
    with pytest.raises(StateDiverged) as refused:
        ensure_table(lake.state, "t", session.range(1).selectExpr("id", "1L extra").schema)
    assert "expected: id long, extra long" in str(refused.value)
    assert "found: id long" in str(refused.value)


def test_a_table_has_the_types_that_spark_would_give_it(session: Any, lake: Lake) -> None:
    """With what may be null inside of others, and numbers of 8 and 16 bits as 32."""
    more = "q tinyint, r array<struct<p: smallint>>, s map<string, struct<x: int>>"
    empty = session.createDataFrame([], f"{EVERY_TYPE}, {more}")
    ensure_table(lake.state, "t", empty.schema)
    empty.writeTo(table_name(lake.settings, "by_spark")).using("iceberg").create()
    assert shape(lake, "t") == shape(lake, "by_spark")
    ensure_table(lake.state, "by_spark", empty.schema)
    inner = session.range(1).selectExpr("array(struct(id, struct(id AS i) AS two)) AS t")
    ensure_table(lake.state, "inner", inner.schema)
    inner.writeTo(table_name(lake.settings, "inner_by_spark")).using("iceberg").create()
    assert shape(lake, "inner") == shape(lake, "inner_by_spark")


def shape(lake: Lake, table: str) -> Any:
    return assign_fresh_schema_ids(lake.table(table).schema()).as_struct()


@pytest.mark.parametrize("value", ["NULL", "INTERVAL 1 SECOND", "parse_json('1')"])
def test_types_that_no_table_has_are_refused(session: Any, lake: Lake, value: str) -> None:
    with pytest.raises((Refused, EngineFailed), match="could not be made"):
        ensure_table(lake.state, "t", session.sql(f"SELECT {value} AS v").schema)
    assert lake.state.tables() == ()


def test_several_tables_are_made_and_appended_to_from_threads(session: Any, lake: Lake) -> None:
    names = [f"t{number}" for number in range(4)]
    frame = session.range(100)

    def work(name: str) -> None:
        ensure_table(lake.state, name, frame.schema)
        lake.state.open_branch(name, "attempt-a", None)
        written = {"lockstep.write": f"a:{name}", "lockstep.step": "7"}
        append(lake.settings, name, "attempt-a", frame, written)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, names))
    for name in names:
        assert lake.state.appended(name, "attempt-a", None) == (f"a:{name}",)
        head = lake.state.head(name, "attempt-a")
        assert lake.state.added_records(name, head) == 100
        root = lake.state.head(name, "main")
        assert dict(lake.state.summaries(name, "attempt-a", root))[head]["lockstep.step"] == "7"
        assert lake.rows(name) == {}, "main shows nothing of it"


def test_an_append_of_no_rows_is_a_snapshot_too(session: Any, lake: Lake) -> None:
    frame = session.range(10)
    ensure_table(lake.state, "t", frame.schema)
    lake.state.open_branch("t", "attempt_a", None)
    for write, rows in (("one", frame.where("id < 0")), ("two", frame.limit(0))):
        append(lake.settings, "t", "attempt_a", rows, {"lockstep.write": write})
    assert lake.state.appended("t", "attempt_a", None) == ("one", "two")
    assert lake.state.added_records("t", lake.state.head("t", "attempt_a")) == 0


def test_a_task_goes_on_to_another_file(session: Any, lake: Lake) -> None:
    rows = session.range(0, 5_000, 1, 1)
    ensure_table(lake.state, "t", rows.schema)
    root = lake.state.open_branch("t", "attempt_a", None)
    append(lake.settings, "t", "attempt_a", rows, {"lockstep.write": "a"}, 1)
    append(lake.settings, "t", "attempt_a", rows, {"lockstep.write": "b"})
    appended = lake.state.summaries("t", "attempt_a", root)
    assert [summary["added-data-files"] for _, summary in appended] == ["5", "1"]


def test_read_at_gives_the_rows_of_a_snapshot_for_good(session: Any, lake: Lake) -> None:
    ensure_table(lake.state, "t", session.range(1).schema)
    root = lake.state.open_branch("t", "attempt_a", None)
    append(lake.settings, "t", "attempt_a", session.range(5), {"lockstep.write": "a"})
    first = lake.state.head("t", "attempt_a")
    frame = read_at(session, lake.settings, "t", first)
    append(lake.settings, "t", "attempt_a", session.range(5), {"lockstep.write": "b"})
    assert (read_at(session, lake.settings, "t", root).count(), frame.count()) == (0, 5)
