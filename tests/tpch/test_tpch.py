"""TPC-H, unchanged, over streams of inserts and deletes: DuckDB has the same rows each time.

All 22 queries run together, over three intervals; LOCKSTEP_LAW=large makes them eleven.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from intervals import Runner, as_frame, changes_of
from pyspark.sql import SparkSession
from tpch_data import QUERIES, TABLES, Stream, query, streams

from lockstep.sql.circuit import Circuit, ProjectFiles
from lockstep.sql.incremental import build_circuit
from lockstep.sql.project import parse_project

pytestmark = pytest.mark.spark

SCALE = 0.01
IS_LARGE = os.environ.get("LOCKSTEP_LAW") == "large"
INTERVALS = [(0, 0), *((step, step + 1) for step in range(1, 20 if IS_LARGE else 4, 2))]
SPEC = """\
name: tpch
storage: file:///tmp/tpch
libraries:
  - glob: {include: transformations/**}
"""


def circuit_of_queries(numbers: Iterable[int]) -> Circuit:
    """The queries as the views q1, q2, ... of one project, over tables whose rows are taken back."""
    options = "OPTIONS ('kafka.bootstrap.servers' = 'b', subscribe = '%s')"
    sources = "".join(
        f"CREATE TABLE {name} ({columns}) USING kafka {options % name};\n"
        for name, columns in TABLES.items()
    )
    views = "".join(f"CREATE MATERIALIZED VIEW q{n} AS {query(n)};\n" for n in numbers)
    project = parse_project(ProjectFiles(SPEC, (("views.sql", sources + views),)), {})
    retracting = tuple(replace(source, provider="iceberg") for source in project.sources)
    return build_circuit(replace(project, sources=retracting))


def check(
    spark: SparkSession,
    numbers: Sequence[int],
    data: Mapping[str, Stream],
    intervals: Sequence[tuple[int, int]],
    is_here: bool,
) -> None:
    """Run the queries together, and compare each after each interval."""
    runner = Runner(spark, circuit_of_queries(numbers), is_here=is_here)
    total: dict[str, dict[tuple[Any, ...], int]] = {f"q{n}": {} for n in numbers}
    for first, last in intervals:
        changes = {name: stream.changes(first, last) for name, stream in data.items()}
        deltas = {name: as_frame(spark, table) for name, table in changes.items()}
        records = sum(table.num_rows for table in changes.values())
        is_last = (first, last) == intervals[-1]
        for view, delta in runner.run(deltas, (first, last), records, is_last).items():
            for row, weight, _ in changes_of(delta):
                total[view][row] = total[view].get(row, 0) + weight
        expected = _recomputed(numbers, {name: s.there(last) for name, s in data.items()})
        for number in numbers:
            found = [row for row, count in total[f"q{number}"].items() for _ in range(count)]
            _compare(f"q{number} after step {last}", found, expected[number])


def _recomputed(
    numbers: Sequence[int], tables: Mapping[str, pa.Table]
) -> Mapping[int, list[tuple[Any, ...]]]:
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return {n: connection.execute(query(n)).fetchall() for n in numbers}


def _compare(what: str, found: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> None:
    """Row by row; numbers to six digits, as an average of decimals has no more in Spark."""
    found, expected = sorted(found, key=_order), sorted(expected, key=_order)
    assert len(found) == len(expected), f"{what}: {len(found)} rows, not {len(expected)}"
    for one, other in zip(found, expected, strict=True):
        assert all(map(_equal, one, other)), f"{what}: {one}, not {other}"


def _order(row: tuple[Any, ...]) -> list[str]:
    return [str(value) for value in row if not _is_number(value)] + [
        f"{float(value):.3f}" for value in row if _is_number(value)
    ]


def _is_number(value: Any) -> bool:
    return hasattr(value, "__float__") and not isinstance(value, bool)


def _equal(one: Any, other: Any) -> bool:
    if _is_number(one) and _is_number(other):
        return math.isclose(float(one), float(other), rel_tol=1e-6, abs_tol=1e-6)
    return bool(one == other)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Stream]:
    folder: Path = tmp_path_factory.mktemp("tpch")
    return streams(folder, SCALE, INTERVALS[-1][1], seed=7)


@pytest.mark.parametrize("is_here", [False, True], ids=["by Spark", "here"])
def test_all_queries(spark: SparkSession, data: Mapping[str, Stream], is_here: bool) -> None:
    check(spark, QUERIES, data, INTERVALS, is_here)
