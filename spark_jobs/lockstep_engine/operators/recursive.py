"""WITH RECURSIVE: with R(0) the anchor and R(l + 1) = F(R(l), B), the rows of all levels.

F, the step, is a circuit of operators that are linear in R, over the relations B beside it. Its own
incremental form gives ΔR(l + 1) from the changes of R(l) and of B, and splits in two, as F is linear:

    ΔR(l + 1) = F(ΔR(l), B + ΔB) + (F(R(l), B + ΔB) - F(R(l), B))

The second term needs no level's change, and is there for all levels at once, from the traces that
joins in the step have of R; then the first one is added level by level. A row carries the level that
it is of: what is taken back is taken back where it came, and a level is worked on once, when all that
it changes by is known. Without that, where a cycle appears as its rows go, those that come and those
that are taken back would go round in it one behind the other, and no round would be empty.

`_step` is the greatest of all that a row was made of, as in a join: many steps go through the levels at
once, and a level is judged to be empty, or beyond the limit, at the end of each of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lockstep.errors import WrongUse
from lockstep.sql.circuit import Operator, sources_below
from lockstep.sql.plans.loops import leaf_beside
from lockstep.sql.plans.nodes import BEFORE, LEVEL, MultiwayJoin, Recursive, Scan, UnionAll
from lockstep_engine.computed import computed
from lockstep_engine.context import Context
from lockstep_engine.deltas import STEP, WEIGHT, columns_of, consolidate
from lockstep_engine.operators.evaluated import Deltas, Evaluate, Evaluation, State
from lockstep_engine.operators.linear import rows_before

__all__ = ["beside_in_tables", "recursive"]

Traces = Mapping[str, DataFrame | None]


def recursive(
    operator: Operator,
    node: Recursive,
    inputs: Deltas,
    state: State,
    context: Context,
    evaluate: Evaluate,
) -> Evaluation:
    """The delta of all levels, and what the operators in the step add to their traces.

    Runs a Spark job or two a level, as only rows can tell that there is no next one. Each level's rows
    are computed, so that plans do not grow. Raises WrongUse where there are rows at the limit, or where
    a column of the step is of a type that the anchor's cannot hold.
    """
    anchor, *beside = inputs
    assert anchor is not None, "its types count"
    columns = (*node.columns, LEVEL)
    given = {leaf_beside(n): _computed(one) for n, one in enumerate(beside)}
    held = {leaf_beside(n): rows for n, rows in enumerate(state.rows[1:])}
    # What is worked out level by level is worked out again at the end, for the traces.
    step = _Step(operator.body, given, held, context.silenced(), evaluate)
    level_of = F.lit(0).cast("bigint").alias(LEVEL)
    first = anchor.select(*columns_of(node.columns), level_of, *columns_of([WEIGHT, STEP]))
    found = [computed(consolidate(first, columns))]
    made, _ = step.change(found[0] if _lowest(found[0]) is not None else None, state.traces)
    pending = None if made is None else _typed(node, found[0], made, context)
    known = step.without_levels(state.traces)
    while pending is not None:
        pending = computed(consolidate(pending, columns))
        level = _lowest(pending)
        if level is None:
            break
        if level >= node.limit:
            raise _too_deep(node)
        # a list, as generated code refers to it: a number would be another class for each level
        is_level = F.array_contains(F.lit([level]).cast("array<bigint>"), F.col(LEVEL))
        found.append(pending.where(is_level))
        made, _ = step.change(found[-1], known)
        later = pending.where(~is_level)
        pending = later.union(made) if made is not None else later
    rows = computed(reduce(DataFrame.union, found).coalesce(context.partitions))
    _, appends = replace(step, context=context).change(rows, state.traces)
    return Evaluation(rows.select(*columns_of([*node.columns, WEIGHT, STEP])), appends)


@dataclass(frozen=True)
class _Step:
    """The step over the relations beside it: their changes, None for one that has none, and of those in
    followed tables the rows that were there before."""

    operators: tuple[Operator, ...]
    beside: Mapping[str, DataFrame | None]
    rows: Mapping[str, DataFrame | None]
    context: Context
    evaluate: Evaluate

    def change(
        self, rows: DataFrame | None, traces: Traces
    ) -> tuple[DataFrame | None, Mapping[str, DataFrame]]:
        """What the step makes of a change of the level before, and what that adds to traces."""
        deltas: dict[int, DataFrame | None] = {}
        appends: dict[str, DataFrame] = {}
        for one in self.operators:
            if isinstance(one.node, Scan):
                source = rows if one.node.source == BEFORE else self.beside[one.node.source]
                wanted = columns_of([*one.node.columns, WEIGHT, STEP])
                deltas[one.ref] = None if source is None else source.select(*wanted)
                continue
            inputs: Deltas = tuple(deltas[ref] for ref in one.inputs)
            if isinstance(one.node, UnionAll):
                inputs = tuple(delta for delta in inputs if delta is not None)
            deltas[one.ref] = None
            state = self._state(one, traces)
            if _has_change(one, inputs, state):
                evaluation = self.evaluate(one, inputs, state, self.context)
                deltas[one.ref] = evaluation.delta
                appends.update(evaluation.appended(evaluation.delta))
        return deltas[self.operators[-1].ref], appends

    def _state(self, operator: Operator, traces: Traces) -> State:
        rows = (
            rows_before(self.operators, ref, self._leaf, self.evaluate, self.context.silenced())
            if trace is None
            else traces.get(trace.table)
            for ref, trace in zip(operator.inputs, operator.rows, strict=False)
        )
        return State(tuple(rows))

    def _leaf(self, leaf: Operator) -> DataFrame | None:
        """The rows of a relation beside the recursion before the interval."""
        assert isinstance(leaf.node, Scan), "what reads nothing stands beside"
        rows = self.rows[leaf.node.source]
        return None if rows is None else rows.select(*columns_of([*leaf.node.columns, WEIGHT]))

    def without_levels(self, traces: Traces) -> Traces:
        """The traces of what does not read the level before: the others are of no level in hand."""
        levelled = {
            spec.table for one in self.operators for spec in one.traces if LEVEL in spec.row
        }
        return {table: None if table in levelled else rows for table, rows in traces.items()}


def beside_in_tables(operator: Operator) -> frozenset[int]:
    """The numbers of those relations beside a recursion whose rows its step reads in followed tables."""

    read = {
        source
        for one in operator.body
        for ref, trace in zip(one.inputs, one.rows, strict=False)
        if trace is None
        for source in sources_below(operator.body, ref)
    }
    return frozenset(n for n in range(len(operator.inputs) - 1) if leaf_beside(n) in read)


def _has_change(operator: Operator, inputs: Deltas, state: State) -> bool:
    """Whether there can be a row: in a join, where a change has a change or rows to meet of each other
    input, as in its terms."""
    if not isinstance(operator.node, MultiwayJoin):
        return any(delta is not None for delta in inputs)
    has = [(state.input(place) is not None, d is not None) for place, d in enumerate(inputs)]
    return any(
        changes
        and all(rows or delta for rows, delta in has[:place])
        and all(rows for rows, _ in has[place + 1 :])
        for place, (_, changes) in enumerate(has)
    )


def _computed(delta: DataFrame | None) -> DataFrame | None:
    """Every level reads it, with all of its plan."""
    return None if delta is None else computed(delta)


def _lowest(rows: DataFrame) -> int | None:
    """The lowest level there is; None where there are no rows."""
    row = rows.agg(F.min(LEVEL)).first()
    return None if row is None else row[0]


def _typed(node: Recursive, anchor: DataFrame, made: DataFrame, context: Context) -> DataFrame:
    """The step's rows in the anchor's types, as the next level has them."""
    rows = anchor.where("false").union(made)
    if node not in context.types:
        types = {field.name: field.dataType for field in anchor.schema.fields}
        for name, found in zip(types, rows.schema.fields, strict=True):
            if found.dataType != types[name]:
                raise WrongUse(
                    f"the recursion {node.name} makes {name} of a type that its anchor cannot hold",
                    expected=f"{types[name].simpleString()}, as in the anchor",
                    found=f"a type that makes both {found.dataType.simpleString()}",
                    next_step="write CAST(... AS ...) in the anchor, or in the step",
                )
        context.types[node] = types
    return rows


def _too_deep(node: Recursive) -> WrongUse:
    return WrongUse(
        f"the recursion {node.name} has rows beyond its limit of {node.limit} levels",
        expected=f"no rows at level {node.limit}, where the anchor is level 0",
        found="at least one; a cycle in the data, or a deeper hierarchy than was thought",
        next_step="write a condition that ends it into the step (`WHERE level < ...`), or a higher "
        "limit: `WITH RECURSIVE name MAX RECURSION LEVEL 1000 AS (...)`",
    )
