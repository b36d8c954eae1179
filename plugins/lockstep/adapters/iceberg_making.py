"""New tables, each with one empty root snapshot.

Law: a table starts with one empty root snapshot, and rows reach it by appends to branches alone.
Without a root there is nothing that the first attempt could branch from; with two, two attempts
would start from different pasts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Lock
from typing import Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table, Transaction
from sqlalchemy.exc import IntegrityError

from lockstep.adapters.iceberg_commits import CreatingTransaction
from lockstep.adapters.iceberg_history import root_of
from lockstep.errors import EngineFailed, Refused, StateDiverged
from lockstep.lake.opening import OpenCatalog

__all__ = ["make_table"]

_FORMAT_VERSION: Final = 2
_NOT_MADE = (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchNamespaceError,
    TableAlreadyExistsError,
)

_MAKING_NAMESPACE = Lock()


def make_table(
    catalog: OpenCatalog,
    identifier: tuple[str, str],
    columns: pa.Schema,
    properties: Mapping[str, str],
    summary: Mapping[str, str],
    also: Callable[[Transaction], None] | None = None,
) -> bool:
    """Make a table with these columns, all nullable, if it is not there; and its namespace. Whether it
    was made, and `also` done, which may write to branches.

    The table, its root and what `also` does are one commit, so that of several creators one wins and the
    others find its table. `properties` are the table's; `summary` stands in the root's. A table that is
    there keeps its own. Raises Refused for types that no table has, StateDiverged where the table is
    there with other columns, EngineFailed where the catalog makes none, Unreachable.
    """
    name = ".".join(identifier)
    wanted = _wanted(catalog.connected(), name, columns)
    existing = _found(catalog, identifier)
    if existing is None:
        root = 0
        try:
            transaction = _begun(catalog.connected(), identifier, wanted, properties)
            transaction.update_snapshot(dict(summary)).fast_append().commit()
            root = root_of(name, transaction.table_metadata).snapshot_id
            if also is not None:
                also(transaction)
            transaction.commit_transaction()
            return True
        except _NOT_MADE as error:
            # Somebody else was first, or it is not known whether it was made, or it was, and asked for
            # twice by what is between.
            existing = _found(catalog, identifier)
            if existing is None:
                raise EngineFailed(
                    f"table {name} could not be made",
                    found=f"{type(error).__name__}: {error}",
                    next_step="see that the catalog and its warehouse can be written to, and that no "
                    "Iceberg view has this name",
                ) from error
            if existing.snapshot_by_id(root) is not None:
                return True
    found, expected = _shape(existing.schema()), _shape(wanted)
    if found != expected:
        raise StateDiverged(
            f"table {name} exists with other columns than this pipeline writes to it",
            expected=", ".join(expected),
            found=", ".join(found),
            next_step="drop the table if nobody needs it, or use another database in the spec",
        )
    return False


def _wanted(catalog: Catalog, name: str, columns: pa.Schema) -> Schema:
    try:
        fields = [pa.field(field.name, _nullable(field.type)) for field in columns]
        found: Schema = catalog._convert_schema_if_needed(pa.schema(fields), _FORMAT_VERSION)
        found.check_format_version_compatibility(_FORMAT_VERSION)
    except (TypeError, ValueError, UnsupportedPyArrowTypeException) as error:
        raise Refused(
            f"table {name} could not be made",
            expected=f"types that Iceberg has in tables of format version {_FORMAT_VERSION}",
            found=", ".join(f"{field.name} {field.type}" for field in columns),
            next_step="cast what has another type",
        ) from error
    return found


def _found(catalog: OpenCatalog, identifier: tuple[str, str]) -> Table | None:
    try:
        return catalog.load(*identifier)
    except (NoSuchTableError, NoSuchNamespaceError):
        return None


def _begun(
    catalog: Catalog,
    identifier: tuple[str, str],
    columns: Schema,
    properties: Mapping[str, str],
) -> CreatingTransaction:
    def begun() -> CreatingTransaction:
        versioned = {**properties, "format-version": str(_FORMAT_VERSION)}
        transaction = catalog.create_table_transaction(identifier, columns, properties=versioned)
        return CreatingTransaction(transaction)

    try:
        return begun()
    except NoSuchNamespaceError:
        # Of several at once PyIceberg (0.12) lets all but one fail; the last line finds out. Of this
        # process one tries.
        with _MAKING_NAMESPACE, suppress(IntegrityError):
            catalog.create_namespace_if_not_exists(identifier[0])
        return begun()


def _nullable(kind: pa.DataType) -> pa.DataType:
    """The same, with nulls wherever Iceberg allows them: what is null in a column of structs may have
    fields that no row of its own has as null."""
    if pa.types.is_struct(kind):
        if any(field.metadata for field in kind):
            raise TypeError("a struct that stands for a type which Arrow has not, as a variant's")
        return pa.struct([pa.field(field.name, _nullable(field.type)) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_nullable(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_nullable(kind.key_type), _nullable(kind.item_type))
    return kind


def _shape(schema: Schema) -> list[str]:
    """Columns as Iceberg keeps them, whoever gave them their numbers."""
    fields = assign_fresh_schema_ids(schema).fields
    return [f"{field.name} {field.field_type}" for field in fields]
