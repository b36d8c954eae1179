"""Rewrites of joins: conditions to the side that has the columns, equalities to keys.

What may move depends on the kind. A condition on the left side can go below the left side of every
kind but FULL; one on the right side only where a right row that fails it is no row at all: INNER, and
within ON also LEFT, SEMI and ANTI.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count

from lockstep.sql.plans.columns import as_they_are, only
from lockstep.sql.plans.expressions import (
    all_of,
    conjuncts,
    equality,
    reads_clock,
    rejects_nulls,
    substitute,
)
from lockstep.sql.plans.loops import reads_level
from lockstep.sql.plans.nodes import (
    Aggregate,
    Expression,
    Filter,
    Join,
    JoinKind,
    Node,
    Output,
    Project,
)
from lockstep.sql.plans.same_groups import are_beside

__all__ = ["JOIN_PASSES", "filter_into_join_condition"]

_KEEPS_LEFT = (JoinKind.INNER, JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI)


def filter_into_join_side(node: Node) -> Node:
    """Filter(Join(a, b)) → Join(Filter(a), b) or Join(a, Filter(b)), where one side has the columns; to
    both, where the same groups stand beside each other and only keys are read, so that they stay so."""
    if isinstance(node, Filter) and isinstance(node.input, Join):
        join, references = node.input, set(node.predicate.references)
        if references and references <= set(join.left_keys) and not reads_clock(node.predicate):
            keys = zip(join.left_keys, join.right_keys, strict=True)
            theirs = {ours: Expression.column(other) for ours, other in keys}
            predicate = substitute(node.predicate, theirs) if are_beside(join) else None
            if predicate is not None:
                left, right = Filter(join.left, node.predicate), Filter(join.right, predicate)
                return replace(join, left=left, right=right)
        if join.kind in _KEEPS_LEFT and references <= set(join.left.columns):
            return replace(join, left=Filter(join.left, node.predicate))
        if join.kind is JoinKind.INNER and references <= set(join.right.columns):
            return replace(join, right=Filter(join.right, node.predicate))
    return node


def outer_to_inner(node: Node) -> Node:
    """Filter(LEFT JOIN) → Filter(INNER JOIN) where the filter is never true of the nulls that stand
    for a missing row; FULL to LEFT or INNER likewise."""
    if not (isinstance(node, Filter) and isinstance(node.input, Join)):
        return node
    join = node.input
    needed = frozenset[str]().union(*map(rejects_nulls, conjuncts(node.predicate)))
    needs_left, needs_right = (
        not needed.isdisjoint(side.columns) for side in (join.left, join.right)
    )
    match join.kind:
        case JoinKind.LEFT if needs_right:
            return Filter(replace(join, kind=JoinKind.INNER), node.predicate)
        case JoinKind.FULL if needs_left and needs_right:
            return Filter(replace(join, kind=JoinKind.INNER), node.predicate)
        case JoinKind.FULL if needs_left:
            return Filter(replace(join, kind=JoinKind.LEFT), node.predicate)
        case JoinKind.FULL if needs_right:
            kept = only(join.mirrored(JoinKind.LEFT), join.columns)
            return Filter(kept, node.predicate)
        case _:
            return node


def condition_into_side(node: Node) -> Node:
    """ON of an outer, semi or anti join: what reads one side only goes below that side, where a row
    that fails it has no match and nothing else depends on it."""
    if not (isinstance(node, Join) and node.condition is not None):
        return node
    left, right, rest = node.left, node.right, []
    for part in conjuncts(node.condition):
        references = set(part.references)
        if node.kind is not JoinKind.FULL and references <= set(right.columns):
            right = Filter(right, part)
        elif node.kind in (JoinKind.INNER, JoinKind.SEMI) and references <= set(left.columns):
            left = Filter(left, part)
        else:
            rest.append(part)
    if left == node.left and right == node.right:
        return node
    return replace(node, left=left, right=right, condition=all_of(rest) if rest else None)


def equality_to_join_key(node: Node) -> Node:
    """Filter(Join(a, b), x = y) → Join on x and y; sides that are expressions become columns."""
    if not (isinstance(node, Filter) and isinstance(node.input, Join)):
        return node
    if node.input.kind is not JoinKind.INNER:
        return node
    keyed = _keyed(node.input, node.predicate)
    if keyed is None:
        return node
    return only(keyed, node.columns)


def condition_to_join_keys(node: Node) -> Node:
    """ON x = y AND rest → a key, and the rest as condition: for joins of every kind."""
    if not (isinstance(node, Join) and node.condition is not None):
        return node
    parts = list(conjuncts(node.condition))
    for place, part in enumerate(parts):
        rest = parts[:place] + parts[place + 1 :]
        keyed = _keyed(replace(node, condition=all_of(rest) if rest else None), part)
        if keyed is not None:
            return only(keyed, node.columns)
    return node


def semi_below_inner(node: Node) -> Node:
    """(a JOIN b) SEMI JOIN c on a's columns → (a SEMI JOIN c) JOIN b: fewer rows to remember.

    Not where c is of a level of a recursion and a is not: a would be compared with each level."""
    if not (isinstance(node, Join) and not node.kind.shows_right and isinstance(node.left, Join)):
        return node
    inner = node.left
    condition = node.condition.references if node.condition is not None else ()
    read = {*node.left_keys, *condition} - {*node.right.columns}
    if not read or inner.kind not in (JoinKind.INNER, JoinKind.LEFT):
        return node
    side = "left" if read <= set(inner.left.columns) else "right"
    below = inner.left if side == "left" else inner.right
    if not read <= set(below.columns) or (side == "right" and inner.kind is not JoinKind.INNER):
        return node
    if reads_level(node.right) and not reads_level(below):
        return node
    moved = replace(node, left=below)
    return replace(inner, left=moved) if side == "left" else replace(inner, right=moved)


def semi_below_project(node: Node) -> Node:
    """Project(x) SEMI JOIN c → Project(x SEMI JOIN c), where the columns read are x's own."""
    if not (
        isinstance(node, Join) and not node.kind.shows_right and isinstance(node.left, Project)
    ):
        return node
    project = node.left
    condition = node.condition.references if node.condition is not None else ()
    read = {*node.left_keys, *condition} - {*node.right.columns}
    values = {o.name: o.expression for o in project.outputs if o.name in read}
    if not all(value.is_column for value in values.values()):
        return node
    if not set(project.input.columns).isdisjoint(node.right.columns):
        return node
    if node.condition is not None:
        every = {**values, **{c: Expression.column(c) for c in node.right.columns}}
        moved = substitute(node.condition, every)
        if moved is None:
            return node
    else:
        moved = None
    below = replace(
        node,
        left=project.input,
        left_keys=tuple(values[key].references[0] for key in node.left_keys),
        condition=moved,
    )
    return replace(project, input=below)


