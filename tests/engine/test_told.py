"""What Spark tells the driver."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DecimalType, IntegerType, StructField, StructType

from lockstep_engine.told import fetched, fetched_within, no_rows, types_of_columns

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

    def asks(query: Any, *more: Any) -> Any:
        asked.append(query)
        return type(client).to_table_as_iterator(client, query, *more)

    monkeypatch.setattr(client, "to_table_as_iterator", asks)
    frame = spark.createDataFrame([(1,), (2,)], types_of_columns(spark, "a int"))
    rows, schema = fetched(frame.where("a > 1"))
    assert rows.to_pylist() == [{"a": 2}]
    assert schema.names == ["a"]
    [query] = asked
    assert not query.root.common.HasField("plan_id")


def test_rows_of_many_bytes_are_not_waited_for(spark: SparkSession) -> None:
    """Each batch that comes has some 4 MiB; of the rest nothing is asked for."""
    wide = spark.range(0, 1_000, 1, 2).selectExpr("id", "repeat('x', 100000) AS text")
    assert fetched_within(wide, 20 << 20) is None
    found = fetched_within(wide.where("id < 100"), 20 << 20)
    assert found is not None
    rows, schema = found
    assert (rows.num_rows, schema.names) == (100, ["id", "text"])
    assert sorted(rows["id"].to_pylist()) == list(range(100))


def test_of_no_rows_the_types_come(spark: SparkSession) -> None:
    rows, schema = fetched(
        spark.range(3).selectExpr("id", "CAST(id AS string) AS s").where("id > 5")
    )
    assert (rows.num_rows, rows.column_names, schema.names) == (0, ["id", "s"], ["id", "s"])
