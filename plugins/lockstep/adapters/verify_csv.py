"""Reads lines of CSV as verification understands them: character by character, on its own.

A field begins after the separator. If its first sign is the quote, it goes to the quote that ends
it, which the separator or the line's end must follow; the escape makes a quote, or itself, part of
the text. Any other field is the text up to the separator, as it stands. A field is null where it
is the null value, or empty without quotes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal

from lockstep.adapters.verify_decode import Row, UndecodableError, value_decoder
from lockstep.sql.circuit import SourceColumn
from lockstep.sql.sources.source_layout import csv_signs
from lockstep.sql.sources.time_formats import TimePart, read_time_format

__all__ = ["csv_decoder"]

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?\Z")
_INTEGER = re.compile(r"[+-]?[0-9]+\Z")


def csv_decoder(
    columns: Sequence[SourceColumn], options: Mapping[str, str]
) -> Callable[[bytes | None], Row]:
    """A function from a record's bytes to the row it holds; raises UndecodableError."""
    decoders = [(column, _decoder(column, options)) for column in columns]
    null_value = options.get("nullvalue", "")

    def decode(value: bytes | None) -> Row:
        fields = _fields(value, csv_signs(options))
        if len(fields) != len(columns):
            raise UndecodableError(f"{len(fields)} fields, and not {len(columns)}")
        row = []
        for (text, is_quoted), (column, decode_text) in zip(fields, decoders, strict=True):
            is_null = text == null_value or (not text and not is_quoted)
            if is_null and not column.nullable:
                raise UndecodableError(f"column {column.name} is null")
            try:
                row.append(None if is_null else decode_text(text))
            except (ValueError, ArithmeticError) as error:
                raise UndecodableError(f"column {column.name}: {error}") from error
        return tuple(row)

    return decode


def _fields(value: bytes | None, signs: tuple[str, str, str]) -> list[tuple[str, bool]]:
    """The fields' texts, and whether each was quoted."""
    if not value:
        raise UndecodableError("no line")
    try:
        line = value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UndecodableError(f"not UTF-8: {error}") from error
    if any(sign in line for sign in "\n\r\0"):
        raise UndecodableError("more than one line, or a zero byte")
    separator, quote, _ = signs
    fields: list[tuple[str, bool]] = []
    at = 0
    while True:
        if line[at : at + 1] == quote:
            text, at = _quoted(line, at + 1, signs)
            fields.append((text, True))
        else:
            end = line.find(separator, at)
            end = len(line) if end < 0 else end
            fields.append((line[at:end], False))
            at = end
        if at == len(line):
            return fields
        if line[at] != separator:
            raise UndecodableError("a quoted field goes on after its quote")
        at += 1


def _quoted(line: str, at: int, signs: tuple[str, str, str]) -> tuple[str, int]:
    """The text of a quoted field that begins at `at`, and where it has ended."""
    _, quote, escape = signs
    text: list[str] = []
    while at < len(line):
        sign, following = line[at], line[at + 1 : at + 2]
        if sign == escape and following and following in (quote, escape):
            text.append(following)
            at += 2
        elif sign == quote:
            return "".join(text), at + 1
        else:
            text.append(sign)
            at += 1
    raise UndecodableError("a quoted field does not end")


def _decoder(column: SourceColumn, options: Mapping[str, str]) -> Callable[[str], object]:
    kind = column.type.split("(", maxsplit=1)[0].lower()
    decode = value_decoder(column.type)
    match kind:
        case "string" | "date" | "timestamp":
            key = f"{kind}format"
            if kind != "string" and key in options:
                return _time_decoder(read_time_format(options[key]), kind == "date")
            return decode
        case "binary":
            return str.encode
        case "boolean":
            return _boolean
        case "tinyint" | "smallint" | "int" | "bigint":
            return lambda text: decode(_whole(text))
        case _:
            return lambda text: decode(_number(text, kind))


def _boolean(text: str) -> object:
    if text.lower() not in ("true", "false"):
        raise UndecodableError(f"{text!r} is no boolean")
    return text.lower() == "true"


def _whole(text: str) -> object:
    if not _INTEGER.match(text):
        raise UndecodableError(f"{text!r} is no whole number")
    return int(text)


def _number(text: str, kind: str) -> object:
    if not _NUMBER.match(text):
        raise UndecodableError(f"{text!r} is no number")
    return Decimal(text) if kind == "decimal" else float(text)


def _time_decoder(parts: Sequence[TimePart], is_date: bool) -> Callable[[str], object]:
    pattern = re.compile(
        "".join(
            f"(?P<{part.letters[0]}>{part.regex})" if part.letters else part.regex for part in parts
        )
    )

    def decode(text: str) -> object:
        match = pattern.fullmatch(text)
        if match is None:
            raise UndecodableError(f"{text!r} does not have the format")
        found = match.groupdict()
        day = date(int(found["y"]), int(found["M"]), int(found["d"]))
        if is_date:
            return day
        hour, minute, second = (int(found.get(letter) or 0) for letter in "Hms")
        fraction = int((found.get("S") or "").ljust(6, "0"))
        there = datetime(day.year, day.month, day.day, hour, minute, second, fraction)
        return there - _offset(found.get("X") or "Z")

    return decode


def _offset(zone: str) -> timedelta:
    if zone == "Z":
        return timedelta()
    digits = zone[1:].replace(":", "").ljust(4, "0")
    minutes = int(digits[:2]) * 60 + int(digits[2:])
    return timedelta(minutes=-minutes if zone[0] == "-" else minutes)
