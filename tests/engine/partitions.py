"""What tests of windows have in common: the operator of a plan, and which rows are there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

from intervals import circuit_of

from lockstep.sql.circuit import Operator
from lockstep.sql.plans.nodes import Window

__all__ = ["there_at", "window_of"]

_Row = TypeVar("_Row")


def window_of(plan: Window, append_only: frozenset[str] = frozenset()) -> Operator:
    """The operator that evaluates the plan."""
    operators = circuit_of(plan, append_only).operators
    return next(one for one in operators if isinstance(one.node, Window))


def there_at(changes: Iterable[tuple[_Row, int, int]], step: int) -> Counter[_Row]:
    """How often each row is there after a step, by changes of a row, a weight and a step."""
    there = Counter[_Row]()
    for row, weight, at in changes:
        if at <= step:
            there[row] += weight
    return there
