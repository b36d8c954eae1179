"""The formats of records: one table, from the name that a source declares to what reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lockstep.errors import WrongUse
from lockstep.sql.circuit import SourceTable
from lockstep.sql.source_layout import layout_of
from lockstep_engine.sources.decoding import (
    DeclaredColumn,
    Decoding,
    RecordReader,
    Rows,
    combined,
    value_name,
)
from lockstep_engine.sources.json_values import json_decoding
from lockstep_engine.sources.metadata import metadata_decoding
from lockstep_engine.sources.raw_values import raw_decoding

__all__ = ["record_reader"]

ValueFormat = Callable[[SourceTable, Sequence[DeclaredColumn], str], Decoding]
"""From the source, the columns that are read with the format, and the frame's column of bytes."""


def _json(source: SourceTable, columns: Sequence[DeclaredColumn], of: str) -> Decoding:
    return json_decoding(columns, source.absent_is_null, of, stem="k" if of == "_key" else "")


def _raw(_: SourceTable, columns: Sequence[DeclaredColumn], of: str) -> Decoding:
    return raw_decoding(columns, of)


VALUE_FORMATS: Mapping[str, ValueFormat] = {"json": _json, "raw": _raw}


def record_reader(source: SourceTable, columns: Sequence[DeclaredColumn]) -> RecordReader:
    """How the source's records are read. Raises WrongUse for a format that is not there."""
    layout = layout_of(source)
    if layout.format not in VALUE_FORMATS:
        raise WrongUse(
            f"source {source.name} has a format that cannot be decoded",
            expected=" or ".join(f"'format' = '{name}'" for name in sorted(VALUE_FORMATS)),
            found=f"'format' = '{layout.format}'",
            next_step=f"correct it at {source.position}",
        )
    shown = [column for column in columns if column.name.lower() in layout.metadata]
    others = [column for column in columns if column.name.lower() not in layout.metadata]
    value = VALUE_FORMATS[layout.format](source, others, "_value")
    kinds = set(layout.metadata.values())
    return RecordReader(
        combined([value, metadata_decoding(shown, layout.metadata)]),
        (Rows({column.number: value_name(column.number) for column in columns}),),
        needs_topic="topic" in kinds,
        needs_headers="headers" in kinds,
    )
