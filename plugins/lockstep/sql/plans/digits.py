"""How many digits Spark gives to a decimal that comes of others: precision and scale
(https://spark.apache.org/docs/latest/sql-ref-ansi-compliance.html#decimal-precision-and-scale)."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["LEAST_SCALE", "MOST_DIGITS", "WHOLE", "Digits", "bounded", "exact_result", "of_all"]

Digits = tuple[int, int]
"""Precision and scale."""

MOST_DIGITS = 38
LEAST_SCALE = 6
"""So many digits after the point a decimal keeps, if it has them, whatever comes before it."""
WHOLE = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
"""Of the decimals that Spark makes of whole numbers, from the narrowest on."""


def of_all(digits: Sequence[Digits]) -> Digits:
    """What holds all values of decimals with these."""
    scale = max(scale for _, scale in digits)
    return max(precision - scale for precision, scale in digits) + scale, scale


def exact_result(sign: str, left: Digits, right: Digits) -> Digits:
    """What holds each sum, difference or product (`+ - *`), which may be more than there are."""
    if sign == "*":
        return left[0] + right[0] + 1, left[1] + right[1]
    precision, scale = of_all([left, right])
    return precision + 1, scale


def bounded(digits: Digits) -> Digits:
    """What Spark makes of a result with so many: whole ones go before all but six others."""
    precision, scale = digits
    if precision <= MOST_DIGITS:
        return digits
    return MOST_DIGITS, max(MOST_DIGITS - (precision - scale), min(scale, LEAST_SCALE))
