"""FROM: tables, subqueries, VALUES, joins, LATERAL and LATERAL VIEW become one scope."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from lockstep.errors import ProjectError
from lockstep.sql.names import closest, fresh_name, fresh_names
from lockstep.sql.plans.columns import only
from lockstep.sql.plans.expressions import all_of
from lockstep.sql.plans.nesting import shape_of
from lockstep.sql.plans.nodes import (
    Expression,
    Generate,
    Join,
    JoinKind,
    Node,
    Output,
    Project,
)
from lockstep.sql.queries.asof import asof_join
from lockstep.sql.queries.constant_rows import ONE_ROW, range_rows, values_rows
from lockstep.sql.queries.functions import admit_clocks, is_generator, refuse
from lockstep.sql.queries.lowering import ExpressionLowering
from lockstep.sql.queries.pivots import pivoted
from lockstep.sql.queries.scope import (
    Environment,
    Field,
    Lowered,
    Relation,
    Scope,
)
from lockstep.sql.queries.stage import (
    generated_names,
    generator_arguments,
    generator_call,
    only_generates,
)
from lockstep.sql.queries.subqueries import (
    Subqueries,
    beside,
    completed,
    pairs,
    subqueries_of,
)
from lockstep.sql.queries.using import column_pairs, join_on, join_using, merged_columns
from lockstep.sql.reading.syntax import SourceText
from lockstep.sql.reading.trees import (
    children,
    copy_with_words,
    function_name,
    identifier_parts,
)

__all__ = ["ONE_ROW", "Relations", "rename_columns"]

_KINDS = {
    ("", ""): JoinKind.INNER,
    ("", "INNER"): JoinKind.INNER,
    ("", "CROSS"): JoinKind.INNER,
    ("LEFT", ""): JoinKind.LEFT,
    ("LEFT", "OUTER"): JoinKind.LEFT,
    ("RIGHT", ""): JoinKind.LEFT,
    ("RIGHT", "OUTER"): JoinKind.LEFT,
    ("FULL", ""): JoinKind.FULL,
    ("FULL", "OUTER"): JoinKind.FULL,
    ("", "SEMI"): JoinKind.SEMI,
    ("LEFT", "SEMI"): JoinKind.SEMI,
    ("", "ANTI"): JoinKind.ANTI,
    ("LEFT", "ANTI"): JoinKind.ANTI,
}


class Relations:
    """The entries of FROM. `lower_query` gives the plan of a query, `only` refuses clauses."""

    def __init__(
        self,
        source: SourceText,
        lower_query: Callable[[Any, Environment], Lowered],
        only: Callable[[Any, frozenset[str]], None],
    ) -> None:
        self.source = source
        self._lower_query = lower_query
        self._only = only

    def relation(self, node: Any, environment: Environment, before: Scope) -> Scope:
        """One entry of FROM, with the joins that stand in the same parentheses.

        `before` is what stands to its left: LATERAL can read it, and then contains it.
        """
        match node:
            case exp.Table() if isinstance(node.this, exp.Identifier):
                scope = Scope.over(self.table(node, environment), (node.alias or node.name).lower())
                if not node.alias:
                    [own] = scope.relations
                    own = replace(own, qualifiers=environment.qualifiers)
                    scope = replace(scope, relations=(own,))
            case exp.Table() if is_generator(node.this):
                start = Scope(ONE_ROW, ())
                if _reads_around(node.this, start, environment):
                    start = start.inside(environment.outer)
                scope = self._generated(start, node.this, node.args.get("alias"))
            case exp.Table() if function_name(node.this) == "range":
                scope = Scope.over(
                    self.renamed(node.args.get("alias"), range_rows(self.source, node)),
                    node.alias.lower() or None,
                )
            case exp.Subquery() if _is_joined(node):
                self._only(node, frozenset({"this", "alias", "joins", "pivots"}))
                scope = self.relation(node.this, environment, before)
                if node.alias:
                    scope = self._named(scope, node)
            case exp.Subquery():
                scope = self._derived(node, environment)
            case exp.Values():
                scope = Scope.over(self.values(node), node.alias.lower() or None)
            case exp.Lateral():
                return self.lateral(before, node, environment)
            case _:
                raise refuse(
                    self.source,
                    node,
                    "this in FROM",
                    "name a source or a view, or write a subquery",
                )
        for pivot in node.args.get("pivots") or []:
            scope = pivoted(self.source, scope, pivot)
        for join in node.args.get("joins") or []:
            scope = self.join(scope, join, environment)
        return scope

    def _named(self, scope: Scope, node: Any) -> Scope:
        """Joined relations in parentheses, with a name for them all: `(a JOIN b) AS c`."""
        if scope.outer is not None:
            raise refuse(
                self.source,
                node,
                "an alias of joined relations that read a row around",
                "write (SELECT * FROM ...) AS alias",
            )
        fields = scope.star() or []
        shown = only(scope.node, [field.column for field in fields])
        lowered = Lowered(shown, tuple(field.written for field in fields))
        return Scope.over(self.renamed(node.args.get("alias"), lowered), node.alias.lower())

    def _derived(self, node: Any, environment: Environment) -> Scope:
        """A subquery of FROM. Inside a correlated subquery it may read the query around, too: then the
        rows around are a part of it."""
        outer, alias, name = environment.outer, node.args.get("alias"), node.alias.lower() or None
        if outer is not None:
            probe = replace(outer, used={})
            lowered = self._lower_query(node, replace(environment, outer=probe))
            if probe.used:
                outer.use(probe.used)
                lowered = self.renamed(alias, lowered)
                if lowered.over_nothing is not None:
                    lowered = completed(lowered, outer)
                return replace(Scope.over(lowered, name), outer=outer)
        lowered = self._lower_query(node, replace(environment, outer=None))
        return Scope.over(self.renamed(alias, lowered), name)

    def table(self, node: Any, environment: Environment) -> Lowered:
        """A table or view by name. Raises ProjectError where there is none."""
        self._only(node, frozenset({"this", "db", "catalog", "alias", "joins", "pivots"}))
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
        return self.renamed(node.args.get("alias"), lowered)

    def values(self, node: Any) -> Lowered:
        """VALUES (...), (...)."""
        return self.renamed(node.args.get("alias"), values_rows(self.source, node))

    def lateral(self, scope: Scope, node: Any, environment: Environment) -> Scope:
        """LATERAL VIEW [OUTER] f(x) t AS a, b; LATERAL (SELECT ...) and LATERAL f(x) as in FROM."""
        node = self._lateral_of(node)
        if isinstance(node.this, exp.Subquery):
            return self._lateral_query(scope, node, environment)
        return self._generated(
            scope, node.this, node.args.get("alias"), bool(node.args.get("outer"))
        )

    def _lateral_query(
        self,
        scope: Scope,
        node: Any,
        environment: Environment,
        kind: JoinKind = JoinKind.INNER,
        on: Any = None,
    ) -> Scope:
        """Each row beside the rows of a subquery that reads it, of an outer join those that `on` is true
        of."""
        subqueries = Subqueries(self.source, self._lower_query, environment)
        related = subqueries.related(scope, node.this)
        shown = Lowered(related.node, related.written)
        written = self.renamed(node.args.get("alias"), shown).written
        wide: Node
        if related.over_nothing is not None and related.keys:
            names = [f"{value}_here" for value in related.values]
            wide = beside(scope, related, names).node
        else:
            names = list(related.values)
            wide = pairs(scope, related, related.tests, kind)
        fields = tuple(map(Field, written, names))
        relation = Relation(node.alias.lower() or None, fields)
        found = replace(scope, node=wide, relations=(*scope.relations, relation))
        return found if on is None else self._where_matched(found, names, on)

    def _where_matched(self, found: Scope, names: Sequence[str], on: Any) -> Scope:
        """An outer LATERAL join with a condition: a part of its ON, or, where each row has one row
        beside it, nulls in that one's place."""
        seen = found
        if isinstance(found.node, Join):
            seen = replace(found, node=replace(found.node, kind=JoinKind.INNER, condition=None))
        condition = ExpressionLowering(self.source, seen).lower(on)
        if isinstance(found.node, Join):
            return replace(found, node=join_on(found.node, condition))
        outputs = [
            Output(
                name,
                Expression(
                    f"CASE WHEN {condition.text} THEN `{name}` END",
                    tuple(dict.fromkeys((*condition.references, name))),
                ),
            )
            if name in names
            else Output(name, Expression.column(name))
            for name in found.node.columns
        ]
        return replace(found, node=Project(found.node, tuple(outputs)))

    def _generated(self, scope: Scope, call: Any, alias: Any, outer: bool = False) -> Scope:
        """The rows that a function makes of each row."""
        name = function_name(call)
        lowering = ExpressionLowering(self.source, scope)
        arguments = [lowering.lower(one) for one in generator_arguments(call)]
        shape = shape_of(arguments[0], scope.node) if arguments else None
        written = generated_names(self.source, call, _column_list(alias), shape)
        plain = (one.lower().lstrip("_") or "col" for one in written)
        columns = fresh_names(plain, scope.node.columns)
        if outer and not name.endswith("_outer") and name not in ("stack", "json_tuple"):
            name = f"{name}_outer"
        node = Generate(scope.node, generator_call(name, arguments), tuple(columns))
        named = alias.name.lower() if alias is not None and alias.name else None
        relation = Relation(named, tuple(map(Field, written, columns)))
        return replace(scope, node=node, relations=(*scope.relations, relation))

    def renamed(self, alias: Any, lowered: Lowered) -> Lowered:
        """Column names after an alias: `t (a, b)`."""
        names = _column_list(alias)
        return rename_columns(self.source, alias, names, lowered) if names else lowered

    # ── joins ───────────────────────────────────────────────────────────────────────────────────

    def join(self, left: Scope, join: Any, environment: Environment) -> Scope:
        """One JOIN, or a comma, with what stands to its left."""
        if str(join.args.get("method") or "").upper() == "ASOF":
            return self._asof_join(left, join, environment)
        return self._join(left, join, environment)

    def _join(self, left: Scope, join: Any, environment: Environment) -> Scope:
        side = str(join.args.get("side") or "").upper()
        method = str(join.args.get("method") or "").upper()
        found = _KINDS.get((side, str(join.args.get("kind") or "").upper()))
        if found is None or method not in ("", "NATURAL"):
            words = " ".join(filter(None, (method, side, str(join.args.get("kind") or ""))))
            raise refuse(self.source, join, f"{words.upper()} JOIN", "use JOIN ... ON")
        self._only(join, frozenset({"this", "on", "using", "side", "kind", "method", "hint"}))
        if isinstance(join.this, exp.Lateral):
            return self._lateral_join(left, join, environment, found)
        right = self.relation(join.this, environment, left)
        on, using = join.args.get("on"), join.args.get("using")
        if _is_true(on):
            on = None
        seen = Scope(left.node, (*left.relations, *right.relations))
        if on is not None and not left.outer and _reads_around(on, seen, environment):
            left = left.inside(environment.outer)
        left, right, same = self._around(join, left, right, found, side)
        values: dict[int, Expression] = {}
        subqueries = Subqueries(self.source, self._lower_query, environment)
        if on is not None and found is not JoinKind.INNER:
            left, right, values = self._with_subqueries(on, left, right, subqueries)
        if side == "RIGHT":
            pair = Join(right.node, left.node, (), (), same, found)
        else:
            pair = Join(left.node, right.node, (), (), same, found)
        outer = left.outer or right.outer
        both = Scope(pair, (*left.relations, *right.relations), left.first, outer)
        names = None
        if method == "NATURAL":
            own = {f.written.lower() for f in right.star() or []}
            shared = {f.written.lower(): f.written for f in left.star() or []}
            names = [written for name, written in shared.items() if name in own]
        elif using:
            names = [part.name for part in using]
        if names is not None:
            equal = column_pairs(self.source, join, left, right, names)
            return join_using(left, right, pair, names, equal, side)
        if on is not None and found is JoinKind.INNER:
            return subqueries.where(both, on)
        if on is not None:
            admit_clocks(self.source, on)
            # the condition may read both sides, whatever the join shows of them
            seen = replace(both, node=replace(pair, condition=None, kind=JoinKind.INNER))
            condition = ExpressionLowering(self.source, seen).lower(
                on, lambda part: values.get(id(part))
            )
            both = replace(both, node=join_on(pair, condition))
        return both if found.shows_right else replace(left, node=both.node)

    def _asof_join(self, left: Scope, join: Any, environment: Environment) -> Scope:
        """ASOF [LEFT] JOIN ... [MATCH_CONDITION (...)] ON ... or USING (...): the nearest row of the
        right side. Without MATCH_CONDITION, the last column of USING is the time, at or before."""
        own = {"this", "match_condition", "on", "using", "side", "kind", "method"}
        self._only(join, frozenset(own))
        words = tuple(str(join.args.get(one) or "").upper() for one in ("side", "kind"))
        kind = _KINDS.get((words[0], words[1]))
        if kind not in (JoinKind.INNER, JoinKind.LEFT) or words[0] == "RIGHT":
            raise refuse(
                self.source,
                join,
                f"ASOF {' '.join(filter(None, words))} JOIN",
                "write ASOF JOIN or ASOF LEFT JOIN",
            )
        right = self.relation(join.this, environment, left)
        if left.outer or right.outer or isinstance(join.this, exp.Lateral):
            raise refuse(
                self.source, join, "ASOF JOIN of what reads a row around", "join in a view first"
            )
        left, right = left.beside(right)
        pair = Join(left.node, right.node, (), ())
        both = Scope(pair, (*left.relations, *right.relations), left.first)
        lowering = ExpressionLowering(self.source, both)
        conditions = (join.args.get("match_condition"), join.args.get("on"))
        on = [lowering.lower(one) for one in conditions if one is not None]
        names = [part.name for part in join.args.get("using") or ()]
        pairs = column_pairs(self.source, join, left, right, names)
        signs = ["="] * len(pairs) if on or not pairs else [*["="] * (len(pairs) - 1), ">="]
        on += [
            Expression(f"`{a}` {s} `{b}`", (a, b)) for (a, b), s in zip(pairs, signs, strict=True)
        ]
        joined = asof_join(self.source, join, left.node, right.node, on, kind)
        return merged_columns(left, right, joined, pairs) if pairs else replace(both, node=joined)

    def _around(
        self, join: Any, left: Scope, right: Scope, kind: JoinKind, side: str
    ) -> tuple[Scope, Scope, Expression | None]:
        """The two sides with columns of their own, and what equates the rows around where both have
        them: a subquery of FROM that reads the query around brings them along."""
        outer = left.outer or right.outer
        if outer is not None and (kind is JoinKind.FULL or side == "RIGHT"):
            raise refuse(
                self.source,
                join,
                "this join of what reads the query around",
                "use LEFT JOIN, or write it without that",
            )
        if outer is not None and kind is not JoinKind.INNER:
            left = left.inside(outer)
        if left.outer is None or right.outer is None:
            return *left.beside(right), None
        places = [right.node.columns.index(column) for column in right.outer.columns]
        columns = left.outer.columns
        left, right = left.beside(right)
        theirs = [right.node.columns[place] for place in places]
        tests = [
            Expression(f"`{a}` <=> `{b}`", (a, b)) for a, b in zip(columns, theirs, strict=True)
        ]
        return left, right, all_of(tests)

    def _with_subqueries(
        self, on: Any, left: Scope, right: Scope, subqueries: Subqueries
    ) -> tuple[Scope, Scope, dict[int, Expression]]:
        """The sides of an outer join, each with the values of the subqueries of ON that read it."""
        values: dict[int, Expression] = {}
        for query in subqueries_of(on):
            name = fresh_name("_on", (*left.node.columns, *right.node.columns))
            try:
                left = subqueries.columns(left, {name: query})
            except ProjectError:
                try:
                    right = subqueries.columns(right, {name: query})
                except ProjectError:
                    raise refuse(
                        self.source,
                        query,
                        "a subquery in ON that reads both sides",
                        "put it into a subquery of FROM",
                    ) from None
            values[id(query)] = Expression.column(name)
        return left, right, values

    def _lateral_join(
        self, left: Scope, join: Any, environment: Environment, kind: JoinKind
    ) -> Scope:
        node, on = self._lateral_of(join.this), join.args.get("on")
        is_true = on is None or _is_true(on)
        if kind is JoinKind.LEFT and on is None and only_generates(node.this):
            # Spark 4.1 does not look at the kind of such a join
            kind = JoinKind.INNER
        if kind not in (JoinKind.INNER, JoinKind.LEFT):
            raise refuse(self.source, join, "this join with LATERAL", "use JOIN or LEFT JOIN")
        if isinstance(node.this, exp.Subquery):
            outer_on = None if is_true or kind is JoinKind.INNER else on
            scope = self._lateral_query(left, node, environment, kind, outer_on)
            if outer_on is not None:
                return scope
        elif not is_true and kind is not JoinKind.INNER:
            return self._lateral_query(left, _as_query(node), environment, kind, on)
        else:
            scope = self._generated(left, node.this, node.args.get("alias"), kind is JoinKind.LEFT)
        if is_true:
            return scope
        return Subqueries(self.source, self._lower_query, environment).where(scope, on)

    def _lateral_of(self, node: Any) -> Any:
        """LATERAL with a subquery or a generator; rows that stand in the query are a subquery."""
        if isinstance(node.this, exp.Subquery) or is_generator(node.this):
            return node
        if function_name(node.this) == "range":
            return _as_query(node)
        raise refuse(self.source, node, "this after LATERAL", "write a subquery or explode(...)")


