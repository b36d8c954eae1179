"""Values in Arrow: which are equal, in what order they come, and what they add up to, as in Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from lockstep.threads import in_parallel
from lockstep_engine.kernels.groups import (
    Integers,
    in_order,
    is_dense,
    numbered_by_table,
    starts,
)

__all__ = [
    "Unlike",
    "added",
    "are_exact",
    "check_sum",
    "grouped",
    "has_equality",
    "has_order",
    "is_exact",
    "is_key",
    "is_number_inside",
    "matched",
    "normalized",
    "numbered",
    "numbers_inside",
    "ranked",
    "together",
    "unscaled",
    "with_point",
]

_EXACT = (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    IntegralType,
    TimestampNTZType,
    TimestampType,
)
_GREATEST = (1 << 63) - 1
_MOST_SUMMED = (1 << 63) - (1 << 43)
"""With room for what numbers of floating point leave off."""
_MANY = 100_000
"""Columns of so many rows are looked at at the same time."""
_FEW = 1_000
"""Rows that are looked at before all are."""
_MOST_PLACES_A_ROW, _MOST_PLACES = 16, 1 << 22
"""Of a table of numbers that is made once, as large as what a processor's cache may have."""


class Unlike(Exception):
    """Here it would come out otherwise than in Spark, which is to do it."""


NOT_HERE = (Unlike, pa.ArrowInvalid, pa.ArrowCapacityError, pa.ArrowNotImplementedError)
"""What is raised where Spark is to do it: also where Arrow has no such function for a type that Spark
has one for, or a column would have more than 2 GB of texts, or a number that does not fit: Spark says
what that is."""


def is_exact(kind: DataType) -> bool:
    """Whether values are equal, in Spark, only if their bits are: not zeros and NaNs of floating point,
    nor texts with a collation. Their order is the same here, too."""
    return isinstance(kind, _EXACT) or kind == StringType()


def has_order(kind: DataType) -> bool:
    """Whether values have the same order here, and those that Spark takes for equal are known."""
    return is_exact(kind) or isinstance(kind, DoubleType | FloatType)


def are_exact(kinds: Sequence[DataType]) -> bool:
    """Whether all of them are."""
    return all(map(is_exact, kinds))


def is_key(kind: DataType) -> bool:
    """The same of exact ones, and of structs of such, which have no order here."""
    if isinstance(kind, StructType):
        return all(is_key(field.dataType) for field in kind)
    return is_exact(kind)


def has_equality(kind: DataType) -> bool:
    """Whether those values are known that Spark takes for equal, once they are normalized."""
    return is_key(kind) or has_order(kind)


def together(*columns: pa.ChunkedArray) -> pa.ChunkedArray:
    """Columns one after the other, of the first one's type; whole numbers of any width."""
    kind = pa.int64() if pa.types.is_integer(columns[0].type) else _nullable(columns[0].type)
    return pa.chunked_array([c for one in columns for c in one.cast(kind).chunks], kind)


def _nullable(kind: pa.DataType) -> pa.DataType:
    """The same of fields of which nothing is said of nulls."""
    if not pa.types.is_struct(kind):
        return kind
    return pa.struct([(field.name, _nullable(field.type)) for field in kind])


