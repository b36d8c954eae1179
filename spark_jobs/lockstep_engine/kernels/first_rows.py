"""The first rows of partitions, from one step to the next: only partitions that change are looked at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from lockstep_engine.kernels.groups import Integers, in_order, spread, starts

__all__ = ["FirstRows", "Taken", "changes_of_first"]

_MOST_NUMBERED = (1 << 31) - 1
"""No row has a greater number: it is an int in Spark."""


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


def changes_of_first(
    held: Integers, events: Taken, partitions: Integers, first: int, most: int
) -> FirstRows | None:
    """Rows are numbered in the order of `partitions`, and in each as they come one after the other;
    `held` is how many there are of each before the first step. Up to `first` of a partition are first.

    None where more than `most` rows would be looked at, or there would be less than none of one.
    """
    if held.min(initial=0) < 0:
        return None
    there = _There(held, partitions, min(first, _MOST_NUMBERED))
    found: list[FirstRows] = []
    for step, rows, weights in _by_step(events):
        change = there.change(rows, weights, step)
        if change is None or there.looked_at > most:
            return None
        found.append(change)
    none = np.zeros(0, np.int64)
    columns = zip(FirstRows(none, none, none, none), *found, strict=True)
    return FirstRows(*map(np.concatenate, columns))


def _by_step(events: Taken) -> Iterator[tuple[int, Integers, Integers]]:
    """Each step's rows, sorted, each once, and what is added to how many there are of them."""
    order = in_order(events.steps, events.rows)
    rows, weights, steps = (one[order] for one in events)
    begins = np.flatnonzero(starts(steps, rows))
    if not len(begins):
        return
    sums, rows, steps = np.add.reduceat(weights, begins), rows[begins], steps[begins]
    cuts = np.flatnonzero(starts(steps))[1:]
    for step, *own in zip(
        steps[np.append(0, cuts)], np.split(rows, cuts), np.split(sums, cuts), strict=True
    ):
        yield int(step), own[0], own[1]


class _There:
    """The rows that are there after a step."""

    def __init__(self, held: Integers, partitions: Integers, first: int) -> None:
        self.looked_at = 0
        self._first = first
        self._counts = held.copy()
        self._live = np.flatnonzero(held)
        is_new = starts(partitions)
        self._begins = np.flatnonzero(is_new)
        self._ends = np.append(self._begins[1:], len(partitions))
        self._partition_of = np.cumsum(is_new) - 1

    def change(self, rows: Integers, weights: Integers, step: int) -> FirstRows | None:
        """What the change of some rows makes of what is first."""
        touched = self._partition_of[rows]
        touched = touched[starts(touched)]
        was = self._numbers_of_first(touched)
        before = self._counts[rows]
        after = before + weights
        if after.min() < 0:
            return None
        self._counts[rows] = after
        gone, come = rows[(before > 0) & (after == 0)], rows[(before == 0) & (after > 0)]
        if len(gone):
            self._live = np.delete(self._live, np.searchsorted(self._live, gone))
        if len(come):
            self._live = np.insert(self._live, np.searchsorted(self._live, come), come)
        now = self._numbers_of_first(touched)
        self.looked_at += len(self._live) + len(was) + len(now)
        left, came = _without(was, now), _without(now, was)
        numbers = np.concatenate([left, came])
        signs = np.repeat(np.array([-1, 1]), [len(left), len(came)])
        span = self._first + 1
        return FirstRows(numbers // span, numbers % span, signs, np.full(len(numbers), step))

    def _numbers_of_first(self, touched: Integers) -> Integers:
        """Each copy that is first, sorted: its row times one more than the bound, and how many are
        before it."""
        begins = np.searchsorted(self._live, self._begins[touched])
        ends = np.searchsorted(self._live, self._ends[touched])
        places, at = spread(begins, np.minimum(ends, begins + self._first))
        rows = self._live[at]
        counts = self._counts[rows]
        total = np.append(0, np.cumsum(counts))
        at_begin = np.searchsorted(places, np.arange(len(touched)))
        before = total[:-1] - total[at_begin][places]
        copies, within = spread(before, np.minimum(before + counts, self._first))
        numbers: Integers = rows[copies] * (self._first + 1) + within
        return numbers


def _without(some: Integers, others: Integers) -> Integers:
    return np.setdiff1d(some, others, assume_unique=True) if len(others) else some
