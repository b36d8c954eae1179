"""Columns that nobody reads are dropped, down to the scans."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lockstep.sql.plans.columns import only
from lockstep.sql.plans.loops import leaf_beside
from lockstep.sql.plans.nodes import (
    BEFORE,
    LEVEL,
    Aggregate,
    Filter,
    Generate,
    Join,
    MultiwayJoin,
    Node,
    Project,
    Recursive,
    Scan,
    SessionGroups,
    Temporal,
    TimeWindow,
    UnionAll,
    Upsert,
    Values,
    Watermark,
    Weigh,
    Window,
    WindowCall,
)
from lockstep.sql.plans.same_groups import only_side
from lockstep.sql.plans.sharing import read_columns

__all__ = ["prune"]


def prune(node: Node) -> Node:
    """The same rows and columns from inputs that hold only what is read.

    Every relation keeps at least one column: where none is read (`count(*)`), its first.
    """
    return _exactly(node, node.columns)


def _exactly(node: Node, needed: Iterable[str]) -> Node:
    """The node with exactly the needed columns, in the node's order, from pruned inputs."""
    wanted = _wanted(node, needed)
    return only(_with_pruned_inputs(node, wanted), wanted)


def _at_least(node: Node, needed: Iterable[str]) -> Node:
    """The node with the needed columns, and perhaps others that it cannot do without."""
    return _with_pruned_inputs(node, _wanted(node, needed))


def _wanted(node: Node, needed: Iterable[str]) -> tuple[str, ...]:
    names = frozenset(needed)
    return tuple(name for name in node.columns if name in names) or node.columns[:1]


def _with_pruned_inputs(node: Node, wanted: tuple[str, ...]) -> Node:
    """The node over pruned inputs; it may have more columns than wanted, never fewer."""
    result: Node
    match node:
        case Scan():
            result = replace(node, columns=wanted)
        case Values():
            places = [node.columns.index(name) for name in wanted]
            result = Values(wanted, tuple(tuple(row[p] for p in places) for row in node.rows))
        case Project():
            outputs = tuple(output for output in node.outputs if output.name in wanted)
            read = [name for output in outputs for name in output.expression.references]
            result = Project(_at_least(node.input, read), outputs)
        case Filter():
            read = [*wanted, *node.predicate.references]
            result = replace(node, input=_at_least(node.input, read))
        case Weigh():
            result = replace(node, input=_at_least(node.input, [*wanted, *node.weight.references]))
        case Generate():
            read = [*wanted, *node.generator.references]
            result = replace(node, input=_at_least(node.input, read))
        case Window():
            result = _pruned_window(node, wanted)
        case TimeWindow():
            result = replace(node, input=_at_least(node.input, [*wanted, node.timestamp]))
        case Temporal():
            result = replace(node, input=_at_least(node.input, [*wanted, node.column]))
        case UnionAll():
            result = UnionAll(tuple(_exactly(branch, wanted) for branch in node.branches))
        case Join():
            result = _pruned_join(node, wanted)
        case Aggregate():
            result = _pruned_aggregate(node, wanted)
        case Upsert() | MultiwayJoin() | Watermark() | SessionGroups():
            result = node
        case Recursive():
            result = _pruned_recursive(node, wanted)
    return result


def _pruned_window(node: Window, wanted: tuple[str, ...]) -> Node:
    """The order of all columns decides ties, so a column that is read by none of the calls but by
    somebody above stays; where no call is left, there is no window."""
    needed = set(wanted)
    calls: list[WindowCall] = []
    for call in reversed(node.calls):
        if call.name in needed:
            calls.insert(0, call)
            needed.update(call.references)
    if not calls:
        return _at_least(node.input, wanted)
    read = [*needed, *node.partition]
    return Window(_at_least(node.input, read), node.partition, tuple(calls))


def _pruned_join(node: Join, wanted: tuple[str, ...]) -> Node:
    side = only_side(node, wanted)
    if side is not None:
        return _at_least(side, wanted)
    condition = node.condition.references if node.condition is not None else ()
    read = [*wanted, *condition]
    return replace(
        node,
        left=_exactly(node.left, [*read, *node.left_keys]),
        right=_exactly(node.right, [*read, *node.right_keys]),
    )


def _pruned_aggregate(node: Aggregate, wanted: tuple[str, ...]) -> Aggregate:
    calls = tuple(call for call in node.aggregates if call.name in wanted)
    if not calls and not node.keys:
        calls = node.aggregates[:1]
    read = [*node.keys, *(name for call in calls for name in call.references)]
    return Aggregate(_at_least(node.input, read), node.keys, calls)


def _pruned_recursive(node: Recursive, wanted: tuple[str, ...]) -> Recursive:
    """What the step reads of a level has to be there, too, and what it reads for that, and so on."""
    needed = set(wanted)
    while True:
        columns = [name for name in node.columns if name in needed]
        step = _exactly(node.step, [*columns, LEVEL])
        read = read_columns((step,), BEFORE) - {LEVEL}
        if read <= needed:
            break
        needed |= read
    others = (
        _exactly(below, read_columns((step,), leaf_beside(place)))
        for place, below in enumerate(node.beside)
    )
    return replace(node, anchor=_exactly(node.anchor, columns), beside=tuple(others), step=step)
