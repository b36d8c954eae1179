"""A followed table as its metadata shows it: its history, and whether it has the declared columns."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from lockstep.control.table_history import Shown, TableHistory, TableSnapshot
from lockstep.errors import ProjectError, SourceChanged
from lockstep.ids import MAIN
from lockstep.lake.opening import OpenCatalog
from lockstep.sql.circuit import SourceColumn, SourceTable

__all__ = ["check_columns", "load_followed", "table_history"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNKNOWN = "overwrite"
"""What a snapshot that does not say what it did may have done."""

_TYPES: Mapping[type[IcebergType], str] = {
    BooleanType: "BOOLEAN",
    IntegerType: "INT",
    LongType: "BIGINT",
    FloatType: "FLOAT",
    DoubleType: "DOUBLE",
    DateType: "DATE",
    TimestampType: "TIMESTAMP_NTZ",
    TimestamptzType: "TIMESTAMP",
    StringType: "STRING",
    UUIDType: "STRING",
    BinaryType: "BINARY",
    FixedType: "BINARY",
}


def load_followed(catalog: OpenCatalog, source: SourceTable) -> Table:
    """The table that a source follows. Raises SourceChanged where there is none, Unreachable."""
    name, database, table = source.table.split(".")
    try:
        return catalog.load(database, table)
    except (NoSuchTableError, NoSuchNamespaceError) as error:
        raise SourceChanged(
            f"source {source.name}: table {source.table} does not exist",
            expected=f"a table {database}.{table} in catalog {name}",
            found="no such table",
            next_step=f"create it, or correct 'table' at {source.position}",
        ) from error


def table_history(source: SourceTable, metadata: TableMetadata) -> TableHistory:
    """All snapshots that the metadata keeps, and which of them `main` shows."""
    main = metadata.refs.get(MAIN)
    now = metadata.schema()
    misfits = {schema.schema_id: _misfit(source, schema, now) for schema in metadata.schemas}
    return TableHistory(
        source=source.name,
        table=source.table,
        table_id=str(metadata.table_uuid),
        head=None if main is None else main.snapshot_id,
        snapshots={one.snapshot_id: _snapshot(one, misfits) for one in metadata.snapshots},
        append_only=source.append_only,
        log=tuple(_log(metadata)),
    )


def _log(metadata: TableMetadata) -> Iterator[Shown]:
    """Where `main` went. Of snapshots that came with one commit only the last was there to be seen:
    PyIceberg (0.12) logs each of them, for an overwrite a delete and then an append, and Java the last.

    Each commit writes metadata, of a time that the next one notes. One that was replaced before any was
    written came with what replaced it; of what is older than the notes nothing is known, and it counts.
    """
    written = sorted(
        [*(one.timestamp_ms for one in metadata.metadata_log), metadata.last_updated_ms]
    )
    log = metadata.snapshot_log
    for one, after in pairwise(log):
        place = bisect_left(written, one.timestamp_ms)
        is_written = place < len(written) and written[place] < after.timestamp_ms
        if is_written or after.timestamp_ms <= written[0]:
            yield Shown(one.snapshot_id, _moment(one.timestamp_ms))
    for one in log[-1:]:
        yield Shown(one.snapshot_id, _moment(one.timestamp_ms))


def _moment(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)


def _snapshot(snapshot: Snapshot, misfits: Mapping[int, str]) -> TableSnapshot:
    summary = snapshot.summary
    found = {} if summary is None else summary.additional_properties

    def count(*keys: str) -> int:
        return sum(int(found.get(key, "0")) for key in keys)

    # Writers leave out counts that are 0. One that leaves out the total counts nothing at all.
    least = 0 if "total-records" in found else 1
    total = max(count("total-records"), least)
    added = count("added-records", "removed-position-deletes")
    removed = count("deleted-records", "added-position-deletes")
    if count("added-equality-deletes"):
        # One of them can match any number of rows.
        removed += total
    if count("removed-equality-deletes"):
        added += total
    return TableSnapshot(
        snapshot.snapshot_id,
        snapshot.parent_snapshot_id,
        _moment(snapshot.timestamp_ms),
        _UNKNOWN if summary is None else summary.operation.value,
        max(added, least),
        max(removed, least),
        total,
        "" if snapshot.schema_id is None else misfits.get(snapshot.schema_id, ""),
    )


def check_columns(source: SourceTable, metadata: TableMetadata) -> None:
    """Raise ProjectError unless the table has every declared column, with its type. Others do not
    matter."""
    found = _fields(metadata.schema())
    wrong = [c for c in source.columns if not _fits(c, found.get(c.key))]
    if wrong:
        raise ProjectError(
            f"source {source.name} declares columns that table {source.table} has not",
            position=source.position,
            expected=", ".join(
                f"{c.name} {c.type}{'' if c.nullable else ' NOT NULL'}" for c in wrong
            ),
            found=", ".join(_found(c.name, found.get(c.key)) for c in wrong),
            next_step=f"declare them as DESCRIBE {source.table} shows them",
        )


def _misfit(source: SourceTable, written: Schema, now: Schema) -> str:
    """A declared column that a snapshot's schema has not got as the table has it now, else ''.

    Iceberg knows columns by id: one that was dropped and added again has the name and none of the
    values.
    """
    if written.schema_id == now.schema_id:
        return ""
    before, after = _fields(written), _fields(now)
    for column in source.columns:
        then, field = before.get(column.key), after.get(column.key)
        if then is None or field is None or _ids(then) != _ids(field):
            return column.name
    return ""


def _fields(schema: Schema) -> Mapping[str, NestedField]:
    return {field.name.lower(): field for field in schema.fields}


def _fits(column: SourceColumn, field: NestedField | None) -> bool:
    if field is None or (field.optional and not column.nullable):
        return False
    return _spelled(_spark_type(field.field_type)) == _spelled(column.type)


def _spelled(type_text: str) -> str:
    return type_text.replace("`", "").replace(" ", "").lower()


def _found(name: str, field: NestedField | None) -> str:
    if field is None:
        return f"no {name}"
    required = "" if field.optional else " NOT NULL"
    return f"{field.name} {_spark_type(field.field_type)}{required}"


def _spark_type(type_: IcebergType) -> str:
    """As Spark's DDL writes it; a type that Spark cannot read, as Iceberg does."""
    match type_:
        case DecimalType():
            return f"DECIMAL({type_.precision}, {type_.scale})"
        case ListType():
            return f"ARRAY<{_spark_type(type_.element_type)}>"
        case MapType():
            return f"MAP<{_spark_type(type_.key_type)}, {_spark_type(type_.value_type)}>"
        case StructType():
            fields = (f"{f.name}: {_spark_type(f.field_type)}" for f in type_.fields)
            return f"STRUCT<{', '.join(fields)}>"
        case _:
            return _TYPES.get(type(type_), str(type_))


def _ids(field: NestedField) -> tuple[int, ...]:
    return (field.field_id, *_inner_ids(field.field_type))


def _inner_ids(type_: IcebergType) -> Iterator[int]:
    match type_:
        case StructType():
            for field in type_.fields:
                yield from _ids(field)
        case ListType():
            yield from _ids(type_.element_field)
        case MapType():
            yield from _ids(type_.key_field)
            yield from _ids(type_.value_field)
        case _:
            return
