"""The first rows of partitions that only grow, from one step to the next.

Rows arrive one after the other. The first so far is the least so far. Of a row that arrives and the one
that was first before it, the lesser is first and the greater is not: it arrives, as it were, among those
that may be second. The second so far is the least so far of these, and so on from place to place, each
in a few passes over rows that are sorted once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lockstep_engine.kernels.groups import Integers, begins_of, in_order, starts

__all__ = ["FirstRows", "Taken", "first_of_arrivals"]


class Taken(NamedTuple):
    """Changes of rows, by number: how many come at a step, or go."""

    rows: Integers
    weights: Integers
    steps: Integers


class FirstRows(NamedTuple):
    """What comes first (1) and is first no longer (-1) at a step: rows by number, each copy by itself,
    with how many are before it in its partition."""

    rows: Integers
    before: Integers
    weights: Integers
    steps: Integers

    @classmethod
    def none(cls) -> FirstRows:
        """No change."""
        return cls(*np.zeros((4, 0), np.int64))

    @classmethod
    def together(cls, parts: list[FirstRows]) -> FirstRows:
        """The changes of all parts, of which there is at least one."""
        return cls(*map(np.concatenate, zip(*parts, strict=True)))


def first_of_arrivals(
    held: Integers, events: Taken, partitions: Integers, first: int, most: int
) -> FirstRows | None:
    """Rows are numbered in the order of `partitions`, and in each as they come one after the other;
    `held` is how many there are of each before the first step, none less than nothing; steps are from 0
    on, and nothing is taken back. Up to `first` of a partition are first. None where more than `most`
    rows would be looked at."""
    found, looked_at = [FirstRows.none()], 0
    arriving = _arriving(held, events, partitions, first, most)
    if arriving is None:
        return None
    for place in range(first):
        looked_at += len(arriving.rows)
        if looked_at > most:
            return None
        if not len(arriving.rows):
            break
        least = np.minimum.accumulate(arriving.rows)
        found.append(arriving.changes(least, place))
        arriving = arriving.others(least)
    return FirstRows.together(found)


class _Arriving(NamedTuple):
    """Copies of rows, by number, in the order of steps within their partition. Partitions come from the
    last to the first: the least number so far is one of the partition's own.

    Of what is there before the first step the step is -1.
    """

    rows: Integers
    partitions: Integers
    steps: Integers

    def changes(self, least: Integers, place: int) -> FirstRows:
        """Of the least so far from step to step, which has so many rows before it: its `place`."""
        is_end = np.append(starts(self.partitions, self.steps)[1:], True)
        rows, partitions, steps = least[is_end], self.partitions[is_end], self.steps[is_end]
        is_new = starts(partitions)
        goes = np.flatnonzero((rows[1:] != rows[:-1]) & ~is_new[1:])
        comes = np.append(np.flatnonzero(is_new & (steps >= 0)), goes + 1)
        return FirstRows(
            np.concatenate([rows[comes], rows[goes]]),
            np.full(len(comes) + len(goes), place),
            np.repeat([1, -1], [len(comes), len(goes)]),
            np.concatenate([steps[comes], steps[goes + 1]]),
        )

    def others(self, least: Integers) -> _Arriving:
        """Each row that is not, or no longer, the least so far, when that turns out."""
        later = np.flatnonzero(~starts(self.partitions))
        rows = np.maximum(self.rows[later], least[later - 1])
        return _Arriving(rows, self.partitions[later], self.steps[later])


def _arriving(
    held: Integers, events: Taken, partitions: Integers, first: int, most: int
) -> _Arriving | None:
    """Of each partition the first copies of each step: others that come then are never first. None where
    they are more than `most`."""
    there, by_row = np.flatnonzero(held), in_order(events.rows)
    rows = np.concatenate([there, events.rows[by_row]])
    steps = np.concatenate([np.full(len(there), -1), events.steps[by_row]])
    copies = np.minimum(np.concatenate([held[there], events.weights[by_row]]), first)
    place_of = (np.cumsum(starts(partitions)) - 1)[rows]
    # Of the same step they stay in the order of rows.
    order = in_order(-place_of, steps)
    rows, places, steps, copies = (one[order] for one in (rows, place_of, steps, copies))
    before = np.cumsum(copies) - copies
    before -= before[begins_of(np.cumsum(starts(places, steps)))]
    copies = np.clip(first - before, 0, copies)
    if int(copies.sum()) > most:
        return None
    return _Arriving(*(one.repeat(copies) for one in (rows, places, steps)))
