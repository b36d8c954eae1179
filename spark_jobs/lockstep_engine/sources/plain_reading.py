"""JSON records of the plain kind, read of a topic and parsed, wherever that is: in Spark's tasks, in
processes beside the driver, in the driver.

Kafka's client in C (https://docs.confluent.io/platform/current/clients/confluent-kafka-python) and Arrow
together take half of the time of Spark's Kafka source and `from_json`. Nothing of Spark is imported
here: a process that only reads has begun in half the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import methodcaller
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from lockstep.control.kafka_options import KafkaConnection
from lockstep.control.model import OffsetRange
from lockstep.errors import SourceChanged
from lockstep_engine.kernels.groups import Integers
from lockstep_engine.kernels.plain_json import PLAIN, plain_of, undecided
from lockstep_engine.kernels.plain_kinds import PlainRecords
from lockstep_engine.sources.offsets import StepRange

__all__ = ["PlainReading", "PlainTask"]

_CHUNK = 4000
"""So many records are parsed at a time: their bytes are in the processor's cache then."""

_REST = 15
"""Where less than half of a chunk is plain, so many chunks go by untried."""

_POLL_SECONDS = 0.1
_END_SECONDS = 10.0
_ERROR, _VALUE, _KEY, _OFFSET = map(methodcaller, ("error", "value", "key", "offset"))
"""Of a message, asked without a step of the interpreter for each."""

_UNTOLD = 1 << 63
"""Where a partition ends as long as nobody has told: beyond all offsets."""

_CONSUMER: Mapping[str, object] = {
    "group.id": "lockstep-plain",
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "check.crcs": True,
    "fetch.wait.max.ms": 5,
    "max.partition.fetch.bytes": 4 << 20,
    "fetch.max.bytes": 16 << 20,
    # Enough to go on with while a chunk is parsed. By default a full queue rests for a second.
    "queued.min.messages": 10_000,
    "queued.max.messages.kbytes": 32 << 10,
    "fetch.queue.backoff.ms": 2,
}
_FEW_RECORDS = 50_000
_CONSUMER_OF_FEW: Mapping[str, object] = {
    **_CONSUMER,
    # What is fetched beyond the end of a slice is taken apart for nothing.
    "max.partition.fetch.bytes": 1 << 20,
    "queued.min.messages": 5_000,
}


