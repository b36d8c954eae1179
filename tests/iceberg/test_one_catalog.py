"""A process has one SQL catalog of the same settings; what it shows is what a new one would show."""

from __future__ import annotations

import gc
import os
import shutil
import sqlite3
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from time import sleep
from urllib.parse import urlsplit

import pytest
from lake_builders import Lake, local_catalog
from sqlalchemy import QueuePool

from lockstep.control.job import CatalogSettings
from lockstep.errors import Unreachable
from lockstep.lake import remembering
from lockstep.lake.opening import OpenCatalog
from lockstep.lake.remembering import RememberingCatalog


@pytest.fixture
def settings(tmp_path: Path) -> CatalogSettings:
    return local_catalog(tmp_path)


def make(settings: CatalogSettings, table: str) -> None:
    """Nobody is there any more after that."""
    Lake(settings).make(table)
    gc.collect()


def shared(opened: OpenCatalog) -> RememberingCatalog:
    found = opened.connected()
    assert isinstance(found, RememberingCatalog)
    return found


def database(settings: CatalogSettings) -> Path:
    return Path("/", urlsplit(settings.pyiceberg["uri"]).path.lstrip("/"))


def tables(settings: CatalogSettings) -> set[str]:
    """What somebody sees who comes, and goes."""
    catalog = OpenCatalog(settings).connected()
    return {table for space in catalog.list_namespaces() for _, table in catalog.list_tables(space)}


def test_connections_are_kept_as_long_as_somebody_is_there(
    settings: CatalogSettings, tmp_path: Path
) -> None:
    make(settings, "t")
    first, second = OpenCatalog(settings), OpenCatalog(settings)
    catalog = shared(first)
    assert shared(second) is catalog
    assert OpenCatalog(local_catalog(tmp_path / "other")).connected() is not catalog

    def idle() -> int:
        gc.collect()
        pool = catalog.engine.pool
        assert isinstance(pool, QueuePool)
        return pool.checkedin()

    assert idle() == 1
    del first
    assert idle() == 1
    del second
    assert idle() == 0
    assert catalog.list_namespaces() == OpenCatalog(settings).connected().list_namespaces()


def test_a_copy_that_is_put_back_is_what_there_is(
    settings: CatalogSettings, tmp_path: Path
) -> None:
    make(settings, "t")
    shutil.copy(database(settings), tmp_path / "kept.db")
    make(settings, "later")
    assert tables(settings) == {"t", "later"}
    shutil.move(tmp_path / "kept.db", database(settings))
    assert tables(settings) == {"t"}


def test_a_database_that_is_gone_is_made_anew(settings: CatalogSettings) -> None:
    make(settings, "t")
    assert tables(settings) == {"t"}
    database(settings).unlink()
    assert tables(settings) == set()


def test_a_relative_path_is_one_of_the_folder_that_is_current(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = {"warehouse": tmp_path.as_uri()}
    settings = CatalogSettings("c", "db", {}, {"type": "sql", "uri": "sqlite:///c.db", **warehouse})
    for folder, found in (("a", []), ("b", []), ("a", [("of a",)])):
        (tmp_path / folder).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / folder)
        catalog = OpenCatalog(settings).connected()
        assert catalog.list_namespaces() == found
        catalog.create_namespace_if_not_exists(f"of {folder}")


def test_another_file_is_another_catalog_though_somebody_is_there(
    settings: CatalogSettings, tmp_path: Path
) -> None:
    make(settings, "t")
    shutil.copy(database(settings), tmp_path / "kept.db")
    make(settings, "later")
    opened = OpenCatalog(settings)
    before = shared(opened)
    shutil.move(tmp_path / "kept.db", database(settings))
    assert tables(settings) == {"t"}
    assert {name for _, name in before.list_tables("db")} == {"t", "later"}


def test_readers_of_a_file_never_wait_from_its_first_connection_on(
    settings: CatalogSettings,
) -> None:
    """Who asks for that mode of a file that is not in it is refused beside a transaction, however long
    it would wait. Spark's JDBC asks with every connection."""
    file = database(settings)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("CREATE TABLE of_somebody (column_ TEXT)")
        other.execute("BEGIN IMMEDIATE")
        with (
            closing(sqlite3.connect(file, timeout=3600, isolation_level=None)) as connection,
            pytest.raises(sqlite3.OperationalError, match="locked"),
        ):
            connection.execute("PRAGMA journal_mode=WAL")
        with ThreadPoolExecutor() as threads:
            opening = threads.submit(OpenCatalog(settings).connected)
            sleep(0.5)
            assert not opening.done()
            other.execute("COMMIT")
            assert opening.result().list_namespaces() == []
        other.execute("BEGIN IMMEDIATE")
        with closing(sqlite3.connect(file, timeout=0, isolation_level=None)) as connection:
            assert connection.execute("PRAGMA journal_mode=WAL").fetchone() == ("wal",)


def test_who_may_only_read_a_catalog_reads_it(settings: CatalogSettings) -> None:
    make(settings, "t")
    with closing(sqlite3.connect(database(settings), isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
    uri = f"sqlite:///file:{database(settings)}?mode=ro&uri=true"
    reading = replace(settings, pyiceberg={**settings.pyiceberg, "uri": uri})
    assert OpenCatalog(reading).load("db", "t").name() == ("db", "t")


def test_a_catalog_whose_file_cannot_be_opened_does_not_answer(settings: CatalogSettings) -> None:
    database(settings).mkdir()
    with pytest.raises(Unreachable, match="unable to open"):
        OpenCatalog(settings).connected()


def test_a_file_that_is_no_catalog_does_not_answer(settings: CatalogSettings) -> None:
    database(settings).write_bytes(b"x" * 4096)
    with pytest.raises(Unreachable, match="not a database"):
        OpenCatalog(settings).connected()


def test_a_catalog_that_cannot_be_switched_for_others_does_not_answer(
    settings: CatalogSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else Spark would be the first to try."""
    monkeypatch.setattr(remembering, "CATALOG_WAIT_SECONDS", 0.1)
    with closing(sqlite3.connect(database(settings), isolation_level=None)) as other:
        other.execute("CREATE TABLE of_somebody (column_ TEXT)")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unreachable, match="locked"):
            OpenCatalog(settings).connected()
    assert OpenCatalog(settings).connected().list_namespaces() == []


def test_a_process_that_is_forked_has_a_catalog_of_its_own(settings: CatalogSettings) -> None:
    make(settings, "t")
    opened = OpenCatalog(settings)
    before = shared(opened)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            mine = OpenCatalog(settings)
            code = 0 if shared(mine) is not before and tables(settings) == {"t"} else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert shared(opened) is before


def test_many_come_and_go_at_once(settings: CatalogSettings) -> None:
    make(settings, "t")
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(6) as pool:
            assert all(found == {"t"} for found in pool.map(tables, [settings] * 120))
    finally:
        sys.setswitchinterval(interval)
