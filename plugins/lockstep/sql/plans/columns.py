"""Projections that compute nothing, and what columns are over what lies below projections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lockstep.sql.plans.expressions import substitute
from lockstep.sql.plans.nodes import Expression, Filter, Node, Output, Project, Watermark

__all__ = ["as_they_are", "only", "origin", "renamed"]


def as_they_are(columns: Iterable[str]) -> tuple[Output, ...]:
    """Outputs that are columns of the input."""
    return tuple(Output(column, Expression.column(column)) for column in columns)


def only(node: Node, columns: Iterable[str]) -> Node:
    """The node with these columns, in this order; the node itself where it has just them."""
    wanted = tuple(columns)
    return node if node.columns == wanted else Project(node, as_they_are(wanted))


def renamed(node: Node, names: Mapping[str, str]) -> Node:
    """The node with each column that is in `names` under its other name."""
    outputs = (Output(names.get(old, old), Expression.column(old)) for old in node.columns)
    return Project(node, tuple(outputs))


def origin(node: Node, expression: Expression) -> tuple[Node, Expression]:
    """What lies below a node's projections, filters and watermarks, and an expression over the node as
    one over that."""
    while True:
        match node:
            case Project():
                values = {output.name: output.expression for output in node.outputs}
                found = substitute(expression, values)
                if found is None:
                    return node, expression
                node, expression = node.input, found
            case Filter() | Watermark():
                node = node.input
            case _:
                return node, expression
