"""Lockstep's side of the Nexmark benchmark: over the topics, and over tables of the decoded rows."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from peers.task import Answer, Task
from peers.texts import PROCESSED, columns
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lockstep.adapters.catalogs import catalog_settings
from lockstep.adapters.settings import Settings
from lockstep.adapters.verify import verify
from lockstep.cli.bench import EXAMPLE, advance, write_project
from lockstep.control.steps import StepLimits
from lockstep.deploying import deploy
from lockstep.errors import LockstepError

__all__ = ["DATABASE", "ToldApart", "decode", "measure", "spark_catalog", "told_apart"]

CATALOG = "bench"
DATABASE = "nexmark"
OPERATORS = ("operators", "sort")
"""The parts of a run between reading and writing."""
WRITING = ("append", "heads")
"""The parts of a run in which files are written and committed, and it is asked what was."""
PLANS = "plans"
"""A part of a run, some of which Spark works out while it writes."""
WRONG = "WRONG: not the rows that DuckDB finds"
EQUAL = "equal"


class ToldApart(NamedTuple):
    """Seconds of a run without its writes, and of its operators alone."""

    engine: float
    operators: float


def spark_catalog(settings: Settings) -> Mapping[str, str]:
    """Spark's settings of the catalog that the decoded tables are in."""
    found = catalog_settings(CATALOG, DATABASE, {}, settings)
    prefix = f"spark.sql.catalog.{CATALOG}"
    return {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        **{f"{prefix}.{key}": value for key, value in found.spark.items()},
    }


def decode(settings: Settings, prefix: str) -> str:
    """Make an Iceberg table of each topic's rows; the namespace that they are in."""
    spark = SparkSession.builder.remote(settings.spark_remote).create()
    for key, value in spark_catalog(settings).items():
        spark.conf.set(key, value)
    namespace = f"{CATALOG}.{DATABASE}"
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
    for table in ("person", "auction", "bid"):
        records = (
            spark.read.format("kafka")
            .option("kafka.bootstrap.servers", settings.kafka)
            .option("subscribe", prefix + table)
            .load()
        )
        row = F.from_json(F.col("value").cast("string"), columns(table)).alias("row")
        rows = records.select(row).select("row.*").withColumn(PROCESSED, F.current_timestamp())
        rows.writeTo(f"{namespace}.{table}").using("iceberg").create()
    spark.stop()
    return namespace


def measure(task: Task, settings: Settings, work: Path) -> tuple[Answer, str]:
    """Each run a pipeline of its own; what verifying the last one says, if rows are asked for.

    The backlog is cut into steps and intervals by the default limits of rows; a followed table is one
    step, as it has one snapshot.
    """
    seconds, told = list[float](), list[ToldApart]()
    verdict = ""
    try:
        for number in range(task.runs):
            name = f"{task.query}{'_decoded' if task.namespace else ''}_{number}"
            folder = work / "projects" / name
            rows = StepLimits().rows_per_step
            write_project(EXAMPLE, folder, name, task.query, task.prefix, rows)
            if task.namespace:
                _follow(task, folder / "transformations")
            deploy(str(folder), settings)
            committed, parts = advance(name, settings, lambda _: None, catches_up=True)
            seconds.append(round(sum(parts.values()), 3))
            apart = told_apart(parts["run"], committed.seconds)
            told += [] if apart is None else [apart]
            if task.rows and number == task.runs - 1:
                (check,) = verify(name, settings, lambda _: None)
                verdict = EQUAL if check.equal else WRONG
            shutil.rmtree(work / "warehouse" / name, ignore_errors=True)
    except LockstepError as error:
        return Answer(tuple(seconds), failed=str(error).splitlines()[0]), verdict
    # Of topics, records are read while others are worked on.
    if not task.namespace or len(told) < len(seconds):
        told = []
    engine, operators = tuple(one.engine for one in told), tuple(one.operators for one in told)
    return Answer(tuple(seconds), engine=engine, operators=operators), verdict


def told_apart(run: float, parts: Mapping[str, float]) -> ToldApart | None:
    """Of the seconds of a run and of its parts; None where Spark has worked on any."""
    if PLANS in parts or not {*OPERATORS, *WRITING} <= parts.keys():
        return None
    written, operators = (sum(parts[one] for one in ones) for ones in (WRITING, OPERATORS))
    return ToldApart(round(run - written, 3), round(operators, 3))


def _follow(task: Task, transformations: Path) -> None:
    """In place of the topics, the tables of their rows, which only grow as the topics do."""
    for table in task.tables:
        declared = f"{columns(table)}, {PROCESSED} TIMESTAMP"
        (transformations / f"{table}.sql").write_text(
            f"CREATE TABLE {table} ({declared}) USING iceberg "
            f"OPTIONS ('table' = '{task.namespace}.{table}', 'append_only' = 'true');\n"
        )
