"""JSON values as columns: which SQL text decodes a record, and which says that it is a bad one.

The law: a record is good where its value is one JSON object that holds every declared column, each
of them null (unless NOT NULL) or a value of the declared type. What is good depends on the
declaration alone, never on which columns some view wants, else adding a view would move records
between a view and the error table. So all declared columns are checked, and only the wanted ones
kept.

`from_json` does the parsing. It takes more than it should, and what it takes wrongly is checked
apart, as cheaply as the common record lets:

- text after the first object, by the place of the first `}`, and only then by parsing again;
- tinyint from 128 to 255, floating point numbers beyond the range, which come out as other values;
- numbers and objects as STRING and quoted decimals, by the look of the value, and only then by
  looking the field up again;
- dates and timestamps in forms that depend on the day ('12:00'), or mean something else (2013): they
  are read as text, must look like ISO 8601 or 'yyyy-MM-dd HH:mm:ss[.SSS]', and are then cast. Where
  no zone is said it is the session's, which is UTC.

Inside arrays, maps and structs, fields may be absent (they are null), and STRING takes any value.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from lockstep_engine.deltas import quoted

__all__ = ["JsonColumn", "JsonDecoder", "wanted_numbers"]

_CORRUPT = "_lockstep_corrupt"
# Possessive, so that a text that does not match is given up at once.
_DATE = r"[0-9]{4}-[0-9]{1,2}+-[0-9]{1,2}+"
_TIME = r"[T ][0-9]{1,2}+:[0-9]{1,2}+:[0-9]{1,2}+(?:\.[0-9]{1,9}+)?+"
_PATTERNS: dict[type[DataType], str] = {
    DateType: f"^{_DATE}$",
    TimestampType: rf"^{_DATE}(?:{_TIME}(?:Z|[+-][0-9]{{2}}:?[0-9]{{2}})?+)?+$",
    TimestampNTZType: f"^{_DATE}(?:{_TIME})?+$",
}
_LOOKS_LIKE_A_NUMBER = r"^-?[0-9][0-9.eE+-]*+$"
_INFINITE = """('"Infinity"', '"-Infinity"')"""
_HUGE_NUMBER = r"[:\[,]\s*-?[\d.]+[eE]\+?0*[1-9]\d{3,}"
_FOUND_CHARACTERS = 60

# An object and seven zeros: an array of eight, unless the text goes on after its object.
_IN_ARRAY = "json_array_length(concat('[', _text, ',0,0,0,0,0,0,0]'))"
_ELEMENTS = 8

# The only `}` is the last byte: nothing can follow the object. On bytes, as counting characters
# costs more than all of the parsing.
_BYTES = "CAST(_text AS BINARY)"
_NOTHING_FOLLOWS = (
    f"(substring({_BYTES}, -1) = X'7D' AND NOT "
    f"contains(CAST(substring({_BYTES}, 1, octet_length(_text) - 1) AS STRING), '}}'))"
)


@dataclass(frozen=True)
class JsonColumn:
    """A declared column: its name as written in records, its type, and whether it may be null."""

    name: str
    type: DataType
    nullable: bool


@dataclass(frozen=True)
class JsonDecoder:
    """SQL text over a frame with the column `_text`, the record's value as a string.

    Used in this order: `parsed` adds `_json`; `values` adds a column `_v<n>` per declared column and
    `_keys`; then `is_good` (boolean, never null) and `reason` (string, for a record that is not
    good) can be evaluated. `absent_is_null` lets nullable columns be absent.
    """

    columns: tuple[JsonColumn, ...]
    absent_is_null: bool = False

    def parsed(self) -> str:
        """`_json`: the object by `from_json`, with its own column for what could not be parsed."""
        fields = [f"{quoted(c.name)} {_wire_type(c.type)}" for c in self.columns]
        schema = ", ".join([*fields, f"{_CORRUPT} STRING"])
        return f"{_from_json(self._harmless_text(), schema)} AS _json"

    def values(self) -> list[str]:
        """`_v<n>` for each declared column in order, then `_keys`, the object's keys if needed."""
        converted = [
            f"{_value(self._wire(n), column.type)} AS _v{n}"
            for n, column in enumerate(self.columns)
        ]
        return [*converted, f"{self._keys()} AS _keys"]

    def is_good(self) -> str:
        """True where the record is a row of the source."""
        checks = [
            "_json IS NOT NULL",
            f"_json.{_CORRUPT} IS NULL",
            f"({_NOTHING_FOLLOWS} OR {_IN_ARRAY} <=> {_ELEMENTS})",
            "is_valid_utf8(_text)",
            *(self._fits(n) for n in range(len(self.columns))),
        ]
        return "coalesce(" + " AND ".join(checks) + ", false)"

    def reason(self) -> str:
        """A sentence that names the column where that can be known."""
        no_column = f"_lockstep_none STRUCT<a: INT>, {_CORRUPT} STRING"
        faults = [
            ("_text IS NULL", _literal("the value is null, and a JSON record has one")),
            ("NOT is_valid_utf8(_text)", _literal("the value is not UTF-8 text")),
            (f"NOT ({_IN_ARRAY} <=> {_ELEMENTS})", _literal("the value is not JSON")),
            (r"NOT rlike(_text, '^\\s*\\{')", _literal("the value is JSON, and not an object")),
            # With a column that no record has, only what is no JSON is corrupt.
            (
                f"{_from_json('_text', no_column)}.{_CORRUPT} IS NOT NULL",
                _literal("the value is not JSON"),
            ),
            *self._huge_faults(),
        ]
        for number, column in enumerate(self.columns):
            faults += self._column_faults(number, column)
        cases = " ".join(f"WHEN {fault} THEN {sentence}" for fault, sentence in faults)
        return f"CASE {cases} ELSE {_literal('the value is not what the source declares')} END"

    def _harmless_text(self) -> str:
        """Null instead of a text with a decimal such as 1e9999999, whose digits Spark would all
        write down: minutes for a single record, or all of the memory."""
        huge = " OR ".join(fault for fault, _ in self._huge_faults())
        return f"IF({huge}, NULL, _text)" if huge else "_text"

    def _huge_faults(self) -> list[tuple[str, str]]:
        exponent = f"rlike(_text, {_literal(_HUGE_NUMBER)})"
        return [
            (
                f"({exponent} AND {_token(column.name)} IN {_INFINITE})"
                if isinstance(column.type, DecimalType)
                else exponent,
                self._wrong(column),
            )
            for column in self.columns
            if _holds_decimal(column.type)
        ]

    def _wrong(self, column: JsonColumn) -> str:
        text = _literal(f"column {column.name} does not fit {column.type.simpleString()}: ")
        found = f"coalesce({_get_json_object(column.name)}, 'null')"
        return f"concat({text}, left({found}, {_FOUND_CHARACTERS}))"

    def _wire(self, number: int) -> str:
        return f"_json.{quoted(self.columns[number].name)}"

    def _keys(self) -> str:
        """Only looked up where some column came out null: absent, or said to be null."""
        nulls = " OR ".join(f"{self._wire(n)} IS NULL" for n in self._may_be_absent())
        return (
            f"CASE WHEN {nulls} THEN json_object_keys(_text) END"
            if nulls
            else "CAST(NULL AS ARRAY<STRING>)"
        )

    def _may_be_absent(self) -> list[int]:
        if self.absent_is_null:
            return []
        return [number for number, column in enumerate(self.columns) if column.nullable]

    def _is_there(self, number: int) -> str:
        return f"array_contains(_keys, {_literal(self.columns[number].name)})"

    def _fits(self, number: int) -> str:
        """True or false for a record that was parsed."""
        column, wire = self.columns[number], self._wire(number)
        fits = _top_level_fits(column, wire, f"_v{number}")
        if not column.nullable:
            return f"({wire} IS NOT NULL AND {fits})"
        if self.absent_is_null:
            return f"({wire} IS NULL OR {fits})"
        return f"IF({wire} IS NULL, {self._is_there(number)}, {fits})"

    def _column_faults(self, number: int, column: JsonColumn) -> list[tuple[str, str]]:
        wire = self._wire(number)
        found, wrong = _get_json_object(column.name), self._wrong(column)
        faults = [(f"{wire} IS NULL AND {found} IS NOT NULL", wrong)]
        if not column.nullable or not self.absent_is_null:
            there = f"array_contains(json_object_keys(_text), {_literal(column.name)})"
            absent = _literal(f"column {column.name} is absent")
            faults.append((f"{wire} IS NULL AND NOT {there}", absent))
        if not column.nullable:
            null = _literal(f"column {column.name} is null, and is declared NOT NULL")
            faults.append((f"{wire} IS NULL", null))
        fits = _top_level_fits(column, wire, f"_v{number}")
        faults.append((f"{wire} IS NOT NULL AND NOT coalesce({fits}, false)", wrong))
        return faults


