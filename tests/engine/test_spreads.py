"""Variances and what is like them: exact, whatever the order and the division, under retraction."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from intervals import Runner, changes_of, circuit_of, up_to
from pyspark.sql import SparkSession

from lockstep.sql.plans.expressions import from_text
from lockstep.sql.plans.nodes import Aggregate, AggregateCall, AggregateFunction, Scan
from lockstep.zset import ZSet

pytestmark = pytest.mark.spark

Change = tuple[tuple[int, float, float], int, int]
CALLS = ("var_pop(`x`)", "stddev(`x`)", "covar_samp(`x`, `y`)", "corr(`x`, `y`)")


def emitted(
    spark: SparkSession,
    calls: Sequence[str],
    changes: Sequence[Change],
    intervals: Sequence[tuple[int, int]],
) -> list[tuple[tuple[Any, ...], int, int]]:
    """What the calls by k give over the changes, in these intervals."""
    columns = (
        AggregateCall(f"c{place}", AggregateFunction.COLLECTED, None, from_text(text))
        for place, text in enumerate(calls)
    )
    plan = Aggregate(Scan("t", ("k", "x", "y")), ("k",), tuple(columns))
    runner = Runner(spark, circuit_of(plan, frozenset()), merges_traces=len(intervals) > 2)
    found = []
    for first, end in intervals:
        rows = [(*row, weight, step) for row, weight, step in changes if first <= step <= end]
        schema = "k int, x double, y double, _weight bigint, _step bigint"
        delta = spark.createDataFrame(rows, schema)
        tables = runner.run({"t": delta}, (first, end), 10, (first, end) == intervals[-1])
        found += changes_of(tables["root"])
    return found


def _products(one: Sequence[Fraction], other: Sequence[Fraction]) -> float:
    """The sum of the products of deviations, rounded once."""
    mean, of_other = (sum(values) / len(values) for values in (one, other))
    return float(sum((x - mean) * (y - of_other) for x, y in zip(one, other, strict=True)))


def meant(changes: Sequence[Change], step: int) -> ZSet:
    """The calls over the rows that are there after a step."""
    there = list(up_to(changes, step))
    rows = []
    for key in {row[0] for row, _ in there}:
        copies = [row for row, weight in there for _ in range(weight) if row[0] == key]
        xs, ys = ([Fraction(row[place]) for row in copies] for place in (1, 2))
        n, xx, yy, xy = len(xs), _products(xs, xs), _products(ys, ys), _products(xs, ys)
        of_many = (math.sqrt(xx / (n - 1)), xy / (n - 1), xy / math.sqrt(xx * yy)) if n > 1 else ()
        rows.append((key, xx / n, *(of_many or (None, None, None))))
    return ZSet.of_rows(rows)


def test_spreads_are_exact_and_do_not_depend_on_the_division(spark: SparkSession) -> None:
    random = Random(11)
    changes: list[Change] = []
    for step in range(6):
        for _ in range(6):
            # A great mean beside a small spread is what loses digits in doubles.
            x, y = 1e9 + random.random(), random.uniform(-1, 1) * 10 ** random.randint(-20, 20)
            changes.append(((random.randrange(3), x, y), 1, step))
        if step:
            gone = random.choice([row for row, _ in up_to(changes, step - 1)])
            changes.append((gone, -1, step))
    divisions = [(0, 5)], [(0, 1), (2, 2), (3, 5)]
    found = [emitted(spark, CALLS, changes, intervals) for intervals in divisions]
    for step in range(6):
        assert up_to(found[0], step) == up_to(found[1], step) == meant(changes, step)


def test_nothing_is_left_of_what_is_taken_back(spark: SparkSession) -> None:
    others = ((1, 1e150, 2.0), (1, 0.3, 7.0), (1, math.nan, 2.0))
    changes: list[Change] = [((1, 0.1, 1.0), 3, 0)]
    for step, row in enumerate(others):
        changes += [(row, 1, 2 * step + 1), (row, -1, 2 * step + 2)]
    found = emitted(spark, ("var_pop(`x`)", "covar_pop(`x`, `y`)"), changes, [(0, 2), (3, 6)])
    for step in (0, 2, 4, 6):
        # Rows with NaN are not equal to one another: they are told by their text.
        total = Counter[str]()
        for row, weight, at in found:
            total[str(row)] += weight if at <= step else 0
        assert {row for row, weight in total.items() if weight} == {"(1, 0.0, 0.0)"}
    assert any(math.isnan(row[1]) for row, _, _ in found)
