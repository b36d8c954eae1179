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
from functools import cached_property
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
from lockstep.threads import in_parallel
from lockstep_engine.sinks.kafka_plan import FencedError, Marker, Message, ShardWork

__all__ = [
    "SinkAddress",
    "SinkClient",
    "TransactionLink",
    "end_unread",
    "linked",
    "partition_count",
    "read_markers",
]

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
    # Who asks for reports of all messages pays for each.
    "delivery.report.only.error": True,
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


class _Refusal:
    """The first message that the broker did not take. It does not know the link: the client keeps the
    callbacks of messages that it gives up for good."""

    def __init__(self) -> None:
        self.error: KafkaError | None = None

    def __call__(self, error: KafkaError | None, _message: object) -> None:
        self.error = self.error or error


class TransactionLink:
    """Implements `kafka_plan.ShardLink`; close it when done. Errors: FencedError, Unreachable."""

    def __init__(self, address: SinkAddress, shard: int, shards: int) -> None:
        self._address = address
        self._shard = shard
        identity = {"transactional.id": address.transactional_id(shard)}
        self._producer = Producer({**PRODUCER_SETTINGS, **address.connection, **identity})
        self.shards = shards
        """How many shards there are, which messages say."""
        self._headers: dict[int, list[tuple[str, bytes]]] = {}
        self._began, self._has_begun = 0.0, False
        self._refusal = _Refusal()
        self._marker: Marker | None = None
        self._is_fenced = self._is_open = False

    def fence(self) -> None:
        """Once in its life: end the transaction of whoever has this shard's id. Nobody else can move its
        marker then without fencing this link, which its next commit finds out."""
        self._asked(lambda: self._producer.init_transactions(ANSWER_SECONDS))
        self._is_fenced = True

    def opened_at(self, marker: Marker | None) -> None:
        """What the marker says now. One that was read before the fence may have moved since."""
        if self._is_fenced:
            self._marker, self._is_open = marker, True

    def open(self) -> Marker | None:
        """Fence, and read the marker, as far as that is not done yet."""
        if not self._is_fenced:
            self.fence()
        if not self._is_open:
            self.opened_at(read_markers(self._address, [self._shard]).get(self._shard))
        return self._marker

    def begin(self) -> None:
        """Start a transaction."""
        self._asked(self._producer.begin_transaction)
        self._began, self._has_begun = time.monotonic(), True

    def send(self, message: Message) -> bool:
        """Hand a message to the client, which sends it in the background."""
        headers = self._headers.get(message.step)
        if headers is None:
            # Steps come in order: only the newest is worth keeping.
            headers = [
                ("lockstep-step", str(message.step).encode()),
                ("lockstep-incarnation", self._address.incarnation.encode()),
                ("lockstep-sink", f"{self._address.sink}/{self._shard}/{self.shards}".encode()),
            ]
            self._headers = {message.step: headers}
        while True:
            try:
                self._producer.produce(
                    self._address.topic,
                    value=message.value,
                    key=message.key,
                    partition=message.partition,
                    headers=headers,
                    on_delivery=self._refusal,
                )
                return time.monotonic() - self._began > TRANSACTION_SECONDS
            except BufferError:
                self._asked(lambda: self._producer.poll(0.1))
            except KafkaException as error:
                raise _translated(self._cause(error), self._address) from error

    def abort(self) -> None:
        """Give the transaction up, if there is one; failing to say so is harmless, as it is then
        fenced later."""
        if not self._has_begun:
            return
        self._has_begun = False
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
            self._producer.send_offsets_to_transaction([place], self._group, ANSWER_SECONDS)
            self._producer.commit_transaction(COMMIT_SECONDS)

        self._asked(commit)
        self._marker, self._has_begun = marker, False

    @cached_property
    def _group(self) -> Any:
        """The group whose marker moves, as the client wants to have it named: it never has a member."""
        consumer = Consumer({**self._address.connection, "group.id": self._address.group})
        try:
            return consumer.consumer_group_metadata()
        finally:
            consumer.close()

    def close(self) -> None:
        """Drop what was not committed, and the producer with it. The client never frees an error that
        it raises while another is handled, nor the frames of both, which know this link."""
        self._producer.purge()
        del self._producer

    def _asked(self, question: Callable[[], _Answer]) -> _Answer:
        try:
            return question()
        except KafkaException as error:
            raise _translated(self._cause(error), self._address) from error

    def _cause(self, error: KafkaException) -> KafkaException:
        """The reason, where the client only says that it is of no use any more, or in no state for
        this: it was fenced, or the broker has refused a message."""
        code = error.args[0].code()
        try:
            if code == KafkaError._FATAL:
                # A client that has failed for good begins nothing, and says why.
                self._producer.begin_transaction()
            elif code == KafkaError._STATE:
                self._producer.poll(0)
        except KafkaException as reason:
            return reason
        is_refused = code == KafkaError._STATE and self._refusal.error is not None
        return KafkaException(self._refusal.error) if is_refused else error


