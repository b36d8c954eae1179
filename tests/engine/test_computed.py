"""Rows that are computed now: in the session that asked for them, and of plans of any depth."""

from __future__ import annotations

import gc

import pytest
from pyspark.sql import SparkSession

from lockstep_engine.computed import computed

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


def test_of_a_deep_plan(spark: SparkSession) -> None:
    rows = spark.range(2)
    for _ in range(120):
        rows = rows.select("id")
    kept = computed(rows)
    gc.collect()
    assert kept.count() == 2
