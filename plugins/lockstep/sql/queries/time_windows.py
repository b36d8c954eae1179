"""window(ts, size[, slide]): Spark's time windows, as a column below the list and GROUP BY."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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
from lockstep.sql.reading.syntax import SourceText
from lockstep.sql.reading.trees import children

__all__ = ["TimeWindows"]


@dataclass(frozen=True)
class _Window:
    """The arguments of a call; windows with an offset are those of a timestamp that is shifted by it."""

    timestamp: Expression
    size: str
    slide: str
    offset: str

    @property
    def text(self) -> str:
        return " ".join((self.timestamp.text, self.size, self.slide, self.offset))

    @property
    def shifted(self) -> Expression:
        if not self.offset:
            return self.timestamp
        text = f"({self.timestamp.text}) - INTERVAL '{self.offset}'"
        return Expression(text, self.timestamp.references)

    def shifted_back(self, window: str) -> Expression:
        edges = (
            f"'{edge}', `{window}`.{edge} + INTERVAL '{self.offset}'" for edge in ("start", "end")
        )
        return Expression(f"named_struct({', '.join(edges)})", (window,))


class TimeWindows:
    """The calls of one SELECT; `below` first, then `column` gives what stands for each of them."""

    def __init__(self, source: SourceText) -> None:
        self.source = source
        self._scope: Scope | None = None
        self._names: dict[str, str] = {}

    def below(self, scope: Scope, nodes: Sequence[Any]) -> Scope:
        """The scope with the window's column, if any of the nodes has a call."""
        lowering = ExpressionLowering(self.source, scope)
        found: dict[str, tuple[Any, _Window]] = {}
        for call in (call for node in nodes for call in _calls(node)):
            one = self._arguments(call, lowering)
            found.setdefault(one.text, (call, one))
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
        text, (_, wanted) = next(iter(found.items()))
        node: Node = scope.node
        timestamp = wanted.shifted
        column = (
            timestamp.references[0] if timestamp.is_column else fresh_name("_time", node.columns)
        )
        if not timestamp.is_column:
            node = Project(node, (*as_they_are(node.columns), Output(column, timestamp)))
        name = fresh_name("window", node.columns)
        window = Relation(None, (Field("window", name, visible=name == "window"),))
        node = TimeWindow(node, name, column, wanted.size, wanted.slide)
        if wanted.offset:
            kept = as_they_are(c for c in node.columns if c != name)
            node = Project(node, (*kept, Output(name, wanted.shifted_back(name))))
        self._scope, self._names = scope, {text: name}
        return replace(scope, node=node, relations=(*scope.relations, window))

    def column(self, node: Any) -> Expression | None:
        """The column of a call; None for anything else."""
        if not is_window(node) or self._scope is None:
            return None
        wanted = self._arguments(node, ExpressionLowering(self.source, self._scope))
        return Expression.column(self._names[wanted.text])

    def _arguments(self, call: Any, lowering: ExpressionLowering) -> _Window:
        arguments = call.expressions
        if len(arguments) not in (2, 3, 4):
            raise ProjectError(
                "window() takes a timestamp, a size, and perhaps a slide and an offset",
                position=self.source.position_of(call),
                expected="window(ts, '10 seconds') or window(ts, '10 seconds', '5 seconds')",
                found=self.source.words_of(call),
            )
        lengths = [self._length(argument) for argument in arguments[1:3]]
        size, slide = lengths[0], lengths[-1]
        offset = self._length(arguments[3], is_offset=True) if len(arguments) == 4 else 0
        if slide > size:
            raise ProjectError(
                "a window's slide can't be longer than its size",
                position=self.source.position_of(call),
                expected=f"a slide of up to {interval_text(size)}",
                found=interval_text(slide),
            )
        timestamp = lowering.lower(arguments[0])
        shift = interval_text(offset) if offset else ""
        return _Window(timestamp, interval_text(size), interval_text(slide), shift)

    def _length(self, node: Any, is_offset: bool = False) -> int:
        try:
            length = interval_microseconds(node.name if isinstance(node, exp.Literal) else "")
        except ValueError:
            length, is_offset = 0, False
        if length <= 0 and not is_offset:
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
