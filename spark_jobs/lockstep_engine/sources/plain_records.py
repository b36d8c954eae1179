"""JSON records of a large interval: those of the plain kind are parsed by Arrow, in Python, beforehand.

It is a shorter way to the same rows, by the law of `kernels.plain_json`, so nothing depends on which
interval takes it. What it leaves undecided goes the way of all others, with the whole record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from lockstep.sql.circuit import SourceTable
from lockstep.sql.sources.source_layout import layout_of
from lockstep_engine.kernels.plain_json import PLAIN, PlainColumn, read_plain
from lockstep_engine.sources.decoding import DeclaredColumn
from lockstep_engine.sources.metadata import metadata_decoding

__all__ = ["PLAIN", "Plain", "plain_name", "with_plain"]

_TYPES: dict[DataType, pa.DataType] = {
    BooleanType(): pa.bool_(),
    ByteType(): pa.int8(),
    ShortType(): pa.int16(),
    IntegerType(): pa.int32(),
    LongType(): pa.int64(),
    DoubleType(): pa.float64(),
    StringType(): pa.string(),
    DateType(): pa.date32(),
    TimestampType(): pa.timestamp("us", "UTC"),
    TimestampNTZType(): pa.timestamp("us"),
}

_REST = 15
"""Where less than half of a batch is plain, so many batches go by untried."""


def plain_name(number: int) -> str:
    """The column with a declared column's value of plain records."""
    return f"{PLAIN}_{number}"


@dataclass(frozen=True)
class Plain:
    """Records with PLAIN, and where that is true without their `_value`, but with a column
    `plain_name` for each of the `numbers` of declared columns."""

    records: DataFrame
    numbers: tuple[int, ...]


def with_plain(
    records: DataFrame,
    source: SourceTable,
    declared: Sequence[DeclaredColumn],
    wanted: Sequence[int],
) -> Plain | None:
    """The records, plain ones read, with what is `wanted` of the columns of their values; None where the
    source has records or types that cannot be read so."""
    layout = layout_of(source)
    fields = [one for one in declared if one.name.lower() not in layout.metadata]
    shown = [one for one in declared if one.name.lower() in layout.metadata]
    if (layout.kind, layout.format) != ("rows", "json") or not all(map(_is_plain, fields)):
        return None
    if metadata_decoding(shown, layout.metadata).is_good != "true":
        # What is bad by its key is kept whole.
        return None
    columns = [
        PlainColumn(one.path[0], _arrow(one.type), one.nullable and source.absent_is_null)
        for one in fields
    ]
    places = {one.number: place for place, one in enumerate(fields) if one.number in wanted}
    made = [StructField(plain_name(n), fields[place].type) for n, place in places.items()]
    schema = StructType([*records.schema, StructField(PLAIN, BooleanType()), *made])
    read = _reading(tuple(columns), tuple(places.values()), tuple(schema.names))
    return Plain(records.mapInArrow(read, schema), tuple(places))


def _is_plain(column: DeclaredColumn) -> bool:
    """A field of the object itself; a decimal's name stands in the text as it is."""
    if len(column.path) != 1:
        return False
    if isinstance(column.type, DecimalType):
        return column.path[0].isascii() and column.path[0].isidentifier()
    return column.type in _TYPES


def _arrow(type_: DataType) -> pa.DataType:
    if isinstance(type_, DecimalType):
        return pa.decimal128(type_.precision, type_.scale)
    return _TYPES[type_]


def _reading(
    columns: tuple[PlainColumn, ...], places: tuple[int, ...], names: tuple[str, ...]
) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rest = 0
        for batch in batches:
            at = batch.schema.get_field_index("_value")
            values = batch.column(at)
            if rest:
                rest -= 1
                is_plain = pa.repeat(False, len(values))
                found = [pa.nulls(len(values), columns[place].type) for place in places]
            else:
                table = read_plain(values, columns)
                is_plain = table[PLAIN].combine_chunks()
                found = [table[str(place)].combine_chunks() for place in places]
                rest = _REST if is_plain.true_count < len(values) / 2 else 0
            left = pc.if_else(is_plain, pa.scalar(None, values.type), values)
            arrays = [*batch.columns[:at], left, *batch.columns[at + 1 :], is_plain, *found]
            yield pa.RecordBatch.from_arrays(arrays, list(names))

    return run
