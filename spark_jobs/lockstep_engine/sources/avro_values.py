"""Avro values as columns, by one schema that is declared, or by the one that each record names.

With a registry a record begins with a zero byte and four of its schema's number; all numbers of an
interval are known before anything is decoded, and each schema has its own text in the plan.

`from_avro` does the parsing, of all fields: where it leaves out one that nobody reads, a length that
is wrong sends it backwards, and that can go on for ever. It neither says that a record could
not be read nor minds bytes that follow it: so some known bytes are put behind each record, and read
as a part of it. They come out as they were where the record is one, whole, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql.types import ArrayType, ByteType, MapType, ShortType, StringType

from lockstep.sql.circuit import SourceColumn
from lockstep.sql.plans.terms import text_literal
from lockstep.sql.sources.avro_schema import (
    AvroSchema,
    UnreadableSchemaError,
    fits_column,
    read_avro_schema,
)
from lockstep_engine.deltas import quoted
from lockstep_engine.sources.decoding import (
    DeclaredColumn,
    Decoding,
    null_fault,
    value_name,
)

__all__ = ["HEADER_BYTES", "avro_decoding", "schema_number"]

HEADER_BYTES = 5
_TAIL = "10C57E9BADC0FFEE"
_TAIL_TYPE = {"type": "fixed", "name": "lockstep.Tail", "size": len(_TAIL) // 2}


def schema_number(of: str) -> str:
    """The number of the schema in the registry's header of the column, or null without a header."""
    number = f"CAST(conv(hex(substring({of}, 2, 4)), 16, 10) AS BIGINT)"
    has_header = f"octet_length({of}) >= {HEADER_BYTES} AND substring({of}, 1, 1) = X'00'"
    return f"CASE WHEN {has_header} THEN {number} END"


def avro_decoding(
    columns: Sequence[tuple[DeclaredColumn, SourceColumn]],
    schemas: Mapping[int, str] | str,
    absent_is_null: bool,
    of: str,
    stem: str = "",
) -> Decoding:
    """The columns from a record in the frame's column `of` (`_value`, `_key`), by one schema, or by
    those of the registry by number. `stem` keeps the frame's columns of several records apart."""
    known = {None: schemas} if isinstance(schemas, str) else dict(schemas)
    writers = [
        _Writer(place, number, text, tuple(columns), absent_is_null, stem, of.strip("_"))
        for place, (number, text) in enumerate(known.items())
    ]
    number, what = f"_{stem}schema", of.strip("_")
    faults = [(f"{of} IS NULL", text_literal(f"the {what} is null, and an Avro record has one"))]
    first: tuple[str, ...] = ()
    content = of
    if not isinstance(schemas, str):
        first = (f"{schema_number(of)} AS {number}",)
        content = f"substring({of}, {HEADER_BYTES + 1})"
        header = text_literal(f"the {what} does not begin with the header of a schema registry")
        known_numbers = ", ".join(str(one) for one in known) or "NULL"
        unknown = f"coalesce({number} NOT IN ({known_numbers}), true)"
        faults += [
            (f"{number} IS NULL", header),
            (unknown, f"concat('schema ', {number}, ' is not in the registry')"),
        ]
    parsed = tuple(
        f"{_chosen(number, [(one, one.parsed(content))])} AS {one.name}"
        for one in writers
        if not one.refusal
    )
    values = tuple(
        f"{_chosen(number, [(one, one.value(column)) for one in writers], column)} "
        f"AS {value_name(column.number)}"
        for column, _ in columns
    )
    checks = _chosen(number, [(one, one.is_good()) for one in writers]) if writers else "false"
    return Decoding(
        (first, parsed, values) if first else (parsed, values),
        f"coalesce({checks}, false)",
        (*faults, *(fault for one in writers for fault in one.faults(number))),
    )


def _chosen(
    number: str, texts: Sequence[tuple[_Writer, str]], column: DeclaredColumn | None = None
) -> str:
    """The text of the schema that the record has."""
    if len(texts) == 1 and texts[0][0].number is None:
        return texts[0][1]
    cases = " ".join(f"WHEN {one.number} THEN {text}" for one, text in texts)
    found = f"CASE {number} {cases} END" if cases else "NULL"
    return found if column is None else f"CAST({found} AS {column.type.simpleString()})"


