"""Sums of doubles over rows that this process has, as `operators.exact_sums` has them: bins of a group's
trace, and what they come to after each step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lockstep_engine.kernels.exact_sums import (
    DIGIT_BITS,
    MINUS_INFINITY,
    NO_BIN,
    NOT_A_NUMBER,
    PLUS_INFINITY,
    Doubles,
    running_sums,
)
from lockstep_engine.kernels.groups import Integers, places_in
from lockstep_engine.local.values import Unlike, grouped
from lockstep_engine.operators.exact_sums import BIN, PARTS, PLACE

__all__ = ["Bins", "binned"]

_BY = "_by"
_SPAN = 2048
"""More than there are bins, half of them below 0: a group's number times it, and a bin, say both."""


@dataclass(frozen=True)
class Bins:
    """Changes of sums: at `steps[i]` that of `groups[i]` grows by `parts[i]` (n x 3) in `bins[i]`."""

    groups: Integers
    steps: Integers
    bins: Integers
    parts: Integers

    def and_those(self, other: Bins) -> Bins:
        """Both."""
        names = ("groups", "steps", "bins", "parts")
        return Bins(*(np.concatenate([getattr(self, n), getattr(other, n)]) for n in names))

    def appended(self, place: int) -> tuple[Integers, pa.Table]:
        """What is added to the trace for the sum of that number: groups, and `_place`, `_bin`, the
        parts. Raises Unlike on overflow."""
        rows = np.flatnonzero(self.bins != NO_BIN)
        by = self.groups[rows] * _SPAN + self.bins[rows] + _SPAN // 2
        columns = dict(zip(PARTS, self.parts[rows].T, strict=True))
        sums = grouped(pa.table({_BY: by, **columns}), _BY, dict.fromkeys(PARTS, "sum"))
        groups, bins = np.divmod(sums[_BY].to_numpy(), _SPAN)
        places = pa.repeat(pa.scalar(place, pa.int32()), len(groups))
        found = sums.drop_columns([_BY]).append_column(PLACE, places)
        return groups, found.append_column(BIN, pa.array(bins - _SPAN // 2, pa.int32()))

    def after(self, groups: Integers, steps: Integers) -> Doubles:
        """The sums of these groups after these steps; 0 where there is no change at a step."""
        if not len(self.groups):
            return np.zeros(len(groups))
        at, sums = running_sums(self.groups, self.bins, self.steps, self.parts)
        span = int(max(steps.max(initial=0), self.steps.max(initial=0))) + 2
        known = self.groups[at] * span + self.steps[at] + 1
        places, is_known = places_in(known, groups * span + steps + 1)
        return np.where(is_known, sums[places], 0.0)


def binned(values: pa.ChunkedArray, groups: Integers, weights: Integers, steps: Integers) -> Bins:
    """Rows' numbers as whole numbers in bins, each times its weight; a row without a number adds
    nothing. Raises Unlike on overflow."""
    x = pc.fill_null(values.cast(pa.float64()), 0.0).to_numpy()
    is_finite = np.isfinite(x)
    finite = np.where(is_finite, x, 0.0)
    bins = (np.frexp(finite)[1].astype(np.int64) - 1) // DIGIT_BITS
    scaled = np.ldexp(finite, (2 - bins) * DIGIT_BITS)
    high = np.trunc(np.ldexp(scaled, -2 * DIGIT_BITS))
    rest = scaled - np.ldexp(high, 2 * DIGIT_BITS)
    middle = np.trunc(np.ldexp(rest, -DIGIT_BITS))
    low = np.where(is_finite, rest - np.ldexp(middle, DIGIT_BITS), 1.0)
    parts = np.stack([low, middle, high], axis=1).astype(np.int64)
    if np.abs(weights).max(initial=0) >= 1 << 63 - DIGIT_BITS - 2:
        raise Unlike
    special = [np.isnan(x), x == np.inf, x == -np.inf, x == 0]
    kinds = [NOT_A_NUMBER, PLUS_INFINITY, MINUS_INFINITY, NO_BIN]
    return Bins(groups, steps, np.select(special, kinds, bins), parts * weights[:, None])
