"""What a first interval asks of Spark where it is worked out here: nothing, from plan to published."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from followed_shop import COPY_ON_WRITE, ORDERS, Shop, make_orders, rows

pytestmark = [pytest.mark.spark]

QUERIES = {
    "dear": "SELECT id, customer, amount * 2 AS twice FROM @orders WHERE amount > 40",
    "totals": "SELECT customer, count(*) AS n, sum(amount) AS total FROM @orders GROUP BY customer",
    "pairs": "SELECT a.id, b.id AS other FROM @orders a JOIN @orders b ON a.amount = b.id",
}


def test_an_interval_that_is_worked_out_here_needs_no_server(shop: Shop, tmp_path: Path) -> None:
    """Only what the types are that somebody has written down a process asks Spark, for once."""
    make_orders(shop, COPY_ON_WRITE)
    source = shop.source("orders", ORDERS)
    shop.deploy(QUERIES, source)
    shop.advance()
    home = tmp_path / "other"
    home.mkdir()
    alone = replace(shop.settings, home=home, spark_remote="sc://127.0.0.1:1")
    other = replace(shop, settings=alone, database=f"{shop.database}_2", folder=tmp_path / "sql_2")
    other.deploy(QUERIES, source)
    other.advance()
    for name, query in QUERIES.items():
        assert rows(shop.spark.table(other.view(name))) == rows(shop.sql(query)), name
