"""Aggregates with DISTINCT beside others: which nodes give them all.

One set of DISTINCT arguments beside aggregates that can be put together from parts becomes two
aggregates, the lower one by the argument as well, so that each value is there once. Anything else is
one aggregate for each set of DISTINCT arguments, over its distinct values, joined on the keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lockstep.sql.names import fresh_name
from lockstep.sql.plans.columns import only, renamed
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

__all__ = ["GroupedCall", "grouped"]


@dataclass(frozen=True)
class GroupedCall:
    """An aggregate as a SELECT has it; see `AggregateCall`. `node` is its syntax."""

    name: str
    function: AggregateFunction
    argument: str | None
    expression: Expression | None = None
    of_nothing: str = "NULL"
    distinct: bool = False
    node: Any = field(default=None, compare=False)

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
    plain = [call for call in calls if not call.distinct]
    by_values: dict[tuple[str, ...], list[GroupedCall]] = {}
    for call in calls:
        if call.distinct:
            by_values.setdefault(call.values, []).append(call)
    if not by_values:
        return Aggregate(below, keys, tuple(call.call for call in calls))
    if len(by_values) == 1 and all(map(_can_be_merged, plain)):
        return _in_two(below, keys, calls, next(iter(by_values)))
    parts: list[Node] = [
        Aggregate(
            Aggregate(below, tuple(dict.fromkeys((*keys, *values))), ()),
            keys,
            tuple(call.call for call in own),
        )
        for values, own in by_values.items()
    ]
    if plain:
        parts.insert(0, Aggregate(below, keys, tuple(call.call for call in plain)))
    return only(_on_keys(parts, keys), (*keys, *(call.name for call in calls)))


def _can_be_merged(call: GroupedCall) -> bool:
    return call.function not in (AggregateFunction.AVG, AggregateFunction.COLLECTED)


def _in_two(
    below: Node, keys: tuple[str, ...], calls: Sequence[GroupedCall], values: tuple[str, ...]
) -> Node:
    plain = [call for call in calls if not call.distinct]
    by = tuple(dict.fromkeys((*keys, *values)))
    inner = Aggregate(
        below,
        by,
        tuple(AggregateCall(fresh_name(c.name, by), c.function, c.argument) for c in plain),
    )
    partial = dict(zip((c.name for c in plain), (c.name for c in inner.aggregates), strict=True))
    outer = Aggregate(
        inner,
        keys,
        tuple(
            c.call if c.distinct else AggregateCall(c.name, _merging(c.function), partial[c.name])
            for c in calls
        ),
    )
    counts = {c.name for c in plain if c.function is AggregateFunction.COUNT}
    if keys or not counts:
        return outer
    # over no rows at all a sum of counts is null, but a count is 0
    return Project(
        outer,
        tuple(
            Output(name, Expression(f"coalesce(`{name}`, 0)", (name,)))
            if name in counts
            else Output(name, Expression.column(name))
            for name in outer.columns
        ),
    )


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
