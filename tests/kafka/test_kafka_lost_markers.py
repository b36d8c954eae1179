"""Markers that Kafka has forgotten: the store knows, else the topic tells, else nothing is guessed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from kafka import KafkaAdminClient, TopicPartition
from kafka_builders import new_topic, open_transaction, send, sink
from sink_builders import DiedError, expected, found, outbox, publish_kafka

from lockstep.errors import Retry, StateDiverged
from lockstep_engine.sinks import kafka_tail
from lockstep_engine.sinks.kafka import Publishing
from lockstep_engine.sinks.kafka_link import SinkAddress, read_markers
from lockstep_engine.sinks.kafka_opening import sink_address
from lockstep_engine.sinks.kafka_plan import Marker
from lockstep_engine.sinks.kafka_tail import read_tail

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

RESUMED = Publishing(was_intended=True)


def forget(bootstrap: str, address: SinkAddress, *shards: int) -> None:
    """As Kafka does by itself, `offsets.retention.minutes` after the last commit."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        if shards:
            places = [TopicPartition(address.topic, shard) for shard in shards]
            admin.delete_group_offsets(address.group, places)
        else:
            admin.delete_groups([address.group])
    finally:
        admin.close()
    left = read_markers(address, range(3))
    assert not left if not shards else not set(shards) & set(left)


def drop_records(bootstrap: str, topic: str, partition: int, before: int) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.delete_records({TopicPartition(topic, partition): before})
    finally:
        admin.close()


@pytest.mark.parametrize("shards", ["1", "2"])
def test_the_topic_tells_what_is_published(
    spark: SparkSession,
    broker: Any,
    incarnation: str,
    shards: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_tail, "CHUNK_RECORDS", 100)
    topic = new_topic(broker.bootstrap, 3)
    out, changes = sink(broker.bootstrap, topic, shards=shards), outbox(spark, 6)
    publish_kafka(spark, out, incarnation, changes, 0, 1)
    publish_kafka(spark, out, incarnation, changes, 2, 3)
    # Another pipeline's records stand behind, more than are read at once.
    other = sink(broker.bootstrap, topic)
    publish_kafka(spark, other, f"{incarnation}x", outbox(spark, 1, rows=350), 0, 9)
    forget(broker.bootstrap, sink_address(out, incarnation))
    # The store knows of steps 0..1 only: it was stopped between publishing 2..3 and recording it.
    lines: list[str] = []
    about = Publishing(was_intended=True, progress=lines.append)
    assert publish_kafka(spark, out, incarnation, changes, 2, 4, about) == (4, 300)
    assert len(lines) == 1
    assert lines[0].startswith(f"out: markers were lost; topic {topic} is found to hold shard 0")
    assert "shard 0 up to step 2 and" in lines[0]
    rows = found(broker.bootstrap, topic)
    rows.subtract(expected(outbox(spark, 1, rows=350), 0))
    assert +rows == expected(changes, 4)


def test_the_topic_tells_it_where_its_last_records_are_aborted(
    spark: SparkSession, broker: Any, incarnation: str
) -> None:
    """As a publish leaves them that dies: readers are never given them."""
    topic = new_topic(broker.bootstrap, 2)
    out, changes = sink(broker.bootstrap, topic), outbox(spark, 3)
    publish_kafka(spark, out, incarnation, changes, 0, 1)
    before = read_tail(sink_address(out, incarnation), 2, 0)
    assert sum(before.records.values()) > 10
    nobody_reads = new_topic(broker.bootstrap, 2)
    for name in (topic, nobody_reads):
        for partition in range(2):
            open_transaction(broker.bootstrap, name, [b"{}"] * 10, partition).abort_transaction(30)
    assert read_tail(sink_address(out, incarnation), 2, 0) == before
    empty = read_tail(sink_address(sink(broker.bootstrap, nobody_reads), incarnation), 2, 0)
    assert (empty.records, empty.doubt) == ({}, "")
    forget(broker.bootstrap, sink_address(out, incarnation))
    publish_kafka(spark, out, incarnation, changes, 1, 2, RESUMED)
    assert found(broker.bootstrap, topic) == expected(changes, 2)


