"""Aggregates that are no sum and no extreme: a median, a list, a mode, a sketch.

Law: the value of a group after step t is Spark's own function of the rows of the group after step t,
in the order of the columns that the function reads. The order matters: with another one a list, a
float's last bit or a sketch could come out in another way, and what is taken back in a later interval
would not be what was given in an earlier one.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lockstep.sql.circuit import Operator, TraceKind, TraceSpec
from lockstep.sql.plans.nodes import Aggregate, AggregateCall
from lockstep_engine.context import Context
from lockstep_engine.deltas import STEP, WEIGHT, columns_of, merge_steps
from lockstep_engine.operators.accumulators import collected_name
from lockstep_engine.operators.partitions import AT, in_order, rows_at_positions

__all__ = ["collected_append", "collected_calls", "collected_per_step", "collected_trace"]


def collected_calls(node: Aggregate) -> list[AggregateCall]:
    """The calls that are computed here."""
    return [call for call in node.aggregates if call.expression is not None]


def collected_trace(operator: Operator) -> TraceSpec | None:
    """The trace of the rows that they read, None where there are no such calls."""
    return next((t for t in operator.traces if t.kind is TraceKind.ROWS), None)


def collected_append(trace: TraceSpec, delta: DataFrame) -> DataFrame:
    """What the interval adds to the trace."""
    return merge_steps(delta, _columns(trace))


def collected_per_step(
    calls: Sequence[AggregateCall],
    trace: TraceSpec,
    delta: DataFrame,
    state: DataFrame | None,
    context: Context,
) -> DataFrame:
    """Keys, `_step`, and each call's value after it: a row per key and step in the delta at which the
    group has rows, and one for the step before the first."""
    keys, columns = trace.key, _columns(trace)
    changes = delta.select(*columns_of([*columns, WEIGHT, STEP]))
    rows = rows_at_positions(changes, state, keys, columns, context)
    ordered = in_order(rows, keys, columns_of(columns), context)
    values = [
        F.expr(call.expression.text).alias(collected_name(call).strip("`"))
        for call in calls
        if call.expression is not None
    ]
    return ordered.groupBy(*columns_of([*keys, AT])).agg(*values).withColumnRenamed(AT, STEP)


def _columns(trace: TraceSpec) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*trace.key, *trace.columns)))
