"""Window functions: the OVER calls of one SELECT, and the nodes that they become.

They are computed after GROUP BY and HAVING and before DISTINCT, so what stands inside them is
lowered like an item of the list. Calls over equal partitions are one node: one trace, and one pass
over the rows of a partition that changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from sqlglot import exp

from lockstep.errors import ProjectError
from lockstep.sql.plans.columns import as_they_are
from lockstep.sql.plans.nodes import Expression, Node, Output, Project, SortKey, Window, WindowCall
from lockstep.sql.queries.functions import bare_call, refuse
from lockstep.sql.reading.syntax import SourceText
from lockstep.sql.reading.trees import function_name

__all__ = ["Windows", "sort_keys"]

Lower = Callable[[Any], Expression]


def sort_keys(order: Any, lower: Lower) -> tuple[SortKey, ...]:
    """The keys of an ORDER BY clause (None for none), nulls where Spark puts them."""
    found = order.expressions if order is not None else ()
    return tuple(
        SortKey(lower(one.this), bool(one.args.get("desc")), bool(one.args.get("nulls_first")))
        for one in found
    )


class Windows:
    """Collects calls with `add`; `build` puts the nodes over the relation that they are computed on.

    `named` are the windows of the WINDOW clause by lower-case name, `lower` makes an expression over
    that relation.
    """

    def __init__(self, source: SourceText, named: Mapping[str, Any], lower: Lower) -> None:
        self.source = source
        self._named = named
        self._lower = lower
        self._computed: dict[str, Expression] = {}
        self._calls: dict[tuple[str, ...], list[WindowCall]] = {}

    def add(self, node: Any) -> Expression:
        """The column that will hold the call."""
        partition, order, spec = self._window(node)
        by = tuple(dict.fromkeys(self._column(self._lower(one)) for one in partition))
        call = WindowCall(
            "", self._function(node.this), sort_keys(order, self._lower), self._frame(spec)
        )
        own = self._calls.setdefault(by, [])
        for known in own:
            if replace(known, name="") == call:
                return Expression.column(known.name)
        number = sum(map(len, self._calls.values()))
        own.append(replace(call, name=f"_over{number}"))
        return Expression.column(own[-1].name)

    def build(self, node: Node, carried: tuple[str, ...]) -> Node:
        """The relation with a column for each call; rows meet only others equal in `carried`."""
        if self._computed:
            added = map(Output, self._computed, self._computed.values())
            node = Project(node, (*as_they_are(node.columns), *added))
        for partition, calls in self._calls.items():
            node = Window(node, tuple(dict.fromkeys((*carried, *partition))), tuple(calls))
        return node

    def _window(self, node: Any) -> tuple[list[Any], Any, Any]:
        """PARTITION BY, ORDER BY and the frame, from the call's own OVER or a named window."""
        own = (node.args.get("partition_by") or [], node.args.get("order"), node.args.get("spec"))
        name = node.args.get("alias")
        if name is None:
            return own
        window = self._named.get(name.name.lower())
        if window is None:
            raise ProjectError(
                f"there is no window {name.name!r}",
                position=self.source.position_of(node),
                expected=f"one of {', '.join(self._named)}" if self._named else "a WINDOW clause",
                found=name.name,
                next_step=f"add WINDOW {name.name} AS (PARTITION BY ... ORDER BY ...)",
            )
        theirs = self._window(window)
        return theirs[0] or own[0], theirs[1] or own[1], theirs[2] or own[2]

    def _column(self, expression: Expression) -> str:
        if expression.is_column:
            return expression.references[0]
        for name, known in self._computed.items():
            if known == expression:
                return name
        name = f"_by{len(self._computed)}"
        self._computed[name] = expression
        return name

    def _function(self, node: Any) -> Expression:
        """The call without OVER, its arguments over the relation below."""
        call = bare_call(node)
        if not isinstance(call, exp.Anonymous):
            raise ProjectError(
                "OVER stands after something that is no function",
                position=self.source.position_of(node),
                expected="a window function, or an aggregate",
                found=self.source.words_of(node),
            )
        arguments = [self._argument(one) for one in call.expressions]
        references = [name for one in arguments for name in one.references]
        text = f"{function_name(call)}({', '.join(one.text for one in arguments)})"
        around = node
        while around is not call:
            match around:
                case exp.IgnoreNulls():
                    text += " IGNORE NULLS"
                case exp.WithinGroup():
                    keys = sort_keys(around.expression, self._lower)
                    text += f" WITHIN GROUP (ORDER BY {', '.join(key.text for key in keys)})"
                    references += [name for key in keys for name in key.expression.references]
                case exp.Filter():
                    raise refuse(
                        self.source,
                        around,
                        "FILTER before OVER",
                        "put the condition into the argument: sum(CASE WHEN ... THEN x END) OVER (...)",
                    )
                case _:
                    pass
            around = around.this
        return Expression(text, tuple(dict.fromkeys(references)))

    def _argument(self, node: Any) -> Expression:
        if isinstance(node, exp.Star):
            return Expression("*")
        if isinstance(node, exp.Distinct):
            raise refuse(
                self.source,
                node,
                "DISTINCT before OVER, which Spark does not compute either,",
                "aggregate in a subquery, and join with it",
            )
        return self._lower(node)

    def _frame(self, spec: Any) -> str:
        if spec is None:
            return ""
        kind = str(spec.args.get("kind") or "RANGE").upper()
        start = self._bound(spec.args.get("start"), spec.args.get("start_side"))
        end = self._bound(spec.args.get("end"), spec.args.get("end_side"))
        return f"{kind} BETWEEN {start} AND {end or 'CURRENT ROW'}"

    def _bound(self, bound: Any, side: Any) -> str:
        if bound is None:
            return ""
        words = bound.upper() if isinstance(bound, str) else self._lower(bound).text
        return f"{words} {str(side).upper()}" if side else words
