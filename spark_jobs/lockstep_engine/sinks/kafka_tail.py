"""What a sink's topic itself says is published, for when markers have expired.

Each record names its step, incarnation, sink, shard and number of shards. Records of a shard stand
in order of steps, so those of the steps that the store does not know to be published, counted, tell
how far each shard is: if they are all still there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from lockstep_engine.sinks.kafka_link import ANSWER_SECONDS, SinkAddress, end_unread

__all__ = ["Tail", "own_step", "read_tail"]

CHUNK_RECORDS = 5_000


@dataclass(frozen=True)
class Tail:
    """By (shard, number of shards, step), the records of steps after the published one.

    `doubt` says why some may be missing, '' where none can be.
    """

    records: Mapping[tuple[int, int, int], int]
    doubt: str


def read_tail(address: SinkAddress, partitions: int, published: int) -> Tail:
    """Read each partition backwards in chunks, until a record of this sink at or before `published`,
    or the partition's beginning. Raises Unreachable."""
    consumer = Consumer(
        {
            **address.connection,
            "group.id": f"{address.group}.tail",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": False,
            "log_level": 2,
        }
    )
    found: Counter[tuple[int, int, int]] = Counter()
    try:
        doubt = ""
        for partition in range(partitions):
            is_whole = _read_back(consumer, address, partition, published, found)
            if not is_whole and not doubt:
                doubt = f"records at the beginning of partition {partition} are gone"
        # Compaction keeps the newest record of each key. Where none is of these steps, all that there
        # can have been is the end of keys, and to say that again changes nothing.
        if found and not doubt and _is_compacted(address):
            doubt = "the topic is compacted"
    except KafkaException as error:
        raise end_unread(address, error) from error
    finally:
        consumer.close()
    return Tail(found, doubt)


def own_step(headers: Mapping[str, bytes], address: SinkAddress) -> tuple[int, int, int] | None:
    """Shard, number of shards and step of a record of this sink; None for others' records."""
    if headers.get("lockstep-incarnation") != address.incarnation.encode():
        return None
    sink, shard, shards = headers["lockstep-sink"].decode().rsplit("/", 2)
    if sink != address.sink:
        return None
    return int(shard), int(shards), int(headers["lockstep-step"])


def _is_compacted(address: SinkAddress) -> bool:
    topic = ConfigResource(ConfigResource.Type.TOPIC, address.topic)
    admin = AdminClient({**address.connection, "log_level": 2})
    (asked,) = admin.describe_configs([topic]).values()
    try:
        described = asked.result(ANSWER_SECONDS)
    except (KafkaException, TimeoutError) as error:
        raise end_unread(address, error) from error
    return "compact" in described["cleanup.policy"].value


def _read_back(
    consumer: Consumer,
    address: SinkAddress,
    partition: int,
    published: int,
    found: Counter[tuple[int, int, int]],
) -> bool:
    """Add what the partition has; whether nothing of it can be gone."""
    place = TopicPartition(address.topic, partition)
    first, end = consumer.get_watermark_offsets(place, timeout=ANSWER_SECONDS)
    while end > first:
        start = max(first, end - CHUNK_RECORDS)
        reached_known = False
        for headers in _headers_between(consumer, place, start, end):
            own = own_step(headers, address)
            if own is not None and own[-1] > published:
                found[own] += 1
            elif own is not None:
                reached_known = True
        if reached_known:
            return True
        end = start
    return bool(first == 0)


def _headers_between(
    consumer: Consumer, place: TopicPartition, start: int, end: int
) -> list[Mapping[str, bytes]]:
    """Headers of the committed records in [start, end); fewer records than offsets are normal."""
    consumer.assign([TopicPartition(place.topic, place.partition, start)])
    headers: list[Mapping[str, bytes]] = []
    while True:
        for message in consumer.consume(CHUNK_RECORDS, timeout=0.2):
            if message.error() is not None:
                raise KafkaException(message.error())
            if message.offset() < end:
                headers.append(dict(message.headers() or ()))
        (position,) = consumer.position([place])
        if position.offset >= end or _is_at_end(consumer, place, position.offset):
            return headers


def _is_at_end(consumer: Consumer, place: TopicPartition, position: int) -> bool:
    """The last offsets are transaction markers, which are never delivered and move no position."""
    if position < 0:
        return False
    stable = consumer.get_watermark_offsets(place, timeout=ANSWER_SECONDS)[1]
    return bool(position >= stable - 1)
