"""TPC-H as Iceberg sources: the interval of a small change against a full recompute by Spark.

    python benchmarks/tpch.py --scales 1,5

For each scale factor the eight tables are made once. A change takes a thousandth of the orders away,
with their lines, by a contiguous range of keys, and puts the thousandth that went before it back, as
TPC-H's own refresh functions do: the tables keep their size. Queries that read neither orders nor lines
get the same change of `partsupp`, by its parts. Each query is a pipeline of its own: its first interval
reads everything, and then each round is a change, the interval that follows it (plan, run and publish),
and Spark's own `INSERT OVERWRITE` of the query's text, on the same server, in turn. The two tables are
compared row by row after each round. The first rounds do not count, as the JVM compiles in them what
both run; of the others the best of each does. Between queries small files and delete files are merged,
as whoever owns such tables does.

Beyond scale factor 1 rounds follow of a change of as many rows as at 1: the away range moves on by a
part of itself. They say what an interval costs by the tables' size alone.

Results are saved after each query, into those that the file has: scales and queries can be measured in
parts.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import tpch_report
import yaml
from pyspark.sql import SparkSession
from tpch_data import QUERIES, TABLES, query

from lockstep.adapters.catalogs import catalog_settings
from lockstep.adapters.settings import Settings
from lockstep.cli.bench import advance, workplace
from lockstep.deploying import deploy
from lockstep.threads import processors

CATALOG = "bench"
DATABASE = "tpch"
CHUNKS = 1000
"""The keys are cut into so many ranges, as long as one of which is what is away."""
REFRESHED = {"orders": "o_orderkey", "lineitem": "l_orderkey", "partsupp": "ps_partkey"}
"""The tables that change, each with the key of which ranges go and come."""
INDEXES = {17: {"lineitem": "l_partkey"}}
"""By query what a table is declared to be kept by: a line of q17 meets all lines of its part, and the
table is in the order of orders."""

Save = Callable[[int, dict[str, Any]], None]
"""Told a query's number and what was measured."""


def say(line: str) -> None:
    """Progress, for people."""
    print(f"{datetime.now(UTC):%H:%M:%S} {line}", file=sys.stderr, flush=True)


