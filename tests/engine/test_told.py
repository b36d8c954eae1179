"""What Spark tells the driver."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DecimalType, IntegerType, StructField, StructType

from lockstep_engine.told import no_rows, types_of_columns

pytestmark = pytest.mark.spark


def test_types_are_asked_for_once(spark: SparkSession) -> None:
    declared = "a decimal(9, 2), `b c` array<int>"
    wanted = [StructField("a", DecimalType(9, 2)), StructField("b c", ArrayType(IntegerType()))]
    assert types_of_columns(spark, declared) == StructType(wanted)
    nobody: Any = None
    assert types_of_columns(nobody, declared) == StructType(wanted)
    assert no_rows(spark, declared).schema == StructType(wanted)
    assert no_rows(spark, declared).collect() == []
