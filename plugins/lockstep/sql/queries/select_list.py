"""The SELECT list: its items with their names, and what GROUP BY and ORDER BY name of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from lockstep.errors import ProjectError
from lockstep.sql.queries.functions import contains_aggregate, is_session, is_window
from lockstep.sql.queries.scope import AmbiguousError, Field, NoSuchColumnError, Scope
from lockstep.sql.queries.stars import is_star, starred
from lockstep.sql.reading.syntax import SourceText
from lockstep.sql.reading.trees import (
    PLACE,
    copy_with_words,
    function_name,
    identifier_parts,
    without_parentheses,
)

__all__ = [
    "Item",
    "group_keys",
    "list_items",
    "listed",
    "own_name",
    "sort_nodes",
]


@dataclass(frozen=True)
class Item:
    """One item of the SELECT list: an expression, or (from `*`) a column of the plan.

    `names` are those after AS: a function that makes rows can have several.
    """

    name: str
    node: Any = None
    column: str = ""
    names: tuple[str, ...] = ()


def list_items(source: SourceText, scope: Scope, select: Any) -> list[Item]:
    """The items of a SELECT list, `*` as its columns. Raises ProjectError, NotSupported."""
    items: list[Item] = []
    for node in map(without_parentheses, select.expressions):
        if is_star(node):
            items += (
                Item(name, column=value) if isinstance(value, str) else Item(name, value)
                for name, value in starred(source, scope, node)
            )
        elif node.meta.get(PLACE):
            field = _at_place(source, scope, node)
            items.append(Item(field.written, column=field.column))
        elif isinstance(node, exp.Alias):
            items.append(Item(node.alias, without_parentheses(node.this), names=(node.alias,)))
        elif isinstance(node, exp.Aliases):
            names = tuple(part.name for part in node.expressions)
            items.append(Item(names[0], node.this, names=names))
        else:
            items.append(Item(own_name(node), node))
    return items


def _at_place(source: SourceText, scope: Scope, node: Any) -> Field:
    """The column that the number in `|> AGGREGATE ... GROUP BY 2` means."""
    fields = scope.star() or []
    if not 1 <= int(node.name) <= len(fields):
        raise ProjectError(
            f"GROUP BY {node.name} behind |> names no column",
            position=source.position_of(node),
            expected=f"a number from 1 to {len(fields)}, of {', '.join(f.written for f in fields)}",
            found=node.name,
        )
    return fields[int(node.name) - 1]


def sort_nodes(query: Any, items: int) -> list[Any]:
    """The keys of ORDER BY; ORDER BY ALL is one for each item of the list, by its number."""
    order = query.args.get("order")
    keys = order.expressions if order is not None else []
    if len(keys) != 1 or not isinstance(keys[0].this, exp.Var) or keys[0].name.upper() != "ALL":
        for key in keys:
            key.set("this", without_parentheses(key.this))
        return list(keys)
    found = []
    for place in range(1, items + 1):
        found.append(keys[0].copy())
        found[-1].set("this", copy_with_words(exp.Literal.number(place), keys[0].this))
    return found


def own_name(node: Any) -> str:
    """The name that Spark gives to an item without AS; '' where it makes one up that is no name.

    Of a call over columns and literals that is the call itself: `sum(x)`, `count(1)`.
    """
    if isinstance(node, exp.Column):
        return str(node.name)
    if isinstance(node, exp.Dot):
        return str(node.expression.name)
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Column):
        return str(node.this.name)
    if is_window(node) or is_session(node):
        return function_name(node)
    name = function_name(node)
    arguments = [_argument_name(one) for one in node.expressions] if name else []
    return f"{name}({', '.join(arguments)})" if name and all(arguments) else ""


def _argument_name(node: Any) -> str:
    """An argument as Spark writes it in a column's name."""
    node = without_parentheses(node)
    match node:
        case exp.Star():
            return "1"
        case exp.Column():
            return str(node.name)
        case exp.Literal():
            return str(node.name)
        case exp.Distinct():
            return "DISTINCT " + ", ".join(map(_argument_name, node.expressions))
        case _:
            return own_name(node)


