"""The shared broker and Spark server are real: rows go in and come out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lockstep.adapters.embedded import broker as embedded_broker
from lockstep.adapters.embedded import connect

if TYPE_CHECKING:
    from conftest import Broker, SparkServer
    from pyspark.sql import SparkSession


def port_of(address: str) -> int:
    return int(address.rsplit(":", 1)[1])


def test_a_server_is_started_as_no_client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A process that has been a Connect client says so to those that it starts."""
    given: list[Mapping[str, str]] = []
    monkeypatch.setattr(connect.process, "start", lambda *words: given.append(words[2]))
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    monkeypatch.setenv("SPARK_REMOTE", "sc://127.0.0.1:1")
    connect.start(tmp_path, (), connect.ConnectOptions(port=1), tmp_path / "log")
    assert not {"SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE"} & given[0].keys()
    assert "SPARK_HOME" in given[0]


@pytest.mark.kafka
def test_broker_takes_and_gives_records(broker: Broker, database: str) -> None:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for made in admin.create_topics([NewTopic(database, 1)]).values():
        made.result()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": database})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(database, b"one")
    producer.commit_transaction()
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": database,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([database])
    record = consumer.poll(30)
    consumer.close()
    assert record is not None
    assert record.value() == b"one"
    assert embedded_broker.answers(port_of(broker.bootstrap))


@pytest.mark.spark
def test_spark_and_pyiceberg_see_the_same_table(
    spark_server: SparkServer, spark: SparkSession, database: str
) -> None:
    from pyiceberg.catalog import load_catalog

    spark.sql(f"CREATE DATABASE lake.{database}")
    spark.sql(f"CREATE TABLE lake.{database}.t (a INT) USING iceberg")
    spark.sql(f"INSERT INTO lake.{database}.t VALUES (1), (2)")
    wanted = spark_server.catalog_settings(database)
    table = load_catalog(wanted.name, **wanted.pyiceberg).load_table(f"{database}.t")
    assert sorted(table.scan().to_arrow()["a"].to_pylist()) == [1, 2]
    assert connect.answers(port_of(spark_server.remote))
    assert not connect.answers(1)


@pytest.mark.spark
@pytest.mark.kafka
def test_spark_reads_kafka(broker: Broker, spark: SparkSession, database: str) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for made in admin.create_topics([NewTopic(database, 2)]).values():
        made.result()
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(10):
        producer.produce(database, str(number))
    producer.flush()
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
    rows = reader.option("subscribe", database).load().collect()
    assert sorted(int(bytes(row.value)) for row in rows) == list(range(10))
