"""The formats of records: one table, from the name that a source declares to what reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from lockstep.errors import WrongUse
from lockstep.sql.circuit import SourceTable
from lockstep.sql.plans.terms import text_literal
from lockstep.sql.sources.source_layout import Layout, avro_schema_option, layout_of
from lockstep_engine.sources.avro_values import avro_decoding
from lockstep_engine.sources.csv_values import csv_decoding
from lockstep_engine.sources.debezium import (
    HAS_AFTER,
    HAS_BEFORE,
    IS_CHANGE,
    before_name,
    debezium_decoding,
)
from lockstep_engine.sources.decoding import (
    AT_OFFSET,
    AT_PARTITION,
    IS_DELETED,
    DeclaredColumn,
    Decoding,
    GivenRow,
    RecordReader,
    combined,
    value_name,
)
from lockstep_engine.sources.json_values import json_decoding
from lockstep_engine.sources.metadata import metadata_decoding
from lockstep_engine.sources.raw_values import raw_decoding

__all__ = ["record_reader", "schema_columns"]

Schemas = Mapping[int, str]
ValueFormat = Callable[[SourceTable, Sequence[DeclaredColumn], str, Schemas], Decoding]
"""From the source, the columns that are read with the format, the frame's column of bytes, and the
schemas of the registry that the records name."""


def _stem(of: str) -> str:
    return "k" if of == "_key" else ""


def _json(source: SourceTable, columns: Sequence[DeclaredColumn], of: str, _: Schemas) -> Decoding:
    return json_decoding(columns, source.absent_is_null, of, stem=_stem(of))


def _raw(_: SourceTable, columns: Sequence[DeclaredColumn], of: str, __: Schemas) -> Decoding:
    return raw_decoding(columns, of)


def _csv(source: SourceTable, columns: Sequence[DeclaredColumn], of: str, _: Schemas) -> Decoding:
    return csv_decoding(columns, source.options, of, stem=_stem(of))


def _avro(
    source: SourceTable, columns: Sequence[DeclaredColumn], of: str, schemas: Schemas
) -> Decoding:
    pairs = [(column, source.columns[column.number]) for column in columns]
    declared = source.options.get(avro_schema_option(source, pairs[0][1]))
    found = schemas if declared is None else declared
    return avro_decoding(pairs, found, source.absent_is_null, of, stem=_stem(of))


VALUE_FORMATS: Mapping[str, ValueFormat] = {
    "json": _json,
    "csv": _csv,
    "raw": _raw,
    "avro": _avro,
}


def schema_columns(source: SourceTable) -> list[str]:
    """The columns of a frame of records that name schemas of the registry: values, keys."""
    layout = layout_of(source)
    if "schema.registry.url" not in source.options:
        return []
    places = [("_value", layout.format)]
    if layout.kind == "upsert":
        places.append(("_key", layout.key_format))
    return [of for of, format_ in places if format_ == "avro"]


def record_reader(
    source: SourceTable, columns: Sequence[DeclaredColumn], schemas: Schemas
) -> RecordReader:
    """How the source's records are read; `schemas` are those of the registry that they name.

    Raises WrongUse for a format that is not there.
    """
    layout = layout_of(source)
    _require_format(source, layout.format)
    columns = [
        replace(c, is_key=True, nullable=False) if _is_key(c, layout) else c for c in columns
    ]
    shown = [column for column in columns if column.name.lower() in layout.metadata]
    others = [column for column in columns if column.name.lower() not in layout.metadata]
    parts, rows = _KINDS[layout.kind](source, layout, others, schemas)
    shown_values = {column.number: value_name(column.number) for column in shown}
    return RecordReader(
        combined([*parts, metadata_decoding(shown, layout.metadata)]),
        tuple(replace(one, values={**one.values, **shown_values}) for one in rows),
    )


def _require_format(source: SourceTable, name: str) -> None:
    if name not in VALUE_FORMATS:
        raise WrongUse(
            f"source {source.name} has a format that cannot be decoded",
            expected=" or ".join(f"'format' = '{name}'" for name in sorted(VALUE_FORMATS)),
            found=f"'format' = '{name}'",
            next_step=f"correct it at {source.position}",
        )


def _is_key(column: DeclaredColumn, layout: Layout) -> bool:
    return column.name.lower() in layout.keys


def _values(columns: Sequence[DeclaredColumn]) -> Mapping[int, str]:
    return {column.number: value_name(column.number) for column in columns}


# ── what a record means ─────────────────────────────────────────────────────────────────────────

_Meaning = tuple[Sequence[Decoding], Sequence[GivenRow]]


def _each_is_a_row(
    source: SourceTable, layout: Layout, columns: Sequence[DeclaredColumn], schemas: Schemas
) -> _Meaning:
    value = VALUE_FORMATS[layout.format](source, columns, "_value", schemas)
    return [value], [GivenRow(_values(columns))]


def _upsert(
    source: SourceTable, layout: Layout, columns: Sequence[DeclaredColumn], schemas: Schemas
) -> _Meaning:
    """The key from the record's key; the rest from its value, or nothing: the key's row is gone."""
    _require_format(source, layout.key_format)
    keys = [column for column in columns if column.is_key]
    others = [column for column in columns if not column.is_key]
    no_key = text_literal("the record has no key, by which its row is known")
    parts = [
        Decoding((), "_key IS NOT NULL", (("_key IS NULL", no_key),)),
        VALUE_FORMATS[layout.key_format](source, keys, "_key", schemas),
        VALUE_FORMATS[layout.format](source, others, "_value", schemas).only_where(
            "_value IS NOT NULL"
        ),
        _placed("_value IS NULL"),
    ]
    return parts, [GivenRow(_values(columns), _CHANGE)]


def _debezium(
    source: SourceTable, layout: Layout, columns: Sequence[DeclaredColumn], _: Schemas
) -> _Meaning:
    keys = [column for column in columns if column.is_key]
    decoding = debezium_decoding(columns, keys, source.absent_is_null)
    if layout.keys:
        parts = [decoding, _placed(HAS_BEFORE, len(decoding.stages))]
        return parts, [GivenRow(_values(columns), _CHANGE, when=IS_CHANGE)]
    before = {column.number: before_name(column.number) for column in columns}
    return [decoding], [
        GivenRow(before, when=HAS_BEFORE, weight=-1),
        GivenRow(_values(columns), when=HAS_AFTER),
    ]


_CHANGE = {
    AT_PARTITION: ("_partition", "int"),
    AT_OFFSET: ("_offset", "bigint"),
    IS_DELETED: ("_deleted", "boolean"),
}
"""CHANGE_COLUMNS under names of their own: those of the record are kept of bad ones only."""


def _placed(is_deleted: str, stage: int = 0) -> Decoding:
    columns = (
        f"_partition AS {AT_PARTITION}",
        f"_offset AS {AT_OFFSET}",
        f"{is_deleted} AS {IS_DELETED}",
    )
    return Decoding((*((),) * stage, columns))


_KINDS: Mapping[
    str, Callable[[SourceTable, Layout, Sequence[DeclaredColumn], Schemas], _Meaning]
] = {
    "rows": _each_is_a_row,
    "upsert": _upsert,
    "debezium": _debezium,
}