@dataclass(frozen=True)
class PlainReading:
    """How records of a topic are read, which are of a `kind`. `places` are those of its columns that are
    handed on, `ranges` say which offsets are of which step, `step` is the column for it. A broker may be
    silent for `silent_seconds`; `log_level` is that of Kafka's client. It is sent by value."""

    connection: KafkaConnection
    topic: str
    ranges: tuple[StepRange, ...]
    kind: PlainRecords
    places: tuple[int, ...]
    shape: pa.Schema
    step: str
    shows_timestamp: bool = False
    silent_seconds: float = 60.0
    log_level: int = 3

    def of(self, wanted: OffsetRange) -> PlainReading:
        """The same for a slice alone: to send the ranges of a thousand steps takes a while."""
        return replace(
            self,
            ranges=tuple(
                one
                for one in self.ranges
                if one.partition == wanted.partition
                and one.start < wanted.end
                and one.end > wanted.start
            ),
        )

    def records(self, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Those of a slice, in order. Raises KafkaException, SourceChanged."""
        for told in self.told(wanted):
            yield self.whole(told, wanted.partition)

    def whole(self, told: pa.RecordBatch, partition: int) -> pa.RecordBatch:
        """With the columns that were left out of what was told of a partition."""
        rows = told.num_rows

        def untold(field: pa.Field) -> pa.Array:
            match field.name:
                case "_partition":
                    return pa.repeat(pa.scalar(partition, field.type), rows)
                case "_topic":
                    return pa.repeat(self.topic, rows)
                case name if name == PLAIN:
                    return pa.repeat(True, rows)
            return pa.nulls(rows, field.type)

        there = set(told.schema.names)
        columns = [told[one.name] if one.name in there else untold(one) for one in self.shape]
        return pa.RecordBatch.from_arrays(columns, schema=self.shape)

    def told(self, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        """The same, without the columns that say the same of all records of a batch, or nothing: most
        have no others than those of their values, and these may be few. Batches have the same columns
        but for those before the first that has records which are not plain. Raises as `records` does."""
        steps = _steps([one for one in self.ranges if one.partition == wanted.partition])
        rest, is_mixed = 0, False
        common = _CONSUMER if wanted.records > _FEW_RECORDS else _CONSUMER_OF_FEW
        settings = {**common, **self.connection.librdkafka(), "log_level": self.log_level}
        for messages in _messages(settings, self.topic, wanted, self.silent_seconds):
            values = list(map(_VALUE, messages))
            is_tried = not rest
            if is_tried:
                found = self.kind.read(map(_KEY, messages), values)
            else:
                found = undecided(len(values), self.kind.types)
            plain = plain_of(found).true_count
            if is_tried:
                rest = _REST if plain < len(values) / 2 else 0
            else:
                rest -= 1
            is_mixed = is_mixed or plain < len(values)
            yield self._told(messages, values, found, steps, is_mixed)

    def _told(
        self,
        messages: Sequence[Any],
        values: Sequence[bytes | None],
        found: pa.Table,
        steps: Callable[[Integers], Integers],
        is_mixed: bool,
    ) -> pa.RecordBatch:
        is_plain, rows = plain_of(found), len(messages)
        offsets = _offsets(messages)
        left: Sequence[int] = ()
        if is_mixed:
            left = np.flatnonzero(~is_plain.to_numpy(zero_copy_only=False)).tolist()

        def of(
            places: Sequence[int], value: Callable[[int], object], kind: pa.DataType
        ) -> pa.Array:
            if not places:
                return pa.nulls(rows, kind)
            made: list[object] = [None] * rows
            for place in places:
                made[place] = value(place)
            return pa.array(made, kind)

        made = {"_offset": pa.array(offsets), self.step: pa.array(steps(offsets))}
        if is_mixed:
            made |= {
                "_key": of(left, lambda place: messages[place].key(), pa.binary()),
                "_value": of(left, values.__getitem__, pa.binary()),
                PLAIN: is_plain,
            }
        if is_mixed or self.shows_timestamp:
            times = range(rows) if self.shows_timestamp else left
            milliseconds = of(
                times, lambda place: messages[place].timestamp()[1], pa.timestamp("ms", "UTC")
            )
            made["_timestamp"] = milliseconds.cast(self.shape.field("_timestamp").type)
        fields = [one for one in self.shape if one.name in made]
        columns = [made[one.name] for one in fields]
        columns.extend(found[str(place)].combine_chunks() for place in self.places)
        fields.extend(list(self.shape)[len(self.shape) - len(self.places) :])
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


@dataclass(frozen=True)
class PlainTask:
    """Runs in a task: numbers of slices in, their records out."""

    reading: PlainReading
    slices: tuple[OffsetRange, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self.reading.records(self.slices[number])


def _offsets(messages: Sequence[Any]) -> Integers:
    """Those of messages in order, at least one: seldom has one to ask all of them."""
    first, last, rows = messages[0].offset(), messages[-1].offset(), len(messages)
    if last - first + 1 == rows:
        return np.arange(first, last + 1)
    return np.fromiter(map(_OFFSET, messages), np.int64, rows)


def _steps(ranges: Sequence[StepRange]) -> Callable[[Integers], Integers]:
    """The steps of offsets of a partition, which has these ranges."""
    starts = np.array([one.start for one in ranges], np.int64)
    steps = np.array([one.step for one in ranges], np.int64)
    return lambda offsets: steps[np.searchsorted(starts, offsets, "right") - 1]


def _messages(
    settings: Mapping[str, object], topic: str, wanted: OffsetRange, most_silent: float
) -> Iterator[Sequence[Any]]:
    """The committed messages of the range, in order, some thousand at a time.

    It is done at the first message, or the end of what is stable, at or past its end: the last offsets
    of a range may be transaction markers, which are never delivered. Raises KafkaException.
    """
    consumer = Consumer(dict(settings))
    try:
        consumer.assign([TopicPartition(topic, wanted.partition, wanted.start)])
        silent_seconds, reached, end = 0.0, wanted.start, _UNTOLD
        while reached < wanted.end:
            # It waits for as many as are asked for.
            found = consumer.consume(min(_CHUNK, wanted.end - reached), _POLL_SECONDS)
            messages = found
            if any(map(_ERROR, found)):
                messages = [message for message in found if message.error() is None]
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
                _check_silence(silent_seconds, most_silent, topic, wanted, end)
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


def _check_silence(seconds: float, most: float, topic: str, wanted: OffsetRange, end: int) -> None:
    """A new leader may know of an earlier end for a while. Raises SourceChanged, KafkaException."""
    if end < wanted.end and seconds > _END_SECONDS:
        raise SourceChanged(
            f"topic {topic}, partition {wanted.partition} ends early",
            expected=f"records up to offset {wanted.end}",
            found=f"its end at offset {end}",
            next_step="lockstep doctor shows what the topic holds",
        )
    if seconds > most:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"nothing came for {most:.0f} s"))
