"""Kafka in memory: source topics, and an output topic with transactions, fences and group offsets.

`Sources` is the twin of `control.ports.Sources`; `Link` that of the engine's `TransactionLink`; the
functions beside it are twins of those that the Kafka sink asks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from zlib import crc32

from sim_world import DAY, SECOND, T0, World

from lockstep.control.ports import PartitionBounds, TopicBounds
from lockstep.errors import Unreachable
from lockstep_engine.sinks.kafka_plan import FencedError, Marker, Message

TRANSACTION_TIMEOUT = 300 * SECOND
OFFSETS_RETENTION = 7 * DAY


# ── source topics ───────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Record:
    """What a producer wrote; `time` is its timestamp in milliseconds since T0."""

    key: str
    value: int
    time: int


@dataclass
class SourcePartition:
    """Offsets hold records, or None where a transaction's marker or an aborted record stands. From
    `open_from` on, records belong to a transaction that is not decided yet."""

    log: list[Record | None] = field(default_factory=list)
    open_from: int | None = None

    @property
    def last_stable(self) -> int:
        return len(self.log) if self.open_from is None else self.open_from


@dataclass
class SourceTopic:
    """`made` counts how often a topic of this name has been made."""

    partitions: list[SourcePartition]
    made: int = 1

    def read(self, partition: int, start: int, end: int) -> list[tuple[int, Record]]:
        """Committed records of [start, end) with their offsets, as `read_committed` gives them."""
        found = self.partitions[partition]
        stop = min(end, found.last_stable)
        span = range(start, stop)
        return [(at, record) for at in span if (record := found.log[at]) is not None]

    def decide(self, world: World) -> None:
        """End the open transactions: commit or abort, and a marker that takes an offset."""
        for partition in self.partitions:
            if partition.open_from is not None:
                if world.random.random() < 0.5:
                    span = range(partition.open_from, len(partition.log))
                    partition.log[partition.open_from :] = [None for _ in span]
                partition.log.append(None)
                partition.open_from = None

    def produce(self, world: World, topic: str) -> None:
        """Some records to some partitions; their timestamps may lie."""
        self.decide(world)
        for number, partition in enumerate(self.partitions):
            if world.chance("open_transaction_per_partition"):
                partition.open_from = len(partition.log)
            for _ in range(world.random.randint(0, 4)):
                lie = world.random.choice((0, 0, 0, -60 * SECOND, 3_600 * SECOND))
                key = f"{topic}{number}{world.random.choice('xy')}"
                record = Record(key, world.random.randint(-5, 9), max(0, world.now + lie))
                partition.log.append(record)


@dataclass(frozen=True)
class Sources:
    """Implements `control.ports.Sources`."""

    world: World
    topics: Mapping[str, SourceTopic]
    start_at_latest: frozenset[str] = frozenset()

    def bounds(self, source: str) -> TopicBounds:
        def look() -> TopicBounds:
            partitions = self.topics[source].partitions
            found = tuple(
                PartitionBounds(number, 0, partition.last_stable)
                for number, partition in enumerate(partitions)
            )
            return TopicBounds(source, topic_id(source, self.topics[source].made), found)

        return self.world.exchange(f"bounds {source}", look)

    def offsets_at(
        self, source: str, times: Sequence[datetime]
    ) -> tuple[Mapping[int, int | None], ...]:
        def first(partition: SourcePartition, time: datetime) -> int | None:
            wanted = (time - T0) // timedelta(milliseconds=1)
            records = enumerate(partition.log)
            return next((at for at, r in records if r is not None and r.time >= wanted), None)

        def look() -> tuple[Mapping[int, int | None], ...]:
            partitions = self.topics[source].partitions
            return tuple({n: first(p, time) for n, p in enumerate(partitions)} for time in times)

        return self.world.exchange(f"offsets {source}", look)


def topic_id(source: str, made: int) -> str:
    return f"id{made}_{source}"


# ── the output topic ────────────────────────────────────────────────────────────────────────────


Place = tuple[str, int]
"""A group and a shard: where a marker stands."""


def group_of(producer: str) -> str:
    """A sink's, of one life of a pipeline."""
    return producer.rpartition("/")[0]


@dataclass(eq=False)
class Transaction:
    """Of the producer `id` in its `epoch`; `offsets` are the group's, once they have been sent."""

    id: str
    epoch: int
    began: int
    offsets: dict[Place, Marker] = field(default_factory=dict)
    outcome: str = "open"

    @property
    def group(self) -> str:
        return group_of(self.id)


@dataclass(frozen=True)
class Sent:
    """A record of the output topic."""

    transaction: Transaction
    message: Message
    shard: int
    shards: int


