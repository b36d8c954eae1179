"""Snapshots that no ref holds are expired by Iceberg's own procedure, which deletes their files, too
(https://iceberg.apache.org/docs/latest/spark-procedures/#expire_snapshots)."""

from __future__ import annotations

from datetime import UTC, datetime

from pyspark.sql import SparkSession

from lockstep.control.job import CatalogSettings, ExpireJob
from lockstep.threads import in_parallel
from lockstep_engine.deltas import quoted
from lockstep_engine.tables import configure_catalog

__all__ = ["expire_snapshots"]


def expire_snapshots(spark: SparkSession, job: ExpireJob) -> int:
    """Of each table of the job; returns how many files were deleted: of data, deletes, and metadata. The
    session's time zone must be UTC."""
    configure_catalog(spark, job.catalog)
    pairs = sorted(job.tables.items())
    return sum(in_parallel(lambda pair: _expire(spark, job.catalog, *pair), pairs))


def _expire(spark: SparkSession, catalog: CatalogSettings, table: str, older_than: datetime) -> int:
    name = f"{quoted(catalog.database)}.{quoted(table)}".replace("\\", "\\\\").replace("'", "\\'")
    time = older_than.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    # A branch keeps its head, whatever the table's properties say: a trace has no past to be read.
    [row] = spark.sql(
        f"CALL {quoted(catalog.name)}.system.expire_snapshots(table => '{name}', "
        f"older_than => TIMESTAMP '{time}', retain_last => 1, stream_results => true)"
    ).collect()
    return sum(count or 0 for count in row.asDict().values())
