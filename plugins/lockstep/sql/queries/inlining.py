"""A common table expression that reads the query around, put in the place of its name."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from lockstep.sql.reading.trees import copy_with_words

__all__ = ["inline"]


def inline(query: Any, cte: Any) -> bool:
    """Each reference of the query to the expression becomes a subquery of FROM under its name; the
    expression itself is gone. False where nothing refers to it."""
    found = False
    columns = cte.args["alias"].args.get("columns")
    inside = {id(one) for one in cte.find_all(exp.Table)}
    for table in list(query.find_all(exp.Table)):
        if id(table) in inside or table.name.lower() != cte.alias.lower() or table.args.get("db"):
            continue
        own = table.args.get("alias")
        name = own.this if own is not None else table.this
        listed = (own.args.get("columns") if own is not None else None) or columns
        alias = exp.TableAlias(this=name.copy(), columns=[one.copy() for one in listed or []])
        derived = exp.Subquery(this=cte.this.copy(), alias=alias, joins=table.args.get("joins"))
        table.replace(copy_with_words(derived, table))
        found = True
    cte.pop()
    return found