def _from_json(text: str, schema: str) -> str:
    return (
        f"from_json({text}, {_literal(schema)}, map('mode', 'PERMISSIVE', "
        f"'columnNameOfCorruptRecord', '{_CORRUPT}', 'allowSingleQuotes', 'false', "
        "'allowNonNumericNumbers', 'false'))"
    )


# ── types ───────────────────────────────────────────────────────────────────────────────────────


def _wire_type(declared: DataType) -> str:
    """The type that `from_json` is asked for, as DDL text."""
    match declared:
        case ByteType():
            return "SMALLINT"
        case DateType() | TimestampType() | TimestampNTZType():
            return "STRING"
        case ArrayType():
            return f"ARRAY<{_wire_type(declared.elementType)}>"
        case MapType():
            return f"MAP<{declared.keyType.simpleString()}, {_wire_type(declared.valueType)}>"
        case StructType():
            fields = (f"{quoted(f.name)}: {_wire_type(f.dataType)}" for f in declared.fields)
            return f"STRUCT<{', '.join(fields)}>"
        case _:
            return declared.simpleString()


def _holds_decimal(declared: DataType) -> bool:
    match declared:
        case ArrayType():
            return _holds_decimal(declared.elementType)
        case MapType():
            return _holds_decimal(declared.valueType)
        case StructType():
            return any(_holds_decimal(field.dataType) for field in declared.fields)
        case _:
            return isinstance(declared, DecimalType)


