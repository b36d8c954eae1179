"""Between which ends the keys of batches are, as far as this process has seen.

Law: a data file never changes, and no other one ever has its name; so what was seen of a batch holds.

Parquet says it of row groups only: these have some million rows where Spark writes large files.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from cachetools import LRUCache

from lockstep.lake.wanted_rows import Numbers, Wanted

__all__ = ["ZONES", "Place", "are_between"]

MOST_ZONES = 50_000
"""Of so many batches the ends of a key are kept."""
MOST_ASKED = 10_000

Place = tuple[str, int, int]
"""Of a batch: path, row group, and place in it."""


class _Zones:
    """The least and greatest key of each batch that was read."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._ends = LRUCache[tuple[Place, str], tuple[int, int] | None](MOST_ZONES)
        self._asked = LRUCache[tuple[str, frozenset[str]], int](MOST_ASKED)

    def note(self, place: Place, keys: Mapping[str, pa.Array]) -> None:
        """To be told of the keys of each batch that is read, by the names that stand in the file."""
        for name, key in keys.items():
            if (place, name) not in self._ends:
                ends = pc.min_max(key).as_py()
                has_all = key.null_count == 0 and len(key)
                with self._lock:
                    self._ends[place, name] = (ends["min"], ends["max"]) if has_all else None

    def times_asked(self, path: str, wanted: Wanted) -> int:
        """How often by these columns much was looked up that the file is a part of, with this time."""
        asked = path, frozenset(wanted)
        with self._lock:
            self._asked[asked] = times = self._asked.get(asked, 0) + 1
        return times

    def may_hold(self, place: Place, wanted: Wanted) -> bool:
        """Whether a row of the batch may be wanted, as far as is known."""
        with self._lock:
            known = [(self._ends.get((place, name)), one) for name, one in wanted.items()]
        return all(ends is None or are_between(one, *ends) for ends, one in known)


ZONES = _Zones()
"""Of the whole process."""


def are_between(numbers: Numbers, low: int, high: int) -> bool:
    """Whether one of the numbers is."""
    first = np.searchsorted(numbers, low)
    return bool(first < len(numbers) and numbers[first] <= high)
