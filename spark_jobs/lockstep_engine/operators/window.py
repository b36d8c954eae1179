"""Window functions: the partitions that changed, computed anew by Spark's own functions.

Law: with P the partitions that the delta touches, the output changes in P only, and there by what
the functions give after each step less what they gave after the one before. A row whose values stay
cancels. Ties in a call's order are broken by all columns, else the same rows could give another
number in another interval, and what is taken back would not be what was given.

Where only the first rows are asked for, and rows stay, what is behind them stays behind: the trace has
no more than the first rows, and of a step's others none is looked at again. Where rows can be taken
back, those can come forward that have fewer before them than are taken back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as Rows
from pyspark.sql import functions as F

from lockstep.sql.circuit import Operator, TraceKind
from lockstep.sql.plans.nodes import Expression, SortKey, Window, WindowCall
from lockstep_engine.context import Context
from lockstep_engine.deltas import (
    STEP,
    WEIGHT,
    columns_of,
    consolidate,
    merge_steps,
    quoted,
)
from lockstep_engine.operators.evaluated import Evaluation, State
from lockstep_engine.operators.partitions import (
    AT,
    UNTIL,
    changes_at_positions,
    events_of,
    in_order,
    rows_at_positions,
)

__all__ = ["first_before", "is_limit", "numbers_rows", "window"]


def window(
    operator: Operator, node: Window, delta: DataFrame, state: State, context: Context
) -> Evaluation:
    """The change of the rows with their values, consolidated, and the input for the trace."""
    columns = node.input.columns
    events = events_of(delta, state.input(0), node.partition, columns, context)
    if node.first is not None and operator.inputs_stay:
        if node.partition:
            # By the keys alone, as what follows needs them: by key and step they would be sent twice.
            events = events.repartition(context.partitions, *columns_of(node.partition))
        events = _first_of_each_step(events, node, node.first)
        if node.first == 1 and numbers_rows(node):
            changes = _changes_of_first(events, node)
            return _evaluation(operator, changes, delta)
    rows = rows_at_positions(events, node.partition, columns, context, operator.inputs_stay)
    pending, order = list(node.calls), None
    while pending:
        if pending[0].order != order:
            order = pending[0].order
            rows = _in_order_of(rows, node, order, context)
        unknown = {call.name for call in pending}
        ready = [c for c in pending if c.order == order and unknown.isdisjoint(c.references)]
        rows = rows.select("*", *(_value(call, node) for call in ready))
        pending = [call for call in pending if call not in ready]
    if node.first is not None:
        rows = rows.where(F.col(node.calls[0].name) <= node.first)
    changes = consolidate(changes_at_positions(rows, node.columns), node.columns)
    return _evaluation(operator, changes, delta)


def _evaluation(operator: Operator, changes: DataFrame, delta: DataFrame) -> Evaluation:
    """The trace of first rows is of what is emitted, any other of what comes in."""
    first = {t.table: t.row for t in operator.traces if t.kind is TraceKind.FIRST}
    others = (t for t in operator.traces if t.table not in first)
    of_input = {trace.table: merge_steps(delta, trace.row) for trace in others}
    return Evaluation(changes, of_input, integrals=first)


def is_limit(node: Window) -> bool:
    """Whether it numbers all rows, as far as a bound: a LIMIT."""
    return node.first is not None and not node.partition and numbers_rows(node)


def numbers_rows(node: Window) -> bool:
    """Whether its only function is row_number: a bound on it is one on the number of rows."""
    return [call.function.text.lower() for call in node.calls] == ["row_number()"]


def first_before(node: Window, rows: DataFrame, delta: DataFrame, size: int) -> DataFrame:
    """Of the rows before an interval those that a LIMIT can give at one of its steps, netted; all of
    them where that is as many. There are at most `size`.

    A row with the bound's number of rows before it, and as many more as the interval takes back, has
    enough of them before it at every step. How many it takes back is counted now.
    """
    assert node.first is not None, "it is a limit"
    [taken] = delta.where(f"{WEIGHT} < 0").agg(F.sum(WEIGHT)).collect()
    wanted = node.first - (taken[0] or 0)
    if wanted >= size:
        return rows
    columns = columns_of(node.input.columns)
    [call] = node.calls
    ordered = _with_order(merge_steps(rows, node.input.columns), call.order)
    first = ordered.orderBy(*_sorting(call.order), *columns).limit(wanted)
    return first.select(*columns, WEIGHT)


def _first_of_each_step(events: DataFrame, node: Window, first: int) -> DataFrame:
    """Without rows that others of the same step leave behind, which no step gives, as rows stay. What
    is there several times counts once: too many may be left, and never too few.

    What the trace has taken back is behind all that it still has, but for copies of its last row: of
    equal rows those that are taken back come last, so that they take the place of none."""
    [call] = node.calls
    rows = _with_order(events, call.order)
    ties = [*columns_of(node.input.columns), F.col(WEIGHT).desc()] if numbers_rows(node) else []
    within = Rows.partitionBy(*columns_of([*node.partition, STEP]))
    rank = F.expr(call.function.text).over(within.orderBy(*_sorting(call.order), *ties))
    return rows.withColumn("_rank", rank).where(f"_rank <= {first}").select(*events.columns)


def _changes_of_first(events: DataFrame, node: Window) -> DataFrame:
    """The change of the one row of each partition that is first, from those that are first of their
    steps, consolidated. Rows stay, so one is first from its step on until one comes that is before it,
    and need not be laid out at every step."""
    [call] = node.calls
    by_key = Rows.partitionBy(*columns_of(node.partition))
    # Of equal rows the one that came first stays.
    overall = by_key.orderBy(*_sorting(call.order), *columns_of(node.input.columns), STEP)
    by_step = by_key.orderBy(STEP)
    before = F.min("_rank").over(by_step.rowsBetween(Rows.unboundedPreceding, -1))
    rows = _with_order(events, call.order).withColumn("_rank", F.row_number().over(overall))
    rows = rows.withColumn("_before", before).where("_before IS NULL OR _rank < _before")
    rows = rows.withColumn(UNTIL, F.lead(STEP).over(by_step)).withColumnRenamed(STEP, AT)
    first = rows.select(*columns_of([*node.input.columns, AT, UNTIL]), F.lit(1).alias(call.name))
    return changes_at_positions(first, node.columns)


def _order_names(order: Sequence[SortKey]) -> list[str]:
    return [f"_order_{place}" for place in range(len(order))]


def _in_order_of(
    rows: DataFrame, node: Window, order: Sequence[SortKey], context: Context
) -> DataFrame:
    """The rows of each partition and position together, in this order, then in that of all columns.

    What is ordered by is a column first: only then does Spark see that rows are in order already,
    and leaves ties as they are.
    """
    by = [*_sorting(order), *columns_of(node.input.columns)]
    return in_order(_with_order(rows, order), node.partition, by, context)


def _with_order(rows: DataFrame, order: Sequence[SortKey]) -> DataFrame:
    """With the columns to order by in the place of those that are there."""
    return rows.select(
        *columns_of(name for name in rows.columns if not name.startswith("_order_")),
        *(
            F.expr(key.expression.text).alias(name)
            for key, name in zip(order, _order_names(order), strict=True)
        ),
    )


def _sorting(order: Sequence[SortKey]) -> list[Column]:
    names = _order_names(order)
    return [_sorted(F.col(name), key) for name, key in zip(names, order, strict=True)]


def _value(call: WindowCall, node: Window) -> Column:
    """The column of a call, over rows that are in its order."""
    over = f"PARTITION BY {', '.join([*map(quoted, node.partition), AT])}"
    keys = [
        replace(key, expression=Expression.column(name)).text
        for name, key in zip(_order_names(call.order), call.order, strict=True)
    ]
    order = f"ORDER BY {', '.join(keys)}" if keys else ""
    return F.expr(f"{call.function.text} OVER ({over} {order} {call.frame})").alias(call.name)


def _sorted(column: Column, key: SortKey) -> Column:
    match key.descending, key.nulls_first:
        case False, True:
            return column.asc_nulls_first()
        case False, False:
            return column.asc_nulls_last()
        case True, True:
            return column.desc_nulls_first()
        case _:
            return column.desc_nulls_last()
