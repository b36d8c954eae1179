"""JSON values as columns: which SQL text decodes a record, and which says that it is a bad one.

The law: a record is good where its value is one JSON object that holds every declared column, each
of them null (unless NOT NULL) or a value of the declared type.

`from_json` does the parsing. It takes more than it should, and what it takes wrongly is checked
apart, as cheaply as the common record lets:

- text after the first object, by the place of the first `}`, and only then by parsing again;
- floating point numbers beyond the range, which come out as other values;
- numbers and objects as STRING and quoted decimals, by the look of the value, and only then by
  looking the field up again;
- types that it reads in another way (see `json_types`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.types import DecimalType, StringType

from lockstep.sql.plans.terms import text_literal
from lockstep_engine.deltas import quoted
from lockstep_engine.sources.decoding import (
    FOUND_CHARACTERS,
    DeclaredColumn,
    Decoding,
    null_fault,
)
from lockstep_engine.sources.json_types import (
    fits_type,
    holds_decimal,
    value_of_wire,
    wire_type,
)

__all__ = ["JsonObject", "JsonText", "json_decoding"]

Path = tuple[str, ...]

_CORRUPT = "_lockstep_corrupt"
_LOOKS_LIKE_A_NUMBER = r"^-?[0-9][0-9.eE+-]*+$"
_INFINITE = """('"Infinity"', '"-Infinity"')"""
_HUGE_NUMBER = r"[:\[,]\s*-?[\d.]+[eE]\+?0*[1-9]\d{3,}"

# An object and seven zeros: an array of eight, unless the text goes on after its object.
_ZEROS, _ELEMENTS = ",0,0,0,0,0,0,0", 8


def json_decoding(
    columns: Sequence[DeclaredColumn], absent_is_null: bool, of: str, stem: str = ""
) -> Decoding:
    """The columns from one JSON object in the frame's column `of` (`_value`, `_key`).

    `absent_is_null` lets nullable columns be absent. `stem` keeps the frame's columns of several
    texts apart.
    """
    text = JsonText(f"_{stem}text", f"_{stem}json", of.strip("_"))
    content = JsonObject(
        tuple(columns), text.name, text.parsed, absent_is_null, keys=f"_{stem}keys"
    )
    schema = schema_of([(column.path, wire_type(column.type)) for column in columns])
    return Decoding(
        (
            (f"CAST({of} AS STRING) AS {text.name}",),
            (text.parse(schema, content.huge_faults()),),
            tuple(content.values()),
        ),
        "coalesce(" + " AND ".join([*text.checks(), *content.checks()]) + ", false)",
        (*text.faults(), *content.huge_faults(), *content.faults()),
    )


@dataclass(frozen=True)
class JsonText:
    """A text column of the frame that should be one JSON object, and the column `parsed` that
    `from_json` makes of it; `what` is what a sentence calls it."""

    name: str
    parsed: str
    what: str

    def parse(self, schema: str, huge: Sequence[tuple[str, str]]) -> str:
        """`parsed`, with a column of its own for what could not be parsed. Null instead of a text
        with a decimal such as 1e9999999, whose digits Spark would all write down: minutes for a
        single record, or all of the memory."""
        faults = " OR ".join(fault for fault, _ in huge)
        harmless = f"IF({faults}, NULL, {self.name})" if huge else self.name
        return f"{_from_json(harmless, f'{schema}, {_CORRUPT} STRING')} AS {self.parsed}"

    def checks(self) -> list[str]:
        """True, or not, or null, for a text that is one object."""
        return [
            f"{self.parsed} IS NOT NULL",
            f"{self.parsed}.{_CORRUPT} IS NULL",
            f"({self._nothing_follows()} OR {self._length()} <=> {_ELEMENTS})",
            f"is_valid_utf8({self.name})",
        ]

    def faults(self) -> list[tuple[str, str]]:
        """What is wrong with a text that is none."""
        # With a column that no record has, only what is no JSON is corrupt.
        no_column = f"_lockstep_none STRUCT<a: INT>, {_CORRUPT} STRING"
        is_corrupt = f"{_from_json(self.name, no_column)}.{_CORRUPT} IS NOT NULL"
        return [
            (
                f"{self.name} IS NULL",
                text_literal(f"the {self.what} is null, and a JSON record has one"),
            ),
            (f"NOT is_valid_utf8({self.name})", text_literal(f"the {self.what} is not UTF-8 text")),
            (
                f"NOT ({self._length()} <=> {_ELEMENTS})",
                text_literal(f"the {self.what} is not JSON"),
            ),
            (
                rf"NOT rlike({self.name}, '^\\s*\\{{')",
                text_literal(f"the {self.what} is JSON, and not an object"),
            ),
            (is_corrupt, text_literal(f"the {self.what} is not JSON")),
        ]

    def _length(self) -> str:
        return f"json_array_length(concat('[', {self.name}, '{_ZEROS}]'))"

    def _nothing_follows(self) -> str:
        """The only `}` is the last byte: nothing can follow the object. On bytes, as counting
        characters costs more than all of the parsing."""
        bytes_ = f"CAST({self.name} AS BINARY)"
        return (
            f"(substring({bytes_}, -1) = X'7D' AND NOT "
            f"contains(CAST(substring({bytes_}, 1, octet_length({self.name}) - 1) AS STRING), '}}'))"
        )


@dataclass(frozen=True)
class JsonObject:
    """The columns of an object within a text column of the frame.

    `root` is the parsed object, a struct; `places` are the paths at which it may stand within
    `text`. `values` adds a column `<stem><n>` a declared column, and `keys`, the names of the
    fields that are there, where that has to be known.
    """

    columns: tuple[DeclaredColumn, ...]
    text: str
    root: str
    absent_is_null: bool
    stem: str = "_v"
    keys: str = "_keys"
    places: tuple[Path, ...] = ((),)

    def values(self) -> list[str]:
        """The columns' values, null where they do not fit, and the keys."""
        converted = [
            f"{value_of_wire(self._wire(column), column.type)} AS {self._made(column)}"
            for column in self.columns
        ]
        return [*converted, *(self._keys_at(parent) for parent in self._parents())]

    def checks(self) -> list[str]:
        """True or false for each column of an object that was parsed."""
        return [self._fits(column) for column in self.columns]

    def faults(self) -> list[tuple[str, str]]:
        """What is wrong with a column of an object that was parsed."""
        return [fault for column in self.columns for fault in self._column_faults(column)]

    def huge_faults(self) -> list[tuple[str, str]]:
        """Decimals that must not be parsed."""
        exponent = f"rlike({self.text}, {text_literal(_HUGE_NUMBER)})"
        return [
            (
                f"({exponent} AND {self._token(column)} IN {_INFINITE})"
                if isinstance(column.type, DecimalType)
                else exponent,
                self._wrong(column),
            )
            for column in self.columns
            if holds_decimal(column.type)
        ]

    def _made(self, column: DeclaredColumn) -> str:
        return f"{self.stem}{column.number}"

    def _wire(self, column: DeclaredColumn) -> str:
        return ".".join([self.root, *map(quoted, column.path)])

    def _wrong(self, column: DeclaredColumn) -> str:
        text = text_literal(f"column {column.name} does not fit {column.type.simpleString()}: ")
        found = f"coalesce({self._found(column)}, 'null')"
        return f"concat({text}, left({found}, {FOUND_CHARACTERS}))"

    def _found(self, column: DeclaredColumn) -> str:
        return self._anywhere(
            [
                f"get_json_object({self.text}, {text_literal(_json_path((*place, *column.path)))})"
                for place in self.places
            ]
        )

    def _token(self, column: DeclaredColumn) -> str:
        """The JSON text of a field, a string in its quotes; a number beyond a double is "Infinity"."""
        array = f"concat('[', {self.text}, ']')"
        paths = [
            text_literal("$[*]" + _json_path((*place, *column.path))[1:]) for place in self.places
        ]
        return f"coalesce({', '.join(f'get_json_object({array}, {path})' for path in paths)}, '')"

    @staticmethod
    def _anywhere(found: Sequence[str]) -> str:
        return found[0] if len(found) == 1 else f"coalesce({', '.join(found)})"

    def _parents(self) -> list[Path]:
        """The objects within this one whose keys have to be known."""
        if self.absent_is_null or not any(column.nullable for column in self.columns):
            return [()]
        return list(dict.fromkeys(c.path[:-1] for c in self.columns if c.nullable))

    def _keys_name(self, parent: Path) -> str:
        place = self._parents().index(parent)
        return f"{self.keys}{place or ''}"

    def _keys_at(self, parent: Path) -> str:
        """Only looked up where some column came out null: absent, or said to be null."""
        nulls = " OR ".join(
            f"{self._wire(column)} IS NULL"
            for column in self.columns
            if column.nullable and column.path[:-1] == parent and not self.absent_is_null
        )
        keys = (
            f"CASE WHEN {nulls} THEN {self._json_keys(parent)} END"
            if nulls
            else "CAST(NULL AS ARRAY<STRING>)"
        )
        return f"{keys} AS {self._keys_name(parent)}"

    def _json_keys(self, parent: Path) -> str:
        texts = [
            f"get_json_object({self.text}, {text_literal(_json_path((*place, *parent)))})"
            if (*place, *parent)
            else self.text
            for place in self.places
        ]
        return f"json_object_keys({self._anywhere(texts)})"

    def _fits(self, column: DeclaredColumn) -> str:
        """True or false for a record that was parsed."""
        wire = self._wire(column)
        fits = self._top_level_fits(column)
        if not column.nullable:
            return f"({wire} IS NOT NULL AND {fits})"
        if self.absent_is_null:
            return f"({wire} IS NULL OR {fits})"
        there = (
            f"array_contains({self._keys_name(column.path[:-1])}, {text_literal(column.path[-1])})"
        )
        return f"IF({wire} IS NULL, {there}, {fits})"

    def _top_level_fits(self, column: DeclaredColumn) -> str:
        wire = self._wire(column)
        match column.type:
            case StringType():
                # Comparisons of the first byte spare the pattern, and looking again, to most texts.
                number = f"rlike({wire}, {text_literal(_LOOKS_LIKE_A_NUMBER)})"
                suspect = (
                    f"(({wire} >= '-' AND {wire} < ':' AND {number}) "
                    f"OR ({wire} >= '[' AND {wire} < '\\\\') OR ({wire} >= '{{' AND {wire} < '|') "
                    f"OR {wire} IN ('true', 'false', '\"Infinity\"', '\"-Infinity\"'))"
                )
                token = self._token(column)
                is_text = f"(startswith({token}, '\"') AND {token} NOT IN {_INFINITE})"
                return f"(NOT {suspect} OR {is_text})"
            case DecimalType():
                quoted_number = text_literal('"' + re.escape(column.path[-1]) + r'"\s*:\s*"')
                suspect = f"rlike({self.text}, {quoted_number})"
                return f"(NOT {suspect} OR NOT startswith({self._token(column)}, '\"'))"
            case _:
                return fits_type(wire, self._made(column), column.type)

    def _column_faults(self, column: DeclaredColumn) -> list[tuple[str, str]]:
        wire, wrong = self._wire(column), self._wrong(column)
        faults = [(f"{wire} IS NULL AND {self._found(column)} IS NOT NULL", wrong)]
        if not column.nullable or not self.absent_is_null:
            keys = self._json_keys(column.path[:-1])
            there = f"coalesce(array_contains({keys}, {text_literal(column.path[-1])}), false)"
            absent = text_literal(f"column {column.name} is absent")
            faults.append((f"{wire} IS NULL AND NOT {there}", absent))
        if not column.nullable:
            faults.append(null_fault(column, wire))
        fits = self._top_level_fits(column)
        faults.append((f"{wire} IS NOT NULL AND NOT coalesce({fits}, false)", wrong))
        return faults


def schema_of(fields: Sequence[tuple[Path, str]]) -> str:
    """The DDL of a struct's fields, from paths within it and the types there."""
    inner: dict[str, list[tuple[Path, str]]] = {}
    for path, kind in fields:
        inner.setdefault(path[0], []).append((path[1:], kind))
    parts = []
    for name, below in inner.items():
        path, kind = below[0]
        parts.append(f"{quoted(name)} {kind if not path else f'STRUCT<{schema_of(below)}>'}")
    return ", ".join(parts)


def _from_json(text: str, schema: str) -> str:
    return (
        f"from_json({text}, {text_literal(schema)}, map('mode', 'PERMISSIVE', "
        f"'columnNameOfCorruptRecord', '{_CORRUPT}', 'allowSingleQuotes', 'false', "
        "'allowNonNumericNumbers', 'false'))"
    )


def _json_path(path: Path) -> str:
    """A JSON path to a field of the object."""
    return "$" + "".join(
        f".{name}" if re.fullmatch(r"\w+", name) else f"['{name}']" for name in path
    )
