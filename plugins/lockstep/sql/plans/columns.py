"""Projections that compute nothing: columns as they are, fewer of them, or under other names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lockstep.sql.plans.nodes import Expression, Node, Output, Project

__all__ = ["as_they_are", "only", "renamed"]


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
