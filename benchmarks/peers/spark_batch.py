"""Spark's own batch query: over the topics' JSON, or over Iceberg tables of the decoded rows.

    python -m peers.spark_batch FOLDER CATALOG

The result goes nowhere. No state is kept: with the next record all of it would be done again. CATALOG
are Spark's settings of the Iceberg catalog, as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from peers.spark import decoded, rows_of, session
from peers.task import Answer, Task, first_line, serve, timed_runs, write_rows
from peers.texts import PROCESSED, query
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


def source(spark: SparkSession, task: Task, table: str) -> DataFrame:
    """All there is of a table."""
    if task.namespace:
        return spark.table(f"{task.namespace}.{table}")
    records = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", task.bootstrap)
        .option("subscribe", task.prefix + table)
        .load()
    )
    return decoded(records, table).withColumn(PROCESSED, F.current_timestamp())


def answer(spark: SparkSession, task: Task) -> Answer:
    """The timed runs, then the rows where they are asked for."""

    def result() -> DataFrame:
        for table in task.tables:
            source(spark, task, table).createOrReplaceTempView(table)
        return spark.sql(query(task.query))

    def run(_: int) -> None:
        result().write.format("noop").mode("overwrite").save()

    try:
        seconds = timed_runs(task.runs, run)
        if task.rows:
            write_rows(rows_of(result()), task.rows)
    except PySparkException as error:
        return Answer(failed=first_line(error))
    return Answer(seconds)


def main() -> None:
    """One session for all queries."""
    spark = session("spark_batch", Path(sys.argv[1]), json.loads(sys.argv[2]))
    serve(lambda task: answer(spark, task))
    spark.stop()


if __name__ == "__main__":
    main()
