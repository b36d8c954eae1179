"""USING and NATURAL: columns of both sides under one name, which `*` shows once, before the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lockstep.sql.names import fresh_name
from lockstep.sql.plans.columns import as_they_are
from lockstep.sql.plans.expressions import all_of
from lockstep.sql.plans.nodes import Expression, Filter, Join, JoinKind, Node, Output, Project
from lockstep.sql.queries.lowering import column_error
from lockstep.sql.queries.scope import (
    AmbiguousError,
    Field,
    NoSuchColumnError,
    Relation,
    Scope,
)
from lockstep.sql.reading.syntax import SourceText

__all__ = ["column_pairs", "join_on", "join_using", "merged_columns"]


def column_pairs(
    source: SourceText, join: Any, left: Scope, right: Scope, names: Sequence[str]
) -> list[tuple[str, str]]:
    """What each name is on the left, and on the right. Raises ProjectError."""
    pairs: list[tuple[str, str]] = []
    for name in names:
        try:
            pairs.append((_column(left, name), _column(right, name)))
        except (NoSuchColumnError, AmbiguousError) as error:
            raise column_error(source, join, error) from None
    return pairs


def _column(scope: Scope, name: str) -> str:
    """The column of that name, as in Spark the first of several."""
    named = (one.column for one in scope.star() or [] if one.written.lower() == name.lower())
    return next(named, None) or scope.resolve([name])[0]


def join_using(
    left: Scope,
    right: Scope,
    pair: Join,
    names: Sequence[str],
    pairs: Sequence[tuple[str, str]],
    side: str,
) -> Scope:
    """The join where the pairs are equal.

    The merged column is that of the side whose rows are all there; of a full join, whichever is
    not null.
    """
    node: Node = pair
    for a, b in pairs:
        node = join_on(node, Expression(f"`{a}` = `{b}`", (a, b)))
    if not pair.kind.shows_right:
        return replace(left, node=node)
    if pair.kind is not JoinKind.FULL:
        shown = [(b, a) if side == "RIGHT" else (a, b) for a, b in pairs]
        return merged_columns(left, right, node, shown)
    both = {column for columns in pairs for column in columns}
    new = [fresh_name(f"{a}_merged", node.columns) for a, _ in pairs]
    either = (Expression(f"coalesce(`{a}`, `{b}`)", (a, b)) for a, b in pairs)
    node = Project(node, (*as_they_are(node.columns), *map(Output, new, either)))
    relations = _hiding((*left.relations, *right.relations), both)
    merged = Relation(None, tuple(map(Field, names, new)))
    first = (*new, *(column for column in left.first if column not in new))
    return Scope(node, (*relations, merged), first, left.outer or right.outer)


def merged_columns(
    left: Scope, right: Scope, node: Node, pairs: Sequence[tuple[str, str]]
) -> Scope:
    """The scope of a join in which, of each pair, the first is shown and the second is not."""
    relations = _hiding((*left.relations, *right.relations), {hidden for _, hidden in pairs})
    merged = [shown for shown, _ in pairs]
    first = (*merged, *(column for column in left.first if column not in merged))
    return Scope(node, relations, first, left.outer or right.outer)


def join_on(node: Node, condition: Expression) -> Node:
    """A join under one more condition: a filter over an inner join, a part of ON for the others."""
    if not isinstance(node, Join) or node.kind is JoinKind.INNER:
        return Filter(node, condition)
    known = [node.condition] if node.condition is not None else []
    return replace(node, condition=all_of([*known, condition]))


def _hiding(relations: Sequence[Relation], hidden: set[str]) -> tuple[Relation, ...]:
    return tuple(
        replace(
            one,
            fields=tuple(
                replace(f, visible=f.visible and f.column not in hidden) for f in one.fields
            ),
        )
        for one in relations
    )
