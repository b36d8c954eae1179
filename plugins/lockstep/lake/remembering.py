"""A SQL catalog whose metadata files are read once, and copied never.

Law: a metadata file never changes, and the next one has another name; so what has been read of it, or
was written to it from here, is what it says. Which file is a table's newest is asked each time.

PyIceberg (0.12) reads the file with each look at a table, a commit reads it again, and copies all that
it says twice. Each snapshot of the table's history is in there: with sixty of them that was half of
what a small interval computes in Python.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar
from weakref import ReferenceType, finalize, ref

from cachetools import LRUCache
from pydantic import BaseModel
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import load_file_io
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import (
    TableMetadata,
    TableMetadataV1,
    TableMetadataV2,
    TableMetadataV3,
)
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier
from sqlalchemy import bindparam, make_url, select

from lockstep.sqlite import CATALOG_WAIT_SECONDS, is_busy, switch_to_wal

__all__ = ["RememberingCatalog", "unchanging"]

TABLES = 200
"""As many tables' newest metadata a process keeps: some kilobytes a snapshot."""

_Model = TypeVar("_Model", bound=BaseModel)


def _model_copy(
    self: _Model,
    *,
    update: Mapping[str, Any] | None = None,
    deep: bool = False,  # noqa: ARG001 (what is shared never changes)
) -> _Model:
    """Another one that shares all but what is updated, even where a deep copy is asked for: PyIceberg
    changes metadata by such updates alone."""
    return BaseModel.model_copy(self, update=update)


class _Unchanging1(TableMetadataV1):
    model_copy = _model_copy


class _Unchanging2(TableMetadataV2):
    model_copy = _model_copy


class _Unchanging3(TableMetadataV3):
    model_copy = _model_copy


_UNCHANGING: Mapping[type[BaseModel], type[Any]] = {
    TableMetadataV1: _Unchanging1,
    TableMetadataV2: _Unchanging2,
    TableMetadataV3: _Unchanging3,
}


def unchanging(metadata: TableMetadata) -> TableMetadata:
    """The same metadata, whose copies share what they have in common."""
    kind = _UNCHANGING.get(type(metadata))
    if kind is None:
        return metadata
    found = metadata.model_copy()
    # `model_construct` would look at the signature of what makes each field's default: 0.7 ms.
    object.__setattr__(found, "__class__", kind)
    return found


class _Remembered:
    """Of each table the newest metadata that is known, by the name of its file."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._tables = LRUCache[str, tuple[str, TableMetadata]](TABLES)

    def find(self, location: str) -> TableMetadata | None:
        with self._lock:
            known, metadata = self._tables.get(_folder(location), ("", None))
            return metadata if known == location else None

    def keep(self, location: str, metadata: TableMetadata) -> None:
        with self._lock:
            self._tables[_folder(location)] = location, metadata


def _folder(location: str) -> str:
    return location.rpartition("/")[0]


_REMEMBERED = _Remembered()
"""Of the whole process: catalogs are opened by each who needs one."""


_ROW = IcebergTables.__table__.c
_LOCATION = select(_ROW.metadata_location).where(
    _ROW.catalog_name == bindparam("catalog"),
    _ROW.table_namespace == bindparam("namespace"),
    _ROW.table_name == bindparam("table"),
)


class RememberingCatalog(SqlCatalog):
    """`SqlCatalog`, and what metadata files said. May be used from several threads."""

    @staticmethod
    def shared(name: str, properties: Mapping[str, str], user: object) -> RememberingCatalog:
        """The process's catalog of that name and those properties, to whose database `user` asks for a
        connection: what SQLAlchemy has made of its queries serves all, and takes longer to make than to
        run. Connections are kept as long as a user is there, as they would be of a catalog of its own;
        another process that was forked, and another SQLite file in the place of one, have others.
        """
        file = _file_of(properties.get("uri", ""))
        if file is None:
            return RememberingCatalog(name, **properties)  # which makes it
        catalog = _shared(name, tuple(sorted(properties.items())), os.getpid(), file)
        catalog._serve(user)
        return catalog

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self._users: dict[int, ReferenceType[object]] = {}
        self._process = os.getpid()

    def _serve(self, user: object) -> None:
        if self._is_left():
            # As somebody new would find it: the database may have been made anew.
            self.engine.dispose()
            self._init_catalog()
        self._users[id(user)] = ref(user)
        finalize(user, self._leave, id(user)).atexit = False

    def _init_catalog(self) -> None:
        """Spark's JDBC asks for that mode wherever it connects, and fails where it is the first to and
        somebody is there. Raises sqlite3.Error, besides what SQLAlchemy does."""
        if self.engine.dialect.name == "sqlite":
            try:
                switch_to_wal(self.engine, CATALOG_WAIT_SECONDS)
            except sqlite3.OperationalError as error:
                # Whoever may only read does so as well without; what cannot be opened says so below.
                if is_busy(error):
                    raise
        super()._init_catalog()

    def _leave(self, user: int) -> None:
        """Called where an object is collected, which may be in the midst of anything: no lock is taken
        that this thread could hold. SQLAlchemy's own can be taken again."""
        left = self._users.get(user)
        if left is not None and left() is None:
            self._users.pop(user, None)
        if self._is_left():
            self.engine.dispose(close=self._process == os.getpid())

    def _is_left(self) -> bool:
        return all(one() is None for one in list(self._users.values()))

    def load_table(self, identifier: str | Identifier) -> Table:
        """Raises NoSuchTableError."""
        location = self._location(identifier)
        if location is None:
            # As PyIceberg says it, which would ask once more.
            raise NoSuchTableError(
                f"Table does not exist: {'.'.join(Catalog.identifier_to_tuple(identifier))}"
            )
        known = _REMEMBERED.find(location)
        if known is not None:
            io = load_file_io({**self.properties, **known.properties}, location)
            return Table(Catalog.identifier_to_tuple(identifier), known, location, io, self)
        table = super().load_table(identifier)
        table.metadata = unchanging(table.metadata)
        _REMEMBERED.keep(table.metadata_location, table.metadata)
        return table

    def commit_table(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        """Raises CommitFailedException, NoSuchTableError."""
        response = super().commit_table(table, requirements, updates)
        _REMEMBERED.keep(response.metadata_location, unchanging(response.metadata))
        return response

    def _location(self, identifier: str | Identifier) -> str | None:
        """The table's newest metadata file; None where there is no such table."""
        row = {
            "catalog": self.name,
            "namespace": Catalog.namespace_to_string(Catalog.namespace_from(identifier)),
            "table": Catalog.table_name_from(identifier),
        }
        with self.engine.connect() as connection:
            found: str | None = connection.scalar(_LOCATION, row)
            return found


@lru_cache(maxsize=16)
def _shared(
    name: str, properties: tuple[tuple[str, str], ...], process: int, file: tuple[int, int]
) -> RememberingCatalog:
    del process, file
    return RememberingCatalog(name, **dict(properties))


def _file_of(uri: str) -> tuple[int, int] | None:
    """Which file an SQLite database is, wherever its path begins; None where there is none yet. Of other
    databases there is nothing to tell."""
    url = make_url(uri)
    if url.get_backend_name() != "sqlite":
        return 0, 0
    try:
        found = Path(url.database).stat() if url.database else None
    except OSError:
        found = None
    return None if found is None else (found.st_dev, found.st_ino)