@dataclass(frozen=True)
class _Writer:
    """One schema that records are written by, and how the columns are read with it."""

    place: int
    number: int | None
    text: str
    columns: tuple[tuple[DeclaredColumn, SourceColumn], ...]
    absent_is_null: bool
    stem: str
    what: str

    @property
    def name(self) -> str:
        return f"_{self.stem}avro{self.place}"

    @cached_property
    def refusal(self) -> str:
        """Why no record of the schema can be read; '' where they can."""
        called = "the schema" if self.number is None else f"schema {self.number}"
        try:
            schema = read_avro_schema(self.text)
        except UnreadableSchemaError as error:
            return f"{called} cannot be read: {error}"
        readable = {one["name"] for one in schema.without_recursion()["fields"]}
        for column, declared in self.columns:
            found = schema.at(column.path)
            if found is not None and column.path[0] not in readable:
                return f"column {column.name} is of a type that holds itself in {called}"
            if found is None:
                if not (column.nullable and self.absent_is_null):
                    return f"column {column.name} is absent in {called}"
            elif not fits_column(schema, found[0], declared.type):
                kind = found[0].get("logicalType", found[0]["type"])
                return (
                    f"column {column.name} does not fit {declared.type}: it is {kind} in {called}"
                )
        return ""

    @cached_property
    def _schema(self) -> AvroSchema:
        return read_avro_schema(self.text)

    def parsed(self, content: str) -> str:
        """The record with its tail, as a struct."""
        schema = self._schema
        written = _framed(schema.root)
        read = _framed(schema.without_recursion())
        options = f"map('mode', 'PERMISSIVE', 'avroSchema', {text_literal(read)})"
        return f"from_avro(concat({content}, X'{_TAIL}'), {text_literal(written)}, {options})"

    def value(self, column: DeclaredColumn) -> str:
        """The column's value, null where it does not fit."""
        kind = column.type.simpleString()
        if self.refusal or self._schema.at(column.path) is None:
            return f"CAST(NULL AS {kind})"
        return f"try_cast({self._wire(column)} AS {kind})"

    def is_good(self) -> str:
        """True where the record is one, and its columns fit."""
        if self.refusal:
            return "false"
        checks = [f"{self.name}.tail <=> X'{_TAIL}'"]
        for column, _ in self.columns:
            value = value_name(column.number)
            if not column.nullable:
                checks.append(f"{value} IS NOT NULL")
            elif _may_not_fit(column) and self._schema.at(column.path):
                checks.append(f"({self._wire(column)} IS NULL OR {value} IS NOT NULL)")
            if isinstance(column.type, StringType):
                checks.append(f"coalesce(is_valid_utf8({value}), true)")
        return f"({' AND '.join(checks)})"

    def faults(self, number: str) -> list[tuple[str, str]]:
        """What is wrong with a record of the schema."""
        own = "true" if self.number is None else f"{number} = {self.number}"
        if self.refusal:
            return [(own, text_literal(self.refusal))]
        called = "the schema" if self.number is None else f"schema {self.number}"
        malformed = text_literal(f"the {self.what} is not one Avro record of {called}")
        faults = [(f"{own} AND NOT {self.name}.tail <=> X'{_TAIL}'", malformed)]
        for column, _ in self.columns:
            value = value_name(column.number)
            kind = column.type.simpleString()
            if self._schema.at(column.path):
                wrong = text_literal(f"column {column.name} does not fit {kind}")
                wire = self._wire(column)
                faults.append((f"{own} AND {wire} IS NOT NULL AND {value} IS NULL", wrong))
            if isinstance(column.type, StringType):
                text = text_literal(f"column {column.name} is not UTF-8 text")
                faults.append((f"{own} AND NOT is_valid_utf8({value})", text))
            if not column.nullable:
                condition, sentence = null_fault(column, value)
                faults.append((f"{own} AND {condition}", sentence))
        return faults

    def _wire(self, column: DeclaredColumn) -> str:
        return ".".join([self.name, "value", *map(quoted, column.path)])


def _may_not_fit(column: DeclaredColumn) -> bool:
    return isinstance(column.type, ByteType | ShortType | ArrayType | MapType)


def _framed(record: Mapping[str, object]) -> str:
    fields = [{"name": "value", "type": record}, {"name": "tail", "type": _TAIL_TYPE}]
    return json.dumps({"type": "record", "name": "lockstep.Framed", "fields": fields})