def test_without_an_open_intent_the_store_knows(
    spark: SparkSession, broker: Any, incarnation: str
) -> None:
    topic = new_topic(broker.bootstrap, 2, cleanup_policy="compact")
    out = sink(broker.bootstrap, topic, shards="2", key="Step, n")
    changes = outbox(spark, 4, rows=3)
    publish_kafka(spark, out, incarnation, changes, 0, 1)
    address = sink_address(out, incarnation)
    forget(broker.bootstrap, address)
    assert publish_kafka(spark, out, incarnation, changes, 2, 2).marker == 2
    forget(broker.bootstrap, address, 0)
    assert publish_kafka(spark, out, incarnation, changes, 3, 3).marker == 3
    assert read_markers(address, range(2)) == {0: Marker(3, 2), 1: Marker(3, 2)}
    assert found(broker.bootstrap, topic) == expected(changes, 3)


@pytest.mark.parametrize("lost", [0, 1])
def test_the_marker_of_one_shard(
    spark: SparkSession,
    broker: Any,
    incarnation: str,
    lost: int,
    deaths: list[tuple[str, int]],
) -> None:
    """Two stamps, two transactions, then the death after shard 0 has moved on by itself."""
    topic = new_topic(broker.bootstrap, 3)
    out, changes = sink(broker.bootstrap, topic, shards="2"), outbox(spark, 4)
    publish_kafka(spark, out, incarnation, changes, 0, 1)
    deaths.append(("out", 4))
    with pytest.raises(DiedError):
        publish_kafka(spark, out, incarnation, changes, 2, 3)
    address = sink_address(out, incarnation)
    assert read_markers(address, range(2)) == {0: Marker(3, 2), 1: Marker(1, 2)}
    forget(broker.bootstrap, address, lost)
    assert publish_kafka(spark, out, incarnation, changes, 2, 3, RESUMED).marker == 3
    assert read_markers(address, range(2)) == {0: Marker(3, 2), 1: Marker(3, 2)}
    assert found(broker.bootstrap, topic) == expected(changes, 3)


def test_a_step_that_is_there_in_part(
    spark: SparkSession, broker: Any, incarnation: str, deaths: list[tuple[str, int]]
) -> None:
    topic = new_topic(broker.bootstrap, 2)
    out, changes = sink(broker.bootstrap, topic), outbox(spark, 2)
    deaths.append(("out", 2))
    with pytest.raises(DiedError):
        publish_kafka(spark, out, incarnation, changes, 0, 1, Publishing(row_limit=110))
    address = sink_address(out, incarnation)
    marker = read_markers(address, [0])[0]
    assert (marker.step, marker.rows) == (-1, 220)
    forget(broker.bootstrap, address)
    assert publish_kafka(spark, out, incarnation, changes, 0, 1, RESUMED) == (1, 530)
    assert found(broker.bootstrap, topic) == expected(changes, 1)


@pytest.mark.parametrize("fault", ["compacted", "expired"])
def test_a_topic_that_cannot_tell_is_not_guessed_at(
    spark: SparkSession, broker: Any, incarnation: str, fault: str
) -> None:
    policy = "compact" if fault == "compacted" else "delete"
    topic = new_topic(broker.bootstrap, cleanup_policy=policy)
    out, changes = sink(broker.bootstrap, topic, key="Step, n"), outbox(spark, 4, rows=4)
    publish_kafka(spark, out, incarnation, changes, 0, 1)
    publish_kafka(spark, out, incarnation, changes, 2, 2)
    if fault == "expired":
        drop_records(broker.bootstrap, topic, 0, 13)
    there = found(broker.bootstrap, topic)
    forget(broker.bootstrap, sink_address(out, incarnation))
    with pytest.raises(StateDiverged) as caught:
        publish_kafka(spark, out, incarnation, changes, 2, 3, RESUMED)
    error = caught.value
    doubt = {
        "compacted": "the topic is compacted",
        "expired": "records at the beginning of partition 0 are gone",
    }
    assert error.message == (
        f"sink out: its markers in Kafka are lost, and topic {topic} does not say which of steps 2 to "
        f"3 are published: {doubt[fault]}"
    )
    assert error.found == "the intent to publish them, and records of steps up to 2"
    assert "say 'resume_after' = '1' at sinks.sql:1:1" in error.next_step
    assert found(broker.bootstrap, topic) == there
    for said in ("0", "4"):
        beyond = sink(broker.bootstrap, topic, key="Step, n", resume_after=said)
        with pytest.raises(StateDiverged):
            publish_kafka(spark, beyond, incarnation, changes, 2, 3, RESUMED)
    told = sink(broker.bootstrap, topic, key="Step, n", resume_after="2")
    assert publish_kafka(spark, told, incarnation, changes, 2, 3, RESUMED) == (3, 6)
    assert found(broker.bootstrap, topic) - there == expected(changes, 3) - expected(changes, 2)


