"""Tables that somebody writes and a pipeline that follows them, for the tests of Iceberg sources."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lockstep.adapters.settings import Settings
from lockstep.control.model import Division, TableSlice
from lockstep.deploying import deploy
from lockstep.runtime import Pipeline

SPEC = """\
name: {name}
storage: file:///tmp/unused
catalog: lake
database: {name}
libraries:
  - glob: {{include: sql/**}}
configuration:
  lockstep.rows_per_step: "{rows_per_step}"
{settings}
"""
COPY_ON_WRITE = {"format-version": "2"}
MERGE_ON_READ = {
    "format-version": "2",
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
}
DELETION_VECTORS = {**MERGE_ON_READ, "format-version": "3"}
FULL_READ = "that only a full read can compare"
ORDERS = "id BIGINT, customer STRING, amount INT, placed TIMESTAMP"
CUSTOMERS = "customer STRING, country STRING"
QUERIES = {
    "big": "SELECT o.id, o.amount, o.placed, c.country FROM @orders o "
    "JOIN @customers c ON o.customer = c.customer WHERE o.amount > 40",
    "totals": "SELECT c.country, count(*) AS n, sum(o.amount) AS total, max(o.amount) AS most "
    "FROM @orders o JOIN @customers c ON o.customer = c.customer GROUP BY c.country",
}
REWRITE = (
    "CALL lake.system.rewrite_data_files(table => '@orders', options => map('rewrite-all', 'true'))"
)


def settings_of(spark_server: Any, home: Path, broker: Any = None) -> Settings:
    """An installation whose catalog is the one of the shared Spark; with the shared broker, if given."""
    home.mkdir()
    return Settings.load(
        {
            "LOCKSTEP_HOME": str(home),
            "LOCKSTEP_SPARK_REMOTE": spark_server.remote,
            "LOCKSTEP_CATALOG_URI": spark_server.catalog_uri,
            "LOCKSTEP_WAREHOUSE": spark_server.warehouse,
            **({} if broker is None else {"LOCKSTEP_KAFKA": broker.bootstrap}),
        }
    )


@dataclass
class Shop:
    """Tables in one database, and a pipeline over them in another.

    In SQL, `@name` stands for the table of that name. `said` is what the last interval told.
    """

    spark: Any
    settings: Settings
    database: str
    folder: Path
    said: list[str] = field(default_factory=list)

    # Tables

    def table(self, name: str) -> str:
        return f"lake.{self.database}_in.{name}"

    def sql(self, statement: str) -> Any:
        return self.spark.sql(re.sub(r"@(\w+)", lambda match: self.table(match[1]), statement))

    def make(self, table: str, columns: str, properties: Mapping[str, str]) -> None:
        self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{self.database}_in")
        written = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        self.sql(f"CREATE TABLE @{table} ({columns}) USING iceberg TBLPROPERTIES ({written})")

    def rewrite_files(self, table: str) -> None:
        self.sql(
            f"CALL lake.system.rewrite_data_files(table => '{self.table(table)}', "
            "options => map('rewrite-all', 'true'))"
        )

    def snapshots(self, table: str) -> list[int]:
        found = self.sql(f"SELECT snapshot_id FROM @{table}.snapshots ORDER BY committed_at")
        return [row[0] for row in found.collect()]

    def data_files(self, table: str) -> list[Path]:
        found = self.sql(f"SELECT file_path FROM @{table}.files WHERE content = 0").collect()
        return [Path(row[0].removeprefix("file:")) for row in found]

    # The pipeline

    def source(self, name: str, columns: str, more: str = "") -> str:
        return (
            f"CREATE TABLE {name} ({columns}) USING iceberg "
            f"OPTIONS ('table' = '{self.table(name)}'{more});\n"
        )

    def deploy(
        self,
        queries: Mapping[str, str],
        sources: str,
        rows_per_step: int = 1_000_000,
        settings: Sequence[str] = (),
    ) -> None:
        """Views from queries over @tables, which the sources are named after; more settings as lines."""
        (self.folder / "sql").mkdir(parents=True, exist_ok=True)
        lines = "\n".join(f"  {one}" for one in settings)
        spec = SPEC.format(name=self.database, rows_per_step=rows_per_step, settings=lines)
        (self.folder / "spark-pipeline.yml").write_text(spec, "utf-8")
        views = "".join(
            f"CREATE MATERIALIZED VIEW {name} AS {query.replace('@', '')};\n"
            for name, query in queries.items()
        )
        (self.folder / "sql" / "shop.sql").write_text(sources + views, "utf-8")
        deploy(str(self.folder), self.settings)

    def advance(self) -> None:
        """All that is there now, as one interval."""
        self.said.clear()
        with Pipeline(self.database, self.settings) as pipeline:
            if pipeline.plan(None, self.said.append).interval is not None:
                pipeline.run(self.said.append)
                pipeline.publish(self.said.append)

    def view(self, name: str) -> str:
        return f"lake.{self.database}.{name}"

    def check(self, queries: Mapping[str, str]) -> None:
        """Each view is its query over the tables as they are."""
        for name, query in queries.items():
            assert rows(self.spark.table(self.view(name))) == rows(self.sql(query)), name

    def follow(self, statements: Sequence[str], queries: Mapping[str, str]) -> None:
        """The statements, one interval over all of them, and each view is as it should be."""
        for statement in statements:
            self.sql(statement)
        self.advance()
        self.check(queries)

    def divisions(self) -> tuple[Division, ...]:
        with Pipeline(self.database, self.settings) as pipeline:
            return pipeline.divisions(0, pipeline.state().next_step)

    def slices(self, source: str) -> list[TableSlice]:
        return [
            slice_
            for division in self.divisions()
            for slice_ in division.slices
            if isinstance(slice_, TableSlice) and slice_.source == source
        ]


def make_orders(shop: Shop, properties: dict[str, str], count: int = 300) -> None:
    shop.make("orders", ORDERS, properties)
    shop.sql(
        "INSERT INTO @orders SELECT id, concat('c', id % 7), CAST(id % 100 AS INT), "
        f"timestamp_micros(id * 1000000) FROM range({count})"
    )


def two_tables(shop: Shop, properties: dict[str, str]) -> None:
    make_orders(shop, properties)
    shop.make("customers", CUSTOMERS, properties)
    shop.sql(
        "INSERT INTO @customers SELECT concat('c', id), element_at(array('NL', 'DE', 'FR'), "
        "CAST(id % 3 + 1 AS INT)) FROM range(6)"
    )
    shop.deploy(QUERIES, shop.source("orders", ORDERS) + shop.source("customers", CUSTOMERS))


def rows(frame: Any) -> Counter[tuple[Any, ...]]:
    """Every row as often as it occurs, in a form that can be compared."""
    return Counter(_comparable(row) for row in frame.collect())


def _comparable(value: Any) -> Any:
    match value:
        case dict():
            return tuple(sorted((key, _comparable(inner)) for key, inner in value.items()))
        case list() | tuple():
            return tuple(_comparable(inner) for inner in value)
        case bytearray():
            return bytes(value)
        case _:
            return value
