"""A manifest says the same, whoever reads it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyiceberg.manifest
import pytest
from lake_builders import local_catalog
from pyiceberg.avro.file import AvroFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from lockstep.lake import manifest_readers
from lockstep.lake.manifest_readers import ManifestReader
from lockstep.lake.opening import OpenCatalog

COLUMNS = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "name", StringType(), required=False),
)
ROWS = pa.table({"id": [1, 2, 3, None], "name": ["a", "b", None, "d"]})
SPECS = (
    PartitionSpec(),
    PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name")),
    PartitionSpec(
        PartitionField(1, 1000, IdentityTransform(), "of_id"),
        PartitionField(2, 1001, IdentityTransform(), "name"),
    ),
)


@pytest.fixture
def tables(tmp_path: Path) -> list[Table]:
    """Of both versions of the format, divided in several ways, with rows that are deleted."""
    catalog = OpenCatalog(local_catalog(tmp_path)).connected()
    catalog.create_namespace("db")
    made = []
    for version in ("1", "2"):
        for number, spec in enumerate(SPECS):
            name = f"db.t{version}_{number}"
            properties = {"format-version": version}
            table = catalog.create_table(name, COLUMNS, partition_spec=spec, properties=properties)
            for _ in range(3):
                table.append(ROWS)
            table.delete("id = 2")
            made.append(table)
    return made


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    """What has been read is asked of the files."""
    manifest_readers._KEPT.clear()
    yield
    manifest_readers.install()


def said(table: Table) -> list[Any]:
    """Of all snapshots the lists, and of all manifests the entries, with every field."""
    found: list[Any] = []
    for snapshot in table.snapshots():
        file = table.io.new_input(snapshot.manifest_list)
        for manifest in pyiceberg.manifest.read_manifest_list(file):
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=False)
            found.append((fields(manifest), [fields(entry) for entry in entries]))
    return found


def fields(record: Any) -> Any:
    """Of a record and those within it; who made them counts, too."""
    data = getattr(record, "_data", None)
    if isinstance(record, list):
        return [fields(one) for one in record]
    return record if data is None else (type(record).__name__, [fields(one) for one in data])


def test_it_is_read_as_pyiceberg_reads_it(
    tables: list[Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pyiceberg.manifest.AvroFile is ManifestReader, "whoever opens a catalog has it installed"
    # Each form for the first time, and once more, among others.
    once, again = ([said(table) for table in tables] for _ in range(2))
    monkeypatch.setattr(pyiceberg.manifest, "AvroFile", AvroFile)
    assert [said(table) for table in tables] == once == again
    assert sum(len(entries) for of_table in once for _, entries in of_table) > 50


def test_as_many_readers_are_made_as_there_are_forms(tables: list[Table]) -> None:
    for table in tables:
        said(table)
    forms = len(manifest_readers._KEPT)
    assert forms <= 2 * (1 + len(SPECS))
    for table in tables:
        table.append(ROWS)
        said(table)
    assert len(manifest_readers._KEPT) == forms


def test_several_threads_may_read_by_one(tables: list[Table]) -> None:
    expected = said(tables[-1])
    with ThreadPoolExecutor(8) as pool:
        assert all(found == expected for found in pool.map(said, [tables[-1]] * 24))


def test_a_file_without_a_schema_is_refused_as_before(tmp_path: Path, tables: list[Table]) -> None:
    path = tmp_path / "bad.avro"
    path.write_bytes(b"Obj\x01" + b"\x00" + bytes(16))
    with pytest.raises(ValueError, match="No schema found"):
        list(pyiceberg.manifest.read_manifest_list(tables[0].io.new_input(path.as_uri())))
