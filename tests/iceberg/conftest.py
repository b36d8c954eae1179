"""A database in the shared Spark's catalog, and a session that was not started with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from lake_builders import Lake

from lockstep_engine.tables import configure_catalog


@pytest.fixture
def lake(spark_server: Any, database: str) -> Lake:
    return Lake(spark_server.catalog_settings(database))


@pytest.fixture
def session(spark_server: Any, lake: Lake) -> Iterator[Any]:
    """A session of its own, under a catalog name that the server was not started with."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote(spark_server.remote).create()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    configure_catalog(spark, lake.settings)
    yield spark
    spark.stop()
