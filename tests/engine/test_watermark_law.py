"""The law of watermarks: what is late, and what a plan shows, follows from the steps alone.

For random rows that come and are taken back, divided into steps and intervals at random; the
reference folds the steps in plain Python. A failing seed can be run alone with LOCKSTEP_LAW_SEED.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from intervals import START, Interval, Runner, changes_of, circuit_of, up_to
from oracle import Oracle
from pyspark.sql import SparkSession
from streams import Change, folded
from test_law import random_intervals

from lockstep.sql.plans.columns import as_they_are
from lockstep.sql.plans.nodes import (
    Aggregate,
    AggregateCall,
    AggregateFunction,
    Expression,
    Join,
    JoinKind,
    Node,
    Output,
    Project,
    Scan,
    Temporal,
    TimeWindow,
    Watermark,
)
from lockstep.zset import ZSet

pytestmark = pytest.mark.spark

EXAMPLES = 60 if os.environ.get("LOCKSTEP_LAW") == "large" else 3
DELAY = dt.timedelta(seconds=2)
SCHEMA = "k int, ts timestamp, _weight bigint, _step bigint"

MARKED = Watermark(Scan("w", ("k", "ts")), "ts", DELAY // dt.timedelta(microseconds=1))
COUNT = AggregateCall("n", AggregateFunction.COUNT, None)
LAST = AggregateCall("last", AggregateFunction.MAX, "ts")
OTHERS = Watermark(Scan("u", ("k", "ts")), "ts", 2 * MARKED.delay)


def named(prefix: str, node: Node) -> Node:
    """The rows under names that begin so."""
    outputs = (Output(f"{prefix}{name}", Expression.column(name)) for name in node.columns)
    return Project(node, tuple(outputs))


def windows(node: Node) -> Node:
    """The rows with the windows that they are in."""
    return TimeWindow(node, "window", "ts", "4 seconds", "2 seconds")


def ended(node: Node) -> Node:
    """The rows with the ends of the windows that they are in."""
    end = Output("end", Expression("`window`.end", ("window",)))
    return Project(windows(node), (*as_they_are(("k", "ts")), end))


GROUPS = Aggregate(ended(MARKED), ("end", "k"), (COUNT, LAST))
SOON = Expression(
    "`b_ts` >= `a_ts` AND `b_ts` - INTERVAL 1 SECOND < `a_ts` + INTERVAL 2 SECONDS",
    ("a_ts", "b_ts"),
)
NOT_LATER = Expression("`a_ts` <= `b_ts`", ("a_ts", "b_ts"))


def is_soon(row: Mapping[str, Any]) -> bool:
    if None in (row["a_ts"], row["b_ts"]):
        return False
    return bool(dt.timedelta(0) <= row["b_ts"] - row["a_ts"] < dt.timedelta(seconds=3))


def in_time(kind: JoinKind) -> Node:
    """Two sources, with how long a partner may take."""
    return Join(named("a_", MARKED), named("b_", OTHERS), ("a_k",), ("b_k",), SOON, kind=kind)


MEANINGS = {
    "`window`.end": lambda row: row["window"][1],
    "`now`": lambda row: row["now"],
    SOON.text: is_soon,
    NOT_LATER.text: lambda row: (
        None not in (row["a_ts"], row["b_ts"]) and row["a_ts"] <= row["b_ts"]
    ),
}
PLANS: dict[str, Node] = {
    "rows": MARKED,
    "groups": Aggregate(MARKED, ("k",), (COUNT, LAST)),
    "windows": GROUPS,
    "final": Temporal(GROUPS, "end", "<=", Expression("`now`", ("now",)), (MARKED,)),
    "final beside each other": Temporal(
        Join(
            GROUPS,
            named(
                "b_",
                Aggregate(Aggregate(ended(MARKED), ("end", "k", "ts"), ()), ("end", "k"), (COUNT,)),
            ),
            ("end", "k"),
            ("b_end", "b_k"),
            null_safe=(True, True),
        ),
        "end",
        "<=",
        Expression("`now`", ("now",)),
        (MARKED,),
    ),
    "of another source": Temporal(
        Scan("u", ("k", "ts")), "ts", ">", Expression("`now`", ("now",)), (MARKED,)
    ),
    "windows joined": Join(
        named("a_", windows(MARKED)),
        named("b_", windows(OTHERS)),
        ("a_k", "a_window"),
        ("b_k", "b_window"),
    ),
    "groups joined": Join(
        named("a_", GROUPS),
        named("b_", Aggregate(ended(OTHERS), ("end",), (COUNT,))),
        ("a_end",),
        ("b_end",),
    ),
    "times joined": in_time(JoinKind.INNER),
    "itself joined": Join(named("a_", MARKED), named("b_", MARKED), ("a_k",), ("b_k",), SOON),
    "one side bounded": Join(
        named("a_", MARKED), named("b_", OTHERS), ("a_k",), ("b_k",), NOT_LATER
    ),
    "left in time": in_time(JoinKind.LEFT),
    "full in time": in_time(JoinKind.FULL),
    "without a match in time": in_time(JoinKind.ANTI),
    "once each": Aggregate(MARKED, ("k", "ts"), ()),
    "counted by time": Aggregate(named("a_", MARKED), ("a_ts",), (COUNT,)),
}
IN_TIME = ("left in time", "full in time", "without a match in time")
JOINED = (
    *IN_TIME,
    "windows joined",
    "groups joined",
    "times joined",
    "itself joined",
    "one side bounded",
)


def random_changes(random: Random, steps: Interval) -> list[Change]:
    """Rows whose times go on with the steps, more or less; some are taken back later."""
    there: list[tuple[Any, ...]] = []
    changes: list[Change] = []
    for step in range(steps[0], steps[1] + 1):
        for _ in range(random.choice([0, 2, 5])):
            if there and random.random() < 0.3:
                changes.append((there.pop(random.randrange(len(there))), -1, step))
                continue
            second = random.choice([step, step - 1, step - 4, step - 2, step + 1])
            time = None if random.random() < 0.1 else START + dt.timedelta(seconds=second)
            there.append((random.randint(0, 2), time))
            changes.append((there[-1], 1, step))
    return changes


def check_late(runner: Runner, source: str, late: Sequence[Change]) -> None:
    found = ZSet(((*row, at), weight) for row, weight, at in runner.late.get(source, []))
    assert found == ZSet(((*row, at), weight) for row, weight, at in late)


def check(spark: SparkSession, seed: int, name: str) -> None:
    random = Random(seed)
    plan = PLANS[name]
    steps = (0, random.randint(3, 9))
    intervals = random_intervals(random, steps)
    changes = {"w": random_changes(random, steps), "u": random_changes(random, steps)}
    note(f"seed {seed}: {name}, {intervals}, {changes}")
    merges = random.random() < 0.7
    runner = Runner(spark, circuit_of(plan, frozenset()), merges)
    found: list[Change] = []
    for interval in intervals:
        deltas = {
            source: spark.createDataFrame(
                [(*row, w, s) for row, w, s in of if interval[0] <= s <= interval[1]], SCHEMA
            )
            for source, of in changes.items()
        }
        found += changes_of(runner.run(deltas, interval, 100, interval == intervals[-1])["root"])
    on_time, late, after = folded(changes["w"], 1, DELAY, steps[1])
    check_late(runner, "w", late)
    if name in JOINED:
        changes["u"], late, _ = folded(changes["u"], 1, 2 * DELAY, steps[1])
        check_late(runner, "u", [] if name == "itself joined" else late)
    for step in range(steps[0], steps[1] + 1):
        sources = {
            "w": (("k", "ts"), up_to(on_time, step)),
            "u": (("k", "ts"), up_to(changes["u"], step)),
        }
        expected = Oracle(MEANINGS, mark=after[step]).evaluate(plan, sources)
        assert up_to(found, step) - expected == ZSet(), f"seed {seed}: after step {step}"


@pytest.mark.parametrize("name", PLANS)
@settings(
    max_examples=EXAMPLES,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(seed=st.integers(0, 1 << 40))
def test_what_is_late_follows_from_the_steps(spark: SparkSession, name: str, seed: int) -> None:
    check(spark, int(os.environ.get("LOCKSTEP_LAW_SEED", seed)), name)


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        # The watermarks are at 7 and at 5 seconds; a partner is at most 3 seconds later.
        ("times joined", {"a_ts": range(2, 10), "b_ts": range(5, 10)}),
        ("itself joined", {"a_ts": range(4, 10), "b_ts": range(7, 10)}),
        ("one side bounded", {"a_ts": range(10), "b_ts": range(5, 10)}),
        # Windows that end at 6 seconds and later.
        ("windows joined", {"a_ts": range(2, 10), "b_ts": range(2, 10)}),
    ],
)
def test_merged_traces_have_what_can_still_be_met(
    spark: SparkSession, name: str, seconds: Mapping[str, range]
) -> None:
    circuit = circuit_of(PLANS[name], frozenset())
    runner = Runner(spark, circuit, merges_traces=True)
    rows = [(0, START + dt.timedelta(seconds=second), 1, second) for second in range(10)]
    for first, last in ((0, 4), (5, 9)):
        delta = spark.createDataFrame([row for row in rows if first <= row[3] <= last], SCHEMA)
        runner.run({"w": delta, "u": delta}, (first, last), 100, is_last=False)
    traces = [trace for operator in circuit.operators for trace in operator.rows if trace]
    found = {}
    for trace in traces:
        [column] = (one for one in trace.row if one.endswith("_ts"))
        second = f"unix_seconds({column}) - {round(START.timestamp())}"
        kept = runner.trace(trace.table).selectExpr(second).distinct().collect()
        found[column] = sorted(second for (second,) in kept)
    assert found == {column: list(kept) for column, kept in seconds.items()}
