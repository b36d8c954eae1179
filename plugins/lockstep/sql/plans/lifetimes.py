"""What an operator remembers and nothing can meet any more: watermarks have passed all that could.

A row of a join's input is past where no later row of another input can be its partner, and no later
row of its own input can be itself, taken back. Later rows of a source with a watermark are not below it,
so a condition that says how late a partner may be bounds for how long a row counts. Of three forms:

- **windows that are equated**: each input has a column that is of a time window, and all of them are
  equal. A row is past when the watermarks of all inputs have passed the end of its window;
- **times that are compared**, of two inputs: `b.at <= a.at + INTERVAL 10 MINUTES`, or with a column
  `a.until`. A row of a is past when the watermarks have passed that, and its own time;
- **columns that are equated, and say when rows are settled**: rows of a join in time, and the distinct
  ones of them, change no more once those that they are made of are past. So a row that is joined with
  them by these columns is past then, too: outer joins and subqueries in time are made of such joins.

What groups are made of is past where their keys say when rows are settled.

Everything stands on rows that come in the step in which they pass their watermark: behind a condition on
the clock they may come at any time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from lockstep.sql.plans.expressions import moved_column, ordered, substitute
from lockstep.sql.plans.final import prompt_window_end, times_of
from lockstep.sql.plans.multiway import equal_columns
from lockstep.sql.plans.nodes import (
    Aggregate,
    Expression,
    Filter,
    MultiwayJoin,
    Node,
    Project,
    SessionGroups,
    Weigh,
)

__all__ = ["SESSION_LAST", "Lifetime", "key_lifetime", "lifetimes", "session_lifetime"]

SESSION_LAST = "_session_last"
"""The column of a trace of sessions with the time of a session's last row."""


@dataclass(frozen=True)
class Lifetime:
    """How long rows count: until the watermarks have passed all of `ends`, timestamps over the rows'
    columns, and, where it is not `is_exclusive`, until they have passed more than that."""

    ends: tuple[Expression, ...]
    watermarks: tuple[Node, ...]
    is_exclusive: bool

    @property
    def columns(self) -> frozenset[str]:
        """What the ends read."""
        return frozenset(name for end in self.ends for name in end.references)

    def over(self, names: Mapping[str, str]) -> Lifetime | None:
        """The same over columns of other names; None where one has none."""
        if not self.columns <= names.keys():
            return None
        values = {old: Expression.column(new) for old, new in names.items()}
        ends = [substitute(end, values) for end in self.ends]
        known = tuple(end for end in ends if end is not None)
        return (
            Lifetime(known, self.watermarks, self.is_exclusive) if len(known) == len(ends) else None
        )


def lifetimes(node: MultiwayJoin) -> tuple[Lifetime | None, ...]:
    """By input how long its rows count; None for rows that count for good."""
    found = _by_window(node) or _by_columns(node)
    if found is not None:
        return found
    if len(node.inputs) != 2:
        return (None,) * len(node.inputs)
    times = tuple(map(times_of, node.inputs))
    return _by_time(node, times, 0), _by_time(node, times, 1)


def key_lifetime(node: Node, keys: Iterable[str]) -> Lifetime | None:
    """How long rows of the node count that are looked up by these keys: until the window that one of the
    keys is of is over, or the keys say that rows with them are settled. None for rows that count for
    good."""
    keys = tuple(keys)
    for key in keys:
        end = prompt_window_end(node, key)
        if end is not None:
            return Lifetime((end[0],), end[1], is_exclusive=True)
    return next((one for one in _settled(node) if one.columns <= set(keys)), None)


def session_lifetime(node: SessionGroups) -> Lifetime | None:
    """How long a session counts: as long as a row on time can follow its last one within the gap."""
    watermarks = times_of(node.input).get(node.time)
    if watermarks is None:
        return None
    end = f"try_add(`{SESSION_LAST}`, INTERVAL '{node.gap}')"
    return Lifetime((Expression(end, (SESSION_LAST,)),), watermarks, is_exclusive=False)


