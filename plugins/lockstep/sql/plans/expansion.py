"""Joins that are not inner joins, written out as inner joins, distinct rows and differences.

A left row has a match or it has none, whatever number of partners it has. So with M the distinct
values by which left rows match, `a SEMI JOIN b` is a JOIN M, `a ANTI JOIN b` is a without that, and an
outer join is the inner one with the anti join's rows beside it. All of these are operators that the
circuit has: nothing else has to be maintained, and what is shared is kept once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from lockstep.sql.names import fresh_names
from lockstep.sql.plans.columns import only, renamed
from lockstep.sql.plans.nodes import (
    Aggregate,
    Expression,
    Filter,
    Join,
    JoinKind,
    Node,
    Output,
    Project,
    UnionAll,
    Weigh,
)
from lockstep.sql.plans.sharing import with_inputs

__all__ = ["expand"]


def expand(node: Node) -> Node:
    """The same relation with inner joins only."""
    node = with_inputs(node, tuple(map(expand, node.inputs)))
    if not isinstance(node, Join):
        return node
    match node.kind:
        case JoinKind.INNER:
            return node
        case JoinKind.SEMI:
            return _with_match(node)
        case JoinKind.ANTI:
            return _without_match(node)
        case JoinKind.LEFT:
            pairs = replace(node, kind=JoinKind.INNER)
            return UnionAll((pairs, _beside_nulls(_without_match(node), node.columns)))
        case JoinKind.FULL:
            pairs = replace(node, kind=JoinKind.INNER)
            alone = [_without_match(one) for one in (node, node.mirrored(node.kind))]
            return UnionAll((pairs, *(_beside_nulls(one, node.columns) for one in alone)))


def _without_match(node: Join) -> Node:
    """The left rows for which there is no match: all, less those that have one."""
    return UnionAll((node.left, Weigh(_with_match(node), Expression("-1"))))


def _with_match(node: Join) -> Node:
    """The left rows that have a match, each as often as it is there."""
    by, matches = _matches(node)
    names = _match_names(matches.columns, node.left.columns)
    keys = tuple(names[: len(by)])
    if not by:
        null_safe: tuple[bool, ...] = ()
    elif node.condition is None:
        null_safe = node.null_safe
    else:
        null_safe = (True,) * len(by)
    beside = renamed(matches, dict(zip(matches.columns, names, strict=True)))
    return only(Join(node.left, beside, by, keys, null_safe=null_safe), node.left.columns)


def _matches(node: Join) -> tuple[tuple[str, ...], Node]:
    """Columns of the left side, and the distinct values of them for which there is a match.

    Without a condition these are the right side's keys; with one, left rows are joined in no more
    than the columns that decide.
    """
    if node.condition is None:
        if not node.keys:
            one = Project(node.right, (Output("_one", Expression("1")),))
            return (), _distinct(one)
        listed = node.right
        for _, right, null_safe in node.keys:
            if not null_safe:
                # null has no match: it need not be remembered
                listed = Filter(listed, Expression(f"`{right}` IS NOT NULL", (right,)))
        # a column that is equated twice is two columns here
        names = _match_names(node.right_keys)
        outputs = map(Output, names, map(Expression.column, node.right_keys))
        return node.left_keys, _distinct(Project(listed, tuple(outputs)))
    condition = set(node.condition.references)
    by = tuple(c for c in node.left.columns if c in condition or c in node.left_keys)
    if not by:
        kept = Filter(node.right, node.condition)
        one = Project(kept, (Output("_one", Expression("1")),))
        return (), _distinct(one)
    theirs = tuple(c for c in node.right.columns if c in condition or c in node.right_keys)
    pairs = replace(
        node,
        left=only(node.left, by),
        right=only(node.right, theirs),
        kind=JoinKind.INNER,
    )
    return by, _distinct(only(pairs, by))


def _match_names(columns: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    return fresh_names((f"_match_{column.lstrip('_')}" for column in columns), taken)


def _distinct(node: Node) -> Node:
    """The rows once each; those of groups are that already where all keys are there."""
    if _is_distinct(node, frozenset(node.columns)):
        return node
    return Aggregate(node, node.columns, ())


def _is_distinct(node: Node, columns: frozenset[str]) -> bool:
    """True where no two rows are equal in the columns."""
    match node:
        case Aggregate():
            return frozenset(node.keys) <= columns
        case Filter():
            return _is_distinct(node.input, columns)
        case Project():
            kept: Mapping[str, str] = {
                o.expression.references[0]: o.name for o in node.outputs if o.expression.is_column
            }
            read = frozenset(old for old, new in kept.items() if new in columns)
            return _is_distinct(node.input, read)
        case _:
            return False


def _beside_nulls(node: Node, columns: tuple[str, ...]) -> Node:
    """Rows of one side as rows of both."""
    return Project(
        node,
        tuple(
            Output(c, Expression.column(c) if c in node.columns else Expression("NULL"))
            for c in columns
        ),
    )
