"""The control store in a database: SQLite by default, PostgreSQL by its URL.

A change is read, applied by `transitions.apply`, and written by compare and set on the pipeline's
revision, all that changed in one transaction with it. The first try reads without a lock, because
most changes meet nobody; after a lost race the pipeline's row is locked first, so that the second
try decides. Connections live for one call each: a plan may wait for minutes between two calls.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from threading import Lock
from typing import Any

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    RootTransaction,
    create_engine,
    event,
    inspect,
    text,
)
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    DBAPIError,
    IntegrityError,
    NoSuchModuleError,
    NotSupportedError,
    ProgrammingError,
)
from sqlalchemy.pool import NullPool

from lockstep.adapters import sql_rows, sql_tables, store_url
from lockstep.control import transitions
from lockstep.control.changes import Change, Deploy, Landed, Outcome, Rejected, Restore, Unknown
from lockstep.control.model import Division, PipelineState, Version
from lockstep.errors import NotDeployed, StateDiverged, Unreachable
from lockstep.sqlite import switch_to_wal

__all__ = ["SqlStore"]

_BUSY_TIMEOUT_SECONDS = 15
_TRIES_LOCKED = 3
_MIGRATION_LOCK_KEY = 7_305_516
_MIGRATING = Lock()
_LOG = logging.getLogger(__name__)
"""Shown on standard error where nothing else is done with it; a log of a task of Airflow has it."""


class SqlStore:
    """The `Store` of `control.ports` on SQLAlchemy; safe to use from many threads and processes.

    `url` is SQLAlchemy's, `sqlite:////folder/control.db` or `postgresql+psycopg://…`. The folder of
    an SQLite file and the tables are made, or migrated, at the first use. Raises WrongUse for a URL
    that cannot be used, Unreachable from any call where the database does not answer.
    """

    def __init__(self, url: str) -> None:
        self._engine = _engine(url, os.getcwd())
        self._where = store_url.shown(url)
        self._is_ready = False
        self._preparing = Lock()
        self._known: dict[str, PipelineState] = {}
        """By pipeline, as it was read or written last."""

    def pipelines(self) -> tuple[str, ...]:
        """Names of all deployed pipelines, sorted."""
        with self._reading() as connection:
            return sql_rows.read_names(connection)

    def read(self, pipeline: str) -> PipelineState:
        """The state as of one moment. Raises NotDeployed."""
        with self._reading() as connection:
            return self._deployed(connection, pipeline)

    def divisions(self, pipeline: str, first_step: int, last_step: int) -> tuple[Division, ...]:
        """Recorded divisions with first_step <= step <= last_step that are still kept, by step."""
        with self._reading() as connection:
            self._deployed(connection, pipeline)
            return sql_rows.read_divisions(connection, pipeline, first_step, last_step)

    def versions(self, pipeline: str) -> tuple[Version, ...]:
        """Versions kept, oldest first."""
        return self.read(pipeline).versions

    def apply(self, pipeline: str, change: Change) -> Outcome:
        """Landed, Rejected, or Unknown where the database failed while it was committing.

        Raises NotDeployed for all changes but Deploy; Unreachable means that nothing was written.
        """
        outcome = self._try(pipeline, change)
        for _ in range(_TRIES_LOCKED):
            if outcome is not None:
                return outcome
            outcome = self._try_locked(pipeline, change)
        if outcome is not None:
            return outcome
        raise Unreachable(
            f"pipeline {pipeline} changed under each of {_TRIES_LOCKED} tries to write to it",
            expected=f"that a lock on its row in {self._where} holds others back",
            found="another revision each time",
            next_step="run the command again",
        )

    @contextmanager
    def at_hand(self) -> Iterator[None]:
        """Within it each call takes less time. What SQLite wrote last stands in a file of its own, and
        whoever closes the only connection brings it home, which takes longer than to write it: one
        that does nothing is kept open."""
        if self._engine.dialect.name != "sqlite":
            yield
            return
        with self._answering():
            self._prepare()
            kept = self._engine.raw_connection()
            # One that has read nothing does not count.
            kept.cursor().execute("SELECT count(*) FROM sqlite_schema").fetchall()
        with closing(kept):
            yield

    @contextmanager
    def transaction(self, *, writes: bool) -> Iterator[Connection]:
        """A transaction for modules whose tables stand beside the store's; Unreachable from here too.

        It is committed at the end of the body; an error that comes with the commit may mean either.
        """
        with self._connected(writes=writes) as connection, connection.begin():
            yield connection

    def _try(self, pipeline: str, change: Change) -> Outcome | None:
        """Read, decide, compare and set; None where somebody else was faster."""
        with self._reading() as connection:
            before = self._before(connection, pipeline, change, lock=False)
            decided = _decide(connection, pipeline, before, change)
        if not isinstance(decided, PipelineState):
            return decided
        with self._connected(writes=True) as connection:
            transaction = connection.begin()
            return self._write(transaction, before, decided, change)

    def _try_locked(self, pipeline: str, change: Change) -> Outcome | None:
        """The same in one transaction; None only where two first deploys meet."""
        with self._connected(writes=True) as connection:
            transaction = connection.begin()
            before = self._before(connection, pipeline, change, lock=True)
            decided = _decide(connection, pipeline, before, change)
            if not isinstance(decided, PipelineState):
                return decided
            return self._write(transaction, before, decided, change)

    def _write(
        self,
        transaction: RootTransaction,
        before: PipelineState | None,
        after: PipelineState,
        change: Change,
    ) -> Outcome | None:
        """Write and commit; a transaction that is left open is rolled back when it is closed."""
        connection = transaction.connection
        try:
            if not sql_rows.write_state(connection, before, after):
                return None
            if isinstance(change, Restore):
                sql_rows.write_again(connection, after.name, change.divisions)
        except IntegrityError:
            if before is None:
                return None  # another first deploy was faster
            raise
        try:
            transaction.commit()
        except DBAPIError as error:
            # Closing would roll back over a connection that may be gone, and hide this answer.
            connection.invalidate()
            return Unknown(
                f"{self._where} failed while it was committing {type(change).__name__} of "
                f"pipeline {after.name}: {error.orig}"
            )
        self._known[after.name] = after
        return Landed(after)

    def _before(
        self, connection: Connection, pipeline: str, change: Change, *, lock: bool
    ) -> PipelineState | None:
        state = self._state(connection, pipeline, lock=lock)
        if state is None and not isinstance(change, Deploy | Restore):
            raise self._not_deployed(connection, pipeline)
        return state

    def _deployed(self, connection: Connection, pipeline: str) -> PipelineState:
        state = self._state(connection, pipeline, lock=False)
        if state is None:
            raise self._not_deployed(connection, pipeline)
        return state

    def _state(self, connection: Connection, pipeline: str, *, lock: bool) -> PipelineState | None:
        known = self._known.get(pipeline)
        state = sql_rows.read_state(connection, pipeline, known, lock=lock)
        if state is not None:
            self._known[pipeline] = state
        return state

    def _not_deployed(self, connection: Connection, pipeline: str) -> NotDeployed:
        return NotDeployed(
            f"no pipeline {pipeline} is deployed",
            expected="the name of a deployed pipeline",
            found=", ".join(sql_rows.read_names(connection)) or "none",
            next_step="lockstep deploy DIR",
        )

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """A connection whose transaction sees one snapshot."""
        with self.transaction(writes=False) as connection:
            yield connection

    @contextmanager
    def _connected(self, *, writes: bool) -> Iterator[Connection]:
        """A connection for one call, to a store whose tables are up to date."""
        with self._answering():
            self._prepare()
            with self._engine.connect() as connection:
                options: dict[str, Any] = {"lockstep_writes": writes}
                if connection.dialect.name != "sqlite" and not writes:
                    options["isolation_level"] = "REPEATABLE READ"
                yield connection.execution_options(**options)

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """Errors of the database before a commit was sent: nothing is written."""
        try:
            yield
        except (ProgrammingError, IntegrityError, DataError, NotSupportedError):
            raise  # our own mistakes, not the database's
        except (DBAPIError, sqlite3.Error, OSError) as error:
            raise Unreachable(
                f"the control store {self._where} does not answer",
                expected="a database that can be opened, read and written",
                found=str(error.orig if isinstance(error, DBAPIError) else error),
                next_step="check LOCKSTEP_STORE_URL, LOCKSTEP_HOME and the rights on the folder, "
                "then run the command again",
            ) from error

    def _prepare(self) -> None:
        """Make the folder and bring the tables to this code's revision, once a process."""
        if self._is_ready:
            return
        with self._preparing:
            if self._is_ready:
                return
            database = str(self._engine.url.database)
            # A URI of SQLite's own says for itself how to open what.
            if self._engine.dialect.name == "sqlite" and not database.startswith("file:"):
                _make_private(Path(database))
            with self._engine.connect() as connection, connection.begin():
                found = _revision(connection)
            if found != sql_tables.HEAD:
                self._migrate(found)
            self._is_ready = True

    def _migrate(self, found: str | None) -> None:
        if found is not None and found > sql_tables.HEAD:
            raise StateDiverged(
                f"the control store {self._where} was made by a newer Lockstep",
                expected=f"revision {sql_tables.HEAD} or older",
                found=f"revision {found}",
                next_step="install the Lockstep that wrote it, or set LOCKSTEP_STORE_URL",
            )
        if self._engine.dialect.name == "sqlite":
            switch_to_wal(self._engine, _BUSY_TIMEOUT_SECONDS)
        with self._engine.connect() as plain:
            connection = plain.execution_options(lockstep_writes=True)
            with connection.begin():
                # Whoever comes second waits here, and finds that there is nothing left to do.
                if connection.dialect.name == "postgresql":
                    connection.execute(
                        text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK_KEY}
                    )
                before = _revision(connection)
                if before == sql_tables.HEAD:
                    return
                if before is not None:
                    # Whatever the command was: others may have to be stopped.
                    _LOG.warning(
                        "the control store %s is migrated from revision %s to %s; processes of an older "
                        "Lockstep refuse it from now on",
                        self._where,
                        before,
                        sql_tables.HEAD,
                    )
                _upgrade(connection)


