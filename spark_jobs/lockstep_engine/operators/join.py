"""Inner joins are linear in each input: with S the rows before an interval and Δ its changes,

    Δ(a ⋈ b ⋈ c) = Δa ⋈ S_b ⋈ S_c + (S_a + Δa) ⋈ Δb ⋈ S_c + (S_a + Δa) ⋈ (S_b + Δb) ⋈ Δc

A combination's weight is the product of the weights, its step the latest: it is there from when all
are. In the term of an input, those before it stand with their changes and those after it without:
otherwise rows that came together would be counted more than once, or not at all. An input without a
change stands alike in all terms, so it is met by their union. No result of a part of the join is
looked up, so none is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lockstep.sql.circuit import Operator, TraceSpec
from lockstep.sql.plans.multiway import Hop, Routes, path, routes
from lockstep.sql.plans.nodes import Aggregate, MultiwayJoin, Node, Temporal, Weigh, Window
from lockstep_engine.context import Context
from lockstep_engine.deltas import STEP, WEIGHT, columns_of, merge_steps, step_before
from lockstep_engine.operators.evaluated import Deltas, Evaluation, State

__all__ = ["join", "may_retract"]


def join(
    operator: Operator, node: MultiwayJoin, inputs: Deltas, state: State, context: Context
) -> Evaluation:
    """The join's delta, and what its inputs add to their traces."""
    appends: dict[str, DataFrame] = {}
    for trace, delta, below in zip(operator.rows, inputs, node.inputs, strict=True):
        if trace is not None and delta is not None:
            retracts = not operator.append_only and may_retract(below)
            appends.setdefault(trace.table, _append(trace, delta, retracts))
    return Evaluation(_delta(node, inputs, state, context), appends)


def _delta(node: MultiwayJoin, inputs: Deltas, state: State, context: Context) -> DataFrame:
    """The sum of the terms of the inputs that change."""
    found = enumerate(map(state.input, range(len(inputs))))
    before = {n: rows.select("*", step_before()) for n, rows in found if rows is not None}
    changes = {n: delta for n, delta in enumerate(inputs) if delta is not None}
    if context.is_small:
        ways = routes(node, list(changes))
    else:
        # What is large is joined as people wrote it, which is what Spark would do.
        ways = Routes(dict.fromkeys(changes, path(node, 0)), ())
    terms = []
    for place, hops in ways.meetings.items():
        after = {
            n: before[n].unionByName(delta) if n in before else delta
            for n, delta in changes.items()
            if n < place
        }
        sides = {**before, **after, place: changes[place]}
        if all(hop.input in sides for hop in (*hops, *ways.onward)):
            start = _filtered(_side(sides, hops[0]), hops[0])
            terms.append(_joined(start, hops[1:], sides, context))
    if not terms:
        raise ValueError("where no input has rows before the interval, all have a change in it")
    combinations = reduce(DataFrame.unionByName, terms)
    return _weighted(node, _joined(combinations, ways.onward, before, context))


def _joined(
    joined: DataFrame, hops: Iterable[Hop], sides: Mapping[int, DataFrame], context: Context
) -> DataFrame:
    """The rows with those that they meet on the way."""
    for hop in hops:
        # A change is small, and so is what it meets: it goes to where the rows lie.
        few = F.broadcast(joined) if context.is_small else joined
        more = _side(sides, hop)
        if hop.equalities:
            on = [e.text for e in hop.equalities] + [f"({c.text})" for c in hop.conditions]
            joined = few.join(more, F.expr(" AND ".join(on)), "inner")
        else:
            joined = _filtered(few.crossJoin(more), hop)
    return joined


def _side(sides: Mapping[int, DataFrame], hop: Hop) -> DataFrame:
    """The rows of a hop's input, whose weight and step have its number."""
    names = {WEIGHT: f"{WEIGHT}_{hop.input}", STEP: f"{STEP}_{hop.input}"}
    return sides[hop.input].withColumnsRenamed(names)


def _filtered(rows: DataFrame, hop: Hop) -> DataFrame:
    return reduce(lambda some, one: some.where(one.text), hop.conditions, rows)


def _weighted(node: MultiwayJoin, joined: DataFrame) -> DataFrame:
    """A combination with its weight and the step from which all of it is there."""
    places = range(len(node.inputs))
    return joined.select(
        *columns_of(node.columns),
        F.expr(" * ".join(f"{WEIGHT}_{place}" for place in places)).alias(WEIGHT),
        F.expr(f"greatest({', '.join(f'{STEP}_{place}' for place in places)})").alias(STEP),
    )


def _append(trace: TraceSpec, delta: DataFrame, retracts: bool) -> DataFrame:
    """A delta as rows for its trace; what came and went within the interval leaves nothing."""
    rows = delta.select(*columns_of([*trace.row, WEIGHT]))
    return merge_steps(rows, trace.row) if retracts else rows


def may_retract(node: Node) -> bool:
    """A guess that decides cost only: an aggregate's row goes when its group changes."""
    if isinstance(node, Temporal) and not node.enters:
        return True
    if isinstance(node, Weigh | Window) or (isinstance(node, Aggregate) and node.aggregates):
        return True
    return any(may_retract(below) for below in node.inputs)
