"""The first rows of partitions, from one step to the next: only partitions that change are looked at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from lockstep_engine.kernels.groups import Integers, in_order, spread, starts

__all__ = ["FirstRows", "Taken", "changes_of_first"]

_ZERO = np.zeros(1, np.int64)
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
            self._live = np.delete(self._live, self._live.searchsorted(gone))
        if len(come):
            self._live = np.insert(self._live, self._live.searchsorted(come), come)
        now = self._numbers_of_first(touched)
        self.looked_at += len(self._live) + len(was) + len(now)
        numbers, signs = _difference(was, now)
        span = self._first + 1
        return FirstRows(numbers // span, numbers % span, signs, np.full(len(numbers), step))

    def _numbers_of_first(self, touched: Integers) -> Integers:
        """Each copy that is first, sorted: its row times one more than the bound, and how many are
        before it."""
        begins = self._live.searchsorted(self._begins[touched])
        ends = self._live.searchsorted(self._ends[touched])
        places, at = spread(begins, np.minimum(ends, begins + self._first))
        rows = self._live[at]
        counts = self._counts[rows]
        total = np.concatenate([_ZERO, counts.cumsum()])
        at_begin = places.searchsorted(np.arange(len(touched)))
        before = total[:-1] - total[at_begin][places]
        copies, within = spread(before, np.minimum(before + counts, self._first))
        numbers: Integers = rows[copies] * (self._first + 1) + within
        return numbers


def _difference(was: Integers, now: Integers) -> tuple[Integers, Integers]:
    """The numbers that are in one of two only, each of which has a number once, sorted; and -1 for what
    was there, 1 for what is. Steps are many, so that what a call costs by itself counts."""
    both = np.concatenate([was, now])
    order = both.argsort(kind="stable")
    numbers = both[order]
    is_alone = np.ones(len(numbers), np.bool_)
    is_alone[1:] = numbers[1:] != numbers[:-1]
    is_alone[:-1] &= is_alone[1:].copy()
    alone = order[is_alone]
    return both[alone], np.where(alone < len(was), -1, 1)
