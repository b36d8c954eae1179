"""Windows of rows that are here: those that Spark gives them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lockstep.sql.plans.nodes import Scan, TimeWindow
from lockstep_engine.local.rows import Rows
from lockstep_engine.local.time_windows import in_windows
from lockstep_engine.operators.linear import add_window
from lockstep_engine.told import fetched

TIMES = [
    None,
    0,
    -1,
    9_999_999,
    10_000_000,
    -10_000_000,
    -10_000_001,
    1_700_000_000_123_456,
    -62_135_500_000_000_000,
    253_402_200_000_000_000,
]


def rows_at(times: list[int | None], kind: pa.DataType) -> Rows:
    counts = range(len(times))
    columns = {"at": pa.array(times, kind), "n": pa.array(counts)}
    named = {"_weight": pa.array([1] * len(times)), "_step": pa.array(counts)}
    return Rows.of(pa.table(columns | named))


def window(size: str, slide: str | None = None) -> TimeWindow:
    return TimeWindow(Scan("t", ("at", "n")), "w", "at", size, slide or size)


@pytest.mark.spark
@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.timestamp("us")], ids=str)
@pytest.mark.parametrize("size", ["10 seconds", "7 microseconds", "1 day", "3 hours 20 minutes"])
def test_windows_are_those_of_spark(spark: SparkSession, kind: pa.DataType, size: str) -> None:
    given = rows_at(TIMES, kind)
    found = in_windows(given, window(size))
    assert found is not None
    rows, schema = fetched(add_window(window(size), given.along(spark)))
    ours, theirs = (
        [(one.name, one.dataType, one.nullable) for one in shape]
        for shape in (found.schema, schema)
    )
    assert ours == theirs
    assert found.table.to_pylist() == rows.sort_by("_step").to_pylist() != []


def test_what_is_left_to_spark() -> None:
    times = rows_at(TIMES, pa.timestamp("us"))
    assert in_windows(times, window("10 seconds", "2 seconds")) is None
    assert in_windows(times, window("10 seconds", "5 seconds")) is None
    assert in_windows(rows_at([5], pa.int64()), window("10 seconds")) is None
    assert in_windows(rows_at([-(2**63)], pa.timestamp("us")), window("10 seconds")) is None


def test_no_rows_have_no_windows() -> None:
    found = in_windows(rows_at([], pa.timestamp("us")), window("10 seconds"))
    assert found is not None
    assert found.schema.names == ["at", "n", "w", "_weight", "_step"]
    assert len(found) == 0
