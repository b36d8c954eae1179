"""Operators of a circuit whose changes and state this process has: worked out here, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, MutableMapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from lockstep.sql.circuit import Circuit, Operator, columns_read
from lockstep.sql.plans.nodes import (
    Aggregate,
    MultiwayJoin,
    Scan,
    SessionGroups,
    UnionAll,
    Upsert,
    Values,
    Window,
)
from lockstep_engine.context import Context
from lockstep_engine.deltas import FIRST, STEP, WEIGHT
from lockstep_engine.local.aggregate import aggregated, is_aggregated
from lockstep_engine.local.changes import netted
from lockstep_engine.local.evaluated import LocalEvaluation
from lockstep_engine.local.framed import framed, is_framed
from lockstep_engine.local.join import joined
from lockstep_engine.local.linear import Sifted, is_linear
from lockstep_engine.local.relations import LocalRows
from lockstep_engine.local.rows import Rows
from lockstep_engine.local.sessions import are_sessions, sessions
from lockstep_engine.local.thresholds import between_thresholds
from lockstep_engine.local.union import united
from lockstep_engine.local.upsert import upserted
from lockstep_engine.local.values import NOT_HERE
from lockstep_engine.local.window import first_rows, is_bounded
from lockstep_engine.operators.join import may_retract
from lockstep_engine.touched import Touched

__all__ = ["LocalOperators", "sources_of_use"]

_Answer = TypeVar("_Answer")
_Work = Callable[[], LocalEvaluation | None]


def sources_of_use(circuit: Circuit) -> frozenset[str]:
    """The sources of whose changes, where this process has them, it may make more than rows one by
    one: what an operator of several rows makes, or a view's own."""
    below: dict[int, frozenset[str]] = {}
    used: set[str] = set()
    for operator in circuit.operators:
        if isinstance(operator.node, Scan):
            below[operator.ref] = frozenset([operator.node.source])
        elif isinstance(operator.node, Values):
            below[operator.ref] = frozenset()
        elif operator.inputs and all(ref in below for ref in operator.inputs):
            sources = frozenset(name for ref in operator.inputs for name in below[ref])
            if is_linear(operator):
                below[operator.ref] = sources
            elif _can_be(operator):
                below[operator.ref] = sources
                used |= sources
    for outbox in circuit.outboxes:
        used |= below.get(outbox.ref, frozenset())
    return frozenset(used)


@dataclass(frozen=True)
class LocalOperators:
    """`silent` are the operators whose delta is known to be empty; those are added of which it is seen
    here."""

    operators: Mapping[int, Operator]
    silent: MutableMapping[int, Operator]
    rows: LocalRows
    touched: Touched

    def begin(self, operator: Operator, context: Context) -> Mapping[str, Rows] | _Work | None:
        """What the operator appends to its traces, where its delta has been made here, or can be; what
        is left to do for that, which asks for nothing else, and then `end` is to be called; or None,
        where Spark is to evaluate it."""
        if self.rows.can_have(operator.ref):
            return {}
        if not self.rows.is_on or not _can_be(operator):
            return None
        self.rows.make(ref for ref in operator.inputs if ref not in self.silent)
        changes = {}
        for place, ref in enumerate(operator.inputs):
            rows = None if ref in self.silent else self.rows.of(ref)
            if rows is None and ref not in self.silent:
                return None
            is_of_all = context.is_first and _is_of_all(operator)
            if rows is not None and (len(rows) or is_of_all):
                changes[place] = rows
            elif context.is_first:
                # All tables are made now, those of nothing by Spark: what it reads is little.
                return None
            else:
                self.silent[ref] = self.operators[ref]
        if not changes:
            self.silent[operator.ref] = operator
            return {}
        work = _tried(lambda: self._begun(operator, changes, context))
        return None if work is None else partial(_ended, work)

    def end(
        self, operator: Operator, made: LocalEvaluation | None, context: Context
    ) -> Mapping[str, Rows] | None:
        """What the operator appends, now that its work is done; None where Spark is to evaluate it."""
        if made is None:
            return None
        self.rows.add(operator.ref, made.delta)
        if not len(made.delta.rows) and not context.is_first:
            self.silent[operator.ref] = operator
        return made.appends

    def _begun(
        self, operator: Operator, changes: Mapping[int, Rows], context: Context
    ) -> _Work | None:
        """The work, with what was there before looked up."""
        node = operator.node
        if isinstance(node, MultiwayJoin):
            return self._join(operator, node, changes, context)
        if isinstance(node, UnionAll):
            types = {place: self.rows.types(ref) for place, ref in enumerate(operator.inputs)}
            return lambda: LocalEvaluation(Sifted(united(node, changes, types.__getitem__)), {})
        if isinstance(node, Window):
            found = self.touched.of_partitions(operator, context)
            work = first_rows if is_bounded(operator) else framed
            return None if found is None else partial(work, operator, changes[0], *found)
        traces = self.touched.own_here(operator)
        if traces is None:
            return None
        if isinstance(node, Upsert):
            return partial(upserted, operator, changes[0], traces)
        if isinstance(node, SessionGroups):
            return partial(sessions, operator, changes[0], traces)
        return partial(aggregated, context.spark, operator, changes[0], traces)

    def _join(
        self,
        operator: Operator,
        node: MultiwayJoin,
        changes: Mapping[int, Rows],
        context: Context,
    ) -> _Work | None:
        found = self.touched.looked_up(operator, context)
        for place in range(len(operator.inputs)):
            # In a first interval nothing was there before.
            is_met = not context.is_first and any(other != place for other in changes)
            if is_met and place not in found and not self.touched.is_new(operator, place):
                return None
        read = columns_read(self.operators, operator)
        return partial(_joined, operator, node, changes, found, read)


def _joined(
    operator: Operator,
    node: MultiwayJoin,
    changes: Mapping[int, Rows],
    found: Mapping[int, Rows],
    read: Collection[str],
) -> LocalEvaluation | None:
    near = between_thresholds(node, changes, found, read)
    before = {place: rows.with_number(STEP, FIRST - 1) for place, rows in near.items()}
    delta = joined(node, changes, before)
    if delta is None:
        return None
    appends: dict[str, Rows] = {}
    for place, rows in changes.items():
        trace = operator.rows[place]
        if trace is not None and trace.table not in appends:
            retracts = not operator.append_only and may_retract(node.inputs[place])
            added = rows.select([*trace.row, WEIGHT])
            appends[trace.table] = netted(added, trace.row) if retracts else added
    return LocalEvaluation(delta, appends)


def _ended(work: _Work) -> LocalEvaluation | None:
    """What it gives, without rows for Spark to leave out; None where that is not to be had here."""
    made = _tried(work)
    return made and replace(made, delta=made.delta.without_those_left_out())


def _tried(work: Callable[[], _Answer | None]) -> _Answer | None:
    try:
        return work()
    except NOT_HERE:
        return None


def _is_of_all(operator: Operator) -> bool:
    """Whether there is a row of no rows, too."""
    return isinstance(operator.node, Aggregate) and not operator.node.keys


def _can_be(operator: Operator) -> bool:
    """Whether an operator of several rows may be evaluated here, by what is known without its input."""
    is_told = isinstance(operator.node, MultiwayJoin | UnionAll | Upsert)
    is_grouped = is_aggregated(operator) or are_sessions(operator)
    return is_told or is_grouped or is_bounded(operator) or is_framed(operator)
