"""Joins of the same groups of the same rows, as aggregates beside each other are put together: one side
says all where nothing but its own columns is read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from lockstep.sql.plans.nodes import Aggregate, Expression, Join, JoinKind, Node, Output, Project

__all__ = ["are_beside", "only_side"]


class _Groups(NamedTuple):
    """A relation has one row for each set of values that some columns of `rows` have: those that its own
    columns `by` are."""

    rows: Node
    by: Mapping[str, str]


def are_beside(node: Join) -> bool:
    """Whether both sides have the same groups of the same rows, and each row meets that of its group."""
    return _groups_of_join(node) is not None


def only_side(node: Join, wanted: Collection[str]) -> Node | None:
    """A relation with the wanted columns of a join, and others, that is made of one of its sides; None
    where both have to be read."""
    if not are_beside(node):
        return None
    if set(wanted) <= set(node.left.columns):
        return node.left
    same = dict(zip(node.left_keys, node.right_keys, strict=True))
    if any(name in node.left.columns and name not in same for name in wanted):
        return None
    columns = ((name, same.get(name, name)) for name in node.columns if name in wanted)
    return Project(node.right, tuple(Output(name, Expression.column(old)) for name, old in columns))


def _groups_of_join(node: Join) -> _Groups | None:
    if node.kind is not JoinKind.INNER or node.condition is not None or not all(node.null_safe):
        return None
    ours, theirs = _groups(node.left), _groups(node.right)
    if ours is None or theirs is None or ours.rows != theirs.rows:
        return None
    if set(node.left_keys) != set(ours.by) or set(node.right_keys) != set(theirs.by):
        return None
    pairs = zip(node.left_keys, node.right_keys, strict=True)
    return ours if all(ours.by[left] == theirs.by[right] for left, right in pairs) else None


def _groups(node: Node) -> _Groups | None:
    match node:
        case Aggregate():
            return _below(_Groups(node.input, {key: key for key in node.keys}))
        case Join():
            return _groups_of_join(node)
        case Project():
            found = _groups(node.input)
            if found is None:
                return None
            names = _columns(node)
            by = {new: found.by[old] for new, old in names.items() if old in found.by}
            return _Groups(found.rows, by) if {*by.values()} == {*found.by.values()} else None
        case _:
            return None


def _below(groups: _Groups) -> _Groups:
    """The same as groups of what is farthest down: groups of groups are those of the rows below."""
    names = {name: name for name in groups.rows.columns}
    node = groups.rows
    while isinstance(node, Project) and isinstance(node.input, Aggregate | Project):
        through = _columns(node)
        names = {new: through[old] for new, old in names.items() if old in through}
        node = node.input
    if not isinstance(node, Aggregate) or not all(
        names.get(old) in node.keys for old in groups.by.values()
    ):
        return groups
    by = {new: names[old] for new, old in groups.by.items()}
    return _below(_Groups(node.input, by))


def _columns(node: Project) -> Mapping[str, str]:
    """The outputs that are columns of the input, by name."""
    return {
        one.name: one.expression.references[0] for one in node.outputs if one.expression.is_column
    }
