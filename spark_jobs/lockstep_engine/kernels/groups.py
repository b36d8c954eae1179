"""Groups of sorted rows: what all kernels have in common."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Integers",
    "Positions",
    "begins_of",
    "in_order",
    "is_dense",
    "numbered_by_table",
    "pairs",
    "places_in",
    "positions_of",
    "ranks",
    "spread",
    "starts",
]

Integers = NDArray[np.int64]
_PLACES_A_ROW = 4
_FEW_RUNS = 16
"""So many sorted pieces are merged sooner than sorted."""
_HALF = np.uint64(32)
_LOW_BITS = np.uint64((1 << 32) - 1)


def in_order(*columns: Integers) -> Integers:
    """The places of rows, sorted by the first column, and by the next where that is equal; as they came
    where all are."""
    key, *others = (one.astype(np.int64, copy=False) for one in columns)
    for number, column in enumerate(others):
        key_least, least = (int(one.min(initial=0)) for one in (key, column))
        width = int(column.max(initial=0)) - least + 1
        if (int(key.max(initial=0)) - key_least + 1) * width >= 1 << 63:
            order = in_order(*others[number:])
            return order[_sorted(key[order])]
        # One number for both, so that there is one sort and not two.
        key = (key - key_least) * width + (column - least)
    return _sorted(key)


def _sorted(key: Integers) -> Integers:
    """The places of numbers in their order, and as they came where they are equal."""
    size, runs = len(key), 1 + np.count_nonzero(key[1:] < key[:-1])
    if runs == 1:
        return np.arange(size)
    if runs <= _FEW_RUNS or size >> 31:
        return np.argsort(key, kind="stable")
    least, bits = int(key.min()), size.bit_length()
    if int(key.max()) - least < 1 << (63 - bits):
        # To sort numbers that end with their places takes a sixth of the time of sorting places.
        placed = (key - least) << bits | np.arange(size)
        placed.sort()
        return placed & ((1 << bits) - 1)
    # As bits, as the difference of two numbers may have one more.
    above = (key - least).view(np.uint64)
    order = _sorted((above & _LOW_BITS).astype(np.int64))
    return order[_sorted((above >> _HALF).astype(np.int64)[order])]


def starts(*columns: Integers) -> NDArray[np.bool_]:
    """Where a row of sorted columns differs from the one before it."""
    is_new = np.zeros(len(columns[0]), np.bool_)
    is_new[:1] = True
    for column in columns:
        is_new[1:] |= column[1:] != column[:-1]
    return is_new


def is_dense(span: int, rows: int) -> bool:
    """Whether a table with a place for each of so many numbers is worth its memory: to look a number up
    in it takes a fraction of what hashing or sorting it does."""
    return span <= _PLACES_A_ROW * rows


def numbered_by_table(values: Integers, span: int) -> Integers:
    """A number for each value, where these are from 0 to before `span`: 0 for the first of them, and one
    more for each that is the first of its kind."""
    size = len(values)
    if span == 1:
        return np.zeros(size, np.int64)
    if span >= size:
        return _numbered_by_rows(values, span)
    rows = np.arange(size)
    first = np.full(span, size, np.int64)
    first[values[::-1]] = rows[::-1]
    there = np.flatnonzero(first < size)
    number_of = np.empty(span, np.int64)
    number_of[there[in_order(first[there])]] = np.arange(len(there))
    return number_of[values]


def _numbered_by_rows(values: Integers, span: int) -> Integers:
    """The same: to go through the rows takes less time than through a table that has more places. The
    smaller its numbers are, the more of it is in the processor's cache."""
    kind = np.int32 if len(values) < 1 << 31 else np.int64
    rows = np.arange(len(values), dtype=kind)
    number_of = np.empty(span, kind)
    number_of[values[::-1]] = rows[::-1]
    new = np.flatnonzero(number_of[values] == rows)
    number_of[values[new]] = rows[: len(new)]
    return number_of[values].astype(np.int64)


def pairs(ours: Integers, theirs: Integers, most: int) -> tuple[Integers, Integers] | None:
    """The places of those that are equal, in the order of ours; None where they would be more. Numbers
    are from 0 on, and not many more than there are of them."""
    span = int(max(ours.max(initial=-1), theirs.max(initial=-1))) + 1
    counts = np.bincount(theirs, minlength=span)
    if counts.max(initial=0) <= 1:
        place_of = np.full(span, -1, np.int64)
        place_of[theirs] = np.arange(len(theirs))
        found = place_of[ours]
        places = np.flatnonzero(found >= 0)
        return None if len(places) > most else (places, found[places])
    begins = np.cumsum(counts) - counts
    first = begins[ours]
    last = first + counts[ours]
    if int((last - first).sum()) > most:
        return None
    places, within = spread(first, last)
    return places, in_order(theirs)[within]


def begins_of(groups: Integers) -> Integers:
    """For each row the place of the first of its group, where they are sorted by group."""
    begins: Integers = np.maximum.accumulate(np.where(starts(groups), np.arange(len(groups)), 0))
    return begins


def ranks(groups: Integers) -> Integers:
    """How many rows of the same group are before each, where they are sorted by group."""
    return np.arange(len(groups)) - begins_of(groups)


def places_in(known: Integers, wanted: Integers) -> tuple[Integers, NDArray[np.bool_]]:
    """Where each wanted number stands among the known ones, which are sorted and at least one, and
    whether it does."""
    places = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return places, known[places] == wanted


def spread(first: Integers, last: Integers) -> tuple[Integers, Integers]:
    """For each range its place, as often as it has numbers, and the numbers: from `first` on, and before
    `last`."""
    counts = np.maximum(last - first, 0)
    if counts.max(initial=0) <= 1:
        places = counts.nonzero()[0]
        return places, first[places]
    places = np.arange(len(counts)).repeat(counts)
    begins = counts.cumsum() - counts
    return places, np.arange(len(places)) + (first - begins).repeat(counts)


@dataclass(frozen=True)
class Positions:
    """The (key, step) that occur, sorted by key and step.

    `at[p]` is an input row of position p, `of_row[i]` the position of input row i; the positions of
    the key of p are first[p] <= q < last[p].
    """

    at: Integers
    of_row: Integers
    first: Integers
    last: Integers


def positions_of(keys: Integers, steps: Integers) -> Positions:
    """The positions of rows in any order."""
    order = in_order(keys, steps)
    is_new = starts(keys[order], steps[order])
    of_row = np.empty(len(keys), np.int64)
    of_row[order] = np.cumsum(is_new) - 1
    at = order[is_new]
    begins = np.append(np.flatnonzero(starts(keys[at])), len(at))
    sizes = np.diff(begins)
    return Positions(at, of_row, begins[:-1].repeat(sizes), begins[1:].repeat(sizes))
