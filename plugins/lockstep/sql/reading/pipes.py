"""`FROM t |> WHERE ... |> SELECT ...`: a query by steps, as one of subqueries.

sqlglot puts a step into the SELECT that it has so far, whatever that holds: a WHERE behind a LIMIT, or
before a FULL JOIN, would be another one there. Here a step joins a SELECT that means the same with it,
so that names of relations can still be written, and else reads it as a subquery.
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokens import TokenType

__all__ = ["PipeParser"]

_CLAUSES = (
    *("joins", "where", "group", "having", "qualify", "windows", "distinct", "order"),
    *("limit", "offset"),
)
_AFTER: dict[str, set[str]] = {
    "WHERE": {"joins", "where", "order"},
    "ORDER": {"joins", "where", "order"},
    "ORDER BY": {"joins", "where", "order"},
    "LIMIT": {"joins", "where", "order"},
    "OFFSET": {"joins", "where", "order"},
    "SELECT": {"joins", "where"},
    "EXTEND": {"joins", "where"},
    "AGGREGATE": {"joins", "where"},
    "DISTINCT": {"joins", "where"},
    "JOIN": {"joins", "where"},
    "INNER": {"joins", "where"},
    "CROSS": {"joins", "where"},
    "LEFT": {"joins", "where"},
    "RIGHT": {"joins"},
    "FULL": {"joins"},
    "NATURAL": {"joins"},
}
"""By the word that a step begins with, behind which clauses of a SELECT it can stand in it."""


class PipeParser(SparkParser):  # type: ignore[misc]
    """Spark's grammar, with the steps of a query as Spark takes them."""

    def _parse_pipe_syntax_query(self, query: Any) -> Any:
        if isinstance(query, exp.Subquery) or not query.args.get("from_"):
            query = _around(query)
        while self._match(TokenType.PIPE_GT):
            word = self._curr.text.upper()
            if _held(query) - _AFTER.get(word, set()):
                query = _around(query)
            found = self._pipe_step(query, word)
            if found is None:
                self.raise_error(f"Unsupported pipe syntax operator: '{word}'.")
                break
            query = found
        return query

    def _pipe_step(self, query: Any, word: str) -> Any:
        match word:
            case "SELECT":
                return self._pipe_select(query)
            case "AS":
                return exp.select("*").from_(query.subquery(self._alias_of_step(), copy=False))
            case "DROP":
                self._advance()
                star = exp.Star(except_=self._parse_csv(self._parse_id_var))
                return exp.select(star).from_(query.subquery(copy=False))
            case "SET":
                self._advance()
                for one in self._parse_csv(self._parse_expression):
                    query = _with_other(query, one)
                return query
            case "LIMIT" | "OFFSET":
                query.set("limit", self._parse_limit())
                query.set("offset", self._parse_offset())
                return query
        step = self.PIPE_SYNTAX_TRANSFORM_PARSERS.get(word)
        if step is not None:
            return step(self, query)
        return self._parse_pipe_syntax_set_operator(query) or self._parse_pipe_syntax_join(query)

    def _pipe_select(self, query: Any) -> Any:
        """With what stands beside the list: DISTINCT, and windows that have names."""
        written = self._parse_select(consume_pipe=False)
        query = query.select(*written.expressions, append=False)
        for clause in ("distinct", "windows"):
            query.set(clause, written.args.get(clause))
        return _around(query)

    def _alias_of_step(self) -> Any:
        self._advance()
        return self._parse_id_var()


def _held(query: Any) -> set[str]:
    """The clauses that a SELECT has; where it is no `SELECT * FROM`, more than a step can follow."""
    is_plain = isinstance(query, exp.Select) and [str(one) for one in query.expressions] == ["*"]
    held = {clause for clause in _CLAUSES if query.args.get(clause)}
    return held if is_plain else {"list", *held}


def _around(query: Any) -> Any:
    """SELECT * of a query."""
    within = query if isinstance(query, exp.Subquery) else query.subquery(copy=False)
    return exp.select("*").from_(within, copy=False)


def _with_other(query: Any, assignment: Any) -> Any:
    """The query with `column = expression` in the column's place."""
    column, value = assignment.this, assignment.expression
    star = exp.Star(assigned=[exp.alias_(value, column.this, copy=False)])
    return exp.select(star).from_(query.subquery(copy=False), copy=False)
