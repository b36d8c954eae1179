"""Sessions of rows that stay, put together of pieces: what changes is worked on, and no row that was
there before.

A piece is what is known of some rows of a key that follow each other within the gap: the first and the
last time, and accumulators. Pieces within the gap of one another are one piece, with merged
accumulators, so a session is the same in whatever order its rows came. The rows of a step become
pieces first. These, and the sessions that were there beside them, are laid out at every position
(see `partitions`) and put together there; a session stands until the next position of its key.

The trace has the sessions, with weights. One is known by its key, its bounds and the number of its
rows: as rows stay, a session that changes has more of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from lockstep.sql.circuit import Operator
from lockstep.sql.plans.lifetimes import SESSION_LAST
from lockstep.sql.plans.nodes import SessionGroups
from lockstep_engine.computed import computed
from lockstep_engine.context import Context
from lockstep_engine.deltas import (
    STEP,
    WEIGHT,
    columns_of,
    consolidate,
    keys_apart,
    keys_equal,
    quoted,
    step_before,
)
from lockstep_engine.operators.accumulators import (
    ROWS,
    Accumulator,
    accumulators_of,
    summed,
    types_of,
    value_of,
)
from lockstep_engine.operators.evaluated import Evaluation, State
from lockstep_engine.operators.partitions import (
    AT,
    UNTIL,
    changes_at_positions,
    rows_at_positions,
)

__all__ = ["SESSION_BOUNDS", "netted_sessions", "sessions"]

SESSION_BOUNDS = _FIRST, _LAST = "_session_first", SESSION_LAST
_ONE = (_FIRST, _LAST, ROWS)
"""With the key, what a session is known by."""


def sessions(
    operator: Operator, node: SessionGroups, delta: DataFrame, state: State, context: Context
) -> Evaluation:
    """The change of the groups, consolidated, and of the sessions for the trace."""
    (trace,) = operator.traces
    types = types_of(operator, summed(node), delta, context)
    accumulators = accumulators_of(node, (), types)
    names = [*node.by, _FIRST, _LAST, *(one.name for one in accumulators)]
    pieces, kept = _held(_pieces(node, delta, accumulators, context), context)
    events = pieces.select(*columns_of([*names, STEP]), F.lit(1).alias(WEIGHT))
    there = state.traces.get(trace.table)
    if there is not None:
        beside = netted_sessions(_beside(there, pieces, node, context), node.by)
        events = events.unionByName(beside.select(*columns_of([*names, WEIGHT]), step_before()))
    rows = rows_at_positions(events, node.by, names, context, stay=True)
    rows = _put_together(rows, [*node.by, AT, UNTIL], node.gap, accumulators)
    changes, also = _held(_netted(changes_at_positions(rows, names), [*node.by, STEP]), context)
    shown = changes.select(*_shown(node, types), *columns_of([WEIGHT, STEP]))
    if all(call.argument is not None for call in node.aggregates):
        # Nothing shows by itself that there are more rows.
        shown = consolidate(shown, node.columns)
    append = netted_sessions(changes.drop(STEP), node.by)
    return Evaluation(shown, {trace.table: append}, (*kept, *also))


def netted_sessions(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The sessions that are there, in the columns of the trace."""
    return _netted(rows, keys).select(*columns_of(rows.columns))


def _held(rows: DataFrame, context: Context) -> tuple[DataFrame, tuple[DataFrame, ...]]:
    """The rows, to be computed once, and what is to be released."""
    if context.is_small:
        return computed(rows, at_once=False), ()
    kept = rows.persist()
    return kept, (kept,)


def _pieces(
    node: SessionGroups, delta: DataFrame, accumulators: Sequence[Accumulator], context: Context
) -> DataFrame:
    """The rows of each step put together: the keys, `_step`, bounds and accumulators."""
    if node.by and not context.is_small:
        # By the keys alone, as what follows needs them: by key and step they would be sent twice.
        delta = delta.repartition(context.partitions, *columns_of(node.by))
    time = F.col(quoted(node.time))
    lifted = delta.select(
        *columns_of([*node.by, STEP]),
        time.alias(_FIRST),
        time.alias(_LAST),
        *(F.expr(one.lift).alias(one.name) for one in accumulators),
    )
    return _put_together(lifted, [*node.by, STEP], node.gap, accumulators)


def _put_together(
    pieces: DataFrame, by: Sequence[str], gap: str, accumulators: Sequence[Accumulator]
) -> DataFrame:
    """Pieces that are within the gap of one another as one: `by`, bounds, accumulators."""
    ordered = Window.partitionBy(*columns_of(by)).orderBy(_FIRST)
    to_here = ordered.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    reached = F.max(_LAST).over(ordered.rowsBetween(Window.unboundedPreceding, -1))
    begins = F.expr(f"CASE WHEN _reached + INTERVAL '{gap}' >= {_FIRST} THEN 0 ELSE 1 END")
    numbered = (
        pieces.withColumn("_reached", reached)
        .withColumn("_begins", begins)
        .withColumn("_number", F.sum("_begins").over(to_here))
    )
    merges = (F.expr(f"{one.merge}({one.name})").alias(one.name) for one in accumulators)
    bounds = F.min(_FIRST).alias(_FIRST), F.max(_LAST).alias(_LAST)
    return numbered.groupBy(*columns_of(by), "_number").agg(*bounds, *merges).drop("_number")


def _beside(
    there: DataFrame, pieces: DataFrame, node: SessionGroups, context: Context
) -> DataFrame:
    """The sessions of a trace that a key's pieces can touch: no more than the gap before the first of
    them, or behind the last."""
    bounds = F.min(_FIRST).alias("_from"), F.max(_LAST).alias("_to")
    near = pieces.groupBy(*columns_of(node.by)).agg(*bounds)
    near = keys_apart(near, node.by, "_from", "_to")
    gap = f"INTERVAL '{node.gap}'"
    tests = [*keys_equal(node.by), f"{_LAST} + {gap} >= _from", f"{_FIRST} <= _to + {gap}"]
    few = F.broadcast(near) if context.is_small or not node.by else near
    return there.join(few, F.expr(" AND ".join(tests)), "left_semi")


def _netted(rows: DataFrame, by: Sequence[str]) -> DataFrame:
    """Sessions with their weights added up, none 0."""
    known = [*by, *_ONE]
    others = [name for name in rows.columns if name not in (*known, WEIGHT)]
    values = (F.first(quoted(name)).alias(name) for name in others)
    netted = rows.groupBy(*columns_of(known)).agg(F.sum(WEIGHT).alias(WEIGHT), *values)
    return netted.where(f"{WEIGHT} <> 0")


def _shown(node: SessionGroups, types: Mapping[str, DataType]) -> list[Column]:
    """The groups' columns."""
    session = f"named_struct('start', {_FIRST}, 'end', {_LAST} + INTERVAL '{node.gap}')"
    keys = (F.expr(session if key == node.window else quoted(key)).alias(key) for key in node.keys)
    calls = (F.expr(value_of(call, node, types)).alias(call.name) for call in node.aggregates)
    return [*keys, *calls]
