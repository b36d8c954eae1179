"""Inner joins are linear in each input: with S the rows before an interval and Δ its changes,

    Δ(a ⋈ b ⋈ c) = Δa ⋈ S_b ⋈ S_c + (S_a + Δa) ⋈ Δb ⋈ S_c + (S_a + Δa) ⋈ (S_b + Δb) ⋈ Δc

A combination's weight is the product of the weights, its step the latest: it is there from when all
are. In the term of an input, those before it stand with their changes and those after it without:
otherwise rows that came together would be counted more than once, or not at all. An input without a
change stands alike in all terms, so it is met by their union. No result of a part of the join is
looked up, so none is kept.

Where inputs take rows back at many steps, changes meet changes that have been taken back long before.
There each change at step t meets what the others have come to by then, rows that are valid for a while:

    Δ(a ⋈ b) = Σ_t Δa_t ⋈ (S_b + Δb before t) + (S_a + Δa up to t) ⋈ Δb_t

It is the same sum in another order, as long as the change of the result and not as all pairs of changes.

A row of totals that changes is three rows, the old one twice, and many of them (a dozen subqueries like
`(SELECT avg(x) FROM t)`) are all combinations of these. They are met as what is there at the time, too:
one row of each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import reduce
from types import MappingProxyType

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lockstep.sql.circuit import Operator, TraceSpec
from lockstep.sql.plans.multiway import Hop, Routes, path, routes
from lockstep.sql.plans.nodes import (
    Aggregate,
    Filter,
    MultiwayJoin,
    Node,
    Project,
    SessionGroups,
    Temporal,
    Upsert,
    Weigh,
    Window,
)
from lockstep_engine.context import Context
from lockstep_engine.deltas import (
    STEP,
    UNTIL,
    WEIGHT,
    columns_of,
    consolidate,
    merge_steps,
    periods,
    step_before,
    union,
)
from lockstep_engine.operators.evaluated import Deltas, Evaluation, State

__all__ = ["join", "join_appends", "may_retract"]

_MANY_TOTALS = 3
"""So many of them make 27 combinations."""
NOTHING: Mapping[int, Sequence[str]] = MappingProxyType({})


def join(
    operator: Operator, node: MultiwayJoin, inputs: Deltas, state: State, context: Context
) -> Evaluation:
    """The join's delta, and what its inputs add to their traces."""
    return Evaluation(_delta(node, inputs, state, context), join_appends(operator, node, inputs))


def join_appends(operator: Operator, node: MultiwayJoin, inputs: Deltas) -> Mapping[str, DataFrame]:
    """What the inputs add to their traces."""
    appends: dict[str, DataFrame] = {}
    for trace, delta, below in zip(operator.rows, inputs, node.inputs, strict=True):
        if trace is not None and delta is not None:
            retracts = not operator.append_only and may_retract(below)
            appends.setdefault(trace.table, _append(trace, delta, retracts))
    return appends


def _delta(node: MultiwayJoin, inputs: Deltas, state: State, context: Context) -> DataFrame:
    """The sum of the terms of the inputs that change."""
    found = enumerate(map(state.input, range(len(inputs))))
    before = {n: rows.select("*", step_before()) for n, rows in found if rows is not None}
    changes = {n: delta for n, delta in enumerate(inputs) if delta is not None}
    totals = _totals(node, before, changes)
    valid = _valid(node, changes, totals, context)
    if context.is_small:
        ways = routes(node, list(changes))
    else:
        # What is large is joined as people wrote it, which is what Spark would do.
        # Rows for a while are met from the change on, which says of each of them whether it is there.
        ways = Routes({n: path(node, n if valid else 0) for n in changes}, ())
    terms = []
    for place, hops in ways.meetings.items():
        others = valid or {n: delta for n, delta in changes.items() if n < place}
        after = {
            n: delta if n in totals else _after(before.get(n), delta) for n, delta in others.items()
        }
        sides = {**before, **after, place: changes[place]}
        if all(hop.input in sides for hop in (*hops, *ways.onward)):
            start = _filtered(_side(sides, hops[0]), hops[0])
            joined = _joined(start, hops[1:], sides, context, _while_there(hops, place, valid))
            terms.append(joined.drop(*(f"{UNTIL}_{n}" for n in valid)))
    if not terms:
        raise ValueError("where no input has rows before the interval, all have a change in it")
    combinations = reduce(DataFrame.unionByName, terms)
    return _weighted(node, _joined(combinations, ways.onward, before, context))


