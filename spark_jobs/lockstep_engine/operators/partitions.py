"""Partitions at positions: all rows of a key that changed, as they are after each step that did.

For functions that are no sum and have no running form (a median, a rank, a frame of rows) there is
one law: the output of a key after step t is the function of the rows of the key after step t. So
for the keys of the delta, and for no other, the rows are laid out once for every position, a step at
which the key changed and the one before the first; Spark's own function is computed at each, and a
position's output stands until the next. The work is that of the keys that changed, with all their
rows, once a step in which they changed; the plan says so.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from lockstep_engine.context import Context
from lockstep_engine.deltas import (
    STEP,
    WEIGHT,
    columns_of,
    consolidate,
    only_keys,
    quoted,
    step_before,
)

__all__ = ["AT", "UNTIL", "in_order", "positions", "rows_at_positions"]

AT, UNTIL = "_at", "_until"
"""The position's step, and the next position's of the same key, null at the last."""


def positions(delta: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The positions of the delta's keys: the keys, `_at`, `_until`. Without keys there is one key."""
    steps = delta.select(*columns_of([*keys, STEP])).distinct()
    before = steps.select(*columns_of(keys), step_before()).distinct()
    by_key = Window.partitionBy(*columns_of(keys)).orderBy(STEP)
    return (
        steps.union(before).withColumn(UNTIL, F.lead(STEP).over(by_key)).withColumnRenamed(STEP, AT)
    )


def rows_at_positions(
    delta: DataFrame,
    state: DataFrame | None,
    keys: Sequence[str],
    columns: Sequence[str],
    context: Context,
) -> DataFrame:
    """`columns` (the keys among them), `_at`, `_until`, a row for each copy that is there.

    `state` has the same columns and `_weight`, or is None where there is none; rows may cancel.
    """
    events = consolidate(delta, columns)
    if state is not None:
        held = only_keys(state, keys, delta, context)
        events = events.unionByName(
            held.select(*columns_of(columns), *columns_of([WEIGHT]), step_before())
        )
    places = positions(delta, keys)
    renamed = {key: f"_key_{number}" for number, key in enumerate(keys)}
    places = places.withColumnsRenamed(renamed)
    if context.is_small:
        places = F.broadcast(places)
    tests = [f"{quoted(key)} <=> {name}" for key, name in renamed.items()]
    there = (
        events.join(places, F.expr(" AND ".join([*tests, f"{STEP} <= {AT}"])), "inner")
        .groupBy(*columns_of([*columns, AT, UNTIL]))
        .agg(F.sum(WEIGHT).alias(WEIGHT))
        .where(f"{WEIGHT} > 0")
    )
    copies = F.explode(F.expr(f"array_repeat(1, CAST({WEIGHT} AS int))")).alias("_copy")
    return there.select(*columns_of([*columns, AT, UNTIL]), copies).drop("_copy")


def in_order(
    rows: DataFrame, keys: Sequence[str], order: Sequence[Column], context: Context
) -> DataFrame:
    """The rows of each key together, sorted by position and then by `order`.

    Functions over the rows of a key and position then see them in this order, whatever came before:
    Spark adds no sort of its own where one is there that begins with what it asks for.
    """
    by = columns_of([*keys, AT]) if keys else columns_of([AT])
    spread = columns_of(keys or [AT])
    return rows.repartition(context.partitions, *spread).sortWithinPartitions(*by, *order)
