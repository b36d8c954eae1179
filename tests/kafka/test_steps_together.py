"""Shards that go step by step (`steps_together`), against a real broker and Spark."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock, patch

import pytest
from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from kafka.consumer.fetcher import ConsumerRecord
from kafka_builders import committed_records, new_topic, sink
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from sink_builders import DiedError, expected, found, outbox, publish_kafka

from lockstep.errors import WrongUse
from lockstep.sql.circuit import SinkTable
from lockstep_engine.sinks import kafka as kafka_sink
from lockstep_engine.sinks import kafka_tasks
from lockstep_engine.sinks.kafka import KafkaPublished
from lockstep_engine.sinks.kafka_link import (
    SinkAddress,
    TransactionLink,
    linked,
    read_markers,
)
from lockstep_engine.sinks.kafka_opening import sink_address
from lockstep_engine.sinks.kafka_plan import Marker, ShardWork
from lockstep_engine.sinks.kafka_tasks import send_together_by_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SHARDS = 3
STEPS = 6
BROKEN_SHARD, BROKEN_STEP = 1, 2

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


@pytest.fixture
def by_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_sink, "ROWS_FROM_DRIVER", 0)


def ends(admin: AdminClient, topic: str) -> Ends:
    places = {TopicPartition(topic, p): OffsetSpec.latest() for p in range(SHARDS)}
    asked = admin.list_offsets(places, isolation_level=IsolationLevel.READ_COMMITTED)
    return {place.partition: one.result(10).offset for place, one in asked.items()}


def seen_while(publish: Future[Any], bootstrap: str, topic: str) -> list[Ends]:
    """What readers could see while a publish went on, each time that it was something else."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    seen: list[Ends] = []
    while not publish.done():
        time.sleep(0.005)
        with suppress(KafkaException):  # A topic that was just made has no leader for a moment.
            seen += [there for there in [ends(admin, topic)] if there not in seen[-1:]]
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
    return all(max(times[a]) <= min(times[b]) for a, b in pairwise(steps))


def published(
    spark: SparkSession, broker: Any, incarnation: str, **options: str
) -> tuple[list[ConsumerRecord], list[Ends]]:
    topic = new_topic(broker.bootstrap, SHARDS)
    out, changes = (
        sink(broker.bootstrap, topic, shards=str(SHARDS), **options),
        outbox(spark, STEPS),
    )
    with ThreadPoolExecutor(1) as pool:
        publish = pool.submit(publish_kafka, spark, out, incarnation, changes, 0, STEPS)
        seen = seen_while(publish, broker.bootstrap, topic)
    assert publish.result().marker == STEPS
    assert found(broker.bootstrap, topic) == expected(changes, STEPS)
    markers = read_markers(sink_address(out, incarnation), range(SHARDS))
    assert markers == dict.fromkeys(range(SHARDS), Marker(STEPS, SHARDS))
    return committed_records(broker.bootstrap, topic), seen


@pytest.mark.usefixtures("sender")
def test_a_step_is_whole_before_the_next_begins(
    spark: SparkSession, broker: Any, incarnation: str
) -> None:
    records, seen = published(spark, broker, incarnation, steps_together="true")
    assert are_sent_in_order_of_steps(records)
    assert most_apart(records, seen) <= 1


def test_without_the_option_it_need_not_be(
    spark: SparkSession, broker: Any, incarnation: str
) -> None:
    """From the driver one shard after the other goes through all steps."""
    records, _ = published(spark, broker, incarnation)
    assert not are_sent_in_order_of_steps(records)


@pytest.mark.usefixtures("sender")
def test_steps_without_rows_move_all_markers(
    spark: SparkSession, broker: Any, incarnation: str
) -> None:
    topic = new_topic(broker.bootstrap, SHARDS)
    out = sink(broker.bootstrap, topic, shards=str(SHARDS), steps_together="true")
    changes = outbox(spark, 1, rows=1)
    assert publish_kafka(spark, out, incarnation, changes, 0, 1) == (1, 1)
    assert publish_kafka(spark, out, incarnation, changes, 2, 4) == (4, 0)
    markers = read_markers(sink_address(out, incarnation), range(SHARDS))
    assert markers == dict.fromkeys(range(SHARDS), Marker(4, SHARDS))


@pytest.mark.usefixtures("sender")
def test_shards_that_are_far_behind_catch_up(
    spark: SparkSession, broker: Any, incarnation: str, deaths: list[tuple[str, int]]
) -> None:
    """The option is new to a sink of which shard 0 has all steps and the others have none."""
    topic = new_topic(broker.bootstrap, SHARDS)
    out, changes = sink(broker.bootstrap, topic, shards=str(SHARDS)), outbox(spark, 4)
    # After the stamps of three shards.
    deaths.append(("out", SHARDS))
    with patch.object(kafka_sink, "ROWS_FROM_DRIVER", 20_000), pytest.raises(DiedError):
        publish_kafka(spark, out, incarnation, changes, 0, 3)
    behind = read_markers(sink_address(out, incarnation), range(SHARDS))
    assert [behind[shard].step for shard in range(SHARDS)] == [3, -1, -1]
    together = replace(out, options={**out.options, "steps_together": "true"})
    assert publish_kafka(spark, together, incarnation, changes, 0, 3).marker == 3
    assert found(broker.bootstrap, topic) == expected(changes, 3)
    records = committed_records(broker.bootstrap, topic)
    assert are_sent_in_order_of_steps([one for one in records if place_of(one)[1] > 0])


# ── shards that cannot go on ────────────────────────────────────────────────────────────────────


