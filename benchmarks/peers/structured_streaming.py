"""Spark Structured Streaming: the backlog as it would catch up, `availableNow`, with state in RocksDB.

    python -m peers.structured_streaming FOLDER

All records are one micro-batch, which is its best case. The result goes nowhere, the checkpoint to disk.
A query that it does not take as the example states it has a text of its own in `structured_streaming/`;
where there is none that means the same, it is given the example's, and refuses it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from peers.spark import decoded, rows_of, session
from peers.task import Answer, Task, first_line, serve, timed_runs, write_rows
from peers.texts import PROCESSED, own_text, query
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

STATE = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
DELAY = "4 seconds"
WATERMARKS = {
    **dict.fromkeys(("q4", "q5", "q6", "q7", "q8", "q11"), "dateTime"),
    "q9": "expires",
}
"""Queries whose state is forgotten by time, or that do not run without; of q9 the auctions' column."""
UPDATES = frozenset({"q12", "q15", "q16", "q17", "q18", "q19"})
"""Aggregates over all time: their rows are not final, so they are given out as they change."""


def stream(spark: SparkSession, task: Task, table: str) -> DataFrame:
    """A table's records from the first on."""
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", task.bootstrap)
        .option("subscribe", task.prefix + table)
        .option("startingOffsets", "earliest")
        .load()
    )
    rows = decoded(records, table).withColumn(PROCESSED, F.current_timestamp())
    column = WATERMARKS.get(task.query)
    if column is None:
        return rows
    return rows.withWatermark(column if column in rows.columns else "dateTime", DELAY)


def answer(spark: SparkSession, task: Task) -> Answer:
    """The timed runs, each with a checkpoint of its own; then the rows where they are asked for."""

    def run(number: int, rows: str = "") -> None:
        for table in task.tables:
            stream(spark, task, table).createOrReplaceTempView(table)
        result = spark.sql(own_text("structured_streaming", task.query) or query(task.query))
        writer = (
            result.writeStream.outputMode("update" if task.query in UPDATES else "append")
            .trigger(availableNow=True)
            .option("checkpointLocation", str(Path(task.work) / f"checkpoint-{number}"))
        )
        if rows:
            # Kept as they come: of an aggregate that is given out as it changes there is one batch.
            writer = writer.foreachBatch(lambda batch, _: found.extend(rows_of(batch)))
        else:
            writer = writer.format("noop")
        writer.start().awaitTermination()

    found: list[tuple[Any, ...]] = []
    try:
        seconds = timed_runs(task.runs, run)
        if task.rows:
            run(task.runs, task.rows)
            write_rows(found, task.rows)
    except AnalysisException as error:
        return Answer(refused=first_line(error))
    except PySparkException as error:
        return Answer(failed=first_line(error))
    return Answer(seconds)


def main() -> None:
    """One session for all queries."""
    spark = session("structured_streaming", Path(sys.argv[1]), STATE)
    serve(lambda task: answer(spark, task))
    spark.stop()


if __name__ == "__main__":
    main()
