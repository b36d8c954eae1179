"""Rows that are computed now belong to the session that asked for them, whatever others there are."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from lockstep_engine.deltas import computed

pytestmark = pytest.mark.spark


def test_with_a_later_session(spark: SparkSession, spark_server: object) -> None:
    remote: str = spark_server.remote  # type: ignore[attr-defined]
    later = SparkSession.builder.remote(remote).create()
    try:
        rows = computed(spark.range(3).selectExpr("id * 2 AS a"))
        assert rows.sparkSession is spark
        assert sorted(row.a for row in rows.where("a > 0").collect()) == [2, 4]
    finally:
        later.stop()