def listed(source: SourceText, node: Any, items: Sequence[Item], clause: str) -> Item | None:
    """The item that a number in GROUP BY or ORDER BY means; None where it is no number."""
    if not (isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit()):
        return None
    place = int(node.name)
    if not 1 <= place <= len(items):
        raise ProjectError(
            f"{clause} {place} names no item of the SELECT list",
            position=source.position_of(node),
            expected=f"a number from 1 to {len(items)}",
            found=node.name,
        )
    return items[place - 1]


def group_keys(
    source: SourceText, scope: Scope, select: Any, items: Sequence[Item]
) -> tuple[list[Any], list[list[Any]]]:
    """GROUP BY: its keys, each an expression or the name of a column, and its grouping sets.

    Without GROUPING SETS, CUBE and ROLLUP there are no sets. Ordinals, aliases and ALL are looked up
    in the list.
    """
    group = select.args.get("group")
    if group is None:
        return [], []
    if group.args.get("all"):
        every = [
            item.node if item.node is not None else item.column
            for item in items
            if item.node is None or not contains_aggregate(item.node)
        ]
        return every, []

    def key(node: Any) -> Any:
        return _group_key(source, scope, node, items)

    alternatives: list[list[list[Any]]] = []
    plain = list(group.expressions)
    # Hive's way: the keys, then WITH ROLLUP, WITH CUBE or GROUPING SETS over them
    behind = [
        one for part in ("grouping_sets", "cube", "rollup") for one in group.args.get(part) or []
    ]
    written = behind or plain
    for node in written:
        alternatives.append([[*map(key, one)] for one in _sets(node, plain)])
    if not any(isinstance(one, exp.GroupingSets | exp.Rollup | exp.Cube) for one in written):
        return [one for sets in alternatives for one in sets[0]], []
    combined: list[list[Any]] = [[]]
    for sets in alternatives:
        combined = [[*before, *one] for before in combined for one in sets]
    # all keys, in the order in which they were written
    named = map(key, plain) if behind else ()
    return [*named, *(one for sets in alternatives for keys in sets for one in keys)], combined


def _flat(parts: Sequence[list[Any]]) -> list[Any]:
    return [key for part in parts for key in part]


def _sets(node: Any, plain: Sequence[Any]) -> list[list[Any]]:
    """The sets of keys that a part of GROUP BY stands for; `plain` are those of `a, b WITH ROLLUP`."""
    match node:
        case exp.GroupingSets():
            return [one for part in node.expressions for one in _sets(part, ())]
        case exp.Rollup():
            parts = [_members(one) for one in node.expressions or plain]
            return [_flat(parts[:end]) for end in range(len(parts), -1, -1)]
        case exp.Cube():
            parts = [_members(one) for one in node.expressions or plain]
            kept = (
                [part for bit, part in enumerate(parts) if not mask >> bit & 1]
                for mask in range(1 << len(parts))
            )
            return [_flat(some) for some in kept]
        case _:
            return [_members(node)]


def _members(node: Any) -> list[Any]:
    """The keys of one set: (a, b), (a) or a."""
    node = without_parentheses(node)
    return list(node.expressions) if isinstance(node, exp.Tuple) else [node]


def _group_key(source: SourceText, scope: Scope, node: Any, items: Sequence[Item]) -> Any:
    node = without_parentheses(node)
    if PLACE in node.meta:
        return _at_place(source, scope, node).column if node.meta[PLACE] else node
    item = listed(source, node, items, "GROUP BY")
    if item is not None:
        return item.node if item.node is not None else item.column
    if isinstance(node, exp.Column) and len(identifier_parts(node)) == 1:
        try:
            scope.resolve([node.name])
        except NoSuchColumnError:
            for one in items:
                if one.node is not None and one.name.lower() == node.name.lower():
                    return one.node
        except AmbiguousError:
            return node  # said where the key is lowered
    return node
