"""The code of docs/sinks.md runs, and does what the page says."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kafka_builders import new_topic, sink
from sink_builders import divided, expected, outbox, publish_kafka
from sql_builders import SPEC

from lockstep.control.kafka_options import KafkaConnection
from lockstep.sql.circuit import ProjectFiles
from lockstep.sql.project import _SINK_OPTIONS, parse_project
from lockstep_engine.sinks.kafka import Publishing
from lockstep_engine.sinks.kafka_link import SinkAddress, partition_count
from lockstep_engine.sinks.kafka_steps import step_messages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (Path(__file__).parents[2] / "docs" / "sinks.md").read_text("utf-8")
SQL = """
CREATE TABLE orders (customer STRING) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = 'b', subscribe = 'orders');
CREATE MATERIALIZED VIEW totals AS SELECT customer, count(*) AS n FROM orders GROUP BY customer;
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def defined(name: str) -> dict[str, Any]:
    """What the block of code that defines a name defines."""
    (code,) = (block for block in blocks("python") if f"def {name}(" in block)
    names: dict[str, Any] = {}
    exec(code, names)
    return names


def test_the_sink_is_one_and_every_option_is_explained() -> None:
    (declared,) = blocks("sql")
    files = ProjectFiles(SPEC, (("sql/a.sql", SQL), ("sql/b.sql", declared)))
    (found,) = parse_project(files, {"lockstep.kafka": "b"}).sinks
    assert found.options["steps_topic"] == "totals_steps"
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == set(_SINK_OPTIONS)


def test_the_settings_of_the_client_are_those_that_are_used() -> None:
    assert set(re.findall(r"`(kafka\.[a-z]\S*)`", PAGE)) == KafkaConnection.OPTIONS


def test_a_record_has_the_fields_that_are_shown() -> None:
    (block,) = blocks("json")
    shown = json.loads(block)
    (message,) = step_messages(
        SinkAddress({}, "t", "9f", "x"), "totals_out", 0, 1, {1: 2}, {1: divided(2)[1]}
    )
    written = json.loads(message.value or b"")
    assert list(written) == list(shown)
    assert list(written["inputs"]["src"]) == list(shown["inputs"]["orders"])


@pytest.mark.kafka
@pytest.mark.spark
def test_a_reader_of_whole_steps_and_one_that_resumes(
    spark: SparkSession, broker: Any, incarnation: str
) -> None:
    reader = defined("whole_steps")
    topic, steps = new_topic(broker.bootstrap, 3), new_topic(broker.bootstrap)
    out = sink(broker.bootstrap, topic, shards="2", steps_topic=steps)
    changes, about = outbox(spark, 5, rows=20), Publishing(divided(6))
    # Of another pipeline on both topics, the reader sees nothing.
    for name in (f"{incarnation}x", incarnation):
        publish_kafka(spark, out, name, changes, 0, 2, about)
        publish_kafka(spark, out, name, changes, 3, 5, about)

    def read(after: int) -> dict[int, Counter[tuple[int, ...]]]:
        origin = incarnation, "out"
        whole = reader["whole_steps"](broker.bootstrap, topic, steps, origin, after)
        found = {}
        for record, messages in islice(whole, 5 - after):
            rows = [json.loads(message.value()) for message in messages]
            found[record["step"]] = Counter((r["Step"], r["n"], r["_weight"]) for r in rows)
        return found

    wanted = {step: Counter[tuple[int, ...]]() for step in range(6)}
    for (*row, step), times in expected(changes, 5).items():
        wanted[step][tuple(row)] += times
    assert read(-1) == wanted
    assert read(2) == {step: rows for step, rows in wanted.items() if step > 2}


@pytest.mark.kafka
def test_a_topic_is_made_as_the_page_says(broker: Any, incarnation: str) -> None:
    topic = f"made_{incarnation}"
    defined("create_topic")["create_topic"](broker.bootstrap, topic, 3)
    assert (
        partition_count(SinkAddress({"bootstrap.servers": broker.bootstrap}, topic, "i", "s")) == 3
    )


@pytest.mark.kafka
def test_a_producer_waits_for_what_it_sent(broker: Any) -> None:
    producer = defined("send_and_wait")
    waited: list[tuple[str, dict[tuple[str, int], int], float]] = []

    def wait(pipeline: str, sent: dict[tuple[str, int], int], timeout_seconds: float) -> tuple[()]:
        waited.append((pipeline, sent, timeout_seconds))
        return ()

    producer["wait_until_published"] = wait
    topic = new_topic(broker.bootstrap)
    for _ in range(2):
        producer["send_and_wait"](broker.bootstrap, "shop", topic, [b"1", b"2", b"3"])
    assert waited == [("shop", {(topic, 0): last}, 300) for last in (2, 5)]
