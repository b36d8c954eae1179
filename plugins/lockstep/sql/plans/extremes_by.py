"""max_by(x, y) and min_by(x, y) as the greatest and the least of a struct, where rows stay.

As an aggregate that is computed anew they look at all rows of a group that changed. Where rows stay,
the greatest pair so far is all that has to be remembered. Of several rows with the same y it is the one
with the greatest (least) x; Spark takes one of them. Rows without a y do not count, as in Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from sqlglot import exp

from lockstep.sql.names import fresh_names
from lockstep.sql.plans.columns import as_they_are
from lockstep.sql.plans.expressions import from_text, parsed
from lockstep.sql.plans.nodes import (
    Aggregate,
    AggregateCall,
    AggregateFunction,
    Expression,
    Node,
    Output,
    Project,
)
from lockstep.sql.plans.rewrites import tidy

__all__ = ["extremes_by"]

_FUNCTIONS: Mapping[str, AggregateFunction] = MappingProxyType(
    {"max_by": AggregateFunction.MAX, "min_by": AggregateFunction.MIN}
)


def extremes_by(node: Aggregate, has_order: Callable[[Node, Expression], bool]) -> Node | None:
    """The same groups with extremes of structs, None where there are none to be made. `has_order` says
    of an expression over a node whether it is known to be of a type that has an order."""
    found = {
        call.name: pair
        for call in node.collected
        if (pair := _pair(call)) is not None and has_order(node.input, pair[0])
    }
    if not found:
        return None
    names = dict(zip(found, fresh_names(found, node.input.columns), strict=True))
    pairs = tuple(Output(names[call], _struct(*found[call])) for call in found)
    below = tidy(Project(node.input, (*as_they_are(node.input.columns), *pairs)))
    calls = tuple(
        AggregateCall(call.name, _FUNCTIONS[call.called], names[call.name])
        if call.name in found
        else call
        for call in node.aggregates
    )
    values = (
        Output(name, Expression(f"`{name}`.x" if name in found else f"`{name}`", (name,)))
        for name in node.columns
    )
    return Project(Aggregate(below, node.keys, calls), tuple(values))


def _struct(value: Expression, by: Expression) -> Expression:
    text = f"named_struct('y', {by.text}, 'x', {value.text})"
    return from_text(f"CASE WHEN {by.text} IS NOT NULL THEN {text} END")


def _pair(call: AggregateCall) -> tuple[Expression, Expression] | None:
    """The arguments of a call of max_by or min_by."""
    assert call.expression is not None, "of a collected call"
    if call.called not in _FUNCTIONS:
        return None
    source, node = parsed(call.expression)
    if not isinstance(node, exp.Anonymous) or len(node.expressions) != 2:
        return None
    value, by = (from_text(source.render(one, lambda _: None)) for one in node.expressions)
    return value, by
