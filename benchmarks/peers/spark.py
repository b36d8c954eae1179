"""A Spark of a peer's own, with the jars that Lockstep uses, as somebody would start it for one job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from peers.texts import columns
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lockstep.adapters.jars import jar_paths

__all__ = ["decoded", "rows_of", "session"]

CORES = 2
MEMORY = "4g"
PARTITIONS = 4
"""As many as the topics have."""


def session(name: str, folder: Path, conf: Mapping[str, str]) -> SparkSession:
    """On as many cores as the other engines get, in UTC; Spark's own settings otherwise."""
    settings = {
        "spark.jars": ",".join(map(str, jar_paths("spark"))),
        "spark.driver.memory": MEMORY,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder / "scratch"),
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(PARTITIONS),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **conf,
    }
    builder = SparkSession.builder.appName(name).master(f"local[{CORES}]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def decoded(records: DataFrame, table: str) -> DataFrame:
    """The columns of the JSON in the records' values."""
    text = F.col("value").cast("string")
    return records.select(F.from_json(text, columns(table)).alias("row")).select("row.*")


def rows_of(frame: DataFrame) -> Iterator[tuple[Any, ...]]:
    """Its rows, fetched at once: row by row would take longer than the query."""
    for batch in frame.toArrow().to_batches():
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
