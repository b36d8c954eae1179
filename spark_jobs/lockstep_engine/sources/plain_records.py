"""JSON records of a large interval, read and parsed by Python in Spark's tasks: those of the plain kind.

Kafka's client in C (https://docs.confluent.io/platform/current/clients/confluent-kafka-python) and Arrow
together take half of the time of Spark's Kafka source and `from_json`. It is a shorter way to the same
rows, by the law of `kernels.plain_json`, so nothing depends on which interval takes it. What it leaves
undecided goes the way of all others, with the whole record.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
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
from lockstep.control.model import OffsetRange
from lockstep.errors import SourceChanged, WrongUse
from lockstep.sql.circuit import SourceTable
from lockstep.sql.sources.source_layout import layout_of
from lockstep_engine.context import Context
from lockstep_engine.deltas import STEP
from lockstep_engine.kernels.plain_json import PLAIN, PlainColumn, read_plain, undecided
from lockstep_engine.sources.decoded import raw_columns
from lockstep_engine.sources.decoding import DeclaredColumn, plain_name
from lockstep_engine.sources.metadata import metadata_decoding
from lockstep_engine.sources.step_ranges import StepRange, partition_ranges

__all__ = ["PLAIN", "Plain", "plain_records", "slices_of"]

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

_Numbers = np.ndarray[Any, np.dtype[np.int64]]

_SHOWN = frozenset({"partition", "offset", "timestamp", "topic", "step_time"})
"""What metadata columns may show: keys and headers are not handed on of plain records."""

_CHUNK = 2000
"""So many records are parsed at a time: their bytes are in the processor's cache then."""

_REST = 15
"""Where less than half of a chunk is plain, so many chunks go by untried."""

_POLL_SECONDS = 0.1
_SILENT_SECONDS = 60.0
_END_SECONDS = 10.0
_UNTOLD = 1 << 63
"""Where a partition ends as long as nobody has told: beyond all offsets."""

_CONSUMER: Mapping[str, object] = {
    "group.id": "lockstep-plain",
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "check.crcs": True,
    "log_level": 3,
    "fetch.wait.max.ms": 5,
    "max.partition.fetch.bytes": 4 << 20,
    "fetch.max.bytes": 16 << 20,
    # Enough to go on with while a chunk is parsed. By default a full queue rests for a second.
    "queued.min.messages": 10_000,
    "queued.max.messages.kbytes": 32 << 10,
    "fetch.queue.backoff.ms": 2,
}


@dataclass(frozen=True)
class Plain:
    """Records as `decoding` describes them, with PLAIN. Where that is true they have no `_key` and no
    `_value`, but a column `plain_name` for each of the `numbers` of declared columns."""

    records: DataFrame
    numbers: tuple[int, ...]


def plain_records(
    source: SourceTable,
    declared: Sequence[DeclaredColumn],
    wanted: Iterable[DeclaredColumn],
    topic: str,
    ranges: Sequence[StepRange],
    context: Context,
) -> Plain | None:
    """The committed records of the ranges, plain ones read, with what is `wanted` of the columns of
    their values. None where there are few, and where the source has records, types or a connection
    that cannot be read so. Nothing is read before an action asks for it."""
    layout = layout_of(source)
    fields = [one for one in declared if one.name.lower() not in layout.metadata]
    shown = [one for one in declared if one.name.lower() in layout.metadata]
    connection = _connection(source)
    if (
        context.is_small
        or sum(one.end - one.start for one in ranges) <= context.many_records
        # A failure to read is to be Spark's own, not that of an expression in Python.
        or context.guarding is not None
        or connection is None
        or (layout.kind, layout.format) != ("rows", "json")
        or not all(map(_is_plain, fields))
        # Arrow takes no name twice, and finds no row where it looks for no field.
        or not len({one.path for one in fields}) == len(fields) > 0
        or not _SHOWN.issuperset(layout.metadata.values())
        # What is bad by what is shown of it is kept whole.
        or metadata_decoding(shown, layout.metadata).is_good != "true"
    ):
        return None
    columns = tuple(
        PlainColumn(one.path[0], to_arrow_type(one.type), one.nullable and source.absent_is_null)
        for one in fields
    )
    places = {one.number: fields.index(one) for one in wanted if one in fields}
    schema = StructType(
        [
            *(StructField(name, _RECORD[name]) for name in raw_columns(source)),
            StructField(STEP, LongType()),
            StructField(PLAIN, BooleanType()),
            *(StructField(plain_name(n), fields[place].type) for n, place in places.items()),
        ]
    )
    slices = slices_of(ranges, context.partitions)
    read = _ReadPlain(
        connection,
        topic,
        slices,
        tuple(ranges),
        columns,
        tuple(places.values()),
        "timestamp" in layout.metadata.values(),
        to_arrow_schema(schema),
    )
    numbers = context.spark.range(0, len(slices), 1, len(slices))
    return Plain(numbers.mapInArrow(read, schema), tuple(places))


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