def _decide(
    connection: Connection, pipeline: str, before: PipelineState | None, change: Change
) -> PipelineState | Landed | Rejected:
    """The state to write, or the outcome where there is nothing to write."""
    log = partial(sql_rows.read_divisions, connection, pipeline)
    try:
        after = transitions.apply(before, change, name=pipeline, log=log)
    except transitions.Precondition as refused:
        return Rejected(refused.reason, before)
    return Landed(after) if after is before else after


@lru_cache(maxsize=16)
def _engine(url: str, folder: str) -> Engine:
    """The process's engine for that URL, whose path may be relative to the folder. It keeps what
    SQLAlchemy has made of its queries, which takes longer to make than to run, and no connection."""
    del folder
    parsed = store_url.parsed(url)
    try:
        arguments = _connect_arguments(parsed)
        engine = create_engine(parsed, poolclass=NullPool, connect_args=arguments)
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        raise store_url.unusable(url, str(error)) from error
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _sqlite_connected)
        event.listen(engine, "begin", _sqlite_begin)
    return engine


def _connect_arguments(url: URL) -> dict[str, Any]:
    match url.get_backend_name():
        case "sqlite":
            if url.username or url.password or url.host:
                # SQLAlchemy says so too, and quotes the URL.
                raise ArgumentError("a file has no user and no host: three slashes and its path")
            if not url.database or url.database == ":memory:":
                raise ArgumentError("SQLite in memory is not shared between connections")
            return {"timeout": _BUSY_TIMEOUT_SECONDS}
        case "postgresql":
            return {
                "connect_timeout": _BUSY_TIMEOUT_SECONDS,
                "options": f"-c lock_timeout={_BUSY_TIMEOUT_SECONDS}s",
            }
        case other:
            raise ArgumentError(f"databases of kind {other} are not supported")


def _make_private(file: Path) -> None:
    """Make the folder, and the file for its user alone: it holds all that projects say, passwords among
    it. SQLite gives what it makes beside a file the same rights. A file that is there keeps its own: a
    group may share it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if not file.exists():
        # Another process may be faster.
        with suppress(FileExistsError):
            file.touch(mode=0o600, exist_ok=False)


def _sqlite_connected(connection: Any, _record: object) -> None:
    # The driver shall not open transactions by itself: `_sqlite_begin` says of which kind.
    connection.isolation_level = None
    connection.execute("PRAGMA synchronous=FULL")


def _sqlite_begin(connection: Connection) -> None:
    """A write takes SQLite's lock at once: one that is taken midway can fail without waiting."""
    writes = connection.get_execution_options().get("lockstep_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _revision(connection: Connection) -> str | None:
    """The revision of the tables, None where there are none."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return None if found is None else str(found)


def _upgrade(connection: Connection) -> None:
    """Alembic is slow to import and keeps its context in globals: only here, and one at a time."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    folder = Path(__file__).parent / "migrations"
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.attributes["connection"] = connection
    with _MIGRATING:
        command.upgrade(config, "head")
