"""Which rows of a batch are looked up: those that hold, in each column of the keys, one of the wanted
numbers, or null."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Numbers", "Wanted", "places_in_order", "wanted_places"]

Numbers = npt.NDArray[np.int64]
"""In order, each once, at least one."""

Wanted = Mapping[str, Numbers]
"""By column."""


def wanted_places(rows: pa.RecordBatch, wanted: Wanted) -> Numbers:
    """The places of the rows whose keys are wanted, in order."""
    places: Numbers | None = None
    for name, numbers in wanted.items():
        key = rows.column(name)
        if places is None:
            places = _places_of(key, numbers)
        else:
            places = places[_are_wanted(key.take(pa.array(places)), numbers)]
    return np.arange(rows.num_rows) if places is None else places


def _places_of(key: pa.Array, numbers: Numbers) -> Numbers:
    """The places of the wanted numbers, and of nulls, in order."""
    if len(key) and not key.null_count:
        values = key.to_numpy()
        if np.all(values[:-1] <= values[1:]):
            return places_in_order(values, numbers)
    # Most batches have nothing between the ends, which is cheap to see.
    inside = pc.and_(pc.greater_equal(key, numbers[0]), pc.less_equal(key, numbers[-1]))
    near = np.flatnonzero(pc.or_kleene(inside, pc.is_null(key)).to_numpy(zero_copy_only=False))
    return near[_are_wanted(key.take(pa.array(near)), numbers)]


def places_in_order(values: Numbers, numbers: Numbers) -> Numbers:
    """The places of the wanted numbers. Of values in order: a search for each number takes less time
    than a look at each value."""
    low, high = np.searchsorted(numbers, values[0]), np.searchsorted(numbers, values[-1], "right")
    # Of another type they would all be converted.
    near = numbers[low:high].astype(values.dtype)
    first = np.searchsorted(values, near)
    is_there = values[first] == near
    first = first[is_there]
    counts = np.searchsorted(values, near[is_there], "right") - first
    before = np.cumsum(counts) - counts
    return np.repeat(first - before, counts) + np.arange(counts.sum())


def _are_wanted(key: pa.Array, numbers: Numbers) -> npt.NDArray[np.bool_]:
    """Of each value whether it is one of the numbers, or null."""
    held = pc.or_(pc.is_in(key.cast(pa.int64()), pa.array(numbers)), pc.is_null(key))
    return np.asarray(held.to_numpy(zero_copy_only=False))
