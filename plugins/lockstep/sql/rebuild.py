"""What a changed project needs beyond the state that a version holds, and from what it is made.

The law: with the tables that are kept and those that the rebuilding circuit gives, a pipeline goes on
as one that has run the new queries from the beginning. A trace is named by what it holds, so a trace of
the same name is kept as it is, and nothing is computed for it. What an unchanged view has published,
and what a kept trace remembers of a relation, stands for that relation: the sources' past is read only
where nothing else has it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from lockstep.sql.circuit import Circuit, Operator, OutboxSpec, TraceKind, operators_above
from lockstep.sql.plans.nodes import Scan, Temporal, Upsert

__all__ = ["Known", "Rebuild", "ViewChange", "plan_rebuild"]


class ViewChange(Enum):
    """What a deploy does to a published view; CHANGED says that it is another query, or one over other
    input, and not that any row is another one."""

    UNCHANGED = "unchanged"
    CHANGED = "changed"
    NEW = "new"
    DROPPED = "dropped"


@dataclass(frozen=True)
class Known:
    """A relation whose rows a table of the version holds, with weights, under these columns in the
    order of the relation's own; or an aggregate, whose `groups` they are. `leaf` is the source that
    stands for it in the circuit."""

    leaf: str
    table: str
    columns: tuple[str, ...]
    groups: Operator | None = None


@dataclass(frozen=True)
class Rebuild:
    """How the state of a version becomes that of other queries.

    `views` are all of the old and the new project, by name. `kept`, `made` and `dropped` are tables of
    traces. `circuit` is what has to be computed from the past: its outboxes are those of views that
    change, its operators' traces may be kept ones, which get nothing. `known` are the relations in it
    that are read from tables, `sources` those whose records are read again.
    """

    views: Mapping[str, ViewChange]
    kept: tuple[str, ...]
    made: tuple[str, ...]
    dropped: tuple[str, ...]
    circuit: Circuit
    known: tuple[Known, ...]
    sources: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Whether the version holds what the new queries need, no more, and publishes the same views."""
        unchanged = all(c is ViewChange.UNCHANGED for c in self.views.values())
        return unchanged and not self.made and not self.dropped


def plan_rebuild(
    before: Circuit, after: Circuit, held: Collection[str], distrusted: Collection[str] = ()
) -> Rebuild:
    """The rebuild from the version of `before` that holds the tables `held` to what `after` needs.

    Nothing is kept of what follows from the sources `distrusted`: they are read in another way by now,
    or what they held was corrected.
    """
    doubted = operators_above(after, distrusted)
    names = {trace.table for trace in after.traces}
    # What a version holds that its queries do not need has stopped at some earlier one.
    current = {trace.table for trace in before.traces}
    kept = names & current & set(held) - set(_traces_of(after, doubted))
    made = names - kept
    known = _known_relations(before, after, held, doubted)
    views = _views(before, after, doubted)
    outboxes = tuple(o for o in after.outboxes if views[o.view] is not ViewChange.UNCHANGED)
    operators = _pruned(after, outboxes, made, known)
    read = {o.node.source for o in operators if isinstance(o.node, Scan)}
    leaves = tuple(one for one in known.values() if one.leaf in read)
    return Rebuild(
        views=views,
        kept=tuple(sorted(kept)),
        made=tuple(sorted(made)),
        dropped=tuple(sorted(current & set(held) - names)),
        circuit=Circuit(operators, outboxes),
        known=leaves,
        sources=tuple(sorted(read - {one.leaf for one in leaves})),
    )


def _traces_of(circuit: Circuit, doubted: Collection[int]) -> Iterator[str]:
    """The traces of these relations, whichever operator looks them up."""
    for operator in circuit.operators:
        looked_up = dict(zip(operator.rows, operator.inputs, strict=False))
        for trace in operator.traces:
            if looked_up.get(trace, operator.ref) in doubted:
                yield trace.table


def _views(before: Circuit, after: Circuit, doubted: Collection[int]) -> Mapping[str, ViewChange]:
    old, new = _published(before), _published(after)
    anew = {outbox.view for outbox in after.outboxes if outbox.ref in doubted}
    changes: dict[str, ViewChange] = {}
    for view in sorted({*old, *new}):
        if view not in new:
            changes[view] = ViewChange.DROPPED
        elif view not in old:
            changes[view] = ViewChange.NEW
        else:
            is_same = old[view] == new[view] and view not in anew
            changes[view] = ViewChange.UNCHANGED if is_same else ViewChange.CHANGED
    return changes


def _published(circuit: Circuit) -> Mapping[str, tuple[str, tuple[str, ...]]]:
    """What each view is: the digest of its relation, and its columns."""
    digests = {operator.ref: operator.digest for operator in circuit.operators}
    return {outbox.view: (digests[outbox.ref], outbox.columns) for outbox in circuit.outboxes}


def _known_relations(
    before: Circuit, after: Circuit, held: Collection[str], doubted: Collection[int]
) -> Mapping[int, Known]:
    """By ref of the new circuit: relations of which a table of the version has all rows."""
    tables = dict(_remembered(before, held))
    return {
        operator.ref: replace(tables[operator.digest], leaf=f"_known_{operator.ref}")
        for operator in after.operators
        if operator.digest in tables and operator.ref not in doubted
    }


def _remembered(circuit: Circuit, held: Collection[str]) -> Iterator[tuple[str, Known]]:
    """Digests of relations that are known, without their leaves; of several for one relation the last:
    outboxes come last, and those that have to be put together first."""
    by_ref = {operator.ref: operator for operator in circuit.operators}
    for operator in circuit.operators:
        if operator.summed is not None and operator.accumulators.table in held:
            table, columns = operator.accumulators.table, operator.node.columns
            yield operator.digest, Known("", table, columns, operator)
    for operator in circuit.operators:
        for below, trace in zip(operator.inputs, operator.rows, strict=False):
            columns = by_ref[below].node.columns
            if trace is None or trace.kind is not TraceKind.ROWS or trace.table not in held:
                continue
            if set(trace.row) == set(columns):
                yield by_ref[below].digest, Known("", trace.table, columns)
        if isinstance(operator.node, Upsert):
            [trace] = (t for t in operator.traces if t.kind is TraceKind.ROWS)
            if trace.table in held:
                yield operator.digest, Known("", trace.table, operator.node.columns)
    for outbox in circuit.outboxes:
        if outbox.table in held:
            yield by_ref[outbox.ref].digest, Known("", outbox.table, outbox.columns)


def _pruned(
    circuit: Circuit,
    outboxes: Collection[OutboxSpec],
    made: Collection[str],
    known: Mapping[int, Known],
) -> tuple[Operator, ...]:
    """The operators that the outboxes and the traces to be made follow from; known relations are
    leaves, but those that have traces of their own to make, or whose watermark is asked for."""
    evaluated = {o.ref for o in circuit.operators if any(t.table in made for t in o.traces)}
    wanted = {outbox.ref for outbox in outboxes} | evaluated
    found: list[Operator] = []
    for operator in reversed(circuit.operators):
        ref = operator.ref
        if ref not in wanted:
            continue
        if ref in known and ref not in evaluated:
            scan = Scan(known[ref].leaf, operator.node.columns)
            found.append(replace(operator, node=scan, inputs=(), traces=(), rows=(), body=()))
            continue
        if isinstance(operator.node, Temporal):
            evaluated |= set(operator.inputs[1:])
        found.append(operator)
        wanted |= set(operator.inputs)
    return tuple(reversed(found))
