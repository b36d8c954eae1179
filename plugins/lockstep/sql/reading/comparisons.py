"""The comparisons that have an order, and what they are from the other side."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from sqlglot import exp

__all__ = ["MIRRORED", "SIGNS"]

SIGNS: Mapping[type[Any], str] = MappingProxyType(
    {exp.GT: ">", exp.GTE: ">=", exp.LT: "<", exp.LTE: "<="}
)
"""By the class of its node."""

MIRRORED: Mapping[str, str] = MappingProxyType({">": "<", ">=": "<=", "<": ">", "<=": ">="})
"""What a comparison is with the sides in each other's place."""
