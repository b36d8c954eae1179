"""`FROM t |> WHERE ... |> SELECT ...`: a query by steps, as one of subqueries.

sqlglot puts a step into the SELECT that it has so far, whatever that holds: a WHERE behind a LIMIT, or
before a FULL JOIN, would be another one there. Here a step joins a SELECT that means the same with it,
so that names of relations can still be written, and else reads it as a subquery.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlglot import exp
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokens import TokenType

from lockstep.sql.reading.trees import PLACE

__all__ = ["PipeParser"]

_CLAUSES = (
    *("joins", "laterals", "sample", "where", "group", "having", "qualify", "windows", "distinct"),
    *("order", "limit", "offset"),
)
_OF_ROWS = {"joins", "laterals", "where"}
_AFTER: dict[str, set[str]] = {
    **{word: _OF_ROWS | {"order"} for word in ("WHERE", "ORDER", "ORDER BY", "LIMIT", "OFFSET")},
    **dict.fromkeys(("SELECT", "EXTEND", "AGGREGATE", "DISTINCT"), _OF_ROWS),
    **{word: {"joins"} for word in ("JOIN", "INNER", "CROSS", "LEFT", "RIGHT", "FULL", "NATURAL")},
}
"""By the word that a step begins with, behind which clauses of a SELECT it can stand in it."""
_LIKE = {TokenType.LIKE, TokenType.ILIKE}
_OF_PLACES = (TokenType.SORT_BY, TokenType.DISTRIBUTE_BY, TokenType.CLUSTER_BY)
_SETS = (TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT)
_OF_WHOLE = (TokenType.ORDER_BY, TokenType.LIMIT, TokenType.OFFSET)
_OF_ROWS_IN_ORDER = {"order", "limit", "offset"}
_OF_LIST = {"expressions", "distinct", "windows", "kind", "hint", "operation_modifiers"}
"""What `|> SELECT` may have."""


class PipeParser(SparkParser):  # type: ignore[misc]
    """Spark's grammar: the steps of a query, and what else sqlglot reads otherwise."""

    NO_PAREN_FUNCTION_PARSERS: Mapping[str, Any] = {
        **SparkParser.NO_PAREN_FUNCTION_PARSERS,
        "ANY": lambda self: self.any_of(),
    }

    def any_of(self) -> Any:
        """ANY behind LIKE, or else the aggregate."""
        first = self._prev
        before = self._tokens[self._index - 2].token_type if self._index > 1 else None
        if before in _LIKE or not self._match(TokenType.L_PAREN):
            return self.expression(exp.Any(this=self._parse_bitwise()))
        call = self.any_call(first)
        self._match_r_paren()
        return call

    def any_call(self, _: Any) -> Any:
        """The aggregate, behind its word and a parenthesis."""
        return self.expression(exp.LogicalOr(this=self._parse_disjunction()))

    def _parse_join(self, *arguments: Any, **options: Any) -> Any:
        """The ON true is none that the grammar writes behind LATERAL where there is no ON."""
        join = super()._parse_join(*arguments, **options)
        is_lateral = isinstance(join, exp.Join) and isinstance(join.this, exp.Lateral)
        if is_lateral and isinstance(join.args.get("on"), exp.Boolean):
            join.set("on", join.args["on"] if self._prev.token_type is TokenType.TRUE else None)
        return join

    def _parse_pipe_syntax_query(self, query: Any) -> Any:
        query = self._steps(query)
        while query is not None and self._ahead() in _SETS:
            query = self._steps(self._parse_set_operations(_around(query)))
        # what follows without |> is of the whole
        return _around(query) if self._ahead() in _OF_WHOLE else query

    def _ahead(self) -> TokenType | None:
        return self._curr.token_type if self._curr else None

    def _steps(self, query: Any) -> Any:
        if self._ahead() is not TokenType.PIPE_GT:
            return query
        if not isinstance(query, exp.Select) or not query.args.get("from_"):
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
            case "AGGREGATE":
                return self._pipe_aggregate(query)
            case "EXTEND":
                self._advance()
                return query.select(*self._parse_expressions())
            case "AS":
                self._advance()
                return _of(query, "*", self._parse_id_var())
            case "DROP":
                self._advance()
                return _of(query, exp.Star(except_=self._parse_csv(self._parse_id_var)))
            case "SET":
                self._advance()
                for column, value in self._parse_csv(self._assignment):
                    assigned = exp.alias_(value, column, copy=False)
                    query = _of(query, exp.Star(assigned=[assigned]))
                return query
            case "LIMIT" | "OFFSET":
                query.set("limit", self._parse_limit())
                query.set("offset", self._parse_offset())
                return query
            case "SORT BY" | "DISTRIBUTE BY" | "CLUSTER BY":
                # of the order and the place of rows, of which a view has none
                while self._match_set(_OF_PLACES):
                    self._parse_csv(self._parse_ordered)
                return query
        step = self.PIPE_SYNTAX_TRANSFORM_PARSERS.get(word)
        if step is not None:
            return step(self, query)
        return self._parse_pipe_syntax_set_operator(query) or self._parse_pipe_syntax_join(query)

    def _pipe_select(self, query: Any) -> Any:
        """With what stands beside the list: DISTINCT, and windows that have names."""
        written = self._parse_select(consume_pipe=False, parse_set_operation=False)
        if not isinstance(written, exp.Select):
            self.raise_error("only a list can stand behind |> SELECT")
        allowed = _OF_LIST | _OF_ROWS_IN_ORDER
        others = sorted(key for key, value in written.args.items() if value and key not in allowed)
        if others:
            self.raise_error(f"only a list can stand behind |> SELECT, and not {others[0].upper()}")
        query = query.select(*written.expressions, append=False)
        for clause in ("distinct", "windows"):
            query.set(clause, written.args.get(clause))
        query = _around(query)
        # which stand behind the list, and are of the whole
        for clause in sorted(_OF_ROWS_IN_ORDER):
            query.set(clause, written.args.get(clause))
        return query

    def _pipe_aggregate(self, query: Any) -> Any:
        """The keys and then the aggregates; a key's own name is none of the rows that are grouped."""
        self._advance()
        values = [] if self._match(TokenType.GROUP_BY, advance=False) else self._parse_expressions()
        keys = self._parse_expressions() if self._match(TokenType.GROUP_BY) else []
        by = [key.this if isinstance(key, exp.Alias) else key for key in keys]
        if any(one.name.upper() == "ALL" for one in by if isinstance(one, exp.Column | exp.Var)):
            self.raise_error("keys of AGGREGATE are expressions, and not ALL")
        for key, one in zip(keys, by, strict=True):
            # with a name of its own it is the number itself
            if isinstance(one, exp.Literal) and one.name.isdigit() and not one.is_string:
                one.meta[PLACE] = key is one
        query = query.select(*keys, *values, append=False)
        if keys:
            query.set("group", exp.Group(expressions=[one.copy() for one in by]))
        return _around(query)

    def _parse_pivot_aggregation(self) -> Any:
        """An expression of aggregates, where the grammar takes a call and nothing around it."""
        return self._parse_alias(self._parse_bitwise())

    def _assignment(self) -> Any:
        column = self._parse_id_var()
        if not self._match(TokenType.EQ):
            self.raise_error("only column = expression can stand behind SET")
        return column, self._parse_expression()


