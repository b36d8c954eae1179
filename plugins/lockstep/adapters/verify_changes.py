"""What verification makes of a source's records: rows, or changes of rows that it folds itself.

A record of a keyed source says what the row of its key is from then on; the last one counts, by
step, partition and offset. Nothing of the engine is used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from lockstep.adapters.verify_decode import (
    Row,
    UndecodableError,
    json_parser,
    object_decoder,
)
from lockstep.adapters.verify_formats import bytes_decoder, metadata_decoder
from lockstep.adapters.verify_records import RawRecord
from lockstep.sql.circuit import SourceColumn, SourceTable
from lockstep.sql.sources.source_layout import layout_of

__all__ = ["Reading", "reading_of"]

_Named = Mapping[str, object]


class Reading(Protocol):
    """Reads the records of one source, in any order of partitions; each partition's in order."""

    def rows(self, record: RawRecord, step: int) -> Iterable[Row]:
        """The rows that this record adds for good. Raises UndecodableError for a bad record."""

    def rest(self) -> Iterable[Row]:
        """The rows that are known only when all records were read."""


def reading_of(source: SourceTable) -> Reading:
    """How the source's records are read. Raises WrongUse for a format that verification lacks."""
    layout = layout_of(source)
    if layout.kind == "rows":
        return _EachIsARow(source)
    if layout.kind == "upsert":
        return _LastOfEachKey(source, _upsert_records(source))
    if layout.keys:
        return _LastOfEachKey(source, _keyed_events(source))
    return _TakenAtTheirWord(source)


class _EachIsARow:
    """Each record is a row."""

    def __init__(self, source: SourceTable) -> None:
        layout = layout_of(source)
        value = [column for column in source.columns if layout.is_of_value(column)]
        self._columns = [column.key for column in source.columns]
        self._of_value = [column.key for column in value]
        self._decode = bytes_decoder(source, layout.format, value)
        self._metadata = metadata_decoder(source) if layout.metadata else None

    def rows(self, record: RawRecord, step: int) -> Iterable[Row]:  # noqa: ARG002 - of the protocol
        row = self._decode(record.value)
        if self._metadata is not None:
            named = {**dict(zip(self._of_value, row, strict=True)), **self._metadata(record)}
            row = tuple(named[name] for name in self._columns)
        return (row,)

    def rest(self) -> Iterable[Row]:
        return ()


class _TakenAtTheirWord:
    """Change events without keys: -before +after."""

    def __init__(self, source: SourceTable) -> None:
        self._read = _events(source)
        self._decode = _fields(source, source.columns)
        self._rows: Counter[Row] = Counter()

    def rows(self, record: RawRecord, step: int) -> Iterable[Row]:  # noqa: ARG002 - of the protocol
        event = self._read(record.value)
        if event is None:
            return ()
        before = self._decode(event.row_before()) if event.op in ("u", "d") else None
        after = self._decode(event.row_after()) if event.op != "d" else None
        for row, weight in ((before, -1), (after, 1)):
            if row is not None:
                self._rows[row] += weight
        return ()

    def rest(self) -> Iterable[Row]:
        return self._rows.elements()


_KeyedRecord = tuple[_Named, _Named | None]
"""The key columns by name, and the other ones; None where the row of the key is gone."""


class _LastOfEachKey:
    """Keyed records: of each key the last one."""

    def __init__(
        self, source: SourceTable, read: Callable[[RawRecord], _KeyedRecord | None]
    ) -> None:
        self._columns = [column.key for column in source.columns]
        self._keys = layout_of(source).keys
        self._read = read
        self._metadata = metadata_decoder(source)
        self._last: dict[Row, tuple[tuple[int, int, int], Row | None]] = {}

    def rows(self, record: RawRecord, step: int) -> Iterable[Row]:
        found = self._read(record)
        if found is None:
            return ()
        of_key, others = found
        shown = self._metadata(record)
        row = None
        if others is not None:
            named = {**of_key, **others, **shown}
            row = tuple(named[name] for name in self._columns)
        key = tuple(of_key[name] for name in self._keys)
        place = (step, record.partition, record.offset)
        if key not in self._last or self._last[key][0] < place:
            self._last[key] = (place, row)
        return ()

    def rest(self) -> Iterable[Row]:
        return (row for _, row in self._last.values() if row is not None)


def _upsert_records(source: SourceTable) -> Callable[[RawRecord], _KeyedRecord]:
    layout = layout_of(source)
    keys = _key_columns(source)
    others = [column for column in source.columns if layout.is_of_value(column)]
    decode_key = bytes_decoder(source, layout.key_format, keys)
    decode_value = bytes_decoder(source, layout.format, others)

    def read(record: RawRecord) -> _KeyedRecord:
        if record.key is None:
            raise UndecodableError("the record has no key")
        key = _named(keys, decode_key(record.key))
        if record.value is None:
            return key, None
        return key, _named(others, decode_value(record.value))

    return read


def _keyed_events(source: SourceTable) -> Callable[[RawRecord], _KeyedRecord | None]:
    layout = layout_of(source)
    keys = _key_columns(source)
    columns = [
        replace(column, nullable=column.nullable and column.key not in layout.keys)
        for column in source.columns
        if column.key not in layout.metadata
    ]
    read_event = _events(source)
    decode_key, decode_row = _fields(source, keys), _fields(source, columns)

    def read(record: RawRecord) -> _KeyedRecord | None:
        event = read_event(record.value)
        if event is None:
            return None
        if event.op == "d":
            return _named(keys, decode_key(event.row_before())), None
        row = _named(columns, decode_row(event.row_after()))
        return row, row

    return read


def _key_columns(source: SourceTable) -> list[SourceColumn]:
    """The key columns as declared, but that none of them may be null."""
    keys = layout_of(source).keys
    return [replace(column, nullable=False) for column in source.columns if column.key in keys]


def _fields(source: SourceTable, columns: Iterable[SourceColumn]) -> Callable[[_Named], Row]:
    layout, wanted = layout_of(source), list(columns)
    paths = [layout.path(column) for column in wanted]
    return object_decoder(wanted, source.absent_is_null, paths)


def _named(columns: Iterable[SourceColumn], row: Row) -> _Named:
    return dict(zip((column.key for column in columns), row, strict=True))


# ── change events ───────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Event:
    """A change event, as JSON values."""

    op: str
    before: object
    after: object

    def row_before(self) -> _Named:
        return _row("before", self.before)

    def row_after(self) -> _Named:
        return _row("after", self.after)


def _row(name: str, value: object) -> _Named:
    if not isinstance(value, dict):
        raise UndecodableError(f"{name} is no JSON object")
    return value


def _events(source: SourceTable) -> Callable[[bytes | None], _Event | None]:
    """Reads Debezium's change events, bare or as a payload; None is said of what changes no row."""
    parse = json_parser(source.columns)

    def read(value: bytes | None) -> _Event | None:
        if value is None:
            return None
        found: _Named = parse(value)
        if found.get("payload") is not None:
            found = _row("payload", found["payload"])
        op, before, after = (found.get(name) for name in ("op", "before", "after"))
        for name, row in (("before", before), ("after", after)):
            if row is not None:
                _row(name, row)
        if op == "m":
            return None
        if op not in ("c", "r", "u", "d"):
            raise UndecodableError(f"op {op!r} is no change of a row")
        return _Event(str(op), before, after)

    return read
