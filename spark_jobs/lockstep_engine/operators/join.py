"""Inner joins are linear in each input: with S the rows before an interval and Δ its changes,

    Δ(a ⋈ b ⋈ c) = Δa ⋈ S_b ⋈ S_c + (S_a + Δa) ⋈ Δb ⋈ S_c + (S_a + Δa) ⋈ (S_b + Δb) ⋈ Δc

A combination's weight is the product of the weights, its step the latest: it is there from when all
are. In the term of an input, those before it stand with their changes and those after it without:
otherwise rows that came together would be counted more than once, or not at all. No result of a part
of the join is looked up, so none is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lockstep.sql.circuit import Operator, TraceSpec
from lockstep.sql.plans.multiway import Hop, path
from lockstep.sql.plans.nodes import Aggregate, MultiwayJoin, Node, Temporal, Weigh, Window
from lockstep_engine.context import Context
from lockstep_engine.deltas import STEP, WEIGHT, columns_of, merge_steps, step_before
from lockstep_engine.operators.evaluated import Deltas, Evaluation, State

__all__ = ["join", "may_retract"]


def join(
    operator: Operator, node: MultiwayJoin, inputs: Deltas, state: State, context: Context
) -> Evaluation:
    """The join's delta, and what its inputs add to their traces."""
    terms = list(_terms(node, inputs, state, context))
    if not terms:
        raise ValueError("where no input has rows before the interval, all have a change in it")
    appends: dict[str, DataFrame] = {}
    for trace, delta, below in zip(operator.rows, inputs, node.inputs, strict=True):
        if trace is not None and delta is not None:
            retracts = not operator.append_only and may_retract(below)
            appends.setdefault(trace.table, _append(trace, delta, retracts))
    return Evaluation(reduce(DataFrame.unionByName, terms), appends)


def _terms(
    node: MultiwayJoin, inputs: Deltas, state: State, context: Context
) -> Iterator[DataFrame]:
    """For each input that changes: its change, with all that this meets."""
    found = map(state.input, range(len(inputs)))
    before = [None if rows is None else rows.select("*", step_before()) for rows in found]
    for place, delta in enumerate(inputs):
        earlier = [_all(*both) for both in zip(before[:place], inputs[:place], strict=True)]
        sides = [*earlier, delta, *before[place + 1 :]]
        if all(side is not None for side in sides):
            # What is large is joined as people wrote it, which is what Spark would do.
            hops = path(node, place if context.is_small else 0)
            yield _combinations(node, hops, [side for side in sides if side is not None], context)


def _all(before: DataFrame | None, delta: DataFrame | None) -> DataFrame | None:
    if before is None or delta is None:
        return delta if before is None else before
    return before.unionByName(delta)


def _combinations(
    node: MultiwayJoin, hops: tuple[Hop, ...], sides: list[DataFrame], context: Context
) -> DataFrame:
    """The sides joined in the order of the hops, from the first."""
    joined = _filtered(_numbered(sides, hops[0]), hops[0])
    for hop in hops[1:]:
        # A change is small, and so is what it meets: it goes to where the rows lie.
        few = F.broadcast(joined) if context.is_small else joined
        more = _numbered(sides, hop)
        if hop.equalities:
            on = [e.text for e in hop.equalities] + [f"({c.text})" for c in hop.conditions]
            joined = few.join(more, F.expr(" AND ".join(on)), "inner")
        else:
            joined = _filtered(few.crossJoin(more), hop)
    places = range(len(sides))
    return joined.select(
        *columns_of(node.columns),
        F.expr(" * ".join(f"{WEIGHT}_{place}" for place in places)).alias(WEIGHT),
        F.expr(f"greatest({', '.join(f'{STEP}_{place}' for place in places)})").alias(STEP),
    )


def _numbered(sides: list[DataFrame], hop: Hop) -> DataFrame:
    names = {WEIGHT: f"{WEIGHT}_{hop.input}", STEP: f"{STEP}_{hop.input}"}
    return sides[hop.input].withColumnsRenamed(names)


def _filtered(rows: DataFrame, hop: Hop) -> DataFrame:
    return reduce(lambda some, one: some.where(one.text), hop.conditions, rows)


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
