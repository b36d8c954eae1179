"""Reads Avro's binary form as verification understands it: byte by byte, on its own.

A record is read as a whole by the schema that it was written by, and nothing may follow it. With a
registry it begins with a zero byte and four of its schema's number.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

from lockstep.adapters.verify_decode import Row, UndecodableError, arrow_type
from lockstep.sql.circuit import SourceColumn
from lockstep.sql.sources.avro_schema import (
    AvroSchema,
    UnreadableSchemaError,
    fits_column,
    read_avro_schema,
)

__all__ = ["avro_decoder"]

_HEADER_BYTES = 5
_EPOCH = datetime(1970, 1, 1)
_BITS = {"TINYINT": 8, "SMALLINT": 16}
Paths = Sequence[tuple[str, ...]]


def avro_decoder(
    columns: Sequence[SourceColumn],
    paths: Paths,
    schema: str | Callable[[int], str | None],
    absent_is_null: bool,
) -> Callable[[bytes | None], Row]:
    """A function from a record's bytes to the row it holds; raises UndecodableError. `schema` is
    that of all records, or gives that of a number; `paths` are the places of the columns' fields."""
    for column in columns:
        arrow_type(column.type)
    known: dict[int, Callable[[bytes], Row] | None] = {}

    def reader(text: str) -> Callable[[bytes], Row] | None:
        try:
            return _record_reader(read_avro_schema(text), columns, paths, absent_is_null)
        except UnreadableSchemaError:
            return None

    single = reader(schema) if isinstance(schema, str) else None

    def of_number(number: int) -> Callable[[bytes], Row] | None:
        if number not in known and not isinstance(schema, str):
            text = schema(number)
            known[number] = None if text is None else reader(text)
        return known[number]

    def decode(value: bytes | None) -> Row:
        if value is None:
            raise UndecodableError("no record")
        if isinstance(schema, str):
            read, content = single, value
        else:
            if len(value) < _HEADER_BYTES or value[0]:
                raise UndecodableError("no header of a registry")
            number, content = struct.unpack(">I", value[1:5])[0], value[_HEADER_BYTES:]
            read = of_number(number)
        if read is None:
            raise UndecodableError("its schema cannot be read, or is not there")
        return read(content)

    return decode


def _record_reader(
    schema: AvroSchema, columns: Sequence[SourceColumn], paths: Paths, absent_is_null: bool
) -> Callable[[bytes], Row] | None:
    """None where a column is not in the schema, or is of another type there."""
    kinds: list[Mapping[str, Any] | None] = []
    for column, path in zip(columns, paths, strict=True):
        found = schema.at(path)
        if found is None and not (column.nullable and absent_is_null):
            return None
        if found is not None and not fits_column(schema, found[0], column.type):
            return None
        kinds.append(None if found is None else found[0])

    def read(content: bytes) -> Row:
        bytes_ = _Bytes(content)
        try:
            record = bytes_.value(schema, schema.root)
        except (IndexError, RecursionError) as error:
            raise UndecodableError(f"no record of its schema: {error}") from error
        if bytes_.at != len(content):
            raise UndecodableError("bytes follow the record")
        try:
            return tuple(
                _column(column, kind, _found(record, path))
                for column, kind, path in zip(columns, kinds, paths, strict=True)
            )
        except OverflowError as error:
            raise UndecodableError(f"a time that cannot be written: {error}") from error

    return read


def _found(record: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        record = None if record is None else record.get(name)
    return record


def _column(column: SourceColumn, kind: Mapping[str, Any] | None, value: Any) -> object:
    if value is None or kind is None:
        if not column.nullable:
            raise UndecodableError(f"column {column.name} is null")
        return None
    match kind.get("logicalType"), column.type.split("(", maxsplit=1)[0]:
        case "decimal", _:
            return Decimal(value).scaleb(-int(kind.get("scale", 0)), Context(prec=1000))
        case "date", _:
            return date(1970, 1, 1) + timedelta(days=value)
        case str(unit), "TIMESTAMP":
            return _EPOCH + timedelta(microseconds=value * (1000 if "millis" in unit else 1))
        case _, "STRING":
            try:
                return str(value if isinstance(value, str) else value.decode("utf-8"))
            except UnicodeDecodeError as error:
                raise UndecodableError(f"column {column.name}: {error}") from error
        case _, "TINYINT" | "SMALLINT" as small:
            if not -(1 << (_BITS[small] - 1)) <= value < 1 << (_BITS[small] - 1):
                raise UndecodableError(f"column {column.name}: {value} is no {small}")
            return value
        case _, "DOUBLE":
            return float(value)
        case _:
            return value


def _whole_number(digits: bytes, precision: int) -> int:
    """A decimal without its point."""
    number = int.from_bytes(digits, "big", signed=True)
    if not digits or abs(number) >= 10**precision:
        raise UndecodableError(f"{number} is no number of {precision} digits")
    return number


class _Bytes:
    """What is left to read of a record; text stays bytes."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.at = 0

    def value(self, schema: AvroSchema, type_: Any) -> Any:
        """A value of the type."""
        found = schema.definition(type_)
        match found["type"]:
            case "enum":
                return self._chosen(found["symbols"])
            case "union":
                return self.value(schema, self._chosen(found["branches"]))
            case "array":
                return [self.value(schema, found["items"]) for _ in self._blocks()]
            case "map":
                return {
                    self._take(self._number(10)): self.value(schema, found["values"])
                    for _ in self._blocks()
                }
            case "record" | "error":
                return {one["name"]: self.value(schema, one["type"]) for one in found["fields"]}
            case "bytes" | "fixed" if found.get("logicalType") == "decimal":
                return _whole_number(self._simple(found), int(found["precision"]))
            case _:
                return self._simple(found)

    def _simple(self, found: Mapping[str, Any]) -> Any:
        match found["type"]:
            case "null":
                return None
            case "boolean":
                return self._take(1) == b"\1"
            case "int":
                return self._number(5)
            case "long":
                return self._number(10)
            case "float":
                return struct.unpack("<f", self._take(4))[0]
            case "double":
                return struct.unpack("<d", self._take(8))[0]
            case "fixed":
                return self._take(int(found["size"]))
            case _:
                return self._take(self._number(10))

    def _take(self, count: int) -> bytes:
        end = self.at + count
        if count < 0 or end > len(self._content):
            raise IndexError(f"{count} bytes from {self.at} of {len(self._content)}")
        taken = self._content[self.at : end]
        self.at = end
        return taken

    def _number(self, most_bytes: int) -> int:
        """Seven bits a byte, the lowest first, the sign in the lowest bit."""
        number = 0
        for place in range(most_bytes):
            byte = self._take(1)[0]
            number |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)
        raise IndexError("a number that does not end")

    def _chosen(self, among: Sequence[Any]) -> Any:
        place = self._number(5)
        if place < 0:
            raise IndexError(f"choice {place}")
        return among[place]

    def _blocks(self) -> Iterator[None]:
        """Once for each element of an array or a map; a block may say first how long it is."""
        while count := self._number(10):
            if count < 0:
                self._number(10)
            for _ in range(abs(count)):
                yield None
