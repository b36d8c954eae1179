"""Relations that several others read, taken out of a plan and put back.

Plans are trees in which equal sub-trees are one relation. While a piece of a plan is rewritten, a
relation with state that more than one other reads is a leaf, a Scan of `shared <n>`, so that it stays
one relation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from lockstep.sql.plans.columns import only
from lockstep.sql.plans.expressions import reads_clock
from lockstep.sql.plans.nodes import (
    Aggregate,
    Filter,
    Join,
    JoinKind,
    MultiwayJoin,
    Node,
    Project,
    Recursive,
    Scan,
    Temporal,
    UnionAll,
    Upsert,
    Values,
    Watermark,
    Window,
)

__all__ = ["cut_shared", "fill_shared", "has_state", "read_columns", "with_inputs"]


def with_inputs(node: Node, inputs: tuple[Node, ...]) -> Node:
    """The node over other inputs (of columns that fit)."""
    match node:
        case Scan() | Values():
            return node
        case UnionAll():
            return replace(node, branches=inputs)
        case Join():
            return replace(node, left=inputs[0], right=inputs[1])
        case MultiwayJoin():
            return replace(node, inputs=inputs)
        case Recursive():
            return replace(node, anchor=inputs[0], beside=inputs[1:])
        case Temporal():
            return replace(node, input=inputs[0], watermarks=inputs[1:])
        case _:
            return replace(node, input=inputs[0])


def has_state(node: Node) -> bool:
    """True where something is remembered for the node or for what is below it."""
    if isinstance(node, Join | Aggregate | Window | Upsert | Recursive | Temporal | Watermark):
        return True
    if isinstance(node, Filter) and reads_clock(node.predicate):
        return True
    return any(map(has_state, node.inputs))


def _is_product(node: Node) -> bool:
    """A join that has no condition yet: its readers are filters that differ, and each is to move into it
    by itself. As one relation for them all it would be every row beside every other."""
    return (
        isinstance(node, Join)
        and node.kind is JoinKind.INNER
        and not node.left_keys
        and node.condition is None
    )


def cut_shared(node: Node) -> tuple[Node, dict[str, Node]]:
    """The plan with leaves for what is shared, and what each leaf stands for, inputs first."""
    readers: dict[Node, int] = {}

    def count(one: Node) -> None:
        readers[one] = readers.get(one, 0) + 1
        if readers[one] == 1:
            for child in one.inputs:
                count(child)

    count(node)
    shared: dict[str, Node] = {}
    cut: dict[Node, Node] = {}

    def visit(one: Node) -> Node:
        if one not in cut:
            result = with_inputs(one, tuple(map(visit, one.inputs)))
            if readers[one] > 1 and has_state(one) and not _is_product(one):
                name = f"shared {len(shared)}"
                shared[name] = result
                result = Scan(name, result.columns)
            cut[one] = result
        return cut[one]

    return visit(node), shared


def read_columns(pieces: Iterable[Node], leaf: str) -> frozenset[str]:
    """The columns that any piece reads of a leaf."""
    found: set[str] = set()
    for piece in pieces:
        if isinstance(piece, Scan) and piece.source == leaf:
            found.update(piece.columns)
        found |= read_columns(piece.inputs, leaf)
    return frozenset(found)


def fill_shared(node: Node, shared: Mapping[str, Node]) -> Node:
    """The plan with the relations in the place of their leaves. A projection reads a relation whole,
    as it chooses its columns itself."""

    def whole(one: Node) -> Node:
        if isinstance(one, Scan) and one.source in shared:
            return fill_shared(shared[one.source], shared)
        return fill_shared(one, shared)

    if isinstance(node, Scan) and node.source in shared:
        return only(whole(node), node.columns)
    if isinstance(node, Project):
        return with_inputs(node, (whole(node.input),))
    return with_inputs(node, tuple(fill_shared(child, shared) for child in node.inputs))
