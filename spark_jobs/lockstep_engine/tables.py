"""Versioned tables through Spark: made once, read at a snapshot, appended to on a branch.

Law: a table starts with one empty root snapshot, and rows reach it by appends to branches alone.
Without a root there is nothing that the first attempt could branch from; with two, two attempts
would start from different pasts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriterV2, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from lockstep.control.job import CatalogSettings
from lockstep.errors import EngineFailed, Refused, StateDiverged
from lockstep_engine.deltas import quoted
from lockstep_engine.failures import first_line
from lockstep_engine.told import set_all

__all__ = [
    "INDEX_PROPERTIES",
    "TABLE_PROPERTIES",
    "TRACE_PROPERTIES",
    "add_columns",
    "append",
    "columns_there",
    "configure_catalog",
    "ensure_table",
    "overwrite",
    "read_at",
    "table_name",
]

TABLE_PROPERTIES: Mapping[str, str] = MappingProxyType(
    {
        "format-version": "2",
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
    }
)
"""Of indexes of followed tables."""


_SPLITS = {"split-size": str(32 << 20), "file-open-cost": str(1 << 20)}
"""A quarter of Iceberg's own: the last of a few large tasks leaves all cores but one idle. As many small
files make a task."""


def configure_catalog(spark: SparkSession, catalog: CatalogSettings) -> None:
    """Make the catalog known to this session, before anything in it is named there.

    Only settings that differ are sent: a server that was started with them costs one round trip.
    Iceberg's SQL extensions are static, and are the server's to set.
    """
    prefix = f"spark.sql.catalog.{catalog.name}"
    wanted = {prefix: "org.apache.iceberg.spark.SparkCatalog"}
    wanted.update({f"{prefix}.{key}": value for key, value in catalog.spark.items()})
    current = spark.conf.getAll
    set_all(spark, {key: value for key, value in wanted.items() if current.get(key) != value})


def table_name(catalog: CatalogSettings, table: str, ref: str = "") -> str:
    """The full name as SQL text; `ref` is a branch to write to, or another suffix of Iceberg's."""
    parts = (catalog.name, catalog.database, table, ref)
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts if part)


def ensure_table(
    spark: SparkSession,
    catalog: CatalogSettings,
    table: str,
    frame: DataFrame,
    properties: Mapping[str, str] = TABLE_PROPERTIES,
    summary: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Make `table` with the columns of `frame`, all nullable, and no rows, if it is not there.

    The table and its empty root snapshot are one commit, so that of several creators one wins and
    the others find its table. `properties` are the table's, `summary` stands in the root snapshot's;
    a table that is there keeps its own. Makes the database, too. Raises StateDiverged where a table
    of that name has other columns, EngineFailed where the catalog refuses.
    """
    name = table_name(catalog, table)
    # Not the frame without its rows: nothing of it is to run yet.
    empty = spark.createDataFrame([], frame.schema)
    writer = empty.writeTo(name).using("iceberg")
    for key, value in properties.items():
        writer = writer.tableProperty(key, value)
    for key, value in summary.items():
        writer = writer.option(f"snapshot-property.{key}", value)
    failure = _try_create(spark, catalog, table, writer)
    if failure is None:
        return
    try:
        existing = spark.table(name).schema
    except PySparkException:
        raise EngineFailed(
            f"table {name} could not be made",
            found=first_line(failure),
            next_step="see that the catalog and its warehouse can be written to",
        ) from failure
    found, expected = _shape(existing), _shape(empty.schema)
    if found != expected:
        raise StateDiverged(
            f"table {name} exists with other columns than this pipeline writes to it",
            expected=", ".join(expected),
            found=", ".join(found),
            next_step="drop the table if nobody needs it, or use another database in the spec",
        )


def _try_create(
    spark: SparkSession, catalog: CatalogSettings, table: str, writer: DataFrameWriterV2
) -> PySparkException | None:
    """Create, and once more after making the database: most tables are made where one exists."""
    try:
        writer.create()
        return None
    except PySparkException as error:
        if spark.catalog.tableExists(table_name(catalog, table)):
            return error
    database = table_name(catalog, "")
    try:
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {database}")
    except PySparkException as error:
        # Another creator may have made it in between; the next line finds out.
        if not spark.catalog.databaseExists(database):
            return error
    try:
        writer.create()
    except PySparkException as error:
        return error
    return None


def _shape(schema: StructType) -> list[str]:
    """Columns as Iceberg keeps them: all nullable, no integers below 32 bits, no bounded strings."""
    return [f"{field.name} {_kept(field.dataType.simpleString())}" for field in schema.fields]


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
) -> None:
    """Append the rows of `frame` to a branch, by column name; one snapshot, even for no rows.

    `properties` stand in the snapshot's summary as they are. Appends to several tables may run in
    threads of one session. Spark Connect can execute it twice when its server restarts: the caller
    checks the branch by the write id that it put into `properties`.
    """
    _writer(catalog, table, branch, frame, properties).append()


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
