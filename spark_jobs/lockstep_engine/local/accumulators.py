"""What a trace remembers of a group, over rows that this process has.

The same accumulators as `operators.accumulators` has as SQL, whose text says what each is: lifted,
merged, and read off. Sums of floating point are in `exact_sums`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import DataType, DecimalType, DoubleType, FloatType, LongType

from lockstep.sql.plans.nodes import AggregateCall, AggregateFunction
from lockstep_engine.kernels.groups import Integers
from lockstep_engine.local.values import Unlike, added, grouped, unscaled, with_point
from lockstep_engine.operators.accumulators import ROWS, Accumulator, Groups, places_of

__all__ = ["average_type", "decimal_average", "lifted", "merged", "running", "value"]

_LOW = 0xFFFFFFFF


def lifted(
    name: str, argument: pa.ChunkedArray | None, weights: pa.ChunkedArray
) -> pa.ChunkedArray:
    """The increments of one accumulator, by its name, of rows of these weights."""
    kind = name.split("_")[1]
    if argument is None:
        return weights
    match kind:
        case "count":
            return pc.if_else(argument.is_valid(), weights, pa.scalar(None, pa.int64()))
        case "min" | "max":
            return argument
        case "high":
            return _times(pc.shift_right(argument, 32), weights)
        case "low":
            return _times(pc.bit_wise_and(argument, _LOW), weights)
        case _:
            return _times(argument, weights)


def _times(values: pa.ChunkedArray, weights: pa.ChunkedArray) -> pa.ChunkedArray:
    """Whole numbers as bigint; decimals with 38 digits, without loss. Raises Unlike on overflow."""
    kind = values.type
    try:
        if not pa.types.is_decimal(kind):
            return pc.multiply_checked(values.cast(pa.int64()), weights)
        if pa.types.is_decimal128(kind):
            with suppress(Unlike, pa.ArrowInvalid):
                return _times_small(values, weights)
        # Some have more than 63 bits.
        wide = values.cast(pa.decimal256(kind.precision, kind.scale))
        product = pc.multiply_checked(wide, weights.cast(pa.decimal256(19, 0)))
        return product.cast(pa.decimal128(38, kind.scale))
    except pa.ArrowInvalid as error:
        raise Unlike from error


def _times_small(values: pa.ChunkedArray, weights: pa.ChunkedArray) -> pa.ChunkedArray:
    """The same of small decimals, as whole numbers. Raises Unlike or ArrowInvalid for others."""
    whole = pc.multiply_checked(pa.chunked_array([unscaled(values)]), weights)
    kind = pa.decimal128(38, values.type.scale)
    return pa.chunked_array([with_point(whole.to_numpy(), kind, values.is_valid())])


def merged(rows: pa.Table, by: str, accumulators: Sequence[Accumulator]) -> pa.Table:
    """One row for each value of `by`, in order, with the accumulators merged. Raises Unlike where Spark
    should."""
    for one in accumulators:
        if one.merge != "sum":
            _check_has_order(rows[one.name])
    return grouped(rows, by, {one.name: one.merge for one in accumulators})


def _check_has_order(column: pa.ChunkedArray) -> None:
    """That no NaN is among the values: Arrow leaves it out, and to Spark it is the greatest."""
    if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
        raise Unlike


def running(rows: pa.Table, ranks: Integers, accumulators: Sequence[Accumulator]) -> pa.Table:
    """From increments to totals: each row with all before it of the same group; `ranks` is how many
    these are, in a table that is sorted by group. In as many passes as the longest has doublings."""
    places, columns = np.arange(rows.num_rows), {a.name: rows[a.name] for a in accumulators}
    distance = 1
    while distance <= ranks.max(initial=0):
        before = pa.array(places - distance, mask=ranks < distance)
        for one in accumulators:
            column = columns[one.name]
            columns[one.name] = _combined(one.merge, column.take(before), column)
        distance *= 2
    return pa.table(columns)


def _combined(merge: str, one: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    match merge:
        case "min":
            return pc.coalesce(pc.if_else(pc.less(one, other), one, other), one, other)
        case "max":
            return pc.coalesce(pc.if_else(pc.greater(one, other), one, other), one, other)
        case _:
            return added(one, other)


def value(
    call: AggregateCall, node: Groups, types: Mapping[str, DataType], totals: pa.Table
) -> pa.ChunkedArray | None:
    """The aggregate's value by the totals of its accumulators; None where Spark is to compute it.
    Raises Unlike where it has none, so that Spark says so."""
    if call.argument is None:
        return pc.fill_null(totals[ROWS], 0)
    place = places_of(node.aggregates)[call.argument]
    match call.function:
        case AggregateFunction.COUNT:
            return pc.fill_null(totals[f"_count_{place}"], 0)
        case AggregateFunction.MIN | AggregateFunction.MAX:
            name = f"_{call.function.value}_{place}"
            return totals[call.argument if call.argument in node.keys else name]
        case AggregateFunction.SUM:
            there = pc.greater(pc.fill_null(totals[f"_count_{place}"], 0), 0)
            found = _sum(totals, place, types[call.argument])
            return pc.if_else(there, found, pa.scalar(None, found.type))
        case AggregateFunction.AVG:
            return _average(totals, place, types[call.argument])
        case _:
            return None


def _sum(totals: pa.Table, place: int, kind: DataType) -> pa.ChunkedArray:
    try:
        match kind:
            case LongType():
                # The halves are brought to form first, so that this overflows only if the sum does.
                high, low = totals[f"_high_{place}"], totals[f"_low_{place}"]
                high = pc.add_checked(high, pc.shift_right(low, 32))
                whole = pc.multiply_checked(high, 1 << 32)
                return pc.add_checked(whole, pc.bit_wise_and(low, _LOW))
            case DecimalType():
                wanted = pa.decimal128(min(38, kind.precision + 10), kind.scale)
                return totals[f"_sum_{place}"].cast(wanted)
            case DoubleType() | FloatType():
                return totals[f"_exact_{place}"]
            case _:
                return totals[f"_sum_{place}"]
    except pa.ArrowInvalid as error:
        raise Unlike from error


def average_type(kind: DataType) -> DataType:
    """Of an average of values of this type."""
    if isinstance(kind, DecimalType):
        return DecimalType(min(38, kind.precision + 4), min(38, kind.scale + 4))
    return DoubleType()


def _average(totals: pa.Table, place: int, kind: DataType) -> pa.ChunkedArray | None:
    """As `operators.accumulators` has it; None where Spark is to compute it."""
    counts = pc.fill_null(totals[f"_count_{place}"], 0)
    is_there, size = pc.greater(counts, 0), np.maximum(counts.to_numpy(), 1)
    found: pa.Array | None
    match kind:
        case LongType():
            # Half by half: a sum may have more bits than a bigint.
            low, high = (totals[f"_{half}_{place}"] for half in ("low", "high"))
            is_there = pc.and_(is_there, high.is_valid())
            found = pa.array(_doubled(high, low) / size)
        case DecimalType():
            sums = _sum(totals, place, kind)
            is_there = pc.and_(is_there, sums.is_valid())
            found = decimal_average(sums, size, kind)
        case DoubleType() | FloatType():
            # A group of zeros has no bins.
            found = pa.array(pc.fill_null(_sum(totals, place, kind), 0).to_numpy() / size)
        case _:
            sums = _sum(totals, place, kind)
            is_there = pc.and_(is_there, sums.is_valid())
            found = pa.array(pc.fill_null(sums, 0).to_numpy().astype(np.float64) / size)
    if found is None:
        return None
    averages = pa.chunked_array([found])
    return pc.if_else(is_there, averages, pa.scalar(None, averages.type))


def _doubled(high: pa.ChunkedArray, low: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    low, high = pc.fill_null(low, 0), pc.fill_null(high, 0)
    try:
        high = pc.add_checked(high, pc.shift_right(low, 32))
    except pa.ArrowInvalid as error:
        raise Unlike from error
    made: npt.NDArray[np.float64] = high.to_numpy() * float(1 << 32)
    made += pc.bit_wise_and(low, _LOW).to_numpy()
    return made


_SHIFT = 10_000
"""An average has four digits more after the point."""
_MOST_COUNTED = 10**9
_LARGEST_SCALE = 18
"""Up to it what Spark evaluates is exact whatever the count is."""
_MOST_SUMMED = (1 << 62) // (2 * _SHIFT)


def decimal_average(sums: pa.ChunkedArray, size: Integers, kind: DecimalType) -> pa.Array | None:
    """Averages of decimals of that kind, by what they come to and how many they are, rounded half up;
    None where a number in between has more than 63 bits."""
    if kind.scale > _LARGEST_SCALE or kind.precision + 4 > 38:
        return None
    try:
        whole = unscaled(sums)
    except Unlike:
        return None
    is_small = (whole > -_MOST_SUMMED) & (whole < _MOST_SUMMED)
    if not np.all(is_small & (size < _MOST_COUNTED)):
        return None
    rounded = (2 * _SHIFT * np.abs(whole) + size) // (2 * size) * np.sign(whole)
    if kind.precision < 15 and np.any(np.abs(rounded) >= 10 ** (kind.precision + 4)):
        return None
    return with_point(rounded, pa.decimal128(kind.precision + 4, kind.scale + 4))
