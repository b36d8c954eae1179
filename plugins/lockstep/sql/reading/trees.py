"""What can be said of a syntax node by itself, without the text around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from sqlglot import exp

__all__ = [
    "MEANT",
    "PLACE",
    "SPAN",
    "children",
    "copy_with_words",
    "function_name",
    "identifier_parts",
    "outermost",
    "span_of",
    "without_parentheses",
]

SPAN = "lockstep_span"
"""Where a node's meta holds the first and the last character that it was read from."""

MEANT = "lockstep_meant"
"""In the meta of a column that was not read: the plan's column, and fields below it."""
PLACE = "lockstep_place"
"""In the meta of a number: whether it is the place of a column in the rows that are read, or itself."""


def children(node: Any) -> list[Any]:
    """The direct sub-nodes of a syntax node."""
    return list(node.iter_expressions())


def outermost(node: Any, is_wanted: Callable[[Any], object]) -> Iterator[Any]:
    """The parts of an expression that are wanted; none inside of another one, or of a subquery."""
    if is_wanted(node):
        yield node
        return
    if isinstance(node, exp.Query):
        return
    for child in children(node):
        yield from outermost(child, is_wanted)


def span_of(node: Any) -> tuple[int, int] | None:
    """First and last character (both inclusive) of what `node` was read from, None if unknown."""
    meta = node.meta
    if not isinstance(node, exp.Column):
        if SPAN in meta:
            return meta[SPAN]  # type: ignore[no-any-return]
        if isinstance(node, exp.Identifier) and "start" in meta:
            return meta["start"], meta["end"]
    spans = [span for span in map(span_of, children(node)) if span]
    if spans:
        return min(first for first, _ in spans), max(last for _, last in spans)
    return meta.get(SPAN)  # type: ignore[no-any-return]


def without_parentheses(node: Any) -> Any:
    """What stands in parentheses, and in those around it; else the node itself."""
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def copy_with_words(node: Any, like: Any) -> Any:
    """A node that was not read, in the place of one that was: what is said of it names that place."""
    span = span_of(like)
    if span is not None:
        node.meta[SPAN] = span
    return node


def function_name(node: Any) -> str:
    """The lower-case name of a function call, '' for anything else."""
    if not isinstance(node, exp.Anonymous):
        return ""
    name = node.this
    return (name.name if isinstance(name, exp.Identifier) else str(name)).lower()


def identifier_parts(node: Any) -> list[Any]:
    """The identifiers of a column or table from left to right; of anything else, none."""
    if not isinstance(node, exp.Column | exp.Table):
        return []
    return [
        part for part in (node.args.get(key) for key in ("catalog", "db", "table", "this")) if part
    ]
