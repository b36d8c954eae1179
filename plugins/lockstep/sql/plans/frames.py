"""Calls of window functions that a process without Spark can work out: functions of one column, over
frames that are told by numbers of rows.

What else stands before OVER, or says of a frame, is Spark's: other arguments than columns, RANGE of so
much, IGNORE NULLS, lists. So is what Spark refuses, as it says why: an order that is missing, a frame
that a function takes no part in, or that ends before it begins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from lockstep.sql.plans.terms import Expression, WindowCall

__all__ = ["AGGREGATES", "Frame", "FramedCall", "framed_call"]

AGGREGATES = frozenset({"avg", "count", "max", "min", "sum"})
"""What is worked out of all rows of a frame."""

_OF_NOTHING = frozenset({"cume_dist", "dense_rank", "percent_rank", "rank", "row_number"})
_NAMES: Mapping[str, str] = MappingProxyType(
    {
        **{name: name for name in (*AGGREGATES, *_OF_NOTHING, "first_value", "last_value")},
        "mean": "avg",
        "first": "first_value",
        "last": "last_value",
    }
)
_DISTANT: Mapping[str, int] = MappingProxyType({"lag": -1, "lead": 1})
"""Functions of one row so many away, and in which direction."""

_BOUND = r"UNBOUNDED PRECEDING|UNBOUNDED FOLLOWING|CURRENT ROW|\d{1,9} PRECEDING|\d{1,9} FOLLOWING"
_FRAME = re.compile(rf"(ROWS|RANGE) BETWEEN ({_BOUND}) AND ({_BOUND})")
_CALL = re.compile(r"(\w+)\((.*)\)", re.DOTALL)


@dataclass(frozen=True)
class Frame:
    """The rows of a partition from `first` to `last`, as so many after the row itself; None is as far as
    there are. `by_peers`: rows that are equal in order are in it together, and numbers are 0 or None."""

    first: int | None
    last: int | None
    by_peers: bool = False


@dataclass(frozen=True)
class FramedCall:
    """A function by its first name, the `column` it reads, None where it reads none, and the frame."""

    function: str
    column: str | None
    frame: Frame


def framed_call(call: WindowCall) -> FramedCall | None:
    """None where Spark is to work it out."""
    found = _CALL.fullmatch(call.function.text)
    if found is None or not all(key.expression.is_column for key in call.order):
        return None
    name, arguments = found[1].lower(), found[2]
    if name in _DISTANT:
        return _distant(call, name, arguments)
    if name in _OF_NOTHING:
        is_whole = not arguments and call.order and not call.frame
        return FramedCall(name, None, Frame(None, None)) if is_whole else None
    frame = _frame(call)
    if frame is None or name not in _NAMES:
        return None
    if name == "count" and arguments in ("*", "1"):
        return FramedCall("count", None, frame)
    column = _column(call.function, arguments)
    return None if column is None else FramedCall(_NAMES[name], column, frame)


def _distant(call: WindowCall, name: str, arguments: str) -> FramedCall | None:
    """A row so many before or after: a frame of this one alone."""
    argument, comma, number = arguments.rpartition(", ")
    if not comma:
        argument, number = arguments, "1"
    column = _column(call.function, argument)
    if column is None or call.frame or not call.order or not re.fullmatch(r"\d{1,9}", number):
        return None
    at = _DISTANT[name] * int(number)
    return FramedCall("first_value", column, Frame(at, at))


def _column(function: Expression, argument: str) -> str | None:
    own = Expression(argument, function.references)
    return function.references[0] if own.is_column else None


def _frame(call: WindowCall) -> Frame | None:
    if not call.frame:
        # Without an order all rows are equal in it.
        return Frame(None, 0, by_peers=True)
    found = _FRAME.fullmatch(call.frame)
    if found is None:
        return None
    kind, *bounds = found.groups()
    if bounds[0] == "UNBOUNDED FOLLOWING" or bounds[1] == "UNBOUNDED PRECEDING":
        return None
    first, last = (_place(one) for one in bounds)
    if first is not None and last is not None and first > last:
        return None
    is_whole = first is None and last is None
    if kind == "RANGE" and (re.search(r"\d", found[0]) or not (call.order or is_whole)):
        return None
    return Frame(first, last, by_peers=kind == "RANGE")


def _place(bound: str) -> int | None:
    words = bound.split()
    if words[0] == "UNBOUNDED":
        return None
    if words[0] == "CURRENT":
        return 0
    return -int(words[0]) if words[1] == "PRECEDING" else int(words[0])
