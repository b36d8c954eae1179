"""Sums of doubles, exact, rounded once: of each group after each step.

A finite double other than 0 is a whole number of at most 82 bits times a power of two that depends
on its bin alone: 27 exponents share a bin. In three parts of 27 bits, of which billions fit into an
int64 each, such numbers are added and taken back like any whole numbers, in any order: 1e20 + 1 -
1e20 is 1. The parts of all bins are digits to the base 2**27; carried through, the leading ones
make the double, and whether anything is left below them decides the rounding. NaN and infinities
are counted apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lockstep_engine.kernels.groups import Integers, Positions, in_order, positions_of, starts

__all__ = [
    "DIGIT_BITS",
    "MINUS_INFINITY",
    "NOT_A_NUMBER",
    "NO_BIN",
    "PARTS",
    "PLUS_INFINITY",
    "Digits",
    "Doubles",
    "running_beyond",
    "running_digits",
    "running_sums",
]

DIGIT_BITS = 27
PARTS = 3

NOT_A_NUMBER, PLUS_INFINITY, MINUS_INFINITY, NO_BIN = 1000, 1001, 1002, 1003
"""Bins of what is no number; `NO_BIN` marks a row that adds nothing. Others are below 100."""

CELLS_AT_ONCE = 1 << 22
"""The digits of so many positions are held at once: 32 MB."""

_MASK = (1 << DIGIT_BITS) - 1
_CARRY_DIGITS = 3

Doubles = NDArray[np.float64]


def running_sums(
    keys: Integers, bins: Integers, steps: Integers, parts: Integers
) -> tuple[Integers, Doubles]:
    """The sum of every (key, step) that occurs, sorted, with the index of a row of it.

    Rows are changes, in any order: at `steps[i]` the sum of `keys[i]` grows by the number whose
    parts, lowest first, are `parts[i]` (n x 3), in bin `bins[i]`: part j of bin b counts
    2**(27 * (b + j - 2)). In a bin of what is no number, part 0 counts it.
    """
    positions = positions_of(keys, steps)

    is_finite = bins < NOT_A_NUMBER
    sums = _finite_sums(positions.of_row, positions.first, bins, parts, np.flatnonzero(is_finite))
    beyond = running_beyond(positions, bins, parts, ~is_finite)
    return positions.at, np.where(beyond == 0, sums, beyond)


def running_beyond(
    positions: Positions, bins: Integers, parts: Integers, rows: NDArray[np.bool_]
) -> Doubles:
    """What is no number among these rows, at all positions: NaN, an infinity, or 0 where there is none
    of that kind."""

    def count(special: int) -> NDArray[np.bool_]:
        own = rows & (bins == special)
        total = np.zeros(len(positions.at), np.int64)
        np.add.at(total, positions.of_row[own], parts[own, 0])
        there: NDArray[np.bool_] = _running(total[:, None], positions.first)[:, 0] > 0
        return there

    nans, plus, minus = map(count, (NOT_A_NUMBER, PLUS_INFINITY, MINUS_INFINITY))
    found = np.zeros(len(positions.at))
    found[plus] = np.inf
    found[minus] = -np.inf
    found[nans | (plus & minus)] = np.nan
    return found


def _running(changes: Integers, first: Integers) -> Integers:
    """Totals down the rows, begun anew at each group. Wrapping is no harm: the totals fit."""
    total = np.cumsum(changes, axis=0)
    before = np.concatenate([np.zeros((1, changes.shape[1]), np.int64), total])[first]
    running: Integers = total - before
    return running


def _finite_sums(
    of_row: Integers, first: Integers, bins: Integers, parts: Integers, rows: Integers
) -> Doubles:
    sums = np.zeros(len(first))
    for piece in running_digits(of_row, first, bins, parts, rows):
        sums[piece.start : piece.stop] = _rounded(piece.digits, piece.low)
    return sums


@dataclass(frozen=True)
class Digits:
    """Totals at the positions from `start` on until before `stop`: digit j of each counts
    2**(27 * (low + j - 2)). They are not brought to form, and may be negative."""

    start: int
    stop: int
    digits: Integers
    low: int


def running_digits(
    of_row: Integers, first: Integers, bins: Integers, parts: Integers, rows: Integers
) -> Iterator[Digits]:
    """The totals of these rows, which are numbers, at all positions, in pieces of whole groups; nothing
    where there are no rows."""
    if not len(rows):
        return
    rows = rows[in_order(of_row[rows])]
    low = int(bins[rows].min())
    width = int(bins[rows].max()) - low + PARTS + _CARRY_DIGITS
    for start, stop in _pieces(first, max(1, CELLS_AT_ONCE // width)):
        own = rows[slice(*np.searchsorted(of_row[rows], (start, stop)))]
        digits = np.zeros((stop - start, width), np.int64)
        for part in range(PARTS):
            np.add.at(digits, (of_row[own] - start, bins[own] - low + part), parts[own, part])
        yield Digits(start, stop, _running(digits, first[start:stop] - start), low)


def _pieces(first: Integers, wanted: int) -> Iterator[tuple[int, int]]:
    """Ranges of whole groups, of about `wanted` positions each."""
    bounds = np.append(np.flatnonzero(starts(first)), len(first))
    start = 0
    while start < len(first):
        stop = int(bounds[np.searchsorted(bounds, min(start + wanted, len(first)), "left")])
        yield start, stop
        start = stop


def _carried(digits: Integers) -> tuple[Integers, Integers]:
    """Every digit brought to 0 <= digit < 2**27; what is carried out of the top is 0, or -1 where
    the number is negative."""
    result = digits.copy()
    carry = np.zeros(len(digits), np.int64)
    for place in range(digits.shape[1]):
        result[:, place] += carry
        carry = result[:, place] >> DIGIT_BITS
        result[:, place] &= _MASK
    return result, carry


def _rounded(digits: Integers, low: int) -> Doubles:
    """The numbers as doubles, to the nearest, ties to even."""
    carried, carry = _carried(digits)
    is_negative = carry < 0
    if is_negative.any():
        carried[is_negative] = _carried(-digits[is_negative])[0]
    # Two digits of nothing below, so that there are always three from the leading one down.
    padded = np.pad(carried, ((0, 0), (2, 0)))
    is_set = padded != 0
    width = padded.shape[1]
    top = np.maximum(width - 1 - np.argmax(is_set[:, ::-1], axis=1), 2)
    row = np.arange(len(padded))
    first, second, third = (padded[row, top - below] for below in range(3))
    # 62 bits at most, and at least 55 where the number has as many: 53 to keep, one to round, and
    # the last one says whether there is anything below.
    length = np.frexp(first.astype(np.float64))[1].astype(np.int64)
    shift = np.minimum(DIGIT_BITS, 35 - length)
    dropped = DIGIT_BITS - shift
    leading = (((first << DIGIT_BITS) | second) << shift) | (third >> dropped)
    below = np.cumsum(is_set, axis=1)[row, top - 2] - is_set[row, top - 2]
    is_inexact = (below > 0) | ((third & ((1 << dropped) - 1)) != 0)
    exponent = DIGIT_BITS * (top - 2 + low - 2 - 2) + dropped
    with np.errstate(over="ignore"):
        size: Doubles = np.ldexp((leading | is_inexact).astype(np.float64), exponent)
    return np.negative(size, out=size, where=is_negative)
