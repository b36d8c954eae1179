"""A recursion and an ASOF join over followed tables, interval by interval, also as DuckDB sees it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from lockstep.adapters.verify import verify

sys.path.insert(0, str(Path(__file__).parent))
from followed_shop import MERGE_ON_READ, Shop, rows, settings_of

pytestmark = pytest.mark.spark

COLUMNS = {"staff": "id INT, boss INT, pay INT", "prices": "item INT, since INT, price INT"}
QUERIES = {
    "under": "WITH RECURSIVE r (top, id) MAX RECURSION LEVEL 20 AS (SELECT id, id FROM @staff "
    "UNION ALL SELECT r.top, s.id FROM r JOIN @staff s ON s.boss = r.id) "
    "SELECT r.top, count(*) AS people, sum(s.pay) AS pay FROM r JOIN @staff s ON s.id = r.id "
    "GROUP BY r.top",
    "chains": "WITH RECURSIVE r AS (SELECT id, boss, 0 AS depth FROM @staff WHERE pay > 4 "
    "UNION ALL SELECT r.id, s.boss, depth + 1 FROM r JOIN @staff s ON s.id = r.boss) "
    "SELECT id, boss, depth FROM r",
}
PRICED = (
    "SELECT s.id, s.pay, p.since, p.price FROM @staff s ASOF JOIN @prices p ON s.pay >= p.since"
)
INTERVALS = (
    (
        "INSERT INTO @staff VALUES (1, NULL, 9), (2, 1, 5), (3, 1, 6), (4, 2, 2), (5, 4, 4)",
        "INSERT INTO @prices VALUES (1, 0, 10), (1, 5, 50)",
    ),
    (
        "INSERT INTO @staff VALUES (6, 5, 3), (7, 5, 8)",
        "UPDATE @staff SET boss = 3 WHERE id = 2",
    ),
    ("INSERT INTO @prices VALUES (2, 4, 40)", "DELETE FROM @staff WHERE id = 5"),
    ("INSERT INTO @staff VALUES (5, 1, 9)", "DELETE FROM @prices WHERE since = 0"),
)


def test_a_hierarchy_that_changes(
    spark: Any, spark_server: Any, database: str, tmp_path: Path
) -> None:
    settings = settings_of(spark_server, tmp_path / "home")
    shop = Shop(spark, settings, database, tmp_path / "project")
    for table, columns in COLUMNS.items():
        shop.make(table, columns, MERGE_ON_READ)
    sources = "".join(shop.source(table, columns) for table, columns in COLUMNS.items())
    shop.deploy({**QUERIES, "priced": PRICED}, sources)
    for number, statements in enumerate(INTERVALS):
        for statement in statements:
            shop.sql(statement)
        shop.advance()
        shop.check(QUERIES)
        # Spark has no ASOF join, nor a subquery that compares by less
        pairs = shop.sql(
            "SELECT s.id, s.pay, p.since, p.price FROM @staff s JOIN @prices p ON s.pay >= p.since"
        ).collect()
        newest = {pair.id: max(p.since for p in pairs if p.id == pair.id) for pair in pairs}
        found = rows(spark.table(shop.view("priced")))
        assert found == {tuple(p): 1 for p in pairs if p.since == newest[p.id]}, number
    checks = verify(database, settings, shop.said.append)
    assert [check.equal for check in checks] == [True, True, True]
