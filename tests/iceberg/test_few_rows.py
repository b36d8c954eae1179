"""Few rows are appended without Spark's writer: what stands in the table is what Spark would write."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from lake_builders import EVERY_TYPE, ROWS_OF_ALL_TYPES, Lake, comparable, ensure_table
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from lockstep.adapters import iceberg_files, iceberg_tables
from lockstep.adapters.iceberg_files import append_to
from lockstep.errors import StateDiverged
from lockstep.ids import ROOT_TAG
from lockstep_engine.appends import FEW_ROWS, fetching
from lockstep_engine.tables import TRACE_PROPERTIES, append

pytestmark = pytest.mark.spark

LISTS = ("n", "o")
SUMMARY = {"lockstep.write": "one", "lockstep.step": "7"}


def made(lake: Lake, table: str, frame: Any) -> None:
    """An empty table for a frame, and a branch that is open on it."""
    ensure_table(lake.state, table, frame.schema)
    lake.state.open_branch(table, "attempt_a", None)


def append_few(lake: Lake, table: str, frame: Any, summary: Mapping[str, str] = SUMMARY) -> bool:
    """As an interval appends, where nothing was begun before; whether the rows were few."""
    with fetching(lake.state, ()) as fetches:
        rows = fetches.rows(table, frame)
    if rows is not None:
        lake.state.append_rows(table, "attempt_a", rows, summary)
    return rows is not None


def read(session: Any, lake: Lake, table: str) -> Counter[tuple[Any, ...]]:
    """What Spark finds on the branch: doubles by their bits, so that zeros differ."""
    name = f"{lake.settings.name}.{lake.settings.database}.{table}.branch_attempt_a"
    frame = session.table(name).selectExpr("*", "hex(cast(e AS string)) AS bits")
    return Counter(comparable(row) for row in frame.collect())


def test_every_type_without_lists_is_as_spark_writes_it(session: Any, lake: Lake) -> None:
    rows = [*ROWS_OF_ALL_TYPES, (*ROWS_OF_ALL_TYPES[0][:4], -0.0, *ROWS_OF_ALL_TYPES[0][5:])]
    frame = session.createDataFrame(rows * 2, EVERY_TYPE).drop(*LISTS)
    frame = frame.withColumn("tiny", frame.b.cast("int").try_cast("tinyint"))
    for table in ("ours", "sparks"):
        made(lake, table, frame)
    assert append_few(lake, "ours", frame)
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
    inside = nested.selectExpr("a", "named_struct('m', m, 'n', n) AS both")
    lists = (nested.select("a", "o"), nested.select("n"), inside)
    for number, frame in enumerate((*lists, text, many)):
        made(lake, f"t{number}", frame)
        assert not append_few(lake, f"t{number}", frame)
        assert lake.state.appended(f"t{number}", "attempt_a", None) == ()


def test_many_rows_are_written_as_several_files(
    session: Any, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg_files, "_MANY_ROWS", 3)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(4))
    made(lake, "t", session.range(1))
    for first, count, files in ((0, 5, 1), (5, 6, 2), (11, 10, 3), (21, 100, 4)):
        more = {"lockstep.write": str(first)}
        assert append_few(lake, "t", session.range(first, first + count), more)
        head = lake.state.head("t", "attempt_a")
        summary = lake.state.summary("t", head)
        assert (summary["added-data-files"], summary["added-records"]) == (str(files), str(count))
        assert lake.rows("t", head) == Counter((one,) for one in range(first + count))
    assert lake.state.appended("t", "attempt_a", None) == ("0", "5", "11", "21")


@pytest.mark.parametrize("count", [1, 20])
def test_rows_of_another_form_are_refused(
    session: Any, lake: Lake, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(iceberg_files, "_MANY_ROWS", 3)
    made(lake, "t", session.range(1).selectExpr("id", "'a' AS text"))
    rows = pa.table({"id": range(count), "text": [7] * count})
    with pytest.raises(ValueError, match="text"):
        lake.state.append_rows("t", "attempt_a", rows, SUMMARY)


def test_many_appends_to_a_trace_leave_few_manifests(session: Any, lake: Lake) -> None:
    frame = session.range(1)
    ensure_table(lake.state, "t", frame.schema, TRACE_PROPERTIES)
    lake.state.open_branch("t", "attempt_a", None)
    heads = []
    for number in range(30):
        rows = session.range(number, number + 1)
        if number % 7 == 6:
            append(lake.settings, "t", "attempt_a", rows, {"lockstep.write": str(number)})
        else:
            assert append_few(lake, "t", rows, {"lockstep.write": str(number)})
        heads.append(lake.state.head("t", "attempt_a"))
    table = lake.table("t")
    for number, head in enumerate(heads):
        found = table.snapshot_by_id(head)
        assert found is not None
        assert len(found.manifests(table.io)) <= 8
        assert lake.rows("t", head) == Counter((one,) for one in range(number + 1))
    assert lake.state.appended("t", "attempt_a", None) == tuple(map(str, range(30)))


def test_no_rows_are_a_snapshot_too(session: Any, lake: Lake) -> None:
    frame = session.range(0)
    made(lake, "t", frame)
    assert append_few(lake, "t", frame)
    assert lake.state.appended("t", "attempt_a", None) == ("one",)


def test_rows_may_be_fetched_before_they_are_asked_for(session: Any, lake: Lake) -> None:
    """Of a table that is there. Whoever asks gives the frame once more, here another one."""
    made(lake, "t", session.range(1))
    made(lake, "new", session.range(1))
    with fetching(lake.state, {"t"}) as fetches:
        for table in ("t", "new"):
            fetches.begin(table, session.range(3))
        found = {table: fetches.rows(table, session.range(5)) for table in ("t", "new")}
    assert {table: rows and rows.num_rows for table, rows in found.items()} == {"t": 3, "new": 5}


def opening(lake: Lake, rows: Any, opened_at: int | None) -> None:
    lake.state.append_opening("t", "attempt_a", opened_at, rows, SUMMARY)


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("count", [0, 2])
def test_a_branch_is_made_with_what_is_written_to_it(
    session: Any, lake: Lake, is_open: bool, count: int
) -> None:
    ensure_table(lake.state, "t", session.range(1).schema)
    root = lake.state.open_branch("t", "other", None)
    lake.state.append_rows("t", "other", [{"id": 7}], SUMMARY)
    base = lake.state.head("t", "other")
    if is_open:
        lake.state.open_branch("t", "attempt_a", base)
    before = len(lake.table("t").metadata.metadata_log)
    opening(lake, [{"id": number} for number in range(count)], base)
    table = lake.table("t")
    assert len(table.metadata.metadata_log) == before + 1, "one commit"
    assert lake.state.appended("t", "attempt_a", base) == ("one",)
    assert lake.state.appended("t", "attempt_a", root) == ("one", "one")
    head = lake.state.head("t", "attempt_a")
    assert lake.rows("t", head) == Counter([(7,), *((one,) for one in range(count))])


@pytest.mark.parametrize("refusals", [0, 2])
def test_a_new_tables_branch_and_the_pin_of_its_root_come_with_the_first_rows(
    session: Any, lake: Lake, monkeypatch: pytest.MonkeyPatch, refusals: int
) -> None:
    ensure_table(lake.state, "t", session.range(1).schema)
    root = lake.table("t").snapshots()[0].snapshot_id
    before = len(lake.table("t").metadata.metadata_log)
    refused = refusing(monkeypatch, refusals)
    opening(lake, [{"id": 8}], None)
    assert refused == [True] * refusals + [False]
    table = lake.table("t")
    assert len(table.metadata.metadata_log) == before + 1, "one commit"
    head = lake.state.head("t", "attempt_a")
    assert dict(lake.state.refs("t")) == {"attempt_a": head, "main": root, ROOT_TAG: root}
    assert lake.state.appended("t", "attempt_a", None) == ("one",)
    assert lake.rows("t", head) == Counter([(8,)])
    lake.state.append_opening("t", "attempt_b", None, [{"id": 9}], SUMMARY)
    assert lake.rows("t", lake.state.head("t", "attempt_b")) == Counter([(9,)])


def refusing(monkeypatch: pytest.MonkeyPatch, times: int) -> list[bool]:
    """Commits that are refused so often; which of them were."""
    commit, refused = Table._do_commit, list[bool]()

    def refuse(table: Table, **named: Any) -> None:
        refused.append(len(refused) < times)
        if refused[-1]:
            raise CommitFailedException("somebody was first")
        commit(table, **named)

    monkeypatch.setattr(Table, "_do_commit", refuse)
    return refused


def test_a_branch_that_has_gone_on_is_not_written_to(session: Any, lake: Lake) -> None:
    made(lake, "t", session.range(1))
    root = lake.state.head("t", "attempt_a")
    lake.state.append_rows("t", "attempt_a", [{"id": 7}], SUMMARY)
    with pytest.raises(StateDiverged, match="attempt_a is there already"):
        opening(lake, [{"id": 8}], root)
    with pytest.raises(StateDiverged, match="no snapshot 12345"):
        lake.state.append_opening("t", "attempt_b", 12345, [{"id": 8}], SUMMARY)


def test_a_branch_stands_where_it_was_opened_whoever_was_first(
    session: Any, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensure_table(lake.state, "t", session.range(1).schema)
    root = lake.state.open_branch("t", "before", None)
    times = 0

    def late(loaded: Any, *more: Any) -> None:
        nonlocal times
        times += 1
        if times < 3:
            lake.state.append_rows("t", "before", [{"id": times}], SUMMARY)
        append_to(loaded, *more)

    monkeypatch.setattr(iceberg_tables, "append_to", late)
    opening(lake, [{"id": 8}], root)
    assert times == 3
    assert lake.state.appended("t", "attempt_a", root) == ("one",)


def test_a_branch_stands_where_it_was_opened_though_a_commit_was_refused(
    session: Any, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensure_table(lake.state, "t", session.range(1).schema)
    root = lake.state.open_branch("t", "before", None)
    lake.state.append_rows("t", "before", [{"id": 7}], SUMMARY)
    base = lake.state.head("t", "before")
    refused = refusing(monkeypatch, 2)
    opening(lake, [{"id": 8}], base)
    assert refused == [True, True, False]
    assert lake.state.appended("t", "attempt_a", root) == ("one", "one")
    assert lake.rows("t", lake.state.head("t", "attempt_a")) == Counter([(7,), (8,)])
