"""The least and the greatest value of each group after each step, where values come and go.

A value is present in its group over ranges of steps. Laid out over the steps at which the group
changed, each such range is an interval of positions, and the greatest value at a position is the
last interval, in the order of the values, that covers it. An interval is the union of two blocks
whose length is a power of two; blocks are handed down from the longest to the shortest, so the work
is rows times the logarithm of the steps of a group: never rows times steps, and no different for
deletes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lockstep_engine.kernels.groups import Integers, in_order, positions_of, starts

__all__ = ["Extremes", "running_extremes"]


@dataclass(frozen=True)
class Extremes:
    """One entry per (key, step) that occurs, sorted; each is the index of an input row.

    `at` is a row of that key and step; `least` and `greatest` are rows with that value, -1 where
    the group holds none.
    """

    at: Integers
    least: Integers
    greatest: Integers


def running_extremes(
    keys: Integers, values: Integers, steps: Integers, weights: Integers
) -> Extremes:
    """Follow the values of every key over the steps.

    Rows are changes: at `steps[i]` the weight of `values[i]` in group `keys[i]` grows by
    `weights[i]`. A value is an int64 that belongs to one key and is ordered within it; below 0 it
    is null: the row only marks that the key changed. Rows may stand in any order, and be many of a
    kind.
    """
    positions = positions_of(keys, steps)
    rows = np.flatnonzero(values >= 0)
    rows = rows[in_order(values[rows], steps[rows])]
    events, present = _presence(values[rows], steps[rows], weights[rows])
    rows = rows[events]
    first = positions.of_row[rows]
    last = positions.last[first]
    followed = np.flatnonzero(values[rows[1:]] == values[rows[:-1]])
    last[followed] = first[followed + 1]
    rows, first, last = rows[present], first[present], last[present]

    greatest = _last_cover(first, last, len(positions.at))
    least = _last_cover(first[::-1], last[::-1], len(positions.at))
    rows = np.append(rows, -1)
    return Extremes(
        positions.at, rows[np.where(least < 0, -1, len(rows) - 2 - least)], rows[greatest]
    )


def _presence(
    values: Integers, steps: Integers, weights: Integers
) -> tuple[Integers, NDArray[np.bool_]]:
    """Of rows sorted by value and step: the first of each (value, step), and whether the value is
    there from then on."""
    events = np.flatnonzero(starts(values, steps))
    if not len(events):
        return events, np.zeros(0, np.bool_)
    total = np.cumsum(np.add.reduceat(weights, events))
    groups = np.flatnonzero(starts(values[events]))
    before = np.append(0, total)[groups]
    lengths = np.diff(np.append(groups, len(events)))
    return events, total - np.repeat(before, lengths) > 0


def _last_cover(first: Integers, last: Integers, size: int) -> Integers:
    """For each position below `size` the greatest i with first[i] <= position < last[i], or -1."""
    cover = np.full(size, -1, np.int64)
    if not len(first):
        return cover
    level_of = np.frexp((last - first).astype(np.float64))[1] - 1
    for level in range(int(level_of.max()), -1, -1):
        block = 1 << level
        here = np.flatnonzero(level_of == level)
        np.maximum.at(cover, first[here], here)
        np.maximum.at(cover, last[here] - block, here)
        if level:
            # A block's halves are covered by whatever covers the block.
            half, whole = block >> 1, cover
            cover = whole.copy()
            np.maximum(cover[half:], whole[:-half], out=cover[half:])
    return cover