class SinkClient:
    """All that one publish has open towards a sink: the producers that it has fenced shards with, which
    send as well, and a consumer of the markers' group, which never subscribes. Close it when done.

    Errors: FencedError, Unreachable, WrongUse.
    """

    def __init__(self, address: SinkAddress) -> None:
        self.address = address
        self._links: dict[int, TransactionLink] = {}
        self._consumer = _marker_consumer(address)

    def link(self, shard: int, shards: int) -> TransactionLink:
        """The producer of a shard, where there are so many."""
        link = self._links.get(shard)
        if link is None:
            link = self._links[shard] = TransactionLink(self.address, shard, shards)
        link.shards = shards
        return link

    def link_of(self, work: ShardWork) -> TransactionLink:
        """The producer of the shard that a piece of work is for."""
        return self.link(work.shard, work.shards)

    def fence(self, shards: Iterable[int]) -> None:
        """End the transactions of whoever publishes under these shards' ids now."""
        wanted = list(shards)
        for shard in wanted:
            # A producer fences once in its life.
            if shard in self._links:
                self._links.pop(shard).close()
        in_parallel(TransactionLink.fence, [self.link(shard, 0) for shard in wanted])

    def partitions(self) -> int:
        """How many partitions the topic has. Raises WrongUse where it does not exist."""
        return _partitions_of(self._consumer, self.address)

    def markers(
        self, shards: Iterable[int], patience_seconds: float = UNSTABLE_SECONDS
    ) -> dict[int, Marker]:
        """As `read_markers`; producers that have fenced their shard go on from there."""
        wanted = list(shards)
        found = _markers(self._consumer, self.address, wanted, patience_seconds)
        for shard in self._links.keys() & set(wanted):
            self._links[shard].opened_at(found.get(shard))
        return found

    def __enter__(self) -> SinkClient:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        for link in self._links.values():
            if error is not None:
                link.abort()
            link.close()
        self._consumer.close()


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
    return _partitions_of(AdminClient({**address.connection, "log_level": 2}), address)


def _partitions_of(client: AdminClient | Consumer, address: SinkAddress) -> int:
    try:
        topics = client.list_topics(address.topic, timeout=ANSWER_SECONDS)
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
    consumer = _marker_consumer(address)
    try:
        return _markers(consumer, address, shards, patience_seconds)
    finally:
        consumer.close()


def _marker_consumer(address: SinkAddress) -> Consumer:
    """A consumer that never subscribes: the admin client's call for markers crashes the process where
    the group's coordinator is only starting (librdkafka 2.16, `rd_kafka_cgrp_op` without a group)."""
    return Consumer(
        {
            **address.connection,
            "group.id": address.group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "log_level": 2,
        }
    )


def _markers(
    consumer: Consumer, address: SinkAddress, shards: Iterable[int], patience_seconds: float
) -> dict[int, Marker]:
    wanted = [TopicPartition(address.topic, shard) for shard in shards]
    found = _stable_offsets(consumer, wanted, address, patience_seconds)
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


def end_unread(address: SinkAddress, error: KafkaException | TimeoutError) -> Unreachable:
    """That the broker does not say where the topic ends; a future that is given up has no text."""
    silence = f"no answer within {ANSWER_SECONDS:g} s"
    return Unreachable(
        f"sink {address.sink}: the end of topic {address.topic} could not be read",
        found=silence if isinstance(error, TimeoutError) else str(error),
        next_step="see that the broker runs (`lockstep status`), then publish again",
    )


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
