"""The views of a project in DuckDB, as far as it can compute them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import duckdb

from lockstep.sql.duckdb_text import DuckDbView

__all__ = ["make_views"]

_NOT_READ = (
    *(duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException),
    duckdb.NotImplementedException,
)
"""What DuckDB says of a query that it does not know, and not of its rows."""


def make_views(
    connection: duckdb.DuckDBPyConnection, views: Iterable[DuckDbView]
) -> Mapping[str, str]:
    """Make the views, each after those that it reads. By name, why DuckDB can't compute one."""
    unread: dict[str, str] = {}
    for view in views:
        if view.reason:
            unread[view.name] = view.reason
            continue
        try:
            connection.execute(view.statement)
        except _NOT_READ as error:
            below = (name for name in unread if f'"{name}"'.lower() in view.sql.lower())
            read = next(below, None)
            unread[view.name] = f"it reads {read}" if read else str(error).partition("\n")[0]
    return unread
