"""Sums of products of deviations, exact, rounded once: of each group after each step.

For n pairs of doubles the sum of (x - mean of x) times (y - mean of y) is

    (n * sum of x * y  -  sum of x  *  sum of y) / n

Textbooks warn of this form, as in doubles most of its digits cancel. Here the sums are whole numbers
times a power of two (`exact_sums`), so is the difference, and only the quotient is rounded. Nothing
depends on an order, and what is taken back leaves nothing behind: of equal numbers it is 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lockstep_engine.kernels.exact_sums import (
    DIGIT_BITS,
    NOT_A_NUMBER,
    Doubles,
    running_beyond,
    running_digits,
)
from lockstep_engine.kernels.groups import Integers, Positions, positions_of

__all__ = ["COUNTS", "PRODUCTS", "XS", "YS", "running_comoments"]

XS, COUNTS, YS, PRODUCTS = range(4)
"""What a row adds to: the sum of x, the number of pairs, the sum of y, that of x * y."""

_Whole = tuple[Sequence[int], int]
"""Whole numbers, and the power of two that they count."""


def running_comoments(
    addends: Integers, keys: Integers, bins: Integers, steps: Integers, parts: Integers
) -> tuple[Integers, Doubles]:
    """The sum of every (key, step) that occurs, sorted, with the index of a row of it.

    Rows are changes, in any order, as of `running_sums`; `addends` says to which of the four sums each
    row adds. Without a row that adds to YS, y is x. A group without pairs has the sum 0. NaN where a
    number is none; an infinity where a product is greater than any double.
    """
    positions = positions_of(keys, steps)
    is_finite = bins < NOT_A_NUMBER
    totals = {
        addend: _totals(positions, bins, parts, is_finite & (addends == addend))
        for addend in (XS, COUNTS, YS, PRODUCTS)
    }
    if not (addends == YS).any():
        totals[YS] = totals[XS]
    numbers = addends != PRODUCTS
    beyond = running_beyond(positions, bins, parts, ~is_finite & numbers)
    products = running_beyond(positions, bins, parts, ~is_finite & ~numbers)
    found = np.where(products == 0, _quotients(totals), products)
    return positions.at, np.where(beyond == 0, found, np.nan)


def _totals(
    positions: Positions, bins: Integers, parts: Integers, rows: NDArray[np.bool_]
) -> _Whole:
    whole, low = [0] * len(positions.at), 0
    pieces = running_digits(positions.of_row, positions.first, bins, parts, np.flatnonzero(rows))
    for piece in pieces:
        low = piece.low
        total = np.zeros(piece.stop - piece.start, object)
        for place in reversed(range(piece.digits.shape[1])):
            total = (total << DIGIT_BITS) + piece.digits[:, place].astype(object)
        whole[piece.start : piece.stop] = total.tolist()
    return whole, DIGIT_BITS * (low - 2)


def _quotients(totals: dict[int, _Whole]) -> Doubles:
    (xs, of_x), (counts, unit), (ys, of_y), (products, of_product) = (
        totals[addend] for addend in (XS, COUNTS, YS, PRODUCTS)
    )
    exponent = min(of_product, of_x + of_y)
    product_shift, sums_shift = of_product - exponent, of_x + of_y - exponent
    found = np.zeros(len(counts))
    for place, count in enumerate(counts):
        pairs = count >> -unit
        if pairs:
            whole = (pairs * products[place]) << product_shift
            found[place] = _rounded(
                whole - ((xs[place] * ys[place]) << sums_shift), exponent, pairs
            )
    return found


def _rounded(whole: int, exponent: int, divisor: int) -> float:
    """whole * 2**exponent / divisor, to the nearest."""
    try:
        # Python's own division of whole numbers is rounded once.
        return (whole << max(exponent, 0)) / (divisor << max(-exponent, 0))
    except OverflowError:
        return math.copysign(math.inf, whole)
