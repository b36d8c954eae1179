"""Raw records of Kafka topics for verification: exactly given offset ranges, read_committed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from lockstep.control.kafka_options import KafkaConnection
from lockstep.control.model import OffsetRange
from lockstep.errors import SourceChanged, Unreachable

__all__ = ["RawRecord", "read_ranges"]

TIMEOUT_SECONDS = 30.0
POLL_SECONDS = 0.1
BATCH_RECORDS = 10_000


@dataclass(frozen=True, slots=True)
class RawRecord:
    """A record as it lies in the topic; a tombstone's value is None. `step_time` is the time of the step
    that took it in, without a zone, where somebody asks for it."""

    partition: int
    offset: int
    value: bytes | None
    key: bytes | None = None
    timestamp_milliseconds: int = 0
    headers: tuple[tuple[str, bytes | None], ...] = ()
    topic: str = ""
    step_time: datetime | None = None


def read_ranges(
    connection: KafkaConnection, topic: str, topic_id: str, ranges: Sequence[OffsetRange]
) -> Iterator[RawRecord]:
    """Yield the committed records of the ranges (one a partition), each partition in order.

    Raises SourceChanged where the topic is another one by now or has lost records of a range,
    Unreachable where the broker does not answer.
    """
    wanted = {range_.partition: range_ for range_ in ranges if range_.records > 0}
    if not wanted:
        return
    _check_topic(connection, topic, topic_id)
    consumer = Consumer(
        {
            **connection.librdkafka(),
            "group.id": "lockstep-verify",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "queued.min.messages": 200_000,
            "fetch.queue.backoff.ms": 5,
        }
    )
    try:
        for range_ in wanted.values():
            _check_held(consumer, topic, range_)
        consumer.assign([TopicPartition(topic, r.partition, r.start) for r in wanted.values()])
        yield from _records(consumer, topic, wanted)
    except KafkaException as error:
        raise Unreachable(
            f"topic {topic} could not be read from {connection.bootstrap}",
            found=str(error),
            next_step="start the broker, then verify again",
        ) from error
    finally:
        consumer.close()


def _check_topic(connection: KafkaConnection, topic: str, topic_id: str) -> None:
    # The client must live for as long as its answer is awaited.
    admin = AdminClient({**connection.librdkafka(), "log_level": 3})
    answer = admin.describe_topics(TopicCollection([topic]), request_timeout=TIMEOUT_SECONDS)
    try:
        described = str(answer[topic].result(timeout=TIMEOUT_SECONDS).topic_id)
        # Kafka's own tools write the same bits in the URL-safe alphabet.
        found = described.replace("+", "-").replace("/", "_").rstrip("=")
    except (KafkaException, TimeoutError) as error:
        is_late = isinstance(error, TimeoutError)
        if is_late or error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise Unreachable(
                f"the broker at {connection.bootstrap} does not describe topic {topic}",
                found=f"no answer within {TIMEOUT_SECONDS:g} s" if is_late else str(error),
                next_step="start the broker, then verify again",
            ) from error
        found = "no such topic"
    if found != topic_id:
        raise SourceChanged(
            f"topic {topic} is not the one whose offsets are recorded",
            expected=f"topic id {topic_id}",
            found=found,
            next_step="nothing can be verified against records that are gone",
        )


def _check_held(consumer: Consumer, topic: str, range_: OffsetRange) -> None:
    partition = TopicPartition(topic, range_.partition)
    first, _ = consumer.get_watermark_offsets(partition, timeout=TIMEOUT_SECONDS)
    if first > range_.start:
        raise SourceChanged(
            f"topic {topic}, partition {range_.partition}: records that the views rest on are gone",
            expected=f"offsets from {range_.start}",
            found=f"offsets from {first}",
            next_step="give the topic a longer retention; this pipeline cannot be verified",
        )


def _records(
    consumer: Consumer, topic: str, wanted: Mapping[int, OffsetRange]
) -> Iterator[RawRecord]:
    """A partition is done at the first record, or the end of what is stable, at or past its end:
    the last offsets of a range may be transaction markers, which are never delivered."""
    waiting = set(wanted)
    silent_seconds = 0.0
    while waiting:
        batch = consumer.consume(BATCH_RECORDS, timeout=POLL_SECONDS)
        silent_seconds = 0.0 if batch else silent_seconds + POLL_SECONDS
        if silent_seconds > TIMEOUT_SECONDS:
            raise KafkaException(
                KafkaError(KafkaError._TIMED_OUT, f"nothing came for {TIMEOUT_SECONDS:.0f} s")
            )
        for message in batch:
            partition, error = message.partition(), message.error()
            if partition not in waiting:
                continue
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            if message.offset() >= wanted[partition].end:
                waiting.discard(partition)
            elif error is None:
                yield _raw_record(message)
            else:
                raise SourceChanged(
                    f"topic {topic}, partition {partition} ends early",
                    expected=f"records up to offset {wanted[partition].end}",
                    found=f"its end at offset {message.offset()}",
                    next_step="nothing can be verified against records that are gone",
                )


def _raw_record(message: Any) -> RawRecord:
    _, milliseconds = message.timestamp()
    return RawRecord(
        message.partition(),
        message.offset(),
        message.value(),
        message.key(),
        milliseconds,
        tuple(message.headers() or ()),
        message.topic(),
    )
