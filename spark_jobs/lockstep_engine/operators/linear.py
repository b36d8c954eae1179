"""Linear operators: f(a + b) = f(a) + f(b), so f is applied to the delta and nothing is remembered.

It holds because each input row gives its output rows without regard to any other row, and keeps its
weight and its step. An expression that looked at other rows, or at a clock, would break it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from math import gcd

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DatetimeType,
    DecimalType,
    IntegralType,
    StringType,
    StructField,
)

from lockstep.sql.circuit import Operator
from lockstep.sql.plans.nodes import (
    Aggregate,
    Filter,
    Generate,
    Project,
    Scan,
    TimeWindow,
    Values,
    Weigh,
)
from lockstep.sql.reading.intervals import interval_microseconds
from lockstep_engine.context import Context
from lockstep_engine.deltas import STEP, WEIGHT, columns_of, consolidate, quoted, step_before
from lockstep_engine.operators.evaluated import Evaluate, State

__all__ = [
    "add_window",
    "filter_rows",
    "generate",
    "leaf_below",
    "leaves_below",
    "net_by_pane",
    "project",
    "rows_before",
    "union_all",
    "weigh",
]

_LAST = "_last_start"

_FEW_WINDOWS = 2
"""A row in so many windows is not worth netting before: that is an exchange more."""

_PLAIN = (BinaryType, BooleanType, DatetimeType, DecimalType, IntegralType)


def project(node: Project, delta: DataFrame) -> DataFrame:
    """Each output from the input row's columns."""
    outputs = [F.expr(output.expression.text).alias(output.name) for output in node.outputs]
    return delta.select(*outputs, *columns_of([WEIGHT, STEP]))


def filter_rows(node: Filter, delta: DataFrame) -> DataFrame:
    """The rows for which the predicate is true."""
    return delta.where(F.expr(node.predicate.text))


def add_window(node: TimeWindow, delta: DataFrame) -> DataFrame:
    """A row once for every window that its timestamp is in, with the window; a null is in none.

    Windows that overlap are made from the last one. Spark (4.1.3) has an Expand for them, and does not
    find a plan with an Expand among those that are kept, where its source stands in the query twice.
    """
    time, columns = F.col(quoted(node.timestamp)), columns_of(node.input.columns)
    size, slide = (interval_microseconds(text) for text in (node.size, node.slide))
    if size == slide:
        window = F.window(time, node.size).alias(node.name)
        return delta.select(*columns, window, *columns_of([WEIGHT, STEP]))
    last = F.window(time, node.slide).start.alias(_LAST)
    windows = F.array(*(_window(-before, size) for before in range(0, size, slide)))
    rows = delta.select(*columns, last, *columns_of([WEIGHT, STEP])).select(
        *columns, F.explode(windows).alias(node.name), *columns_of([WEIGHT, STEP])
    )
    # The first of them may have ended before the time.
    return rows if size % slide == 0 else rows.where(time < F.col(quoted(node.name)).end)


def _window(start: int, size: int) -> Column:
    """A window that begins so many microseconds after the last one."""
    bounds = (("start", start), ("end", start + size))
    return F.struct(*(F.expr(f"{_LAST} + INTERVAL {at} MICROSECOND").alias(n) for n, at in bounds))


def net_by_pane(node: TimeWindow, delta: DataFrame) -> DataFrame:
    """One row for all that differ only in the time, and are in the same windows by it. The delta as it
    is, where rows are in few windows, or where GROUP BY takes values for equal that differ."""
    size, slide = (interval_microseconds(text) for text in (node.size, node.slide))
    if size <= _FEW_WINDOWS * slide or not all(map(_is_plain, delta.schema.fields)):
        return delta
    # Every window begins and ends at a multiple of it.
    pane = F.window(F.col(quoted(node.timestamp)), f"{gcd(size, slide)} microseconds").start
    return consolidate(delta.withColumn(node.timestamp, pane), node.input.columns)


def _is_plain(column: StructField) -> bool:
    """Whether values that GROUP BY takes for equal are the same: zeros of doubles and texts with a
    collation are not."""
    type_ = column.dataType
    return isinstance(type_, _PLAIN) or type_ == StringType()


def generate(node: Generate, delta: DataFrame) -> DataFrame:
    """A row once for each row that the generator makes of it."""
    made = F.expr(node.generator.text).alias(*node.names)
    return delta.select(*columns_of(node.input.columns), made, *columns_of([WEIGHT, STEP])).select(
        *columns_of([*node.columns, WEIGHT, STEP])
    )


def weigh(node: Weigh, delta: DataFrame) -> DataFrame:
    """Each row as often as the node says; what is there no times is left out."""
    weighed = F.expr(f"CAST({node.weight.text} AS bigint) * {WEIGHT}").alias(WEIGHT)
    rows = delta.select(*columns_of(node.columns), weighed, *columns_of([STEP]))
    return rows if not node.weight.references else rows.where(f"{WEIGHT} <> 0")


def union_all(deltas: tuple[DataFrame, ...]) -> DataFrame:
    """All rows of all inputs, by position; Spark widens types that differ."""
    return reduce(DataFrame.union, deltas)


def leaf_below(
    operators: Mapping[int, Operator] | Sequence[Operator], ref: int
) -> tuple[Operator, Mapping[str, str]] | None:
    """The scan, the aggregate or the written rows that a relation is made of, one by one, and of nothing
    else, and which of the relation's columns are columns of that; None where there is more to it."""
    operator = operators[ref]
    match operator.node:
        case Scan() | Aggregate() | Values() as node:
            return operator, {name: name for name in node.columns}
        case Filter() | Weigh():
            return leaf_below(operators, operator.inputs[0])
        case Project() as node:
            below = leaf_below(operators, operator.inputs[0])
            if below is None:
                return None
            leaf, columns = below
            read = {o.name: o.expression for o in node.outputs if o.expression.is_column}
            found = {name: columns.get(one.references[0]) for name, one in read.items()}
            return leaf, {name: column for name, column in found.items() if column is not None}
        case _:
            return None


def leaves_below(
    operators: Mapping[int, Operator] | Sequence[Operator], ref: int
) -> Iterator[Operator]:
    """What a relation's rows from before are read from: scans, values and aggregates, one as often as it
    is read."""
    operator = operators[ref]
    if not operator.inputs or isinstance(operator.node, Aggregate):
        yield operator
        return
    for below in operator.inputs:
        yield from leaves_below(operators, below)


def rows_before(
    operators: Mapping[int, Operator] | Sequence[Operator],
    ref: int,
    leaf: Callable[[Operator], DataFrame | None],
    evaluate: Evaluate,
    context: Context,
) -> DataFrame | None:
    """The rows that a relation had before the interval, with their `_weight`, from those of its leaves;
    None where one of these had none. What is linear gives for rows what it gives for changes."""
    operator = operators[ref]
    if not operator.inputs or isinstance(operator.node, Aggregate):
        return leaf(operator)
    found = [rows_before(operators, one, leaf, evaluate, context) for one in operator.inputs]
    inputs = tuple(rows.select("*", step_before()) for rows in found if rows is not None)
    if len(inputs) < len(found):
        return None
    return evaluate(operator, inputs, State(), context).delta.drop(STEP)
