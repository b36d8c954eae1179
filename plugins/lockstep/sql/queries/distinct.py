"""Aggregates with DISTINCT beside others: which nodes give them all.

One set of DISTINCT arguments, by itself or beside counts, becomes two aggregates, the lower one by the
argument as well, so that each value is there once. Anything else is one aggregate for each set of
DISTINCT arguments, over its distinct values, joined on the keys. count(DISTINCT x) FILTER (WHERE c)
beside count(DISTINCT x) is of the same argument: the lower aggregate counts the rows of a value for
which the condition is true.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lockstep.sql.names import fresh_name, fresh_names
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

__all__ = ["Filtered", "GroupedCall", "case", "grouped", "with_conditions"]


@dataclass(frozen=True)
class Filtered:
    """An argument that is a column, `value`, where a condition is true; `met` is a column that is not
    null there, if there is one."""

    value: str
    condition: Expression
    met: str = ""


@dataclass(frozen=True)
class GroupedCall:
    """An aggregate as a SELECT has it; see `AggregateCall`. `node` is its syntax. Its argument is null
    where FILTER is not true, which `filtered` has apart where DISTINCT stands before a column."""

    name: str
    function: AggregateFunction
    argument: str | None
    expression: Expression | None = None
    of_nothing: str = "NULL"
    distinct: bool = False
    node: Any = field(default=None, compare=False)
    filtered: Filtered | None = field(default=None, compare=False)

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

    @property
    def read(self) -> tuple[str, ...]:
        """Those, and that of its condition, if there is one."""
        met = self.filtered.met if self.filtered else ""
        return (*self.values, met) if met else self.values


def case(condition: Expression, value: Expression) -> Expression:
    """The value where the condition is true, else null."""
    references = tuple(dict.fromkeys((*condition.references, *value.references)))
    return Expression(f"CASE WHEN {condition.text} THEN {value.text} END", references)


def with_conditions(
    calls: Sequence[GroupedCall], outputs: Sequence[Output]
) -> tuple[Sequence[GroupedCall], Sequence[Output]]:
    """The calls, of which only those are `filtered` whose column another one reads with DISTINCT and
    without a condition, so that all its values are kept anyway; and what is projected below them, with
    these conditions."""
    whole = {call.argument for call in calls if call.distinct and call.filtered is None}
    made, found = list[GroupedCall](), list(outputs)
    for call in calls:
        filtered = call.filtered
        if filtered is None or filtered.value not in whole:
            made.append(replace(call, filtered=None))
            continue
        is_met = case(filtered.condition, Expression("1"))
        met = next((one.name for one in found if one.expression == is_met), None)
        if met is None:
            met = fresh_name("_if", [one.name for one in found])
            found.append(Output(met, is_met))
        made.append(replace(call, filtered=replace(filtered, met=met)))
    return made, found


def grouped(below: Node, keys: tuple[str, ...], calls: Sequence[GroupedCall]) -> Node:
    """GROUP BY `keys` with the calls as columns, in this order, after the keys."""
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


def _can_be_merged(call: GroupedCall) -> bool:
    """Whether what parts come to is what all do, and costs no more: a sum of sums has other digits, or
    another type, and a part's extreme is taken back, so that all of them would have to be kept."""
    return call.function is AggregateFunction.COUNT


def _in_two(
    below: Node, keys: tuple[str, ...], values: tuple[str, ...], calls: Sequence[GroupedCall]
) -> Node:
    """Calls with DISTINCT of these values, and counts."""
    by = tuple(dict.fromkeys((*keys, *values)))
    plain = [call for call in calls if not call.distinct]
    filtered = [call.filtered for call in calls if call.filtered is not None]
    partial = dict(
        zip((c.name for c in plain), fresh_names((c.name for c in plain), by), strict=True)
    )
    parts = [AggregateCall(partial[c.name], c.function, c.argument) for c in plain]
    taken = (*by, *partial.values())
    counts = {one.met: fresh_name(f"_of{one.met}", taken) for one in filtered}
    parts += [AggregateCall(n, AggregateFunction.COUNT, one) for one, n in counts.items()]
    inner = Aggregate(below, by, tuple(parts))
    made, arguments = _sifted(inner, calls, counts)
    outer = Aggregate(
        made,
        keys,
        tuple(
            replace(c.call, argument=arguments.get(c.name, c.argument))
            if c.distinct
            else AggregateCall(c.name, AggregateFunction.SUM, partial[c.name])
            for c in calls
        ),
    )
    if keys or not plain:
        return outer
    # over no rows at all a sum of counts is null, but a count is 0
    return Project(
        outer,
        tuple(
            Output(name, Expression(f"coalesce(`{name}`, 0)", (name,)))
            if name in partial
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
            value, count = call.filtered.value, counts[call.filtered.met]
            arguments[call.name] = fresh_name(f"_met_{call.name}", [one.name for one in outputs])
            met = Expression(f"CASE WHEN `{count}` > 0 THEN `{value}` END", (count, value))
            outputs.append(Output(arguments[call.name], met))
    return (Project(inner, tuple(outputs)) if arguments else inner), arguments


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
