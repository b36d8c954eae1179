"""session_window(ts, gap): runs of rows that follow each other within the gap, as a column below
GROUP BY.

A row begins a session where no row of its group is within the gap before it, and ends one where none
is within the gap after it; as in Spark, rows just the gap apart are together. So both bounds are
window functions over the rows of a group in the order of time: sessions grow, merge and split as rows
come and go, and only groups that changed are looked at.
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
    SortKey,
    Window,
    WindowCall,
)
from lockstep.sql.queries.functions import is_session, refuse
from lockstep.sql.queries.lowering import ExpressionLowering
from lockstep.sql.queries.scope import Field, Relation, Scope
from lockstep.sql.reading.intervals import interval_microseconds, interval_text
from lockstep.sql.reading.syntax import SourceText

__all__ = ["Sessions"]

_NAME = "session_window"
_UP_TO_HERE = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
_FROM_HERE = "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING"


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
            Output("_session_time", time),
        ),
    )
    timed = Filter(computed, Expression("`_session_time` IS NOT NULL", ("_session_time",)))
    at = Expression.column("_session_time")
    order = (SortKey(at),)
    begins = f"`_before` IS NULL OR `_session_time` > `_before` + INTERVAL '{gap}'"
    ends = f"`_after` IS NULL OR `_after` > `_session_time` + INTERVAL '{gap}'"
    calls = (
        WindowCall("_before", Expression("lag(`_session_time`)", at.references), order),
        WindowCall("_after", Expression("lead(`_session_time`)", at.references), order),
        WindowCall(
            "_session_start",
            Expression(
                f"last_value(CASE WHEN {begins} THEN `_session_time` END) IGNORE NULLS",
                ("_before", "_session_time"),
            ),
            order,
            _UP_TO_HERE,
        ),
        WindowCall(
            "_session_last",
            Expression(
                f"first_value(CASE WHEN {ends} THEN `_session_time` END) IGNORE NULLS",
                ("_after", "_session_time"),
            ),
            order,
            _FROM_HERE,
        ),
    )
    windowed = Window(timed, tuple(dict.fromkeys((*scope.carried, *by))), calls)
    struct = f"named_struct('start', `_session_start`, 'end', `_session_last` + INTERVAL '{gap}')"
    return Project(
        windowed,
        (
            *as_they_are(columns),
            Output(name, Expression(struct, ("_session_start", "_session_last"))),
        ),
    )