def slices_of(ranges: Sequence[StepRange], tasks: int) -> tuple[OffsetRange, ...]:
    """What tasks read: each partition's ranges, in pieces where these are fewer than tasks."""
    found: list[OffsetRange] = []
    whole = partition_ranges(ranges)
    of_a_task = sum(one.records for one in whole) / tasks
    for one in whole:
        pieces = max(1, round(one.records / of_a_task))
        cuts = [one.start + one.records * piece // pieces for piece in range(pieces + 1)]
        found.extend(OffsetRange(one.partition, *pair) for pair in pairwise(cuts))
    return tuple(found)


@dataclass(frozen=True)
class _ReadPlain:
    """Runs in a task: numbers of slices in, their records out. `places` are those of `columns` whose
    values are handed on. All of it goes to the task by value."""

    connection: KafkaConnection
    topic: str
    slices: tuple[OffsetRange, ...]
    ranges: tuple[StepRange, ...]
    columns: tuple[PlainColumn, ...]
    places: tuple[int, ...]
    shows_timestamp: bool
    shape: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self._records(self.slices[number])

    def _records(self, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        steps = _steps([one for one in self.ranges if one.partition == wanted.partition])
        rest = 0
        for messages in _messages(self.connection, self.topic, wanted):
            values = [message.value() for message in messages]
            if rest:
                rest -= 1
                found = undecided(len(values), self.columns)
            else:
                found = read_plain(values, self.columns)
                plain = found[PLAIN].combine_chunks().true_count
                rest = _REST if plain < len(values) / 2 else 0
            yield self._batch(wanted.partition, messages, found, steps)

    def _batch(
        self,
        partition: int,
        messages: Sequence[Any],
        found: pa.Table,
        steps: Callable[[_Numbers], _Numbers],
    ) -> pa.RecordBatch:
        is_plain, rows = found[PLAIN].combine_chunks(), len(messages)
        offsets = np.fromiter((message.offset() for message in messages), np.int64, rows)
        left: Sequence[int] = ()
        if is_plain.true_count < rows:
            left = np.flatnonzero(~is_plain.to_numpy(zero_copy_only=False)).tolist()
        times = range(rows) if self.shows_timestamp else left

        def of(
            places: Sequence[int], value: Callable[[int], object], kind: pa.DataType
        ) -> pa.Array:
            if not places:
                return pa.nulls(rows, kind)
            made: list[object] = [None] * rows
            for place in places:
                made[place] = value(place)
            return pa.array(made, kind)

        milliseconds = of(
            times, lambda place: messages[place].timestamp()[1], pa.timestamp("ms", "UTC")
        )
        made = {
            "_partition": pa.repeat(pa.scalar(partition, pa.int32()), rows),
            "_offset": pa.array(offsets),
            "_timestamp": milliseconds.cast(self.shape.field("_timestamp").type),
            "_key": of(left, lambda place: messages[place].key(), pa.binary()),
            "_value": of(left, lambda place: messages[place].value(), pa.binary()),
            "_topic": pa.repeat(self.topic, rows),
            STEP: pa.array(steps(offsets)),
            PLAIN: is_plain,
        }
        columns = [made[name] for name in self.shape.names if name in made]
        columns.extend(found[str(place)].combine_chunks() for place in self.places)
        return pa.RecordBatch.from_arrays(columns, schema=self.shape)


def _steps(ranges: Sequence[StepRange]) -> Callable[[_Numbers], _Numbers]:
    """The steps of offsets of a partition, which has these ranges."""
    starts = np.array([one.start for one in ranges], np.int64)
    steps = np.array([one.step for one in ranges], np.int64)
    return lambda offsets: steps[np.searchsorted(starts, offsets, "right") - 1]


def _messages(
    connection: KafkaConnection, topic: str, wanted: OffsetRange
) -> Iterator[Sequence[Any]]:
    """The committed messages of the range, in order, some thousand at a time.

    It is done at the first message, or the end of what is stable, at or past its end: the last offsets
    of a range may be transaction markers, which are never delivered. Raises KafkaException.
    """
    consumer = Consumer({**_CONSUMER, **connection.librdkafka()})
    try:
        consumer.assign([TopicPartition(topic, wanted.partition, wanted.start)])
        silent_seconds, reached, end = 0.0, wanted.start, _UNTOLD
        while reached < wanted.end:
            # It waits for as many as are asked for.
            found = consumer.consume(min(_CHUNK, wanted.end - reached), _POLL_SECONDS)
            messages = [message for message in found if message.error() is None]
            if len(messages) < len(found):
                end = _end(found, end)
                reached = end if wanted.end <= end < _UNTOLD else reached
            silent_seconds = 0.0 if messages else silent_seconds + _POLL_SECONDS
            if messages:
                reached = max(reached, messages[-1].offset() + 1)
                if reached > wanted.end:
                    messages = [one for one in messages if one.offset() < wanted.end]
            if messages:
                yield messages
            elif reached < wanted.end:
                _check_silence(silent_seconds, topic, wanted, end)
    finally:
        consumer.close()


def _end(found: Sequence[Any], end: int) -> int:
    """The end of the partition, if one of the messages tells of it, else `end`. Raises KafkaException
    for what else is told of the partition; that nobody may join a group has no part in reading."""
    for message in found:
        error = message.error()
        if error is None or message.topic() is None:
            continue
        if error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        end = message.offset()
    return end


def _check_silence(seconds: float, topic: str, wanted: OffsetRange, end: int) -> None:
    """A new leader may know of an earlier end for a while. Raises SourceChanged, KafkaException."""
    if end < wanted.end and seconds > _END_SECONDS:
        raise SourceChanged(
            f"topic {topic}, partition {wanted.partition} ends early",
            expected=f"records up to offset {wanted.end}",
            found=f"its end at offset {end}",
            next_step="lockstep doctor shows what the topic holds",
        )
    if seconds > _SILENT_SECONDS:
        raise KafkaException(
            KafkaError(KafkaError._TIMED_OUT, f"nothing came for {_SILENT_SECONDS:.0f} s")
        )
