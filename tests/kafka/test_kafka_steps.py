"""The side topic: it alone says that a step is complete, once, in order, and from which offsets."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from kafka_builders import committed_records, new_topic, sink
from sink_builders import DiedError, divided, expected, found, outbox, publish_kafka

from lockstep.control.model import Division, TableSlice
from lockstep.errors import WrongUse
from lockstep_engine.sinks import kafka as kafka_sink
from lockstep_engine.sinks.kafka import Publishing
from lockstep_engine.sinks.kafka_link import SinkAddress, read_markers
from lockstep_engine.sinks.kafka_opening import sink_address, steps_address
from lockstep_engine.sinks.kafka_plan import Marker
from lockstep_engine.sinks.kafka_steps import step_messages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def said(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    records = committed_records(bootstrap, topic)
    assert {record.partition for record in records} <= {0}
    return [json.loads(record.value) for record in records]


def test_a_record_says_what_a_step_was_made_from() -> None:
    address = SinkAddress({}, "t", "9f", "out/steps")
    (division,) = divided(1)
    table = TableSlice("stock", "lake.shop.stock", "uuid", None, 77, 3)
    division = Division(4, division.time, (*division.slices, table))
    messages = list(step_messages(address, "out", 2, 4, {4: 12}, {4: division}))
    assert [(m.step, m.partition, m.key) for m in messages] == [(3, 0, b"out"), (4, 0, b"out")]
    assert [json.loads(m.value or b"") for m in messages] == [
        {
            "incarnation": "9f",
            "sink": "out",
            "step": 3,
            "time": None,
            "rows": 0,
            "inputs": None,
        },
        {
            "incarnation": "9f",
            "sink": "out",
            "step": 4,
            "time": "2025-01-01T00:00:00.000Z",
            "rows": 12,
            "inputs": {
                "src": {"topic": "orders", "topic_id": "id", "partitions": {"0": [0, 10]}},
                "stock": {
                    "table": "lake.shop.stock",
                    "table_id": "uuid",
                    "start": None,
                    "end": 77,
                },
            },
        },
    ]


def test_every_step_is_said_once_and_in_order(
    spark: SparkSession, broker: Any, incarnation: str
) -> None:
    topic, steps = new_topic(broker.bootstrap, 3), new_topic(broker.bootstrap, 2)
    out = sink(broker.bootstrap, topic, shards="2", steps_topic=steps)
    changes, about = outbox(spark, 6), Publishing(divided(8))
    assert publish_kafka(spark, out, incarnation, changes, 0, 1, about) == (1, 750)
    assert publish_kafka(spark, out, incarnation, changes, 0, 1, about) == (1, 0)
    # Steps 6 and 7 have no rows.
    assert publish_kafka(spark, out, incarnation, changes, 2, 7, about) == (7, 1500)
    records = said(broker.bootstrap, steps)
    assert [(one["step"], one["rows"]) for one in records] == [
        *((0, 300), (1, 450), (2, 300), (3, 450), (4, 300), (5, 450), (6, 0), (7, 0))
    ]
    assert [one["inputs"]["src"]["partitions"]["0"] for one in records] == [
        [10 * step, 10 * step + 10] for step in range(8)
    ]
    times = [datetime.fromisoformat(one["time"]) for one in records]
    assert times == [division.time.astimezone(UTC) for division in about.divisions]
    assert found(broker.bootstrap, topic) == expected(changes, 7)
    address = steps_address(out, incarnation)
    assert address is not None
    assert read_markers(address, [0, 1]) == {0: Marker(7, 1)}


@pytest.mark.parametrize(
    ("death", "there"),
    [
        # A stamp of each shard, then the rows of each shard, then the steps, three in a transaction.
        (("out", 1), 0),
        (("out", 2), 0),
        (("out", 3), 0),
        (("out/steps", 0), 0),
        (("out/steps", 1), 3),
        (("out/steps", 2), 4),
    ],
)
def test_a_death_anywhere_leaves_no_step_unsaid_or_said_twice(
    spark: SparkSession,
    broker: Any,
    incarnation: str,
    deaths: list[tuple[str, int]],
    death: tuple[str, int],
    there: int,
) -> None:
    topic, steps = new_topic(broker.bootstrap, 2), new_topic(broker.bootstrap)
    out = sink(broker.bootstrap, topic, shards="2", steps_topic=steps)
    changes = outbox(spark, 4, rows=1)
    about = Publishing(divided(4), row_limit=3)
    deaths.append(death)
    with pytest.raises(DiedError):
        publish_kafka(spark, out, incarnation, changes, 0, 3, about)
    # What is said to be complete is complete.
    records = said(broker.bootstrap, steps)
    assert [one["step"] for one in records] == list(range(there))
    there_by_step = found(broker.bootstrap, topic)
    for one in records:
        rows = sum(n for row, n in there_by_step.items() if row[-1] == one["step"])
        assert rows == one["rows"]
    again = Publishing(divided(4), was_intended=True, row_limit=3)
    assert publish_kafka(spark, out, incarnation, changes, 0, 3, again).marker == 3
    assert [one["step"] for one in said(broker.bootstrap, steps)] == [0, 1, 2, 3]
    assert found(broker.bootstrap, topic) == expected(changes, 3)


def test_two_publishes_at_once_say_each_step_once(
    spark: SparkSession, broker: Any, incarnation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, steps = new_topic(broker.bootstrap), new_topic(broker.bootstrap)
    out = sink(broker.bootstrap, topic, steps_topic=steps)
    changes, about = outbox(spark, 4, rows=4), Publishing(divided(4))
    say, others = kafka_sink._say_steps, iter([True])

    def say_while_another_publishes(*arguments: Any) -> int:
        if next(others, False):
            publish_kafka(spark, out, incarnation, changes, 0, 3, about)
        return say(*arguments)

    monkeypatch.setattr(kafka_sink, "_say_steps", say_while_another_publishes)
    # It is fenced there, reads again, and finds all of it done.
    assert publish_kafka(spark, out, incarnation, changes, 0, 1, about).marker == 3
    assert [one["step"] for one in said(broker.bootstrap, steps)] == [0, 1, 2, 3]
    assert found(broker.bootstrap, topic) == expected(changes, 3)


def test_a_side_topic_that_comes_later_begins_after_what_is_published(
    spark: SparkSession, broker: Any, incarnation: str
) -> None:
    topic, steps = new_topic(broker.bootstrap), new_topic(broker.bootstrap)
    changes, about = outbox(spark, 6, rows=2), Publishing(divided(4))
    before = sink(broker.bootstrap, topic)
    publish_kafka(spark, before, incarnation, changes, 0, 1, about)
    out = sink(broker.bootstrap, topic, steps_topic=steps)
    assert publish_kafka(spark, out, incarnation, changes, 2, 3, about).marker == 3
    assert [one["step"] for one in said(broker.bootstrap, steps)] == [2, 3]
    # Left out for a while, it is made up for.
    publish_kafka(spark, before, incarnation, changes, 4, 4, about)
    publish_kafka(spark, out, incarnation, changes, 5, 5, Publishing(divided(6)[5:]))
    records = said(broker.bootstrap, steps)
    assert [(one["step"], one["rows"]) for one in records] == [(2, 2), (3, 3), (4, 2), (5, 3)]
    assert [one["inputs"] is None for one in records] == [False, False, True, False]
    assert found(broker.bootstrap, topic) == expected(changes, 5)


def test_a_side_topic_that_does_not_exist(
    spark: SparkSession, broker: Any, incarnation: str
) -> None:
    out = sink(broker.bootstrap, new_topic(broker.bootstrap), steps_topic="nowhere")
    with pytest.raises(WrongUse, match="sink out/steps: topic nowhere does not exist"):
        publish_kafka(spark, out, incarnation, outbox(spark, 1), 0, 0)
    assert read_markers(sink_address(out, incarnation), [0]) == {0: Marker(-1, 1)}
