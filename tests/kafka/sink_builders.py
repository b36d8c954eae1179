"""Outboxes for the tests of the Kafka sink, and what a reader of the topic should find of them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from kafka_builders import committed_records, interval

from lockstep.control.model import Division
from lockstep.sql.circuit import SinkTable
from lockstep_engine.sinks import kafka
from lockstep_engine.sinks.kafka import KafkaPublished, Publishing
from lockstep_engine.sinks.kafka_link import SinkClient
from lockstep_engine.sinks.kafka_opening import OpenedSink, SinkOpening, sink_address

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 300


class DiedError(Exception):
    """What a publish ends with that is killed."""


def outbox(spark: SparkSession, steps: int, rows: int = ROWS) -> DataFrame:
    """`rows` rows a step: row n of step s is (s, n); each second step takes back half of the last."""
    brought = spark.range(steps * rows).selectExpr(
        f"id DIV {rows} AS Step", f"id % {rows} AS n", "1L AS _weight", f"id DIV {rows} AS _step"
    )
    gone = (
        brought.where("Step % 2 = 0 AND n % 2 = 0")
        .where(f"Step + 1 < {steps}")
        .selectExpr("Step", "n", "-1L AS _weight", "_step + 1 AS _step")
    )
    return brought.unionByName(gone)


def divided(steps: int) -> tuple[Division, ...]:
    """Steps 0.. of one source, a second and ten records each."""
    return interval("orders", [{0: 10 * step} for step in range(steps + 1)]).divisions


def opened(out: SinkTable, incarnation: str, published: int = -1) -> OpenedSink:
    opening = SinkOpening(out, published, published + 1, False, lambda _: None)
    with SinkClient(sink_address(out, incarnation)) as client:
        return opening.open(client)


def expected(changes: DataFrame, last_step: int) -> Counter[tuple[int, ...]]:
    rows = changes.where(f"_step <= {last_step}").collect()
    return Counter((r["Step"], r["n"], r["_weight"], r["_step"]) for r in rows)


def found(bootstrap: str, topic: str) -> Counter[tuple[int, ...]]:
    rows: Counter[tuple[int, ...]] = Counter()
    for record in committed_records(bootstrap, topic):
        value = json.loads(record.value)
        step = int(dict(record.headers)["lockstep-step"])
        rows[(value["Step"], value["n"], value["_weight"], step)] += 1
    return rows


def publish_kafka(
    spark: SparkSession,
    sink: SinkTable,
    incarnation: str,
    changes: DataFrame,
    first_step: int,
    last_step: int,
    publishing: Publishing | None = None,
) -> KafkaPublished:
    """As a publish of the pipeline does it, which knows how many rows there are at most."""
    pending = changes.where(f"_step >= {first_step}").count()
    about = replace(publishing or Publishing(), pending=pending)
    return kafka.publish_kafka(spark, sink, incarnation, changes, first_step, last_step, about)
