"""TPC-DS as views: every query is accepted, and has Spark's rows while rows come and go.

The rows are not made here: LOCKSTEP_TPCDS names a folder with a Parquet file for each table, such as
DuckDB's extension makes them (docs/testing.md). Most queries are empty over random rows.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from intervals import Runner, as_frame, changes_of
from pyspark.errors import ArithmeticException
from pyspark.sql import SparkSession
from sql_builders import files
from test_queries import plain, plain_rows
from tpcds import TABLES, queries

from lockstep.errors import ProjectError
from lockstep.sql.circuit import Circuit
from lockstep.sql.incremental import build_circuit
from lockstep.sql.project import parse_project

FOLDER = os.environ.get("LOCKSTEP_TPCDS", "")
ONLY = os.environ.get("LOCKSTEP_TPCDS_ONLY", "")
"""A regular expression for the names of those that are compared."""
COMPARED = [name for name in queries() if re.search(ONLY, name)] if FOLDER else ["each query"]
OPTIONS = "USING kafka OPTIONS ('kafka.bootstrap.servers' = 'b', subscribe = '{0}')"
FEW = 50
"""A table of so few rows stays as it is."""


def tables_of(query: str) -> list[str]:
    return [name for name in TABLES if re.search(rf"\b{name}\b", query)]


def circuit_of(query: str, names: str = "") -> Circuit:
    """The query as a view over tables whose rows are taken back; its columns have names of their own
    where they have none, or the same."""
    sources = "".join(
        f"CREATE TABLE {name} ({TABLES[name]}) {OPTIONS.format(name)};\n"
        for name in tables_of(query)
    )
    try:
        project = parse_project(
            files(f"{sources}CREATE MATERIALIZED VIEW w{names} AS {query};"), {}
        )
    except ProjectError as error:
        if not names and re.search("no name|two columns named", error.message):
            return circuit_of(query, " (c0)")
        if names and "column list" in error.message and error.expected:
            width = int(error.expected.split()[0])
            return circuit_of(query, f" ({', '.join(f'c{place}' for place in range(width))})")
        raise
    retracting = tuple(replace(source, provider="iceberg") for source in project.sources)
    return build_circuit(replace(project, sources=retracting))


@pytest.mark.parametrize("folder", sorted({name.partition("/")[0] for name in queries()}))
def test_every_query_is_accepted(folder: str) -> None:
    mine = {name: text for name, text in queries().items() if name.startswith(f"{folder}/")}
    assert len(mine) > 20
    for name, text in mine.items():
        circuit = circuit_of(text)
        assert circuit.operators, name


@cache
def rows_of(table: str) -> pa.Table:
    return pq.read_table(Path(FOLDER) / f"{table}.parquet")


def change(table: str) -> tuple[np.ndarray, np.ndarray]:
    """Which rows are there at first, and which after the second interval."""
    count = rows_of(table).num_rows
    random = np.random.default_rng(sorted(TABLES).index(table))
    before, after = random.random(count) < 0.9, random.random(count) < 0.95
    few = np.full(count, count <= FEW)
    return before | few, after | few


def delta(table: str, step: int) -> pa.Table:
    """What comes and goes in a step."""
    before, after = change(table)
    rows = rows_of(table)
    parts = [(before, 1)] if step == 0 else [(after & ~before, 1), (before & ~after, -1)]
    found = []
    for mask, weight in parts:
        some = rows.filter(pa.array(mask))
        for name, value in (("_weight", weight), ("_step", step)):
            some = some.append_column(name, pa.array([value] * some.num_rows, pa.int64()))
        found.append(some)
    return pa.concat_tables(found)


def spark_rows(spark: SparkSession, query: str, step: int) -> Counter[Any]:
    for table in tables_of(query):
        there = rows_of(table).filter(pa.array(change(table)[step]))
        as_frame(spark, there).createOrReplaceTempView(table)
    return Counter(plain_rows(spark.sql(query).toArrow()))


def differences(spark: SparkSession, query: str, is_here: bool) -> Mapping[int, Any]:
    """By step, what the view has and Spark has not, and the other way round."""
    runner = Runner(spark, circuit_of(query), is_here=is_here)
    total = Counter[Any]()
    found = {}
    for step in (0, 1):
        changes = {table: delta(table, step) for table in tables_of(query)}
        deltas = {table: as_frame(spark, rows) for table, rows in changes.items()}
        records = sum(rows.num_rows for rows in changes.values())
        try:
            expected = spark_rows(spark, query, step)
        except ArithmeticException:
            # a division by 0, in so few rows: the interval stops, too
            with pytest.raises(ArithmeticException):
                runner.run(deltas, (step, step), records, False)
            return found
        for row, weight, _ in changes_of(runner.run(deltas, (step, step), records, False)["w"]):
            total[tuple(map(plain, row))] += weight
        shown = Counter({row: count for row, count in total.items() if count})
        if shown != expected:
            found[step] = (shown - expected, expected - shown)
    return found


@pytest.mark.spark
@pytest.mark.skipif(not FOLDER, reason="LOCKSTEP_TPCDS names no folder with tables of TPC-DS")
@pytest.mark.parametrize("is_here", [False, True], ids=["by Spark", "here"])
@pytest.mark.parametrize("name", COMPARED)
def test_rows_are_sparks(spark: SparkSession, name: str, is_here: bool) -> None:
    # of a limit any rows of a tie may be taken
    query = re.sub(r"\blimit\s+100\b", "LIMIT 1000000", queries()[name], flags=re.IGNORECASE)
    assert differences(spark, query, is_here) == {}
