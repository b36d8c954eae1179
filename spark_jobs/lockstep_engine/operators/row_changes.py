"""From what the row of a key is after each step to what changes: -old +new, where they differ.

A key has at most one row. It changes from one step to the next in which it is looked at; the step
before the interval's first says what it was when the version was opened, and emits nothing itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from lockstep_engine.deltas import FIRST, STEP, WEIGHT, columns_of, quoted

__all__ = ["row_changes"]


def row_changes(states: DataFrame, keys: Sequence[str], names: Sequence[str]) -> DataFrame:
    """Keys, the columns `names`, `_weight` and `_step`, consolidated.

    `states`: keys, `_step`, and the struct `_after` of the columns `names` and perhaps others, null
    where the key has no row; one row a key and step.

    Without a lambda: one has another identity each time a plan is analysed, so that Spark would not
    recognise a delta that was kept.
    """
    by_key = Window.partitionBy(*columns_of(keys)).orderBy(STEP)
    pairs = states.withColumn("_before", F.lag("_after").over(by_key))
    changed = pairs.where(f"{STEP} >= {FIRST} AND NOT (_before <=> _after)")
    old = f"struct(_before AS _row, -1L AS {WEIGHT})"
    new = f"struct(_after AS _row, 1L AS {WEIGHT})"
    rows = changed.select(
        *columns_of([*keys, STEP]),
        F.expr(
            f"inline(CASE WHEN _before IS NULL THEN array({new}) "
            f"WHEN _after IS NULL THEN array({old}) ELSE array({old}, {new}) END)"
        ),
    )
    outputs: list[Column] = [F.col(f"_row.{quoted(name)}").alias(name) for name in names]
    return rows.select(*columns_of(keys), *outputs, *columns_of([WEIGHT, STEP]))
