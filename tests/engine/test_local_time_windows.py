"""Windows of rows that are here: those that Spark gives them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lockstep.sql.plans.nodes import Scan, TimeWindow
from lockstep_engine.local.rows import Rows
from lockstep_engine.local.time_windows import in_windows, netted_by_pane
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


SLIDES = [
    ("10 seconds", None),
    ("7 microseconds", None),
    ("1 day", None),
    ("3 hours 20 minutes", None),
    ("10 seconds", "2 seconds"),
    ("10 seconds", "3 seconds"),
    ("7 microseconds", "5 microseconds"),
]


def sorted_rows(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: (row["_step"], row["w"]["start"]))


@pytest.mark.spark
@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.timestamp("us")], ids=str)
@pytest.mark.parametrize(("size", "slide"), SLIDES)
def test_windows_are_those_of_spark(
    spark: SparkSession, kind: pa.DataType, size: str, slide: str | None
) -> None:
    given = rows_at(TIMES, kind)
    found = in_windows(given, window(size, slide), 1000)
    assert found is not None
    rows, schema = fetched(add_window(window(size, slide), given.along(spark)))
    ours, theirs = (
        [(one.name, one.dataType, one.nullable) for one in shape]
        for shape in (found.schema, schema)
    )
    assert ours == theirs
    assert sorted_rows(found.table) == sorted_rows(rows) != []


@pytest.mark.parametrize(("size", "slide"), SLIDES)
def test_rows_netted_by_pane_are_in_the_same_windows(size: str, slide: str | None) -> None:
    random = np.random.default_rng(7)
    most = 20 if "micro" in size else 12_000_000
    times = [None if n % 9 == 0 else int(n) for n in random.integers(-most, most, 400)]
    few = rows_at(times, pa.timestamp("us"))
    columns = {
        "at": few.table["at"],
        "n": pa.array(random.integers(0, 3, 400)),
        "_weight": pa.array(random.choice([1, 2, -1], 400)),
        "_step": pa.array(random.integers(0, 2, 400)),
    }
    given, node = Rows.of(pa.table(columns)), window(size, slide)

    def windows(rows: Rows) -> Counter[tuple[Any, ...]]:
        made = in_windows(rows, node, 10_000)
        assert made is not None
        found: Counter[tuple[Any, ...]] = Counter()
        for row in made.table.to_pylist():
            found[row["n"], row["w"]["start"], row["w"]["end"], row["_step"]] += row["_weight"]
        return Counter({key: weight for key, weight in found.items() if weight})

    netted = netted_by_pane(given, node)
    assert windows(netted) == windows(given) != Counter()
    assert netted.schema == given.schema
    assert len(netted) < len(given) * 0.75


def test_what_is_left_to_spark() -> None:
    times = rows_at(TIMES, pa.timestamp("us"))
    there = len(TIMES) - 1
    assert in_windows(times, window("10 seconds", "2 seconds"), 5 * there - 1) is None
    assert in_windows(times, window("10 seconds"), there - 1) is None
    assert in_windows(rows_at([5], pa.int64()), window("10 seconds"), 10) is None
    assert in_windows(rows_at([-(2**63)], pa.timestamp("us")), window("10 seconds"), 10) is None


def test_what_is_not_known_to_be_equal_is_not_netted() -> None:
    rows = rows_at([1, 1], pa.timestamp("us"))
    kinds = dict(zip(rows.table.column_names, rows.table.columns, strict=True))
    doubles = Rows.of(pa.table({**kinds, "n": pa.array([0.0, -0.0]), "_step": pa.array([0, 0])}))
    assert netted_by_pane(doubles, window("10 seconds", "2 seconds")) is doubles
    of_no_time = rows_at([5], pa.int64())
    assert netted_by_pane(of_no_time, window("10 seconds", "2 seconds")) is of_no_time


@pytest.mark.parametrize("slide", ["10 seconds", "3 seconds"])
def test_no_rows_have_no_windows(slide: str) -> None:
    found = in_windows(rows_at([], pa.timestamp("us")), window("10 seconds", slide), 0)
    assert found is not None
    assert found.schema.names == ["at", "n", "w", "_weight", "_step"]
    assert len(found) == 0
