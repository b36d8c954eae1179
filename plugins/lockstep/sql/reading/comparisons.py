"""The comparisons that have an order, and what they are from the other side."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from sqlglot import exp

__all__ = ["MIRRORED", "SIGNS", "is_chained"]

SIGNS: Mapping[type[Any], str] = MappingProxyType(
    {exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<="}
)
"""By the class of its node."""

MIRRORED: Mapping[str, str] = MappingProxyType({">": "<", ">=": "<=", "<": ">", "<=": ">="})
"""What a comparison is with the sides in each other's place."""

_COMPARED = (
    *(exp.EQ, exp.NEQ, exp.NullSafeEQ, *SIGNS),
    *(exp.Between, exp.In, exp.Like, exp.Is, exp.Not),
)


def is_chained(*sides: Any) -> bool:
    """Whether a side of a comparison is one itself, without parentheses: `a = b < c`. Spark takes the
    first of them first, and so a syntax tree that was made otherwise says something else."""
    return any(isinstance(side, _COMPARED) for side in sides)
