"""Partitions at positions: all rows of a key that changed, as they are after each step that did.

For functions that are no sum and have no running form (a median, a rank, a frame of rows) there is
one law: the output of a key after step t is the function of the rows of the key after step t. So
for the keys of the delta, and for no other, the rows are laid out once for every position, a step at
which the key changed and the one before the first; Spark's own function is computed at each, and a
position's output stands until the next. The work is that of the keys that changed, with all their
rows, once a step in which they changed; the plan says so. A row is laid out from where it comes to
where it goes, over numbers of steps: rows that meet all positions of their key to see where they are
would be as many again for each step.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from lockstep_engine.context import Context
from lockstep_engine.deltas import (
    STEP,
    UNTIL,
    WEIGHT,
    columns_of,
    keys_apart,
    keys_equal,
    merge_steps,
    only_keys,
    periods,
    step_before,
)

__all__ = [
    "AT",
    "UNTIL",
    "changes_at_positions",
    "events_of",
    "in_order",
    "rows_at_positions",
]

AT = "_at"
"""The position's step; `_until` is the next position's of the same key, null at the last."""

_PLACE, _LAST, _STEPS = "_place", "_last", "_steps"


def events_of(
    delta: DataFrame,
    state: DataFrame | None,
    keys: Sequence[str],
    columns: Sequence[str],
    context: Context,
) -> DataFrame:
    """`columns` (the keys among them), `_weight`, `_step`: the change, and of the keys in it what was
    there before. `state` has the same columns and `_weight`, or is None where there is none; rows may
    cancel."""
    events = delta.select(*columns_of([*columns, WEIGHT, STEP]))
    if state is None:
        return events
    held = only_keys(state, keys, delta, context)
    return events.union(held.select(*columns_of([*columns, WEIGHT]), step_before()))


def rows_at_positions(
    events: DataFrame,
    keys: Sequence[str],
    columns: Sequence[str],
    context: Context,
    stay: bool = False,
) -> DataFrame:
    """`columns`, `_at`, `_until`, a row for each copy that is there. With `stay` no event takes back."""
    laid_out = _stayed(events, keys, columns) if stay else _netted(events, keys, columns, context)
    copies = F.explode(F.expr(f"array_repeat(1, CAST({WEIGHT} AS int))")).alias("_copy")
    return laid_out.select(*columns_of([*columns, AT, UNTIL]), copies).drop("_copy")


def _stayed(events: DataFrame, keys: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """Each event at its step and all later ones of its key: `columns`, `_weight`, `_at`, `_until`."""
    by_key = Window.partitionBy(*columns_of(keys))
    steps = F.array_sort(F.collect_set(STEP).over(by_key))
    placed = events.withColumn(_STEPS, steps).withColumn(
        _PLACE, F.array_position(_STEPS, F.col(STEP)).cast("int")
    )
    own = F.expr(f"slice({_STEPS}, {_PLACE}, size({_STEPS}) - {_PLACE} + 1)")
    kept = columns_of([*columns, WEIGHT])
    return placed.select(*kept, _STEPS, _PLACE, F.posexplode(own).alias("_more", AT)).select(
        *kept, AT, F.expr(f"get({_STEPS}, {_PLACE} + _more)").alias(UNTIL)
    )


def _netted(
    events: DataFrame, keys: Sequence[str], columns: Sequence[str], context: Context
) -> DataFrame:
    """Each row, netted, at the positions of its key at which it is there: `columns`, `_weight`, `_at`,
    `_until`."""
    numbered = _numbered(events, keys)
    netted = merge_steps(numbered, [*columns, _PLACE, _LAST])
    there = periods(netted, [*columns, _LAST], _PLACE)
    places = F.expr(f"sequence({_PLACE}, coalesce({UNTIL}, {_LAST} + 1) - 1)")
    there = there.select(*columns_of([*columns, WEIGHT]), F.explode(places).alias(_PLACE))
    steps = _steps(numbered, keys)
    steps = keys_apart(steps, keys, _PLACE, AT, UNTIL).withColumnRenamed(_PLACE, "_of")
    if context.is_small:
        steps = F.broadcast(steps)
    at_places = F.expr(" AND ".join([*keys_equal(keys), f"{_PLACE} = _of"]))
    return there.join(steps, at_places, "inner").select(*columns_of([*columns, WEIGHT, AT, UNTIL]))


def changes_at_positions(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """`columns`, `_weight`, `_step`: what is given at each position and taken back at the next. What
    stays is both, at the same step. What was there before the interval has been given."""
    given = f"struct(1L AS {WEIGHT}, {AT} AS {STEP})"
    taken = f"struct(-1L AS {WEIGHT}, {UNTIL} AS {STEP})"
    return rows.select(
        *columns_of(columns),
        F.expr(
            f"inline(CASE WHEN {AT} < 0 AND {UNTIL} IS NULL THEN NULL "
            f"WHEN {AT} < 0 THEN array({taken}) WHEN {UNTIL} IS NULL THEN array({given}) "
            f"ELSE array({given}, {taken}) END)"
        ),
    )


def _numbered(events: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The events with `_place`, the number of the step among those of its key, and `_last`, that of the
    key's last one. Without keys there is one key."""
    by_key = Window.partitionBy(*columns_of(keys))
    place = F.dense_rank().over(by_key.orderBy(STEP))
    return events.withColumn(_PLACE, place).withColumn(_LAST, F.max(_PLACE).over(by_key))


def _steps(numbered: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The steps of the places: the keys, `_place`, `_at`, `_until`."""
    by_key = Window.partitionBy(*columns_of(keys)).orderBy(_PLACE)
    places = numbered.select(*columns_of([*keys, _PLACE, STEP])).distinct()
    return places.withColumn(UNTIL, F.lead(STEP).over(by_key)).withColumnRenamed(STEP, AT)


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
