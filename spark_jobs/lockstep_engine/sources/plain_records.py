"""Sources whose JSON records are read by Python, as far as they are plain.

It is a shorter way to the same rows, by the law of `kernels.plain_json`, so nothing depends on which
interval takes it. What it leaves undecided goes the way of all others, with the whole record.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from lockstep.control.kafka_options import KafkaConnection
from lockstep.errors import WrongUse
from lockstep.memory import memory_bytes
from lockstep.sql.circuit import SourceTable
from lockstep.sql.sources.source_layout import layout_of
from lockstep_engine.context import Context
from lockstep_engine.deltas import STEP
from lockstep_engine.kernels.plain_json import PLAIN
from lockstep_engine.local.rows import Rows
from lockstep_engine.sources.debezium import before_name
from lockstep_engine.sources.decoded import raw_columns
from lockstep_engine.sources.decoding import (
    AT_OFFSET,
    AT_PARTITION,
    DeclaredColumn,
    plain_name,
    value_name,
)
from lockstep_engine.sources.offsets import StepRange, slices_of
from lockstep_engine.sources.plain_layout import plain_layout
from lockstep_engine.sources.plain_reading import PlainReading, PlainTask
from lockstep_engine.sources.reading_here import read_here

__all__ = ["PlainSource", "plain_source"]

_SILENT_SECONDS = 5.0
_SHARE_OF_MEMORY = 32
"""Of what this process may use: the rows are there a few times while they are worked on."""

_RECORD: Mapping[str, DataType] = {
    "_partition": IntegerType(),
    "_offset": LongType(),
    "_timestamp": TimestampType(),
    "_key": BinaryType(),
    "_value": BinaryType(),
    "_topic": StringType(),
}

_BY_PASSWORD = frozenset({"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"})
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
        reading = replace(self.reading, silent_seconds=_SILENT_SECONDS)
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
    plain = plain_layout(layout, declared, source.absent_is_null)
    if connection is None or plain is None or not _SHOWN.issuperset(layout.metadata.values()):
        return None
    left_out = {
        made(one.number)
        for one in declared
        if one not in wanted
        for made in (value_name, before_name)
    }
    columns = [(place, *one) for place, one in enumerate(plain.columns) if one[0] not in left_out]
    read = {name: plain_name(name) for _, name, _ in columns}
    for one in wanted:
        if one.name.lower() in layout.metadata:
            read[value_name(one.number)] = f"_{layout.metadata[one.name.lower()]}"
    if layout.keys:
        read |= {AT_PARTITION: "_partition", AT_OFFSET: "_offset"}
    schema = StructType(
        [
            *(StructField(name, _RECORD[name]) for name in raw_columns(source)),
            StructField(STEP, LongType()),
            StructField(PLAIN, BooleanType()),
            *(StructField(read[name], kind) for _, name, kind in columns),
        ]
    )
    places = tuple(place for place, _, _ in columns)
    reading = PlainReading(
        connection,
        topic,
        tuple(ranges),
        plain.records.only(places),
        places,
        to_arrow_schema(schema),
        STEP,
        shows_timestamp="timestamp" in layout.metadata.values(),
    )
    return PlainSource(reading, schema, read)


def _connection(source: SourceTable) -> KafkaConnection | None:
    """How to connect; None where Spark's client has settings that have no part in that, or is let in by
    what is not read here: tokens, or Kerberos, which it takes where nothing else is said."""
    own = {key: value for key, value in source.options.items() if key.startswith("kafka.")}
    if not KafkaConnection.OPTIONS.issuperset(own):
        return None
    try:
        found = KafkaConnection.from_options(own, f"source {source.name}")
    except WrongUse:
        return None
    if not found.security_protocol.startswith("SASL"):
        return found
    return found if found.sasl_mechanism in _BY_PASSWORD and found.username else None
