"""A process has one SQL catalog of the same settings, whose connections are its own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from lake_builders import Lake, local_catalog
from sqlalchemy import Engine

from lockstep.lake.opening import OpenCatalog
from lockstep.lake.remembering import RememberingCatalog


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(local_catalog(tmp_path))


def catalog(lake: Lake) -> RememberingCatalog:
    found = OpenCatalog(lake.settings).connected()
    assert isinstance(found, RememberingCatalog)
    return found


def identity(engine: Engine) -> int:
    """Of the connection that serves whoever asks now."""
    with engine.connect() as connection:
        return id(connection.connection.dbapi_connection)


def test_all_who_ask_share_it_and_its_connections(lake: Lake, tmp_path: Path) -> None:
    engine = catalog(lake).engine
    assert catalog(lake) is catalog(lake)
    assert identity(engine) == identity(engine)
    other = local_catalog(tmp_path / "other")
    assert OpenCatalog(other).connected() is not catalog(lake)


def test_another_file_in_its_place_is_seen(lake: Lake, tmp_path: Path) -> None:
    """As from a copy that was kept: what is idle is of the file that is gone."""
    lake.make("t")
    path = Path(urlsplit(lake.settings.pyiceberg["uri"]).path)
    shutil.copy(path, tmp_path / "kept.db")
    lake.make("later")
    catalog(lake).load_table(("db", "later"))
    shutil.move(tmp_path / "kept.db", path)
    tables = {name for _, name in catalog(lake).list_tables("db")}
    assert tables == {"t"}


def test_a_process_that_is_forked_has_connections_of_its_own(lake: Lake) -> None:
    lake.make("t")
    engine = catalog(lake).engine
    before, (reading, writing) = identity(engine), os.pipe()
    # Not closed in the child, it stays another one.
    child = os.fork()
    if child == 0:
        try:
            is_another = identity(engine) != before
            tables = catalog(lake).list_tables("db")
            os.write(writing, b"yes" if is_another and tables == [("db", "t")] else b"no")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 3) == b"yes"
    for end in (reading, writing):
        os.close(end)
    assert identity(engine) == before
