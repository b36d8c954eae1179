"""Spark as the judge: a plan's expressions are Spark's, and a plan means what Spark says it means."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from sql_builders import COLUMNS, SPARK, plan_sql, random_rows, view_plan
from sql_corpus import ONLY_SPARK, QUERIES
from sql_projects import NEXMARK, NEXMARK_SOURCES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def tables(spark: SparkSession) -> SparkSession:
    """A session with t, u and v."""
    for name, rows in random_rows(5, rows=25).items():
        schema = ", ".join(f"{column} {kind}" for column, kind in COLUMNS[name].items())
        spark.createDataFrame(rows, schema).createOrReplaceTempView(name)
    return spark


def _bag(frame: DataFrame) -> Counter[str]:
    return Counter(
        repr([round(v, 12) if isinstance(v, float) else v for v in row]) for row in frame.collect()
    )


# One part is one test, so that a failure names few queries and the server is asked in few turns.
@pytest.mark.parametrize("part", range(8))
def test_plans_mean_what_spark_says(tables: SparkSession, part: int) -> None:
    for name, query in [*QUERIES.items(), *ONLY_SPARK.items()][part::8]:
        plan = view_plan(query)
        expected, found = tables.sql(query), tables.sql(plan_sql(plan, SPARK))
        assert [c.lower() for c in expected.columns] == list(found.columns), name
        assert [f.dataType for f in expected.schema] == [f.dataType for f in found.schema], name
        assert _bag(found) == _bag(expected), name


def test_nexmark_has_sparks_types(spark: SparkSession) -> None:
    for statement in NEXMARK_SOURCES.split(";"):
        if statement.strip():
            name = statement.split()[2]
            schema = statement[statement.index("(") + 1 : statement.index(") USING")]
            spark.createDataFrame([], schema).createOrReplaceTempView(name)
    for query in NEXMARK.values():
        plan = view_plan(query, sources=NEXMARK_SOURCES)
        expected, found = spark.sql(query).schema, spark.sql(plan_sql(plan, SPARK)).schema
        assert [field.dataType for field in found] == [field.dataType for field in expected]
