"""Few rows are appended without Spark's writer: what stands in the table is what Spark would write."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from lake_builders import EVERY_TYPE, ROWS_OF_ALL_TYPES, Lake, comparable
from pyiceberg.table.snapshots import Operation

from lockstep_engine.appends import FEW_ROWS, append_few, replace_few
from lockstep_engine.tables import TABLE_PROPERTIES, append, ensure_table

pytestmark = pytest.mark.spark

NESTED = ("m", "n", "o")
SUMMARY = {"lockstep.write": "one", "lockstep.step": "7"}


def made(session: Any, lake: Lake, table: str, frame: Any) -> str:
    """An empty table for a frame, and the branch that is open on it."""
    ensure_table(session, lake.settings, table, frame)
    lake.state.open_branch(table, "attempt_a", None)
    return "attempt_a"


def read(session: Any, lake: Lake, table: str) -> Counter[tuple[Any, ...]]:
    """What Spark finds on the branch: doubles by their bits, so that zeros differ."""
    name = f"{lake.settings.name}.{lake.settings.database}.{table}.branch_attempt_a"
    frame = session.table(name).selectExpr("*", "hex(cast(e AS string)) AS bits")
    return Counter(comparable(row) for row in frame.collect())


def test_every_flat_type_is_as_spark_writes_it(session: Any, lake: Lake) -> None:
    rows = [*ROWS_OF_ALL_TYPES, (*ROWS_OF_ALL_TYPES[0][:4], -0.0, *ROWS_OF_ALL_TYPES[0][5:])]
    frame = session.createDataFrame(rows * 2, EVERY_TYPE).drop(*NESTED)
    frame = frame.withColumn("tiny", frame.b.cast("int").try_cast("tinyint"))
    for table in ("ours", "sparks"):
        made(session, lake, table, frame)
    assert append_few(lake.state, "ours", "attempt_a", frame, SUMMARY)
    append(lake.settings, "sparks", "attempt_a", frame, SUMMARY)
    found = read(session, lake, "ours")
    assert found == read(session, lake, "sparks")
    assert found.total() == len(rows) * 2
    head = lake.state.head("ours", "attempt_a")
    said = lake.state.summary("ours", head)
    assert {**said, **SUMMARY} == said
    assert lake.state.added_records("ours", head) == len(rows) * 2
    bounds = [
        {
            file["readable_metrics"][name][end]
            for name in ("a", "h", "j")
            for end in ("lower_bound",)
        }
        for file in lake.table("ours").inspect.files(head).to_pylist()
    ]
    assert all(len(one) == 3 for one in bounds), "look-ups skip files by these"


def test_what_it_would_write_otherwise_it_leaves_to_spark(session: Any, lake: Lake) -> None:
    nested = session.createDataFrame(ROWS_OF_ALL_TYPES, EVERY_TYPE)
    text = session.range(1).selectExpr("CAST(X'ff' AS STRING) AS h")
    many = session.range(FEW_ROWS + 1)
    for number, frame in enumerate((nested.select("a", "o"), nested.select("m"), text, many)):
        branch = made(session, lake, f"t{number}", frame)
        assert not append_few(lake.state, f"t{number}", branch, frame, SUMMARY)
        assert lake.state.appended(f"t{number}", branch, None) == ()


def test_no_rows_are_a_snapshot_too(session: Any, lake: Lake) -> None:
    frame = session.range(0)
    branch = made(session, lake, "t", frame)
    assert append_few(lake.state, "t", branch, frame, SUMMARY)
    assert lake.state.appended("t", branch, None) == ("one",)


def test_rows_are_put_in_the_place_of_all_in_one_snapshot(session: Any, lake: Lake) -> None:
    frame = session.createDataFrame(ROWS_OF_ALL_TYPES, EVERY_TYPE).drop(*NESTED)
    branch = made(session, lake, "ours", frame)
    base = append_few(lake.state, "ours", branch, frame, SUMMARY) and lake.state.head(
        "ours", branch
    )
    for number in range(4):
        rows = frame.where(f"a IS NULL OR a <> {number}")
        head = lake.state.view_head("ours")
        assert replace_few(lake.state, "ours", branch, head, rows, {"round": str(number)})
        assert read(session, lake, "ours") == Counter(
            comparable(row)
            for row in rows.selectExpr("*", "hex(cast(e AS string)) AS bits").collect()
        )
    written = [summary for _, summary in lake.state.summaries("ours", branch, base)]
    assert [one["round"] for one in written] == ["0", "1", "2", "3"]
    newest = lake.table("ours").snapshot_by_name(branch)
    assert newest is not None
    assert newest.summary is not None
    assert newest.summary.operation is Operation.OVERWRITE
    assert newest.summary["total-data-files"] == "1"
    # Those that say which files have gone do not pile up.
    assert len(newest.manifests(lake.table("ours").io)) == 2
    assert replace_few(lake.state, "ours", branch, head, frame.limit(0), SUMMARY)
    assert not read(session, lake, "ours")


def test_what_cannot_be_replaced_from_here_is_left_to_spark(session: Any, lake: Lake) -> None:
    frame = session.range(9).selectExpr("id", "id % 3 AS part")
    name = f"{lake.settings.name}.{lake.settings.database}"
    properties = {**TABLE_PROPERTIES, "write.delete.mode": "merge-on-read"}
    ensure_table(session, lake.settings, "deleted", frame, properties)
    frame.coalesce(1).writeTo(f"{name}.deleted").append()
    session.sql(f"DELETE FROM {name}.deleted WHERE id = 4")
    session.sql(f"CREATE TABLE {name}.parted (id BIGINT, part BIGINT) PARTITIONED BY (part)")
    frame.writeTo(f"{name}.parted").append()
    for table in ("deleted", "parted"):
        append(lake.settings, table, "main", frame.limit(0), SUMMARY)
        head = lake.state.head(table, "main")
        lake.state.open_branch(table, "attempt_a", head)
        shown = lake.state.view_head(table)
        assert not replace_few(lake.state, table, "attempt_a", shown, frame, SUMMARY)
        assert lake.state.head(table, "attempt_a") == head
