"""The law of watermarks: what is late, and what a plan shows, follows from the steps alone.

For random rows that come and are taken back, divided into steps and intervals at random; the
reference folds the steps in plain Python. A failing seed can be run alone with LOCKSTEP_LAW_SEED.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from intervals import START, Interval, Runner, changes_of, circuit_of, up_to
from oracle import Oracle
from pyspark.sql import SparkSession
from test_law import random_intervals

from lockstep.sql.plans.columns import as_they_are
from lockstep.sql.plans.nodes import (
    Aggregate,
    AggregateCall,
    AggregateFunction,
    Expression,
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
NEVER = dt.datetime.min.replace(tzinfo=dt.UTC)
SCHEMA = "k int, ts timestamp, _weight bigint, _step bigint"
Change = tuple[tuple[Any, ...], int, int]

MARKED = Watermark(Scan("w", ("k", "ts")), "ts", DELAY // dt.timedelta(microseconds=1))
COUNT = AggregateCall("n", AggregateFunction.COUNT, None)
LAST = AggregateCall("last", AggregateFunction.MAX, "ts")
GROUPS = Aggregate(
    Project(
        TimeWindow(MARKED, "window", "ts", "4 seconds", "2 seconds"),
        (*as_they_are(("k", "ts")), Output("end", Expression("`window`.end", ("window",)))),
    ),
    ("end", "k"),
    (COUNT, LAST),
)
MEANINGS = {"`window`.end": lambda row: row["window"][1], "`now`": lambda row: row["now"]}
PLANS: dict[str, Node] = {
    "rows": MARKED,
    "groups": Aggregate(MARKED, ("k",), (COUNT, LAST)),
    "windows": GROUPS,
    "final": Temporal(GROUPS, "end", "<=", Expression("`now`", ("now",)), (MARKED,)),
    "of another source": Temporal(
        Scan("u", ("k", "ts")), "ts", ">", Expression("`now`", ("now",)), (MARKED,)
    ),
}


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


def folded(
    changes: Sequence[Change], last: int
) -> tuple[list[Change], list[Change], dict[int, dt.datetime]]:
    """The rows on time, the late ones, and the watermark after each step."""
    on_time, late, after = [], [], {}
    mark = greatest = NEVER
    for step in range(last + 1):
        for row, weight, at in changes:
            if at == step:
                is_late = row[1] is not None and row[1] < mark
                (late if is_late else on_time).append((row, weight, step))
                greatest = max(greatest, row[1] or NEVER)
        mark = greatest - DELAY if greatest > NEVER else NEVER
        after[step] = mark
    return on_time, late, after


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
    on_time, late, after = folded(changes["w"], steps[1])
    assert ZSet(((*row, at), w) for row, w, at in runner.late.get("w", [])) == ZSet(
        ((*row, at), w) for row, w, at in late
    )
    for step in range(steps[0], steps[1] + 1):
        sources = {
            "w": (("k", "ts"), up_to(on_time, step)),
            "u": (("k", "ts"), up_to(changes["u"], step)),
        }
        expected = Oracle(MEANINGS, now=after[step]).evaluate(plan, sources)
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
