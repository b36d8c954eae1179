"""Rows that the driver fetches are the messages that tasks would send: as many, as counted, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from kafka_builders import sink

from lockstep_engine.sinks import kafka as kafka_sink
from lockstep_engine.sinks import kafka_tasks
from lockstep_engine.sinks.kafka_messages import MESSAGE_ORDER, dealt, messages
from lockstep_engine.sinks.kafka_plan import Message
from lockstep_engine.sinks.kafka_rows import NO_ROWS, FetchedRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

# As UTF-16 the fourth comes before the third, as UTF-8 after it.
TEXTS = ("''", "'a'", r"'\uFFFD'", r"'\U0001F600'", "NULL")
OPTIONS = ({}, {"key": "t"}, {"key": "t", "format": "upsert"}, {"format": "debezium"})
PARTITIONS = 4


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_fetched_rows_are_those_of_tasks(spark: SparkSession, options: dict[str, str]) -> None:
    rows = ", ".join(
        f"({text}, {number}, {weight}L, {step}L)"
        for number, text in enumerate(TEXTS)
        for step, weight in ((0, 1), (1, -1), (2, 2))
    )
    changes = spark.sql(f"SELECT * FROM VALUES {rows} AS v(t, n, _weight, _step)")
    placed = messages(changes, sink("nowhere:1", "topic", **options), "incarnation", {})
    fetched = FetchedRows(placed.toArrow(), PARTITIONS)
    assert fetched.after(2).table.num_rows == 0
    for shards in (1, 3):
        written = dealt(placed, shards, PARTITIONS)
        assert fetched.counts(shards) == kafka_sink._counts(written)
        for shard in range(shards):
            batches = written.where(f"_shard = {shard}").sort(*MESSAGE_ORDER).toArrow().to_batches()
            sent: list[Message] = [message for _, message in kafka_tasks._messages(batches)]
            assert list(fetched.of_shard(shard, shards)) == sent


def test_no_rows_have_the_columns_of_messages(spark: SparkSession) -> None:
    changes = spark.sql("SELECT 1 AS n, 1L AS _weight, 0L AS _step")
    placed = messages(changes, sink("nowhere:1", "topic"), "incarnation", {}).toArrow()
    assert {(f.name, f.type) for f in NO_ROWS.schema} == {(f.name, f.type) for f in placed.schema}
    assert FetchedRows(NO_ROWS, PARTITIONS).counts(3) == {}