def test_a_topic_that_is_made_after_the_first_try(
    spark: SparkSession, broker: Any, incarnation: str
) -> None:
    """The first publish found no topic, and left its intent: there is nothing to be in doubt about."""
    topic = new_topic(broker.bootstrap, cleanup_policy="compact")
    out, changes = sink(broker.bootstrap, topic, key="Step, n"), outbox(spark, 2, rows=4)
    assert publish_kafka(spark, out, incarnation, changes, 0, 1, RESUMED) == (1, 10)
    assert found(broker.bootstrap, topic) == expected(changes, 1)


def test_an_old_topic_tells_as_far_back_as_it_has_to(
    spark: SparkSession, broker: Any, incarnation: str
) -> None:
    topic = new_topic(broker.bootstrap)
    send(broker.bootstrap, topic, [b"older than the pipeline"] * 9)
    drop_records(broker.bootstrap, topic, 0, 5)
    out, changes = sink(broker.bootstrap, topic), outbox(spark, 4, rows=4)
    publish_kafka(spark, out, incarnation, changes, 0, 1)
    publish_kafka(spark, out, incarnation, changes, 2, 2)
    forget(broker.bootstrap, sink_address(out, incarnation))
    # A record of step 1 is there: so all later ones are.
    assert publish_kafka(spark, out, incarnation, changes, 2, 3, RESUMED) == (3, 6)


def test_an_open_transaction_hides_the_end(
    spark: SparkSession, broker: Any, incarnation: str
) -> None:
    topic = new_topic(broker.bootstrap)
    out, changes = sink(broker.bootstrap, topic), outbox(spark, 2, rows=4)
    other = open_transaction(broker.bootstrap, topic, [b'{"Step": 9, "n": 9, "_weight": 1}'])
    publish_kafka(spark, out, incarnation, changes, 0, 0)
    forget(broker.bootstrap, sink_address(out, incarnation))
    with pytest.raises(Retry, match="an open transaction hides what is published") as caught:
        publish_kafka(spark, out, incarnation, changes, 0, 1, RESUMED)
    assert caught.value.found.startswith(f"partition 0 of topic {topic} waits for an open")
    other.abort_transaction(30)
    assert publish_kafka(spark, out, incarnation, changes, 0, 1, RESUMED) == (1, 6)
    assert found(broker.bootstrap, topic) == expected(changes, 1)


def test_two_pipelines_on_one_topic(
    spark: SparkSession, broker: Any, incarnation: str, deaths: list[tuple[str, int]]
) -> None:
    """Of each other's rows, parts, shards, markers and lost markers they know nothing."""
    topic = new_topic(broker.bootstrap, 3)
    names = (incarnation, f"{incarnation}x")
    sinks = [
        replace(sink(broker.bootstrap, topic), name="mine"),
        sink(broker.bootstrap, topic, shards="3"),
    ]
    changes = outbox(spark, 4)
    for last_step in (0, 2):
        for name, out in zip(names, sinks, strict=True):
            about = Publishing(row_limit=100)
            assert publish_kafka(spark, out, name, changes, 0, last_step, about)[0] == last_step
    deaths.append(("mine", 12))
    with pytest.raises(DiedError):
        publish_kafka(spark, sinks[0], names[0], changes, 3, 3, Publishing(row_limit=300))
    first, second = (sink_address(out, name) for out, name in zip(sinks, names, strict=True))
    assert read_markers(first, [0])[0].rows == 300
    assert read_markers(second, range(3)) == dict.fromkeys(range(3), Marker(2, 3))
    forget(broker.bootstrap, first)
    assert read_markers(second, range(3)) == dict.fromkeys(range(3), Marker(2, 3))
    assert publish_kafka(spark, sinks[1], names[1], changes, 3, 3).marker == 3
    assert publish_kafka(spark, sinks[0], names[0], changes, 3, 3, RESUMED) == (3, 150)
    once = expected(changes, 3)
    assert found(broker.bootstrap, topic) == once + once
