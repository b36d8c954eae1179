"""GROUP BY: the output row of a group after step t is a function of its totals after step t.

Rows of the delta become increments, merged by (key, step); totals run over the steps of a key,
seeded with the state of just those keys; where the output row changed, the old one goes and the new
one comes. A group is there while its row count is above 0, kept apart from every count of a column:
without it a group of nulls, or one whose values cancel, could not be told from one that is gone.
Without keys there is one group, which is always there, from the first step on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from lockstep.sql.circuit import Operator, TraceKind, TraceSpec
from lockstep.sql.plans.nodes import Aggregate, AggregateFunction
from lockstep_engine.context import Context
from lockstep_engine.deltas import (
    FIRST,
    STEP,
    WEIGHT,
    columns_of,
    merge_steps,
    only_keys,
    quoted,
    step_before,
    union,
)
from lockstep_engine.operators.accumulators import (
    ROWS,
    Accumulator,
    accumulators_of,
    collected_name,
    declared_types,
    is_exact,
    places_of,
    summed,
    types_of,
    value_of,
)
from lockstep_engine.operators.collected import collected_per_step
from lockstep_engine.operators.evaluated import Evaluation, State
from lockstep_engine.operators.exact_sums import (
    PLACE,
    Comoment,
    ExactSum,
    bins_append,
    sums_per_step,
)
from lockstep_engine.operators.extremes import Extremes, extremes_per_step, values_append
from lockstep_engine.operators.row_changes import row_changes

__all__ = ["aggregate", "exact_sums_of", "extremes_of", "groups_before", "value_traces"]


def aggregate(
    operator: Operator, node: Aggregate, delta: DataFrame, state: State, context: Context
) -> Evaluation:
    """The aggregate's delta, consolidated, and what the interval adds to its traces.

    A min or max whose argument has a trace of values is taken to have input that retracts.
    """
    by_value = value_traces(operator)
    types = _types(operator, node, delta, by_value.keys(), context)
    accumulators = accumulators_of(node, by_value.keys(), types)
    lifted = delta.select(
        *columns_of([*node.keys, STEP]), *(F.expr(a.lift).alias(a.name) for a in accumulators)
    )
    kept: tuple[DataFrame, ...] = ()
    if not context.is_small:
        # The trace and the delta start from the same rows. Of a small change Spark has merged them
        # twice before it has kept them.
        lifted = _merged(lifted, [*node.keys, STEP], accumulators).persist()
        kept = (lifted,)
    table = operator.accumulators.table
    trace = state.traces.get(table)
    appends = {table: _merged(lifted, node.keys, accumulators)}
    sums = exact_sums_of(node, types)
    parts = [lifted, *_seeds(node, accumulators, trace, bool(sums), lifted, context)]
    levels: list[str] = []
    key_fields = [StructField(key, types[key]) for key in node.keys if key in types]
    if sums:
        parts.append(sums_per_step(sums, key_fields, delta, trace, context))
        appends[table] = union([appends[table], bins_append(sums, key_fields, delta)])
        levels.extend(exact.name for exact in sums)
    for argument, spec in by_value.items():
        appends[spec.table] = values_append(delta, node.keys, argument)
    extremes = extremes_of(node, by_value, types)
    if extremes:
        parts.append(extremes_per_step(extremes, key_fields, delta, state.traces, context))
        levels.extend(name for one in extremes for name in one.names)
    if node.collected:
        stay = operator.inputs_stay
        parts.append(collected_per_step(node, delta, state.input(0), context, stay, types))
        levels.extend(map(collected_name, node.collected))
    for rows in operator.rows:
        if rows is not None:
            appends[rows.table] = merge_steps(delta, rows.row)
    per_step = _merged(union(parts), [*node.keys, STEP], accumulators, levels)
    running = _running(node, per_step, accumulators, levels)
    values = [F.expr(value_of(c, node, types)).alias(c.name) for c in node.aggregates]
    return Evaluation(_changes(node, running, values), appends, kept)


def value_traces(operator: Operator) -> Mapping[str, TraceSpec]:
    """The traces of values by argument."""
    return {t.columns[0]: t for t in operator.traces if t.kind is TraceKind.VALUES and t.columns}


def _types(
    operator: Operator,
    node: Aggregate,
    delta: DataFrame,
    by_value: Collection[str],
    context: Context,
) -> Mapping[str, DataType]:
    """The types of all columns that count, if any does: what is summed, what a kernel returns,
    by what is collected."""
    is_summed = summed(node) or summed(node, AggregateFunction.COMOMENT)
    if not by_value and not is_summed and not node.collected:
        return {}
    arguments = (call.argument for call in node.aggregates if call.argument is not None)
    return types_of(operator, (*node.keys, *arguments), delta, context)


def exact_sums_of(node: Aggregate, types: Mapping[str, DataType]) -> list[ExactSum | Comoment]:
    """The floating point arguments of sum and avg, and what deviations are multiplied of."""
    found: list[ExactSum | Comoment] = []
    added, deviating = summed(node), summed(node, AggregateFunction.COMOMENT)
    for argument, place in places_of(node.aggregates).items():
        kind = types.get(argument)
        if argument in added and kind is not None and is_exact(kind):
            found.append(ExactSum(argument, place))
        if argument in deviating:
            found.append(Comoment(argument, place, isinstance(kind, StructType)))
    return found


def extremes_of(
    node: Aggregate, by_value: Mapping[str, TraceSpec], types: Mapping[str, DataType]
) -> list[Extremes]:
    """The arguments of min and max that need their values; a key is its own least and greatest."""
    found = []
    for argument, place in places_of(node.aggregates).items():
        if argument not in by_value or argument in node.keys:
            continue
        asked = {call.function for call in node.aggregates if call.argument == argument}
        least, greatest = (
            f"_{function.value}_{place}" if function in asked else None
            for function in (AggregateFunction.MIN, AggregateFunction.MAX)
        )
        field = StructField(argument, types[argument])
        found.append(Extremes(field, place, by_value[argument].table, least, greatest))
    return found


def groups_before(operator: Operator, trace: DataFrame) -> DataFrame:
    """The rows of an aggregate whose groups have these rows in its trace of accumulators, and `_weight`;
    of an aggregate of which `summed` says what it adds up. Lazy."""
    node = operator.node
    assert isinstance(node, Aggregate), "of which the trace is"
    types = declared_types(operator)
    accumulators = accumulators_of(node, (), types)
    merged = _merged(trace, node.keys, accumulators)
    if node.keys:
        merged = merged.where(f"{ROWS} > 0")
    else:
        # One row comes of no rows, too: that of a group which has never been told.
        merged = merged.join(trace.limit(1).select(F.lit(True).alias("_there")), how="cross")
    values = (F.expr(value_of(call, node, types)).alias(call.name) for call in node.aggregates)
    weight = F.lit(1).cast("bigint").alias(WEIGHT)
    return merged.select(*columns_of(node.keys), *values, weight)


def _merged(
    rows: DataFrame,
    by: Sequence[str],
    accumulators: tuple[Accumulator, ...],
    levels: Sequence[str] = (),
) -> DataFrame:
    """One row per `by`. `levels` are values after a step, not increments: at most one a step. Spark
    orders no maps, so it is not the greatest, but the first that is there."""
    merges = [F.expr(f"{a.merge}({a.name})").alias(a.name) for a in accumulators]
    values = [F.first(quoted(name), ignorenulls=True).alias(name) for name in levels]
    return rows.groupBy(*columns_of(by)).agg(*merges, *values)


def _seeds(
    node: Aggregate,
    accumulators: tuple[Accumulator, ...],
    trace: DataFrame | None,
    has_bins: bool,
    changed: DataFrame,
    context: Context,
) -> list[DataFrame]:
    """What was there before: the state of the changed keys, as increments of the step before."""
    seeds = []
    if trace is not None:
        if has_bins:
            trace = trace.where(f"{PLACE} IS NULL")
        names = [a.name for a in accumulators]
        seeds.append(
            only_keys(trace, node.keys, changed, context).select(
                *columns_of(node.keys), step_before(), *columns_of(names)
            )
        )
    if not node.keys:
        # An increment of nothing makes the group's row appear at the first step if it never has. Where
        # it has, such a step would have no sums and no extremes: these are told of steps that change.
        first = F.lit(FIRST).cast("bigint").alias(STEP)
        nothing = context.spark.range(1).select(first, F.lit(0).cast("bigint").alias(ROWS))
        if trace is not None:
            there = trace.limit(1).select(F.lit(True).alias("_there"))
            nothing = nothing.join(there, F.lit(True), "left_anti")
        seeds.append(nothing)
    return seeds


def _running(
    node: Aggregate,
    per_step: DataFrame,
    accumulators: tuple[Accumulator, ...],
    levels: Sequence[str],
) -> DataFrame:
    """From increments per (key, step) to totals after each step."""
    to_now = _by_key(node).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return per_step.select(
        *columns_of([*node.keys, STEP]),
        *columns_of(levels),
        *(F.expr(f"{a.merge}({a.name})").over(to_now).alias(a.name) for a in accumulators),
    )


def _by_key(node: Aggregate) -> WindowSpec:
    return Window.partitionBy(*columns_of(node.keys)).orderBy(STEP)


def _changes(node: Aggregate, running: DataFrame, values: list[Column]) -> DataFrame:
    """From totals after each step to -old +new where the output row changed."""
    exists = F.expr(f"{ROWS} > 0") if node.keys else F.lit(True)
    # A struct also without aggregates (SELECT DISTINCT): then it only says that the row is there.
    after = F.when(exists, F.struct(F.lit(True).alias("_there"), *values))
    states = running.select(*columns_of([*node.keys, STEP]), after.alias("_after"))
    return row_changes(states, node.keys, [call.name for call in node.aggregates])
