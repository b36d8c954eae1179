"""The committed records of a range of offsets, fetched from the leader of its partition.

librdkafka makes objects of each message on its way, which takes a microsecond of a core for one of 258
bytes; batch by batch it is a third of that. Nobody joins a group, and no offset is kept anywhere.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from time import monotonic, sleep
from typing import Any, NamedTuple

from aiokafka.conn import collect_hosts
from aiokafka.errors import (
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
from lockstep_engine.sources.record_batches import Batch, Records, committed, whole_batches

__all__ = ["fetched"]

_CHUNK = 4000
"""So many records are parsed at a time: their bytes are in the processor's cache then."""

_FEW_RECORDS, _FEW_BYTES, _MANY_BYTES = 50_000, 1 << 20, 4 << 20
"""Of an answer, or one batch. Each costs the broker something; of few records what comes beyond the end
would come for nothing."""
_WAIT_MILLISECONDS = 100
_PAUSE_SECONDS = 0.05
_END_SECONDS = 10.0
_READ_COMMITTED = 1
_PASSING = frozenset({9, 74, 75, 78})
"""What else a replica says that is about to lead, or did, and aiokafka knows nothing of, or not that it
passes: it is not available, its epoch is old, or new, and no offset is told yet."""
_LASTING = (ssl.SSLCertVerificationError, FileNotFoundError, PermissionError)


class _Told(NamedTuple):
    """What a leader tells from an offset on: batches, producers and first offsets of transactions that
    were aborted, and the end of what is stable."""

    batches: Sequence[Batch]
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
    held: list[Records] = []
    for found in _batches(connection, topic, wanted, most_silent):
        held.append(found)
        if sum(map(len, held)) >= _CHUNK:
            all_ = Records.of(held)
            whole = len(all_) - len(all_) % _CHUNK
            for first in range(0, whole, _CHUNK):
                yield all_.part(first, first + _CHUNK)
            held = [all_.part(whole, len(all_))] if whole < len(all_) else []
    if held:
        yield Records.of(held)


def _batches(
    connection: KafkaConnection, topic: str, wanted: OffsetRange, most_silent: float
) -> Iterator[Records]:
    """The same, as they come; each has some."""
    reached, patience = wanted.start, _Patience(topic, wanted, most_silent)
    while reached < wanted.end:
        try:
            with _leader(connection, topic, wanted.partition, most_silent) as leader:
                for told in _told(leader, topic, replace(wanted, start=reached)):
                    patience.heard(told)
                    for batch in committed(told.batches, told.aborted):
                        found = batch.records().between(reached, wanted.end)
                        reached = batch.next_offset
                        if found:
                            yield found
                    if told.batches:
                        reached = told.batches[-1].next_offset
        except (KafkaError, OSError) as error:
            patience.failed(error)


def _told(leader: Broker, topic: str, wanted: OffsetRange) -> Iterator[_Told]:
    """What the leader tells until the range is at its end. It is asked for what comes next before that
    which came is looked at."""
    reached, most = wanted.start, _MANY_BYTES if wanted.records > _FEW_RECORDS else _FEW_BYTES
    leader.tell(_question(topic, wanted.partition, reached, most))
    while reached < wanted.end:
        told = _read(leader.answer(), topic, wanted.partition, reached)
        if told.batches:
            reached = told.batches[-1].next_offset
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
        return _Told((), (), offset)
    (part,) = parts
    aborted = [(one["producer_id"], one["first_offset"]) for one in part["aborted_transactions"]]
    batches = tuple(whole_batches(memoryview(part["message_set"] or b"")))
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
    (one,) = found["topics"]
    parts = [part for part in one["partitions"] if part["partition"] == partition]
    for code in (one["error_code"], *(part["error_code"] for part in parts)):
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
    for host, port, _ in collect_hosts(connection.bootstrap):
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
    """With a partition of which nothing comes."""

    def __init__(self, topic: str, wanted: OffsetRange, most_silent: float) -> None:
        self._topic, self._wanted, self._most = topic, wanted, most_silent
        self._since = monotonic()

    def heard(self, told: _Told) -> None:
        """Raises SourceChanged and KafkaTimeoutError where it has been silent for long. A new leader may
        know of an earlier end for a while."""
        silent, wanted = monotonic() - self._since, self._wanted
        if told.batches:
            self._since += silent
        elif told.end < wanted.end and silent > _END_SECONDS:
            raise SourceChanged(
                f"topic {self._topic}, partition {wanted.partition} ends early",
                expected=f"records up to offset {wanted.end}",
                found=f"its end at offset {told.end}",
                next_step="lockstep doctor DIR shows what the topic holds",
            )
        elif silent > self._most:
            raise KafkaTimeoutError(f"nothing came for {self._most:.0f} s")

    def failed(self, error: KafkaError | OSError) -> None:
        """Wait a little where it may mend itself; raises the error where not, or not any more."""
        may_pass = (
            error.retriable if isinstance(error, KafkaError) else not isinstance(error, _LASTING)
        )
        if not may_pass or monotonic() - self._since > self._most:
            raise error
        sleep(_PAUSE_SECONDS)