def _held(query: Any) -> set[str]:
    """The clauses that a SELECT has; where it is no `SELECT * FROM`, more than a step can follow."""
    held = {clause for clause in _CLAUSES if query.args.get(clause)}
    if not _is_plain(query):
        held.add("list")
    elif query.args["from_"].this.args.get("pivots"):
        held.add("pivots")
    return held


def _is_plain(query: Any) -> bool:
    if not isinstance(query, exp.Select) or len(query.expressions) != 1:
        return False
    [listed] = query.expressions
    return isinstance(listed, exp.Star) and not any(listed.args.values())


def _around(query: Any) -> Any:
    """SELECT * of a query."""
    if isinstance(query, exp.Subquery):
        return exp.select("*").from_(query, copy=False)
    return _of(query, "*")


def _of(query: Any, listed: Any, alias: Any = None) -> Any:
    """SELECT something of a query, which may have a name, or keeps that of the relation it shows."""
    named = query.subquery(alias or _shown(query), copy=False)
    return exp.select(listed, copy=False).from_(named, copy=False)


def _shown(query: Any) -> str | None:
    """The name of the one relation whose columns a query shows as they are, with others perhaps."""
    if not isinstance(query, exp.Select) or not isinstance(query.expressions[0], exp.Star):
        return None
    if not query.args.get("from_") or {"joins", "laterals"} & _held(query):
        return None
    first = query.args["from_"].this
    return None if first.args.get("pivots") else first.alias_or_name or None
