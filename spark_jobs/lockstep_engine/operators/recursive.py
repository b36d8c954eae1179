"""WITH RECURSIVE: with R(0) the anchor and R(l + 1) = F(R(l), B), the rows of all levels.

F, the step, is a circuit of operators over the relations B beside it. A row carries the level that it
is of, and rows meet or are grouped within a level: F of all levels is F of each. Its own incremental
form gives, with the change of B alone, what all levels change by where the one before does not; then
levels are taken in order, each when all that it changes by is known:

    ΔR(l + 1) = F(R(l) + ΔR(l), B + ΔB) - F(R(l), B)

Where F is linear in R (`plans.recursion.is_linear`) that is F(ΔR(l), B + ΔB), which reads nothing of R,
and what the change of B alone gave. What is taken back is taken back where it came. Without levels,
where a cycle appears as its rows go, those that come and those that are taken back would go round in
it one behind the other, and no round would be empty.

`_step` is the greatest of all that a row was made of, as in a join: many steps go through the levels at
once, and a level is judged to be empty, or beyond the limit, at the end of each of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lockstep.errors import WrongUse
from lockstep.sql.circuit import Operator, sources_below
from lockstep.sql.plans.loops import leaf_beside
from lockstep.sql.plans.nodes import BEFORE, LEVEL, MultiwayJoin, Recursive, Scan, UnionAll
from lockstep.sql.plans.recursion import is_linear, level_of
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
    level_of_anchor = F.lit(0).cast("bigint").alias(LEVEL)
    first = anchor.select(*columns_of(node.columns), level_of_anchor, *columns_of([WEIGHT, STEP]))
    found = [computed(consolidate(first, columns))]
    made, _ = step.change(found[0] if _lowest(found[0]) is not None else None, state.traces)
    pending = None if made is None else _typed(operator, node, found[0], made, context)
    is_row_by_row, no_levels = is_linear(node.step), step.without_levels(state.traces)
    while pending is not None:
        pending = computed(consolidate(pending, columns))
        level = _lowest(pending)
        if level is None:
            break
        if level >= node.limit:
            raise _too_deep(node)
        found.append(pending.where(_is_level(LEVEL, level)))
        if is_row_by_row:
            # what the change beside it makes of the level is there
            later = pending.where(~_is_level(LEVEL, level))
            made, _ = step.change(found[-1], no_levels)
        else:
            later = pending.where(~_is_level(LEVEL, level, level + 1))
            made, _ = step.change(found[-1], step.of_level(state.traces, level))
        pending = later.union(made) if made is not None else later
    rows = computed(reduce(DataFrame.union, found).coalesce(context.partitions))
    _, appends = replace(step, context=context).change(rows, state.traces)
    delta = rows.select(*columns_of([*node.columns, WEIGHT, STEP]))
    return Evaluation(delta, appends, tuple(step.kept))


def _is_level(column: str, *levels: int) -> Column:
    """As a list, to which generated code refers: a number would be another class for each level."""
    return F.array_contains(F.lit([*levels]).cast("array<bigint>"), F.col(column))


@dataclass(frozen=True)
class _Step:
    """The step over the relations beside it: their changes, None for one that has none, and of those in
    followed tables the rows that were there before. `kept` are the frames that are to be released."""

    operators: tuple[Operator, ...]
    beside: Mapping[str, DataFrame | None]
    rows: Mapping[str, DataFrame | None]
    context: Context
    evaluate: Evaluate
    kept: list[DataFrame] = field(default_factory=list)

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
                self.kept.extend(evaluation.kept)
                appends.update(evaluation.appended(evaluation.delta))
        return deltas[self.operators[-1].ref], appends

    def _state(self, operator: Operator, traces: Traces) -> State:
        rows = (
            rows_before(self.operators, ref, self._leaf, self.evaluate, self.context.silenced())
            if trace is None
            else traces.get(trace.table)
            for ref, trace in zip(operator.inputs, operator.rows, strict=False)
        )
        return State(tuple(rows), traces)

    def _leaf(self, leaf: Operator) -> DataFrame | None:
        """The rows of a relation beside the recursion before the interval."""
        assert isinstance(leaf.node, Scan), "what reads nothing stands beside"
        rows = self.rows[leaf.node.source]
        return None if rows is None else rows.select(*columns_of([*leaf.node.columns, WEIGHT]))

    def without_levels(self, traces: Traces) -> Traces:
        """The traces of what does not read the level before."""
        return {**traces, **dict.fromkeys(self._levels)}

    def of_level(self, traces: Traces, level: int) -> Traces:
        """The traces with the rows of one level, where they are of levels."""
        every = {table: (traces.get(table), name) for table, name in self._levels.items()}
        of = {t: r.where(_is_level(n, level)) for t, (r, n) in every.items() if r is not None}
        return {**traces, **of}

    @cached_property
    def _levels(self) -> Mapping[str, str]:
        """By table of a trace the column that says of which level its rows are."""
        return {
            spec.table: name
            for one in self.operators
            for name in map(level_of, one.node.inputs)
            for spec in one.traces
            if name is not None and name in spec.row
        }


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


def _typed(
    operator: Operator, node: Recursive, anchor: DataFrame, made: DataFrame, context: Context
) -> DataFrame:
    """The step's rows in the anchor's types, as the next level has them."""
    rows = anchor.where("false").union(made)
    if operator.digest not in context.types:
        types = {field.name: field.dataType for field in anchor.schema.fields}
        for name, found in zip(types, rows.schema.fields, strict=True):
            if found.dataType != types[name]:
                raise WrongUse(
                    f"the recursion {node.name} makes {name} of a type that its anchor cannot hold",
                    expected=f"{types[name].simpleString()}, as in the anchor",
                    found=f"a type that makes both {found.dataType.simpleString()}",
                    next_step="write CAST(... AS ...) in the anchor, or in the step",
                )
        context.types[operator.digest] = types
    return rows


def _too_deep(node: Recursive) -> WrongUse:
    return WrongUse(
        f"the recursion {node.name} has rows beyond its limit of {node.limit} levels",
        expected=f"no rows at level {node.limit}, where the anchor is level 0",
        found="at least one; a cycle in the data, a step that always gives rows, or a deeper hierarchy "
        "than was thought",
        next_step="write a condition that ends it into the step (`WHERE level < ...`), or a higher "
        "limit: `WITH RECURSIVE name MAX RECURSION LEVEL 1000 AS (...)`",
    )
