"""New tables that are made with what is written to them first: one commit, whoever else makes them."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lake_builders import Lake, local_catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

from lockstep.adapters.iceberg import ROOT_TAG
from lockstep.errors import EngineFailed, StateDiverged
from lockstep.lake.remembering import RememberingCatalog

COLUMNS = pa.schema([("id", pa.int64()), ("text", pa.string())])
PROPERTIES = {"write.parquet.compression-codec": "zstd"}
SUMMARY = {"lockstep.write": "one", "lockstep.step": "3"}
ROWS = [(1, "a"), (2, None), (2, None)]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(local_catalog(tmp_path))


def made(lake: Lake, branch: str, rows: list[tuple[Any, ...]] | None, table: str = "t") -> None:
    by_name = None if rows is None else [dict(zip(COLUMNS.names, row, strict=True)) for row in rows]
    lake.state.make_opened(table, COLUMNS, PROPERTIES, branch, by_name, SUMMARY)


def root_of(lake: Lake) -> int:
    [root] = [one for one in lake.table("t").snapshots() if one.parent_snapshot_id is None]
    assert root.sequence_number == 1
    assert root.summary is not None
    assert "lockstep.write" not in root.summary.additional_properties
    assert lake.rows("t", root.snapshot_id) == Counter()
    return root.snapshot_id


@pytest.mark.parametrize("rows", [ROWS, []], ids=["rows", "no rows"])
def test_table_root_branch_and_rows_are_one_commit(lake: Lake, rows: list[tuple[Any, ...]]) -> None:
    made(lake, "attempt_a", rows)
    table, root = lake.table("t"), root_of(lake)
    assert table.metadata.metadata_log == []
    assert (table.properties, table.format_version) == (PROPERTIES, 2)
    head = lake.state.head("t", "attempt_a")
    assert dict(lake.state.refs("t")) == {"attempt_a": head, "main": root, ROOT_TAG: root}
    assert lake.state.appended("t", "attempt_a", None) == ("one",)
    assert lake.state.added_records("t", head) == len(rows)
    assert lake.rows("t", head) == Counter(rows)
    lake.state.append_rows("t", "attempt_a", [{"id": 9, "text": "more"}], SUMMARY)
    assert lake.rows("t", lake.state.head("t", "attempt_a")) == Counter([*rows, (9, "more")])


def test_a_table_to_which_nothing_goes_has_the_branch_at_its_root(lake: Lake) -> None:
    made(lake, "attempt_a", None)
    table, root = lake.table("t"), root_of(lake)
    assert table.metadata.metadata_log == []
    assert dict(lake.state.refs("t")) == {"attempt_a": root, "main": root, ROOT_TAG: root}
    assert lake.state.appended("t", "attempt_a", None) == ()


@pytest.mark.parametrize("rows", [ROWS, None], ids=["rows", "nothing"])
def test_a_table_that_is_there_is_appended_to_at_its_root(
    lake: Lake, rows: list[tuple[Any, ...]] | None
) -> None:
    """As another attempt of the first interval finds it."""
    made(lake, "attempt_a", [(7, "x")])
    root = root_of(lake)
    made(lake, "attempt_b", rows)
    assert root_of(lake) == root
    assert lake.rows("t", lake.state.head("t", "attempt_b")) == Counter(rows or [])
    assert lake.rows("t", lake.state.head("t", "attempt_a")) == Counter([(7, "x")])
    if rows is not None:
        with pytest.raises(StateDiverged, match="attempt_a is there already"):
            made(lake, "attempt_a", rows)
    with pytest.raises(StateDiverged, match=r"db\.t exists with other columns"):
        lake.state.make_opened("t", COLUMNS.remove(1), PROPERTIES, "attempt_c", None, {})


def test_of_several_creators_each_has_its_branch_on_one_root(lake: Lake) -> None:
    """Of several tables, whose database is not there."""
    todo = [(f"t{number % 3}", f"attempt_{number}") for number in range(12)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda one: made(lake, one[1], [(1, one[1])], one[0]), todo))
    for name, branch in todo:
        assert sum(one.parent_snapshot_id is None for one in lake.table(name).snapshots()) == 1
        assert lake.rows(name, lake.state.head(name, branch)) == Counter([(1, branch)])


@pytest.mark.parametrize("rows", [ROWS, None], ids=["rows", "nothing"])
@pytest.mark.parametrize("error", [CommitStateUnknownException, CommitFailedException])
@pytest.mark.parametrize("first", ["nobody", "we", "others"])
def test_what_a_catalog_does_not_answer_is_found_out_and_not_written_twice(
    lake: Lake,
    first: str,
    error: type[Exception],
    rows: list[tuple[Any, ...]] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An answer is lost, or what is between asks once more, and is told that the table is there."""
    commit, asked = RememberingCatalog.commit_table, list[bool]()

    def answered(*arguments: Any) -> Any:
        asked.append(True)
        if len(asked) > 1:
            return commit(*arguments)
        if first == "we":
            commit(*arguments)
        if first == "others":
            with monkeypatch.context() as others:
                others.setattr(RememberingCatalog, "commit_table", commit)
                made(Lake(lake.settings), "attempt_b", [(7, "x")])
        raise error("502")

    made(lake, "attempt_a", None, "other")
    monkeypatch.setattr(RememberingCatalog, "commit_table", answered)
    if first == "nobody":
        with pytest.raises(EngineFailed, match="502"):
            made(lake, "attempt_a", rows)
        return
    made(lake, "attempt_a", rows)
    assert root_of(lake)
    head = lake.state.head("t", "attempt_a")
    assert lake.state.appended("t", "attempt_a", None) == (() if rows is None else ("one",))
    assert lake.rows("t", head) == Counter(rows or [])
    assert len(asked) == (1 if first == "we" else 2)


def test_many_rows_and_merged_manifests_come_with_the_table(lake: Lake) -> None:
    """As many as are written as several files."""
    rows = pa.table({"id": range(600_000), "text": pa.nulls(600_000, pa.string())})
    properties = {"commit.manifest-merge.enabled": "true"}
    lake.state.make_opened("t", COLUMNS, properties, "attempt_a", rows, SUMMARY)
    root_of(lake)
    head = lake.state.head("t", "attempt_a")
    assert lake.state.added_records("t", head) == 600_000
    assert sum(row[0] for row in lake.rows("t", head)) == 600_000 * 599_999 // 2
