"""What the plan looks up in Kafka, against a real broker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from kafka_builders import (
    T0,
    delete_before,
    new_topic,
    open_transaction,
    project,
    send,
    send_transaction,
    source,
    wait_until_decided,
)

from lockstep.adapters.embedded.ports import free_ports
from lockstep.adapters.kafka import KafkaSources, create_topics
from lockstep.control.kafka_options import KafkaConnection
from lockstep.control.ports import PartitionBounds
from lockstep.errors import SourceChanged, Unreachable, WrongUse
from lockstep.threads import in_parallel

pytestmark = pytest.mark.kafka

MILLISECONDS = 1000


def milliseconds(seconds: float) -> int:
    return int((T0 + timedelta(seconds=seconds)).timestamp() * MILLISECONDS)


@pytest.fixture
def topic(broker: Any) -> str:
    name: str = new_topic(broker.bootstrap, 3)
    return name


@pytest.fixture
def sources(broker: Any, topic: str) -> Iterator[KafkaSources]:
    with closing(KafkaSources(project(source(broker.bootstrap, topic)))) as found:
        yield found


def test_bounds_of_an_empty_topic(sources: KafkaSources, topic: str) -> None:
    bounds = sources.bounds("src")
    assert bounds.topic == topic
    assert len(bounds.topic_id) == 22
    assert bounds.partitions == tuple(PartitionBounds(p, 0, 0) for p in range(3))


@pytest.mark.parametrize(
    ("settings", "options", "is_refused"),
    [
        ({"cleanup_policy": "compact"}, {}, True),
        ({"cleanup_policy": "compact,delete", "min_compaction_lag_ms": "3600000"}, {}, True),
        ({"cleanup_policy": "compact", "min_compaction_lag_ms": "86400000"}, {}, False),
        ({"cleanup_policy": "compact"}, {"format": "upsert", "key": "id"}, False),
    ],
)
def test_no_record_of_a_compacted_topic_may_vanish_unread(
    broker: Any, settings: dict[str, str], options: dict[str, str], is_refused: bool
) -> None:
    topic = new_topic(broker.bootstrap, 1, **settings)
    with closing(KafkaSources(project(source(broker.bootstrap, topic, **options)))) as sources:
        if not is_refused:
            assert sources.bounds("src").topic == topic
            return
        with pytest.raises(SourceChanged, match="is compacted, and every record") as refused:
            sources.bounds("src")
    assert f"cleanup.policy={settings['cleanup_policy']}" in refused.value.found


def test_the_end_is_the_last_stable_offset(sources: KafkaSources, topic: str, broker: Any) -> None:
    """What an open transaction has written, and all after it, is not there yet."""
    send(broker.bootstrap, topic, [b"1", b"2"], partition=1)
    producer = open_transaction(broker.bootstrap, topic, [b"3"], partition=1)
    send(broker.bootstrap, topic, [b"4"], partition=1)
    bounds = sources.bounds("src")
    assert bounds.partitions[1] == PartitionBounds(1, 0, 2)
    [waiting] = bounds.waiting
    started = f"partition 1 of topic {topic} waits for an open transaction since "
    assert re.fullmatch(rf"{started}\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\dZ of '\w{{32}}'", waiting)
    # A broker takes records of up to an hour ahead.
    late = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=30)
    send(broker.bootstrap, topic, [b"5"], partition=1, timestamp=int(late.timestamp() * 1000))
    assert sources.offsets_at("src", [late])[0][1] is None
    producer.commit_transaction(30)
    wait_until_decided(broker.bootstrap, topic)
    assert sources.bounds("src").partitions[1].last_stable == 6
    assert sources.bounds("src").waiting == ()
    assert sources.offsets_at("src", [late])[0][1] == 4


def test_offsets_are_found_by_time(sources: KafkaSources, topic: str, broker: Any) -> None:
    for second in range(10):
        send(broker.bootstrap, topic, [b"x"], partition=0, timestamp=milliseconds(second))
    send(broker.bootstrap, topic, [b"y"], partition=2, timestamp=milliseconds(4.5))
    seconds = [-5, 0, 0.5, 3, 4.5, 9, 9.001, 20]
    found = sources.offsets_at("src", [T0 + timedelta(seconds=s) for s in seconds])
    assert [offsets[0] for offsets in found] == [0, 0, 1, 3, 5, 9, None, None]
    assert [offsets[1] for offsets in found] == [None] * 8
    assert [offsets[2] for offsets in found] == [0, 0, 0, 0, 0, None, None, None]
    assert sources.offsets_at("src", []) == ()


def test_offsets_of_times_out_of_order(sources: KafkaSources, topic: str, broker: Any) -> None:
    """One record from the future is the first at or after every time up to its own."""
    for second in (3600, 1, 2, 3):
        send(broker.bootstrap, topic, [b"x"], partition=0, timestamp=milliseconds(second))
    times = [T0 + timedelta(seconds=s) for s in (3, 1, 4000, 2, 3600)]
    assert [o[0] for o in sources.offsets_at("src", times)] == [0, 0, None, 0, 0]


def test_the_first_offset_moves_with_retention(
    sources: KafkaSources, topic: str, broker: Any
) -> None:
    send(broker.bootstrap, topic, [b"1", b"2", b"3"], partition=0)
    delete_before(broker.bootstrap, topic, 2)
    assert sources.bounds("src").partitions[0] == PartitionBounds(0, 2, 3)


def test_an_aborted_transaction_moves_the_end(
    sources: KafkaSources, topic: str, broker: Any
) -> None:
    send_transaction(broker.bootstrap, topic, [b"1", b"2"], commit=False)
    wait_until_decided(broker.bootstrap, topic)
    assert sources.bounds("src").partitions[0] == PartitionBounds(0, 0, 3)


def test_a_topic_made_anew_has_another_id(sources: KafkaSources, topic: str, broker: Any) -> None:
    before = sources.bounds("src").topic_id
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for gone in admin.delete_topics([topic]).values():
        gone.result(timeout=30)
    create_topics(KafkaConnection(broker.bootstrap), {topic: 3})
    assert sources.bounds("src").topic_id != before


def test_a_missing_topic_says_how_to_create_it(broker: Any) -> None:
    with (
        closing(KafkaSources(project(source(broker.bootstrap, "nowhere")))) as sources,
        pytest.raises(SourceChanged, match="source src: topic nowhere does not exist") as caught,
    ):
        sources.bounds("src")
    assert f"--bootstrap-server {broker.bootstrap} --create --topic nowhere" in (
        caught.value.next_step
    )


def test_no_broker_is_said_in_one_sentence() -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with (
        closing(KafkaSources(project(source(address, "t")))) as sources,
        pytest.raises(Unreachable, match=f"the Kafka broker at {address} does not answer"),
    ):
        sources.bounds("src")


def test_where_a_source_starts() -> None:
    latest = source("h:1", "t", startingoffsets="latest")
    assert KafkaSources(project(latest)).start_at_latest == {"src"}
    assert KafkaSources(project(source("h:1", "t"))).start_at_latest == frozenset()
    with pytest.raises(WrongUse, match="'startingOffsets'"):
        _ = KafkaSources(project(source("h:1", "t", startingoffsets="5"))).start_at_latest


def test_topics_that_exist_are_left_alone(broker: Any, topic: str) -> None:
    assert create_topics(KafkaConnection(broker.bootstrap), {topic: 7}) == ()
    with pytest.raises(WrongUse, match="refuses to create topics"):
        create_topics(KafkaConnection(broker.bootstrap), {"not a name": 1})


def test_connection_options_are_read_once_for_all_clients() -> None:
    options = {
        "kafka.bootstrap.servers": "a:1,b:2",
        "kafka.security.protocol": "sasl_ssl",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": 'x.PlainLoginModule required username="u" password="p\\"q";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": "/ca.pem",
        "subscribe": "t",
    }
    connection = KafkaConnection.from_options(options, "source s")
    assert connection.librdkafka() == {
        "bootstrap.servers": "a:1,b:2",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": 'p"q',
        "ssl.ca.location": "/ca.pem",
    }
    assert connection.kafka_python()["sasl_plain_password"] == 'p"q'
    assert connection.kafka_python()["bootstrap_servers"] == ["a:1", "b:2"]
    with pytest.raises(WrongUse, match=r"source s has an option 'kafka.ssl.truststore.type'"):
        KafkaConnection.from_options({**options, "kafka.ssl.truststore.type": "JKS"}, "source s")


def test_many_sources_are_asked_for_at_once(broker: Any) -> None:
    """One connection takes all of it: a plan asks for every source in a thread of its own."""
    topics = [new_topic(broker.bootstrap) for _ in range(12)]
    tables = [
        replace(source(broker.bootstrap, topic), name=f"s{number}")
        for number, topic in enumerate(topics)
    ]
    with closing(KafkaSources(project(*tables))) as found:
        bounds = in_parallel(found.bounds, [table.name for table in tables])
    assert [one.topic for one in bounds] == topics
