"""New tables through PyIceberg alone: one root whoever makes them, and what a catalog refuses."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lake_builders import Lake, local_catalog
from pyiceberg.exceptions import CommitStateUnknownException, NoSuchNamespaceError
from sqlalchemy import text

from lockstep.adapters.iceberg_tables import IcebergTables
from lockstep.errors import EngineFailed, Refused, StateDiverged
from lockstep.lake.remembering import RememberingCatalog

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("text", pa.string())])
PROPERTIES = {"write.parquet.compression-codec": "zstd"}
SUMMARY = {"lockstep.step": "-1"}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(local_catalog(tmp_path))


def make(state: IcebergTables, table: str = "t", columns: pa.Schema = COLUMNS) -> None:
    state.make(table, columns, PROPERTIES, SUMMARY)


def make_in_threads(folder: Path) -> None:
    """In a process of its own."""
    lake = Lake(local_catalog(folder))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: make(lake.state, name), ("t", "u", "t", "u")))


def test_creators_in_several_processes_make_one_table_with_one_root(
    lake: Lake, tmp_path: Path
) -> None:
    lake.state.tables()
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        list(pool.map(make_in_threads, [tmp_path] * 4))
    for name in ("t", "u"):
        table = lake.table(name)
        [root] = table.snapshots()
        assert root.parent_snapshot_id is None
        assert root.summary is not None
        assert root.summary["lockstep.step"] == "-1"
        assert table.properties == PROPERTIES
        assert table.format_version == 2
        assert not any(field.required for field in table.schema().fields)


def test_a_table_that_is_there_keeps_what_it_has(lake: Lake) -> None:
    make(lake.state)
    before = lake.table("t").metadata
    lake.state.make("t", COLUMNS, {"other": "1"}, {})
    assert lake.table("t").metadata == before
    with pytest.raises(StateDiverged, match=r"db\.t exists with other columns"):
        make(lake.state, columns=COLUMNS.append(pa.field("more", pa.int64())))


@pytest.mark.parametrize("kind", [pa.null(), pa.duration("us"), pa.time64("ns")], ids=str)
def test_types_that_no_table_has_are_refused(lake: Lake, kind: pa.DataType) -> None:
    with pytest.raises(Refused, match="could not be made"):
        make(lake.state, columns=pa.schema([("x", kind)]))
    assert lake.state.tables() == ()


def test_a_view_of_that_name_is_in_the_way(lake: Lake) -> None:
    """A catalog that Spark has made has views, too."""
    make(lake.state, "other")
    catalog = lake.state._catalog.connected()
    assert isinstance(catalog, RememberingCatalog)
    with catalog.engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, "
                "metadata_location, iceberg_type) VALUES ('lake', 'db', 't', 'nowhere', 'VIEW')"
            )
        )
    seen = Lake(lake.settings)
    with pytest.raises(EngineFailed, match=r"db\.t could not be made"):
        make(IcebergTables(seen.settings))


@pytest.mark.parametrize("is_made", [False, True], ids=["not made", "made"])
def test_what_a_catalog_does_not_answer_is_found_out(
    lake: Lake, is_made: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = RememberingCatalog.commit_table

    def answered(*arguments: Any) -> Any:
        if is_made:
            commit(*arguments)
        raise CommitStateUnknownException("502")

    make(lake.state, "first")
    monkeypatch.setattr(RememberingCatalog, "commit_table", answered)
    if is_made:
        make(lake.state)
        assert len(lake.table("t").snapshots()) == 1
    else:
        with pytest.raises(EngineFailed, match="502"):
            make(lake.state)


def test_metadata_that_has_just_been_deleted_is_looked_for_once_more(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(lake.state)
    load, lost = RememberingCatalog.load_table, [FileNotFoundError("00000.metadata.json")]

    def loaded(self: RememberingCatalog, identifier: Any) -> Any:
        if lost:
            raise lost.pop()
        return load(self, identifier)

    monkeypatch.setattr(RememberingCatalog, "load_table", loaded)
    make(lake.state)
    assert not lost


def test_a_database_that_cannot_be_made_is_told(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RememberingCatalog, "create_namespace_if_not_exists", lambda *_: None)
    with pytest.raises(EngineFailed, match=NoSuchNamespaceError.__name__):
        make(lake.state)