def _by_window(node: MultiwayJoin) -> tuple[Lifetime, ...] | None:
    for equal in dict.fromkeys(map(frozenset, equal_columns(node).values())):
        ends = []
        for below in node.inputs:
            columns = (name for name in below.columns if name in equal)
            found = (prompt_window_end(below, name) for name in columns)
            ends.append(next((end for end in found if end is not None), None))
        known = [end for end in ends if end is not None]
        # A start says the same of windows of one length only.
        forms = {_form(end) for end, _ in known}
        if len(known) == len(node.inputs) and len(forms) == 1:
            watermarks = tuple(dict.fromkeys(one for _, of in known for one in of))
            return tuple(Lifetime((end,), watermarks, is_exclusive=True) for end, _ in known)
    return None


def _form(end: Expression) -> str:
    return end.text.replace(f"`{end.references[0]}`", "", 1)


def _settled(node: Node) -> Iterator[Lifetime]:
    """How long rows come and go, by what their columns say of it."""
    for name, watermarks in times_of(node).items():
        yield Lifetime((Expression.column(name),), watermarks, is_exclusive=False)
    match node:
        case MultiwayJoin():
            yield from (one for one in lifetimes(node) if one is not None)
        case Project():
            names = {
                o.expression.references[0]: o.name for o in node.outputs if o.expression.is_column
            }
            moved = (one.over(names) for one in _settled(node.input))
            yield from (one for one in moved if one is not None)
        case Filter() | Weigh():
            yield from _settled(node.input)
        case Aggregate():
            yield from (one for one in _settled(node.input) if one.columns <= set(node.keys))
        case _:
            return


def _by_columns(node: MultiwayJoin) -> tuple[Lifetime, ...] | None:
    equal = equal_columns(node)
    said = []
    for below in node.inputs:
        everywhere = (_everywhere(one, node, equal) for one in _settled(below))
        said.append(next((found for found in everywhere if found is not None), None))
    known = [one for one in said if one is not None]
    if len(known) < len(said):
        return None
    return tuple(map(_all, zip(*known, strict=True)))


def _everywhere(
    lifetime: Lifetime, node: MultiwayJoin, equal: Mapping[str, Collection[str]]
) -> list[Lifetime] | None:
    """When rows of one input are settled, over the columns of each that are equated."""
    found = []
    for below in node.inputs:
        names = {
            name: other
            for name in lifetime.columns
            for other in below.columns
            if other == name or other in equal.get(name, ())
        }
        found.append(lifetime.over(names))
    known = [one for one in found if one is not None]
    return known if len(known) == len(found) else None


def _all(lifetimes: Collection[Lifetime]) -> Lifetime:
    """Until the last of them is over."""
    return Lifetime(
        tuple(dict.fromkeys(end for one in lifetimes for end in one.ends)),
        tuple(dict.fromkeys(one for of in lifetimes for one in of.watermarks)),
        all(one.is_exclusive for one in lifetimes),
    )


Times = Mapping[str, tuple[Node, ...]]
"""Columns of an input with the watermarks that are about them."""


def _by_time(node: MultiwayJoin, times: tuple[Times, ...], place: int) -> Lifetime | None:
    own, others = times[place], times[1 - place]
    latest = _latest(node, others, node.inputs[place].columns)
    if not own or latest is None:
        return None
    end, partner = latest
    [time, *_] = own
    ends = dict.fromkeys((end, Expression.column(time)))
    watermarks = dict.fromkeys((*own[time], *others[partner]))
    return Lifetime(tuple(ends), tuple(watermarks), is_exclusive=False)


def _latest(
    node: MultiwayJoin, times: Collection[str], columns: Collection[str]
) -> tuple[Expression, str] | None:
    """The latest time that a partner may have, over these columns, and the partner's column."""
    for low, high in _pairs(node):
        early, late = moved_column(low), moved_column(high)
        if early is None or late is None or early.column not in times or late.column not in columns:
            continue
        return late.less(early), early.column
    return None


def _pairs(node: MultiwayJoin) -> Iterator[tuple[Expression, Expression]]:
    """What the join says of the order of two values: the first is not greater."""
    for equality in node.equalities:
        left, right = Expression.column(equality.left), Expression.column(equality.right)
        yield left, right
        yield right, left
    for condition in node.conditions:
        yield from ordered(condition)
