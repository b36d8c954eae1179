"""Opening a sink: whoever is at work on it is fenced, then its markers say how far it is.

Where markers are lost, the store knows that all up to the recorded step is published. Whether more
is, matters only where an earlier publish has recorded its intent and not its end: then the topic
itself decides, and where it cannot, nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from kafka import KafkaAdminClient
from kafka.admin import TransactionState
from kafka.errors import KafkaError

from lockstep.control.kafka_options import KafkaConnection
from lockstep.control.ports import Progress
from lockstep.errors import Retry, StateDiverged, Unreachable, WrongUse
from lockstep.sql.circuit import SinkTable
from lockstep_engine.open_transactions import (
    OpenTransaction,
    abort_transaction,
    open_transactions,
)
from lockstep_engine.sinks.kafka_link import (
    ANSWER_SECONDS,
    SinkAddress,
    SinkClient,
    end_unread,
)
from lockstep_engine.sinks.kafka_plan import (
    FencedError,
    Marker,
    SinkPlan,
    lost_markers,
    markers_from_tail,
    plan_shards,
)
from lockstep_engine.sinks.kafka_tail import Tail, read_tail

__all__ = ["OpenedSink", "SinkOpening", "sink_address", "steps_address"]

PATIENCE_SECONDS = 3.0
"""How long markers may be unreadable before it is asked whose transaction that is."""


@dataclass(frozen=True)
class OpenedSink:
    """A sink as it is now that nobody else is at work on it: the partitions of its topic, its markers,
    and with which shards to go on from them. `client` has fenced them."""

    client: SinkClient
    partitions: int
    markers: Mapping[int, Marker]
    plan: SinkPlan

    @property
    def after(self) -> int:
        """The step up to which every shard is published."""
        return min(self.plan.after.values())


def sink_address(sink: SinkTable, incarnation: str) -> SinkAddress:
    """Where a sink writes. Raises WrongUse for connection options that do not fit."""
    return SinkAddress(
        _connection(sink).librdkafka(), sink.options["topic"], incarnation, sink.name
    )


def steps_address(sink: SinkTable, incarnation: str) -> SinkAddress | None:
    """Where a sink says which steps are complete: a sink of one shard, with ids of its own. None
    where it does not."""
    topic = sink.options.get("steps_topic")
    if topic is None:
        return None
    return SinkAddress(_connection(sink).librdkafka(), topic, incarnation, f"{sink.name}/steps")


@dataclass(frozen=True)
class SinkOpening:
    """What opening a sink depends on: steps up to `published` are recorded as published, those up to
    `last_step` are to be, and `was_intended` says that they may be in part."""

    sink: SinkTable
    published: int
    last_step: int
    was_intended: bool
    progress: Progress

    def open(self, client: SinkClient, shards: int | None = None) -> OpenedSink:
        """Fence every shard that may be at work, read the markers, and stamp those that are lost and
        a new number of shards (None: as the sink's option says); the first publish stamps as well, so
        that whoever comes next knows which shards there were.

        Raises WrongUse, StateDiverged, Unreachable, FencedError; Retry where an open transaction of
        others hides what is published.
        """
        address, partitions = client.address, client.partitions()
        wanted = self._wanted_shards(partitions) if shards is None else shards
        # Markers that a transaction is about to move cannot be read before it has ended.
        client.fence(range(wanted))
        before = self._readable(client, partitions)
        others = sorted(s for s in before if wanted <= s < _most_shards(before))
        client.fence(others)
        recorded = {**before, **(client.markers(others) if others else {})}
        waiting = self._ended(client, partitions)
        restored = self._restored(address, partitions, wanted, recorded, waiting)
        _stamp(client, recorded, restored)
        recorded = {**recorded, **restored}
        published = self.published
        if shards is not None:
            # The option was left out for a while: what was published then is said now.
            published = min([published, *(marker.step for marker in recorded.values())])
        plan = plan_shards(recorded, wanted, published, self.sink.name)
        _stamp(client, recorded, plan.stamp)
        return OpenedSink(client, partitions, {**recorded, **plan.stamp}, plan)

    def _wanted_shards(self, partitions: int) -> int:
        text = self.sink.options.get("shards", "1")
        if text.isdecimal() and 1 <= int(text) <= partitions:
            return int(text)
        raise WrongUse(
            f"sink {self.sink.name} has an option 'shards' that cannot be used",
            expected=f"a number from 1 to {partitions}, the partitions of topic "
            f"{self.sink.options['topic']}",
            found=text,
            next_step=f"correct it at {self.sink.position} and deploy again",
        )

    # ── transactions that are still open ────────────────────────────────────────────────────────

    def _readable(self, client: SinkClient, partitions: int) -> dict[int, Marker]:
        """All markers; of a shard that was retired while its transaction is open, too."""
        try:
            return client.markers(range(partitions), PATIENCE_SECONDS)
        except Unreachable:
            with self._asking(client.address) as admin:
                listed = admin.list_transactions(
                    state_filters=[TransactionState.ONGOING.value]
                ).values()
            ids = {one.transactional_id for listings in listed for one in listings}
            client.fence(sorted(_shards_of(client.address, ids)))
            return client.markers(range(partitions))

    @contextmanager
    def _asking(self, address: SinkAddress) -> Iterator[KafkaAdminClient]:
        """A client that can ask for transactions."""
        try:
            admin = KafkaAdminClient(
                **_connection(self.sink).kafka_python(),
                client_id="lockstep",
                bootstrap_timeout_ms=int(ANSWER_SECONDS * 1000),
                request_timeout_ms=int(ANSWER_SECONDS * 1000),
            )
            try:
                yield admin
            finally:
                admin.close()
        except (KafkaError, OSError) as error:
            raise Unreachable(
                f"sink {self.sink.name}: the open transactions on topic {address.topic} could not be "
                "listed",
                found=f"{type(error).__name__}: {error}",
                next_step="see that the broker runs (`lockstep status`), then publish again",
            ) from error

    def _ended(self, client: SinkClient, partitions: int) -> tuple[OpenTransaction, ...]:
        """Tell what holds the end of the topic although every known shard is fenced, and end it where
        it is this sink's own: a shard's whose marker is gone, or one that hangs. What remains."""
        address = client.address
        waiting = _waiting_partitions(address, partitions)
        if not waiting:
            return ()
        with self._asking(address) as admin:
            found = open_transactions(admin, address.topic, waiting)
            own = _shards_of(address, {one.transactional_id for one in found})
            if own:
                client.fence(sorted(own))
                self._abort(admin, address, waiting)
                found = open_transactions(admin, address.topic, waiting)
        for one in found:
            self.progress(f"{self.sink.name}: {one}")
        return found

    def _abort(self, admin: KafkaAdminClient, address: SinkAddress, waiting: list[int]) -> None:
        """Of this sink's own, which are all fenced by now, those that hang."""
        for one in open_transactions(admin, address.topic, waiting):
            if one.is_hanging and address.shard_of(one.transactional_id) is not None:
                self.progress(f"{self.sink.name}: {one}; it is this sink's own, and is ended")
                abort_transaction(admin, one)

    # ── markers that are lost ───────────────────────────────────────────────────────────────────

    def _restored(
        self,
        address: SinkAddress,
        partitions: int,
        wanted: int,
        recorded: Mapping[int, Marker],
        waiting: tuple[OpenTransaction, ...],
    ) -> dict[int, Marker]:
        """Markers for shards in force that have lost theirs; none where the store knows all."""
        lost = lost_markers(recorded, self.published, self.was_intended, self.sink.name)
        if lost is None:
            return {}
        if waiting:
            raise Retry(
                f"sink {self.sink.name}: its markers in Kafka are lost, and an open transaction hides "
                "what is published",
                expected=f"topic {address.topic} readable to its end",
                found=str(waiting[0]),
                next_step="publish again once it has ended",
            )
        tail = read_tail(address, partitions, self.published)
        told = markers_from_tail(tail.records, lost.shards, self.published)
        if tail.doubt:
            # A marker that is there is younger than one that is forgotten: no shard was moved since.
            if lost.is_one_left:
                return {}
            said = self._resume_after(address, tail)
            # What there is of the topic shows what is whole at least.
            least = told or {shard: Marker(said, wanted) for shard in range(wanted)}
            told = {
                shard: Marker(max(said, marker.step), marker.shards)
                for shard, marker in least.items()
            }
        restored = {shard: marker for shard, marker in told.items() if shard not in recorded}
        if restored:
            self.progress(
                f"{self.sink.name}: markers were lost; topic {address.topic} is found to hold "
                + ", ".join(
                    f"shard {shard} up to step {marker.step}"
                    + (f" and {marker.rows:,} rows more" if marker.rows else "")
                    for shard, marker in sorted(restored.items())
                )
            )
        return restored

    def _resume_after(self, address: SinkAddress, tail: Tail) -> int:
        """The last step in the topic as a person says. Raises StateDiverged where nobody does."""
        said = self.sink.options.get("resume_after")
        if said is not None and self.published <= int(said) <= self.last_step:
            return int(said)
        newest = max((step for _, _, step in tail.records), default=None)
        raise StateDiverged(
            f"sink {self.sink.name}: its markers in Kafka are lost, and topic {address.topic} does not "
            f"say which of steps {self.published + 1} to {self.last_step} are published: {tail.doubt}",
            expected=f"markers of group {address.group}, or all records of these steps",
            found="the intent to publish them, and records of "
            + ("none of them" if newest is None else f"steps up to {newest}"),
            next_step=f"find the last step that the topic holds whole, say 'resume_after' = "
            f"'{self.published}' at {self.sink.position}, deploy, and publish again",
        )


def _stamp(
    client: SinkClient, recorded: Mapping[int, Marker], markers: Mapping[int, Marker]
) -> None:
    """Write markers without rows, that of shard 0 last: it is what says how many shards there are."""
    for shard, marker in sorted(markers.items(), reverse=True):
        link = client.link(shard, marker.shards)
        found = link.open()
        if found != recorded.get(shard):
            raise FencedError(f"{FencedError.TEXT} shard {shard}: found {found}")
        link.begin()
        link.commit(marker)


def _most_shards(markers: Mapping[int, Marker]) -> int:
    return max((marker.shards for marker in markers.values()), default=0)


def _shards_of(address: SinkAddress, ids: Iterable[str]) -> set[int]:
    """The shards of this sink among transactional ids."""
    return {shard for one in ids if (shard := address.shard_of(one)) is not None}


def _connection(sink: SinkTable) -> KafkaConnection:
    return KafkaConnection.from_options(sink.options, f"sink {sink.name}")


def _waiting_partitions(address: SinkAddress, partitions: int) -> list[int]:
    """Partitions whose last stable offset is not their end."""
    admin = AdminClient({**address.connection, "log_level": 2})
    places = {TopicPartition(address.topic, p): OffsetSpec.latest() for p in range(partitions)}
    try:
        stable, end = (
            {
                place.partition: asked.result(ANSWER_SECONDS).offset
                for place, asked in admin.list_offsets(places, isolation_level=level).items()
            }
            for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
        )
    except (KafkaException, TimeoutError) as error:
        raise end_unread(address, error) from error
    return [partition for partition in sorted(end) if stable[partition] < end[partition]]
