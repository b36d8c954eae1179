"""The producer of one shard, and what can be asked of a sink's topic and markers, by confluent-kafka.

Imported at the workers too: nothing of Spark here. The marker of shard n is the committed offset of
the group `lockstep.<incarnation>.<sink>` on partition n of the topic: its offset is the step, its
metadata the step and the number of shards, and how much of the next step is there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from lockstep.errors import Unreachable, WrongUse
from lockstep_engine.sinks.kafka_plan import FencedError, Marker, Message

__all__ = ["SinkAddress", "TransactionLink", "linked", "partition_count", "read_markers"]

ANSWER_SECONDS = 15.0
COMMIT_SECONDS = 60.0
UNSTABLE_SECONDS = 30.0
TRANSACTION_TIMEOUT_MILLISECONDS = 300_000
TRANSACTION_SECONDS = 60.0
"""After so long a transaction is ended and another begun: well before the broker would abort it."""
NO_OFFSET = -1001

PRODUCER_SETTINGS: Mapping[str, object] = {
    "linger.ms": 50,
    "batch.size": 1 << 20,
    "compression.type": "zstd",
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 256 << 10,
    # Java's way of choosing a partition for a key, so that other producers' keys meet these.
    "partitioner": "murmur2_random",
    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MILLISECONDS,
    "log_level": 3,
}
_LOST_FENCE = (
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
    KafkaError.CONCURRENT_TRANSACTIONS,
)
_NOT_YET = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError._TIMED_OUT,
)

_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class SinkAddress:
    """Where a sink writes, and under which names. `connection` are librdkafka settings."""

    connection: Mapping[str, str]
    topic: str
    incarnation: str
    sink: str

    @property
    def group(self) -> str:
        """The group that holds the markers."""
        return f"lockstep.{self.incarnation}.{self.sink}"

    @property
    def transactional_id_prefix(self) -> str:
        """What the ids of all shards, and no others, begin with, before a number."""
        return f"lockstep/{self.incarnation}/{self.sink}/"

    def transactional_id(self, shard: int) -> str:
        """The id under which a shard's transactions are fenced."""
        return f"{self.transactional_id_prefix}{shard}"

    def shard_of(self, transactional_id: str) -> int | None:
        """The shard whose id this is; None for an id of others."""
        shard = transactional_id.removeprefix(self.transactional_id_prefix)
        is_own = shard != transactional_id and shard.isdecimal()
        return int(shard) if is_own else None


class TransactionLink:
    """Implements `kafka_plan.ShardLink`; close it when done. Errors: FencedError, Unreachable."""

    def __init__(self, address: SinkAddress, shard: int, shards: int) -> None:
        self._address = address
        self._shard = shard
        identity = {"transactional.id": address.transactional_id(shard)}
        self._producer = Producer({**PRODUCER_SETTINGS, **address.connection, **identity})
        self._origin = (
            ("lockstep-incarnation", address.incarnation.encode()),
            ("lockstep-sink", f"{address.sink}/{shard}/{shards}".encode()),
        )
        self._headers: dict[int, list[tuple[str, bytes]]] = {}
        self._began = 0.0

    def open(self) -> Marker | None:
        """Whoever has this shard's id is fenced and its transaction aborted; then the marker is
        read, which nobody else can move any more."""
        self._asked(lambda: self._producer.init_transactions(ANSWER_SECONDS))
        return read_markers(self._address, [self._shard]).get(self._shard)

    def begin(self) -> None:
        """Start a transaction."""
        self._asked(self._producer.begin_transaction)
        self._began = time.monotonic()

    def send(self, message: Message) -> bool:
        """Hand a message to the client, which sends it in the background."""
        headers = self._headers.get(message.step)
        if headers is None:
            # Steps come in order: only the newest is worth keeping.
            headers = [("lockstep-step", str(message.step).encode()), *self._origin]
            self._headers = {message.step: headers}
        while True:
            try:
                self._producer.produce(
                    self._address.topic,
                    value=message.value,
                    key=message.key,
                    partition=message.partition,
                    headers=headers,
                )
                return time.monotonic() - self._began > TRANSACTION_SECONDS
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                raise _translated(error, self._address) from error

    def abort(self) -> None:
        """Give the transaction up; failing to say so is harmless, as it is then fenced later."""
        try:
            self._producer.abort_transaction(ANSWER_SECONDS)
        except KafkaException:
            return

    def commit(self, marker: Marker) -> None:
        """All that was sent since `begin`, and the marker, at once."""
        place = TopicPartition(
            self._address.topic, self._shard, marker.offset, metadata=marker.metadata
        )

        def commit() -> None:
            consumer = Consumer({**self._address.connection, "group.id": self._address.group})
            try:
                self._producer.send_offsets_to_transaction(
                    [place], consumer.consumer_group_metadata(), ANSWER_SECONDS
                )
            finally:
                consumer.close()
            self._producer.commit_transaction(COMMIT_SECONDS)

        self._asked(commit)

    def close(self) -> None:
        """Drop what was not committed."""
        self._producer.purge()

    def _asked(self, question: Callable[[], _Answer]) -> _Answer:
        try:
            return question()
        except KafkaException as error:
            raise _translated(error, self._address) from error


