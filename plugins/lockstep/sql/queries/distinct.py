"""Aggregates with DISTINCT beside others: which nodes give them all.

One set of DISTINCT arguments beside aggregates that can be put together from parts becomes two
aggregates, the lower one by the argument as well, so that each value is there once. Anything else is
one aggregate for each set of DISTINCT arguments, over its distinct values, joined on the keys. A
column with several conditions, count(DISTINCT x) FILTER (WHERE c), is one such argument: the lower
aggregate counts the rows of a value for which each of them is true.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lockstep.sql.names import fresh_name
from lockstep.sql.plans.columns import as_they_are, only, renamed
from lockstep.sql.plans.nodes import (
    Aggregate,
    AggregateCall,
    AggregateFunction,
    Expression,
    Join,
    Node,
    Output,
    Project,
)

__all__ = ["Filtered", "GroupedCall", "grouped"]


@dataclass(frozen=True)
class Filtered:
    """Columns of an argument with DISTINCT: its values, and one that is there where FILTER is true."""

    value: str
    condition: str


@dataclass(frozen=True)
class GroupedCall:
    """An aggregate as a SELECT has it; see `AggregateCall`. `node` is its syntax; one that is `filtered`
    may be made of that in place of its argument."""

    name: str
    function: AggregateFunction
    argument: str | None
    expression: Expression | None = None
    of_nothing: str = "NULL"
    distinct: bool = False
    node: Any = field(default=None, compare=False)
    filtered: Filtered | None = None

    @property
    def call(self) -> AggregateCall:
        """The call without DISTINCT."""
        return AggregateCall(
            self.name, self.function, self.argument, self.expression, self.of_nothing
        )

    @property
    def values(self) -> tuple[str, ...]:
        """The columns that the call reads."""
        return self.call.references


def grouped(below: Node, keys: tuple[str, ...], calls: Sequence[GroupedCall]) -> Node:
    """GROUP BY `keys` with the calls as columns, in this order, after the keys."""
    calls = _as_read(calls)
    plain = [call for call in calls if not call.distinct]
    by_values: dict[tuple[str, ...], list[GroupedCall]] = {}
    for call in calls:
        if call.distinct:
            values = call.values if call.filtered is None else (call.filtered.value,)
            by_values.setdefault(values, []).append(call)
    if not by_values:
        return Aggregate(below, keys, tuple(call.call for call in calls))
    if len(by_values) == 1 and all(map(_can_be_merged, plain)):
        return _in_two(below, keys, next(iter(by_values)), calls)
    parts = [_in_two(below, keys, values, own) for values, own in by_values.items()]
    if plain:
        parts.insert(0, Aggregate(below, keys, tuple(call.call for call in plain)))
    return only(_on_keys(parts, keys), (*keys, *(call.name for call in calls)))


def _as_read(calls: Sequence[GroupedCall]) -> Sequence[GroupedCall]:
    """The calls, `filtered` only where others with DISTINCT read the same column: a condition by itself
    is for the argument, so that fewer values are kept."""
    arguments: dict[str, set[str | None]] = {}
    for call in calls:
        read = call.values if call.filtered is None else (call.filtered.value,)
        if call.distinct and len(read) == 1:
            arguments.setdefault(read[0], set()).add(call.argument)
    return [
        call
        if call.filtered is None or len(arguments[call.filtered.value]) > 1
        else replace(call, filtered=None)
        for call in calls
    ]


def _can_be_merged(call: GroupedCall) -> bool:
    return call.function not in (AggregateFunction.AVG, AggregateFunction.COLLECTED)


def _in_two(
    below: Node, keys: tuple[str, ...], values: tuple[str, ...], calls: Sequence[GroupedCall]
) -> Node:
    """Calls with DISTINCT of these values, and such as can be put together from parts."""
    by = tuple(dict.fromkeys((*keys, *values)))
    plain = [call for call in calls if not call.distinct]
    filtered = [call.filtered for call in calls if call.filtered is not None]
    parts = [AggregateCall(fresh_name(c.name, by), c.function, c.argument) for c in plain]
    partial = dict(zip((c.name for c in plain), (part.name for part in parts), strict=True))
    taken = (*by, *partial.values())
    counts = {one.condition: fresh_name(f"_of{one.condition}", taken) for one in filtered}
    parts += [AggregateCall(n, AggregateFunction.COUNT, one) for one, n in counts.items()]
    inner = Aggregate(below, by, tuple(parts))
    made, arguments = _sifted(inner, calls, counts)
    outer = Aggregate(
        made,
        keys,
        tuple(
            replace(c.call, argument=arguments.get(c.name, c.argument))
            if c.distinct
            else AggregateCall(c.name, _merging(c.function), partial[c.name])
            for c in calls
        ),
    )
    counted = {c.name for c in plain if c.function is AggregateFunction.COUNT}
    if keys or not counted:
        return outer
    # over no rows at all a sum of counts is null, but a count is 0
    return Project(
        outer,
        tuple(
            Output(name, Expression(f"coalesce(`{name}`, 0)", (name,)))
            if name in counted
            else Output(name, Expression.column(name))
            for name in outer.columns
        ),
    )


def _sifted(
    inner: Aggregate, calls: Sequence[GroupedCall], counts: Mapping[str, str]
) -> tuple[Node, Mapping[str, str]]:
    """Values once each, with a column of those that met the condition of each call that is filtered; and
    these columns, by call."""
    arguments, outputs = dict[str, str](), list(as_they_are(inner.columns))
    for call in calls:
        if call.filtered is not None:
            value, count = call.filtered.value, counts[call.filtered.condition]
            arguments[call.name] = fresh_name(f"_met_{call.name}", [one.name for one in outputs])
            met = Expression(f"CASE WHEN `{count}` > 0 THEN `{value}` END", (count, value))
            outputs.append(Output(arguments[call.name], met))
    return (Project(inner, tuple(outputs)) if arguments else inner), arguments


def _merging(function: AggregateFunction) -> AggregateFunction:
    """The function that puts partial results of `function` together."""
    return AggregateFunction.SUM if function is AggregateFunction.COUNT else function


def _on_keys(parts: list[Node], keys: tuple[str, ...]) -> Node:
    """The parts side by side: each has exactly the same groups."""
    node = parts[0]
    for place, part in enumerate(parts[1:]):
        names = {key: fresh_name(f"_same{place}_{key}", node.columns) for key in keys}
        node = Join(
            node,
            renamed(part, names),
            keys,
            tuple(names[key] for key in keys),
            null_safe=(True,) * len(keys),
        )
    return node
