"""What a sink's topic itself says is published, for when the markers have expired.

Each record names its step, incarnation, sink, shard and number of shards. Records of a shard stand
in order of steps, and a shard's records of a step came with those of all steps before it, so the
newest record of a shard beyond what the store knows is as good as a marker.
"""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaException, TopicPartition

from lockstep.errors import Unreachable
from lockstep_engine.sinks.kafka_link import ANSWER_SECONDS, SinkAddress
from lockstep_engine.sinks.kafka_plan import Marker

__all__ = ["own_step", "tail_markers"]

CHUNK_RECORDS = 5_000


def tail_markers(address: SinkAddress, partitions: int, published: int) -> dict[int, Marker]:
    """Markers of shards that have records of steps after `published`, read from the topic's end.

    Reads each partition backwards in chunks until a record of this sink at or before `published`,
    or the partition's beginning. Raises Unreachable.
    """
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
    found: dict[int, Marker] = {}
    try:
        for partition in range(partitions):
            _read_back(consumer, address, partition, published, found)
    except KafkaException as error:
        raise Unreachable(
            f"sink {address.sink}: the end of topic {address.topic} could not be read",
            found=str(error),
            next_step="see that the broker runs (`lockstep status`), then publish again",
        ) from error
    finally:
        consumer.close()
    return found


def own_step(headers: Mapping[str, bytes], address: SinkAddress) -> tuple[int, int, int] | None:
    """Shard, step and number of shards of a record of this sink; None for others' records."""
    if headers.get("lockstep-incarnation") != address.incarnation.encode():
        return None
    sink, shard, shards = headers["lockstep-sink"].decode().rsplit("/", 2)
    if sink != address.sink:
        return None
    return int(shard), int(headers["lockstep-step"]), int(shards)


def _read_back(
    consumer: Consumer,
    address: SinkAddress,
    partition: int,
    published: int,
    found: dict[int, Marker],
) -> None:
    place = TopicPartition(address.topic, partition)
    first, end = consumer.get_watermark_offsets(place, timeout=ANSWER_SECONDS)
    while end > first:
        start = max(first, end - CHUNK_RECORDS)
        reached_known = False
        for headers in _headers_between(consumer, place, start, end):
            own = own_step(headers, address)
            if own is None:
                continue
            shard, step, shards = own
            if step <= published:
                reached_known = True
            elif shard not in found or found[shard].step < step:
                found[shard] = Marker(step, shards)
        if reached_known:
            return
        end = start


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