def _is_plain(declared: DataType) -> bool:
    """True where `from_json` gives the declared type itself."""
    return _wire_type(declared).lower() == _declared_text(declared).lower()


def _declared_text(declared: DataType) -> str:
    match declared:
        case ArrayType():
            return f"ARRAY<{_declared_text(declared.elementType)}>"
        case MapType():
            return f"MAP<{declared.keyType.simpleString()}, {_declared_text(declared.valueType)}>"
        case StructType():
            fields = (f"{quoted(f.name)}: {_declared_text(f.dataType)}" for f in declared.fields)
            return f"STRUCT<{', '.join(fields)}>"
        case _:
            return declared.simpleString()


def _value(wire: str, declared: DataType, depth: int = 0) -> str:
    """The wire value as the declared type; null where it does not fit (or fits as null)."""
    if _is_plain(declared):
        return wire
    element = f"_x{depth}"
    match declared:
        case ByteType():
            return f"try_cast({wire} AS TINYINT)"
        case DateType() | TimestampType() | TimestampNTZType():
            pattern = _literal(_PATTERNS[type(declared)])
            cast = f"try_cast({wire} AS {declared.simpleString()})"
            return f"CASE WHEN rlike({wire}, {pattern}) THEN {cast} END"
        case ArrayType():
            inner = _value(element, declared.elementType, depth + 1)
            return f"transform({wire}, {element} -> {inner})"
        case MapType():
            inner = _value(element, declared.valueType, depth + 1)
            return f"transform_values({wire}, (_k{depth}, {element}) -> {inner})"
        case StructType():
            fields = ", ".join(
                f"{_literal(f.name)}, {_value(f'{wire}.{quoted(f.name)}', f.dataType, depth)}"
                for f in declared.fields
            )
            return f"CASE WHEN {wire} IS NOT NULL THEN named_struct({fields}) END"
        case _:
            raise AssertionError(f"{declared.simpleString()} has no form of its own on the wire")


