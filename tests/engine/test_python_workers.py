"""Python workers as the server forks them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lockstep_engine.python_workers import NEEDED

if TYPE_CHECKING:
    from conftest import SparkServer


@pytest.mark.spark
def test_workers_are_born_with_their_imports(spark: SparkSession) -> None:
    needed = NEEDED

    def missing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import gc
        import sys

        for _ in batches:
            found = [name for name in needed if name not in sys.modules]
            found += [] if gc.get_freeze_count() else ["a frozen heap"]
            yield pa.record_batch([pa.array(found, pa.string())], names=["name"])

    assert spark.range(1).mapInArrow(missing, "name string").collect() == []


@pytest.mark.spark
def test_sessions_have_one_process_from_which_workers_are_forked(spark_server: SparkServer) -> None:
    def parent(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os

        for _ in batches:
            yield pa.record_batch([pa.array([os.getppid()])], names=["pid"])

    def parent_of_workers() -> int:
        session = SparkSession.builder.remote(spark_server.remote).create()
        try:
            (row,) = session.range(1, numPartitions=1).mapInArrow(parent, "pid long").collect()
        finally:
            session.stop()
        return int(row.pid)

    assert parent_of_workers() == parent_of_workers()
