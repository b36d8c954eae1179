"""Queries: from syntax to plan nodes, written out naively.

A query is lowered clause by clause in the order in which SQL evaluates them: FROM (joins are cross
products under a filter), WHERE, GROUP BY, HAVING, SELECT, DISTINCT. `rewrites` makes keys out of
equalities and moves filters and columns to where they are cheap.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from sqlglot import exp

from lockstep.errors import Position, ProjectError
from lockstep.sql.functions import refuse
from lockstep.sql.lowering import ExpressionLowering, column_error
from lockstep.sql.nodes import Aggregate, Expression, Filter, Join, Node, Output, Project, UnionAll
from lockstep.sql.scope import (
    AmbiguousError,
    Field,
    Lowered,
    NoSuchColumnError,
    Relation,
    Scope,
    closest,
)
from lockstep.sql.selecting import SelectLowering, own_name
from lockstep.sql.syntax import SourceText, identifier_parts

__all__ = ["Environment", "lower_query", "output_position", "rename_columns"]


@dataclass(frozen=True)
class Environment:
    """The relations that a query may name: key is the name in lower case.

    `qualifiers` are the dotted prefixes that mean this project: '', 'database', 'catalog.database'.
    """

    relations: Mapping[str, Lowered] = field(hash=False)
    qualifiers: tuple[str, ...] = ("",)

    def plus(self, name: str, lowered: Lowered) -> Environment:
        """With one more relation, which hides another of its name."""
        # a chain, as looking into the mapping below would lower every view of the project
        return replace(self, relations=ChainMap({name.lower(): lowered}, self._chained()))

    def _chained(self) -> MutableMapping[str, Lowered]:
        return cast(MutableMapping[str, Lowered], self.relations)


def lower_query(source: SourceText, query: Any, environment: Environment) -> Lowered:
    """The plan of a query. Raises ProjectError, NotSupported with positions in `source`."""
    return _Queries(source).query(query, environment)


# Clauses that a SELECT may have, by sqlglot's names; every other one is refused.
_SELECT_CLAUSES = frozenset(
    {"with_", "expressions", "hint", "distinct", "from_", "joins", "where", "group", "having"}
)
_UNION_CLAUSES = frozenset({"with_", "this", "expression", "distinct"})
_INSTEAD = {
    "order": ("ORDER BY", "leave it out: a view's rows have no order; sort where it is read"),
    "sort": ("SORT BY", "leave it out: a view's rows have no order"),
    "limit": ("LIMIT", "filter with WHERE, or join with a min() or max()"),
    "offset": ("OFFSET", "filter with WHERE"),
    "qualify": ("QUALIFY", "join with the min() or max() of the key"),
    "windows": ("WINDOW", "group and join: for the newest row of a key, join with its max()"),
    "laterals": ("LATERAL VIEW", "take the elements by index: `items[0]`"),
    "pivots": ("PIVOT", "write one sum(x) FILTER (WHERE ...) per column"),
    "distribute": ("DISTRIBUTE BY", "leave it out: Lockstep places rows itself"),
    "cluster": ("CLUSTER BY", "leave it out: Lockstep places rows itself"),
    "sample": ("TABLESAMPLE", "filter on a hash: `WHERE pmod(xxhash64(id), 100) < 5`"),
    "version": ("time travel", "name the table only"),
}


class _Queries:
    def __init__(self, source: SourceText) -> None:
        self.source = source

    def query(self, query: Any, environment: Environment) -> Lowered:
        match query:
            case exp.Subquery():
                self._only(query, frozenset({"this", "alias", "with_"}))
                return self.query(query.this, self._with(query, environment))
            case exp.Select():
                self._only(query, _SELECT_CLAUSES)
                return self._select(query, self._with(query, environment))
            case exp.Union():
                self._only(query, _UNION_CLAUSES)
                return self._union(query, self._with(query, environment))
            case exp.SetOperation():
                kind = type(query).__name__.upper()
                raise refuse(
                    self.source,
                    query.expression,
                    kind,
                    "join the two sides, or compare counts after UNION ALL and GROUP BY",
                )
            case exp.Values():
                raise refuse(self.source, query, "VALUES", "read the rows from a source")
            case _:
                raise ProjectError(
                    "a view is made of a query",
                    position=self.source.position_of(query),
                    expected="SELECT ... FROM ...",
                    found=query.sql("spark")[:80],
                )

    def _only(self, node: Any, allowed: frozenset[str]) -> None:
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
        if clause.args.get("recursive"):
            raise refuse(self.source, clause, "WITH RECURSIVE", "write out the levels as joins")
        for cte in clause.expressions:
            lowered = self.query(cte.this, environment)
            lowered = self._rename(cte.args.get("alias"), lowered)
            environment = environment.plus(cte.alias, lowered)
        return environment

    def _rename(self, alias: Any, lowered: Lowered) -> Lowered:
        """Column names after an alias: `t (a, b)`."""
        columns = alias.args.get("columns") if alias is not None else None
        if not columns:
            return lowered
        return rename_columns(self.source, alias, tuple(c.name for c in columns), lowered)

    def _union(self, query: Any, environment: Environment) -> Lowered:
        if query.args.get("distinct") is False:
            operands = self._union_operands(query)
        else:
            operands = [query.this, query.expression]
        branches = [self.query(operand, environment) for operand in operands]
        first = branches[0]
        for operand, branch in zip(operands[1:], branches[1:], strict=True):
            if len(branch.written) != len(first.written):
                raise ProjectError(
                    "the two sides of UNION differ in their number of columns",
                    position=self.source.position_of(operand),
                    expected=f"{len(first.written)} columns ({', '.join(first.written)})",
                    found=f"{len(branch.written)} ({', '.join(branch.written)})",
                )
        names = first.node.columns
        node: Node = UnionAll(tuple(_with_names(branch.node, names) for branch in branches))
        if query.args.get("distinct") is not False:
            node = Aggregate(node, names, ())
        return Lowered(node, first.written)

    def _union_operands(self, query: Any) -> list[Any]:
        """The operands of a chain of UNION ALL, from left to right."""
        left = query.this
        bare = isinstance(left, exp.Union) and left.args.get("distinct") is False
        if bare and not any(
            value
            for name, value in left.args.items()
            if name not in _UNION_CLAUSES or name == "with_"
        ):
            return [*self._union_operands(left), query.expression]
        return [left, query.expression]

    def _select(self, select: Any, environment: Environment) -> Lowered:
        source = select.args.get("from_")
        if source is None:
            raise refuse(self.source, select, "SELECT without FROM", "read from a source or a view")
        scope = self._relation(source.this, environment)
        for join in select.args.get("joins") or []:
            scope = self._join(scope, join, environment)
        where = select.args.get("where")
        if where is not None:
            predicate = ExpressionLowering(self.source, scope).lower(where.this)
            scope = replace(scope, node=Filter(scope.node, predicate))
        return SelectLowering(self.source, scope, select).lower()

    def _relation(self, node: Any, environment: Environment) -> Scope:
        """One entry of FROM, with the joins that stand in the same parentheses."""
        match node:
            case exp.Table() if isinstance(node.this, exp.Identifier):
                self._only(node, frozenset({"this", "db", "catalog", "alias", "joins"}))
                lowered = self._rename(node.args.get("alias"), self._table(node, environment))
                scope = Scope.over(lowered, (node.alias or node.name).lower())
            case exp.Subquery() if isinstance(node.this, exp.Table):
                self._only(node, frozenset({"this", "alias", "joins"}))
                scope = self._relation(node.this, environment)
                if node.alias:
                    raise refuse(
                        self.source,
                        node,
                        "an alias of joined relations",
                        "write (SELECT * FROM ...) AS alias",
                    )
            case exp.Subquery():
                self._only(node, frozenset({"this", "alias", "joins", "with_"}))
                lowered = self.query(node.this, self._with(node, environment))
                lowered = self._rename(node.args.get("alias"), lowered)
                scope = Scope.over(lowered, node.alias.lower() or None)
            case exp.Values():
                raise refuse(self.source, node, "VALUES", "read the rows from a source")
            case exp.Lateral():
                raise refuse(self.source, node, "LATERAL", "write it as a join")
            case _:
                raise refuse(
                    self.source,
                    node,
                    "this in FROM",
                    "name a source or a view, or write a subquery",
                )
        for join in node.args.get("joins") or []:
            scope = self._join(scope, join, environment)
        return scope

    def _table(self, node: Any, environment: Environment) -> Lowered:
        parts = [part.name for part in identifier_parts(node)]
        qualifier = ".".join(parts[:-1]).lower()
        lowered = environment.relations.get(parts[-1].lower())
        if lowered is None or qualifier not in environment.qualifiers:
            known = closest(parts[-1], sorted(environment.relations))
            raise ProjectError(
                f"there is no table or view {'.'.join(parts)!r}",
                position=self.source.position_of(node),
                expected=f"one of {', '.join(known)}"
                if known
                else "a source: CREATE TABLE ... USING kafka",
                found=".".join(parts),
                next_step="declare it in the project, or correct the name",
            )
        return lowered

    def _join(self, left: Scope, join: Any, environment: Environment) -> Scope:
        side = str(join.args.get("side") or "").upper()
        kind = str(join.args.get("kind") or "").upper()
        method = str(join.args.get("method") or "").upper()
        if side or kind in ("OUTER", "SEMI", "ANTI"):
            name = " ".join(word for word in (side, kind) if word)
            raise refuse(
                self.source,
                join,
                f"{name} JOIN",
                "use JOIN; keys without a match are found by UNION ALL, GROUP BY and HAVING",
            )
        if kind not in ("", "INNER", "CROSS") or method not in ("", "NATURAL"):
            raise refuse(self.source, join, f"{method or kind} JOIN", "use JOIN ... ON")
        self._only(join, frozenset({"this", "on", "using", "side", "kind", "method", "hint"}))
        left, right = left.beside(self._relation(join.this, environment))
        scope = self._aliases(join, left, right)
        on, using = join.args.get("on"), join.args.get("using")
        if method == "NATURAL":
            own = {f.written.lower() for f in right.star(None) or []}
            names = [f.written for f in left.star(None) or [] if f.written.lower() in own]
            return self._using(join, left, right, names)
        if using:
            return self._using(join, left, right, [part.name for part in using])
        if on is not None:
            predicate = ExpressionLowering(self.source, scope).lower(on)
            return replace(scope, node=Filter(scope.node, predicate))
        return scope

    def _aliases(self, join: Any, left: Scope, right: Scope) -> Scope:
        taken = {one.alias for one in left.relations if one.alias}
        for one in right.relations:
            if one.alias in taken:
                raise ProjectError(
                    f"two relations of FROM are named {one.alias!r}",
                    position=self.source.position_of(join),
                    expected="a name of its own for each",
                    found=one.alias or "",
                    next_step=f"write `AS` and another name after the second {one.alias}",
                )
        node = Join(left.node, right.node, (), ())
        return Scope(node, (*left.relations, *right.relations), left.first)

    def _using(self, join: Any, left: Scope, right: Scope, names: list[str]) -> Scope:
        """USING: equal columns, which `*` shows once and before the others."""
        pairs: list[tuple[str, str]] = []
        for name in names:
            try:
                pairs.append((left.resolve([name])[0], right.resolve([name])[0]))
            except (NoSuchColumnError, AmbiguousError) as error:
                raise column_error(self.source, join, error) from None
        hidden = {column for _, column in pairs}
        relations = tuple(
            Relation(
                one.alias,
                tuple(
                    Field(f.written, f.column, f.visible and f.column not in hidden)
                    for f in one.fields
                ),
            )
            for one in right.relations
        )
        node: Node = Join(left.node, right.node, (), ())
        for l_column, r_column in pairs:
            node = Filter(node, Expression(f"`{l_column}` = `{r_column}`", (l_column, r_column)))
        merged = [column for column, _ in pairs]
        first = (*merged, *(column for column in left.first if column not in merged))
        return Scope(node, (*left.relations, *relations), first)


def _with_names(node: Node, names: tuple[str, ...]) -> Node:
    if node.columns == names:
        return node
    return Project(
        node,
        tuple(
            Output(new, Expression.column(old))
            for new, old in zip(names, node.columns, strict=True)
        ),
    )


def rename_columns(
    source: SourceText, at: Any, names: tuple[str, ...], lowered: Lowered
) -> Lowered:
    """The same plan under other written names. Raises ProjectError where their number differs."""
    if len(names) != len(lowered.written):
        raise ProjectError(
            "the column list and the query differ in their number of columns",
            position=source.position_of(at) if at is not None else source.position(0),
            expected=f"{len(lowered.written)} names ({', '.join(lowered.written)})",
            found=f"{len(names)} ({', '.join(names)})",
        )
    return Lowered(lowered.node, names)


def output_position(source: SourceText, query: Any, name: str) -> Position | None:
    """Where a query names an output column: its item, or the `*` that brings it along.

    A union has the names of its first operand.
    """
    while isinstance(query, exp.Subquery | exp.Union):
        query = query.this
    items = query.expressions if isinstance(query, exp.Select) else []
    named = [item for item in items if (item.alias or own_name(item)).lower() == name.lower()]
    for item in named or [item for item in items if item.is_star]:
        return source.position_of(item)
    return None
