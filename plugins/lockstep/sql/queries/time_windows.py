"""window(ts, size[, slide]): Spark's time windows, as a column below the list and GROUP BY."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from lockstep.errors import ProjectError
from lockstep.sql.names import fresh_name
from lockstep.sql.plans.columns import as_they_are
from lockstep.sql.plans.nodes import Expression, Node, Output, Project, TimeWindow
from lockstep.sql.queries.functions import is_window, refuse
from lockstep.sql.queries.lowering import ExpressionLowering
from lockstep.sql.queries.scope import Field, Relation, Scope
from lockstep.sql.reading.intervals import interval_microseconds, interval_text
from lockstep.sql.reading.syntax import SourceText, children

__all__ = ["TimeWindows"]


class TimeWindows:
    """The calls of one SELECT; `below` first, then `column` gives what stands for each of them."""

    def __init__(self, source: SourceText) -> None:
        self.source = source
        self._scope: Scope | None = None
        self._names: dict[str, str] = {}

    def below(self, scope: Scope, nodes: Sequence[Any]) -> Scope:
        """The scope with the window's column, if any of the nodes has a call."""
        lowering = ExpressionLowering(self.source, scope)
        found: dict[str, tuple[Any, Expression, str, str]] = {}
        for call in (call for node in nodes for call in _calls(node)):
            timestamp, size, slide = self._arguments(call, lowering)
            found.setdefault(f"{timestamp.text} {size} {slide}", (call, timestamp, size, slide))
        if not found:
            return scope
        if len(found) > 1:
            second = list(found.values())[1][0]
            raise refuse(
                self.source,
                second,
                "a second window() in one SELECT",
                "put one of them into a subquery",
            )
        text, (_, timestamp, size, slide) = next(iter(found.items()))
        node: Node = scope.node
        column = (
            timestamp.references[0] if timestamp.is_column else fresh_name("_time", node.columns)
        )
        if not timestamp.is_column:
            node = Project(node, (*as_they_are(node.columns), Output(column, timestamp)))
        name = fresh_name("window", node.columns)
        window = Relation(None, (Field("window", name, visible=name == "window"),))
        node = TimeWindow(node, name, column, size, slide)
        self._scope, self._names = scope, {text: name}
        return replace(scope, node=node, relations=(*scope.relations, window))

    def column(self, node: Any) -> Expression | None:
        """The column of a call; None for anything else."""
        if not is_window(node) or self._scope is None:
            return None
        timestamp, size, slide = self._arguments(node, ExpressionLowering(self.source, self._scope))
        return Expression.column(self._names[f"{timestamp.text} {size} {slide}"])

    def _arguments(self, call: Any, lowering: ExpressionLowering) -> tuple[Expression, str, str]:
        """Timestamp, size and slide of a call."""
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
        lengths = [self._length(argument) for argument in arguments[1:]]
        size, slide = lengths[0], lengths[-1]
        if slide > size:
            raise ProjectError(
                "a window's slide can't be longer than its size",
                position=self.source.position_of(call),
                expected=f"a slide of up to {interval_text(size)}",
                found=interval_text(slide),
            )
        return lowering.lower(arguments[0]), interval_text(size), interval_text(slide)

    def _length(self, node: Any) -> int:
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


def _calls(node: Any) -> Iterator[Any]:
    """The calls in an expression, not those of a subquery."""
    if isinstance(node, exp.Query):
        return
    if is_window(node):
        yield node
    for child in children(node):
        yield from _calls(child)