class Lake:
    """The tables at one scale factor, and how they change."""

    def __init__(self, spark: SparkSession, folder: Path, scale: float) -> None:
        self.spark = spark
        self._folder = folder / f"sf{scale:g}"
        # Keys of orders are sparse: eight of every 32.
        orders, parts = int(1_500_000 * scale) * 4, int(200_000 * scale)
        self._keys = {"orders": orders, "lineitem": orders, "partsupp": parts}
        self._parts = max(1, round(scale))
        """Of a range, each with as many orders as one has at scale factor 1."""
        self._away = dict.fromkeys(REFRESHED, 0)
        """The first part of what is away."""
        self.rows: dict[str, int] = {}
        generator = Path(sys.executable).with_name("tpchgen-cli")
        subprocess.run(
            [generator, "parquet", "-s", str(scale), "--output-dir", str(self._folder)],
            check=True,
            capture_output=True,
        )

    def make(self) -> None:
        """Make the tables, without the first range of those that change."""
        self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{DATABASE}")
        for table in TABLES:
            self.spark.sql(f"DROP TABLE IF EXISTS {CATALOG}.{DATABASE}.{table}")
            rows = self.spark.read.parquet(str(self._folder / f"{table}.parquet"))
            writer = rows.writeTo(f"{CATALOG}.{DATABASE}.{table}").using("iceberg")
            writer.tableProperty("write.delete.mode", "merge-on-read").tableProperty(
                "write.distribution-mode", "none"
            ).create()
            self.rows[table] = rows.count()
        for table in REFRESHED:
            self._take(table, range(self._parts))

    @property
    def is_larger(self) -> bool:
        """Than at scale factor 1, where a range is one part."""
        return self._parts > 1

    def change(self, tables: Iterable[str], *, is_part: bool = False) -> None:
        """Take the next range of each table away, put back the one that is; or of each a part."""
        for table in tables:
            first = self._away[table]
            moved = first + (1 if is_part else 37 * self._parts)
            if moved > (CHUNKS - 1) * self._parts:
                moved = 0
            before, after = (range(one, one + self._parts) for one in (first, moved))
            self._away[table] = moved
            self._take(table, [part for part in after if part not in before])
            rows = self.spark.read.parquet(str(self._folder / f"{table}.parquet"))
            back = self._keys_of(table, [part for part in before if part not in after])
            rows.where(back).writeTo(f"{CATALOG}.{DATABASE}.{table}").append()

    def tidy(self) -> None:
        """Merge small files and delete files."""
        for table in REFRESHED:
            of_table = f"table => '{DATABASE}.{table}'"
            small = "'max-file-size-bytes', '9000000000', 'min-file-size-bytes', '4000000'"
            for call in (
                f"rewrite_data_files({of_table}, options => map({small}, 'min-input-files', '2'))",
                f"rewrite_position_delete_files({of_table}, options => map('rewrite-all', 'true'))",
                f"rewrite_manifests({of_table})",
            ):
                self.spark.sql(f"CALL {CATALOG}.system.{call}")

    def _take(self, table: str, parts: Sequence[int]) -> None:
        wanted = self._keys_of(table, parts)
        self.spark.sql(f"DELETE FROM {CATALOG}.{DATABASE}.{table} WHERE {wanted}")

    def _keys_of(self, table: str, parts: Sequence[int]) -> str:
        """Of parts in a row."""
        key, of_all = REFRESHED[table], CHUNKS * self._parts
        low, high = (self._keys[table] * end // of_all for end in (parts[0], parts[-1] + 1))
        return f"{key} > {low} AND {key} <= {high}"


def changed_tables(text: str) -> list[str]:
    """The tables whose change a query is measured by."""
    read = set(sources_of(text))
    return sorted(read & {"orders", "lineitem"} or read & {"partsupp"})


def sources_of(text: str) -> list[str]:
    """The tables that a query names."""
    words = set(text.replace(",", " ").replace("(", " ").replace(")", " ").split())
    return [table for table in TABLES if table in words]


def write_project(folder: Path, name: str, text: str, indexes: Mapping[str, str]) -> None:
    """A project of one query over the tables that it reads; some have an index."""
    (folder / "transformations").mkdir(parents=True)
    spec = {
        "name": name,
        "catalog": CATALOG,
        "database": name,
        "storage": folder.as_uri(),
        "libraries": [{"glob": {"include": "transformations/**"}}],
        "configuration": {
            "lockstep.rows_per_step": str(1 << 40),
            "lockstep.rows_per_interval": str(1 << 40),
        },
    }
    (folder / "spark-pipeline.yml").write_text(yaml.safe_dump(spec, sort_keys=False))
    options = {table: f"'table' = '{CATALOG}.{DATABASE}.{table}'" for table in sources_of(text)}
    for table, columns in indexes.items():
        options[table] += f", 'index' = '{columns}'"
    declared = "".join(
        f"CREATE TABLE {table} ({TABLES[table]}) USING iceberg OPTIONS ({said});\n"
        for table, said in options.items()
    )
    (folder / "transformations" / "query.sql").write_text(
        f"{declared}CREATE MATERIALIZED VIEW {name} AS {text};\n"
    )


def timed(work: Callable[[], Any]) -> float:
    """The seconds that it takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def measure(
    lake: Lake, number: int, warm_ups: int, rounds: int, settings: Settings, folder: Path
) -> dict[str, Any]:
    """One query: first interval, then rounds of a change, its interval and the full recompute."""
    name = f"q{number}"
    text = query(number)
    write_project(folder / name, name, text, INDEXES.get(number, {}))
    deploy(str(folder / name), settings)
    _, parts = advance(name, settings, lambda _: None)
    full = f"{CATALOG}.full_{name}.{name}"
    lake.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.full_{name}")
    frame = lake.spark.sql(_over_tables(text))
    frame.limit(0).writeTo(full).using("iceberg").createOrReplace()
    found: list[dict[str, float]] = []
    for _ in range(warm_ups + rounds):
        lake.change(changed_tables(text))
        committed, stages = advance(name, settings, lambda _: None)
        seconds = timed(
            lambda: lake.spark.sql(_over_tables(text)).writeTo(full).overwritePartitions()
        )
        equal = _equal(lake.spark, f"{CATALOG}.{name}.{name}", full)
        found.append({**stages, "full": seconds, "equal": equal, "inside": dict(committed.seconds)})
        say(
            f"{name}: interval {sum(stages.values()):.2f} s ({_parts(stages)}), full {seconds:.2f} s, "
            f"{'equal' if equal else 'WRONG'}"
        )
    same: dict[str, float] = {}
    if lake.is_larger:
        same["same_rows_seconds"] = round(of_as_many_rows(lake, name, text, rounds, settings), 3)
        lake.spark.sql(_over_tables(text)).writeTo(full).overwritePartitions()
        found[-1]["equal"] &= _equal(lake.spark, f"{CATALOG}.{name}.{name}", full)
    equal = all(one["equal"] for one in found)
    found = found[warm_ups:]
    best = min(found, key=lambda one: sum(one[stage] for stage in ("plan", "run", "publish")))
    incremental = sum(best[stage] for stage in ("plan", "run", "publish"))
    full_seconds = min(one["full"] for one in found)
    return {
        "incremental_seconds": round(incremental, 3),
        **same,
        "full_seconds": round(full_seconds, 3),
        "ratio": round(full_seconds / incremental, 3),
        "first_interval_seconds": round(sum(parts.values()), 3),
        "stages": {stage: round(best[stage], 3) for stage in ("plan", "run", "publish")},
        "inside_run": {part: round(value, 3) for part, value in best["inside"].items()},
        "equal": equal,
    }


def of_as_many_rows(lake: Lake, name: str, text: str, rounds: int, settings: Settings) -> float:
    """The seconds of an interval whose change has as many rows as one has at scale factor 1."""
    found = list[float]()
    for _ in range(1 + rounds):
        lake.change(changed_tables(text), is_part=True)
        _, stages = advance(name, settings, lambda _: None)
        found.append(sum(stages.values()))
    say(f"{name}: of as many rows as at scale factor 1 {min(found[1:]):.2f} s")
    return min(found[1:])


def _parts(stages: Mapping[str, float]) -> str:
    return ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in stages.items())


def _over_tables(text: str) -> str:
    """The query's text with the tables' full names, as Spark reads it without a project."""
    names = ", ".join(f"{t} AS (SELECT * FROM {CATALOG}.{DATABASE}.{t})" for t in sources_of(text))
    body = text.strip()
    lines = body.splitlines()
    start = next(i for i, line in enumerate(lines) if line.strip() and not line.startswith("--"))
    body = "\n".join(lines[start:])
    if body.lower().startswith("with"):
        return f"WITH {names}, {body[4:]}"
    return f"WITH {names} {body}"


def _equal(spark: SparkSession, one: str, other: str) -> bool:
    """The same rows, each as often."""
    a, b = spark.table(one), spark.table(other)
    return a.exceptAll(b).isEmpty() and b.exceptAll(a).isEmpty()


def run(scale: float, numbers: Sequence[int], warm_ups: int, rounds: int, save: Save) -> None:
    """One scale, query by query."""
    with workplace(Settings.load(), say) as (settings, work):
        spark = SparkSession.builder.remote(settings.spark_remote).create()
        for key, value in _catalog(settings).items():
            spark.conf.set(key, value)
        lake = Lake(spark, work, scale)
        say(f"scale {scale:g}: making the tables")
        lake.make()
        say(f"scale {scale:g}: {lake.rows['lineitem']:,} lines")
        projects = work / f"sf{scale:g}-projects"
        for number in numbers:
            save(number, measure(lake, number, warm_ups, rounds, settings, projects))
            lake.tidy()
        spark.stop()


def _catalog(settings: Settings) -> Mapping[str, str]:
    found = catalog_settings(CATALOG, DATABASE, {}, settings)
    prefix = f"spark.sql.catalog.{CATALOG}"
    return {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        **{f"{prefix}.{key}": value for key, value in found.spark.items()},
    }


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scales", default="1,5")
    parser.add_argument("--queries", default=",".join(map(str, QUERIES)))
    parser.add_argument("--warm-ups", type=int, default=3, help="rounds that do not count")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--save", type=Path, default=Path(__file__).with_name("tpch.json"))
    options = parser.parse_args()
    numbers = [int(one) for one in options.queries.split(",")]
    for scale in (float(one) for one in options.scales.split(",")):
        save = _saving(options.save, f"sf{scale:g}")
        run(scale, numbers, options.warm_ups, options.rounds, save)
    print(tpch_report.table(tpch_report.load(options.save)))


def _saving(path: Path, scale: str) -> Save:
    def save(number: int, found: dict[str, Any]) -> None:
        known = json.loads(path.read_text()) if path.exists() else {}
        queries = {**known.get(scale, {}), f"q{number}": found}
        known[scale] = dict(sorted(queries.items(), key=lambda one: int(one[0][1:])))
        known |= {"cpus": processors(), "at": f"{datetime.now(UTC):%Y-%m-%d}"}
        path.write_text(json.dumps(known, indent=1) + "\n")

    return save


if __name__ == "__main__":
    main()
