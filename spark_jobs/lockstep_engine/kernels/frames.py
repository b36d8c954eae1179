"""Partitions at positions, rows in order, and what stands in a frame around each of them.

A position is a partition and a step at which it changes; all rows of the partition are laid out as they
are after that step, as `operators.partitions` has Spark do it. Of a frame is known where it begins and
ends among the rows that are laid out, so that sums are differences, and the greatest of a frame is the
greater of those of two parts of it whose lengths are a power of two.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lockstep_engine.kernels.groups import Integers, in_order, spread, starts

__all__ = ["LaidOut", "Placed", "frames", "greatest", "laid_out", "placed", "sums"]


class LaidOut(NamedTuple):
    """Copies of rows at positions, by number, in the order of positions. `steps` has the step of each
    position, `until` that of the next of its partition, or -1 where there is none."""

    rows: Integers
    positions: Integers
    steps: Integers
    until: Integers


def laid_out(
    rows: Integers, weights: Integers, steps: Integers, partitions: Integers, most: int
) -> LaidOut | None:
    """`partitions` has that of each row by number; changes are of `rows`, by number. None where more
    than `most` copies would be laid out, or there would be less than none of one."""
    owners = partitions[rows]
    order = in_order(owners, steps)
    is_new = starts(owners[order], steps[order])
    at = order[is_new]
    of_change = np.empty(len(rows), np.int64)
    of_change[order] = np.cumsum(is_new) - 1
    owner, step = owners[at], steps[at]
    until = np.where(_next(owner) == owner, _next(step), -1)
    # Of each row how many there are from one of its changes to the next, or the partition's last.
    by = in_order(rows, of_change)
    begins = np.flatnonzero(starts(rows[by], of_change[by]))
    row, first = rows[by][begins], of_change[by][begins]
    counts = _running(row, np.add.reduceat(weights[by], begins) if len(begins) else weights)
    if counts.min(initial=0) < 0:
        return None
    ends = np.searchsorted(owner, partitions[row], side="right")
    last = np.where(_next(row) == row, _next(first), ends)
    # Their number may have more than 64 bits.
    if float(((last - first).astype(np.float64) * counts).sum()) > most:
        return None
    spans, positions = spread(first, np.where(counts > 0, last, first))
    copies = counts[spans]
    found, positions = np.repeat(row[spans], copies), np.repeat(positions, copies)
    by = in_order(positions, found)
    return LaidOut(found[by], positions[by], step, until)


def _next(numbers: Integers) -> Integers:
    """Of each number the one after it, which is not below 0; -1 of the last."""
    return np.append(numbers[1:], np.full(min(1, len(numbers)), -1))


def _running(groups: Integers, values: Integers) -> Integers:
    """The sum of each with those before it of the same group, where they are sorted by it."""
    total = np.cumsum(values)
    begins = np.flatnonzero(starts(groups))
    before = total[begins] - values[begins]
    found: Integers = total - np.repeat(before, np.diff(np.append(begins, len(groups))))
    return found


class Placed(NamedTuple):
    """Of rows in order where their group, and those that are equal to them in order, begin and end."""

    begin: Integers
    end: Integers
    first_peer: Integers
    last_peer: Integers
    """One after it."""
    peers: Integers
    """How many kinds of equal rows are before it in its group."""


def placed(groups: Integers, is_other: NDArray[np.bool_]) -> Placed:
    """`groups` are sorted; `is_other` says where a row is not equal to the one before it."""
    is_new = starts(groups)
    begin, end = _bounds(is_new)
    first_peer, last_peer = _bounds(is_new | is_other)
    kinds = np.cumsum(is_new | is_other)
    return Placed(begin, end, first_peer, last_peer, kinds - kinds[begin])


def _bounds(begins: NDArray[np.bool_]) -> tuple[Integers, Integers]:
    at = np.flatnonzero(begins)
    lengths = np.diff(np.append(at, len(begins)))
    return np.repeat(at, lengths), np.repeat(at + lengths, lengths)


def frames(
    rows: Placed, first: int | None, last: int | None, *, by_peers: bool
) -> tuple[Integers, Integers]:
    """Where the frame of each row begins, and one after where it ends; the same where it has no row."""
    places = np.arange(len(rows.begin))
    lower, upper = (rows.first_peer, rows.last_peer - 1) if by_peers else (places, places)
    begin = rows.begin if first is None else np.clip(lower + first, rows.begin, rows.end)
    end = rows.end if last is None else np.clip(upper + last + 1, rows.begin, rows.end)
    return begin, np.maximum(begin, end)


def sums(values: Integers, begin: Integers, end: Integers) -> Integers:
    """What the values of each frame come to, modulo 2^64."""
    total = np.append(0, np.cumsum(values))
    found: Integers = total[end] - total[begin]
    return found


def greatest(values: Integers, begin: Integers, end: Integers) -> Integers:
    """The place of the greatest value of each frame, of equal ones the last; -1 where it has no row.
    Values are not below 0, and those times as many as there are have 63 bits at most."""
    size = len(values)
    best = values * size + np.arange(size)
    found = np.full(size, -1, np.int64)
    # The exponent of the greatest power of two that is no more.
    levels = np.frexp((end - begin).astype(np.float64))[1] - 1
    for level in range(int(levels.max(initial=-1)) + 1):
        width = 1 << level
        if level:
            best = np.maximum(best[: -(width >> 1)], best[width >> 1 :])
        own = np.flatnonzero(levels == level)
        found[own] = np.maximum(best[begin[own]], best[end[own] - width])
    return np.where(levels < 0, -1, found % max(1, size))
