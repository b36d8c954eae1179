"""Shards that go step by step (`steps_together`), against a real broker and Spark."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from kafka.consumer.fetcher import ConsumerRecord
from kafka_builders import committed_records, new_topic, sink
from sink_builders import DiedError, expected, found, outbox, publish_kafka

from lockstep_engine.sinks import kafka as kafka_sink
from lockstep_engine.sinks.kafka_link import SinkAddress, linked, read_markers
from lockstep_engine.sinks.kafka_opening import sink_address
from lockstep_engine.sinks.kafka_plan import FencedError, Marker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SHARDS = 3
STEPS = 8

Ends = Mapping[int, int]
"""The last stable offset of each partition: what is before it, readers see."""


@pytest.fixture(autouse=True)
def _utc(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.fixture(params=["driver", "tasks"])
def sender(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Rows go out from the driver or from tasks, of which there are fewer than shards."""
    if request.param == "tasks":
        monkeypatch.setattr(kafka_sink, "ROWS_FROM_DRIVER", 0)
    return str(request.param)


def ends(admin: AdminClient, topic: str) -> Ends:
    places = {TopicPartition(topic, p): OffsetSpec.latest() for p in range(SHARDS)}
    asked = admin.list_offsets(places, isolation_level=IsolationLevel.READ_COMMITTED)
    return {place.partition: one.result(10).offset for place, one in asked.items()}


def seen_while(publish: Future[Any], bootstrap: str, topic: str) -> list[Ends]:
    """What readers could see, looked at again and again until a publish has ended."""
    admin, seen = AdminClient({"bootstrap.servers": bootstrap}), []
    while not publish.done():
        with suppress(KafkaException):  # A topic that was just made has no leader for a moment.
            seen.append(ends(admin, topic))
        time.sleep(0.001)
    return seen


def place_of(record: ConsumerRecord) -> tuple[int, int]:
    """Step and shard of a record."""
    headers = {name: value.decode() for name, value in record.headers}
    return int(headers["lockstep-step"]), int(headers["lockstep-sink"].split("/")[1])


def most_apart(records: list[ConsumerRecord], seen: list[Ends]) -> int:
    """How many steps, at most, a reader could find between the newest row that it sees and the oldest
    that it does not see yet."""
    apart = 0
    for there in seen:
        shown = [place_of(one)[0] for one in records if one.offset < there[one.partition]]
        hidden = [place_of(one)[0] for one in records if one.offset >= there[one.partition]]
        if shown and hidden:
            apart = max(apart, max(shown) - min(hidden))
    return apart


def are_sent_in_order_of_steps(records: list[ConsumerRecord]) -> bool:
    """Whether no row was sent before all rows of earlier steps were."""
    times = defaultdict(list)
    for record in records:
        times[place_of(record)[0]].append(record.timestamp)
    steps = sorted(times)
    return all(max(times[a]) <= min(times[b]) for a, b in zip(steps, steps[1:], strict=False))


def published(
    spark: SparkSession, broker: Any, incarnation: str, **options: str
) -> tuple[list[ConsumerRecord], list[Ends]]:
    topic = new_topic(broker.bootstrap, SHARDS)
    out, changes = sink(broker.bootstrap, topic, shards=str(SHARDS), **options), outbox(spark, STEPS)
    with ThreadPoolExecutor(1) as pool:
        publish = pool.submit(publish_kafka, spark, out, incarnation, changes, 0, STEPS)
        seen = seen_while(publish, broker.bootstrap, topic)
    assert publish.result().marker == STEPS
    assert found(broker.bootstrap, topic) == expected(changes, STEPS)
    markers = read_markers(sink_address(out, incarnation), range(SHARDS))
    assert markers == dict.fromkeys(range(SHARDS), Marker(STEPS, SHARDS))
    return committed_records(broker.bootstrap, topic), seen


@pytest.mark.usefixtures("sender")
def test_readers_see_no_two_steps_between_shards(
    spark: SparkSession, broker: Any, incarnation: str
) -> None:
    records, seen = published(spark, broker, incarnation, steps_together="true")
    assert are_sent_in_order_of_steps(records)
    print("APART", most_apart(records, seen), len(seen), len({tuple(s.values()) for s in seen}))
    assert most_apart(records, seen) <= 0


def test_without_the_option_they_may(spark: SparkSession, broker: Any, incarnation: str) -> None:
    records, seen = published(spark, broker, incarnation)
    assert not are_sent_in_order_of_steps(records)
    print("APART", most_apart(records, seen), len(seen))
