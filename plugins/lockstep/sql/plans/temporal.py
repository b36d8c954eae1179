"""Conditions on now() are filters while a plan is rewritten, and operators of their own at its end.

At each step such a condition is a filter like any other, so all that is true of filters is true of
it, and it goes below joins and unions with them. But the rows for which it is true change without
any input, so where it ends up its row's expression becomes a column by which rows are found when
their time comes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lockstep.sql.names import fresh_name
from lockstep.sql.plans.columns import as_they_are, only
from lockstep.sql.plans.expressions import all_of, clock_bounds, conjuncts, reads_clock
from lockstep.sql.plans.nodes import Expression, Filter, Join, Node, Output, Project, Temporal
from lockstep.sql.plans.sharing import with_inputs

__all__ = ["write_temporal"]


def write_temporal(node: Node) -> Node:
    """The same relation with no condition on the clock; its joins are inner ones."""
    node = with_inputs(node, tuple(map(write_temporal, node.inputs)))
    match node:
        case Filter(predicate=condition):
            rest, clocks = _split(condition)
            return node if not clocks else _bounded(_filtered(node.input, rest), clocks)
        case Join(condition=Expression() as condition):
            rest, clocks = _split(condition)
            if not clocks:
                return node
            return _bounded(replace(node, condition=all_of(rest) if rest else None), clocks)
        case _:
            return node


def _split(condition: Expression) -> tuple[list[Expression], list[Expression]]:
    """The parts of a condition that do not read the clock, and those that do."""
    parts = conjuncts(condition)
    return (
        [part for part in parts if not reads_clock(part)],
        [part for part in parts if reads_clock(part)],
    )


def _filtered(node: Node, parts: list[Expression]) -> Node:
    return Filter(node, all_of(parts)) if parts else node


def _bounded(node: Node, clocks: Iterable[Expression]) -> Node:
    """What lets rows in stands below what takes them out: rows of the future are remembered once."""
    columns = node.columns
    bounds = [bound for clock in clocks for bound in clock_bounds(clock)]
    for value, sign, clock in sorted(bounds, key=lambda bound: not bound[1].startswith("<")):
        name = value.references[0] if value.is_column else fresh_name("_due", node.columns)
        if not value.is_column:
            node = Project(node, (*as_they_are(node.columns), Output(name, value)))
        node = Temporal(node, name, sign, clock)
    return only(node, columns)
