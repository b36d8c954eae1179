"""What a change can touch, as ranges of values by column, so that large state is read only there.

Law: in every row of an operator's delta, a column that has a range holds a value in it, or null. Keys
that grow with time (orders, events, dates) come close together, and the files of a table know their
least and greatest values: all others are not opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from math import inf
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    ByteType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    ShortType,
    TimestampType,
)

from lockstep.lake.wanted_rows import Numbers
from lockstep.sql.plans.multiway import equal_columns
from lockstep.sql.plans.nodes import (
    Aggregate,
    Filter,
    Generate,
    MultiwayJoin,
    Node,
    Project,
    SessionGroups,
    TimeWindow,
    UnionAll,
    Upsert,
    Watermark,
    Weigh,
    Window,
)
from lockstep_engine.deltas import STEP, WEIGHT, quoted
from lockstep_engine.local.rows import Rows

__all__ = [
    "Measured",
    "Measures",
    "Met",
    "Range",
    "Ranges",
    "around",
    "delta_ranges",
    "measured",
    "measured_rows",
    "state_ranges",
    "within",
]

_TO_NUMBER: Mapping[type[DataType], Callable[[Column], Column]] = {
    **dict.fromkeys((ByteType, ShortType, IntegerType, LongType), lambda c: c.cast("bigint")),
    DateType: lambda c: F.unix_date(c).cast("bigint"),
    TimestampType: F.unix_micros,
}
_FROM_NUMBER: Mapping[type[DataType], Callable[[Column], Column]] = {
    # As bigint: an end need not fit into a narrower column.
    LongType: lambda number: number,
    DateType: lambda number: F.date_from_unix_date(number.cast("int")),
    TimestampType: F.timestamp_micros,
}


_EXACT = 1 << 53
"""Whole numbers below it are the only ones that are equal to their double."""


@dataclass(frozen=True)
class Range:
    """Both ends as whole numbers (days, microseconds) of values of the class `kind`. `numbers` are the
    values themselves, where they are whole numbers, in order, each once, and known."""

    kind: type[DataType]
    low: int
    high: int
    numbers: Numbers | None = field(default=None, compare=False, repr=False)

    def joined(self, other: Range) -> Range:
        """The least range with both in it, which are of one kind."""
        low, high = min(self.low, other.low), max(self.high, other.high)
        if self.numbers is None or other.numbers is None:
            return Range(self.kind, low, high)
        return Range(self.kind, low, high, np.union1d(self.numbers, other.numbers))


Ranges = Mapping[str, Range]
"""By column; a column without one may hold anything."""
Met = Mapping[int, Ranges]
"""Of inputs of a join, by place: the ranges of all their rows, from before and changed, that a change of
another input can meet, or that are changes."""

_NOTHING: Met = MappingProxyType({})


@dataclass(frozen=True)
class Measured:
    """How many rows a delta has, and the ranges of its columns, None where it has no row."""

    rows: int
    ranges: Ranges | None


class Measures:
    """The deltas of sources, each measured when it is first asked for: by a job of its own, unless this
    process has its rows. May be asked for different sources in several threads."""

    def __init__(self, deltas: Mapping[str, DataFrame | Rows]) -> None:
        self._deltas = dict(deltas)
        self._known: dict[str, Measured] = {}

    def are_here(self, rows: Mapping[str, Rows]) -> None:
        """By now this process has the rows of these deltas, and knows more of them."""
        self._deltas.update(rows)
        for name in rows:
            self._known.pop(name, None)

    def of(self, source: str) -> Measured:
        """How many rows there are, and of what ranges."""
        if source not in self._known:
            delta = self._deltas[source]
            if isinstance(delta, Rows):
                self._known[source] = measured_rows(delta.table)
            else:
                self._known[source] = measured(delta)
        return self._known[source]

    def rows(self, source: str) -> int:
        """How many there are."""
        delta = self._deltas[source]
        return len(delta) if isinstance(delta, Rows) else self.of(source).rows

    def known_ranges(self, source: str) -> Ranges | None:
        """What is known without a job, None where it is that the delta has no row."""
        is_known = source in self._known or isinstance(self._deltas.get(source), Rows)
        return self.of(source).ranges if is_known else {}


def measured(delta: DataFrame) -> Measured:
    """The ranges of those columns that have an order by whole numbers."""
    types = {field.name: field.dataType for field in delta.schema}
    wanted = [name for name, kind in types.items() if type(kind) in _TO_NUMBER]
    numbers = {name: _TO_NUMBER[type(types[name])](F.col(quoted(name))) for name in wanted}
    ends = [end(numbers[name]) for name in wanted for end in (F.min, F.max)]
    [found] = delta.agg(F.count(F.lit(1)), *ends).collect()
    pairs = zip(wanted, found[1::2], found[2::2], strict=True)
    ranges = {
        name: _range(_class(types[name]), low, high) for name, low, high in pairs if low is not None
    }
    return Measured(found[0], ranges if found[0] else None)


def measured_rows(rows: pa.Table) -> Measured:
    """The same of rows that this process has, which are of Spark's types as Arrow has them."""
    ranges = {}
    types = from_arrow_schema(rows.schema, prefer_timestamp_ntz=True)
    for one, column in zip(types, rows.columns, strict=True):
        if type(one.dataType) in _TO_NUMBER and one.name not in (WEIGHT, STEP):
            kind = _class(one.dataType)
            whole = column.cast(pa.int32()) if kind is DateType else column
            numbers = np.sort(pc.unique(whole.cast(pa.int64()).drop_null()).to_numpy())
            if len(numbers):
                found = _range(kind, int(numbers[0]), int(numbers[-1]))
                ranges[one.name] = _with_numbers(found, numbers)
    return Measured(rows.num_rows, ranges if rows.num_rows else None)


