"""A store that an older Lockstep has made: it is migrated by whatever opens it, and that is said."""

from __future__ import annotations

import logging
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from control_builders import deploy, store_url
from sqlalchemy import create_engine

from lockstep.adapters import sql_tables
from lockstep.adapters.sql_store import SqlStore

OLDER = "0006"


def said(folder: Path) -> str:
    return (
        f"the control store {store_url(folder)} is migrated from revision {OLDER} to "
        f"{sql_tables.HEAD}; processes of an older Lockstep refuse it from now on"
    )


def make_older(folder: Path) -> None:
    config = Config()
    migrations = Path(sql_tables.__file__).parent / "migrations"
    config.set_main_option("script_location", str(migrations))
    engine = create_engine(store_url(folder))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, OLDER)
    engine.dispose()


def revision(folder: Path) -> str:
    with closing(sqlite3.connect(folder / "control.db")) as connection:
        [(found,)] = connection.execute("SELECT version_num FROM alembic_version").fetchall()
    return str(found)


def of_the_store(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name.startswith("lockstep")]


def test_a_store_of_an_older_revision_is_migrated_with_a_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_older(tmp_path)
    assert revision(tmp_path) == OLDER
    with caplog.at_level(logging.INFO, "lockstep"):
        assert SqlStore(store_url(tmp_path)).pipelines() == ()
        assert of_the_store(caplog) == [said(tmp_path)]
        assert revision(tmp_path) == sql_tables.HEAD
        SqlStore(store_url(tmp_path)).apply("p", deploy())
        assert of_the_store(caplog) == [said(tmp_path)]


def test_nothing_is_said_of_a_store_that_is_made(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "lockstep"):
        SqlStore(store_url(tmp_path)).apply("p", deploy())
    assert of_the_store(caplog) == []


def test_the_line_is_on_standard_error_of_a_command(tmp_path: Path) -> None:
    make_older(tmp_path)
    program = (
        "import sys; from lockstep.adapters.sql_store import SqlStore; "
        "print(SqlStore(sys.argv[1]).pipelines())"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, store_url(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "()\n"
    assert ran.stderr == f"{said(tmp_path)}\n"