class Cluster:
    """One output topic, the ids that write to it, and the groups that hold their markers."""

    def __init__(self, world: World, partitions: int) -> None:
        self.world = world
        self.logs: list[list[Sent]] = [[] for _ in range(partitions)]
        self._epochs: dict[str, int] = {}
        self._open: dict[str, Transaction] = {}
        self._markers: dict[Place, Marker] = {}
        self._committed_at = 0

    def committed(self, partition: int) -> list[Sent]:
        """What `read_committed` gives: up to the first record of an open transaction."""
        self._tick()
        found = []
        for sent in self.logs[partition]:
            if sent.transaction.outcome == "open":
                break
            if sent.transaction.outcome == "committed":
                found.append(sent)
        return found

    def init(self, producer: str) -> int:
        """A new epoch for an id; what an older one left open is aborted."""
        self._tick()
        self._epochs[producer] = self._epochs.get(producer, 0) + 1
        self._end(producer, "aborted")
        return self._epochs[producer]

    def send(
        self, producer: str, epoch: int, place: int, sent: Callable[[Transaction], Sent]
    ) -> None:
        transaction = self._transaction(producer, epoch)
        self.logs[place].append(sent(transaction))

    def send_offset(self, producer: str, epoch: int, shard: int, marker: Marker) -> None:
        self._transaction(producer, epoch).offsets[group_of(producer), shard] = marker

    def end(self, producer: str, epoch: int, outcome: str) -> None:
        self._check(producer, epoch)
        self._end(producer, outcome)

    def markers(self, group: str, shards: Iterable[int]) -> dict[int, Marker]:
        self._tick()
        places = {shard: self._markers.get((group, shard)) for shard in shards}
        return {shard: marker for shard, marker in places.items() if marker is not None}

    def forget(self, group: str, shards: Iterable[int]) -> None:
        """What becomes of markers that are not committed again for a long time, each by itself."""
        for shard in shards:
            self._markers.pop((group, shard), None)

    def is_stable(self, group: str, shards: Iterable[int]) -> bool:
        self._tick()
        undecided = {place for open_ in self._open.values() for place in open_.offsets}
        return undecided.isdisjoint((group, shard) for shard in shards)

    def _check(self, producer: str, epoch: int) -> None:
        self._tick()
        if self._epochs.get(producer) != epoch:
            raise FencedError(f"{FencedError.TEXT} id {producer}")

    def _transaction(self, producer: str, epoch: int) -> Transaction:
        self._check(producer, epoch)
        if producer not in self._open:
            self._open[producer] = Transaction(producer, epoch, self.world.now)
        return self._open[producer]

    def _end(self, producer: str, outcome: str) -> None:
        transaction = self._open.pop(producer, None)
        if transaction is not None:
            transaction.outcome = outcome
            if outcome == "committed" and transaction.offsets:
                self._markers.update(transaction.offsets)
                self._committed_at = self.world.now

    def _tick(self) -> None:
        """What the broker does as time goes by."""
        now = self.world.now
        for producer, transaction in list(self._open.items()):
            if now - transaction.began > TRANSACTION_TIMEOUT:
                self._epochs[producer] += 1
                self._end(producer, "aborted")
        if self._markers and now - self._committed_at > OFFSETS_RETENTION:
            self.world.note("the markers expire")
            self._markers = {}


class Link:
    """Implements `kafka_plan.ShardLink` over the network."""

    def __init__(self, cluster: Cluster, sink: str, shard: int, shards: int) -> None:
        self._cluster = cluster
        self._sink = sink
        self._id = f"{sink}/{shard}"
        self._shard = shard
        self.shards = shards
        self._epoch = 0
        self._marker: Marker | None = None
        self._is_fenced = self._is_open = False

    def fence(self) -> None:
        self._epoch = self._asked("init", lambda: self._cluster.init(self._id))
        self._is_fenced = True

    def opened_at(self, marker: Marker | None) -> None:
        if self._is_fenced:
            self._marker, self._is_open = marker, True

    def open(self) -> Marker | None:
        if not self._is_fenced:
            self.fence()
        if not self._is_open:
            found = read_markers(self._cluster, self._sink, [self._shard])
            self.opened_at(found.get(self._shard))
        return self._marker

    def begin(self) -> None:
        """Nothing goes out until the first record."""

    def send(self, message: Message) -> bool:
        assert message.key is not None, "every record of the simulation has a key"
        place = crc32(message.key) % len(self._cluster.logs)
        self._cluster.world.pause()
        self._cluster.send(
            self._id,
            self._epoch,
            place,
            lambda transaction: Sent(transaction, message, self._shard, self.shards),
        )
        return self._cluster.world.random.random() < 0.02

    def abort(self) -> None:
        try:
            self._asked("abort", lambda: self._cluster.end(self._id, self._epoch, "aborted"))
        except (FencedError, Unreachable):
            return

    def commit(self, marker: Marker) -> None:
        cluster, epoch = self._cluster, self._epoch
        self._asked(
            f"offsets {marker}", lambda: cluster.send_offset(self._id, epoch, self._shard, marker)
        )
        self._asked("commit", lambda: cluster.end(self._id, epoch, "committed"))
        self._marker = marker

    def _asked(self, what: str, act: Callable[[], Any]) -> Any:
        def acted() -> tuple[Any, FencedError | None]:
            try:
                return act(), None
            except FencedError as error:
                return None, error

        answer, error = self._cluster.world.exchange(f"{what} {self._id}", acted)
        if error is not None:
            raise error
        return answer


def read_markers(cluster: Cluster, group: str, shards: Iterable[int]) -> dict[int, Marker]:
    """The markers of these shards, once no transaction on them is undecided; or Unreachable."""
    wanted = list(shards)
    cluster.world.wait(lambda: cluster.is_stable(group, wanted), 30 * SECOND)

    def look() -> dict[int, Marker]:
        if not cluster.is_stable(group, wanted):
            raise Unreachable("the markers are not readable")
        found = cluster.markers(group, wanted)
        return {s: Marker.read(m.offset, m.metadata) for s, m in found.items()}

    return cluster.world.exchange(f"markers {wanted}", look)


def read_tail(cluster: Cluster, group: str, published: int) -> dict[tuple[int, int, int], int]:
    """By (shard, number of shards, step), how many records of steps beyond `published` there are."""

    def look() -> dict[tuple[int, int, int], int]:
        return Counter(
            (sent.shard, sent.shards, sent.message.step)
            for partition in range(len(cluster.logs))
            for sent in cluster.committed(partition)
            if sent.transaction.group == group and sent.message.step > published
        )

    return cluster.world.exchange("the topic's end", look)
