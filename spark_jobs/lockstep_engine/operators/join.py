"""Inner join is bilinear: (a + Δa) ⋈ (b + Δb) = a⋈b + Δa⋈(b + Δb) + a⋈Δb.

A pair's weight is the product of the weights, its step the later of the two: it is there from when
both are. Both terms are needed: without a⋈Δb a late right row never meets the left rows of earlier
intervals; and Δa must meet Δb in one of the terms only, else rows that came together count twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lockstep.sql.circuit import Operator, TraceSpec
from lockstep.sql.plans.nodes import Aggregate, Join, Node, Weigh, Window
from lockstep_engine.context import Context
from lockstep_engine.deltas import STEP, WEIGHT, columns_of, merge_steps, quoted, step_before
from lockstep_engine.operators.evaluated import Deltas, Evaluation, State

__all__ = ["join"]


def join(
    operator: Operator,
    node: Join,
    inputs: Deltas,
    state: State,
    context: Context,
) -> Evaluation:
    """The join's delta, and both inputs as appends to their traces.

    The operator's traces are those of the left and of the right input, in this order; where they
    are one table (both sides are the same rows), it is given once or twice.
    """
    traces = operator.traces
    if len(traces) not in (1, 2):
        raise ValueError(f"a join has a trace for each side, not {len(traces)}")
    specs = (traces[0], traces[-1])
    sides = (node.left.columns, node.right.columns)
    orders = tuple(
        _trace_order(columns, keys)
        for columns, keys in zip(sides, (node.left_keys, node.right_keys), strict=True)
    )
    before = [
        _as_side(state.get(spec.table), spec, order)
        for spec, order in zip(specs, orders, strict=True)
    ]
    left, right = (_renamed(delta, side) for side, delta in zip("lr", inputs, strict=True))
    old_left, old_right = (_renamed(rows, side) for side, rows in zip("lr", before, strict=True))
    whole_right = [rows for rows in (right, old_right) if rows is not None]
    terms = []
    if left is not None and whole_right:
        terms.append(
            _pairs(node, _small(left, context), reduce(DataFrame.unionByName, whole_right))
        )
    if old_left is not None and right is not None:
        terms.append(_pairs(node, old_left, _small(right, context)))
    if not terms:
        raise ValueError("an empty delta on one side needs the state of both")
    appends: dict[str, DataFrame] = {}
    for spec, order, delta, below in zip(specs, orders, inputs, node.inputs, strict=True):
        if delta is None:
            continue
        retracts = not operator.append_only and _may_retract(below)
        appends.setdefault(spec.table, _append(spec, order, delta, retracts))
    return Evaluation(reduce(DataFrame.unionByName, terms), appends)


def _trace_order(columns: tuple[str, ...], keys: tuple[str, ...]) -> tuple[str, ...]:
    """A side's columns as its trace has them: keys first, each once, then the others."""
    return tuple(dict.fromkeys((*keys, *columns)))


def _names(spec: TraceSpec, order: tuple[str, ...]) -> Mapping[str, str]:
    """A side's columns to those of its trace, which two sides may share under different names."""
    own = tuple(dict.fromkeys((*spec.key, *spec.columns)))
    if set(own) == set(order):
        return {name: name for name in order}
    if len(own) != len(order):
        raise ValueError(f"trace {spec.table} has columns {own}, its join needs {order}")
    return dict(zip(order, own, strict=True))


def _as_side(rows: DataFrame | None, spec: TraceSpec, order: tuple[str, ...]) -> DataFrame | None:
    """A trace's rows as a delta of its side that was there before the first step."""
    if rows is None:
        return None
    names = _names(spec, order)
    columns = [F.col(quoted(names[name])).alias(name) for name in order]
    return rows.select(*columns, *columns_of([WEIGHT]), step_before())


def _append(spec: TraceSpec, order: tuple[str, ...], delta: DataFrame, retracts: bool) -> DataFrame:
    """A delta as rows for its trace; what came and went within the interval leaves nothing."""
    names = _names(spec, order)
    rows = delta.select(
        *(F.col(quoted(name)).alias(names[name]) for name in order), *columns_of([WEIGHT])
    )
    return merge_steps(rows, [names[name] for name in order]) if retracts else rows


def _may_retract(node: Node) -> bool:
    """A guess that decides cost only: an aggregate's row goes when its group changes."""
    if isinstance(node, Weigh | Window) or (isinstance(node, Aggregate) and node.aggregates):
        return True
    return any(_may_retract(below) for below in node.inputs)


def _renamed(delta: DataFrame | None, side: str) -> DataFrame | None:
    if delta is None:
        return None
    return delta.withColumnsRenamed({WEIGHT: f"_{side}_weight", STEP: f"_{side}_step"})


def _small(delta: DataFrame, context: Context) -> DataFrame:
    return F.broadcast(delta) if context.is_small else delta


def _pairs(node: Join, left: DataFrame, right: DataFrame) -> DataFrame:
    terms = [
        f"{quoted(left_key)} {'<=>' if null_safe else '='} {quoted(right_key)}"
        for left_key, right_key, null_safe in node.keys
    ]
    if node.condition is not None:
        terms.append(f"({node.condition.text})")
    matched = (
        left.join(right, F.expr(" AND ".join(terms)), "inner") if terms else left.crossJoin(right)
    )
    return matched.select(
        *columns_of(node.columns),
        F.expr("_l_weight * _r_weight").alias(WEIGHT),
        F.expr("greatest(_l_step, _r_step)").alias(STEP),
    )
