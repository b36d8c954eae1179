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
def test_workers_do_not_read_archives_again(spark: SparkSession) -> None:
    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import importlib
        import sys
        import zipimport

        archives = [path for path in sys.path_importer_cache if path.endswith(".zip")]
        read_directory, found = zipimport._read_directory, list[str]()
        zipimport._read_directory = lambda archive: found.append(archive) or read_directory(archive)
        importlib.invalidate_caches()
        zipimport._read_directory = read_directory
        for _ in batches:
            yield pa.record_batch({"archives": [len(archives)], "read": [len(found)]})

    (row,) = spark.range(1).mapInArrow(read, "archives long, read long").collect()
    assert row.archives > 0
    assert row.read == 0


@pytest.mark.spark
def test_workers_are_not_reached_over_tcp(spark: SparkSession) -> None:
    """Where small pieces wait for acknowledgements, 40 ms at a time."""

    def family(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os

        for _ in batches:
            yield pa.record_batch({"by_path": [os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED")]})

    (row,) = spark.range(1).mapInArrow(family, "by_path string").collect()
    assert row.by_path == "True"


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
