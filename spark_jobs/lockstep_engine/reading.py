"""What operators read of one another: how often, and which columns. It decides what is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from lockstep.sql.circuit import Circuit, Operator, TraceKind
from lockstep.sql.plans.nodes import (
    Aggregate,
    AggregateFunction,
    MultiwayJoin,
    Project,
    Recursive,
    Scan,
    SessionGroups,
    Temporal,
    TimeWindow,
    Upsert,
    Values,
    Watermark,
    Window,
)

__all__ = ["is_worth_keeping", "read_once", "times_read", "unread_times"]

_STATEFUL = (MultiwayJoin, Aggregate, SessionGroups, Window, Upsert, Temporal, Watermark)
_OF_NO_SUM = (AggregateFunction.COUNT, AggregateFunction.MIN, AggregateFunction.MAX)


def times_read(circuit: Circuit, *, is_small: bool) -> Mapping[int, int]:
    """How often each operator's delta is read: a stateful consumer reads it for its output and for
    its trace, an outbox once. What an upsert appends to its trace, or a rank that remembers the first
    rows, is its own delta."""
    reads = {op.ref: 1 if _remembers_output(op) else 0 for op in circuit.operators}
    for operator in circuit.operators:
        for ref in operator.inputs:
            keeps_state = isinstance(operator.node, _STATEFUL)
            reads[ref] += 3 if keeps_state and not _merges_once(operator, is_small) else 1
    for outbox in circuit.outboxes:
        reads[outbox.ref] += 1
    return reads


def read_once(circuit: Circuit) -> frozenset[str]:
    """The sources whose delta goes one way, through operators without state, to one outbox: it need not
    be kept."""
    reads = dict.fromkeys((operator.ref for operator in circuit.operators), 0)
    sources: Counter[str] = Counter()
    for outbox in circuit.outboxes:
        reads[outbox.ref] += 1
    for operator in reversed(circuit.operators):
        many = isinstance(operator.node, (*_STATEFUL, Recursive))
        for ref in operator.inputs:
            reads[ref] += 2 if many else reads[operator.ref]
        if isinstance(operator.node, Scan):
            sources[operator.node.source] += reads[operator.ref]
    return frozenset(source for source, times in sources.items() if times == 1)


def _remembers_output(operator: Operator) -> bool:
    return isinstance(operator.node, Upsert) or any(
        trace.kind is TraceKind.FIRST for trace in operator.traces
    )


def _merges_once(operator: Operator, is_small: bool) -> bool:
    """Whether all that an aggregate does starts from its change merged by step, which it keeps where the
    change is large. Sums may be of doubles, which are looked at again. Sessions are always merged so."""
    node = operator.node
    return isinstance(node, SessionGroups) or (
        isinstance(node, Aggregate)
        and not is_small
        and not operator.rows
        and not node.collected
        and all(trace.kind is TraceKind.ACCUMULATORS for trace in operator.traces)
        and all(call.function in _OF_NO_SUM for call in node.aggregates)
    )


def is_worth_keeping(operator: Operator, by_ref: Mapping[int, Operator]) -> bool:
    """Projections and filters straight over a kept source are cheaper to redo than to keep."""

    def is_light(ref: int) -> bool:
        node = by_ref[ref].node
        if isinstance(node, Scan | Values | Recursive):
            return True
        if isinstance(node, _STATEFUL):
            return False
        return all(is_light(below) for below in by_ref[ref].inputs)

    return not is_light(operator.ref)


def unread_times(circuit: Circuit) -> frozenset[int]:
    """The operators that put a row into several windows, of which aggregates then read the windows and
    not the time: rows that differ in nothing else are worth netting before."""
    found = {
        op.ref: op.node.timestamp
        for op in circuit.operators
        if isinstance(op.node, TimeWindow) and op.node.size != op.node.slide
    }
    aggregated = _read_by_aggregates_alone(circuit)
    for operator in circuit.operators:
        netted = operator.ref in aggregated or isinstance(operator.node, Aggregate)
        for ref in operator.inputs:
            if ref in found and (not netted or found[ref] in _columns_read(operator)):
                del found[ref]
    return frozenset(found) - {outbox.ref for outbox in circuit.outboxes}


def _read_by_aggregates_alone(circuit: Circuit) -> frozenset[int]:
    """The projections whose every reader is an aggregate."""
    projections = {op.ref for op in circuit.operators if isinstance(op.node, Project)}
    others = {outbox.ref for outbox in circuit.outboxes}
    for operator in circuit.operators:
        if not isinstance(operator.node, Aggregate):
            others.update(operator.inputs)
    return frozenset(projections - others)


def _columns_read(operator: Operator) -> frozenset[str]:
    """What a projection or an aggregate reads of its input."""
    node = operator.node
    assert isinstance(node, Project | Aggregate), "others are not asked"
    if isinstance(node, Project):
        return frozenset(name for one in node.outputs for name in one.expression.references)
    return frozenset([*node.keys, *(name for call in node.aggregates for name in call.references)])
