"""The first rows of partitions, from one step to the next.

Many steps are looked at together: each partition that changes is laid out as it is after each of its
steps, and what is first there is compared with what was before. Rows that have as many before them all
the time as are first are left out; the fewer the steps, the more of them are, so where too much would be
laid out, half of the steps are looked at. Where nothing is taken back and few are first, there is a
shorter way (`arrivals`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lockstep_engine.kernels.arrivals import FirstRows, Taken, first_of_arrivals
from lockstep_engine.kernels.groups import Integers, begins_of, in_order, is_dense, spread, starts

__all__ = ["FirstRows", "Taken", "changes_of_first"]

_MOST_NUMBERED = (1 << 31) - 1
"""No row has a greater number: it is an int in Spark."""

_FEW_PLACES = 32
"""Each is looked at by itself where nothing is taken back, which takes longer with more of them."""

_ROOM = 1 << 20
"""Rows and copies that are laid out together, each as often as there is a state that has it."""


def changes_of_first(
    held: Integers, events: Taken, partitions: Integers, first: int, most: int
) -> FirstRows | None:
    """Rows are numbered in the order of `partitions`, and in each as they come one after the other;
    `held` is how many there are of each before the first step, which is 0 or later. Up to `first` of a
    partition are first.

    None where more than `most` rows would be looked at, or there would be less than none of one.
    """
    if held.min(initial=0) < 0:
        return None
    if first <= _FEW_PLACES and events.weights.min(initial=1) > 0:
        arrived = first_of_arrivals(held, events, partitions, first, most)
        if arrived is not None:
            return arrived
    counts = _counts_of(held, events)
    if counts.counts.min(initial=0) < 0:
        return None
    there = _There(held, counts, partitions, min(first, _MOST_NUMBERED))
    found = [FirstRows.none()]
    begin, end = int(counts.steps.min(initial=0)), int(counts.steps.max(initial=-1)) + 1
    many, looked_at = end - begin, 0
    while begin < end:
        stretch = there.stretch(begin, begin + many)
        if stretch.size > _ROOM and many > 1:
            many = -(-many // 2)
            continue
        looked_at += stretch.looked_at + stretch.size
        if looked_at > most:
            return None
        found.append(stretch.changes())
        there.pass_by(begin, begin + many)
        begin += many
        if stretch.size < _ROOM // 4:
            many *= 2
    return FirstRows.together(found)


class _Counts(NamedTuple):
    """How many there are of a row from a step on, sorted by both."""

    rows: Integers
    steps: Integers
    counts: Integers


def _counts_of(held: Integers, events: Taken) -> _Counts:
    """After each step at which something comes or goes."""
    order = in_order(events.rows, events.steps)
    rows, weights, steps = (one[order] for one in events)
    lasts = np.flatnonzero(starts(rows[::-1], steps[::-1])[::-1])
    totals, rows, steps = np.cumsum(weights)[lasts], rows[lasts], steps[lasts]
    own = totals - np.append(0, totals)[begins_of(rows)]
    return _Counts(rows, steps, held[rows] + own)


class _States(NamedTuple):
    """Of each partition that changes one before some steps, and one after each step at which it does;
    numbered partition by partition, in which they are consecutive.

    Each state has its step; `is_before` says which are the former, which are those of `firsts`, and has
    one more behind the last.
    """

    steps: Integers
    is_before: npt.NDArray[np.bool_]
    firsts: Integers

    @property
    def ends(self) -> Integers:
        """Behind the last of each partition."""
        return np.append(self.firsts[1:], len(self.steps))


def _states_of(places: Integers, steps: Integers, begin: int, end: int) -> tuple[Integers, _States]:
    """The state that each change leads to: of a partition, numbered from 0 on and sorted, at a step."""
    span = end - begin
    numbers, known = _ranked(places * span + (steps - begin), (int(places[-1]) + 1) * span)
    place_of, step_of = np.divmod(known, span)
    firsts = np.flatnonzero(starts(place_of))
    firsts += np.arange(len(firsts))
    size = len(known) + len(firsts)
    is_before = np.zeros(size + 1, np.bool_)
    is_before[firsts] = is_before[size] = True
    steps_of = np.zeros(size, np.int64)
    steps_of[~is_before[:size]] = step_of + begin
    return numbers + places + 1, _States(steps_of, is_before, firsts)


def _ranked(values: Integers, span: int) -> tuple[Integers, Integers]:
    """For each value, from 0 to before `span`, how many lesser ones there are, and all of them."""
    if not is_dense(span, len(values)):
        known, ranks = np.unique(values, return_inverse=True)
        return ranks, known
    is_there = np.zeros(span, np.bool_)
    is_there[values] = True
    return (np.cumsum(is_there) - 1)[values], np.flatnonzero(is_there)


class _Stretch(NamedTuple):
    """Steps that are looked at together: so many copies of a row are there in the states from `begins`
    to before `ends`, of which up to `first` are asked for. So many rows were `looked_at`."""

    rows: Integers
    counts: Integers
    begins: Integers
    ends: Integers
    states: _States
    looked_at: int
    first: int

    @property
    def size(self) -> int:
        """How many rows are laid out, and copies of them at most, of which there may be any number."""
        laid_out, first = self.ends - self.begins, self.first
        copies = float((np.minimum(self.counts, first) * laid_out.astype(np.float64)).sum())
        return int(laid_out.sum()) + int(min(copies, first * len(self.states.steps)))

    def changes(self) -> FirstRows:
        """What is first in one state and not in the one before it, and the other way round."""
        first = self.first
        segments, states = spread(self.begins, self.ends)
        order = in_order(states, self.rows[segments])
        segments, states = segments[order], states[order]
        counts = self.counts[segments]
        before = np.cumsum(counts) - counts
        before -= before[begins_of(states)]
        copies, within = spread(before, np.minimum(before + counts, first))
        numbers = self.rows[segments[copies]] * (first + 1) + within
        # Of the same number they are in order of states.
        order = in_order(numbers)
        numbers, states = numbers[order], states[copies[order]]
        stays = np.zeros(len(numbers) + 1, np.bool_)
        stays[1:-1] = (numbers[1:] == numbers[:-1]) & (states[1:] == states[:-1] + 1)
        is_before = self.states.is_before
        comes = ~stays[:-1] & ~is_before[states]
        goes = ~stays[1:] & ~is_before[states + 1]
        found = np.concatenate([numbers[comes], numbers[goes]])
        weights = np.repeat([1, -1], [comes.sum(), goes.sum()])
        steps = self.states.steps[np.concatenate([states[comes], states[goes] + 1])]
        return FirstRows(found // (first + 1), found % (first + 1), weights, steps)


class _There:
    """The rows that are there before a step."""

    def __init__(self, held: Integers, counts: _Counts, partitions: Integers, first: int) -> None:
        self._held, self._counts, self._first = held.copy(), counts, first
        self._partition_of = np.cumsum(starts(partitions)) - 1

    def stretch(self, begin: int, end: int) -> _Stretch:
        """What is there after each step, of the rows that may be first."""
        own = self._of(begin, end)
        rows, steps, counts = (one[own] for one in self._counts)
        if not len(rows):
            none = np.zeros(0, np.int64)
            states = _States(none, np.ones(1, np.bool_), none)
            return _Stretch(none, none, none, none, states, 0, self._first)
        partitions = self._partition_of[rows]
        is_first = starts(partitions)
        places = np.cumsum(is_first) - 1
        begins, states = _states_of(places, steps, begin, end)
        ends = np.where(starts(rows[::-1])[::-1], states.ends[places], np.append(begins[1:], 0))

        asked, place_of = self._rows_of(partitions[is_first], rows)
        held = self._held[asked]
        held_begins, held_ends, least = states.firsts[place_of], states.ends[place_of], held.copy()
        changes = np.flatnonzero(starts(rows))
        changed = np.searchsorted(asked, rows[changes])
        held_ends[changed] = begins[changes]
        least[changed] = np.minimum(held[changed], np.minimum.reduceat(counts, changes))
        # So many are there all the time.
        before = np.cumsum(least) - least
        may_be = before - before[begins_of(place_of)] < self._first
        is_kept = np.zeros(len(self._held), np.bool_)
        is_kept[asked[may_be]] = True

        may_be &= held > 0
        ours = is_kept[rows] & (counts > 0)
        return _Stretch(
            np.concatenate([asked[may_be], rows[ours]]),
            np.concatenate([held[may_be], counts[ours]]),
            np.concatenate([held_begins[may_be], begins[ours]]),
            np.concatenate([held_ends[may_be], ends[ours]]),
            states,
            len(asked),
            self._first,
        )

    def _rows_of(self, partitions: Integers, rows: Integers) -> tuple[Integers, Integers]:
        """Those that are there of some partitions, and `rows` of them; and the places of theirs."""
        place_of = np.full(self._partition_of[-1] + 1, -1)
        place_of[partitions] = np.arange(len(partitions))
        is_asked = self._held > 0
        is_asked[rows] = True
        places = place_of[self._partition_of]
        asked = np.flatnonzero(is_asked & (places >= 0))
        return asked, places[asked]

    def pass_by(self, begin: int, end: int) -> None:
        """Go on behind some steps."""
        own = self._of(begin, end)
        # Of a row that is written several times the last counts.
        self._held[self._counts.rows[own]] = self._counts.counts[own]

    def _of(self, begin: int, end: int) -> Integers:
        """Places of what is known of some steps."""
        steps = self._counts.steps
        return np.flatnonzero((begin <= steps) & (steps < end))
