"""The leaf of a correlated subquery: taken out where the subquery has its columns itself.

The leaf stands for the distinct rows around, in the columns that the subquery reads. A join with it on
all of its columns only keeps the values that occur around; without it the subquery has rows for
values that do not, which the join with the rows around then leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lockstep.sql.plans.nodes import (
    Aggregate,
    Expression,
    Filter,
    Join,
    JoinKind,
    Node,
    Output,
    Project,
    Scan,
)
from lockstep.sql.plans.rewrites import rewrite
from lockstep.sql.plans.sharing import with_inputs

__all__ = ["resolve_leaf"]


def resolve_leaf(node: Node, leaf: str, around: Node, used: Mapping[str, str]) -> Node:
    """The subquery's plan without the leaf; `used` maps the leaf's columns to those of `around`."""
    return _filled(_without(rewrite(node), leaf), leaf, around, used)


def _without(node: Node, leaf: str) -> Node:
    """Join(leaf, x) on all columns of the leaf → x."""
    node = with_inputs(node, tuple(_without(child, leaf) for child in node.inputs))
    if not isinstance(node, Join) or node.kind is not JoinKind.INNER:
        return node
    keys = node.keys
    mirrored = tuple((b, a, null_safe) for a, b, null_safe in keys)
    for side, other, pairs in ((node.left, node.right, keys), (node.right, node.left, mirrored)):
        if isinstance(side, Scan) and side.source == leaf:
            values = {own: theirs for own, theirs, _ in reversed(pairs)}
            if values.keys() == set(side.columns):
                return _instead(node, _with_equal(other, pairs, values), values)
    return node


def _with_equal(
    node: Node, pairs: Sequence[tuple[str, str, bool]], values: Mapping[str, str]
) -> Node:
    """The rows that would find a row of the leaf, had it all values: of `pairs`, (column of the leaf,
    column of the node, whether null equals null), the first of each column is its value."""
    for own, theirs, null_safe in pairs:
        value = values[own]
        if theirs != value:
            sign = "<=>" if null_safe else "="
            node = Filter(node, Expression(f"`{value}` {sign} `{theirs}`", (value, theirs)))
        elif not null_safe:
            node = Filter(node, Expression(f"`{theirs}` IS NOT NULL", (theirs,)))
    return node


def _instead(join: Join, other: Node, values: Mapping[str, str]) -> Node:
    """The join's columns from its one side."""
    outputs = (Output(c, Expression.column(values.get(c, c))) for c in join.columns)
    result = Project(other, tuple(outputs))
    return Filter(result, join.condition) if join.condition is not None else result


def _filled(node: Node, leaf: str, around: Node, used: Mapping[str, str]) -> Node:
    """What is left of the leaf: the distinct rows around."""
    if isinstance(node, Scan) and node.source == leaf:
        outputs = tuple(Output(name, Expression.column(used[name])) for name in node.columns)
        return Aggregate(Project(around, outputs), node.columns, ())
    return with_inputs(node, tuple(_filled(child, leaf, around, used) for child in node.inputs))
