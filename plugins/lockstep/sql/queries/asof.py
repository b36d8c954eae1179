"""ASOF JOIN: each row beside the one row of the other side that is nearest in time.

An extension: Spark has no such join. A row of the right side is the nearest one for a span of times,
from its own to the next of its key. So with that next time beside it, from a window over the right side,
it is an ordinary join: a left row that comes or goes looks up its key and no more, and a right row
changes the span of its neighbour.

Rows of equal time have no span but the last of them, in the order of all columns that are read: the
choice is the same whatever came first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lockstep.errors import NotSupported
from lockstep.sql.names import fresh_name
from lockstep.sql.plans.columns import as_they_are
from lockstep.sql.plans.expressions import all_of, comparison, conjuncts, equality
from lockstep.sql.plans.nodes import (
    Expression,
    Filter,
    Join,
    JoinKind,
    Node,
    Output,
    Project,
    SortKey,
    Window,
    WindowCall,
)
from lockstep.sql.queries.functions import refuse
from lockstep.sql.reading.comparisons import MIRRORED
from lockstep.sql.reading.syntax import SourceText

__all__ = ["asof_join"]

_UNTIL = {">=": "<", ">": "<=", "<=": ">", "<": ">="}
"""How a time compares with that of the next right row, where it compares so with this one's."""


@dataclass(frozen=True)
class _Nearest:
    """What ON says: `keys` as (left, right, whether null equals null); `left sign right` of time."""

    keys: tuple[tuple[Expression, Expression, bool], ...]
    left: Expression
    sign: str
    right: Expression


def asof_join(
    source: SourceText, at: Any, left: Node, right: Node, on: Sequence[Expression], kind: JoinKind
) -> Join:
    """The join of two plans with columns of their own; `on` are conditions over both, all to be true.

    Raises NotSupported where they are not equalities and one comparison of the two sides."""
    parts = [part for condition in on for part in conjuncts(condition)]
    nearest = _nearest(source, at, frozenset(left.columns), frozenset(right.columns), parts)
    taken = {*left.columns, *right.columns}
    columns: list[str] = []
    for expression in (*(theirs for _, theirs, _ in nearest.keys), nearest.right):
        if expression.is_column:
            columns.append(expression.references[0])
            continue
        columns.append(fresh_name("_asof", taken))
        taken.add(columns[-1])
        right = Project(right, (*as_they_are(right.columns), Output(columns[-1], expression)))
    *keys, time = columns
    following = fresh_name("_next", taken)
    known = Filter(right, Expression(f"`{time}` IS NOT NULL", (time,)))
    order = SortKey(Expression.column(time), descending=nearest.sign.startswith("<"))
    call = WindowCall(following, Expression(f"lead(`{time}`)", (time,)), (order,))
    spans = Window(known, tuple(dict.fromkeys(keys)), (call,))
    ours = nearest.left
    tests = [
        Expression(f"({one.text}) {'<=>' if same else '='} `{key}`", (*one.references, key))
        for (one, _, same), key in zip(nearest.keys, keys, strict=True)
    ]
    since = f"({ours.text}) {nearest.sign} `{time}`"
    until = f"(`{following}` IS NULL OR ({ours.text}) {_UNTIL[nearest.sign]} `{following}`)"
    tests.append(Expression(f"{since} AND {until}", (*ours.references, time, following)))
    return Join(left, spans, (), (), all_of(tests), kind)


def _nearest(
    source: SourceText,
    at: Any,
    left: frozenset[str],
    right: frozenset[str],
    parts: Sequence[Expression],
) -> _Nearest:
    keys: list[tuple[Expression, Expression, bool]] = []
    times: list[tuple[Expression, str, Expression]] = []
    for part in parts:
        same, compared = equality(part), comparison(part)
        if same is not None and (sides := _sided(same[0], same[1], left, right)) is not None:
            keys.append((sides[0], sides[1], same[2]))
        elif (
            compared is not None
            and (sides := _sided(compared[0], compared[2], left, right)) is not None
        ):
            sign = MIRRORED[compared[1]] if sides[2] else compared[1]
            times.append((sides[0], sign, sides[1]))
        else:
            raise _refused(source, at, "by more than equalities and one comparison of both sides")
    if len(times) != 1:
        raise _refused(source, at, f"that compares {len(times)} times")
    return _Nearest(tuple(keys), *times[0])


def _sided(
    one: Expression, other: Expression, left: frozenset[str], right: frozenset[str]
) -> tuple[Expression, Expression, bool] | None:
    """The side over the left relation, that over the right one, and whether they stood turned."""
    if not (one.references and other.references):
        return None
    for ours, theirs, turned in ((one, other, False), (other, one, True)):
        if left.issuperset(ours.references) and right.issuperset(theirs.references):
            return ours, theirs, turned
    return None


def _refused(source: SourceText, at: Any, what: str) -> NotSupported:
    return refuse(
        source,
        at,
        f"an ASOF JOIN {what}",
        "write `a ASOF JOIN b ON a.key = b.key AND a.time >= b.time`, and filter in a subquery of FROM",
    )
