"""What this system asks of every SQLite file that several processes share."""

from __future__ import annotations

import sqlite3
import time

from sqlalchemy import Engine

__all__ = ["CATALOG_WAIT_SECONDS", "is_busy", "switch_to_wal"]

CATALOG_WAIT_SECONDS = 30
"""How long whoever wants to write to an Iceberg catalog waits for others."""


def switch_to_wal(engine: Engine, wait_seconds: float) -> None:
    """Have the file's readers never wait for its writer: it stays so, whoever opens it.

    SQLite's busy timeout does not hold for the switch, which fails at once beside anybody's
    transaction: here it is tried again until `wait_seconds` are over. Of a file in that mode it asks
    for nothing. Raises sqlite3.Error.
    """
    deadline = time.monotonic() + wait_seconds
    while True:
        connection = engine.raw_connection()
        try:
            connection.cursor().execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        finally:
            connection.close()


def is_busy(error: sqlite3.Error) -> bool:
    """Whether somebody else had what was asked for."""
    return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
