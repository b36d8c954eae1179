"""One SELECT over its FROM and WHERE: time windows, GROUP BY, HAVING, the list, DISTINCT."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from lockstep.errors import ProjectError
from lockstep.sql.functions import contains_aggregate, is_window, refuse
from lockstep.sql.grouping import Grouping
from lockstep.sql.intervals import interval_microseconds, interval_text
from lockstep.sql.lowering import ExpressionLowering
from lockstep.sql.nodes import Aggregate, Expression, Filter, Node, Output, Project, TimeWindow
from lockstep.sql.scope import (
    AmbiguousError,
    Field,
    Lowered,
    NoSuchColumnError,
    Relation,
    Scope,
    closest,
    fresh_name,
)
from lockstep.sql.syntax import SourceText, identifier_parts

__all__ = ["SelectLowering", "own_name"]


@dataclass(frozen=True)
class _Item:
    """One item of the SELECT list: an expression, or (from `*`) a column."""

    name: str
    node: Any = None
    column: str = ""


class SelectLowering:
    """Lowers everything of a SELECT that comes after FROM and WHERE, which `scope` stands for."""

    def __init__(self, source: SourceText, scope: Scope, select: Any) -> None:
        self.source = source
        self.scope = scope
        self.select = select

    def lower(self) -> Lowered:
        items = self._items()
        keys = self._group_keys(items)
        having = self.select.args.get("having")
        having_node = having.this if having is not None else None
        nodes = [*(item.node for item in items), *keys, having_node]
        window, scope = self._time_window(nodes)
        grouped = bool(
            self.select.args.get("group") is not None
            or having_node is not None
            or any(item.node is not None and contains_aggregate(item.node) for item in items)
        )
        if grouped:
            node, outputs = self._grouped(scope, window, items, keys, having_node)
        else:
            node, outputs = self._plain(scope, window, items)
        names: list[str] = []
        for position, item in enumerate(items):
            # No name of a subquery's column may meet those that the engine adds (`_weight`, …).
            plain = item.name.lower().lstrip("_")
            names.append(fresh_name(plain or f"_col{position}", names))
        node = Project(node, tuple(map(Output, names, outputs)))
        distinct = self.select.args.get("distinct")
        if distinct is not None:
            if distinct.args.get("on"):
                raise refuse(self.source, distinct, "DISTINCT ON", "group by the columns")
            node = Aggregate(node, node.columns, ())
        return Lowered(node, tuple(item.name for item in items))

    def _items(self) -> list[_Item]:
        items: list[_Item] = []
        for node in self.select.expressions:
            star = (
                node.this
                if isinstance(node, exp.Column) and isinstance(node.this, exp.Star)
                else node
            )
            if isinstance(star, exp.Star):
                alias = node.table.lower() if isinstance(node, exp.Column) else None
                items += self._star(node, star, alias)
            elif isinstance(node, exp.Alias):
                items.append(_Item(node.alias, node.this))
            elif isinstance(node, exp.Aliases):
                raise refuse(self.source, node, "an alias of several names", "name one column")
            else:
                items.append(_Item(own_name(node), node))
        return items

    def _star(self, node: Any, star: Any, alias: str | None) -> Iterator[_Item]:
        fields = self.scope.star(alias)
        if fields is None:
            known = [one.alias for one in self.scope.relations if one.alias]
            raise ProjectError(
                f"there is no relation {alias!r} in FROM",
                position=self.source.position_of(node),
                expected=f"one of {', '.join(closest(alias or '', known))}",
                found=f"{alias}.*",
            )
        for part in ("replace", "rename", "ilike"):
            if star.args.get(part):
                raise refuse(self.source, node, f"* {part.upper()}", "name the columns")
        excluded = {column.name.lower() for column in star.args.get("except_") or []}
        unknown = excluded - {field.written.lower() for field in fields}
        if unknown:
            raise ProjectError(
                f"there is no column {sorted(unknown)[0]!r} to leave out",
                position=self.source.position_of(node),
                expected=f"one of {', '.join(field.written for field in fields)}",
                found=sorted(unknown)[0],
            )
        for field in fields:
            if field.written.lower() not in excluded:
                yield _Item(field.written, column=field.column)

    def _group_keys(self, items: list[_Item]) -> list[Any]:
        """The expressions of GROUP BY: ordinals, aliases and ALL are looked up in the list."""
        group = self.select.args.get("group")
        if group is None:
            return []
        for part in ("grouping_sets", "cube", "rollup", "totals"):
            if group.args.get(part):
                name = part.replace("_", " ").upper()
                raise refuse(
                    self.source, group, name, "write one view per grouping and UNION ALL them"
                )
        if group.args.get("all"):
            return [
                item.node if item.node is not None else item.column
                for item in items
                if item.node is None or not contains_aggregate(item.node)
            ]
        return [self._group_key(node, items) for node in group.expressions]

    def _group_key(self, node: Any, items: list[_Item]) -> Any:
        if isinstance(node, exp.GroupingSets | exp.Cube | exp.Rollup):
            name = {"GroupingSets": "GROUPING SETS"}.get(
                type(node).__name__, type(node).__name__.upper()
            )
            raise refuse(self.source, node, name, "write one view per grouping and UNION ALL them")
        if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit():
            place = int(node.name)
            if not 1 <= place <= len(items):
                raise ProjectError(
                    f"GROUP BY {place} names no item of the SELECT list",
                    position=self.source.position_of(node),
                    expected=f"a number from 1 to {len(items)}",
                    found=node.name,
                )
            item = items[place - 1]
            return item.node if item.node is not None else item.column
        if isinstance(node, exp.Column) and len(identifier_parts(node)) == 1:
            try:
                self.scope.resolve([node.name])
            except NoSuchColumnError:
                for item in items:
                    if item.node is not None and item.name.lower() == node.name.lower():
                        return item.node
            except AmbiguousError:
                return node  # said where the key is lowered
        return node

    def _time_window(self, nodes: list[Any]) -> tuple[dict[str, str], Scope]:
        """Put the query's `window(...)` below: its text → the struct column, and the new scope."""
        calls = [
            call
            for node in nodes
            if isinstance(node, exp.Expr)
            for call in node.find_all(exp.Anonymous)
            if is_window(call)
        ]
        lowering = ExpressionLowering(self.source, self.scope)
        found: dict[str, tuple[Any, Expression, str, str]] = {}
        for call in calls:
            timestamp, size, slide = self._window_arguments(call, lowering)
            found.setdefault(f"{timestamp.text} {size} {slide}", (call, timestamp, size, slide))
        if not found:
            return {}, self.scope
        if len(found) > 1:
            second = list(found.values())[1][0]
            raise refuse(
                self.source,
                second,
                "a second window() in one SELECT",
                "put one of them into a subquery",
            )
        text, (_, timestamp, size, slide) = next(iter(found.items()))
        node: Node = self.scope.node
        column = (
            timestamp.references[0] if timestamp.is_column else fresh_name("_time", node.columns)
        )
        if not timestamp.is_column:
            kept = (Output(name, Expression.column(name)) for name in node.columns)
            node = Project(node, (*kept, Output(column, timestamp)))
        name = fresh_name("window", node.columns)
        window = Relation(None, (Field("window", name, visible=name == "window"),))
        node = TimeWindow(node, name, column, size, slide)
        return {text: name}, replace(
            self.scope, node=node, relations=(*self.scope.relations, window)
        )

    def _window_arguments(
        self, call: Any, lowering: ExpressionLowering
    ) -> tuple[Expression, str, str]:
        arguments = call.expressions
        if len(arguments) == 4:
            raise refuse(
                self.source,
                call,
                "window() with a start offset",
                "shift the timestamp: `ts - INTERVAL ...`",
            )
        if len(arguments) not in (2, 3):
            raise ProjectError(
                "window() takes a timestamp, a size and perhaps a slide",
                position=self.source.position_of(call),
                expected="window(ts, '10 seconds') or window(ts, '10 seconds', '5 seconds')",
                found=self.source.words_of(call),
            )
        lengths = [self._window_length(argument) for argument in arguments[1:]]
        size, slide = lengths[0], lengths[-1]
        if slide > size:
            raise ProjectError(
                "a window's slide can't be longer than its size",
                position=self.source.position_of(call),
                expected=f"a slide of up to {interval_text(size)}",
                found=interval_text(slide),
            )
        return lowering.lower(arguments[0]), interval_text(size), interval_text(slide)

    def _window_length(self, node: Any) -> int:
        try:
            length = interval_microseconds(node.name if isinstance(node, exp.Literal) else "")
        except ValueError:
            length = 0
        if length <= 0:
            raise ProjectError(
                "a window's length can't be read",
                position=self.source.position_of(node),
                expected="a text such as '10 seconds', '1 hour 30 minutes' (weeks and shorter units)",
                found=self.source.words_of(node),
            )
        return length

    def _window_column(self, node: Any, window: dict[str, str]) -> Expression | None:
        if not is_window(node):
            return None
        lowering = ExpressionLowering(self.source, self.scope)
        timestamp, size, slide = self._window_arguments(node, lowering)
        return Expression.column(window[f"{timestamp.text} {size} {slide}"])

    def _plain(
        self, scope: Scope, window: dict[str, str], items: list[_Item]
    ) -> tuple[Node, list[Expression]]:
        lowering = ExpressionLowering(self.source, scope)
        outputs: list[Expression] = []
        for item in items:
            if item.node is None:
                outputs.append(Expression.column(item.column))
                continue
            outputs.append(
                lowering.lower(item.node, lambda part: self._window_column(part, window))
            )
            lowering.aliases.setdefault(item.name.lower(), outputs[-1])
        return scope.node, outputs

    def _grouped(
        self, scope: Scope, window: dict[str, str], items: list[_Item], keys: list[Any], having: Any
    ) -> tuple[Node, list[Expression]]:
        grouping = Grouping(self.source, scope, lambda part: self._window_column(part, window))
        for key in keys:
            grouping.add_key(key)
        outputs: list[Expression] = []
        for item in items:
            outputs.append(grouping.output(item.node, item.column))
            grouping.aliases.setdefault(item.name.lower(), outputs[-1])
        predicate = grouping.output(having, "") if having is not None else None
        node = grouping.build()
        return (Filter(node, predicate) if predicate is not None else node), outputs


def own_name(node: Any) -> str:
    """The name that Spark gives to an item without AS; '' where it makes one up."""
    if isinstance(node, exp.Column):
        return str(node.name)
    if isinstance(node, exp.Dot):
        return str(node.expression.name)
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Column):
        return str(node.this.name)
    return "window" if is_window(node) else ""
