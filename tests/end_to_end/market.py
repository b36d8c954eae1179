"""A topic of sales, and a pipeline over it with a sink on Kafka, for tests that change or lose it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import reader
from confluent_kafka import Producer
from followed_shop import settings_of
from one_pipeline import OnePipeline

from lockstep.adapters.kafka import create_topics
from lockstep.control.kafka_options import KafkaConnection

SALES = """\
CREATE TABLE sales (item STRING, amount INT) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = '${{lockstep.kafka}}', subscribe = '{name}'{more});
CREATE SINK out FROM totals USING kafka OPTIONS (
  'kafka.bootstrap.servers' = '${{lockstep.kafka}}', 'topic' = '{name}_out', 'format' = 'changelog');
"""
TOTALS = """\
CREATE MATERIALIZED VIEW totals AS SELECT item, sum(amount) AS total FROM sales {} GROUP BY item;
"""
FIRST, LATER = TOTALS.format(""), TOTALS.format("WHERE amount > 1")
TOP = "CREATE MATERIALIZED VIEW top AS SELECT max(total) AS total FROM totals;"
LEAST = (
    "CREATE MATERIALIZED VIEW least AS SELECT item, min(amount) AS least FROM sales GROUP BY item;"
)


class Market(OnePipeline):
    """A topic of sales and a pipeline over it."""

    @property
    def bootstrap(self) -> str:
        return self.settings.kafka

    def send(self, sold: Iterable[tuple[str, int]]) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for item, amount in sold:
            value = json.dumps({"item": item, "amount": amount}).encode()
            producer.produce(self.name, value, partition=len(item) % 2)
        assert producer.flush(30) == 0

    def deploy(self, views: str, more: str = "") -> None:
        self.deploy_sql(SALES.format(name=self.name, more=more) + views)

    def sent(self, sink: str = "out") -> Counter[tuple[Any, ...]]:
        """What a sink's topic adds up to."""
        found: Counter[tuple[Any, ...]] = Counter()
        for record in reader.read_topic(self.bootstrap, f"{self.name}_{sink}"):
            value = json.loads(record.value)  # type: ignore[attr-defined]
            found[value["item"], value["total"]] += value["_weight"]
        return Counter({row: weight for row, weight in found.items() if weight})

    def check(self) -> None:
        """Views are what DuckDB makes of the records, and the sink holds the same as the view."""
        assert self.is_right()
        assert self.sent() == self.view("totals")


def opened(spark: Any, spark_server: Any, broker: Any, database: str, folder: Path) -> Market:
    """A market with two intervals behind it."""
    settings = settings_of(spark_server, folder / "home", broker)
    made = Market(spark, settings, database, folder / "project")
    create_topics(KafkaConnection(broker.bootstrap), {database: 2, f"{database}_out": 1})
    made.send([("nut", 5), ("bolt", 1), ("nut", 1), ("cork", 7)])
    made.deploy(FIRST)
    made.advance()
    made.send([("bolt", 3), ("nut", 4)])
    made.advance()
    made.check()
    return made