def _totals(
    node: MultiwayJoin, before: Mapping[int, DataFrame], changes: Mapping[int, DataFrame]
) -> Mapping[int, DataFrame]:
    """Of inputs of one row, where many of them change, the rows with `_until bigint`, old ones, too."""
    found = [n for n in changes if _is_total(node.inputs[n])]
    if len(found) < _MANY_TOTALS:
        return {}
    return {n: _periods(node.inputs[n], _after(before.get(n), changes[n])) for n in found}


def _is_total(node: Node) -> bool:
    """Whether it has one row at most: an aggregate without keys."""
    while isinstance(node, Project | Filter):
        node = node.input
    return isinstance(node, Aggregate) and not node.keys


def _after(before: DataFrame | None, change: DataFrame) -> DataFrame:
    """The rows of an input with its change."""
    return change if before is None else union([before, change])


def _periods(node: Node, rows: DataFrame) -> DataFrame:
    return periods(consolidate(rows, node.columns), node.columns)


def _valid(
    node: MultiwayJoin,
    changes: Mapping[int, DataFrame],
    totals: Mapping[int, DataFrame],
    context: Context,
) -> Mapping[int, DataFrame]:
    """The changes of each input as rows with `_until bigint`: what they come to from `_step` on until
    before that step, null where it stays; totals as they are. Nothing where pairs of changes are few
    enough."""
    retracts = [n for n in changes if may_retract(node.inputs[n])]
    if not context.has_many_steps or len(retracts) < 2:
        retracts = []
    if not retracts and not totals:
        return {}
    others = {
        n: _periods(node.inputs[n], delta)
        if n in retracts
        else delta.withColumn(UNTIL, F.lit(None).cast("bigint"))
        for n, delta in changes.items()
        if n not in totals
    }
    return {**others, **totals}


def _while_there(
    hops: Sequence[Hop], place: int, valid: Collection[int]
) -> Mapping[int, Sequence[str]]:
    """By the input of a hop the conditions that it brings: that rows are there when the change at
    `place` meets them. Either of the two may come first."""
    met: list[int] = []
    conditions: dict[int, Sequence[str]] = {}
    for hop in hops:
        others = met if hop.input == place else [hop.input] if place in met else []
        conditions[hop.input] = [_is_there(n, place) for n in others if n in valid]
        met = [*met, hop.input]
    return conditions


def _is_there(input_: int, place: int) -> str:
    """Of inputs before the change's their rows count with what they come to in that step, of those after
    it without."""
    since, until, at = f"{STEP}_{input_}", f"{UNTIL}_{input_}", f"{STEP}_{place}"
    if input_ < place:
        return f"({since} <= {at} AND ({until} IS NULL OR {at} < {until}))"
    return f"({since} < {at} AND ({until} IS NULL OR {at} <= {until}))"


def _joined(
    joined: DataFrame,
    hops: Iterable[Hop],
    sides: Mapping[int, DataFrame],
    context: Context,
    when: Mapping[int, Sequence[str]] = NOTHING,
) -> DataFrame:
    """The rows with those that they meet on the way; `when` are further conditions of hops, by input."""
    for hop in hops:
        # A change is small, and so is what it meets: it goes to where the rows lie.
        few = F.broadcast(joined) if context.is_small else joined
        more = _side(sides, hop)
        if hop.equalities:
            on = [e.text for e in hop.equalities] + [f"({c.text})" for c in hop.conditions]
            on += when.get(hop.input, ())
            joined = few.join(more, F.expr(" AND ".join(on)), "inner")
        else:
            joined = _filtered(few.crossJoin(more), hop)
            for condition in when.get(hop.input, ()):
                joined = joined.where(condition)
    return joined


def _side(sides: Mapping[int, DataFrame], hop: Hop) -> DataFrame:
    """The rows of a hop's input, whose weight and step have its number."""
    names = {name: f"{name}_{hop.input}" for name in (WEIGHT, STEP, UNTIL)}
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
    """A guess that decides cost only: an aggregate's row goes when its group changes, a keyed record's
    when another comes."""
    if isinstance(node, Temporal) and not node.enters:
        return True
    if isinstance(node, SessionGroups | Upsert | Weigh | Window) or (
        isinstance(node, Aggregate) and node.aggregates
    ):
        return True
    return any(may_retract(below) for below in node.inputs)
