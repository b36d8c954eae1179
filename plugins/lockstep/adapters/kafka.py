"""Offsets and topics by kafka-python: what the plan of an interval looks up.

Everything is read as a `read_committed` reader sees it, so that an open transaction of a producer
cannot change later what a step holds.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from threading import Lock

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import (
    AuthorizationError,
    BrokerResponseError,
    KafkaError,
    RetriableError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from kafka.protocol.consumer import IsolationLevel, OffsetSpec

from lockstep.control.kafka_options import KafkaConnection
from lockstep.control.ports import PartitionBounds, TopicBounds
from lockstep.errors import SourceChanged, Unreachable, WrongUse
from lockstep.sql.circuit import Project, SourceTable
from lockstep.threads import MAX_THREADS
from lockstep_engine.open_transactions import open_transactions

__all__ = ["KafkaSources", "create_topics"]

CONNECT_SECONDS = 5
ANSWER_SECONDS = 10

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_UNKNOWN_TOPIC = 3
_COMPACTION_SETTINGS = ("cleanup.policy", "min.compaction.lag.ms")
LEAST_COMPACTION_LAG = timedelta(days=1)

_Offsets = Mapping[int, int | None]


class KafkaSources:
    """Implements `control.ports.Sources` for the Kafka sources of a project. Close it when done.

    Connects when it is first asked; one connection per broker address, shared by threads.
    """

    def __init__(self, project: Project) -> None:
        self._sources = {s.name: s for s in project.sources if s.provider == "kafka"}
        self._admins: dict[KafkaConnection, KafkaAdminClient] = {}
        self._lock = Lock()

    @property
    def start_at_latest(self) -> frozenset[str]:
        """Sources that say 'startingOffsets' = 'latest': they begin at the end of their topic."""
        return frozenset(
            name for name, source in self._sources.items() if _starting_offsets(source) == "latest"
        )

    def bounds(self, source: str) -> TopicBounds:
        """The first offset and the last stable offset of every partition of the source's topic.

        Raises SourceChanged where the topic does not exist, or is compacted before it is sure to be
        read; Unreachable where no broker answers.
        """
        table = self._sources[source]
        with self._asking(table) as admin:
            topic = table.options["subscribe"]
            topic_id, partitions = _describe(admin, table)
            _check_compaction(admin, table)

            def offsets(at: OffsetSpec, isolation: IsolationLevel) -> Mapping[TopicPartition, int]:
                found = admin.list_partition_offsets(
                    dict.fromkeys(partitions, at), isolation, ANSWER_SECONDS * 1000
                )
                return {place: offset.offset for place, offset in found.items()}

            first = offsets(OffsetSpec.EARLIEST, IsolationLevel.READ_COMMITTED)
            last = offsets(OffsetSpec.LATEST, IsolationLevel.READ_COMMITTED)
            end = offsets(OffsetSpec.LATEST, IsolationLevel.READ_UNCOMMITTED)
            return TopicBounds(
                topic,
                topic_id,
                tuple(
                    PartitionBounds(p.partition, first[p], max(first[p], last[p]))
                    for p in partitions
                ),
                _waiting(admin, topic, [p.partition for p in partitions if last[p] < end[p]]),
            )

    def offsets_at(self, source: str, times: Sequence[datetime]) -> tuple[_Offsets, ...]:
        """For each time, partition -> the first offset with a record at or after it, else None.

        The later the time, the later the first such record, in any order of timestamps: where two
        times give the same offsets, those between them are not asked for.
        """
        if not times:
            return ()
        table = self._sources[source]
        milliseconds = sorted({_milliseconds(time) for time in times})
        with self._asking(table) as admin:
            _, partitions = _describe(admin, table)
            found = _look_up(admin, partitions, milliseconds)
        return tuple(found[_milliseconds(time)] for time in times)

    def close(self) -> None:
        """Close all connections; the next question opens them again."""
        with self._lock:
            admins, self._admins = list(self._admins.values()), {}
        for admin in admins:
            admin.close()

    @contextmanager
    def _asking(self, source: SourceTable) -> Iterator[KafkaAdminClient]:
        """The connection for a source; one that fails is given up, so that the next is fresh."""
        connection = KafkaConnection.from_options(source.options, f"source {source.name}")
        try:
            yield self._admin(connection)
        except UnknownTopicOrPartitionError as error:
            raise _no_topic(source) from error
        except (KafkaError, OSError) as error:
            with self._lock:
                broken = self._admins.pop(connection, None)
            if broken is not None:
                broken.close()
            raise _unreachable(connection.bootstrap, error) from error

    def _admin(self, connection: KafkaConnection) -> KafkaAdminClient:
        with self._lock:
            if connection not in self._admins:
                self._admins[connection] = _connect(connection)
            return self._admins[connection]


def create_topics(
    connection: KafkaConnection,
    partitions: Mapping[str, int],
    settings: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """Create topics that do not exist yet, each with its number of partitions; returns those made.

    `settings` are topic settings such as retention.ms. Replication is the broker's default. Returns
    when every partition has a leader. Raises Unreachable, or WrongUse where a topic is refused.
    """
    made: list[str] = []
    try:
        admin = _connect(connection)
        try:
            for topic, count in partitions.items():
                wanted = {topic: {"num_partitions": count, "configs": dict(settings or {})}}
                try:
                    admin.create_topics(wanted, timeout_ms=ANSWER_SECONDS * 1000)
                    made.append(topic)
                except TopicAlreadyExistsError:
                    continue
            if made:
                admin.wait_for_topics(made, ANSWER_SECONDS * 1000)
        finally:
            admin.close()
    except (KafkaError, OSError) as error:
        if isinstance(error, BrokerResponseError) and not isinstance(error, RetriableError):
            raise WrongUse(
                f"the broker at {connection.bootstrap} refuses to create topics",
                expected=f"to create {', '.join(partitions)}",
                found=str(error),
                next_step="ask whoever runs the broker to create them",
            ) from error
        raise _unreachable(connection.bootstrap, error) from error
    return tuple(made)


def _connect(connection: KafkaConnection) -> KafkaAdminClient:
    return KafkaAdminClient(
        **connection.kafka_python(),
        client_id="lockstep",
        bootstrap_timeout_ms=CONNECT_SECONDS * 1000,
        request_timeout_ms=ANSWER_SECONDS * 1000,
        reconnect_backoff_max_ms=1000,
        # Where a connection has this many questions under way the client refuses another, and does
        # not wait; each thread that asks has one.
        max_in_flight_requests_per_connection=4 * MAX_THREADS,
    )


def _describe(admin: KafkaAdminClient, source: SourceTable) -> tuple[str, list[TopicPartition]]:
    """The topic's id as Kafka writes it, and its partitions in order."""
    topic = source.options["subscribe"]
    (found,) = admin.describe_topics([topic])
    if found["error_code"] == _UNKNOWN_TOPIC:
        raise _no_topic(source)
    if found["error_code"]:
        raise KafkaError(f"topic {topic} is not described: error {found['error_code']}")
    numbers = sorted(partition["partition_index"] for partition in found["partitions"])
    return _kafka_uuid(found["topic_id"]), [TopicPartition(topic, number) for number in numbers]


