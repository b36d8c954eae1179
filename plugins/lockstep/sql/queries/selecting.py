"""One SELECT over its FROM and WHERE: GROUP BY, HAVING, windows, the list, DISTINCT, LIMIT."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlglot import exp

from lockstep.errors import ProjectError
from lockstep.sql.names import fresh_name
from lockstep.sql.plans.columns import as_they_are, only
from lockstep.sql.plans.nesting import shape_of
from lockstep.sql.plans.nodes import Aggregate, Expression, Filter, Node, Output, Project, SortKey
from lockstep.sql.plans.shapes import Shape
from lockstep.sql.queries.functions import (
    admit_clocks,
    contains_aggregate,
    is_aggregate,
    refuse,
)
from lockstep.sql.queries.grouping import Grouping
from lockstep.sql.queries.limits import limit_of, limited
from lockstep.sql.queries.lowering import ExpressionLowering
from lockstep.sql.queries.scope import Lowered, Outer, Scope
from lockstep.sql.queries.select_list import Item, group_keys, list_items, sort_nodes
from lockstep.sql.queries.sessions import Sessions
from lockstep.sql.queries.stage import Special, Stage
from lockstep.sql.queries.subqueries import Subqueries, completed, is_subquery, subqueries_of
from lockstep.sql.queries.time_windows import TimeWindows
from lockstep.sql.reading.syntax import SourceText

__all__ = ["SelectLowering"]


class SelectLowering:
    """Lowers everything of a SELECT that comes after FROM and WHERE, which `scope` stands for.

    In the order in which SQL evaluates it: GROUP BY, HAVING, window functions, QUALIFY, functions
    that make rows, the list, DISTINCT, ORDER BY with LIMIT.
    """

    def __init__(
        self, source: SourceText, scope: Scope, select: Any, subqueries: Subqueries
    ) -> None:
        self.source = source
        self.scope = scope
        self.select = select
        self._subqueries = subqueries
        self._windows = TimeWindows(source)
        self._sessions = Sessions(source)
        self._values: dict[int, Expression] = {}
        self._sorted: list[Any] = []

    def lower(self) -> Lowered:
        items = list_items(self.source, self.scope, self.select)
        self._sorted = self._order(items)
        keys, sets = group_keys(self.source, self.scope, self.select, items)
        conditions = {name: self._clause(name) for name in ("having", "qualify")}
        ordered = [one.this for one in self._sorted]
        above = [*(item.node for item in items), *conditions.values(), *ordered]
        nodes = [node for node in above if isinstance(node, exp.Expr)]
        key_nodes = [key for key in keys if isinstance(key, exp.Expr)]
        is_grouped = (
            self.select.args.get("group") is not None
            or conditions["having"] is not None
            or any(map(contains_aggregate, nodes))
        )
        self._attach_below(nodes, key_nodes, is_grouped)
        self.scope = self._windows.below(self.scope, [*nodes, *key_nodes])
        self.scope = self._sessions.below(self.scope, keys, bool(sets))
        if is_grouped:
            return self._grouped(items, keys, sets, conditions)
        lowering = ExpressionLowering(self.source, self.scope)

        def lower(node: Any, column: str, special: Special) -> Expression:
            if node is None:
                return Expression.column(column)
            return lowering.lower(node, lambda part: special(part) or self._value(part))

        def shape(one: Expression) -> Shape | None:
            return shape_of(one, self.scope.node)

        stage = Stage(self.source, items, lower, lowering.aliases, self._named_windows(), shape)
        outputs = stage.outputs()
        qualify = stage.condition(conditions["qualify"])
        order = stage.order(self._sorted, outputs)
        return self._ended(stage, self.scope.node, outputs, qualify, order)

    def _grouped(
        self, items: list[Item], keys: list[Any], sets: list[list[Any]], conditions: dict[str, Any]
    ) -> Lowered:
        named = {
            item.name.lower(): item.node
            for item in reversed(items)
            if item.node is not None and not contains_aggregate(item.node)
        }
        grouping = Grouping(self.source, self.scope, self._value, named)
        for key in keys:
            grouping.add_key(key)
        if sets:
            grouping.add_sets(sets)
        later: dict[str, Any] = {}

        def lower(node: Any, column: str, special: Special) -> Expression:
            return grouping.output(
                node, column, lambda part: special(part) or self._subquery_above(part, later)
            )

        stage = Stage(
            self.source, items, lower, grouping.aliases, self._named_windows(), grouping.shape
        )
        outputs = stage.outputs()
        grouping.is_having = True
        having = stage.condition(conditions["having"])
        grouping.is_having = False
        qualify = stage.condition(conditions["qualify"])
        order = stage.order(self._sorted, outputs)
        wanted = {name: grouping.seen_from(query) for name, query in later.items()}
        node = grouping.build()
        is_asked = having is not None or bool(wanted)
        if is_asked and grouping.has_no_keys and self.scope.outer is not None:
            node = self._complete(grouping, node, self.scope.outer)
        if wanted:
            node = self._subqueries.columns(grouping.scope_above(node), wanted).node
        if having is not None:
            node = Filter(node, having)
        lowered = self._ended(stage, node, outputs, qualify, order)
        if not (grouping.has_no_keys and having is None and qualify is None and not later):
            return lowered
        limited = any(self.select.args.get(name) for name in ("limit", "offset"))
        return lowered if limited else replace(lowered, over_nothing=grouping.over_nothing(outputs))

    def _complete(self, grouping: Grouping, node: Node, outer: Outer) -> Node:
        """The one group of each row around, also where it is empty: HAVING is asked of it as well."""
        calls = grouping.calls
        if not calls:
            return node
        columns = (*calls, *self.scope.carried)
        shown = only(node, columns)
        nothing = grouping.over_nothing([Expression.column(call) for call in calls])
        assert nothing is not None, "calls are no windows"
        return completed(Lowered(shown, calls, self.scope.carried, nothing), outer).node

    def _ended(
        self,
        stage: Stage,
        node: Node,
        outputs: list[Expression],
        qualify: Expression | None,
        order: list[SortKey],
    ) -> Lowered:
        """Windows, QUALIFY, generated rows, the list, DISTINCT and LIMIT over the stage's relation."""
        carried = self.scope.carried
        node = stage.build(node, carried)
        if qualify is not None:
            node = Filter(node, qualify)
        names: list[str] = []
        for position, name in enumerate(stage.names):
            # No name of a subquery's column may meet those that the engine adds (`_weight`, …).
            plain = name.lower().lstrip("_")
            names.append(fresh_name(plain or f"_col{position}", names))
        listed = list(map(Output, names, outputs))
        carrying = as_they_are(carried)
        distinct = self.select.args.get("distinct")
        if distinct is not None and distinct.args.get("on"):
            raise refuse(self.source, distinct, "DISTINCT ON", "group by the columns")
        limit = limit_of(self.source, self.select)
        named = {output.expression: output.name for output in listed}
        keys = [
            Output(f"_sort{n}", key.expression)
            for n, key in enumerate(order)
            if key.expression not in named
        ]
        named.update((key.expression, key.name) for key in keys)
        if limit is None or distinct is not None:
            node = Project(node, (*listed, *carrying))
        if distinct is not None:
            node = Aggregate(node, node.columns, ())
        if limit is not None:
            if distinct is None:
                node = Project(node, (*listed, *carrying, *keys))
                order = [
                    replace(key, expression=Expression.column(named[key.expression]))
                    for key in order
                ]
            else:
                order = self._order_of_distinct(order, listed)
            node = limited(node, limit, tuple(order), carried, (*names, *carried))
        return Lowered(node, tuple(stage.names), carried)

    def _order_of_distinct(self, order: list[SortKey], listed: list[Output]) -> list[SortKey]:
        """Sort keys over the list's own columns: after DISTINCT there are no others."""
        columns = {output.expression: output.name for output in listed}
        found = []
        for key, node in zip(order, self._sorted, strict=True):
            if key.expression not in columns:
                raise ProjectError(
                    "ORDER BY after DISTINCT names something that is not in the list",
                    position=self.source.position_of(node),
                    expected="an item of the SELECT list",
                    found=self.source.words_of(node.this),
                    next_step="add it to the list, or leave DISTINCT out",
                )
            found.append(replace(key, expression=Expression.column(columns[key.expression])))
        return found

    def _clause(self, name: str) -> Any:
        clause = self.select.args.get(name)
        if clause is None:
            return None
        admit_clocks(self.source, clause.this)
        return clause.this

    def _order(self, items: list[Item]) -> list[Any]:
        """The sort keys of ORDER BY; without a LIMIT they say nothing about the rows of a view."""
        limits = any(self.select.args.get(name) for name in ("limit", "offset"))
        return sort_nodes(self.select, len(items)) if limits else []

    def _named_windows(self) -> dict[str, Any]:
        return {one.name.lower(): one for one in self.select.args.get("windows") or []}

    def _value(self, part: Any) -> Expression | None:
        """What has been computed below for a part of an expression."""
        known = self._values.get(id(part)) or self._windows.column(part)
        return known or self._sessions.column(part)

    def _attach_below(self, nodes: list[Any], keys: list[Any], is_grouped: bool) -> None:
        """Put the subqueries that are evaluated before GROUP BY beside the rows."""
        early = [
            query
            for node in nodes
            for query in subqueries_of(node)
            if not is_grouped or _is_in_aggregate(query, node)
        ]
        early += [query for key in keys for query in subqueries_of(key)]
        # one column for all that are written alike: as a key, and again in the list
        by_words = {self.source.words_of(query).lower(): query for query in reversed(early)}
        wanted = {f"_query{n}": query for n, query in enumerate(by_words.values())}
        if not wanted:
            return
        self.scope = self._subqueries.columns(self.scope, wanted)
        names = dict(zip(by_words, wanted, strict=True))
        every = [query for node in [*nodes, *keys] for query in subqueries_of(node)]
        for query in [*early, *every]:
            name = names.get(self.source.words_of(query).lower())
            if name is not None:
                self._values[id(query)] = Expression.column(name)

    def _subquery_above(self, part: Any, later: dict[str, Any]) -> Expression | None:
        if id(part) in self._values or not is_subquery(part):
            return None
        for name, known in later.items():
            if known is part:
                return Expression.column(name)
        name = f"_query_above{len(later)}"
        later[name] = part
        return Expression.column(name)


def _is_in_aggregate(node: Any, root: Any) -> bool:
    """True where a part of `root` is inside an aggregate's arguments: it is evaluated per row."""
    while node is not root:
        node = node.parent
        if is_aggregate(node) and not isinstance(node.parent, exp.Window):
            return True
    return False
