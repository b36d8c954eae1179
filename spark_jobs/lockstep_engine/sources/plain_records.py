"""Sources whose JSON records are read by Python, as far as they are plain.

It is a shorter way to the same
rows, by the law of `kernels.plain_json`, so nothing depends on which interval takes it. What it leaves
undecided goes the way of all others, with the whole record.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type
from pyspark.sql.types import (
    BinaryType,
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

from lockstep.control.kafka_options import KafkaConnection
from lockstep.errors import WrongUse
from lockstep.memory import memory_bytes
from lockstep.sql.circuit import SourceTable
from lockstep.sql.sources.source_layout import Layout, layout_of
from lockstep_engine.context import Context
from lockstep_engine.deltas import STEP
from lockstep_engine.kernels.plain_json import PLAIN, PlainColumn, PlainKey
from lockstep_engine.local.rows import Rows
from lockstep_engine.sources.decoded import raw_columns
from lockstep_engine.sources.decoding import (
    AT_OFFSET,
    AT_PARTITION,
    IS_DELETED,
    DeclaredColumn,
    plain_name,
    value_name,
)
from lockstep_engine.sources.metadata import metadata_decoding
from lockstep_engine.sources.offsets import StepRange, slices_of
from lockstep_engine.sources.plain_reading import PLAIN_DELETED, PlainReading, PlainTask
from lockstep_engine.sources.reading_here import read_here

__all__ = ["PlainSource", "plain_source"]

_SILENT_SECONDS = 5.0
_SHARE_OF_MEMORY = 32
"""Of what this process may use: the rows are there a few times while they are worked on."""

_TYPES = (
    BooleanType(),
    ByteType(),
    ShortType(),
    IntegerType(),
    LongType(),
    DoubleType(),
    StringType(),
    DateType(),
    TimestampType(),
    TimestampNTZType(),
)

_RECORD: Mapping[str, DataType] = {
    "_partition": IntegerType(),
    "_offset": LongType(),
    "_timestamp": TimestampType(),
    "_key": BinaryType(),
    "_value": BinaryType(),
    "_topic": StringType(),
}

_SHOWN = frozenset({"partition", "offset", "timestamp", "topic", "step_time"})
"""What metadata columns may show: keys and headers are not handed on of plain records."""


@dataclass(frozen=True)
class PlainSource:
    """How records of ranges are read as plain ones: as `decoding` describes them, with PLAIN. Where that
    is true they have no `_key` and no `_value`, but what would be made of these: `read` says which
    columns have it, by those that the decoding makes."""

    reading: PlainReading
    schema: StructType
    read: Mapping[str, str]

    def by_tasks(self, context: Context) -> DataFrame:
        """The committed records, read by Spark's tasks. Nothing is read before an action asks for it."""
        slices = slices_of(self.reading.ranges, context.partitions)
        numbers = context.spark.range(0, len(slices), 1, len(slices))
        return numbers.mapInArrow(PlainTask(self.reading, slices), self.schema)

    def here(self) -> Rows | None:
        """The same records, read now and held by this process; None where it cannot have them."""
        # Spark has its own patience, and says what is wrong.
        reading = replace(self.reading, silent_seconds=_SILENT_SECONDS, log_level=0)
        table = read_here(reading, memory_bytes() // _SHARE_OF_MEMORY)
        return None if table is None else Rows(table, self.schema)


def plain_source(
    source: SourceTable,
    declared: Sequence[DeclaredColumn],
    wanted: Collection[DeclaredColumn],
    topic: str,
    ranges: Sequence[StepRange],
) -> PlainSource | None:
    """What reads the ranges with what is `wanted` of the columns of their values. None where the source
    has records, types or a connection that cannot be read so."""
    layout, connection = layout_of(source), _connection(source)
    fields = _fields(layout, declared)
    if connection is None or fields is None:
        return None
    values, keys = fields
    columns = tuple(_column(one, one.nullable, source.absent_is_null) for one in values)
    of_keys = tuple(_column(one, False) for one in keys)
    places = {one: place for place, one in enumerate((*values, *keys))}
    read = {
        value_name(one.number): plain_name(one.number)
        if one in places
        else f"_{layout.metadata[one.name.lower()]}"
        for one in wanted
    }
    if keys:
        read |= {AT_PARTITION: "_partition", AT_OFFSET: "_offset", IS_DELETED: PLAIN_DELETED}
    schema = StructType(
        [
            *(StructField(name, _RECORD[name]) for name in raw_columns(source)),
            StructField(STEP, LongType()),
            StructField(PLAIN, BooleanType()),
            *([StructField(PLAIN_DELETED, BooleanType())] if keys else ()),
            *(StructField(plain_name(one.number), one.type) for one in wanted if one in places),
        ]
    )
    reading = PlainReading(
        connection,
        topic,
        tuple(ranges),
        columns,
        tuple(places[one] for one in wanted if one in places),
        to_arrow_schema(schema),
        STEP,
        PlainKey(of_keys, layout.key_format == "raw") if keys else None,
        shows_timestamp="timestamp" in layout.metadata.values(),
    )
    return PlainSource(reading, schema, read)


_Columns = Sequence[DeclaredColumn]


def _fields(layout: Layout, declared: _Columns) -> tuple[_Columns, _Columns] | None:
    """The columns of values, and those of keys by which records replace each other; None where these are
    nothing that is read so."""
    keys = [one for one in declared if layout.kind == "upsert" and one.name.lower() in layout.keys]
    shown = [one for one in declared if one.name.lower() in layout.metadata]
    values = [one for one in declared if one not in keys and one not in shown]
    is_plain = (
        layout.kind in ("rows", "upsert")
        and layout.format == "json"
        and _are_plain(values)
        and (not keys or _are_plain_keys(layout, keys))
        and _SHOWN.issuperset(layout.metadata.values())
        # What is bad by what is shown of it is kept whole.
        and metadata_decoding(shown, layout.metadata).is_good == "true"
    )
    return (values, keys) if is_plain else None


def _are_plain_keys(layout: Layout, keys: _Columns) -> bool:
    if layout.key_format == "raw":
        return [one.type for one in keys] == [StringType()]
    return layout.key_format == "json" and _are_plain(keys)


def _are_plain(fields: _Columns) -> bool:
    """Arrow takes no name twice, and finds no row where it looks for no field."""
    return all(map(_is_plain, fields)) and len({one.path for one in fields}) == len(fields) > 0


def _column(field: DeclaredColumn, may_be_null: bool, may_be_absent: bool = False) -> PlainColumn:
    kind, may_be_absent = to_arrow_type(field.type), may_be_null and may_be_absent
    return PlainColumn(field.path[0], kind, may_be_null, may_be_absent)


def _connection(source: SourceTable) -> KafkaConnection | None:
    """How Kafka's client in C connects; None where Spark's has settings that have no part in that."""
    own = {key: value for key, value in source.options.items() if key.startswith("kafka.")}
    if not KafkaConnection.OPTIONS.issuperset(own):
        return None
    try:
        found = KafkaConnection.from_options(own, f"source {source.name}")
    except WrongUse:
        return None
    return None if found.sasl_mechanism and not found.username else found


def _is_plain(column: DeclaredColumn) -> bool:
    """A field of the object itself; a decimal's name stands in the text as it is."""
    if len(column.path) != 1 or re.search(r"['?]", column.path[0]):
        # Spark finds no field of such a name where it looks closer at a text.
        return False
    if isinstance(column.type, DecimalType):
        return column.path[0].isascii() and column.path[0].isidentifier()
    return column.type in _TYPES
