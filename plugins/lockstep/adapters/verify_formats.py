"""What verification reads from the bytes of a record, by format, and from what Kafka knows of it.

Nothing of the engine is used, so that what both take for a value, they found each on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

from lockstep.adapters.verify_avro import avro_decoder
from lockstep.adapters.verify_csv import csv_decoder
from lockstep.adapters.verify_decode import Row, UndecodableError, row_decoder
from lockstep.adapters.verify_records import RawRecord
from lockstep.errors import WrongUse
from lockstep.sql.circuit import SourceColumn, SourceTable
from lockstep.sql.sources.source_layout import avro_schema_option, layout_of
from lockstep_engine.sources.registry import registry_schema

__all__ = ["DecodeBytes", "bytes_decoder", "metadata_decoder"]

DecodeBytes = Callable[[bytes | None], Row]
"""From the bytes of a value or key to what its columns are; raises UndecodableError."""

_EPOCH = datetime(1970, 1, 1)


def bytes_decoder(
    source: SourceTable, format_: str, columns: Sequence[SourceColumn]
) -> DecodeBytes:
    """What reads the columns, in their order. Raises WrongUse for a format that verification lacks."""
    if format_ not in _FORMATS:
        raise WrongUse(
            f"verify cannot decode source {source.name}",
            expected=f"a format among {', '.join(_FORMATS)}",
            found=format_,
            next_step="verify a pipeline whose sources have only these formats",
        )
    return _FORMATS[format_](source, columns)


def metadata_decoder(source: SourceTable) -> Callable[[RawRecord], dict[str, object]]:
    """A function from a record to its metadata columns by lower-case name; raises
    UndecodableError."""
    metadata = layout_of(source).metadata
    columns = [column for column in source.columns if column.key in metadata]
    return lambda record: {c.key: _shown(c, metadata[c.key], record) for c in columns}


def _json(source: SourceTable, columns: Sequence[SourceColumn]) -> DecodeBytes:
    layout = layout_of(source)
    return row_decoder(columns, source.absent_is_null, [layout.path(column) for column in columns])


def _raw(_: SourceTable, columns: Sequence[SourceColumn]) -> DecodeBytes:
    (column,) = columns

    def decode(value: bytes | None) -> Row:
        if value is None and not column.nullable:
            raise UndecodableError(f"column {column.name} is null")
        return (_text(value) if column.type == "STRING" else value,)

    return decode


def _csv(source: SourceTable, columns: Sequence[SourceColumn]) -> DecodeBytes:
    return csv_decoder(columns, source.options)


def _avro(source: SourceTable, columns: Sequence[SourceColumn]) -> DecodeBytes:
    layout = layout_of(source)
    paths = [layout.path(column) for column in columns]
    declared = source.options.get(avro_schema_option(source, columns[0]))
    url = source.options.get("schema.registry.url", "")
    return avro_decoder(
        columns, paths, declared or partial(registry_schema, url), source.absent_is_null
    )


_FORMATS: Mapping[str, Callable[[SourceTable, Sequence[SourceColumn]], DecodeBytes]] = {
    "json": _json,
    "csv": _csv,
    "raw": _raw,
    "avro": _avro,
}


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UndecodableError(f"not UTF-8: {error}") from error


def _shown(column: SourceColumn, kind: str, record: RawRecord) -> object:
    """What a metadata column has for a record."""
    value: object
    match kind:
        case "key":
            value = _text(record.key) if column.type == "STRING" else record.key
        case "headers":
            headers = [{"key": key, "value": value} for key, value in record.headers]
            value = headers or None
        case "timestamp":
            value = _EPOCH + timedelta(milliseconds=record.timestamp_milliseconds)
        case "step_time":
            value = record.step_time
        case "topic":
            value = record.topic
        case "partition":
            value = record.partition
        case _:
            value = record.offset
    if value is None and not column.nullable:
        raise UndecodableError(f"column {column.name} is null")
    return value
