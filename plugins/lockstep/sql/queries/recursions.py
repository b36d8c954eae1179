"""WITH RECURSIVE: the two parts of a common table expression that reads itself, and its limit."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from lockstep.errors import ProjectError
from lockstep.sql.plans.nodes import Node
from lockstep.sql.plans.recursion import StepError, recursive
from lockstep.sql.queries.functions import refuse
from lockstep.sql.reading.syntax import SourceText
from lockstep.sql.reading.trees import children

__all__ = ["LEVELS", "body_of", "parts_of_recursion", "recursion", "refers"]

LEVELS = 100
"""Spark's limit where a query says none (`spark.sql.cteRecursionLevelLimit`)."""


def refers(query: Any, name: str) -> bool:
    """Whether a query names a relation so, other than one of its own WITH."""
    is_bare = isinstance(query, exp.Table) and not query.args.get("db")
    if is_bare and query.name.lower() == name.lower():
        return True
    own = query.args.get("with_")
    if own is not None and any(cte.alias.lower() == name.lower() for cte in own.expressions):
        return False
    return any(refers(part, name) for part in children(query))


def body_of(cte: Any) -> Any:
    """The query of a common table expression, without parentheses around it."""
    query = cte.this
    while isinstance(query, exp.Subquery) and set(filter(query.args.get, query.args)) == {"this"}:
        query = query.this
    return query


def parts_of_recursion(source: SourceText, cte: Any) -> tuple[Any, Any]:
    """The anchor and the step. Raises ProjectError, NotSupported."""
    query = body_of(cte)
    clauses = ("order", "limit", "offset")
    if not isinstance(query, exp.Union) or any(query.args.get(clause) for clause in clauses):
        raise _malformed(source, cte, cte, source.words_of(query)[:80])
    if query.args.get("distinct") is not False:
        raise refuse(
            source,
            query,
            "UNION in WITH RECURSIVE, which Spark does not compute either,",
            "write UNION ALL, count the levels in a column, and use DISTINCT in what reads it",
        )
    if refers(query.this, cte.alias):
        raise _malformed(source, cte, query.this, f"an anchor that reads {cte.alias}")
    return query.this, query.expression


def _malformed(source: SourceText, cte: Any, at: Any, found: str) -> ProjectError:
    return ProjectError(
        f"{cte.alias} reads itself, and is not made of an anchor and a step",
        position=source.position_of(at),
        expected=f"rows to begin with, then UNION ALL, then one query that reads {cte.alias}",
        found=found,
        next_step="put several anchors, or several steps, in parentheses; ORDER BY and LIMIT "
        "belong outside",
    )


def recursion(source: SourceText, cte: Any, anchor: Node, step: Node, leaf: str) -> Node:
    """The plan of both parts; `leaf` is what the step reads in the place of `cte`."""
    name = f"{cte.alias} ({source.position_of(cte)})"
    try:
        return recursive(anchor, step, leaf, _limit(source, cte), name)
    except StepError as error:
        raise refuse(source, _table(cte), error.what, error.instead) from None


def _limit(source: SourceText, cte: Any) -> int:
    token = source.recursion_limit(cte)
    if token is None:
        return LEVELS
    if not token.text.isdigit() or int(token.text) < 1:
        raise ProjectError(
            f"the limit of {cte.alias} can't be read",
            position=source.position(token.start),
            expected="MAX RECURSION LEVEL and a number of 1 or more",
            found=token.text,
        )
    return int(token.text)


def _table(cte: Any) -> Any:
    """Where the step names the recursion."""
    tables = cte.this.find_all(exp.Table)
    return next(one for one in tables if one.name.lower() == cte.alias.lower())