def _check_compaction(admin: KafkaAdminClient, source: SourceTable) -> None:
    """Refuse a source of which records may vanish unread. To a keyed one only the last record of a key
    counts, and that is what a compacted topic keeps."""
    if "key" in source.options:
        return
    topic = source.options["subscribe"]
    asked = ConfigResource(ConfigResourceType.TOPIC, topic, dict.fromkeys(_COMPACTION_SETTINGS))
    try:
        described = admin.describe_configs([asked], config_filter="all")
    except AuthorizationError:
        # Who may not look cannot be told; whoever manages the topic can.
        return
    settings = described[ConfigResourceType.TOPIC.name.lower()][topic]
    policy, lag = (settings[name]["value"] for name in _COMPACTION_SETTINGS)
    least = LEAST_COMPACTION_LAG // _MILLISECOND
    if "compact" in policy and int(lag) < least:
        raise SourceChanged(
            f"source {source.name}: topic {topic} is compacted, and every record of it counts",
            expected=f"min.compaction.lag.ms of at least {least} (a day), so that no record is gone "
            "before it is read",
            found=f"cleanup.policy={policy}, min.compaction.lag.ms={lag}",
            next_step="set it on the topic, or, where the last record of a key is its row, declare the "
            "source with 'format' = 'upsert' and 'key'",
        )


