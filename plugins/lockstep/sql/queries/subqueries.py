"""Subqueries in expressions: EXISTS, IN and scalar ones become joins.

A correlated subquery is lowered once for all rows around it. Its FROM stands beside a leaf, the
distinct rows around in the columns that it names, which every row of the subquery then carries; it is
joined with the rows around by those columns. Where the subquery equates a carried column with one of
its own, the leaf is not needed: the subquery is then computed for every value that it has.
(T. Neumann and A. Kemper, "Unnesting Arbitrary Queries", BTW 2015.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from lockstep.errors import ProjectError
from lockstep.sql.names import fresh_name, fresh_names
from lockstep.sql.plans.columns import as_they_are, only, renamed
from lockstep.sql.plans.expressions import all_of, implied_for, is_null, substitute
from lockstep.sql.plans.nodes import (
    Aggregate,
    AggregateCall,
    AggregateFunction,
    Expression,
    Filter,
    Join,
    JoinKind,
    Node,
    Output,
    Project,
)
from lockstep.sql.queries.domains import resolve_leaf
from lockstep.sql.queries.functions import admit_clocks
from lockstep.sql.queries.lowering import ExpressionLowering
from lockstep.sql.queries.scope import Environment, Lowered, Outer, Scope
from lockstep.sql.reading.syntax import SourceText
from lockstep.sql.reading.trees import outermost, without_parentheses

__all__ = ["Related", "Subqueries", "beside", "completed", "is_subquery", "pairs", "subqueries_of"]

_TWO_ROWS = "raise_error('a scalar subquery has more than one row')"


def is_subquery(node: Any) -> bool:
    """True for what a subquery makes of an expression: EXISTS, IN, NOT IN, or a query in its place."""
    if isinstance(node, exp.Not):
        inner = without_parentheses(node.this)
        return isinstance(inner, exp.In) and is_subquery(inner)
    if isinstance(node, exp.In):
        return node.args.get("query") is not None
    return isinstance(node, exp.Exists | exp.Query)


def subqueries_of(node: Any) -> Iterator[Any]:
    """The subqueries of an expression, not those inside them."""
    return outermost(node, is_subquery)


def _conjuncts(node: Any) -> Iterator[Any]:
    match node:
        case exp.And():
            yield from _conjuncts(node.this)
            yield from _conjuncts(node.expression)
        case exp.Paren():
            yield from _conjuncts(node.this)
        case _:
            yield node


@dataclass(frozen=True)
class Related:
    """A subquery beside the rows around it: `values` are the columns that it shows, under names of
    their own, `written` their names in the query, and `keys` the pairs (column around, column here) in
    which a row around is equal to its rows."""

    node: Node
    written: tuple[str, ...]
    values: tuple[str, ...]
    keys: tuple[tuple[str, str], ...]
    over_nothing: tuple[Expression, ...] | None

    @property
    def tests(self) -> list[Expression]:
        """The keys as conditions."""
        return [Expression(f"`{a}` <=> `{b}`", (a, b)) for a, b in self.keys]

    @property
    def inner_keys(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(key for _, key in self.keys))


class Subqueries:
    """The subqueries of one SELECT. `lower_query` gives the plan of a query in an environment."""

    def __init__(
        self,
        source: SourceText,
        lower_query: Callable[[Any, Environment], Lowered],
        environment: Environment,
    ) -> None:
        self.source = source
        self._lower_query = lower_query
        self._environment = environment

    def where(self, scope: Scope, predicate: Any) -> Scope:
        """The rows of the scope for which a WHERE is true."""
        admit_clocks(self.source, predicate)
        plain: list[Any] = []
        others: list[Any] = []
        for part in _conjuncts(predicate):
            (others if any(True for _ in subqueries_of(part)) else plain).append(part)
        if plain:
            lowering = ExpressionLowering(self.source, scope)
            tests = [lowering.lower(part) for part in plain]
            scope = replace(
                scope, node=Filter(scope.node, all_of([*tests, *_implied(scope, tests)]))
            )
        for part in others:
            scope = self._filtered(scope, part)
        return scope

    def related(self, scope: Scope, query: Any) -> Related:
        """A subquery, also of FROM (LATERAL), over the rows of the scope."""
        while isinstance(query, exp.Subquery) and not query.args.get("with_"):
            query = query.this
        depth = self._environment.depth
        outer = Outer.around(scope, depth)
        lowered = self._lower_query(query, self._environment.within(outer))
        used = dict(outer.used)
        if scope.outer is not None:
            scope.outer.use(used.values())
        outer = Outer.around(scope, depth, only=used)
        lowered = self._lower_query(query, self._environment.within(outer if used else None))
        node = lowered.node
        if used:
            node = resolve_leaf(node, outer.leaf, scope.node, used)
        return _related(replace(lowered, node=node), scope.node.columns, used)

    def columns(self, scope: Scope, wanted: Mapping[str, Any]) -> Scope:
        """The scope with a column, of each name, that has the value of the subquery."""
        for name, node in wanted.items():
            match node:
                case exp.Exists():
                    related = self.related(scope, node.this)
                    scope = _marked(scope, related, name)
                case exp.In() | exp.Not():
                    scope = self._marked_by_values(scope, node, name)
                case _:
                    scope = self._scalar(scope, node, name)
        return scope

    def _filtered(self, scope: Scope, part: Any) -> Scope:
        """One part of a WHERE that has a subquery in it."""
        negated, node = False, part
        while isinstance(node, exp.Not | exp.Paren):
            negated ^= isinstance(node, exp.Not)
            node = node.this
        if isinstance(node, exp.Exists):
            related = self.related(scope, node.this)
            if related.over_nothing is None:
                return _joined(scope, related, related.tests, _semi(negated))
        if isinstance(node, exp.In) and node.args.get("query") is not None:
            related = self.related(scope, node.args["query"])
            if related.over_nothing is None:
                values = self._values(scope, node, related)
                return _not_in(scope, related, values) if negated else _in(scope, related, values)
        names = {_free(scope, f"_where{n}"): one for n, one in enumerate(subqueries_of(part))}
        wide = self.columns(scope, names)
        marks = {id(query): Expression.column(name) for name, query in names.items()}
        predicate = ExpressionLowering(self.source, wide).lower(
            part, lambda piece: marks.get(id(piece))
        )
        return replace(scope, node=only(Filter(wide.node, predicate), scope.node.columns))

    def _marked_by_values(self, scope: Scope, node: Any, name: str) -> Scope:
        """IN and NOT IN where they are a value, or part of a condition.

        As in Spark, such a value is never null: IN is whether there is a match, and NOT IN whether
        a filter by it would keep the row.
        """
        negated = isinstance(node, exp.Not)
        inner = without_parentheses(node.this) if negated else node
        related = self.related(scope, inner.args["query"])
        values = self._values(scope, inner, related)
        if related.over_nothing is not None:
            return _equal_to_row(scope, related, values, name, negated)
        if not negated:
            return _marked(scope, related, name, _equal(values, related.values))
        found = _free(scope, f"{name}_equal")
        marked = _marked(scope, related, found, _equal(values, related.values))
        empty, null = _free(marked, f"{name}_empty"), _free(marked, f"{name}_null")
        facts = _beside_facts(marked, related, empty, null)
        known = " AND ".join(f"({one.text}) IS NOT NULL" for one in values)
        text = f"coalesce(`{empty}`, TRUE) OR ({known} AND NOT `{null}` AND NOT `{found}`)"
        references = (empty, null, found, *(name for one in values for name in one.references))
        value = Expression(text, tuple(dict.fromkeys(references)))
        return replace(scope, node=_with(facts.node, scope.node.columns, name, value))

    def _values(self, scope: Scope, node: Any, related: Related) -> list[Expression]:
        """The left side of IN, as many values as the subquery has columns."""
        left = node.this.expressions if isinstance(node.this, exp.Tuple) else [node.this]
        if len(left) != len(related.values):
            raise ProjectError(
                "the two sides of IN differ in their number of columns",
                position=self.source.position_of(node),
                expected=f"a subquery with {len(left)} columns",
                found=f"{len(related.values)}",
            )
        lowering = ExpressionLowering(self.source, scope)
        return [lowering.lower(one) for one in left]

    def _scalar(self, scope: Scope, node: Any, name: str) -> Scope:
        related = self.related(scope, node)
        if len(related.values) != 1:
            raise ProjectError(
                "a subquery in the place of a value has more than one column",
                position=self.source.position_of(node),
                expected="one column",
                found=f"{len(related.values)}",
            )
        if related.over_nothing is None:
            related = _at_most_one(related)
        return beside(scope, related, (name,))


def beside(scope: Scope, related: Related, names: Sequence[str]) -> Scope:
    """The scope with the values of a subquery that has at most one row for each row around."""
    values = [Expression.column(value) for value in related.values]
    node: Node
    if related.over_nothing is not None and not related.keys:
        node = Join(scope.node, related.node, (), ())
    else:
        mark = _free(scope, "_found")
        found = Output(mark, Expression("TRUE"))
        marked = replace(
            related, node=Project(related.node, (*as_they_are(related.node.columns), found))
        )
        node = pairs(scope, marked, marked.tests, JoinKind.LEFT)
        nothing = related.over_nothing or (Expression("NULL"),) * len(values)
        values = [_or_else(mark, *pair) for pair in zip(values, nothing, strict=True)]
    outputs = (*as_they_are(scope.node.columns), *map(Output, names, values))
    return replace(scope, node=Project(node, outputs))


def completed(lowered: Lowered, outer: Outer) -> Lowered:
    """A query with one row for each row around, also where it aggregates nothing; `carried` stays."""
    shown = lowered.node.columns[: len(lowered.written)]
    same = {column: column for column in lowered.carried}
    related = _related(lowered, outer.columns, same)
    wide = beside(Scope(outer.scan, ()), related, shown).node
    return Lowered(only(wide, (*shown, *lowered.carried)), lowered.written, lowered.carried)


def _related(lowered: Lowered, taken: Iterable[str], around: Mapping[str, str]) -> Related:
    """A query under names beside those taken; `around` maps what it carries to the columns around."""
    columns = lowered.node.columns
    wanted = (f"_in_{column.lstrip('_')}" for column in columns)
    names = dict(zip(columns, fresh_names(wanted, taken), strict=True))
    nothing = lowered.over_nothing
    return Related(
        renamed(lowered.node, names),
        lowered.written,
        tuple(names[column] for column in columns[: len(lowered.written)]),
        tuple((around[column], names[column]) for column in lowered.carried),
        nothing and tuple(_around(one, around) for one in nothing),
    )


def _or_else(mark: str, value: Expression, nothing: Expression) -> Expression:
    """The value where there is a row, else what it is over nothing."""
    if is_null(nothing):
        return value
    return Expression(
        f"CASE WHEN `{mark}` THEN {value.text} ELSE {nothing.text} END",
        tuple(dict.fromkeys((mark, *value.references, *nothing.references))),
    )


def _implied(scope: Scope, tests: Iterable[Expression]) -> Iterator[Expression]:
    """What conditions over several relations say of one: fewer of its rows have to be remembered."""
    for one in scope.relations:
        columns = {field.column for field in one.fields}
        for test in tests:
            found = implied_for(test, columns)
            if found is not None:
                yield found


def _around(expression: Expression, used: Mapping[str, str]) -> Expression:
    """An expression over carried columns as one over the columns around."""
    found = substitute(expression, {leaf: Expression.column(c) for leaf, c in used.items()})
    assert found is not None, "columns for columns"
    return found


def _semi(negated: bool) -> JoinKind:
    return JoinKind.ANTI if negated else JoinKind.SEMI


def _free(scope: Scope, name: str) -> str:
    return fresh_name(name, scope.node.columns)


def _with(node: Node, columns: Iterable[str], name: str, value: Expression) -> Node:
    return Project(node, (*as_they_are(columns), Output(name, value)))


def pairs(scope: Scope, related: Related, tests: Iterable[Expression], kind: JoinKind) -> Join:
    """The rows of the scope joined with those of the subquery for which the tests are true."""
    found = tuple(tests)
    condition = all_of(found) if found else None
    return Join(scope.node, related.node, (), (), condition, kind)


def _joined(scope: Scope, related: Related, tests: Iterable[Expression], kind: JoinKind) -> Scope:
    return replace(scope, node=pairs(scope, related, tests, kind))


def _equal(values: list[Expression], columns: Iterable[str]) -> list[Expression]:
    return [
        Expression(f"({value.text}) = `{column}`", (*value.references, column))
        for value, column in zip(values, columns, strict=True)
    ]


def _in(scope: Scope, related: Related, values: list[Expression]) -> Scope:
    tests = [*related.tests, *_equal(values, related.values)]
    return _joined(scope, related, tests, JoinKind.SEMI)


def _not_in(scope: Scope, related: Related, values: list[Expression]) -> Scope:
    """True where the subquery is empty, or no value is null and none is equal.

    For one value without correlation that is looked up by the value; whether there are nulls, and
    whether there is any row, is one row for all.
    """
    equal = _equal(values, related.values)
    if related.keys or len(values) > 1:
        matches = all_of(equal)
        maybe = Expression(f"({matches.text}) IS NOT FALSE", matches.references)
        return _joined(scope, related, [*related.tests, maybe], JoinKind.ANTI)
    unmatched = _joined(scope, related, equal, JoinKind.ANTI)
    empty, null = _free(scope, "_is_empty"), _free(scope, "_has_null")
    value = values[0]
    test = f"`{empty}` OR (({value.text}) IS NOT NULL AND NOT `{null}`)"
    kept = Filter(
        _beside_facts(unmatched, related, empty, null).node,
        Expression(test, (empty, null, *value.references)),
    )
    return replace(scope, node=only(kept, scope.node.columns))


def _beside_facts(scope: Scope, related: Related, empty: str, null: str) -> Scope:
    """The scope with the columns of `_facts`, null where no key of the subquery is equal."""
    facts = _facts(related, empty, null)
    if not related.keys:
        return replace(scope, node=Join(scope.node, facts, (), ()))
    again = {key: f"{key}_of_facts" for key in related.inner_keys}
    same = all_of(Expression(f"`{a}` <=> `{again[b]}`", (a, again[b])) for a, b in related.keys)
    node = Join(scope.node, renamed(facts, again), (), (), same, JoinKind.LEFT)
    return replace(scope, node=node)


def _facts(related: Related, empty: str, null: str) -> Node:
    """Per key, or one row without keys: is there no row, and has a row a null? It changes seldom."""
    keys = related.inner_keys
    test = " OR ".join(f"`{column}` IS NULL" for column in related.values)
    nulls = Expression(f"CASE WHEN {test} THEN 1 END", related.values)
    below = Project(
        related.node,
        (*as_they_are(keys), Output("_null", nulls)),
    )
    counted = Aggregate(
        below,
        keys,
        (
            AggregateCall("_count", AggregateFunction.COUNT, None),
            AggregateCall("_nulls", AggregateFunction.COUNT, "_null"),
        ),
    )
    facts = Project(
        counted,
        (
            *as_they_are(keys),
            Output(empty, Expression("`_count` = 0", ("_count",))),
            Output(null, Expression("`_nulls` > 0", ("_nulls",))),
        ),
    )
    return Aggregate(facts, facts.columns, ())


def _equal_to_row(
    scope: Scope, related: Related, values: list[Expression], name: str, negated: bool
) -> Scope:
    """IN and NOT IN where the subquery always has one row."""
    names = [_free(scope, f"{name}_{place}") for place in range(len(values))]
    wide = beside(scope, related, names)
    equal = all_of(_equal(values, names))
    value = Expression(
        f"coalesce({'NOT ' if negated else ''}({equal.text}), FALSE)", equal.references
    )
    return replace(scope, node=_with(wide.node, scope.node.columns, name, value))


def _marked(scope: Scope, related: Related, name: str, equal: Sequence[Expression] = ()) -> Scope:
    """The scope with a boolean: whether there is a match, with `equal` values if there are any."""
    if related.over_nothing is not None:
        always = (*as_they_are(scope.node.columns), Output(name, Expression("TRUE")))
        return replace(scope, node=Project(scope.node, always))
    columns = (*related.inner_keys, *(related.values if equal else ()))
    mark = _free(scope, f"{name}_found")
    outputs = as_they_are(columns)
    distinct = Project(related.node, outputs or (Output("_one", Expression("1")),))
    marks = Project(
        Aggregate(distinct, distinct.columns, ()), (*outputs, Output(mark, Expression("TRUE")))
    )
    tests = [*related.tests, *equal]
    node = pairs(scope, replace(related, node=marks), tests, JoinKind.LEFT)
    value = Expression(f"`{mark}` IS NOT NULL", (mark,))
    return replace(scope, node=_with(node, scope.node.columns, name, value))


def _at_most_one(related: Related) -> Related:
    """The subquery with one row for each key; two rows are an error when they are looked at."""
    keys, value = related.inner_keys, related.values[0]
    counted = Aggregate(
        only(related.node, dict.fromkeys((*keys, value))),
        keys,
        (
            AggregateCall("_count", AggregateFunction.COUNT, None),
            AggregateCall("_value", AggregateFunction.MIN, value),
        ),
    )
    text = f"CASE WHEN `_count` > 1 THEN {_TWO_ROWS} ELSE `_value` END"
    row = Output(value, Expression(text, ("_count", "_value")))
    return replace(related, node=Project(counted, (*as_they_are(keys), row)))
