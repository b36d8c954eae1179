"""What Spark tells the driver."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DecimalType, IntegerType, StructField, StructType

from lockstep_engine.told import fetched, no_rows, types_of_columns

pytestmark = pytest.mark.spark


def test_types_are_asked_for_once(spark: SparkSession) -> None:
    declared = "a decimal(9, 2), `b c` array<int>"
    wanted = [StructField("a", DecimalType(9, 2)), StructField("b c", ArrayType(IntegerType()))]
    assert types_of_columns(spark, declared) == StructType(wanted)
    nobody: Any = None
    assert types_of_columns(nobody, declared) == StructType(wanted)
    assert no_rows(spark, declared).schema == StructType(wanted)
    assert no_rows(spark, declared).collect() == []


def test_the_server_keeps_no_plan_of_what_is_fetched(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a number it would, for the session, and all rows that came along."""
    client: Any = spark.client
    asked: list[Any] = []

    def to_table(query: Any, *more: Any) -> Any:
        asked.append(query)
        return type(client).to_table(client, query, *more)

    monkeypatch.setattr(client, "to_table", to_table)
    frame = spark.createDataFrame([(1,), (2,)], types_of_columns(spark, "a int"))
    rows, schema = fetched(frame.where("a > 1"))
    assert rows.to_pylist() == [{"a": 2}]
    assert schema.names == ["a"]
    [query] = asked
    assert not query.root.common.HasField("plan_id")
