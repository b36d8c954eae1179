"""Files of SQLite that several processes share."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Engine, NullPool, create_engine

from lockstep.sqlite import switch_to_wal


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = create_engine(f"sqlite:///{tmp_path}/a.db", poolclass=NullPool)
    yield made
    made.dispose()


def mode(engine: Engine) -> str:
    with closing(sqlite3.connect(str(engine.url.database))) as connection:
        [found] = connection.execute("PRAGMA journal_mode").fetchone()
    return str(found)


def test_a_file_stays_switched(engine: Engine) -> None:
    assert mode(engine) == "delete"
    switch_to_wal(engine, 0)
    assert mode(engine) == "wal"
    switch_to_wal(engine, 0)
    assert mode(engine) == "wal"


def test_nobody_waits_for_ever(engine: Engine) -> None:
    with closing(sqlite3.connect(str(engine.url.database), isolation_level=None)) as other:
        other.execute("CREATE TABLE t (n INT)")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            switch_to_wal(engine, 0.2)
    assert mode(engine) == "delete"
    switch_to_wal(engine, 0)


def test_what_is_not_for_want_of_others_is_not_tried_again(tmp_path: Path) -> None:
    """It would be tried for an hour."""
    (tmp_path / "a.db").mkdir()
    engine = create_engine(f"sqlite:///{tmp_path}/a.db", poolclass=NullPool)
    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        switch_to_wal(engine, 3600)
    file = tmp_path / "b.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE t (n INT)")
    engine = create_engine(f"sqlite:///file:{file}?mode=ro&uri=true", poolclass=NullPool)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        switch_to_wal(engine, 3600)
