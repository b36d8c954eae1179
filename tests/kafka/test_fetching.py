"""What is fetched of a partition: a range's committed records, each once, whatever the leader does."""

from __future__ import annotations

import ssl
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import pytest
from aiokafka.errors import (
    CorruptRecordException,
    KafkaConfigurationError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    NotLeaderForPartitionError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from aiokafka.protocol.fetch import FetchRequest
from batch_builders import Sent, batch, marker
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka_builders import new_topic, open_transaction, send, send_transaction

from lockstep.control.kafka_options import KafkaConnection
from lockstep.control.model import OffsetRange
from lockstep.errors import SourceChanged
from lockstep_engine.sources import fetching
from lockstep_engine.sources.broker import Broker
from lockstep_engine.sources.fetching import fetched
from lockstep_engine.sources.record_batches import Records

kafka = pytest.mark.kafka

HERE = KafkaConnection("h:1")
WANTED = OffsetRange(0, 2, 6)


def topic_is(leader: int = 1, code: int = 0) -> Mapping[str, object]:
    part = {"partition": 0, "leader": leader, "error_code": 0}
    other = {"partition": 1, "leader": 2, "error_code": 0}
    return {
        "brokers": [{"node_id": 1, "host": "h", "port": 1}, {"node_id": 2, "host": "i", "port": 2}],
        "topics": [{"error_code": code, "partitions": [] if code else [other, part]}],
    }


def told(*batches: bytes, end: int = 99, code: int = 0) -> Mapping[str, object]:
    part = {
        "error_code": code,
        "last_stable_offset": end,
        "aborted_transactions": [],
        "message_set": b"".join(batches),
    }
    return {"throttle_time_ms": 0, "error_code": 0, "topics": [{"partitions": [part]}]}


NOTHING: Mapping[str, object] = {"throttle_time_ms": 9, "error_code": 0, "topics": []}


def values(*offsets: int) -> bytes:
    """A batch of these."""
    return batch([Sent(one) for one in offsets], offsets[-1], first=offsets[0])


class Script:
    """What brokers say, in order: of who leads, and of the partition. An exception is raised. When
    nothing is left the partition says nothing new."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *says: object) -> None:
        self.says, self.connected, self.asked = deque(says), list[tuple[str, int]](), list[int]()
        self.open, self.seconds = 0, list[float]()
        script = self

        class Scripted:
            def __init__(self, host: str, port: int, _: object, seconds: float) -> None:
                script.connected.append((host, port))
                script.seconds.append(seconds)
                script.open += 1

            def close(self) -> None:
                script.open -= 1

            def ask(self, _: object) -> Mapping[str, object]:
                return script.next(topic_is())

            def tell(self, asked: FetchRequest) -> None:
                ((_, ((_, offset, _),)),) = asked.topics
                script.asked.append(offset)

            def answer(self) -> Mapping[str, object]:
                return script.next(told(end=script.asked[-1]))

        monkeypatch.setattr(fetching, "Broker", Scripted)
        # Each look at the clock is a second later.
        ticks = count()
        monkeypatch.setattr(fetching, "monotonic", lambda: float(next(ticks)))
        monkeypatch.setattr(fetching, "sleep", lambda _: None)

    def next(self, otherwise: Mapping[str, object]) -> Mapping[str, object]:
        found = self.says.popleft() if self.says else otherwise
        if isinstance(found, Exception):
            raise found
        assert isinstance(found, Mapping)
        return found

    def read(self, wanted: OffsetRange = WANTED, most_silent: float = 60.0) -> list[int]:
        try:
            parts = list(fetched(HERE, "t", wanted, most_silent))
        finally:
            assert not self.open, "each connection is closed"
        return offsets_of(parts)


def test_what_a_leader_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(monkeypatch, topic_is(), told(values(0, 1, 2, 3)), told(values(4, 5, 6)))
    assert script.read() == [2, 3, 4, 5]
    assert script.asked == [2, 4]
    assert script.connected == [("h", 1)]


def test_a_leader_at_another_address(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(monkeypatch, topic_is(2), told(values(2, 3, 4, 5)))
    assert script.read() == [2, 3, 4, 5]
    assert script.connected == [("h", 1), ("i", 2)]


def test_the_last_offsets_are_ends_of_transactions_or_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = marker(5, 7, commits=True)
    assert Script(monkeypatch, topic_is(), told(values(2, 3), ended)).read() == [2, 3]
    gone = batch([Sent(2), Sent(4)], 8, first=2)
    assert Script(monkeypatch, topic_is(), told(gone)).read() == [2, 4]
    later = Script(monkeypatch, topic_is(), told(values(2, 3)), told(values(7, 8)))
    assert later.read() == [2, 3]


def test_a_leader_that_says_nothing_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    says = [topic_is(), NOTHING, told(end=3), told(values(2, 3)), NOTHING, told(values(4, 5))]
    assert Script(monkeypatch, *says).read() == [2, 3, 4, 5]


def test_a_partition_that_ends_early(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(monkeypatch, topic_is(), told(values(2, 3)))
    with pytest.raises(SourceChanged, match="partition 0 ends early") as refused:
        script.read()
    assert "its end at offset 4" in str(refused.value)


@pytest.mark.parametrize("says", [NOTHING, told(end=99), told(values(0, 1))])
def test_a_partition_that_stays_silent(
    monkeypatch: pytest.MonkeyPatch, says: Mapping[str, object]
) -> None:
    """Of a client that is above its quota nothing is said, not even where the partition ends."""
    script = Script(monkeypatch, topic_is(), told(values(2, 3)), *[says] * 199)
    with pytest.raises(KafkaTimeoutError, match="nothing came for 60 s"):
        script.read()


def test_a_reader_that_rests_is_not_the_partitions_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetching, "_CHUNK", 1)
    says = [topic_is(), told(values(2, 3)), ConnectionResetError("gone"), topic_is()]
    script = Script(monkeypatch, *says, NOTHING, told(values(4, 5)))
    found = []
    for part in fetched(HERE, "t", WANTED, 20.0):
        found += part.offsets.tolist()
        for _ in range(30):
            fetching.monotonic()
    assert found == [2, 3, 4, 5]
    assert not script.says


def test_a_new_leader_that_knows_of_an_earlier_end_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever waited for it to be there is patient all the same."""
    gone: list[object] = [topic_is(), told(values(2, 3)), told(code=6)]
    gone += [topic_is(code=5)] * 15
    script = Script(monkeypatch, *gone, topic_is(2), *[told(end=3)] * 5, told(values(4, 5)))
    assert script.read() == [2, 3, 4, 5]


def test_an_answer_is_waited_for_less_than_the_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a leader that vanishes would be the last one that is asked."""
    script = Script(monkeypatch, topic_is(), told(values(2, 3, 4, 5)))
    script.read(most_silent=5.0)
    assert script.seconds == [2.5]


def test_large_records_come_as_many_at_a_time_as_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def large(*offsets: int) -> bytes:
        sent = [Sent(one, b"a" * 1000) for one in offsets]
        return batch(sent, offsets[-1], first=offsets[0], codec="zstd")

    Script(monkeypatch, topic_is(), told(large(0, 1), large(2, 3, 4), large(5)), told(large(6)))
    monkeypatch.setattr(fetching, "_CHUNK_BYTES", 2500)
    parts = list(fetched(HERE, "t", OffsetRange(0, 0, 7), 60.0))
    assert [part.offsets.tolist() for part in parts] == [[0, 1, 2, 3, 4], [5, 6]]
    assert [len(part.values[0] or b"") for part in parts] == [1000, 1000]


def test_many_records_come_in_equal_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    Script(monkeypatch, topic_is(), told(values(0), values(*range(1, 12)), values(12)))
    monkeypatch.setattr(fetching, "_CHUNK", 5)
    parts = list(fetched(HERE, "t", OffsetRange(0, 0, 13), 60.0))
    assert [len(part) for part in parts] == [5, 5, 3]
    assert offsets_of(parts) == list(range(13))


def offsets_of(parts: Sequence[Records]) -> list[int]:
    return [offset for part in parts for offset in part.offsets.tolist()]


PASSING = [
    NotLeaderForPartitionError.errno,
    UnknownTopicOrPartitionError.errno,
    LeaderNotAvailableError.errno,
    78,
]


@pytest.mark.parametrize("code", PASSING)
def test_a_leader_that_is_none_any_more(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    says = [
        topic_is(),
        told(values(2, 3)),
        told(code=code),
        topic_is(code=code),
        topic_is(leader=-1),
        topic_is(2),
        told(values(4, 5)),
    ]
    script = Script(monkeypatch, *says)
    assert script.read() == [2, 3, 4, 5]
    assert script.connected == [("h", 1), ("h", 1), ("h", 1), ("h", 1), ("i", 2)]


@pytest.mark.parametrize("error", [ConnectionResetError("gone"), TimeoutError("timed out")])
def test_a_leader_that_goes_away(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    says = [topic_is(), told(values(2, 3), values(4)), error, error, topic_is(2), told(values(5))]
    assert Script(monkeypatch, *says).read() == [2, 3, 4, 5]


@pytest.mark.parametrize(
    ("says", "error", "sentence"),
    [
        (
            told(code=1),
            OffsetOutOfRangeError,
            r"OFFSET_OUT_OF_RANGE \(1\): topic t, partition 0, offset 2",
        ),
        (told(code=29), TopicAuthorizationFailedError, "TOPIC_AUTHORIZATION_FAILED"),
        ({**NOTHING, "error_code": 29}, TopicAuthorizationFailedError, "topic t"),
        (told(bytes(16) + b"\1" + bytes(60)), KafkaError, "records of format 1"),
        (told(values(2)[:-1] + b"?"), CorruptRecordException, "not what its checksum says"),
        (ssl.SSLCertVerificationError("whose?"), ssl.SSLCertVerificationError, "whose"),
        (FileNotFoundError("ca.pem"), FileNotFoundError, "ca.pem"),
    ],
)
def test_what_does_not_mend_itself(
    monkeypatch: pytest.MonkeyPatch, says: object, error: type[Exception], sentence: str
) -> None:
    script = Script(monkeypatch, topic_is(), says)
    with pytest.raises(error, match=sentence):
        script.read()
    assert len(script.connected) == 1


def test_what_does_not_mend_itself_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(monkeypatch, *[KafkaConnectionError("nobody")] * 99)
    with pytest.raises(KafkaConnectionError, match="nobody"):
        script.read()
    assert 20 < len(script.connected) < 70


def test_an_address_that_is_none() -> None:
    with pytest.raises(KafkaConfigurationError, match="'h:'"):
        list(fetched(KafkaConnection("h:"), "t", WANTED, 0.0))


def test_all_brokers_to_start_from_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def refuse(host: str, port: int, *_: object) -> None:
        tried.append((host, port))
        raise ConnectionRefusedError(host)

    monkeypatch.setattr(fetching, "Broker", refuse)
    with pytest.raises(ConnectionRefusedError):
        list(fetched(KafkaConnection("a:1,b:2, [::1]:3"), "t", WANTED, 0.0))
    assert sorted(tried) == [("::1", 3), ("a", 1), ("b", 2)]


def by_client(bootstrap: str, topic: str) -> list[tuple[int, bytes | None]]:
    """What a client of others reads: all that is committed and before what is open."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "another",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[int, bytes | None]] = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        found.append((message.offset(), message.value()))
    consumer.close()
    return found


def by_us(bootstrap: str, topic: str, start: int, end: int) -> list[tuple[int, bytes | None]]:
    parts = list(fetched(KafkaConnection(bootstrap), topic, OffsetRange(0, start, end), 60.0))
    return [one for part in parts for one in zip(part.offsets.tolist(), part.values, strict=True)]


@kafka
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_that_are_packed(broker: Any, codec: str) -> None:
    topic = new_topic(broker.bootstrap)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": codec})
    for number in range(9_000):
        producer.produce(topic, b'{"n": %d}' % number if number % 7 else None, partition=0)
    assert producer.flush(30) == 0
    all_ = by_client(broker.bootstrap, topic)
    assert len(all_) == 9_000
    assert by_us(broker.bootstrap, topic, 0, 9_000) == all_
    assert by_us(broker.bootstrap, topic, 4_321, 4_400) == all_[4_321:4_400]


@kafka
def test_transactions_one_after_the_other_and_one_in_the_other(broker: Any) -> None:
    topic = new_topic(broker.bootstrap)
    for number in range(12):
        send_transaction(broker.bootstrap, topic, [b"%d" % number] * 3, number % 3 != 0)
    slow = open_transaction(broker.bootstrap, topic, [b"slow", b"slow"])
    send_transaction(broker.bootstrap, topic, [b"meanwhile"] * 2, True)
    slow.abort_transaction(30)
    send(broker.bootstrap, topic, [b"last"])
    all_ = by_client(broker.bootstrap, topic)
    last = all_[-1][0]
    assert {b"slow", b"0", b"3"}.isdisjoint(value for _, value in all_)
    for start in range(last):
        expected = [one for one in all_ if one[0] >= start]
        assert by_us(broker.bootstrap, topic, start, last + 1) == expected


@kafka
def test_a_connection_that_breaks_in_the_middle(
    broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(broker.bootstrap)
    values = [b'{"n": %d}' % number for number in range(20_000)]
    send(broker.bootstrap, topic, values, batch=500)
    monkeypatch.setattr(fetching, "_FEW_BYTES", 1 << 14)
    answers = count()

    class Breaking(Broker):
        def answer(self) -> Any:
            if next(answers) % 5 == 4:
                self._socket.close()
            return super().answer()

    monkeypatch.setattr(fetching, "Broker", Breaking)
    found = by_us(broker.bootstrap, topic, 0, 20_000)
    assert [offset for offset, _ in found] == list(range(20_000))
    assert next(answers) > 20


@kafka
def test_a_topic_that_is_not_there(broker: Any) -> None:
    wanted = OffsetRange(0, 0, 9)
    with pytest.raises(UnknownTopicOrPartitionError, match="topic not-there"):
        list(fetched(KafkaConnection(broker.bootstrap), "not-there", wanted, 1.0))


@kafka
def test_a_record_larger_than_what_is_asked_for(
    broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(broker.bootstrap)
    send(broker.bootstrap, topic, [b"a" * 100_000, b"b", b"c" * 300_000])
    monkeypatch.setattr(fetching, "_FEW_BYTES", 1_000)
    assert [one[0] for one in by_us(broker.bootstrap, topic, 0, 3)] == [0, 1, 2]
