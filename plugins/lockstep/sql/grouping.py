"""GROUP BY: keys and aggregate calls of one SELECT, and the nodes that they become.

Keys and arguments that are expressions are projected below the aggregate; what stands around the
aggregates in the SELECT list is projected above. DISTINCT in an aggregate becomes two aggregates:
the lower one groups by the argument as well, so that each value is there once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from lockstep.errors import ProjectError
from lockstep.sql.functions import (
    AGGREGATES,
    contains_aggregate,
    function_name,
    is_aggregate,
    refuse,
)
from lockstep.sql.lowering import ExpressionLowering, column_error, with_fields
from lockstep.sql.nodes import (
    Aggregate,
    AggregateCall,
    AggregateFunction,
    Expression,
    Node,
    Output,
    Project,
)
from lockstep.sql.scope import AmbiguousError, NoSuchColumnError, Scope, fresh_name
from lockstep.sql.syntax import SourceText, identifier_parts

__all__ = ["Grouping"]

_NO_KEY = (exp.Identifier, exp.Literal, exp.DataType, exp.Var, exp.Star, exp.Boolean, exp.Null)


@dataclass(frozen=True)
class _Call:
    name: str
    function: AggregateFunction
    argument: str | None
    distinct: bool
    node: Any


class Grouping:
    """Collects keys with `add_key`, then rewrites SELECT items with `output`; `build` ends it."""

    def __init__(
        self, source: SourceText, scope: Scope, window: Callable[[Any], Expression | None]
    ) -> None:
        self.source = source
        self.scope = scope
        self.aliases: dict[str, Expression] = {}
        self._window = window
        self._lowering = ExpressionLowering(source, scope)
        self._keys: dict[str, str] = {}
        self._below: dict[str, Expression] = {}
        self._calls: dict[tuple[AggregateFunction, str | None, bool], _Call] = {}

    def add_key(self, key: Any) -> None:
        """One expression of GROUP BY, or the name of a plan column."""
        expression = Expression.column(key) if isinstance(key, str) else self._lower(key)
        if expression.text in self._keys:
            return
        self._keys[expression.text] = self._project(expression, "_key")

    def output(self, node: Any, column: str) -> Expression:
        """A SELECT item (or HAVING) over the aggregate's output; `column` stands for one from `*`."""
        if node is None:
            expression = Expression.column(column)
            if expression.text not in self._keys:
                raise self._not_grouped(column, self.source.position(0))
            return expression
        return self._lowering.lower(node, self._above)

    def build(self) -> Node:
        """The aggregate over the projection of what it needs."""
        calls = list(self._calls.values())
        keys = tuple(self._keys.values())
        outputs = tuple(Output(name, expression) for name, expression in self._below.items())
        if not outputs:
            # count(*) over everything needs no column, but a relation needs one
            outputs = (Output("_one", Expression("1")),)
        below = Project(self.scope.node, outputs)
        if not any(call.distinct for call in calls):
            return Aggregate(
                below, keys, tuple(AggregateCall(c.name, c.function, c.argument) for c in calls)
            )
        return self._distinct(below, keys, calls)

    def _lower(self, node: Any) -> Expression:
        return self._lowering.lower(node, self._window)

    def _project(self, expression: Expression, prefix: str) -> str:
        """The column below the aggregate that holds an expression."""
        for name, known in self._below.items():
            if known == expression:
                return name
        if expression.is_column:
            name = expression.references[0]
        else:
            number = sum(name.startswith(prefix) for name in self._below)
            name = fresh_name(f"{prefix}{number}", {*self._below, *self.scope.node.columns})
        self._below[name] = expression
        return name

    def _above(self, part: Any) -> Expression | None:
        """What stands above the aggregate for a part of an item."""
        if is_aggregate(part):
            return Expression.column(self._call(part))
        if isinstance(part, _NO_KEY) or not isinstance(part, exp.Expr):
            return None
        if not contains_aggregate(part):
            try:
                text = self._lower(part).text
            except ProjectError:
                text = ""
            if text in self._keys:
                return Expression.column(self._keys[text])
        return self._key_column(part) if isinstance(part, exp.Column) else None

    def _key_column(self, node: Any) -> Expression:
        names = [part.name for part in identifier_parts(node)]
        try:
            column, taken = self.scope.resolve(names)
        except NoSuchColumnError as error:
            alias = self.aliases.get(names[0].lower())
            if alias is None:
                raise column_error(self.source, node, error) from None
            return with_fields(alias, names[1:])
        except AmbiguousError as error:
            raise column_error(self.source, node, error) from None
        if f"`{column}`" not in self._keys:
            raise self._not_grouped(".".join(names), self.source.position_of(node))
        return with_fields(Expression.column(column), names[taken:])

    def _not_grouped(self, name: str, position: Any) -> ProjectError:
        return ProjectError(
            f"the column {name!r} is neither in GROUP BY nor inside an aggregate",
            position=position,
            expected=f"a key ({', '.join(self._keys) or 'there is none'}) or an aggregate",
            found=name,
            next_step=f"add {name} to GROUP BY, or write min({name})",
        )

    def _call(self, node: Any) -> str:
        condition = None
        if isinstance(node, exp.Filter):
            condition = self._lower(node.expression.this)
            node = node.this
        function = AGGREGATES[function_name(node)]
        arguments, distinct = list(node.expressions), False
        if len(arguments) == 1 and isinstance(arguments[0], exp.Distinct):
            arguments, distinct = list(arguments[0].expressions), True
        argument = self._argument(node, arguments, function, distinct)
        if function_name(node) == "count_if" and argument is not None:
            argument = _case(argument, Expression("1"))
        if condition is not None:
            argument = _case(condition, argument or Expression("1"))
        distinct = distinct and not function.is_extreme  # min(DISTINCT x) is min(x)
        key = (function, argument.text if argument else None, distinct)
        if key not in self._calls:
            column = self._project(argument, "_arg") if argument else None
            wanted = [function.value, "distinct" if distinct else "", (column or "").lstrip("_")]
            taken = {*self._keys.values(), *(call.name for call in self._calls.values())}
            name = fresh_name("_".join(word for word in wanted if word), taken)
            self._calls[key] = _Call(name, function, column, distinct, node)
        return self._calls[key].name

    def _argument(
        self, node: Any, arguments: list[Any], function: AggregateFunction, distinct: bool
    ) -> Expression | None:
        name = function_name(node)
        counts = function is AggregateFunction.COUNT and name == "count"
        if counts and len(arguments) == 1 and not distinct:
            only = arguments[0]
            if isinstance(only, exp.Star | exp.Literal | exp.Boolean):
                return None
        if counts and len(arguments) > 1 and not distinct:
            parts = [self._lower(argument) for argument in arguments]
            test = " AND ".join(f"({part.text}) IS NOT NULL" for part in parts)
            references = tuple(dict.fromkeys(name for part in parts for name in part.references))
            return _case(Expression(test, references), Expression("1"))
        if len(arguments) != 1:
            if distinct:
                raise refuse(
                    self.source,
                    node,
                    f"{name}(DISTINCT) of several columns",
                    "count(*) over a subquery with SELECT DISTINCT",
                )
            raise ProjectError(
                f"{name} takes one argument",
                position=self.source.position_of(node),
                expected=f"{name}(x)",
                found=self.source.words_of(node),
            )
        return self._lower(arguments[0])

    def _distinct(self, below: Node, keys: tuple[str, ...], calls: list[_Call]) -> Node:
        distinct = [call for call in calls if call.distinct]
        plain = [call for call in calls if not call.distinct]
        value = distinct[0].argument
        assert value is not None
        for call in distinct:
            if call.argument != value:
                raise refuse(
                    self.source,
                    call.node,
                    "DISTINCT in aggregates over different arguments",
                    "write one view per argument, and join them on the keys",
                )
        for call in plain:
            if call.function is AggregateFunction.AVG:
                raise refuse(
                    self.source,
                    call.node,
                    "avg beside an aggregate with DISTINCT",
                    "write sum(x) / count(x)",
                )
        inner = Aggregate(
            below,
            tuple(dict.fromkeys((*keys, value))),
            tuple(
                AggregateCall(fresh_name(c.name, {*keys, value}), c.function, c.argument)
                for c in plain
            ),
        )
        partial = dict(
            zip((c.name for c in plain), (c.name for c in inner.aggregates), strict=True)
        )
        outer = Aggregate(
            inner,
            keys,
            tuple(
                AggregateCall(c.name, c.function, value)
                if c.distinct
                else AggregateCall(c.name, _merging(c.function), partial[c.name])
                for c in calls
            ),
        )
        counts = {c.name for c in plain if c.function is AggregateFunction.COUNT}
        if keys or not counts:
            return outer
        # over no rows at all a sum of counts is null, but a count is 0
        return Project(
            outer,
            tuple(
                Output(name, Expression(f"coalesce(`{name}`, 0)", (name,)))
                if name in counts
                else Output(name, Expression.column(name))
                for name in outer.columns
            ),
        )


def _merging(function: AggregateFunction) -> AggregateFunction:
    """The function that puts partial results of `function` together."""
    return AggregateFunction.SUM if function is AggregateFunction.COUNT else function


def _case(condition: Expression, value: Expression) -> Expression:
    references = tuple(dict.fromkeys((*condition.references, *value.references)))
    return Expression(f"CASE WHEN {condition.text} THEN {value.text} END", references)
