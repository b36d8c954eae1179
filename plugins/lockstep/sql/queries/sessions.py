"""session_window(ts, gap): runs of rows that follow each other within the gap, as a column below
GROUP BY. What it is made of: `plans/sessions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from lockstep.errors import ProjectError
from lockstep.sql.names import fresh_name
from lockstep.sql.plans.columns import as_they_are
from lockstep.sql.plans.nodes import (
    Expression,
    Filter,
    Node,
    Output,
    Project,
    Window,
)
from lockstep.sql.plans.sessions import SESSION_TIME, session_calls, session_struct
from lockstep.sql.queries.functions import is_session, refuse
from lockstep.sql.queries.lowering import ExpressionLowering
from lockstep.sql.queries.scope import Field, Relation, Scope
from lockstep.sql.reading.intervals import interval_microseconds, interval_text
from lockstep.sql.reading.syntax import SourceText

__all__ = ["Sessions"]

_NAME = "session_window"


class Sessions:
    """The session window of one SELECT; `below` first, then `column` gives what stands for it."""

    def __init__(self, source: SourceText) -> None:
        self.source = source
        self._lowering: ExpressionLowering | None = None
        self._found: tuple[str, str] | None = None

    def below(self, scope: Scope, keys: Sequence[Any], has_sets: bool) -> Scope:
        """The scope with the column, if one of the keys of GROUP BY is a session window."""
        calls = [key for key in keys if is_session(key)]
        if not calls:
            return scope
        if len(calls) > 1 or has_sets:
            raise refuse(
                self.source,
                calls[-1],
                "session_window beside another one, or in grouping sets",
                "group by one in a subquery, and by the rest above it",
            )
        self._lowering = lowering = ExpressionLowering(self.source, scope)
        time, gap = self._arguments(calls[0])
        others = [
            Expression.column(key) if isinstance(key, str) else lowering.lower(key)
            for key in keys
            if key is not calls[0]
        ]
        name = fresh_name(_NAME, scope.node.columns)
        node = _with_sessions(scope, name, time, gap, others)
        self._found = (name, f"{time.text} {gap}")
        field = Field(_NAME, name, visible=name == _NAME)
        return replace(scope, node=node, relations=(*scope.relations, Relation(None, (field,))))

    def column(self, node: Any) -> Expression | None:
        """The column of the call; None for anything else."""
        if not is_session(node) or self._found is None:
            return None
        time, gap = self._arguments(node)
        name, text = self._found
        return Expression.column(name) if f"{time.text} {gap}" == text else None

    def _arguments(self, call: Any) -> tuple[Expression, str]:
        """Timestamp and gap of a call."""
        assert self._lowering is not None, "below comes first"
        arguments = call.expressions
        try:
            assert len(arguments) == 2
            gap = interval_microseconds(
                arguments[1].name if isinstance(arguments[1], exp.Literal) else ""
            )
            assert gap > 0
        except (AssertionError, ValueError):
            raise ProjectError(
                "the arguments of session_window can't be read",
                position=self.source.position_of(call),
                expected="session_window(ts, '5 minutes')",
                found=self.source.words_of(call),
            ) from None
        return self._lowering.lower(arguments[0]), interval_text(gap)


def _with_sessions(
    scope: Scope, name: str, time: Expression, gap: str, others: Sequence[Expression]
) -> Node:
    """The rows that have a time, each with the struct<start, end> of its session."""
    columns = scope.node.columns
    by = {f"_session_by{place}": expression for place, expression in enumerate(others)}
    computed = Project(
        scope.node,
        (
            *as_they_are(columns),
            *map(Output, by, others),
            Output(SESSION_TIME, time),
        ),
    )
    timed = Filter(computed, Expression(f"`{SESSION_TIME}` IS NOT NULL", (SESSION_TIME,)))
    windowed = Window(timed, tuple(dict.fromkeys((*scope.carried, *by))), session_calls(gap))
    return Project(windowed, (*as_they_are(columns), Output(name, session_struct(gap))))
