"""The law of keyed sources: what a plan over an upsert emits up to a step is the plan on the last
records of the keys up to it, for random records, divided into steps and intervals at random.

The reference folds the records in plain Python; the plan over the table that comes out is the
oracle's. A failing seed can be run alone with LOCKSTEP_LAW_SEED.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from intervals import Interval, Runner, changes_of, circuit_of, up_to
from oracle import Oracle
from pyspark.sql import SparkSession

from lockstep.sql.plans.nodes import (
    CHANGE_COLUMNS,
    Aggregate,
    AggregateCall,
    AggregateFunction,
    Expression,
    Filter,
    Join,
    Node,
    Output,
    Project,
    Scan,
    Upsert,
)
from lockstep.zset import ZSet

pytestmark = pytest.mark.spark

EXAMPLES = 60 if os.environ.get("LOCKSTEP_LAW") == "large" else 5
COLUMNS = ("k", "g", "v", "d")
SCHEMA = (
    "k string, g int, v bigint, d double, _partition int, _offset bigint, _deleted boolean, "
    "_weight bigint, _step bigint"
)
NUMBERS = [None, 0.0, -0.0, 1.5, math.nan, math.inf]
Record = tuple[Any, ...]
TABLE = Upsert(Scan("t", (*COLUMNS, *CHANGE_COLUMNS)), ("k", "g"))


def random_records(random: Random, steps: Interval, count: int) -> list[Record]:
    """Records as SCHEMA has them; those of a key lie in one partition, but for a few."""
    found = []
    offsets: dict[int, int] = {}
    for step in sorted(random.randint(*steps) for _ in range(count)):
        key = random.choice(["a", "b", "c", "é", ""]), random.randint(0, 2)
        partition = random.choice([len(key[0]), len(key[0]), 0])
        offset = offsets[partition] = offsets.get(partition, 5) + random.randint(1, 3)
        deleted = random.random() < 0.3
        row = (None, None) if deleted else (random.choice([None, 1, 2, 3]), random.choice(NUMBERS))
        found.append((*key, *row, partition, offset, deleted, 1, step))
    return found


def folded(records: Sequence[Record], step: int) -> ZSet:
    """The table after a step."""
    last: dict[Record, Record] = {}
    for record in records:
        *_, partition, offset, _, _, at = record
        known = last.get(record[:2])
        if at <= step and (known is None or (known[8], *known[4:6]) < (at, partition, offset)):
            last[record[:2]] = record
    return ZSet((record[:4], 1) for record in last.values() if not record[6])


def renamed(prefix: str, node: Node) -> Project:
    names = [Output(f"{prefix}{name}", Expression.column(name)) for name in node.columns]
    return Project(node, tuple(names))


def plans(table: Node) -> list[Node]:
    """Plans over the table: as it is, narrower, filtered by what changes, and with state above."""
    calls = (
        AggregateCall("n", AggregateFunction.COUNT, None),
        AggregateCall("s", AggregateFunction.SUM, "v"),
        AggregateCall("m", AggregateFunction.MAX, "d"),
    )
    return [
        table,
        Project(table, (Output("v", Expression.column("v")),)),
        Aggregate(Filter(table, Expression("`v` > 1", ("v",))), ("g",), calls),
        Join(renamed("l_", table), renamed("r_", table), ("l_v",), ("r_v",)),
    ]


MEANINGS = {"`v` > 1": lambda row: row["v"] is not None and row["v"] > 1}


def check_law(spark: SparkSession, seed: int) -> None:
    random = Random(seed)
    which = random.randrange(len(plans(TABLE)))
    plan, reference = plans(TABLE)[which], plans(Scan("table", COLUMNS))[which]
    last = random.randint(1, 6)
    records = random_records(random, (0, last), random.randint(0, 60))
    cuts = sorted(random.sample(range(1, last + 1), random.randint(0, min(2, last))))
    intervals = list(zip([0, *cuts], [cut - 1 for cut in cuts] + [last], strict=True))
    merges_traces, size = random.random() < 0.5, random.choice([1_000, 10_000_000])
    circuit, is_here = circuit_of(plan, frozenset({"t"})), random.random() < 0.5
    runner = Runner(spark, circuit, merges_traces, is_here=is_here)
    found = []
    for interval in intervals:
        rows = [record for record in records if interval[0] <= record[-1] <= interval[1]]
        random.shuffle(rows)
        delta = spark.createDataFrame(rows, SCHEMA)
        deltas = runner.run({"t": delta}, interval, size, interval is intervals[-1])
        found += changes_of(deltas["root"])
    assert all(weight for _, weight, _ in found)
    if plan is TABLE:
        copies = ZSet(((*row, step), 1) for row, _, step in found)
        assert all(weight == 1 for _, weight in copies), f"seed {seed}: not consolidated"
    for step in range(last + 1):
        expected = Oracle(MEANINGS).evaluate(reference, {"table": (COLUMNS, folded(records, step))})
        assert up_to(found, step) - expected == ZSet(), f"seed {seed}: after step {step}"


@settings(
    max_examples=EXAMPLES,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(seed=st.integers(0, 1 << 40))
def test_law(spark: SparkSession, seed: int) -> None:
    check_law(spark, int(os.environ.get("LOCKSTEP_LAW_SEED", seed)))


def emitted(spark: SparkSession, records: Sequence[Record], intervals: list[Interval]) -> Any:
    runner = Runner(spark, circuit_of(TABLE, frozenset({"t"})))
    found = []
    for first, last in intervals:
        rows = [record for record in records if first <= record[-1] <= last]
        delta = spark.createDataFrame(rows, SCHEMA)
        deltas = runner.run({"t": delta}, (first, last), 10, (first, last) == intervals[-1])
        found += changes_of(deltas["root"])
    return sorted(found, key=lambda change: (change[2], change[1]))


@pytest.mark.parametrize("intervals", [[(0, 4)], [(0, 1), (2, 4)], [(0, 0), (1, 2), (3, 4)]])
def test_each_record_is_compared_with_the_one_before(
    spark: SparkSession, intervals: list[Interval]
) -> None:
    """Only the last of a step counts; the same again, or a delete of nothing, emits nothing."""
    one, two = ("a", 0, 1, None), ("a", 0, 2, None)
    gone = ("a", 0, None, None)
    records = [
        (*one, 0, 1, False, 1, 0),
        (*two, 0, 2, False, 1, 0),
        (*two, 0, 3, False, 1, 1),
        (*gone, 0, 4, True, 1, 2),
        (*gone, 0, 5, True, 1, 3),
        (*gone, 0, 6, True, 1, 4),
        (*one, 0, 7, False, 1, 4),
    ]
    changes = [(two, 1, 0), (two, -1, 2), (one, 1, 4)]
    assert emitted(spark, records, intervals) == changes


@pytest.mark.parametrize("is_here", [False, True], ids=["Spark", "here"])
@pytest.mark.parametrize("which", ["as it is", "some", "renamed", "computed", "least"])
def test_what_is_taken_back_was_given_to_the_bit(
    spark: SparkSession, is_here: bool, which: str
) -> None:
    """To a sink of texts -0.0 is another row than 0.0, which is what a trace has of it."""
    least = AggregateCall("m", AggregateFunction.MIN, "d")
    plan = {
        "as it is": TABLE,
        "some": Filter(TABLE, Expression("`v` > 1", ("v",))),
        "renamed": renamed("a_", TABLE),
        "computed": Project(TABLE, (Output("e", Expression("`d` * 2", ("d",))),)),
        "least": Aggregate(TABLE, ("g",), (least,)),
    }[which]
    records = [
        ("a", 0, 2, -0.0, 0, 1, False, 1, 0),
        ("b", 1, 2, -math.nan, 0, 2, False, 1, 0),
        ("c", 2, 2, 1.5, 0, 3, False, 1, 1),
        ("c", 2, 2, -0.0, 0, 4, False, 1, 2),
        ("a", 0, 3, 1.5, 0, 5, False, 1, 3),
        ("b", 1, None, None, 0, 6, True, 1, 3),
        ("c", 2, None, None, 0, 7, True, 1, 4),
    ]
    runner = Runner(spark, circuit_of(plan, frozenset({"t"})), is_here=is_here)
    there: Counter[str] = Counter()
    for first, last in ((0, 1), (2, 2), (3, 4)):
        rows = [record for record in records if first <= record[-1] <= last]
        delta = spark.createDataFrame(rows, SCHEMA)
        deltas = runner.run({"t": delta}, (first, last), 10, last == 4)
        for row, weight, _ in sorted(changes_of(deltas["root"]), key=lambda one: one[2]):
            there[repr(row)] += weight
        assert min(there.values()) >= 0, there
    assert there.total() == 1
