"""Versioned tables: made once, and through Spark read at a snapshot and appended to on a branch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriterV2, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, StructType

from lockstep.control.job import CatalogSettings
from lockstep.errors import EngineFailed, Refused
from lockstep_engine.deltas import quoted
from lockstep_engine.failures import first_line
from lockstep_engine.sessions import set_all

__all__ = [
    "INDEX_PROPERTIES",
    "TABLE_PROPERTIES",
    "TRACE_PROPERTIES",
    "MakesTables",
    "add_columns",
    "append",
    "columns_of_table",
    "columns_there",
    "configure_catalog",
    "overwrite",
    "read_at",
    "table_name",
]

TABLE_PROPERTIES: Mapping[str, str] = MappingProxyType(
    {
        # Without it Spark shuffles small appends by partition before it writes them.
        "write.distribution-mode": "none",
        "write.parquet.compression-codec": "zstd",
        # Keys and texts that hardly repeat fill a dictionary in vain: with Iceberg's 2 MB that took half
        # of the time of a write. A higher level than 1 saves a twentieth of the bytes.
        "write.parquet.compression-level": "1",
        "write.parquet.dict-size-bytes": "65536",
        # Of files the row groups that a change can touch are read, by their least and greatest keys: of
        # Iceberg's 128 MB a few newest keys meant all of a file.
        "write.parquet.row-group-size-bytes": str(16 << 20),
        # Every commit writes a metadata file; a branch, an append and a tag per interval add up.
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "20",
        # Attempts, publishes and maintenance commit to one table at once, to refs of their own.
        "commit.retry.num-retries": "10",
    }
)
"""Of every table that Lockstep makes, views too. Column metrics are Iceberg's default (min and max,
strings cut to 16 characters): look-ups skip files by them."""

TRACE_PROPERTIES: Mapping[str, str] = MappingProxyType(
    {
        **TABLE_PROPERTIES,
        # Each append adds a manifest, each interval reads all of them. Of tables of changes those of a
        # few steps are read, which stay apart.
        "commit.manifest-merge.enabled": "true",
        "commit.manifest.min-count-to-merge": "8",
    }
)
"""Of traces."""

INDEX_PROPERTIES: Mapping[str, str] = MappingProxyType(
    {
        **TRACE_PROPERTIES,
        # Rows in the order of their keys lie in few bytes: of a row group of 16 MB, five million of
        # them, a few with one key would mean all up to theirs.
        "write.parquet.row-group-size-bytes": str(512 << 10),
        # PyIceberg (0.12) counts rows.
        "write.parquet.row-group-limit": str(64 << 10),
    }
)
"""Of indexes of followed tables."""


_SPLITS = {"split-size": str(32 << 20), "file-open-cost": str(1 << 20)}
"""A quarter of Iceberg's own: the last of a few large tasks leaves all cores but one idle. As many small
files make a task."""


def configure_catalog(spark: SparkSession, catalog: CatalogSettings) -> None:
    """Make the catalog known to this session, before anything in it is named there.

    Iceberg's SQL extensions are static, and are the server's to set.
    """
    prefix = f"spark.sql.catalog.{catalog.name}"
    wanted = {prefix: "org.apache.iceberg.spark.SparkCatalog"}
    wanted.update({f"{prefix}.{key}": value for key, value in catalog.spark.items()})
    set_all(spark, wanted)


def table_name(catalog: CatalogSettings, table: str, ref: str = "") -> str:
    """The full name as SQL text; `ref` is a branch to write to, or another suffix of Iceberg's."""
    parts = (catalog.name, catalog.database, table, ref)
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts if part)


class MakesTables(Protocol):
    """What new tables are asked of."""

    def make(
        self,
        table: str,
        columns: pa.Schema,
        properties: Mapping[str, str],
        summary: Mapping[str, str],
    ) -> None:
        """Make the table with these columns, all nullable, and an empty root snapshot which carries the
        summary, in one commit; nothing if it is there. Makes the database, too. Raises StateDiverged
        where it is there with other columns."""
        ...


def columns_of_table(table: str, schema: StructType) -> pa.Schema:
    """The columns of a table that is made from here: without Spark, which takes some times as long.
    Raises EngineFailed where Arrow has no such types."""
    try:
        return to_arrow_schema(schema)
    except PySparkException as error:
        raise EngineFailed(
            f"table {table} could not be made",
            found=first_line(error),
            next_step="cast the column to a type that Iceberg has",
        ) from error


def _kept(type_text: str) -> str:
    wider = re.sub(r"\b(tinyint|smallint)\b", "int", type_text)
    return re.sub(r"\b(var)?char\(\d+\)", "string", wider)


def columns_there(spark: SparkSession, catalog: CatalogSettings, table: str) -> dict[str, DataType]:
    """The columns that a table has by now, whichever snapshot they came with."""
    schema = spark.table(table_name(catalog, table)).schema
    return {field.name: field.dataType for field in schema.fields}


def add_columns(
    spark: SparkSession, catalog: CatalogSettings, table: str, wanted: StructType
) -> None:
    """Give a table the columns of `wanted` that it lacks; in its rows they are null. Raises Refused
    where a column of that name has another type."""
    there = columns_there(spark, catalog, table)
    for field in wanted.fields:
        if field.name not in there:
            continue
        found, expected = (_kept(k.simpleString()) for k in (there[field.name], field.dataType))
        if found != expected:
            raise Refused(
                f"table {table}: column {field.name} cannot change its type",
                expected=found,
                found=expected,
                next_step=f"cast it to {found}, or give the column another name",
            )
    lacking = [field for field in wanted.fields if field.name not in there]
    if lacking:
        added = ", ".join(f"{quoted(f.name)} {f.dataType.simpleString()}" for f in lacking)
        spark.sql(f"ALTER TABLE {table_name(catalog, table)} ADD COLUMNS ({added})")


def read_at(
    spark: SparkSession, catalog: CatalogSettings, table: str, snapshot_id: int
) -> DataFrame:
    """The rows of a table at a snapshot, lazily; nobody's later commit changes what it gives."""
    read = spark.read.options(versionAsOf=snapshot_id, **_SPLITS)
    return read.table(table_name(catalog, table))


def append(
    catalog: CatalogSettings,
    table: str,
    branch: str,
    frame: DataFrame,
    properties: Mapping[str, str],
    file_bytes: int | None = None,
) -> None:
    """Append the rows of `frame` to a branch, by column name; one snapshot, even for no rows.

    `properties` stand in the snapshot's summary as they are. A task goes on to another file after so
    many `file_bytes`, about; else the table says so. Appends to several tables may run in
    threads of one session. Spark Connect can execute it twice when its server restarts: the caller
    checks the branch by the write id that it put into `properties`.
    """
    writer = _writer(catalog, table, branch, frame, properties)
    if file_bytes is not None:
        writer = writer.option("target-file-size-bytes", str(file_bytes))
    writer.append()


def overwrite(
    catalog: CatalogSettings,
    table: str,
    branch: str,
    frame: DataFrame,
    properties: Mapping[str, str],
) -> None:
    """Put the rows of `frame` in the place of all rows on a branch, else as `append`."""
    _writer(catalog, table, branch, frame, properties).overwrite(F.lit(True))


def _writer(
    catalog: CatalogSettings,
    table: str,
    branch: str,
    frame: DataFrame,
    properties: Mapping[str, str],
) -> DataFrameWriterV2:
    writer = frame.writeTo(table_name(catalog, table, f"branch_{branch}"))
    for key, value in properties.items():
        writer = writer.option(f"snapshot-property.{key}", value)
    return writer