def connect_cross_joins(node: Node) -> Node:
    """(a x b) JOIN c on a's columns → (a JOIN c) x b: no product where keys would do."""
    if not (isinstance(node, Join) and node.left_keys and isinstance(node.left, Join)):
        return node
    outer, inner = node, node.left
    if inner.left_keys or inner.condition is not None:
        return node
    if not inner.kind is outer.kind is JoinKind.INNER:
        return node
    near = [key for key in outer.keys if key[0] in inner.left.columns]
    far = [key for key in outer.keys if key[0] in inner.right.columns]
    first, second = inner.left, inner.right
    if not near:
        near, far = far, near
        first, second = second, first
    joined = _with_keys(Join(first, outer.right, (), ()), near)
    # those of `far` equate a column of `second` with one of c, which `joined` now has
    again = Join(joined, second, (), (), outer.condition)
    again = _with_keys(again, [(b, a, same) for a, b, same in far])
    return only(again, node.columns)


def distinct_below_semi(node: Node) -> Node:
    """a SEMI JOIN distinct(b) → a SEMI JOIN b: how often a row is there does not matter."""
    if isinstance(node, Join) and not node.kind.shows_right and isinstance(node.right, Aggregate):
        distinct = node.right
        if not distinct.aggregates and distinct.keys == distinct.input.columns:
            return replace(node, right=distinct.input)
    return node


def filter_into_join_condition(node: Node) -> Node:
    """Filter(Join) → Join with the predicate as its condition: what is left over both sides."""
    if isinstance(node, Filter) and isinstance(node.input, Join):
        join = node.input
        if join.kind is not JoinKind.INNER:
            return node
        condition = [join.condition] if join.condition is not None else []
        return replace(join, condition=all_of([*condition, node.predicate]))
    return node


JOIN_PASSES: tuple[Callable[[Node], Node], ...] = (
    outer_to_inner,
    filter_into_join_side,
    condition_into_side,
    equality_to_join_key,
    condition_to_join_keys,
    semi_below_project,
    semi_below_inner,
    distinct_below_semi,
    connect_cross_joins,
)


def _with_keys(join: Join, keys: list[tuple[str, str, bool]]) -> Join:
    left, right, null_safe = zip(*keys, strict=True) if keys else ((), (), ())
    return replace(join, left_keys=left, right_keys=right, null_safe=null_safe)


def _keyed(join: Join, predicate: Expression) -> Join | None:
    """The join with an equality as one more key; None where it equates no two sides."""
    sides = equality(predicate)
    if sides is None or not all(side.references for side in sides[:2]):
        return None
    left, right, null_safe = sides
    if not set(left.references) <= set(join.left.columns):
        left, right = right, left
    if not (
        set(left.references) <= set(join.left.columns)
        and set(right.references) <= set(join.right.columns)
    ):
        return None
    taken = set(join.both)
    left_input, left_key = _with_column(join.left, left, taken)
    right_input, right_key = _with_column(join.right, right, taken | {left_key})
    keys = {(a, b): same for a, b, same in join.keys}
    keys[left_key, right_key] = null_safe and keys.get((left_key, right_key), True)
    keyed = replace(join, left=left_input, right=right_input)
    return _with_keys(keyed, [(a, b, same) for (a, b), same in keys.items()])


def _with_column(node: Node, expression: Expression, taken: set[str]) -> tuple[Node, str]:
    """The node with a column that holds the expression, and the column's name."""
    if expression.is_column:
        return node, expression.references[0]
    if isinstance(node, Project):
        # The same key expression twice is one column.
        for output in node.outputs:
            same = substitute(expression, {o.name: o.expression for o in node.outputs})
            if same is not None and same == output.expression:
                return node, output.name
    name = next(name for name in map("_key{}".format, count()) if name not in taken)
    return Project(node, (*as_they_are(node.columns), Output(name, expression))), name
