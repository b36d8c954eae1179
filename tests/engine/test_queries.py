"""A view means what Spark SQL says it means: after every step, whatever came and went.

Every query runs as a view over streams of inserts and deletes, several steps an interval, several
intervals, and is compared with Spark's own answer on the rows that are there.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from functools import cache, partial
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from intervals import Runner, as_frame, changes_of, time_of
from pyspark.sql import SparkSession
from queries import JUDGED_BY, QUERIES, TABLES

from lockstep.sql.circuit import ProjectFiles
from lockstep.sql.incremental import build_circuit
from lockstep.sql.project import parse_project

if TYPE_CHECKING:
    from conftest import SparkServer

pytestmark = pytest.mark.spark

PARTS = 16
INTERVALS = [(0, 1), (2, 3), (4, 4)]
SPEC = """\
name: queries
storage: file:///tmp/queries
libraries:
  - glob: {include: transformations/**}
"""
START = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
Change = tuple[tuple[Any, ...], int, int]


def _value(random: Random, kind: str) -> Any:
    if random.random() < 0.12:
        return None
    match kind:
        case "INT":
            return random.randint(-1, 4)
        case "STRING":
            return random.choice(["x", "y", "z z", "it's"])
        case "TIMESTAMP":
            return START + dt.timedelta(seconds=random.randrange(-30, 0))
        case "DOUBLE":
            return random.choice([0.1, -0.1, 0.25, 3.7, -0.0, 1e18, math.nan])
        case "ARRAY<INT>":
            return random.choice([[], [1], [2, 1, 2], [None, 3]])
        case "BOOLEAN":
            return random.random() < 0.5
        case _:
            return Decimal(random.randint(-300, 300)) / 100


def _types(table: str) -> list[tuple[str, str]]:
    return [
        tuple(column.split(" ", 1))  # type: ignore[misc]
        for column in TABLES[table].replace("(8,2)", "(8;2)").split(", ")
    ]


def _arrow(kind: str) -> pa.DataType:
    return {
        "INT": pa.int32(),
        "STRING": pa.string(),
        "TIMESTAMP": pa.timestamp("us", tz="UTC"),
        "DOUBLE": pa.float64(),
        "ARRAY<INT>": pa.list_(pa.int32()),
        "BOOLEAN": pa.bool_(),
    }.get(kind, pa.decimal128(8, 2))


def _changes(random: Random, table: str) -> list[Change]:
    """Inserts, and deletes of what is there, over the steps of all intervals."""
    kinds = [kind for _, kind in _types(table)]
    there: list[tuple[Any, ...]] = []
    changes: list[Change] = []
    for step in range(INTERVALS[-1][1] + 1):
        for _ in range(random.randint(2, 7)):
            if there and random.random() < 0.4:
                changes.append((there.pop(random.randrange(len(there))), -1, step))
                continue
            row = tuple(_value(random, kind) for kind in kinds)
            copies = random.choice([1, 1, 1, 2])
            there += [row] * copies
            changes.append((row, copies, step))
    return changes


def _table(table: str, changes: list[Change]) -> pa.Table:
    arrays = {
        name: pa.array([row[place] for row, _, _ in changes], _arrow(kind))
        for place, (name, kind) in enumerate(_types(table))
    }
    arrays["_weight"] = pa.array([weight for _, weight, _ in changes], pa.int64())
    arrays["_step"] = pa.array([step for _, _, step in changes], pa.int64())
    return pa.table(arrays)


def _sources() -> str:
    options = "OPTIONS ('kafka.bootstrap.servers' = 'b', subscribe = '%s')"
    return "".join(
        f"CREATE TABLE {name} ({columns}) USING kafka {options % name};\n"
        for name, columns in TABLES.items()
    )


def plain(value: Any) -> Any:
    """A value that is equal to another where Spark would say so, floats to 12 digits."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else round(value, 9) + 0.0
    if isinstance(value, list):
        return tuple(map(plain, value))
    if isinstance(value, Mapping):
        return tuple(sorted((k, plain(v)) for k, v in value.items()))
    return value


def plain_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = [column.to_pylist() for column in table.columns]
    return [tuple(map(plain, row)) for row in zip(*columns, strict=True)]


def streams(part: int) -> Mapping[str, list[Change]]:
    """The changes of each table, over all steps."""
    random = Random(part)
    return {table: _changes(random, table) for table in TABLES}


def queries_of(part: int) -> Mapping[str, str]:
    """Each sixteenth query, by name."""
    return {name: QUERIES[name] for name in list(QUERIES)[part::PARTS]}


Answers = Mapping[tuple[str, int], Counter[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def spark_says(spark_server: SparkServer) -> Iterator[Callable[[int], Answers]]:
    """The rows of a part's queries after each step: the same, whoever works on the views.

    It takes a session that compiles nothing: to compile each of these plans takes longer than to run it
    over some rows, and views are worked on by what is compiled.
    """
    session = SparkSession.builder.remote(spark_server.remote).create()
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    yield cache(partial(_answers, session))
    session.stop()


def _answers(spark: SparkSession, part: int) -> Answers:
    queries, changes = queries_of(part), streams(part)
    found = {}
    for step in range(INTERVALS[-1][1] + 1):
        for table, of in changes.items():
            rows = as_frame(spark, _table(table, _there(of, step)))
            rows.drop("_weight", "_step").createOrReplaceTempView(table)
        for name in queries:
            query = JUDGED_BY.get(name, queries[name])
            query = query.replace("now()", f"TIMESTAMP '{time_of(step):%Y-%m-%d %H:%M:%S}'")
            found[name, step] = Counter(plain_rows(spark.sql(query).toArrow()))
    return found


def _there(changes: list[Change], step: int) -> list[Change]:
    """The rows that are there after a step, each as often as it is."""
    there: Counter[str] = Counter()
    rows = {}
    for row, weight, at in changes:
        if at <= step:
            there[repr(row)] += weight
            rows[repr(row)] = row
    return [(rows[key], 1, 0) for key, count in there.items() for _ in range(count)]


def check(spark: SparkSession, part: int, answers: Answers, is_here: bool) -> None:
    """Run the part's queries as the views of one project, and compare each after each step."""
    queries = queries_of(part)
    if is_here:
        # levels are Spark's to evaluate, wherever the rows are: of these some are enough
        queries = {name: q for name, q in queries.items() if not name.startswith("level ")}
    names = {f"q{place}": name for place, name in enumerate(queries)}
    views = "".join(
        f"CREATE MATERIALIZED VIEW {view} AS {queries[name]};\n" for view, name in names.items()
    )
    project = parse_project(ProjectFiles(SPEC, (("views.sql", _sources() + views),)), {})
    # rows of these tables are taken back
    retracting = (replace(source, provider="iceberg") for source in project.sources)
    circuit = build_circuit(replace(project, sources=tuple(retracting)))
    runner = Runner(spark, circuit, is_here=is_here)
    changes = streams(part)
    found: dict[str, list[Change]] = {view: [] for view in names}
    for first, last in INTERVALS:
        deltas = {
            table: as_frame(spark, _table(table, [c for c in of if first <= c[2] <= last]))
            for table, of in changes.items()
        }
        is_last = (first, last) == INTERVALS[-1]
        for view, delta in runner.run(deltas, (first, last), 100, is_last).items():
            found[view] += [(tuple(map(plain, r)), w, s) for r, w, s in changes_of(delta)]
        for step in range(first, last + 1):
            for view, name in names.items():
                kept = _kept(found[view], step)
                assert kept == answers[name, step], f"{name} after step {step}: {queries[name]}"


def _kept(changes: list[Change], step: int) -> Mapping[tuple[Any, ...], int]:
    """What a view's changes come to after a step."""
    total: Counter[tuple[Any, ...]] = Counter()
    for row, weight, at in changes:
        if at <= step:
            total[row] += weight
    return {row: count for row, count in total.items() if count}


@pytest.mark.parametrize("is_here", [False, True], ids=["by Spark", "here"])
@pytest.mark.parametrize("part", range(PARTS))
def test_a_view_means_what_spark_says(
    spark: SparkSession, spark_says: Callable[[int], Answers], part: int, is_here: bool
) -> None:
    check(spark, part, spark_says(part), is_here)
