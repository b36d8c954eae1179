"""Sessions: by window functions over the rows of a group, and as groups of their own.

A row begins a session where no row of its group is within the gap before it, and ends one where none
is within the gap after it; as in Spark, rows just the gap apart are together. So both bounds are window
functions over a group in the order of time (`session_calls`), which is right whatever comes and goes,
and looks at all rows of a group that changed.

Where rows stay, sessions only grow and merge, and what is counted of them can be put together of what is
counted of their parts. Then a change needs the sessions beside it and none of their rows:
`session_groups` finds such groups in a plan.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from lockstep.sql.plans.columns import origin
from lockstep.sql.plans.nodes import (
    Aggregate,
    Expression,
    Node,
    Output,
    Project,
    SessionGroups,
    SortKey,
    Window,
    WindowCall,
)
from lockstep.sql.plans.rewrites import tidy

__all__ = ["SESSION_TIME", "session_calls", "session_groups", "session_struct"]

SESSION_TIME = "_session_time"
"""The column by which rows below `session_calls` are ordered."""

_START, _LAST = "_session_start", "_session_last"
_UP_TO_HERE = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
_FROM_HERE = "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING"
_GAP = re.compile(r".* INTERVAL '([^']*)'\)")


def session_calls(gap: str) -> tuple[WindowCall, ...]:
    """The first and the last time of the session of each row, over rows of which none is without one."""
    at = Expression.column(SESSION_TIME)
    order = (SortKey(at),)
    begins = f"`_before` IS NULL OR {at.text} > `_before` + INTERVAL '{gap}'"
    ends = f"`_after` IS NULL OR `_after` > {at.text} + INTERVAL '{gap}'"
    return (
        WindowCall("_before", Expression(f"lag({at.text})", at.references), order),
        WindowCall("_after", Expression(f"lead({at.text})", at.references), order),
        WindowCall(
            _START,
            Expression(
                f"last_value(CASE WHEN {begins} THEN {at.text} END) IGNORE NULLS",
                ("_before", SESSION_TIME),
            ),
            order,
            _UP_TO_HERE,
        ),
        WindowCall(
            _LAST,
            Expression(
                f"first_value(CASE WHEN {ends} THEN {at.text} END) IGNORE NULLS",
                ("_after", SESSION_TIME),
            ),
            order,
            _FROM_HERE,
        ),
    )


def session_struct(gap: str) -> Expression:
    """The session of a row, from `session_calls`."""
    text = f"named_struct('start', `{_START}`, 'end', `{_LAST}` + INTERVAL '{gap}')"
    return Expression(text, (_START, _LAST))


def session_groups(
    node: Node, is_exact: Callable[[Node, Expression], bool]
) -> SessionGroups | None:
    """Groups of sessions as such, over the same rows; None for anything else. `is_exact` says of an
    expression over a node whether it is known to be of a type whose sums are one value."""
    if not (
        isinstance(node, Aggregate)
        and isinstance(node.input, Project)
        and isinstance(node.input.input, Window)
    ):
        return None
    window = node.input.input
    values = {output.name: output.expression for output in node.input.outputs}
    gaps = [(key, found) for key in node.keys if (found := _gap(values[key])) is not None]
    if len(gaps) != 1 or window.calls != session_calls(gaps[0][1]):
        return None
    [(name, gap)] = gaps
    keys = {key: values[key] for key in node.keys if key != name}
    arguments = {call.argument: values[call.argument] for call in node.aggregates if call.argument}
    below = window.input
    summed = (
        values[call.argument] for call in node.aggregates if call.argument and call.function.is_sum
    )
    if (
        node.collected
        or not _are_over(below, {**keys, **arguments})
        or not _are_same(below, keys, window.partition)
        or not all(is_exact(below, one) for one in summed)
    ):
        return None
    read = {**keys, **arguments, SESSION_TIME: Expression.column(SESSION_TIME)}
    rows = tidy(Project(below, tuple(Output(*one) for one in read.items())))
    return SessionGroups(rows, node.keys, name, SESSION_TIME, gap, node.aggregates)


def _gap(expression: Expression) -> str | None:
    """The gap of the session that the expression is."""
    found = _GAP.fullmatch(expression.text)
    return found[1] if found and expression == session_struct(found[1]) else None


def _are_over(node: Node, values: Mapping[str, Expression]) -> bool:
    return SESSION_TIME not in values and all(
        set(one.references) <= set(node.columns) for one in values.values()
    )


def _are_same(node: Node, keys: Mapping[str, Expression], partition: tuple[str, ...]) -> bool:
    """Whether rows are grouped by what sessions are of, beside the session."""
    by = {origin(node, Expression.column(name)) for name in partition}
    return by == {origin(node, one) for one in keys.values()}
