"""The law: the sum of what a plan emits up to a step is the plan on the sum of its input up to it.

For random plans over random streams, divided into steps and intervals at random, under another layout
in each interval, with traces merged between intervals or not, at every step, and on many cases
at once. Sums of doubles are compared exactly. LOCKSTEP_LAW=large runs many
more; a failing seed can be run alone with LOCKSTEP_LAW_SEED.
"""

from __future__ import annotations

import os
from datetime import timedelta
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from intervals import Interval, Runner, as_frame, changes_of, circuit_of, time_of, up_to
from oracle import Oracle
from placements import placements
from plans import EVENTS, KEYED, TABLE, TIMED, PlanMaker, source_columns
from pyspark.sql import SparkSession
from streams import Change, as_table, folded, random_changes, random_records

from lockstep.control.job import Placement
from lockstep.sql.plans.nodes import CHANGE_COLUMNS, Aggregate, Scan, Window
from lockstep.zset import ZSet

pytestmark = pytest.mark.spark

IS_LARGE = os.environ.get("LOCKSTEP_LAW") == "large"
SEED = os.environ.get("LOCKSTEP_LAW_SEED")
EXAMPLES = 2 if SEED else 200 if IS_LARGE else 8
CASES = 100 if IS_LARGE else 25
ROWS = 8
"""Changes of a source in a case, at most."""


def random_intervals(random: Random, steps: Interval) -> list[Interval]:
    """The steps cut into one to three intervals."""
    first, last = steps
    count = min(last - first, random.choice([0, 1, 2, 2]))
    cuts = sorted(random.sample(range(first + 1, last + 1), count))
    return list(zip([first, *cuts], [cut - 1 for cut in cuts] + [last], strict=True))


def random_indexes(seed: int, tables: frozenset[str]) -> dict[str, list[str]]:
    """Of some of the tables all columns, in some order: what is looked up by key is in a trace then."""
    random = Random(f"index {seed}")  # other draws stay what they are
    columns = {name: list(source_columns(f"{name}_")) for name in sorted(tables)}
    return {
        name: random.sample(of, len(of)) for name, of in columns.items() if random.random() < 0.5
    }


def emitted(
    spark: SparkSession,
    runner: Runner,
    changes: dict[str, list[Change]],
    intervals: list[Interval],
    layouts: list[Placement],
    records: int,
) -> list[Change]:
    """All that a circuit emits, interval by interval, each under its layout."""
    found: list[Change] = []
    for interval, placement in zip(intervals, layouts, strict=True):
        deltas = {
            prefix.strip("_"): as_frame(
                spark, as_table(prefix, [c for c in of if interval[0] <= c[2] <= interval[1]])
            )
            for prefix, of in changes.items()
        }
        tables = runner.run(deltas, interval, records, interval is intervals[-1], placement)
        delta = changes_of(tables["root"])
        assert all(interval[0] <= step <= interval[1] for _, _, step in delta)
        found.extend(delta)
    return found


def check_consolidated(changes: list[Change]) -> None:
    """One row per (row, step), none of weight 0."""
    assert all(weight for _, weight, _ in changes)
    rows = ZSet(((*row, step), 1) for row, _, step in changes)
    assert all(weight == 1 for _, weight in rows)


def check_law(spark: SparkSession, seed: int, of_recursion: bool = False) -> None:
    """Make a plan and its input from the seed, and compare at every step."""
    random = Random(seed)
    key, delay = random.choice(["text", "int"]), timedelta(seconds=random.choice([2, 5, 7]))
    maker = PlanMaker(random, key, delay)
    made = maker.recursion(1) if of_recursion else maker.relation(random.randint(1, 4))
    plan = made.node
    steps = (random.choice([0, 7]), 7 + random.randint(0, 4))
    intervals = random_intervals(random, steps)
    layouts = placements(random, len(intervals))
    records = random.choice([1_000, 1_000_000])
    merges_traces = random.random() < 0.5
    tables = frozenset(p.strip("_") for p in (EVENTS, TABLE) if random.random() < 0.5)
    # State is read by the ranges of the change, or whole.
    large_state, many_steps = random.choice([0, 1_000_000]), random.choice([0, 16])
    is_here = large_state == 0 or random.random() < 0.4
    note(
        f"seed {seed}: {intervals} under {layouts}, {records} records, merged {merges_traces}, "
        f"{tables}, large state {large_state}, many steps {many_steps}, here {is_here}, {plan}"
    )
    changes = {
        EVENTS: random_changes(random, CASES, steps, ROWS, retracts=False),
        TABLE: random_changes(random, CASES, steps, ROWS, retracts=True),
        KEYED: random_records(random, CASES, steps, ROWS, key),
        TIMED: random_changes(random, CASES, steps, ROWS, retracts=True),
    }
    if random.random() < 0.5:
        # A source without a record is known to be empty before anything runs.
        changes[EVENTS] = [c for c in changes[EVENTS] if c[2] < intervals[-1][0]]
    append_only = frozenset(prefix.strip("_") for prefix in (EVENTS, KEYED))
    circuit = circuit_of(plan, append_only, tables, random_indexes(seed, tables))
    runner = Runner(spark, circuit, merges_traces, large_state, many_steps, is_here)
    read = {op.node.source for op in circuit.operators if isinstance(op.node, Scan)}
    changes = {prefix: of for prefix, of in changes.items() if prefix.strip("_") in read}
    found = emitted(spark, runner, changes, intervals, layouts, records)
    if isinstance(plan, Aggregate | Window):
        check_consolidated(found)
    columns = {prefix: tuple(source_columns(prefix)) for prefix in (*changes, KEYED, TIMED)}
    place = columns[TIMED].index(f"{TIMED}time")
    changes[TIMED], _, marks = folded(changes.get(TIMED, []), place, delay, steps[1])
    columns[KEYED] += CHANGE_COLUMNS
    for step in range(steps[0], steps[1] + 1):
        oracle = Oracle(maker.meanings, maker.steps, time_of(step), marks[step])
        sources = {
            prefix.strip("_"): (columns[prefix], up_to(of, step)) for prefix, of in changes.items()
        }
        expected = oracle.evaluate(plan, sources)
        assert up_to(found, step) - expected == ZSet(), f"seed {seed}: after step {step}"


@settings(
    max_examples=EXAMPLES,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(seed=st.integers(0, 1 << 40))
def test_law(spark: SparkSession, seed: int) -> None:
    check_law(spark, int(SEED or seed))


@settings(
    max_examples=EXAMPLES // 2,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(seed=st.integers(0, 1 << 40))
def test_law_of_recursion(spark: SparkSession, seed: int) -> None:
    check_law(spark, int(SEED or seed), of_recursion=True)
