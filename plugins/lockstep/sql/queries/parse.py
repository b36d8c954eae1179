"""Queries: from syntax to plan nodes, written out naively.

A query is lowered clause by clause in the order in which SQL evaluates them: FROM (joins are cross
products under a filter), WHERE, then the rest of the SELECT. `rewrites` makes keys out of equalities
and moves filters and columns to where they are cheap.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlglot import exp

from lockstep.errors import Position, ProjectError
from lockstep.sql.plans.columns import as_they_are, only, renamed
from lockstep.sql.plans.loops import leaf_of_level
from lockstep.sql.plans.nesting import ShapesOf
from lockstep.sql.plans.nodes import (
    Aggregate,
    AggregateCall,
    AggregateFunction,
    Expression,
    Filter,
    Node,
    Output,
    Project,
    Scan,
    SortKey,
    UnionAll,
    Weigh,
)
from lockstep.sql.queries.constant_rows import ONE_ROW
from lockstep.sql.queries.functions import refuse
from lockstep.sql.queries.inlining import inline
from lockstep.sql.queries.limits import limit_of, limited
from lockstep.sql.queries.lowering import ExpressionLowering
from lockstep.sql.queries.recursions import body_of, parts_of_recursion, recursion, refers
from lockstep.sql.queries.relations import Relations
from lockstep.sql.queries.scope import Environment, Lowered, Scope
from lockstep.sql.queries.select_list import Item, listed, own_name, sort_nodes
from lockstep.sql.queries.selecting import SelectLowering
from lockstep.sql.queries.subqueries import Subqueries
from lockstep.sql.reading.syntax import SourceText
from lockstep.sql.reading.tokens import SAMPLE

__all__ = ["Environment", "lower_query", "output_position"]


def lower_query(source: SourceText, query: Any, environment: Environment) -> Lowered:
    """The plan of a query. Raises ProjectError, NotSupported with positions in `source`."""
    return _Queries(source).query(query, environment)


# Clauses that a query may have, by sqlglot's names; every other one is refused.
_SELECT_CLAUSES = frozenset(
    {
        *("with_", "expressions", "hint", "distinct", "from_", "joins", "laterals", "where"),
        *("group", "having", "windows", "qualify", "order", "limit", "offset"),
    }
)
_SET_CLAUSES = frozenset({"with_", "this", "expression", "distinct", "order", "limit", "offset"})
_PARENTHESES = frozenset({"this", "alias", "joins", "pivots", "with_", "order", "limit", "offset"})
_OF_PLACES = frozenset({"sort", "distribute", "cluster"})
"""Without LIMIT they say nothing about the rows of a view."""
_INSTEAD = {
    **{
        name: (f"{name.upper()} BY before LIMIT", "write ORDER BY, which is an order of all rows")
        for name in sorted(_OF_PLACES)
    },
    "sample": SAMPLE,
    "version": ("time travel", "name the table only"),
}


class _Queries:
    def __init__(self, source: SourceText) -> None:
        self.source = source
        self._relations = Relations(source, self.query, self.only)
        self._leaves = 0

    def query(self, query: Any, environment: Environment) -> Lowered:
        match query:
            case exp.Subquery():
                self.only(query, _PARENTHESES)
                inner = self.query(query.this, self._with(query, environment))
                return self._ordered(query, inner)
            case exp.Select():
                self.only(query, _SELECT_CLAUSES)
                return self._select(query, self._with(query, environment))
            case exp.SetOperation():
                self.only(query, _SET_CLAUSES)
                return self._ordered(
                    query, self._set_operation(query, self._with(query, environment))
                )
            case exp.Values():
                return self._relations.values(query)
            case exp.Table():
                return self._relations.table(query, environment)
            case _:
                raise ProjectError(
                    "a view is made of a query",
                    position=self.source.position_of(query),
                    expected="SELECT ... FROM ...",
                    found=query.sql("spark")[:80],
                )

    def only(self, node: Any, allowed: frozenset[str]) -> None:
        """Refuse a clause that is not among those allowed."""
        if not any(node.args.get(clause) for clause in ("limit", "offset")):
            allowed |= _OF_PLACES
        for name, value in node.args.items():
            if name in allowed or not value:
                continue
            clause, instead = _INSTEAD.get(
                name, (name.rstrip("_").upper(), "write the query without it")
            )
            part = value[0] if isinstance(value, list) else value
            at = part if isinstance(part, exp.Expr) else node
            raise refuse(self.source, at, clause, instead)

    def _with(self, query: Any, environment: Environment) -> Environment:
        clause = query.args.get("with_")
        if clause is None:
            return environment
        for cte in list(clause.expressions):
            if clause.args.get("recursive") and refers(body_of(cte), cte.alias):
                lowered = self._recursion(cte, replace(environment, outer=None))
                environment = environment.plus(cte.alias, lowered)
                continue
            try:
                lowered = self.query(cte.this, replace(environment, outer=None))
            except ProjectError:
                if environment.outer is None:
                    raise
                # it reads the query around: then it is the subquery that it stands for
                if not inline(query, cte):
                    self.query(
                        cte.this, replace(environment, outer=replace(environment.outer, used={}))
                    )
                continue
            named = self._relations.renamed(cte.args.get("alias"), lowered)
            environment = environment.plus(cte.alias, named)
        return environment

    def _recursion(self, cte: Any, environment: Environment) -> Lowered:
        """A common table expression that reads itself: anchor UNION ALL step."""
        environment = self._with(body_of(cte), environment)
        anchor, step = parts_of_recursion(self.source, cte)
        first = self.query(anchor, environment)
        named = self._relations.renamed(cte.args.get("alias"), first)
        self._leaves += 1
        leaf, columns = leaf_of_level(self._leaves), first.node.columns
        before = Scan(leaf, columns, ShapesOf(first.node))
        again = self.query(step, environment.plus(cte.alias, replace(named, node=before)))
        self._check_width(cte.this, step, first, again)
        nodes = (first.node, _with_names(again.node, columns))
        return replace(named, node=recursion(self.source, cte, *nodes, before.source))

    def _select(self, select: Any, environment: Environment) -> Lowered:
        source = select.args.get("from_")
        if source is None:
            scope = Scope(ONE_ROW, ())
        else:
            scope = self._relations.relation(source.this, environment, Scope(ONE_ROW, ()))
        for join in select.args.get("joins") or []:
            scope = self._relations.join(scope, join, environment)
        for lateral in select.args.get("laterals") or []:
            scope = self._relations.lateral(scope, lateral, environment)
        scope = scope.inside(environment.outer)
        subqueries = Subqueries(self.source, self.query, environment)
        where = select.args.get("where")
        if where is not None:
            scope = subqueries.where(scope, where.this)
        return SelectLowering(self.source, scope, select, subqueries).lower()

    # ── set operations ──────────────────────────────────────────────────────────────────────────

    def _set_operation(self, query: Any, environment: Environment) -> Lowered:
        is_union_all = isinstance(query, exp.Union) and query.args.get("distinct") is False
        operands = self._operands(query) if is_union_all else [query.this, query.expression]
        branches = [self.query(operand, environment) for operand in operands]
        first = branches[0]
        for operand, branch in zip(operands[1:], branches[1:], strict=True):
            self._check_width(query, operand, first, branch)
        names = first.node.columns
        nodes = [_with_names(branch.node, names) for branch in branches]
        distinct = query.args.get("distinct") is not False
        if isinstance(query, exp.Union):
            node: Node = UnionAll(tuple(nodes))
            if distinct:
                node = Aggregate(node, names, ())
        else:
            node = _compared(nodes[0], nodes[1], isinstance(query, exp.Intersect), distinct)
        return Lowered(node, first.written, first.carried)

    def _check_width(self, query: Any, operand: Any, first: Lowered, other: Lowered) -> None:
        if len(other.written) != len(first.written):
            raise ProjectError(
                f"the two sides of {type(query).__name__.upper()} differ in their number of columns",
                position=self.source.position_of(operand),
                expected=f"{len(first.written)} columns ({', '.join(first.written)})",
                found=f"{len(other.written)} ({', '.join(other.written)})",
            )

    def _operands(self, query: Any) -> list[Any]:
        """The operands of a chain of UNION ALL, from left to right."""
        left = query.this
        bare = isinstance(left, exp.Union) and left.args.get("distinct") is False
        if bare and not any(
            value
            for name, value in left.args.items()
            if name not in ("this", "expression", "distinct")
        ):
            return [*self._operands(left), query.expression]
        return [left, query.expression]

    def _ordered(self, query: Any, lowered: Lowered) -> Lowered:
        """ORDER BY and LIMIT behind a set operation or parentheses: over the columns by name."""
        limit = limit_of(self.source, query)
        if limit is None:
            return lowered
        scope = Scope.over(replace(lowered, carried=()), None)
        lowering = ExpressionLowering(self.source, scope)
        keys = []
        items = [Item(name, column=name) for name in lowered.node.columns]
        for one in sort_nodes(query, len(lowered.written)):
            item = listed(self.source, one.this, items, "ORDER BY")
            expression = Expression.column(item.column) if item else lowering.lower(one.this)
            keys.append(
                SortKey(expression, bool(one.args.get("desc")), bool(one.args.get("nulls_first")))
            )
        node = limited(lowered.node, limit, tuple(keys), lowered.carried, lowered.node.columns)
        return replace(lowered, node=node, over_nothing=None)


def _compared(left: Node, right: Node, intersects: bool, distinct: bool) -> Node:
    """INTERSECT and EXCEPT: each row as often as its two counts say."""
    columns = left.columns
    sides = tuple(
        Project(
            side,
            (
                *as_they_are(columns),
                Output("_left", Expression("1L" if place == 0 else "0L")),
                Output("_right", Expression("1L" if place == 1 else "0L")),
            ),
        )
        for place, side in enumerate((left, right))
    )
    counted: Node = Aggregate(
        UnionAll(sides),
        columns,
        (
            AggregateCall("_lefts", AggregateFunction.SUM, "_left"),
            AggregateCall("_rights", AggregateFunction.SUM, "_right"),
        ),
    )
    read = ("_lefts", "_rights")
    if distinct:
        sign = ">" if intersects else "="
        counted = Filter(counted, Expression(f"`_lefts` > 0 AND `_rights` {sign} 0", read))
    else:
        times = "least(`_lefts`, `_rights`)" if intersects else "greatest(`_lefts` - `_rights`, 0L)"
        counted = Weigh(counted, Expression(times, read))
    return only(counted, columns)


def _with_names(node: Node, names: tuple[str, ...]) -> Node:
    if node.columns == names:
        return node
    return renamed(node, dict(zip(node.columns, names, strict=True)))


def output_position(source: SourceText, query: Any, name: str) -> Position | None:
    """Where a query names an output column: its item, or the `*` that brings it along.

    A set operation has the names of its first operand.
    """
    while isinstance(query, exp.Subquery | exp.SetOperation):
        query = query.this
    items = query.expressions if isinstance(query, exp.Select) else []
    named = [item for item in items if (item.alias or own_name(item)).lower() == name.lower()]
    for item in named or [item for item in items if item.is_star]:
        return source.position_of(item)
    return None