def _is_joined(node: Any) -> bool:
    """Whether what stands in parentheses are relations, and not a query in further parentheses."""
    within = node.this
    if not isinstance(within, exp.Subquery):
        return isinstance(within, exp.Table)
    return bool(within.alias or within.args.get("joins")) or _is_joined(within)


def _reads_around(node: Any, seen: Scope, environment: Environment) -> bool:
    """Whether a part of FROM names columns of the query around, which none of the relations seen has.
    Subqueries in it have relations of their own, and are not asked."""
    outer = environment.outer
    if outer is None or isinstance(node, exp.Query):
        return False
    if isinstance(node, exp.Column):
        return seen.is_around([part.name for part in identifier_parts(node)], outer)
    return any(_reads_around(part, seen, environment) for part in children(node))


def _as_query(lateral: Any) -> Any:
    """LATERAL f(x) AS t (a, b) as LATERAL (SELECT * FROM f(x) AS t (a, b)) AS t (a, b)."""
    alias = lateral.args.get("alias")
    made = exp.Table(this=lateral.this.copy(), alias=alias and alias.copy())
    query = exp.select("*").from_(made, copy=False).subquery(copy=False)
    return copy_with_words(exp.Lateral(this=query, alias=alias and alias.copy()), lateral)


def _is_true(condition: Any) -> bool:
    return isinstance(condition, exp.Boolean) and bool(condition.this)


def _column_list(alias: Any) -> tuple[str, ...]:
    """The columns behind an alias, () for none."""
    columns = alias.args.get("columns") if alias is not None else None
    return tuple(column.name for column in columns or ())


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
    return replace(lowered, written=names)
