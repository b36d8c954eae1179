"""ORDER BY with LIMIT and OFFSET: the first rows of an order, as a numbering and a filter.

Where the order leaves ties, Spark may take any of the rows; here the order of all columns decides,
as what a view holds must not depend on chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from lockstep.errors import ProjectError
from lockstep.sql.plans.columns import only
from lockstep.sql.plans.nodes import (
    Expression,
    Filter,
    Node,
    SortKey,
    Window,
    WindowCall,
)
from lockstep.sql.reading.syntax import SourceText

__all__ = ["Limit", "limit_of", "limited"]

_ROW = "_row"


@dataclass(frozen=True)
class Limit:
    """Rows `offset` < n <= `offset` + `count` of the order; no `count` is all that follow."""

    count: int | None
    offset: int


def limit_of(source: SourceText, query: Any) -> Limit | None:
    """LIMIT and OFFSET of a query, None where it has neither. Raises ProjectError."""
    limit, offset = query.args.get("limit"), query.args.get("offset")
    if limit is None and offset is None:
        return None
    count = _number(source, limit, "LIMIT") if limit is not None else None
    skipped = _number(source, offset, "OFFSET") if offset is not None else 0
    return Limit(count, skipped or 0) if count is not None or skipped else None


def _number(source: SourceText, clause: Any, name: str) -> int | None:
    value = clause.args.get("expression") or clause.args.get("count")
    if isinstance(value, exp.Column | exp.Var) and value.name.upper() == "ALL":
        return None
    if isinstance(value, exp.Literal) and not value.is_string and value.name.isdigit():
        return int(value.name)
    raise ProjectError(
        f"{name} can't be read",
        position=source.position_of(value if isinstance(value, exp.Expr) else clause),
        expected=f"{name} and a number",
        found=source.words_of(clause) or name,
    )


def limited(
    node: Node,
    limit: Limit,
    order: tuple[SortKey, ...],
    partition: tuple[str, ...],
    columns: tuple[str, ...],
) -> Node:
    """The rows that the limit takes of each partition, with these columns."""
    numbered = Window(
        node, partition, (WindowCall(_ROW, Expression("row_number()"), order or _any_order(node)),)
    )
    tests = [f"`{_ROW}` > {limit.offset}"] if limit.offset else []
    if limit.count is not None:
        tests.append(f"`{_ROW}` <= {limit.offset + limit.count}")
    kept = Filter(numbered, Expression(" AND ".join(tests), (_ROW,)))
    return only(kept, columns)


def _any_order(node: Node) -> tuple[SortKey, ...]:
    return (SortKey(Expression.column(node.columns[0])),)
