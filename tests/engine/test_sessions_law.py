"""The law of sessions of rows that stay: after each step, the groups are those of all rows up to it.

For random rows, divided into steps and intervals at random; the reference goes through the rows of a key
in plain Python. A failing seed can be run alone with LOCKSTEP_LAW_SEED.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator, Sequence
from decimal import ROUND_HALF_UP, Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from intervals import START, Interval, Runner, changes_of, up_to
from pyspark.sql import SparkSession
from test_law import random_intervals

from lockstep.sql.circuit import Circuit, Operator, ProjectFiles, TraceKind
from lockstep.sql.incremental import build_circuit
from lockstep.sql.plans.nodes import SessionGroups, Window
from lockstep.sql.project import parse_project
from lockstep.zset import ZSet
from lockstep_engine import evaluation
from lockstep_engine.local.rows import Rows
from lockstep_engine.local.sessions import sessions
from lockstep_engine.local.values import Unlike
from lockstep_engine.operators.evaluated import Evaluation

pytestmark = pytest.mark.spark

EXAMPLES = 60 if os.environ.get("LOCKSTEP_LAW") == "large" else 5
GAP = dt.timedelta(seconds=3)
SPEC = """\
name: law
storage: file:///none
catalog: lake
database: law
libraries:
  - glob: {include: sql/**}
"""
SOURCE = """\
CREATE TABLE t (k STRING, g INT, ts TIMESTAMP, v BIGINT, d DECIMAL(6, 2), x DOUBLE) USING kafka
OPTIONS ('kafka.bootstrap.servers' = 'none', subscribe = 't'{options});
CREATE MATERIALIZED VIEW root AS SELECT {columns} FROM t GROUP BY {keys};
"""
SCHEMA = (
    "k string, g int, ts timestamp, v bigint, d decimal(6,2), x double, "
    "_weight bigint, _step bigint"
)
SESSION = "session_window(ts, '3 seconds')"
BOUNDS = f"{SESSION}.start AS s, {SESSION}.end AS e"
Row = tuple[Any, ...]


def circuit_of(columns: str, keys: str, options: str = "") -> Circuit:
    sql = SOURCE.format(columns=columns, keys=keys, options=options)
    return build_circuit(parse_project(ProjectFiles(SPEC, (("sql/views.sql", sql),)), {}))


VIEWS = {
    "of a key": (f"k, count(*) AS n, sum(v) AS t, {BOUNDS}, max(x) AS m", f"k, {SESSION}"),
    "of two keys": (
        f"{BOUNDS}, upper(k) AS u, g, avg(d) AS a, count(v) AS c, min(d) AS lo",
        f"{SESSION}, upper(k), g",
    ),
    "of all rows": (f"max(v) AS m, {BOUNDS}, avg(v) AS a, max(ts) AS last", SESSION),
}


def sessions_of(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """The rows of a key in sessions."""
    session: list[Row] = []
    for row in sorted((row for row in rows if row[2] is not None), key=lambda row: row[2]):
        if session and row[2] > session[-1][2] + GAP:
            yield session
            session = []
        session.append(row)
    if session:
        yield session


def expected(name: str, rows: Sequence[Row]) -> ZSet:
    """The view over all rows."""

    def key(row: Row) -> Row:
        upper = None if row[0] is None else row[0].upper()
        return {"of a key": (row[0],), "of two keys": (upper, row[1]), "of all rows": ()}[name]

    found = []
    for one in set(map(key, rows)):
        for session in sessions_of([row for row in rows if key(row) == one]):
            bounds = (session[0][2], session[-1][2] + GAP)
            v, d, x = (
                [row[place] for row in session if row[place] is not None] for place in (3, 4, 5)
            )
            match name:
                case "of a key":
                    total = sum(v) if v else None
                    found.append((*one, len(session), total, *bounds, max(x, default=None)))
                case "of two keys":
                    mean = None
                    if d:
                        mean = (sum(d) / len(d)).quantize(Decimal("0.000001"), ROUND_HALF_UP)
                    found.append((*bounds, *one, mean, len(v), min(d, default=None)))
                case _:
                    mean = sum(v) / len(v) if v else None
                    found.append((max(v, default=None), *bounds, mean, session[-1][2]))
    return ZSet((row, 1) for row in found)


def random_rows(random: Random, steps: Interval, count: int) -> list[Row]:
    """Rows as SCHEMA has them; times go on with the steps, and now and then far back."""
    found = []
    for step in sorted(random.randint(*steps) for _ in range(count)):
        seconds = random.choice(
            [step * 2.0, step * 2.0 + 0.5, step - 4.5, 40.0 - step, 3.0, 6.0, 6.001]
        )
        row = (
            random.choice(["a", "A", "b", None]),
            random.choice([1, 2, None]),
            random.choice([None, *[START + dt.timedelta(seconds=seconds)] * 9]),
            random.choice([None, 1, -2, 1 << 40]),
            random.choice([None, Decimal("1.25"), Decimal("-0.10")]),
            random.choice([None, 0.5, 1e20]),
        )
        found.append((*row, random.choice([1, 1, 1, 2]), step))
    return found


def check(spark: SparkSession, seed: int, name: str, is_here: bool) -> None:
    random = Random(seed)
    circuit = circuit_of(*VIEWS[name])
    assert any(isinstance(operator.node, SessionGroups) for operator in circuit.operators)
    steps = (0, random.randint(1, 9))
    intervals = random_intervals(random, steps)
    rows = random_rows(random, steps, random.randint(1, 40))
    merges, large_state = random.random() < 0.5, random.choice([0, 1_000_000])
    records = random.choice([1_000, 1_000 if is_here else 1_000_000])
    note(f"seed {seed}: {name}, {intervals}, {records} records, {merges}, {large_state}, {rows}")
    runner = Runner(spark, circuit, merges, large_state, is_here=is_here)
    found = []
    for interval in intervals:
        delta = spark.createDataFrame(
            [row for row in rows if interval[0] <= row[-1] <= interval[1]], SCHEMA
        )
        tables = runner.run({"t": delta}, interval, records, interval is intervals[-1])
        found += changes_of(tables["root"])
    assert all(weight for _, weight, _ in found)
    copies = ZSet(((*row, step), 1) for row, _, step in found)
    assert all(weight == 1 for _, weight in copies), f"seed {seed}: not consolidated"
    for step in range(steps[0], steps[1] + 1):
        there = [row[:6] for row in rows if row[-1] <= step for _ in range(row[-2])]
        difference = up_to(found, step) - expected(name, there)
        assert difference == ZSet(), f"seed {seed}: after step {step}"


@pytest.mark.parametrize("is_here", [False, True], ids=["by Spark", "here"])
@pytest.mark.parametrize("name", VIEWS)
@settings(
    max_examples=EXAMPLES,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(seed=st.integers(0, 1 << 40))
def test_law(spark: SparkSession, name: str, seed: int, is_here: bool) -> None:
    check(spark, int(os.environ.get("LOCKSTEP_LAW_SEED", seed)), name, is_here)


def test_rows_that_are_here_are_put_together_here(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(operator: Operator, *_: object) -> Evaluation:
        raise AssertionError(f"Spark is to evaluate {operator.node}")

    monkeypatch.setattr(evaluation, "evaluate", refused)
    runner = Runner(spark, circuit_of(*VIEWS["of a key"]), is_here=True)
    found: list[tuple[int, int]] = []
    for step, seconds in enumerate([(0, 1, 9, 20), (4, 5), (6,)]):
        rows = [("a", 1, START + dt.timedelta(seconds=s), 1, None, 0.5, 1, step) for s in seconds]
        delta = spark.createDataFrame(rows, SCHEMA)
        tables = runner.run({"t": delta}, (step, step), 100, is_last=step == 2)
        changes = changes_of(tables["root"])
        found += sorted((row[1], weight) for row, weight, _ in changes)
    assert found == [(1, 1), (1, 1), (2, 1), (2, -1), (4, 1), (1, -1), (4, -1), (6, 1)]


def test_a_change_reads_the_sessions_beside_it_alone(spark: SparkSession) -> None:
    """An hour of rows lies far from the change: it is neither shown nor remembered again."""
    circuit = circuit_of(*VIEWS["of a key"])
    [trace] = circuit.traces
    runner = Runner(spark, circuit, merges_traces=True)

    def run(step: int, *seconds: int) -> list[Any]:
        rows = [("a", 1, START + dt.timedelta(seconds=s), 1, None, 0.5, 1, step) for s in seconds]
        delta = spark.createDataFrame(rows, SCHEMA)
        return changes_of(runner.run({"t": delta}, (step, step), 100, is_last=False)["root"])

    run(0, *range(0, 3600, 10))
    assert runner.trace(trace.table).count() == 360
    changes = run(1, 3591, 3602)
    assert [(row[1], weight) for row, weight, _ in sorted(changes, key=lambda c: c[1:])] == [
        (1, -1),
        (2, 1),
        (1, 1),
    ]
    assert runner.trace(trace.table).count() == 361


@pytest.mark.parametrize("at", [(1 << 62) + 1, -(1 << 62) - 1])
def test_sessions_at_the_ends_of_time_are_left_to_spark(at: int) -> None:
    circuit = circuit_of(*VIEWS["of all rows"])
    [operator] = [one for one in circuit.operators if isinstance(one.node, SessionGroups)]
    assert isinstance(operator.node, SessionGroups)
    columns: dict[str, Any] = dict.fromkeys(operator.node.input.columns, pa.array([1]))
    columns[operator.node.time] = pa.array([at], pa.timestamp("us", "UTC"))
    rows = Rows.of(pa.table({**columns, "_weight": [1], "_step": [0]}))
    with pytest.raises(Unlike):
        sessions(operator, rows, {})


@pytest.mark.parametrize(
    ("columns", "keys", "options"),
    [
        (f"k, sum(x) AS t, {BOUNDS}", f"k, {SESSION}", ""),
        (f"k, sum(v + g) AS t, {BOUNDS}", f"k, {SESSION}", ""),
        (f"k, collect_list(v) AS t, {BOUNDS}", f"k, {SESSION}", ""),
        (f"k, count(*) AS n, {BOUNDS}", f"k, {SESSION}", ", format = 'debezium'"),
    ],
)
def test_other_groups_look_at_the_rows(columns: str, keys: str, options: str) -> None:
    circuit = circuit_of(columns, keys, options)
    kinds = {type(operator.node) for operator in circuit.operators}
    assert Window in kinds
    assert SessionGroups not in kinds


def test_sessions_are_remembered_until_the_watermark_has_passed_them() -> None:
    circuit = circuit_of(*VIEWS["of a key"], ", watermark = 'ts', watermark_delay = '5 seconds'")
    [trace] = (trace for trace in circuit.traces if trace.kind is TraceKind.SESSIONS)
    assert trace.past is not None
    assert trace.past.ends == ("try_add(`_session_last`, INTERVAL '3 seconds')",)
    assert not trace.past.is_exclusive
