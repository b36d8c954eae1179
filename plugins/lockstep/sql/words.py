"""One item of a SELECT list that is given as text, its columns replaced: for views written in Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from lockstep.errors import Position
from lockstep.sql.queries.functions import contains_aggregate, is_generator, refuse
from lockstep.sql.queries.select_list import own_name
from lockstep.sql.reading.syntax import SourceText
from lockstep.sql.reading.trees import identifier_parts

__all__ = ["Item", "read_item"]

_SELECT = "SELECT "


@dataclass(frozen=True)
class Item:
    """An item in words, and the names after AS or else the one that Spark gives it, '' for none.

    `star` is the qualifier of a `*`, None for anything else. `column` is there for a bare column: its
    dotted name.
    """

    text: str
    names: tuple[str, ...]
    star: str | None = None
    column: tuple[str, ...] = ()
    aggregates: bool = False
    generates: bool = False


class _Statement(SourceText):
    """SELECT and the item: what can be parsed."""

    def __init__(self, item: SourceText) -> None:
        super().__init__(item.file, f"{_SELECT}{item.text}")
        self._item = item

    def position(self, offset: int) -> Position:
        return self._item.position(max(0, offset - len(_SELECT)))


def read_item(
    source: SourceText, resolve: Callable[[Sequence[str]], str], what: str = "the expression"
) -> Item:
    """The item that is the whole of `source`. `resolve` gives the words for a dotted name.

    Raises ProjectError, NotSupported.
    """
    statement = _Statement(source)
    query = statement.parse(statement.tokens, what)
    items = query.expressions if isinstance(query, exp.Select) else []
    if len(items) != 1 or set(_clauses(query)) != {"expressions"}:
        raise refuse(
            statement, query, "more than one expression", "write each as a text of its own"
        )
    (node,) = items
    star = node.this if isinstance(node, exp.Column) else node
    if isinstance(star, exp.Star):
        return Item("*", (), star=node.table if isinstance(node, exp.Column) else "")
    names: tuple[str, ...] = (own_name(node),)
    if isinstance(node, exp.Alias):
        node, names = node.this, (node.alias,)
    elif isinstance(node, exp.Aliases):
        node, names = node.this, tuple(part.name for part in node.expressions)
    subquery = node.find(exp.Query)
    if subquery is not None:
        raise refuse(
            statement, subquery, "a subquery in a text", "write the query with spark.sql(...)"
        )
    column = identifier_parts(node) if isinstance(node, exp.Column) else []
    return Item(
        statement.render(node, lambda part: _replaced(part, resolve)),
        names,
        column=tuple(part.name for part in column),
        aggregates=contains_aggregate(node),
        generates=is_generator(node),
    )


def _clauses(query: Any) -> list[str]:
    return [name for name, value in query.args.items() if value]


def _replaced(node: Any, resolve: Callable[[Sequence[str]], str]) -> str | None:
    if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
        return None
    parts = [part.name for part in identifier_parts(node)]
    around = node.find_ancestor(exp.Lambda)
    while around is not None:
        if parts[0].lower() in {one.name.lower() for one in around.expressions}:
            return None
        around = around.find_ancestor(exp.Lambda)
    return resolve(parts)
