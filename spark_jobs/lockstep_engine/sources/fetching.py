"""The committed records of a range of offsets, fetched from the leader of its partition.

librdkafka makes objects of each message on its way, which takes a microsecond of a core for one of 258
bytes; batch by batch it is a third of that. Nobody joins a group, and no offset is kept anywhere.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import takewhile
from time import monotonic, sleep
from typing import Any, NamedTuple

from aiokafka.conn import collect_hosts
from aiokafka.errors import (
    KafkaConfigurationError,
    KafkaError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    ReplicaNotAvailableError,
    for_code,
)
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.metadata import MetadataRequest

from lockstep.control.kafka_options import KafkaConnection
from lockstep.control.model import OffsetRange
from lockstep.errors import SourceChanged
from lockstep_engine.sources.broker import Broker
from lockstep_engine.sources.record_batches import Records, Taken, WholeBatches, committed, taken

__all__ = ["fetched"]

_CHUNK, _CHUNK_BYTES = 4000, 8 << 20
"""So many records are parsed at a time: their bytes are in the processor's cache then. Of large ones as
many as have these bytes: whoever asks has little room for what is not asked for yet."""

_FEW_RECORDS, _FEW_BYTES, _MANY_BYTES = 50_000, 1 << 20, 4 << 20
"""Of an answer, or one batch. Each costs the broker something; of few records what comes beyond the end
would come for nothing."""
_WAIT_MILLISECONDS = 1000
"""With nothing to tell a broker waits so long; from another storage it may take it as long to read."""
_ANSWER_SECONDS, _END_SECONDS = 10.0, 10.0
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.05, 1.0
_UNTOLD = 1 << 63
"""Where a partition ends as long as nobody has told: beyond all offsets."""
_NEVER = float("inf")
_READ_COMMITTED = 1
_PASSING = frozenset({-1, 9, 72, 74, 75, 78})
"""What passes, too, though aiokafka does not know of it: the broker cannot say what is wrong, it is no
replica yet, nobody listens there yet, its epoch is old, or new, and no offset is told yet."""
_LASTING = (ssl.SSLError, FileNotFoundError, PermissionError)
_CONNECTION_LOST = (ssl.SSLEOFError, ssl.SSLZeroReturnError)


class _Told(NamedTuple):
    """What a leader tells from an offset on: batches, producers and first offsets of transactions that
    were aborted, and the end of what is stable."""

    batches: WholeBatches
    aborted: Sequence[tuple[int, int]]
    end: int


def fetched(
    connection: KafkaConnection, topic: str, wanted: OffsetRange, most_silent: float
) -> Iterator[Records]:
    """The committed records of the range, in order, some thousand at a time. The last offsets of a range
    may be ends of transactions, which are none.

    A leader that goes away, or is none any more, is looked for again. Raises KafkaError and OSError for
    what does not mend itself within `most_silent` seconds, SourceChanged where the partition ends early.
    """
    held, room, bytes_room = list[Taken](), _CHUNK, _CHUNK_BYTES
    for found in _batches(connection, topic, wanted, most_silent):
        left = found
        while len(left) > room:
            yield Records([*held, left.cut(0, room)])
            left = left.cut(room, len(left))
            held, room, bytes_room = [], _CHUNK, _CHUNK_BYTES
        if left:
            held.append(left)
            room, bytes_room = room - len(left), bytes_room - left.size
        if held and (not room or bytes_room <= 0):
            yield Records(held)
            held, room, bytes_room = [], _CHUNK, _CHUNK_BYTES
    if held:
        yield Records(held)


def _batches(
    connection: KafkaConnection, topic: str, wanted: OffsetRange, most_silent: float
) -> Iterator[Taken]:
    """The same, of some batches at a time."""
    reached, patience = wanted.start, _Patience(topic, wanted, most_silent)
    seconds = min(most_silent / 2, _ANSWER_SECONDS)
    while reached < wanted.end:
        try:
            with _leader(connection, topic, wanted.partition, seconds) as leader:
                for told in _told(leader, topic, replace(wanted, start=reached)):
                    is_news = told.batches.next_offset > reached
                    all_ = committed(told.batches, told.aborted)
                    batches = takewhile(lambda one: one.first_offset < wanted.end, all_)
                    for found in taken(batches, _CHUNK, _CHUNK_BYTES):
                        start, reached = reached, max(reached, found.next_offset)
                        yield found.between(start, wanted.end)
                    if is_news:
                        # Whoever wanted it may have rested meanwhile.
                        patience.goes_on()
                    else:
                        patience.nothing_came(told.end)
                    reached = max(reached, told.batches.next_offset)
        except (KafkaError, OSError) as error:
            patience.failed(error)


def _told(leader: Broker, topic: str, wanted: OffsetRange) -> Iterator[_Told]:
    """What the leader tells until the range is at its end. It is asked for what comes next before that
    which came is looked at."""
    reached, most = wanted.start, _MANY_BYTES if wanted.records > _FEW_RECORDS else _FEW_BYTES
    leader.tell(_question(topic, wanted.partition, reached, most))
    while reached < wanted.end:
        told = _read(leader.answer(), topic, wanted.partition, reached)
        reached = max(reached, told.batches.next_offset)
        if reached < wanted.end:
            leader.tell(_question(topic, wanted.partition, reached, most))
        yield told


def _question(topic: str, partition: int, offset: int, most_bytes: int) -> FetchRequest:
    places = [(topic, [(partition, offset, most_bytes)])]
    return FetchRequest(_WAIT_MILLISECONDS, 1, most_bytes, _READ_COMMITTED, places)


def _read(answer: Mapping[str, Any], topic: str, partition: int, offset: int) -> _Told:
    """What a fetch was answered with. Raises KafkaError."""
    parts = [part for one in answer["topics"] for part in one["partitions"]]
    for code in (answer.get("error_code", 0), *(part["error_code"] for part in parts)):
        if code:
            raise _error(code, f"topic {topic}, partition {partition}, offset {offset}")
    if not parts:
        # Who asks for more than a quota allows is answered with nothing.
        return _Told(WholeBatches(memoryview(b"")), (), _UNTOLD)
    (part,) = parts
    aborted = [(one["producer_id"], one["first_offset"]) for one in part["aborted_transactions"]]
    batches = WholeBatches(memoryview(part["message_set"] or b""))
    return _Told(batches, aborted, part["last_stable_offset"])


@contextmanager
def _leader(
    connection: KafkaConnection, topic: str, partition: int, seconds: float
) -> Iterator[Broker]:
    """A connection to the leader of a partition. Raises as `fetched` does."""
    host, port, first = _any_broker(connection, seconds)
    with closing(first):
        found = first.ask(MetadataRequest([topic], allow_auto_topic_creation=False))
        address = _address(found, topic, partition)
        if address == (host, port):
            yield first
            return
    with closing(Broker(*address, connection, seconds)) as leader:
        yield leader


def _address(found: Mapping[str, Any], topic: str, partition: int) -> tuple[str, int]:
    topics = found["topics"]
    parts = [part for one in topics for part in one["partitions"] if part["partition"] == partition]
    for code in [one["error_code"] for one in (*topics, *parts)]:
        # A replica that is away has no part in who leads.
        if code not in (0, ReplicaNotAvailableError.errno):
            raise _error(code, f"topic {topic}, partition {partition}")
    leaders = [part["leader"] for part in parts]
    for broker in found["brokers"]:
        if broker["node_id"] in leaders:
            return broker["host"], broker["port"]
    raise LeaderNotAvailableError(f"topic {topic}, partition {partition}")


def _any_broker(connection: KafkaConnection, seconds: float) -> tuple[str, int, Broker]:
    """The first of the brokers to start from that is there, and its address."""
    failed: Exception = KafkaTimeoutError(f"no broker in '{connection.bootstrap}'")
    try:
        hosts = collect_hosts(connection.bootstrap)
    except ValueError as error:
        raise KafkaConfigurationError(f"'{connection.bootstrap}': {error}") from error
    for host, port, _ in hosts:
        try:
            return host, port, Broker(host, port, connection, seconds)
        except (KafkaError, OSError) as error:
            failed = error
    raise failed


def _error(code: int, where: str) -> KafkaError:
    if code in _PASSING:
        return LeaderNotAvailableError(f"error {code}: {where}")
    kind = for_code(code)
    return kind(f"{kind.message} ({code}): {where}")


class _Patience:
    """With a partition of which nothing comes while somebody waits for it."""

    def __init__(self, topic: str, wanted: OffsetRange, most_silent: float) -> None:
        self._topic, self._wanted, self._most = topic, wanted, most_silent
        self.goes_on()

    def goes_on(self) -> None:
        """Something has come, and whoever wanted it is back for more."""
        self._since, self._early_since, self._tries = monotonic(), _NEVER, 0

    def nothing_came(self, end: int) -> None:
        """The leader tells nothing new, but where the partition ends. Raises SourceChanged and
        KafkaTimeoutError where that is so for long: a new leader may know of an earlier end."""
        now, wanted = monotonic(), self._wanted
        self._early_since = min(self._early_since, now) if end < wanted.end else _NEVER
        if now - self._early_since > _END_SECONDS:
            raise SourceChanged(
                f"topic {self._topic}, partition {wanted.partition} ends early",
                expected=f"records up to offset {wanted.end}",
                found=f"its end at offset {end}",
                next_step="lockstep doctor DIR shows what the topic holds",
            )
        if now - self._since > self._most:
            raise KafkaTimeoutError(f"nothing came for {self._most:.0f} s")

    def failed(self, error: KafkaError | OSError) -> None:
        """Wait a little where it may mend itself; raises the error where not, or not any more."""
        if isinstance(error, KafkaError):
            may_pass = error.retriable
        else:
            may_pass = not isinstance(error, _LASTING) or isinstance(error, _CONNECTION_LOST)
        if not may_pass or monotonic() - self._since > self._most:
            raise error
        self._early_since = _NEVER
        sleep(min(_PAUSE_SECONDS * 2**self._tries, _LONGEST_PAUSE_SECONDS))
        self._tries = min(self._tries + 1, 10)
