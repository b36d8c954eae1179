"""Z-sets in plain Python: rows with an integer weight, the algebra that changes are made of.

A change is a Z-set with +1 for each row that comes and -1 for each that goes; a relation is the sum
of its changes. This is what everything else is compared with, so it is written to be seen to be
right: a dict from row to weight, without zeros, and nothing from Spark.

Rows are tuples. Values are equal as in SQL's GROUP BY: null equals null, NaN equals NaN, -0.0
equals 0.0, and nested values equal if their parts do.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, Final

__all__ = ["NAN", "Row", "ZSet", "canonical", "canonical_row"]

Row = tuple[Any, ...]

NAN: Final = float("nan")
"""The one NaN of canonical rows: the same object, so that it is found in a dict."""


def canonical(value: Any) -> Hashable:
    """A value so that equality and hash are those of GROUP BY: dicts and lists become tuples."""
    match value:
        case float():
            return NAN if math.isnan(value) else value + 0.0
        case Mapping():
            return tuple(canonical(part) for part in value.values())
        case list() | tuple():
            return tuple(canonical(part) for part in value)
        case bytearray():
            return bytes(value)
        case _:
            assert isinstance(value, Hashable), f"{type(value).__name__} cannot be a value of a row"
            return value


def canonical_row(values: Iterable[Any]) -> Row:
    """The values of a row, each canonical."""
    return tuple(canonical(value) for value in values)


class ZSet:
    """An immutable map from row to weight; a row that is not in it has weight 0."""

    __slots__ = ("_weights",)

    def __init__(self, changes: Iterable[tuple[Row, int]] = ()) -> None:
        """The sum of (row, weight) pairs, in any order, with as many of one row as there are."""
        weights: dict[Row, int] = defaultdict(int)
        for row, weight in changes:
            weights[canonical_row(row)] += weight
        self._weights = {row: weight for row, weight in weights.items() if weight}

    @staticmethod
    def of_rows(rows: Iterable[Row]) -> ZSet:
        """Each row once for every time that it occurs."""
        return ZSet((row, 1) for row in rows)

    def __iter__(self) -> Iterator[tuple[Row, int]]:
        return iter(self._weights.items())

    def __len__(self) -> int:
        return len(self._weights)

    def __getitem__(self, row: Row) -> int:
        return self._weights.get(canonical_row(row), 0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ZSet) and self._weights == other._weights

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        rows = sorted(f"{weight:+d} {row!r}" for row, weight in self)
        return f"ZSet({', '.join(rows)})"

    def __add__(self, other: ZSet) -> ZSet:
        return ZSet((*self, *other))

    def __neg__(self) -> ZSet:
        return ZSet((row, -weight) for row, weight in self)

    def __sub__(self, other: ZSet) -> ZSet:
        return self + -other

    @property
    def is_relation(self) -> bool:
        """True where no weight is negative: then it is a bag of rows."""
        return all(weight > 0 for _, weight in self)

    def map(self, function: Callable[[Row], Row]) -> ZSet:
        """Each row replaced; rows that become equal are added. Linear."""
        return ZSet((function(row), weight) for row, weight in self)

    def flat_map(self, function: Callable[[Row], Iterable[Row]]) -> ZSet:
        """Each row replaced by any number of rows. Linear."""
        return ZSet((result, weight) for row, weight in self for result in function(row))

    def filter(self, predicate: Callable[[Row], bool]) -> ZSet:
        """The rows for which the predicate is true. Linear."""
        return ZSet((row, weight) for row, weight in self if predicate(row))

    def join(
        self,
        other: ZSet,
        own_key: Callable[[Row], Hashable],
        other_key: Callable[[Row], Hashable],
        combine: Callable[[Row, Row], Row] = lambda own, others: own + others,
    ) -> ZSet:
        """Pairs of rows with equal keys, weights multiplied; a key of None never matches.
        Bilinear."""
        by_key = other.group(other_key)
        return ZSet(
            (combine(row, match), weight * other_weight)
            for row, weight in self
            if (key := own_key(row)) is not None
            for match, other_weight in by_key.get(key, ())
        )

    def group(self, key: Callable[[Row], Hashable]) -> Mapping[Hashable, ZSet]:
        """The rows by their key."""
        groups: dict[Hashable, list[tuple[Row, int]]] = defaultdict(list)
        for row, weight in self:
            groups[key(row)].append((row, weight))
        return {value: ZSet(changes) for value, changes in groups.items()}

    def distinct(self) -> ZSet:
        """Each row of positive weight once."""
        return ZSet((row, 1) for row, weight in self if weight > 0)
