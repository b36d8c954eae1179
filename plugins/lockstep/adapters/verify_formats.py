"""What verification makes of records, by format: rows, or changes of rows that it folds itself.

Nothing of the engine is used, so that what both take for a row, they found each on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from lockstep.adapters.verify_decode import Row, UndecodableError, row_decoder
from lockstep.adapters.verify_records import RawRecord
from lockstep.errors import WrongUse
from lockstep.sql.circuit import SourceColumn, SourceTable
from lockstep.sql.source_layout import Layout, layout_of

__all__ = ["Reading", "reading_of"]

_EPOCH = datetime(1970, 1, 1)
DecodeText = Callable[[bytes | None], Row]


class Reading(Protocol):
    """Reads the records of one source, in any order of partitions; each partition's in order."""

    def rows(self, record: RawRecord, step: int) -> Iterable[Row]:
        """The rows that this record adds for good. Raises UndecodableError for a bad record."""

    def rest(self) -> Iterable[Row]:
        """The rows that are known when all records were read."""


def reading_of(source: SourceTable) -> Reading:
    """How the source's records are read. Raises WrongUse for a format that verification lacks."""
    return _EachIsARow(source)


class _Columns:
    """The columns of a record in the order in which they are declared, from where each stands."""

    def __init__(self, source: SourceTable) -> None:
        self._layout = layout_of(source)
        self._columns = source.columns
        value = [column for column in source.columns if self._layout.is_of_value(column)]
        self._of_value = [column.key for column in value]
        self._decode_value = _decoder(source, self._layout, self._layout.format, value)

    def row(self, record: RawRecord) -> Row:
        found: dict[str, object] = dict(
            zip(self._of_value, self._decode_value(record.value), strict=True)
        )
        for column in self._columns:
            if column.key in self._layout.metadata:
                found[column.key] = _shown(column, self._layout.metadata[column.key], record)
        return tuple(found[column.key] for column in self._columns)


class _EachIsARow:
    """Each record is a row."""

    def __init__(self, source: SourceTable) -> None:
        self._columns = _Columns(source)

    def rows(self, record: RawRecord, step: int) -> Iterable[Row]:  # noqa: ARG002 - of the protocol
        return (self._columns.row(record),)

    def rest(self) -> Iterable[Row]:
        return ()


def _decoder(
    source: SourceTable, layout: Layout, format_: str, columns: Sequence[SourceColumn]
) -> DecodeText:
    if format_ not in _FORMATS:
        raise WrongUse(
            f"verify cannot decode source {source.name}",
            expected=f"a format among {', '.join(_FORMATS)}",
            found=format_,
        )
    return _FORMATS[format_](source, layout, columns)


def _json(source: SourceTable, layout: Layout, columns: Sequence[SourceColumn]) -> DecodeText:
    return row_decoder(columns, source.absent_is_null, [layout.path(column) for column in columns])


def _raw(_: SourceTable, __: Layout, columns: Sequence[SourceColumn]) -> DecodeText:
    (column,) = columns

    def decode(value: bytes | None) -> Row:
        if value is None and not column.nullable:
            raise UndecodableError(f"column {column.name} is null")
        return (_text(value) if column.type == "STRING" else value,)

    return decode


_FORMATS: Mapping[str, Callable[[SourceTable, Layout, Sequence[SourceColumn]], DecodeText]] = {
    "json": _json,
    "raw": _raw,
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
        case "topic":
            value = record.topic
        case "partition":
            value = record.partition
        case _:
            value = record.offset
    if value is None and not column.nullable:
        raise UndecodableError(f"column {column.name} is null")
    return value