@contextmanager
def linked(address: SinkAddress, shard: int, shards: int) -> Iterator[TransactionLink]:
    """The producer of a shard, closed at the end; nobody has to wait for what it leaves undone."""
    link = TransactionLink(address, shard, shards)
    try:
        yield link
    except BaseException:
        link.abort()
        raise
    finally:
        link.close()


def partition_count(address: SinkAddress) -> int:
    """How many partitions the topic has. Raises WrongUse where it does not exist, Unreachable."""
    try:
        topics = AdminClient({**address.connection, "log_level": 2}).list_topics(
            address.topic, timeout=ANSWER_SECONDS
        )
    except KafkaException as error:
        raise _translated(error, address) from error
    found = topics.topics[address.topic]
    if found.error is not None or not found.partitions:
        bootstrap = address.connection["bootstrap.servers"]
        raise WrongUse(
            f"sink {address.sink}: topic {address.topic} does not exist",
            expected=f"topic {address.topic} on {bootstrap}",
            found=str(found.error),
            next_step=f"kafka-topics.sh --bootstrap-server {bootstrap} --create --topic "
            f"{address.topic} --partitions 4, then publish again",
        )
    return len(found.partitions)


def read_markers(
    address: SinkAddress, shards: Iterable[int], patience_seconds: float = UNSTABLE_SECONDS
) -> dict[int, Marker]:
    """The markers of these shards, those that have none left out.

    Waits while a transaction on one of them is undecided: an unstable marker reads as absent.
    Raises Unreachable once that has lasted for `patience_seconds`.
    """
    wanted = [TopicPartition(address.topic, shard) for shard in shards]
    # A consumer that never subscribes: the admin client's call for this crashes the process where
    # the group's coordinator is only starting (librdkafka 2.16, `rd_kafka_cgrp_op` without a group).
    consumer = Consumer(
        {
            **address.connection,
            "group.id": address.group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "log_level": 2,
        }
    )
    try:
        found = _stable_offsets(consumer, wanted, address, patience_seconds)
    finally:
        consumer.close()
    return {
        place.partition: Marker.read(place.offset, place.metadata)
        for place in found
        if place.offset != NO_OFFSET
    }


def _stable_offsets(
    consumer: Consumer, wanted: list[TopicPartition], address: SinkAddress, patience_seconds: float
) -> list[Any]:
    """The group's offsets, once no transaction on them is undecided, and the group's coordinator is
    there, which it is not yet where a broker has just come up."""
    deadline = time.monotonic() + patience_seconds
    timeout = min(ANSWER_SECONDS, patience_seconds)
    while True:
        try:
            found: list[Any] = consumer.committed(wanted, timeout=timeout)
            unsure = [place.error for place in found if place.error is not None]
        except KafkaException as error:
            if error.args[0].code() not in _NOT_YET:
                raise _translated(error, address) from error
            unsure = [error.args[0]]
        if not unsure:
            return found
        if time.monotonic() > deadline:
            raise Unreachable(
                f"sink {address.sink}: its markers in Kafka are not readable",
                expected=f"an answer within {patience_seconds:.0f} seconds",
                found=str(unsure[0]),
                next_step="publish again: it ends what transaction is open",
            )
        time.sleep(0.1)


def _translated(error: KafkaException, address: SinkAddress) -> Exception:
    cause = error.args[0]
    if cause.code() in _LOST_FENCE:
        return FencedError(f"{FencedError.TEXT} sink {address.sink}: {cause.str()}")
    if cause.code() == KafkaError.INVALID_RECORD:
        return WrongUse(
            f"sink {address.sink}: topic {address.topic} does not take its messages",
            expected="a key in each message, where the topic is compacted",
            found=cause.str(),
            next_step="set the sink's option 'key' and deploy again, or write to another topic",
        )
    return Unreachable(
        f"sink {address.sink}: the Kafka broker at {address.connection['bootstrap.servers']} "
        f"did not do what topic {address.topic} needs",
        found=f"{cause.name()}: {cause.str()}",
        next_step="see that the broker runs (`lockstep status`), then publish again",
    )
