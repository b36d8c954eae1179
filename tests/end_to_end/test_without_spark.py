"""What a first interval asks of Spark where it is worked out here: nothing, from plan to published."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lockstep.adapters.kafka import create_topics
from lockstep.control.kafka_options import KafkaConnection

sys.path.insert(0, str(Path(__file__).parent))
from followed_shop import COPY_ON_WRITE, ORDERS, Shop, make_orders, rows, settings_of
from one_pipeline import OnePipeline

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

NOWHERE = "sc://127.0.0.1:1"

QUERIES = {
    "dear": "SELECT id, customer, amount * 2 AS twice FROM @orders WHERE amount > 40",
    "totals": "SELECT customer, count(*) AS n, sum(amount) AS total FROM @orders GROUP BY customer",
    "pairs": "SELECT a.id, b.id AS other FROM @orders a JOIN @orders b ON a.amount = b.id",
}
TOPIC = """\
CREATE TABLE orders (customer INT, amount BIGINT) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = '${{lockstep.kafka}}', subscribe = '{name}');
"""
OF_TOPIC = {
    "dear": "SELECT customer, amount * 2 AS twice FROM orders WHERE amount > 40",
    "totals": "SELECT customer, count(*) AS n, sum(amount) AS total FROM orders GROUP BY customer",
}


def test_an_interval_that_is_worked_out_here_needs_no_server(shop: Shop, tmp_path: Path) -> None:
    """Only what the types are that somebody has written down a process asks Spark, for once."""
    make_orders(shop, COPY_ON_WRITE)
    source = shop.source("orders", ORDERS)
    shop.deploy(QUERIES, source)
    shop.advance()
    home = tmp_path / "other"
    home.mkdir()
    alone = replace(shop.settings, home=home, spark_remote=NOWHERE)
    other = replace(shop, settings=alone, database=f"{shop.database}_2", folder=tmp_path / "sql_2")
    other.deploy(QUERIES, source)
    other.advance()
    for name, query in QUERIES.items():
        assert rows(shop.spark.table(other.view(name))) == rows(shop.sql(query)), name


def test_nor_does_one_over_topics(
    spark: Any, spark_server: Any, broker: Any, database: str, tmp_path: Path
) -> None:
    settings = settings_of(spark_server, tmp_path / "home", broker)
    create_topics(KafkaConnection(broker.bootstrap), {database: 2})
    text = TOPIC.format(name=database) + "".join(
        f"CREATE MATERIALIZED VIEW {name} AS {query};\n" for name, query in OF_TOPIC.items()
    )
    first = OnePipeline(spark, settings, database, tmp_path / "first")
    first.produce({"customer": n % 7, "amount": n} for n in range(200))
    first.deploy_sql(text)
    first.advance()
    (tmp_path / "other").mkdir()
    alone = replace(settings, home=tmp_path / "other", spark_remote=NOWHERE)
    other = OnePipeline(spark, alone, f"{database}_2", tmp_path / "second")
    other.deploy_sql(text)
    other.advance()
    assert other.is_right()
    for name in OF_TOPIC:
        assert other.view(name) == first.view(name)
