"""A pipeline that joins a Kafka topic with an Iceberg table: the division holds both, step by step."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from lockstep.adapters.kafka import create_topics
from lockstep.adapters.verify import verify
from lockstep.control.kafka_options import KafkaConnection
from lockstep.control.model import TableSlice, TopicSlice
from lockstep.runtime import receipt

sys.path.insert(0, str(Path(__file__).parent))
from followed_shop import MERGE_ON_READ, Shop, rows, settings_of

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

SALES = """\
CREATE TABLE sales (item STRING, pieces INT) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = '${{lockstep.kafka}}', subscribe = '{topic}');
"""
QUERY = (
    "SELECT i.name, sum(s.pieces) AS pieces, sum(s.pieces * i.price) AS total "
    "FROM sales s JOIN @items i ON s.item = i.item GROUP BY i.name"
)


def send(bootstrap: str, topic: str, sold: Iterable[tuple[str, int]]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for item, pieces in sold:
        producer.produce(topic, json.dumps({"item": item, "pieces": pieces}).encode())
    assert producer.flush(30) == 0


def test_a_topic_joined_with_a_table(
    spark: Any, spark_server: Any, broker: Any, database: str, tmp_path: Path
) -> None:
    settings = settings_of(spark_server, tmp_path / "home", broker)
    shop = Shop(spark, settings, database, tmp_path / "project")
    create_topics(KafkaConnection(broker.bootstrap), {database: 2})
    columns = "item STRING, name STRING, price INT"
    shop.make("items", columns, MERGE_ON_READ)
    shop.sql("INSERT INTO @items VALUES ('a', 'apple', 3), ('b', 'bread', 5), ('c', 'cheese', 7)")
    sources = SALES.format(topic=database) + shop.source("items", columns)
    shop.deploy({"totals": QUERY}, sources)
    sold: list[tuple[str, int]] = []
    for number, (statement, more) in enumerate(
        (
            ("SELECT 1", [("a", 1), ("b", 2), ("d", 9)]),
            ("UPDATE @items SET price = 4 WHERE item = 'a'", []),
            ("INSERT INTO @items VALUES ('d', 'dates', 1)", [("c", 2), ("a", 2)]),
            ("DELETE FROM @items WHERE item = 'b'", [("b", 1)]),
        )
    ):
        shop.sql(statement)
        send(broker.bootstrap, database, more)
        sold += more
        shop.advance()
        spark.createDataFrame(sold, "item string, pieces int").createOrReplaceTempView("sales")
        expected = rows(shop.sql(QUERY))
        assert rows(spark.table(shop.view("totals"))) == expected, number
    kinds = [tuple(map(type, division.slices)) for division in shop.divisions()]
    assert kinds == [(TableSlice, TopicSlice)] * 4
    [check] = verify(database, settings, shop.said.append)
    assert check.equal
    [found] = receipt(database, database, 0, 10_000, settings)
    assert found.source == "sales"
