"""Manifests are read once by a process, and say the same as when they are read anew."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from lake_builders import local_catalog
from pyiceberg.expressions.parser import parse
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.table import Table

from lockstep.lake import manifests
from lockstep.lake.manifests import manifests_of, planned_files
from lockstep.lake.opening import OpenCatalog

Read = list[str]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Five files, each in a manifest of its own."""
    catalog = OpenCatalog(local_catalog(tmp_path)).connected()
    catalog.create_namespace("db")
    made = catalog.create_table("db.t", pa.schema([("id", pa.int64())]))
    for number in range(5):
        append(made, number)
    return made


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Read:
    """The manifests that were opened."""
    opened: Read = []
    fetch = ManifestFile.fetch_manifest_entry

    def counted(
        self: ManifestFile, io: FileIO, discard_deleted: bool = True
    ) -> list[ManifestEntry]:
        opened.append(self.manifest_path)
        return fetch(self, io, discard_deleted)

    monkeypatch.setattr(ManifestFile, "fetch_manifest_entry", counted)
    return opened


def append(table: Table, number: int) -> None:
    table.append(pa.table({"id": [number * 10, number * 10 + 9]}))


def planned(table: Table, near: str | None = None) -> set[str]:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    of_table = manifests_of(table, snapshot.snapshot_id)
    tasks = planned_files(table, of_table, parse(near)) if near else planned_files(table, of_table)
    return {task.file.file_path for task in tasks}


def scanned(table: Table, near: str = "id is not null") -> set[str]:
    return {task.file.file_path for task in table.scan(near).plan_files()}


def test_only_new_manifests_are_read(table: Table, read: Read) -> None:
    first = planned(table)
    assert len(first) == len(read) == 5
    append(table, 5)
    read.clear()
    assert planned(table) > first
    assert len(read) == 1


def test_what_is_kept_is_filtered_as_what_is_read(table: Table) -> None:
    planned(table)
    for near in ("id >= 10 and id <= 29", "id = 49", "id < 0"):
        assert planned(table, near) == scanned(table, near)
    assert len(planned(table, "id >= 10 and id <= 29")) == 2


def test_a_file_that_was_deleted_is_not_listed(table: Table) -> None:
    planned(table)
    table.delete("id >= 20 and id <= 29")
    assert planned(table) == scanned(table)
    assert len(planned(table)) == 4


def test_what_is_kept_is_bounded_by_manifests_and_files(table: Table) -> None:
    manifests._KEPT.clear()
    planned(table)
    assert manifests._KEPT.currsize == 5 + 5
    assert manifests._KEPT.maxsize == manifests.MOST_ENTRIES


def test_no_more_is_kept_than_what_was_read_last(table: Table, read: Read) -> None:
    """Beside one that is asked for all the time, and leaves room for three."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    listed = manifests_of(table, snapshot.snapshot_id)
    manifests._KEPT.clear()
    planned_files(table, [listed[0]])
    [entry] = manifests._KEPT[listed[0].manifest_path]
    manifests._KEPT.clear()
    manifests._KEPT["large"] = [entry] * (manifests.MOST_ENTRIES - 1 - 3 * 2)
    for one in listed:
        planned_files(table, [one])
        assert manifests._KEPT.get("large")
    read.clear()
    for one in listed[-3:]:
        assert len(planned_files(table, [one])) == 1
    assert read == []
    planned_files(table, [listed[0]])
    assert read == [listed[0].manifest_path]
    manifests._KEPT.clear()


def test_no_snapshot_has_no_manifests(table: Table) -> None:
    assert manifests_of(table, None) == []