def normalized(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Floating point as GROUP BY gives it: of values that it takes for equal, zeros and NaNs, one."""
    if not pa.types.is_floating(column.type):
        return column
    one_zero = pc.add(column, pa.scalar(0.0, column.type))
    return pc.if_else(pc.is_nan(one_zero), pa.scalar(float("nan"), column.type), one_zero)


def matched(columns: Sequence[pa.ChunkedArray], size: int) -> Integers:
    """A number for each of so many rows, the same where all columns are: as `numbered`, but in any
    order, and with gaps, not many. To close them takes longer than to join by such numbers."""
    return _coded(columns, size).numbers


def numbered(columns: Sequence[pa.ChunkedArray], size: int) -> Integers:
    """A number for each of so many rows, the same where all columns are: 0 for the first of them, and
    one more for each that is the first of its kind. Null is equal to null. The columns are keys, or
    normalized."""
    return _coded(columns, size, by_first=True).as_they_come().numbers


class _Codes(NamedTuple):
    """A number for each row, the same where values are; they are before `span`, which is not much more
    than there are rows. `are_first`: 0 for the first, and one more for each first of its kind, so that
    `span` is how many kinds there are, and 1 where there are no rows."""

    numbers: Integers
    span: int
    are_first: bool

    @staticmethod
    def of_dictionary(column: pa.Array) -> _Codes:
        codes: Integers = column.dictionary_encode("encode").indices.to_numpy().astype(np.int64)
        return _Codes(codes, int(codes.max(initial=0)) + 1, True)

    def as_they_come(self) -> _Codes:
        """The same, numbered by who is first."""
        if self.are_first:
            return self
        numbers = numbered_by_table(self.numbers, self.span)
        return _Codes(numbers, int(numbers.max(initial=0)) + 1, True)

    def are_all_different(self) -> bool:
        """Whether each row has a number of its own."""
        size, few = len(self.numbers), self.numbers[:_FEW]
        if self.span < size or self.are_first:
            return self.span == size
        if len(np.unique(few)) < len(few):
            return False
        there = np.zeros(self.span, np.bool_)
        there[self.numbers] = True
        return int(np.count_nonzero(there)) == size

    def beside(self, other: _Codes) -> _Codes:
        """A number for each pair, which may be far from one another."""
        numbers = self.numbers * other.span + other.numbers
        return _Codes(numbers, self.span * other.span, False)

    def near(self) -> _Codes:
        """The same, as near to one another as codes are."""
        if is_dense(self.span, len(self.numbers)):
            return self
        # A table takes a fifth of the time of a dictionary, which takes a third of that of sorting.
        if self.fits_a_table:
            return self.as_they_come()
        return _Codes.of_dictionary(pa.array(self.numbers))

    @property
    def fits_a_table(self) -> bool:
        """Whether there is one with a place for each that is worth its memory."""
        size = len(self.numbers)
        return is_dense(self.span, size) or self.span <= min(
            _MOST_PLACES, _MOST_PLACES_A_ROW * size
        )


def _coded(columns: Sequence[pa.ChunkedArray], size: int, *, by_first: bool = False) -> _Codes:
    """Of all columns together. `by_first`: it is looked at whether the first one tells all rows apart,
    as a key often does, so that the others have nothing to tell."""
    if not columns:
        return _Codes(np.zeros(size, np.int64), 1, True)
    codes = _codes(columns[0].combine_chunks())
    if by_first and len(columns) > 1 and codes.are_all_different():
        return _Codes(np.arange(size), size, True)
    others = (column.combine_chunks() for column in columns[1:])
    rest = [one for one in others if not _follows(codes.numbers, _raw(one))]
    for other in _codes_of(rest, size):
        if _follows(codes.numbers, other.numbers):
            continue
        both = codes.beside(other)
        if not both.fits_a_table:
            both = codes.as_they_come().beside(other.as_they_come())
        codes = both.near()
    return codes


def _codes_of(columns: Sequence[pa.Array], size: int) -> Iterator[_Codes]:
    """Of each, those of many rows at the same time that take long."""
    found = [_near(one) for one in columns]
    left = [one for one, codes in zip(columns, found, strict=True) if codes is None]
    made = iter(in_parallel(_far, left) if size >= _MANY else map(_far, left))
    return (next(made) if codes is None else codes for codes in found)


def _follows(numbers: Integers, values: Integers | None) -> bool:
    """Whether values are the same wherever the numbers are, so that they tell nothing apart: to look
    takes a tenth of what it takes to number both, and groups often have such keys besides."""
    if values is None or not len(numbers):
        return False
    few = slice(_FEW)
    if len(numbers) > _FEW and not _follows(numbers[few], values[few]):
        return False
    value_of = np.empty(int(numbers.max()) + 1, np.int64)
    value_of[numbers] = values
    # Of values that differ one is in the table, and another differs from it.
    return bool(np.array_equal(value_of[numbers], values))


def _raw(column: pa.Array) -> Integers | None:
    """Whole numbers that are equal where values are; None where that is not seen at once."""
    if column.null_count or not is_number_inside(column.type):
        return None
    return numbers_inside(pa.chunked_array([column]))


def _codes(column: pa.Array) -> _Codes:
    return _near(column) or _far(column)


def _far(column: pa.Array) -> _Codes:
    """Of what is not `_near`."""
    if pa.types.is_struct(column.type):
        # A struct of nulls is another one than none.
        parts = column.flatten()
        if column.null_count:
            parts.append(column.is_valid())
        return _coded([pa.chunked_array([part]) for part in parts], len(column))
    return _Codes.of_dictionary(column)


def _near(column: pa.Array) -> _Codes | None:
    """Whole numbers, as which values are kept, that are near one another, or would be if they were
    counted in the steps that they are apart, as windows and days are: from 0 on, and before what they
    are."""
    numbers = _raw(column)
    if numbers is None or not len(numbers):
        return None
    least = int(numbers.min())
    span = int(numbers.max()) - least + 1
    if span > _GREATEST:
        return None
    above = numbers - least
    if is_dense(span, len(numbers)):
        return _Codes(above, span, False)
    step = max(1, int(np.gcd.reduce(above[:_FEW])))
    span = (span - 1) // step + 1
    if not is_dense(span, len(numbers)):
        return None
    steps = above // step
    return _Codes(steps, span, False) if np.array_equal(steps * step, above) else None


def ranked(column: pa.ChunkedArray) -> Integers:
    """A number for each value, greater for what comes later in order, -1 for null. Of exact types, or
    floating point, where NaN is the greatest and zeros are equal."""
    if pa.types.is_floating(column.type):
        values = column.to_numpy() + 0.0
        ranks = np.unique(values, return_inverse=True)[1]
    elif is_number_inside(column.type):
        values = numbers_inside(column)
        order = in_order(values)
        ranks = np.empty(len(values), np.int64)
        ranks[order] = np.cumsum(starts(values[order]))
    else:
        ranks = pc.rank(column, tiebreaker="dense").to_numpy()
    is_null = column.is_null().to_numpy()
    return np.where(is_null, -1, ranks.astype(np.int64))


def is_number_inside(kind: pa.DataType) -> bool:
    """Whether values are in the order of whole numbers that they are kept as."""
    is_date_or_time = pa.types.is_date32(kind) or pa.types.is_timestamp(kind)
    return bool(pa.types.is_integer(kind) or is_date_or_time)


def numbers_inside(column: pa.ChunkedArray) -> Integers:
    """The whole numbers that values are kept as, 0 for null."""
    numbers = column.cast(pa.int32()) if pa.types.is_date32(column.type) else column
    numbers = numbers.cast(pa.int64())
    found: Integers = (pc.fill_null(numbers, 0) if numbers.null_count else numbers).to_numpy()
    return found


def unscaled(column: pa.ChunkedArray) -> Integers:
    """Whole numbers, or decimals of at most 38 digits without their point, 0 for null. Raises Unlike
    where one has more than 63 bits."""
    if not pa.types.is_decimal(column.type):
        return numbers_inside(column)
    whole, first = np.empty(len(column), np.int64), 0
    for chunk in filter(len, column.chunks):
        filled = (
            pc.fill_null(chunk, pa.scalar(Decimal(0), chunk.type)) if chunk.null_count else chunk
        )
        words = np.frombuffer(filled.buffers()[1], np.int64, 2 * len(filled), 16 * filled.offset)
        # The lower half of each comes first.
        lower, upper = words.reshape(-1, 2).T
        if np.any(upper != lower >> 63):
            raise Unlike
        whole[first : first + len(filled)] = lower
        first += len(filled)
    return whole


def with_point(
    numbers: Integers, kind: pa.Decimal128Type, is_there: pa.Array | pa.ChunkedArray | None = None
) -> pa.Array:
    """Whole numbers as decimals of that kind, without a point before; null where none is there."""
    halves = np.empty((len(numbers), 2), np.int64)
    halves[:, 0] = numbers
    np.right_shift(numbers, 63, out=halves[:, 1])
    made = pa.Array.from_buffers(kind, len(halves), [None, pa.py_buffer(halves)])
    if is_there is None or pc.all(is_there).as_py():
        return made
    there = is_there.combine_chunks() if isinstance(is_there, pa.ChunkedArray) else is_there
    return pc.if_else(there, made, pa.scalar(None, kind))


def added(one: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    """The sums of two columns of one type; null adds nothing. Raises Unlike where one overflows."""
    wide = _widened(one), _widened(other)
    try:
        sums = pc.coalesce(pc.add_checked(*wide), *wide)
        return sums.cast(one.type)
    except pa.ArrowInvalid as error:
        raise Unlike from error


def grouped(rows: pa.Table, by: str, merges: Mapping[str, str]) -> pa.Table:
    """One row for each value of `by`, a whole number, in order, with what the other columns come to by
    "sum", "min" or "max"; null where all are. Sums are of whole numbers or decimals. Raises Unlike where
    one overflows."""
    columns = {by: rows[by]}
    for name, merge in merges.items():
        columns[name] = _to_sum(rows[name]) if merge == "sum" else rows[name]
    wide = pa.table(columns)
    found = _by_table(wide, by, merges)
    if found is None:
        found = _by_hash(wide, by, merges)
    try:
        return pa.table({by: found[by]} | {n: _summed(found[n], rows[n].type) for n in merges})
    except pa.ArrowInvalid as error:
        raise Unlike from error


def _to_sum(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values as numbers that are added up without overflow: decimals as whole numbers, if they are
    small enough, which takes a fifth of the time. Raises Unlike where some may overflow."""
    if not pa.types.is_decimal(column.type):
        check_sum(column)
        return column
    if pa.types.is_decimal128(column.type):
        with suppress(Unlike):
            is_null = column.is_null().to_numpy() if column.null_count else None
            whole = pa.chunked_array([pa.array(unscaled(column), mask=is_null)])
            check_sum(whole)
            return whole
    return _widened(column)


def _summed(sums: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """What has been added up, as a type. Raises ArrowInvalid where it has not as many digits."""
    if not (pa.types.is_decimal(kind) and pa.types.is_integer(sums.type)):
        return sums.cast(kind)
    wide = pa.decimal128(max(19, kind.precision), kind.scale)
    made = with_point(pc.fill_null(sums, 0).to_numpy(), wide, sums.is_valid())
    return pa.chunked_array([made if wide == kind else made.cast(kind)])


def _by_hash(rows: pa.Table, by: str, merges: Mapping[str, str]) -> pa.Table:
    # Arrow's own order of groups depends on how columns are cut into chunks, too.
    found = rows.group_by([by], use_threads=False).aggregate([*merges.items()]).sort_by(by)
    return pa.table({by: found[by]} | {n: found[f"{n}_{merge}"] for n, merge in merges.items()})


_MERGES: Mapping[str, tuple[np.ufunc, int]] = MappingProxyType(
    {"sum": (np.add, 0), "min": (np.minimum, _GREATEST), "max": (np.maximum, -_GREATEST - 1)}
)
"""With what they start from."""


def _by_table(rows: pa.Table, by: str, merges: Mapping[str, str]) -> pa.Table | None:
    """The same where values are whole numbers inside, and those of `by` near one another."""
    numbers, kinds = rows[by].to_numpy(), [rows[name].type for name in merges]
    if not len(numbers) or not all(map(_goes_through_int64, kinds)):
        return None
    least = int(numbers.min())
    span = int(numbers.max()) - least + 1
    if not is_dense(span, len(numbers)):
        return None
    groups = numbers - least
    there = np.zeros(span, np.bool_)
    there[groups] = True
    found = {by: pa.array(np.flatnonzero(there) + least)}
    for name, merge in merges.items():
        values, kind = rows[name].cast(pa.int64()), rows[name].type
        merged, is_known = _merged_at(values, groups, there, merge)
        made = pa.array(merged[there], mask=None if is_known is None else ~is_known[there])
        found[name] = made if merge == "sum" else made.cast(kind)
    return pa.table(found)


def _merged_at(
    values: pa.ChunkedArray, groups: Integers, there: NDArray[np.bool_], merge: str
) -> tuple[Integers, NDArray[np.bool_] | None]:
    """What values come to by group, of so many as `there` has places, and where some are that are not
    null; None where all are."""
    function, start = _MERGES[merge]
    is_known = None
    if values.null_count:
        is_known = np.zeros(len(there), np.bool_)
        is_known[groups[values.is_valid().to_numpy()]] = True
        # To fill them takes less than to take out the others and their groups.
        values = pc.fill_null(values, start)
    merged = np.full(len(there), start, np.int64)
    if len(there) == 1:
        merged[0] = function.reduce(values.to_numpy(), initial=start)
    else:
        function.at(merged, groups, values.to_numpy())
    return merged, is_known


def _goes_through_int64(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_timestamp(kind))


def _widened(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Decimals with digits to spare: Arrow does not add those with 38."""
    if not pa.types.is_decimal(column.type):
        return column
    return column.cast(pa.decimal256(column.type.precision + 1, column.type.scale))


def check_sum(column: pa.ChunkedArray) -> None:
    """Raises Unlike unless no sum of some of the whole numbers overflows, of which nobody would tell.
    Sums of some pass where all did: there is no more to add up in them."""
    if pa.types.is_integer(column.type) and len(column):
        ends = pc.min_max(column)
        most = max(abs(ends["min"].as_py() or 0), abs(ends["max"].as_py() or 0))
        if most * len(column) >= _MOST_SUMMED and _magnitude(column) >= _MOST_SUMMED:
            raise Unlike


def _magnitude(column: pa.ChunkedArray) -> float:
    """What the numbers come to, each without its sign."""
    found: float = pc.sum(pc.abs(column.cast(pa.float64(), safe=False))).as_py() or 0.0
    return found
