"""Transactions that hold the end of a sink's topic: told, and ended where they are the sink's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import ConfigResource as BrokerConfig
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka_builders import committed_records, new_topic, open_transaction, sink
from sink_builders import expected, found, outbox, publish_kafka

from lockstep_engine.open_transactions import OpenTransaction, open_transactions
from lockstep_engine.sinks.kafka import Publishing
from lockstep_engine.sinks.kafka_link import SinkAddress, TransactionLink
from lockstep_engine.sinks.kafka_opening import sink_address
from lockstep_engine.sinks.kafka_plan import FencedError, Marker, Message

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

VERIFICATION = "transaction.partition.verification.enable"
LATE = b'{"Step": -1, "n": -1, "_weight": 1}'


@pytest.fixture
def admin(broker: Any) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


@contextmanager
def unverified(admin: KafkaAdminClient, bootstrap: str) -> Iterator[None]:
    """A broker as before Kafka 3.6, which lets a producer write to a partition of which the
    coordinator has not heard."""
    reader = AdminClient({"bootstrap.servers": bootstrap})

    def verify(value: str) -> None:
        broker = ConfigResource(ConfigResourceType.BROKER, "1", {VERIFICATION: value})
        assert admin.alter_configs([broker]) == {"broker": {"1": "OK"}}
        shown = ""
        while shown != value:
            asked = reader.describe_configs([BrokerConfig(BrokerConfig.Type.BROKER, "1")])
            shown = next(iter(asked.values())).result(30)[VERIFICATION].value

    verify("false")
    try:
        yield
    finally:
        verify("true")


def hang(admin: KafkaAdminClient, bootstrap: str, topic: str, transactional_id: str) -> None:
    """On partition 1, a batch of a producer that was fenced before it was sent: nobody will end it."""
    with unverified(admin, bootstrap):
        late = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
        late.init_transactions()
        late.begin_transaction()
        late.send(topic, b"{}", partition=0).get(30)
        next_one = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
        next_one.init_transactions(30)
        late._transaction_manager._partitions_in_transaction.add(TopicPartition(topic, 1))
        late.send(topic, LATE, partition=1).get(30)
        late.close(timeout=0)


def waiting(admin: KafkaAdminClient, topic: str) -> list[OpenTransaction]:
    return list(open_transactions(admin, topic, [0, 1]))


def test_a_transaction_of_others_is_told_and_left_alone(
    spark: SparkSession, broker: Any, incarnation: str, admin: KafkaAdminClient
) -> None:
    topic = new_topic(broker.bootstrap, 2)
    out, changes = sink(broker.bootstrap, topic), outbox(spark, 2, rows=4)
    other = open_transaction(broker.bootstrap, topic, [LATE], 1)
    lines: list[str] = []
    about = Publishing(progress=lines.append)
    assert publish_kafka(spark, out, incarnation, changes, 0, 1, about).marker == 1
    [line] = lines
    assert line.startswith(
        f"out: partition 1 of topic {topic} waits for an open transaction since 20"
    )
    other.commit_transaction(30)
    records = committed_records(broker.bootstrap, topic)
    assert Counter(record.value == LATE for record in records) == {True: 1, False: 10}
    assert waiting(admin, topic) == []


def test_a_shard_of_which_no_marker_speaks_is_fenced(
    spark: SparkSession, broker: Any, incarnation: str, admin: KafkaAdminClient
) -> None:
    """It was retired, its marker has expired, and somebody who slept still has its transaction open."""
    topic = new_topic(broker.bootstrap, 2)
    out, changes = sink(broker.bootstrap, topic), outbox(spark, 2, rows=4)
    sleeper = TransactionLink(sink_address(out, incarnation), 1, 2)
    sleeper.open()
    sleeper.begin()
    sleeper.send(Message(0, 1, None, LATE))
    sleeper._producer.flush(30)
    assert [one.partition for one in waiting(admin, topic)] == [1]
    lines: list[str] = []
    about = Publishing(progress=lines.append)
    assert publish_kafka(spark, out, incarnation, changes, 0, 1, about).marker == 1
    assert lines == []
    assert waiting(admin, topic) == []
    assert found(broker.bootstrap, topic) == expected(changes, 1)
    sleeper.close()


@pytest.mark.parametrize("shard", [0, 1])
def test_a_publish_that_died_while_its_marker_moved(
    spark: SparkSession, broker: Any, incarnation: str, shard: int
) -> None:
    """Its marker is not readable before it is fenced; of a shard that is no longer wanted, too."""
    topic = new_topic(broker.bootstrap, 2)
    changes = outbox(spark, 2, rows=4)
    before = sink(broker.bootstrap, topic, shards="2")
    publish_kafka(spark, before, incarnation, changes, 0, 0)
    address = sink_address(before, incarnation)
    dead = TransactionLink(address, shard, 2)
    assert dead.open() == Marker(0, 2)
    dead.begin()
    dead.send(Message(1, 1, None, LATE))
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": address.group})
    dead._producer.send_offsets_to_transaction(
        [Place(topic, shard, 1, metadata=Marker(1, 2).metadata)],
        consumer.consumer_group_metadata(),
        30,
    )
    out = sink(broker.bootstrap, topic)
    assert publish_kafka(spark, out, incarnation, changes, 1, 1) == (1, 6)
    assert found(broker.bootstrap, topic) == expected(changes, 1)
    with pytest.raises(FencedError):
        dead.commit(Marker(1, 2))


def test_a_hanging_transaction_of_the_sink_is_ended(
    spark: SparkSession, broker: Any, incarnation: str, admin: KafkaAdminClient
) -> None:
    topic = new_topic(broker.bootstrap, 2)
    out, changes = sink(broker.bootstrap, topic), outbox(spark, 2, rows=4)
    publish_kafka(spark, out, incarnation, changes, 0, 0)
    hang(admin, broker.bootstrap, topic, sink_address(out, incarnation).transactional_id(0))
    [hanging] = waiting(admin, topic)
    assert (hanging.partition, hanging.is_hanging) == (1, True)
    lines: list[str] = []
    about = Publishing(progress=lines.append)
    assert publish_kafka(spark, out, incarnation, changes, 1, 1, about).marker == 1
    [line] = lines
    assert line.endswith("it is this sink's own, and is ended")
    assert waiting(admin, topic) == []
    assert found(broker.bootstrap, topic) == expected(changes, 1)


def test_a_hanging_transaction_of_others_is_told_with_the_command_that_ends_it(
    spark: SparkSession, broker: Any, incarnation: str, admin: KafkaAdminClient
) -> None:
    topic = new_topic(broker.bootstrap, 2)
    out, changes = sink(broker.bootstrap, topic), outbox(spark, 1, rows=4)
    hang(admin, broker.bootstrap, topic, f"other-{incarnation}")
    lines: list[str] = []
    about = Publishing(progress=lines.append)
    assert publish_kafka(spark, out, incarnation, changes, 0, 0, about).marker == 0
    [line] = lines
    assert f"of 'other-{incarnation}', of which its coordinator knows nothing" in line
    [hanging] = waiting(admin, topic)
    assert line.endswith(
        f"kafka-transactions.sh abort --topic {topic} --partition 1 "
        f"--start-offset {hanging.start_offset}"
    )


def test_whose_an_id_is() -> None:
    address = SinkAddress({}, "t", "9f", "out")
    assert address.shard_of(address.transactional_id(12)) == 12
    for other in ("lockstep/9f/out/steps/0", "lockstep/9f/outs/0", "lockstep/9f/out/", "x", ""):
        assert address.shard_of(other) is None
    steps = SinkAddress({}, "t", "9f", "out/steps")
    assert steps.shard_of("lockstep/9f/out/steps/0") == 0