def _waiting(admin: KafkaAdminClient, topic: str, partitions: Sequence[int]) -> tuple[str, ...]:
    """What these partitions wait for, as far as the broker lets that be asked."""
    if not partitions:
        return ()
    try:
        return tuple(str(one) for one in open_transactions(admin, topic, partitions))
    except BrokerResponseError:
        return tuple(
            f"partition {partition} of topic {topic} waits for an open transaction"
            for partition in partitions
        )


def _look_up(
    admin: KafkaAdminClient, partitions: Sequence[TopicPartition], milliseconds: Sequence[int]
) -> Mapping[int, _Offsets]:
    """Offsets by time, for times in ascending order."""
    found: dict[int, _Offsets] = {}

    def ask(index: int) -> _Offsets:
        time = milliseconds[index]
        if time not in found:
            answer = admin.list_partition_offsets(
                dict.fromkeys(partitions, time),
                IsolationLevel.READ_COMMITTED,
                ANSWER_SECONDS * 1000,
            )
            found[time] = {
                p.partition: None if answer[p].offset < 0 else answer[p].offset for p in partitions
            }
        return found[time]

    pending = [(0, len(milliseconds) - 1)]
    while pending:
        low, high = pending.pop()
        before, after = ask(low), ask(high)
        if before == after:
            found.update((milliseconds[index], before) for index in range(low, high))
        elif high - low > 1:
            middle = (low + high) // 2
            pending += [(low, middle), (middle, high)]
    return found


def _starting_offsets(source: SourceTable) -> str:
    value = source.options.get("startingoffsets", "earliest").lower()
    if value not in ("earliest", "latest"):
        raise WrongUse(
            f"source {source.name} has an option 'startingOffsets' that cannot be used",
            expected="earliest or latest",
            found=source.options["startingoffsets"],
            next_step=f"correct it at {source.position} and deploy again",
        )
    return value


def _no_topic(source: SourceTable) -> SourceChanged:
    topic = source.options["subscribe"]
    bootstrap = source.options["kafka.bootstrap.servers"]
    return SourceChanged(
        f"source {source.name}: topic {topic} does not exist",
        expected=f"topic {topic} on {bootstrap}",
        found="no such topic",
        next_step=f"kafka-topics.sh --bootstrap-server {bootstrap} --create --topic {topic} "
        "--partitions 4, or correct 'subscribe'",
    )


def _unreachable(bootstrap: str, error: Exception) -> Unreachable:
    return Unreachable(
        f"the Kafka broker at {bootstrap} does not answer",
        expected=f"an answer within {ANSWER_SECONDS} seconds",
        found=f"{type(error).__name__}: {error}" if str(error) else type(error).__name__,
        next_step="lockstep status, or lockstep up; for a broker of your own, see that it runs",
    )


def _kafka_uuid(value: uuid.UUID | str) -> str:
    """A topic id in the form of Kafka's own tools: URL-safe base64 without padding."""
    raw = value.bytes if isinstance(value, uuid.UUID) else uuid.UUID(value).bytes
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _milliseconds(moment: datetime) -> int:
    """Since the epoch, rounded up: a record at the very time belongs after the boundary."""
    return -((_EPOCH - moment) // _MILLISECOND)
