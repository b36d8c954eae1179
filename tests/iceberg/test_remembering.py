"""A catalog that reads each metadata file once shows what one shows that reads it each time."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from lake_builders import Lake, local_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import Table

from lockstep.adapters.iceberg_commits import LeanTransaction
from lockstep.lake.opening import OpenCatalog

THREE = pa.table({"id": pa.array([1, 2, 3], pa.int64())})


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(local_catalog(tmp_path))


def said(table: Table) -> dict[str, Any]:
    return table.metadata.model_dump()


def forget_file(table: Table) -> None:
    """Nobody can read the table's newest metadata any more."""
    Path(urlsplit(table.metadata_location).path).unlink()


def test_what_was_read_or_written_here_is_not_read_again(lake: Lake) -> None:
    lake.make("t")
    table = OpenCatalog(lake.settings).load("db", "t")
    forget_file(table)
    again = OpenCatalog(lake.settings).load("db", "t")
    assert said(again) == said(table)
    again.append(THREE)
    forget_file(again)
    newest = OpenCatalog(lake.settings).load("db", "t")
    assert said(newest) == said(again) != said(table)
    assert newest.metadata_location == again.metadata_location
    assert len(newest.snapshots()) == 2


def test_everything_shows_as_without_it(lake: Lake) -> None:
    """Of each kind of update that is made here, and after each."""
    lake.make("t")
    first = lake.state.head("t", "main")
    catalog = OpenCatalog(lake.settings)

    def check() -> None:
        assert said(catalog.load("db", "t")) == said(lake.table("t"))

    lake.state.open_branch("t", "attempt", first)
    check()
    for number in range(3):
        lake.state.append_rows("t", "attempt", THREE, {"lockstep.write": str(number)})
        check()
    lake.state.settle("t", lake.state.head("t", "attempt"), "v1", drop=["attempt"])
    check()
    with catalog.load("db", "t").transaction() as transaction:
        transaction.set_properties({"a": "b"})
    check()
    catalog.load("db", "t").maintenance.expire_snapshots().by_id(first).commit()
    check()
    assert sorted(lake.rows("t").values()) == [3, 3, 3]


def test_commits_of_others_are_seen(lake: Lake) -> None:
    lake.make("t")
    known = OpenCatalog(lake.settings).load("db", "t")
    head = lake.append("t", [1, 2], branch="main")
    assert OpenCatalog(lake.settings).load("db", "t").metadata.current_snapshot_id == head
    assert known.metadata.current_snapshot_id != head
    assert said(known.refresh()) == said(lake.table("t"))


def test_a_commit_on_what_is_old_is_refused(lake: Lake) -> None:
    lake.make("t")
    old = OpenCatalog(lake.settings).load("db", "t")
    lake.append("t", [1], branch="main")
    with pytest.raises(CommitFailedException):
        old.manage_snapshots().create_branch(old.metadata.snapshots[0].snapshot_id, "main").commit()
    assert said(OpenCatalog(lake.settings).load("db", "t")) == said(lake.table("t"))


def test_what_is_known_does_not_change_with_a_transaction(lake: Lake) -> None:
    lake.make("t")
    table = OpenCatalog(lake.settings).load("db", "t")
    before = said(table)
    transaction = LeanTransaction(table)
    transaction.append(THREE)
    transaction.set_properties({"a": "b"})
    assert len(transaction.table_metadata.snapshots) == 2
    assert said(table) == before
    assert said(OpenCatalog(lake.settings).load("db", "t")) == before


def test_a_table_that_is_made_again_is_another(lake: Lake) -> None:
    lake.make("t")
    catalog = OpenCatalog(lake.settings)
    before = catalog.load("db", "t").metadata.table_uuid
    catalog.connected().drop_table(("db", "t"))
    with pytest.raises(NoSuchTableError):
        catalog.load("db", "t")
    lake.make("t")
    assert catalog.load("db", "t").metadata.table_uuid != before