def _range(kind: type[DataType], low: int, high: int) -> Range:
    if kind is LongType:
        # By what a double may lose: two bigints that are equated with one double need not be equal.
        low = max(low - (abs(low) >> 52) - 1, -(1 << 63))
        high = min(high + (abs(high) >> 52) + 1, (1 << 63) - 1)
    return Range(kind, low, high)


def _with_numbers(found: Range, numbers: Numbers) -> Range:
    """With the values, unless others could be equated with the same double."""
    is_exact = found.kind is LongType and found.low > -_EXACT and found.high < _EXACT
    return replace(found, numbers=numbers) if is_exact else found


def _count(found: Range) -> float:
    """How many values there can be, as far as they are known one by one."""
    return inf if found.numbers is None else len(found.numbers)


def _class(kind: DataType) -> type[DataType]:
    """Integers of all widths are compared by value."""
    return LongType if isinstance(kind, ByteType | ShortType | IntegerType) else type(kind)


def within(state: DataFrame, types: Mapping[str, DataType], ranges: Ranges) -> DataFrame:
    """The rows of `state` that can meet the change; a column of another kind says nothing. `types` are
    those of its columns."""
    for name, found in ranges.items():
        if _class(types[name]) is found.kind:
            column, value = F.col(quoted(name)), _FROM_NUMBER[found.kind]
            ends = (value(F.lit(end).cast("bigint")) for end in (found.low, found.high))
            inside = column.between(*ends)
            state = state.where(inside | column.isNull())
    return state


def delta_ranges(node: Node, inputs: Sequence[Ranges | None], met: Met = _NOTHING) -> Ranges:
    """The ranges of an operator's delta, by those of its inputs' deltas, None where they have no row."""
    changed = [one for one in inputs if one is not None]
    match node:
        case Project():
            columns = {
                o.name: o.expression.references[0] for o in node.outputs if o.expression.is_column
            }
            return {new: r[old] for r in changed for new, old in columns.items() if old in r}
        case Filter() | Weigh() | Generate() | TimeWindow() | Watermark():
            return {name: found for r in changed for name, found in r.items()}
        case UnionAll():
            return _all(node.columns, [ranges.get for ranges in changed])
        case MultiwayJoin():
            return _of_join(node, node.columns, dict(enumerate(inputs)), met)
        case Aggregate() | Upsert() | SessionGroups():
            return {name: found for r in changed for name, found in r.items() if name in node.keys}
        case Window():
            by = node.partition
            return {name: found for r in changed for name, found in r.items() if name in by}
        case _:
            return {}


def state_ranges(
    node: Node, place: int, inputs: Sequence[Ranges | None], met: Met = _NOTHING
) -> Ranges:
    """The ranges of what an operator looks up in the rows of an input that were there before."""
    if isinstance(node, MultiwayJoin):
        others = {n: ranges for n, ranges in enumerate(inputs) if n != place}
        return _of_join(node, node.inputs[place].columns, others, met)
    return delta_ranges(node, inputs)


def around(found: Sequence[Ranges]) -> Ranges:
    """The ranges of all rows of which some have these and some those; at least one."""
    return _all(found[0], [ranges.get for ranges in found]) if found else {}


def _all(
    columns: Iterable[str], found: Sequence[Callable[[str], Range | None]]
) -> dict[str, Range]:
    """The columns that have a range in all, with the least range around these."""
    result: dict[str, Range] = {}
    for name in columns:
        ranges = [one(name) for one in found]
        known = [one for one in ranges if one is not None]
        if known and len(known) == len(ranges):
            kinds = {one.kind for one in known}
            if len(kinds) == 1:
                result[name] = reduce(Range.joined, known)
    return result


def _of_join(
    node: MultiwayJoin, columns: Iterable[str], changes: Mapping[int, Ranges | None], met: Met
) -> dict[str, Range]:
    """Of the combinations in which one of the changes is: a column has a range where each change has
    one for a column that is equated with it, by way of others, too; or where an input has one that is
    in all combinations."""
    equal = equal_columns(node)
    in_all = {name: found for ranges in met.values() for name, found in ranges.items()}

    def by(ranges: Ranges) -> Callable[[str], Range | None]:
        def of(name: str) -> Range | None:
            same = sorted(equal.get(name, {name}))
            known = [among[one] for among in (ranges, in_all) for one in same if one in among]
            # Each holds: of some brands' parts there are fewer than of all that were sold.
            return min(known, key=_count, default=None)

        return of

    return _all(columns, [by(ranges) for ranges in changes.values() if ranges is not None])
