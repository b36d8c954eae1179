"""now() in syntax: which nodes read the clock, and which comparisons with it can be kept up to date.

A row is compared with a *bound*: now(), or what follows from it and never goes back when now() goes
on. So a row's time comes once and stays, and the rows whose time comes in an interval can be found by
it. Units without a fixed length break that (a month before 30 March, 23:00 is later than one before
31 March, 01:00), so they are no part of a bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlglot import exp

from lockstep.sql.reading.comparisons import MIRRORED, SIGNS
from lockstep.sql.reading.trees import function_name, outermost, without_parentheses

__all__ = ["Bounded", "bounds_of", "clock_text", "clocks_in", "has_months", "is_bound"]

Bounded = tuple[Any, str, Any]
"""An expression over the row, `<`, `<=`, `>` or `>=`, and a bound."""

_TIMES = frozenset({"now", "current_timestamp"})
_DATES = frozenset({"current_date", "curdate"})
_KEEP_ORDER = frozenset(
    {
        *("date", "to_date", "timestamp", "to_timestamp", "unix_date", "unix_timestamp"),
        *("to_unix_timestamp", "unix_seconds", "unix_millis", "unix_micros"),
    }
)
"""Functions of one argument that never go back when it goes on."""
_TYPES = (exp.DType.DATE, exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ)


def clock_text(node: Any) -> str:
    """How a function of the clock stands in plans: `now()` or `current_date()`; '' for others."""
    if isinstance(node, exp.CurrentTimestamp):
        return "now()"
    if isinstance(node, exp.CurrentDate):
        return "current_date()"
    name = function_name(node)
    if name in _TIMES | _DATES and not node.expressions:
        return "now()" if name in _TIMES else "current_date()"
    return ""


def clocks_in(node: Any) -> Iterator[Any]:
    """The functions of the clock in an expression, not those of its subqueries."""
    return outermost(node, clock_text)


def is_bound(node: Any) -> bool:
    """True for what follows from now() alone and never goes back when it goes on."""
    node = without_parentheses(node)
    if clock_text(node):
        return True
    match node:
        case exp.Add():
            sides = (node.this, node.expression)
            return any(is_bound(a) and _is_length(b) for a, b in (sides, sides[::-1]))
        case exp.Sub():
            return is_bound(node.this) and _is_length(node.expression)
        case exp.Cast():
            return is_bound(node.this) and node.to.this in _TYPES
    name, arguments = function_name(node), getattr(node, "expressions", [])
    if name in _KEEP_ORDER:
        return len(arguments) == 1 and is_bound(arguments[0])
    if name in ("date_add", "date_sub", "dateadd"):
        return len(arguments) == 2 and is_bound(arguments[0]) and _is_length(arguments[1])
    if name == "date_trunc":
        return len(arguments) == 2 and _is_text(arguments[0]) and is_bound(arguments[1])
    return (
        name == "trunc"
        and len(arguments) == 2
        and is_bound(arguments[0])
        and _is_text(arguments[1])
    )


def bounds_of(node: Any) -> list[Bounded] | None:
    """A comparison with the clock as one or two of a row's expression with a bound.

    None for anything else: an OR, an equality, the clock on both sides or beside a column.
    """
    node = without_parentheses(node)
    if isinstance(node, exp.Between):
        low, high = node.args["low"], node.args["high"]
        parts = [(">=", node.this, low), ("<=", node.this, high)]
    elif type(node) in SIGNS:
        parts = [(SIGNS[type(node)], node.this, node.expression)]
    else:
        return None
    found: list[Bounded] = []
    for sign, left, right in parts:
        is_turned = any(clocks_in(left))
        value, bound = (right, left) if is_turned else (left, right)
        if any(clocks_in(value)) or not is_bound(bound):
            return None
        found.append((value, MIRRORED[sign] if is_turned else sign, bound))
    return found


def _is_text(node: Any) -> bool:
    return isinstance(node, exp.Literal) and bool(node.is_string)


def _is_length(node: Any) -> bool:
    """True for a whole number and for an interval of a fixed length, however they are signed."""
    node = without_parentheses(node)
    while isinstance(node, exp.Neg | exp.Paren):
        node = node.this
    if isinstance(node, exp.Add | exp.Sub):
        return _is_length(node.this) and _is_length(node.expression)
    if isinstance(node, exp.Literal):
        return not node.is_string and node.this.isdigit()
    is_plain = isinstance(node, exp.Interval) and not any(node.find_all(exp.Column))
    return is_plain and not has_months(node)


def has_months(node: Any) -> bool:
    """True where an interval counts months or longer units."""
    intervals = node.find_all(exp.Interval)
    parts = [part for one in intervals for part in one.find_all(exp.Var, exp.Literal)]
    words = [word for part in parts for word in str(part.this).lower().split()]
    return any(word.startswith(("month", "year", "quarter")) for word in words)
