"""Pipelines over Iceberg tables: after each interval a view is the query over the tables as they are.

Whatever a writer does to a table (appends, deletes, merges, overwrites, compactions, rollbacks), and in
whichever way Iceberg keeps it, the published view is compared with Spark's answer to the view's own
query, asked of the tables themselves.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lockstep.adapters.settings import Settings
from lockstep.adapters.verify import verify
from lockstep.control.model import TableSlice
from lockstep.runtime import Pipeline, deploy

pytestmark = [pytest.mark.spark]

SPEC = """\
name: {name}
storage: file:///tmp/unused
catalog: lake
database: {name}
libraries:
  - glob: {{include: sql/**}}
"""
ORDERS = "id BIGINT, customer STRING, amount INT, placed TIMESTAMP"
CUSTOMERS = "customer STRING, country STRING"
SOURCE = "CREATE TABLE {name} ({columns}) USING iceberg OPTIONS ('table' = 'lake.{table}'{more});\n"
QUERIES = {
    "big": "SELECT o.id, o.amount, o.placed, c.country FROM orders o "
    "JOIN customers c ON o.customer = c.customer WHERE o.amount > 40",
    "totals": "SELECT c.country, count(*) AS n, sum(o.amount) AS total, max(o.amount) AS most "
    "FROM orders o JOIN customers c ON o.customer = c.customer GROUP BY c.country",
}
COPY_ON_WRITE = {"format-version": "2"}
MERGE_ON_READ = {
    "format-version": "2",
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
}
DELETION_VECTORS = {**MERGE_ON_READ, "format-version": "3"}


@dataclass
class Shop:
    """Two tables that others write, and a pipeline over them; one database for both."""

    spark: Any
    settings: Settings
    database: str
    folder: Path
    said: list[str] = field(default_factory=list)

    def make(self, table: str, columns: str, properties: dict[str, str]) -> None:
        self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{self.database}_in")
        written = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        self.spark.sql(
            f"CREATE TABLE {self.table(table)} ({columns}) USING iceberg TBLPROPERTIES ({written})"
        )

    def table(self, name: str) -> str:
        return f"lake.{self.database}_in.{name}"

    def sql(self, statement: str) -> None:
        """Run a statement in which orders and customers are the tables."""
        for name in ("orders", "customers"):
            statement = statement.replace(f"@{name}", self.table(name))
        self.spark.sql(statement)

    def deploy(self, queries: dict[str, str], sources: str) -> None:
        (self.folder / "sql").mkdir(parents=True, exist_ok=True)
        spec = SPEC.format(name=self.database)
        (self.folder / "spark-pipeline.yml").write_text(spec, "utf-8")
        views = "".join(f"CREATE MATERIALIZED VIEW {n} AS {q};\n" for n, q in queries.items())
        (self.folder / "sql" / "shop.sql").write_text(sources + views, "utf-8")
        deploy(str(self.folder), self.settings)

    def source(self, name: str, columns: str, more: str = "") -> str:
        table = f"{self.database}_in.{name}"
        return SOURCE.format(name=name, columns=columns, table=table, more=more)

    def advance(self) -> None:
        """All that is there now, as one interval."""
        self.said.clear()
        with Pipeline(self.database, self.settings) as pipeline:
            if pipeline.plan(None, self.said.append).interval is not None:
                pipeline.run(self.said.append)
                pipeline.publish(self.said.append)

    def check(self, queries: dict[str, str]) -> None:
        for view, query in queries.items():
            expected = query
            for name in ("orders", "customers"):
                expected = expected.replace(f"{name} ", f"{self.table(name)} ")
            found = self.spark.table(f"lake.{self.database}.{view}")
            assert rows(found) == rows(self.spark.sql(expected)), view

    def slices(self, source: str) -> list[TableSlice]:
        with Pipeline(self.database, self.settings) as pipeline:
            divisions = pipeline.divisions(0, pipeline.state().next_step)
        return [
            slice_
            for division in divisions
            for slice_ in division.slices
            if isinstance(slice_, TableSlice) and slice_.source == source
        ]

    def snapshots(self, table: str) -> list[int]:
        found = self.spark.sql(
            f"SELECT snapshot_id FROM {self.table(table)}.snapshots ORDER BY committed_at"
        )
        return [row[0] for row in found.collect()]


def rows(frame: Any) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row) for row in frame.collect())


@pytest.fixture
def shop(spark: Any, spark_server: Any, database: str, tmp_path: Path) -> Shop:
    settings = Settings.load(
        {
            "LOCKSTEP_HOME": str(tmp_path / "home"),
            "LOCKSTEP_SPARK_REMOTE": spark_server.remote,
            "LOCKSTEP_CATALOG_URI": spark_server.catalog_uri,
            "LOCKSTEP_WAREHOUSE": spark_server.warehouse,
        }
    )
    settings.home.mkdir()
    return Shop(spark, settings, database, tmp_path / "project")


def two_tables(shop: Shop, properties: dict[str, str]) -> None:
    shop.make("orders", ORDERS, properties)
    shop.make("customers", CUSTOMERS, properties)
    shop.sql(
        "INSERT INTO @orders SELECT id, concat('c', id % 7), CAST(id % 100 AS INT), "
        "timestamp_micros(id * 1000000) FROM range(300)"
    )
    shop.sql(
        "INSERT INTO @customers SELECT concat('c', id), element_at(array('NL', 'DE', 'FR'), "
        "CAST(id % 3 + 1 AS INT)) FROM range(6)"
    )
    shop.deploy(QUERIES, shop.source("orders", ORDERS) + shop.source("customers", CUSTOMERS))


@pytest.mark.parametrize(
    "properties",
    [COPY_ON_WRITE, MERGE_ON_READ, DELETION_VECTORS],
    ids=["copy_on_write", "merge_on_read", "deletion_vectors"],
)
def test_a_view_follows_whatever_happens_to_its_tables(
    shop: Shop, properties: dict[str, str]
) -> None:
    two_tables(shop, properties)
    in_one_interval: list[list[str]] = [
        [],
        ["INSERT INTO @orders VALUES (1000, 'c1', 77, TIMESTAMP '2026-01-01 00:00:00Z')"],
        ["DELETE FROM @orders WHERE id % 50 = 3"],
        ["DELETE FROM @orders WHERE id IN (4, 54)", "DELETE FROM @orders WHERE id = 5"],
        ["UPDATE @orders SET amount = amount + 50 WHERE customer = 'c2'"],
        [
            "MERGE INTO @orders t USING (SELECT id, CAST(99 AS INT) AS amount FROM range(290, 310)) s "
            "ON t.id = s.id WHEN MATCHED AND t.id < 295 THEN DELETE "
            "WHEN MATCHED THEN UPDATE SET amount = s.amount "
            "WHEN NOT MATCHED THEN INSERT (id, customer, amount) VALUES (s.id, 'c6', s.amount)"
        ],
        [
            "INSERT INTO @customers VALUES ('c6', 'IT')",
            "DELETE FROM @customers WHERE customer = 'c0'",
        ],
        [
            f"CALL lake.system.rewrite_data_files(table => '{shop.table('orders')}', "
            "options => map('rewrite-all', 'true'))"
        ],
        [
            "INSERT INTO @orders VALUES (2000, 'c1', 60, NULL), (2000, 'c1', 60, NULL)",
            f"CALL lake.system.rewrite_data_files(table => '{shop.table('orders')}', "
            "options => map('rewrite-all', 'true'))",
            "DELETE FROM @orders WHERE id = 1000",
            "INSERT INTO @orders VALUES (3000, 'c3', 61, NULL)",
        ],
        ["INSERT OVERWRITE @customers SELECT * FROM @customers WHERE customer <> 'c1'"],
        ["INSERT OVERWRITE @orders SELECT id, customer, amount + 1, placed FROM @orders"],
        ["DELETE FROM @customers"],
        ["INSERT INTO @customers VALUES ('c1', 'NL'), ('c2', 'DE')"],
    ]
    for statements in in_one_interval:
        for statement in statements:
            shop.sql(statement)
        shop.advance()
        shop.check(QUERIES)
    checks = verify(shop.database, shop.settings, shop.said.append)
    assert [(check.view, check.equal) for check in checks] == [("big", True), ("totals", True)]


def test_an_interval_without_a_commit_is_none(shop: Shop) -> None:
    two_tables(shop, COPY_ON_WRITE)
    shop.advance()
    steps = len(shop.slices("orders"))
    shop.advance()
    assert "nothing to do" in shop.said[-1]
    assert len(shop.slices("orders")) == steps == 1