def _top_level_fits(column: JsonColumn, wire: str, value: str) -> str:
    match column.type:
        case StringType():
            # Comparisons of the first byte spare the pattern, and looking again, to most texts.
            suspect = (
                f"(({wire} >= '-' AND {wire} < ':' AND rlike({wire}, {_literal(_LOOKS_LIKE_A_NUMBER)})) "
                f"OR ({wire} >= '[' AND {wire} < '\\\\') OR ({wire} >= '{{' AND {wire} < '|') "
                f"OR {wire} IN ('true', 'false', '\"Infinity\"', '\"-Infinity\"'))"
            )
            token = _token(column.name)
            return f"(NOT {suspect} OR (startswith({token}, '\"') AND {token} NOT IN {_INFINITE}))"
        case DecimalType():
            quoted_number = _literal('"' + re.escape(column.name) + r'"\s*:\s*"')
            suspect = f"rlike(_text, {quoted_number})"
            return f"(NOT {suspect} OR NOT startswith({_token(column.name)}, '\"'))"
        case _:
            return _fits(wire, value, column.type)


def _fits(wire: str, value: str, declared: DataType, depth: int = 0) -> str:
    """True where the wire value, which is not null, is one of the declared type."""
    element = f"_y{depth}"
    match declared:
        case ByteType() | DateType() | TimestampType() | TimestampNTZType():
            return f"{value} IS NOT NULL"
        case FloatType() | DoubleType():
            return f"abs({wire}) < double('Infinity')"
        case ArrayType():
            return _all(wire, element, declared.elementType, depth)
        case MapType():
            return _all(f"map_values({wire})", element, declared.valueType, depth)
        case StructType():
            checks = [
                _null_or_fits(f"{wire}.{quoted(f.name)}", f.dataType, depth)
                for f in declared.fields
            ]
            needed = [check for check in checks if check != "true"]
            return f"({' AND '.join(needed)})" if needed else "true"
        case _:
            return "true"


def _all(array: str, element: str, declared: DataType, depth: int) -> str:
    check = _null_or_fits(element, declared, depth + 1)
    return "true" if check == "true" else f"forall({array}, {element} -> {check})"


def _null_or_fits(wire: str, declared: DataType, depth: int) -> str:
    check = _fits(wire, _value(wire, declared, depth), declared, depth)
    return "true" if check == "true" else f"({wire} IS NULL OR {check})"


def _literal(text: str) -> str:
    """A SQL string."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _path(name: str) -> str:
    """A JSON path to a field of the object."""
    return f"$.{name}" if re.fullmatch(r"\w+", name) else f"$['{name}']"


def _token(name: str) -> str:
    """The JSON text of a field, a string in its quotes; a number beyond a double is "Infinity"."""
    path = _literal("$[*]" + _path(name)[1:])
    return f"coalesce(get_json_object(concat('[', _text, ']'), {path}), '')"


def _get_json_object(name: str) -> str:
    return f"get_json_object(_text, {_literal(_path(name))})"


def wanted_numbers(columns: Sequence[JsonColumn], wanted: Sequence[str]) -> dict[str, int]:
    """Each wanted lower-case name with the number of its declared column."""
    numbers = {column.name.lower(): number for number, column in enumerate(columns)}
    return {name: numbers[name] for name in wanted}
