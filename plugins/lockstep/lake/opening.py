"""Opening a catalog and its tables; failures of both in plain sentences."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitStateUnknownException,
    RESTError,
    ServiceUnavailableError,
)
from pyiceberg.table import Table
from sqlalchemy.exc import SQLAlchemyError

from lockstep.control.job import CatalogSettings
from lockstep.errors import Refused, Unreachable
from lockstep.lake import manifest_readers
from lockstep.lake.remembering import RememberingCatalog
from lockstep.lake.sorted_copies import SortedCopies

__all__ = ["OpenCatalog"]

manifest_readers.install()


class OpenCatalog:
    """A catalog that is connected to when it is first asked. May be used from several threads. `copies`
    are those of its tables' data files on this machine, if there may be any."""

    def __init__(self, settings: CatalogSettings) -> None:
        self._settings = settings
        self.copies = None if settings.copies is None else SortedCopies(settings.copies)
        self._catalog: Catalog | None = None
        self._lock = Lock()

    def connected(self) -> Catalog:
        """Raises Unreachable."""
        with self._lock:
            if self._catalog is None:
                try:
                    self._catalog = _connected(self._settings, self)
                except (RESTError, SQLAlchemyError, sqlite3.Error, OSError) as error:
                    raise self._unreachable(error) from error
            return self._catalog

    def load(self, database: str, table: str) -> Table:
        """The table with its metadata of now. Raises Unreachable, and PyIceberg's NoSuchTableError or
        NoSuchNamespaceError: what a table's absence means is the caller's to say."""
        with self.plain_errors(table):
            catalog = self.connected()
            try:
                return catalog.load_table((database, table))
            except FileNotFoundError:
                # Old metadata files are deleted after some commits: the pointer has moved on.
                return catalog.load_table((database, table))

    @contextmanager
    def plain_errors(self, subject: str) -> Iterator[None]:
        """What a catalog or its store says in a failure, as Unreachable; Refused where PyIceberg (0.12)
        cannot write such a table."""
        try:
            yield
        except CommitStateUnknownException:
            raise  # The caller finds out by reading.
        except NotImplementedError as error:
            raise Refused(
                f"table {subject} cannot be written",
                expected="an Iceberg table of format version 2, which PyIceberg can write",
                found=str(error).splitlines()[0],
                next_step=f"if {subject} is a view, drop it to have it published anew: a table never "
                "goes back to an earlier version",
            ) from error
        except (SQLAlchemyError, ServiceUnavailableError, RESTError, OSError) as error:
            raise self._unreachable(error, subject) from error

    def _unreachable(self, error: Exception, subject: str = "") -> Unreachable:
        return Unreachable(
            f"catalog {self._settings.name} does not answer"
            + (f" for {subject}" if subject else ""),
            expected=f"an Iceberg catalog at {_without_password(self._settings.pyiceberg)}",
            found=f"{type(error).__name__}: {str(error).splitlines()[0][:300] if str(error) else ''}",
            next_step="see that it runs (`lockstep status`), or correct the lockstep.catalog.* keys",
        )


def _connected(settings: CatalogSettings, user: OpenCatalog) -> Catalog:
    properties = dict(settings.pyiceberg)
    if properties.get("type") == "sql":
        return RememberingCatalog.shared(settings.name, properties, user)
    return load_catalog(settings.name, **properties)


def _without_password(properties: Mapping[str, str]) -> str:
    before, at, after = properties.get("uri", "").rpartition("@")
    return f"{before.split('://')[0]}://…@{after}" if at else after
