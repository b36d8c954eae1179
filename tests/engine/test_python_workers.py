"""Python workers as the server forks them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lockstep_engine.python_workers import NEEDED


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
