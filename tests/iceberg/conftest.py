"""A database in the shared Spark's catalog, and a session that was not started with it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from lake_builders import Lake, Outbox

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


@pytest.fixture(scope="session")
def new_outbox(spark_server: Any) -> Iterator[Any]:
    """Outboxes with views of any names, on one session: `new_outbox(columns, small_rows=0)`."""
    from pyspark.sql import SparkSession

    settings = spark_server.catalog_settings("views")
    spark = SparkSession.builder.remote(spark_server.remote).create()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    configure_catalog(spark, settings)
    yield partial(Outbox, spark, settings)
    spark.stop()
