"""Aggregate functions of Spark and what they mean, in plain Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from operator import xor
from typing import Any

__all__ = ["AGGREGATES", "Collected"]


@dataclass(frozen=True)
class Collected:
    """A call, with a place for its argument, the kind of its result, and its value over numbers that are
    not null, in any order; `of_nothing` is that of no rows, as SQL."""

    text: str
    kind: str
    meaning: Callable[[Sequence[int]], Any]
    of_nothing: str = "NULL"


def _middle(values: Sequence[int]) -> float | None:
    if not values:
        return None
    found = sorted(values)
    low, high = found[(len(found) - 1) // 2], found[len(found) // 2]
    # Spark makes doubles of the two before it adds them.
    return float(low) if low == high else float(low) * 0.5 + float(high) * 0.5


def _joined(values: Sequence[int]) -> str:
    return ",".join(sorted(map(str, values)))


def _odd(values: Sequence[int]) -> int | None:
    return reduce(xor, values) if values else None


def _spread(values: Sequence[int]) -> float | None:
    if not values:
        return None
    numbers = [Fraction(float(value)) for value in values]
    mean = sum(numbers) / len(numbers)
    return float(sum((number - mean) ** 2 for number in numbers)) / len(numbers)


AGGREGATES = (
    Collected("median({})", "middle", _middle),
    Collected("array_join(array_sort(collect_list(string({}))), ',')", "list", _joined, "''"),
    Collected("bit_xor({})", "long", _odd),
    Collected("var_pop({})", "middle", _spread),
)