def take_over(address: SinkAddress) -> None:
    with linked(address, BROKEN_SHARD, SHARDS) as other:
        other.open()


def die(_: SinkAddress) -> None:
    raise DiedError


def kill(_: SinkAddress) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Fault:
    """What comes over a publish, once, when its middle shard is to commit some step."""

    happens: Callable[[SinkAddress], None]
    happened: Path

    @contextmanager
    def planted(self) -> Iterator[None]:
        commit = TransactionLink.commit

        def broken(link: TransactionLink, marker: Marker) -> None:
            is_there = (link._shard, marker.step) == (BROKEN_SHARD, BROKEN_STEP)
            if is_there and not self.happened.exists():
                self.happened.touch()
                self.happens(link._address)
            commit(link, marker)

        with patch.object(TransactionLink, "commit", broken):
            yield


@dataclass(frozen=True)
class FaultyTask:
    """Plants the fault in the process of the task."""

    task: Callable[[Any], Iterator[Any]]
    fault: Fault

    def __call__(self, batches: Any) -> Iterator[Any]:
        with self.fault.planted():
            yield from self.task(batches)


@dataclass(frozen=True)
class Story:
    """A publish with a fault, and the markers that were found each time it had stopped."""

    spark: SparkSession
    out: SinkTable
    incarnation: str
    changes: DataFrame
    stopped: list[Mapping[int, Marker]]

    def publish(self) -> KafkaPublished:
        return publish_kafka(self.spark, self.out, self.incarnation, self.changes, 0, STEPS)

    @property
    def address(self) -> SinkAddress:
        return sink_address(self.out, self.incarnation)

    def check_all_is_there(self) -> None:
        topic = self.out.options["topic"]
        bootstrap = self.out.options["kafka.bootstrap.servers"]
        assert found(bootstrap, topic) == expected(self.changes, STEPS)
        assert are_sent_in_order_of_steps(committed_records(bootstrap, topic))
        markers = read_markers(self.address, range(SHARDS))
        assert markers == dict.fromkeys(range(SHARDS), Marker(STEPS, SHARDS))


@pytest.fixture
def story(
    spark: SparkSession, broker: Any, incarnation: str, monkeypatch: pytest.MonkeyPatch
) -> Story:
    topic = new_topic(broker.bootstrap, SHARDS)
    out = sink(broker.bootstrap, topic, shards=str(SHARDS), steps_together="true")
    told = Story(spark, out, incarnation, outbox(spark, STEPS), [])
    publish = kafka_sink._publish

    def noted(*arguments: Any) -> KafkaPublished:
        try:
            return publish(*arguments)
        except Exception:
            told.stopped.append(read_markers(told.address, range(SHARDS)))
            raise

    monkeypatch.setattr(kafka_sink, "_publish", noted)
    return told


@contextmanager
def planted(fault: Fault, sender: str) -> Iterator[None]:
    if sender == "driver":
        with fault.planted():
            yield
        return
    # Spark's workers have not the folder of the tests.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    task = kafka_tasks._TogetherTask
    with patch.object(kafka_tasks, "_TogetherTask", lambda *about: FaultyTask(task(*about), fault)):
        yield


def check_stopped_together(markers: Mapping[int, Marker]) -> None:
    """All but the one that could not go on have the step at which it could not."""
    assert markers[BROKEN_SHARD].step == BROKEN_STEP - 1
    others = {marker.step for shard, marker in markers.items() if shard != BROKEN_SHARD}
    assert others == {BROKEN_STEP}


def test_who_is_fenced_stops_all_and_the_publish_reads_again(
    story: Story, sender: str, tmp_path: Path
) -> None:
    with planted(Fault(take_over, tmp_path / "happened"), sender):
        assert story.publish().marker == STEPS
    (stopped,) = story.stopped
    check_stopped_together(stopped)
    story.check_all_is_there()


def test_a_publish_that_dies_goes_on_later(story: Story, tmp_path: Path) -> None:
    with planted(Fault(die, tmp_path / "happened"), "driver"), pytest.raises(DiedError):
        story.publish()
    (stopped,) = story.stopped
    check_stopped_together(stopped)
    story.publish()
    story.check_all_is_there()


@pytest.mark.usefixtures("by_tasks")
def test_a_task_that_is_killed_takes_the_others_with_it(story: Story, tmp_path: Path) -> None:
    fault = Fault(kill, tmp_path / "happened")
    with planted(fault, "tasks"), pytest.raises(PySparkException, match="barrier task"):
        story.publish()
    (stopped,) = story.stopped
    assert stopped[BROKEN_SHARD].step == BROKEN_STEP - 1
    assert {marker.step for marker in stopped.values()} <= {BROKEN_STEP - 1, BROKEN_STEP}
    assert story.publish().marker == STEPS
    story.check_all_is_there()


def test_tasks_that_spark_does_not_start_together() -> None:
    refusal = "[SPARK-24942]: Barrier execution mode does not support dynamic resource allocation"
    frame = MagicMock()
    frame.sparkSession.range().select().distinct().count.return_value = 2
    parted = frame.where().repartitionById().sortWithinPartitions()
    parted.mapInArrow().collect.side_effect = PySparkException(refusal)
    works = [ShardWork(shard, SHARDS, -1, 0, {0: 1}) for shard in range(SHARDS)]
    with pytest.raises(WrongUse, match="Spark does not run 2 tasks together") as caught:
        send_together_by_tasks(SinkAddress({}, "t", "9f", "out"), works, frame, 10)
    assert caught.value.found == refusal
