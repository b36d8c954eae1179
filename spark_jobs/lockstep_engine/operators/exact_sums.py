"""Sums of doubles: the same whatever the order, and without drift when rows are taken back.

Adding doubles rounds at every step, so the sum would depend on the order of rows, on the division
into steps and on what came and went: 1e20 + 1 - 1e20 would be 0. Here each number goes apart,
without loss, into whole numbers in a bin of its exponent; these add up in any order, and are
rounded once, when the sum is read. A group's bins are rows of its trace beside its other
accumulators: keys, `_place` (which sum), `_bin`, and the parts of that bin.

So are sums of products of deviations (`kernels.comoments`), for which four numbers of a row are summed.
A product of doubles is added as two, the nearest double and what is left (T. J. Dekker, A
floating-point technique for extending the available precision, 1971), so that nothing is lost of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, LongType, StructField, StructType

from lockstep_engine.context import Context
from lockstep_engine.deltas import STEP, WEIGHT, columns_of, only_keys, quoted, step_before, union
from lockstep_engine.kernels import exact_sums as kernel
from lockstep_engine.kernels.comoments import COUNTS, PRODUCTS, XS, YS, running_comoments
from lockstep_engine.kernels.exact_sums import (
    DIGIT_BITS,
    MINUS_INFINITY,
    NO_BIN,
    NOT_A_NUMBER,
    PLUS_INFINITY,
    Doubles,
    running_sums,
)
from lockstep_engine.kernels.groups import Integers
from lockstep_engine.operators.shards import KEY, SHARD, in_shards

__all__ = ["BIN", "PARTS", "PLACE", "Comoment", "ExactSum", "bins_append", "sums_per_step"]

PLACE, BIN = "_place", "_bin"

PARTS = tuple(f"_part_{part}" for part in range(kernel.PARTS))


_ADDENDS = 1 << 20
"""More than there are arguments: the sums of one are so far apart in their places."""

_LARGEST = "1e150D"
"""Of greater numbers a product, or what it is made of, may be greater than any double."""

_Changes = tuple[Integers, Integers, Integers, Integers, Integers]
"""Places, keys, bins, steps, parts."""


@dataclass(frozen=True)
class ExactSum:
    """The sum of a floating point `argument`, whose number is `place`, in column `name`."""

    argument: str
    place: int

    @property
    def name(self) -> str:
        return f"_exact_{self.place}"

    @property
    def addends(self) -> Iterator[tuple[int, str]]:
        """What a row adds to which place, as SQL text."""
        yield self.place, _double(self.argument)

    def values(self, changes: _Changes) -> tuple[Integers, Doubles]:
        """The sum at each key and step that occurs, with the index of a row of it."""
        return running_sums(*changes[1:])


@dataclass(frozen=True)
class Comoment:
    """The sum of the products of the deviations of an `argument`, in column `name`: of a double with
    themselves, or, `of_pairs`, of the doubles x and y of a struct. `place` is its number."""

    argument: str
    place: int
    of_pairs: bool

    @property
    def name(self) -> str:
        return f"_comoment_{self.place}"

    @property
    def addends(self) -> Iterator[tuple[int, str]]:
        """What a row adds to which place, as SQL text."""
        argument = quoted(self.argument)
        # Of a double the sum is the same as that of ExactSum, and is there once.
        x = f"{argument}.x" if self.of_pairs else _double(self.argument)
        y = f"{argument}.y" if self.of_pairs else x
        yield self.place + XS * _ADDENDS, x
        yield self.place + COUNTS * _ADDENDS, f"CASE WHEN {argument} IS NOT NULL THEN 1D END"
        if self.of_pairs:
            yield self.place + YS * _ADDENDS, y
        yield self.place + PRODUCTS * _ADDENDS, f"{x} * {y}"
        yield self.place + PRODUCTS * _ADDENDS, _left_of_product(x, y)

    def values(self, changes: _Changes) -> tuple[Integers, Doubles]:
        """The sum at each key and step that occurs, with the index of a row of it."""
        return running_comoments(changes[0] // _ADDENDS, *changes[1:])


def _double(argument: str) -> str:
    return f"CAST({quoted(argument)} AS double)"


def _left_of_product(x: str, y: str) -> str:
    """What the product of two doubles is more than the double that it is rounded to; null where numbers
    are so great that it cannot be found."""
    halves = f"{(1 << DIGIT_BITS) + 1}D"
    x_high, y_high = (f"({halves} * {one} - ({halves} * {one} - {one}))" for one in (x, y))
    x_low, y_low = f"({x} - {x_high})", f"({y} - {y_high})"
    high = f"({x} * {y} - {x_high} * {y_high})"
    left = f"{x_low} * {y_low} - (({high} - {x_low} * {y_high}) - {x_high} * {y_low})"
    return f"CASE WHEN abs({x}) < {_LARGEST} AND abs({y}) < {_LARGEST} THEN {left} END"


def bins_append(
    wanted: Sequence[ExactSum | Comoment], keys: Sequence[StructField], delta: DataFrame
) -> DataFrame:
    """What the interval adds to the bins of a group: keys, `_place`, `_bin int`, the parts."""
    names = [key.name for key in keys]
    binned = _binned(wanted, names, delta)
    return _merged(binned.where(f"{BIN} <> {NO_BIN}"), [*names, PLACE, BIN])


def sums_per_step(
    wanted: Sequence[ExactSum | Comoment],
    keys: Sequence[StructField],
    delta: DataFrame,
    trace: DataFrame | None,
    context: Context,
) -> DataFrame:
    """Keys, `_step`, and the sums after it: for each sum a row per key and step in the delta, and
    one for the step before the first, unless it was 0 then."""
    names = [key.name for key in keys]
    parts = [_binned(wanted, names, delta)]
    if trace is not None:
        held = only_keys(trace.where(f"{PLACE} IS NOT NULL"), names, delta, context)
        parts.append(held.select(*columns_of([*names, PLACE, BIN, *PARTS]), step_before()))
    merged = _merged(union(parts), [*names, PLACE, BIN, STEP])
    schema = StructType(
        [
            *keys,
            StructField(STEP, LongType()),
            *(StructField(one.name, DoubleType()) for one in wanted),
        ]
    )
    sharded = in_shards(merged, names, context)
    return sharded.groupBy(SHARD).applyInArrow(_kernel(tuple(names), tuple(wanted)), schema)


def _merged(rows: DataFrame, by: Sequence[str]) -> DataFrame:
    return rows.groupBy(*columns_of(by)).agg(*(F.sum(part).alias(part) for part in PARTS))


def _binned(
    wanted: Sequence[ExactSum | Comoment], keys: Sequence[str], delta: DataFrame
) -> DataFrame:
    """Each row's numbers as whole numbers: keys, `_step`, `_place int`, `_bin int`, `_part_0`…
    `bigint`.

    The scale is a power of two, so every product is exact; it is applied in two, as for the
    smallest and greatest numbers it is itself out of range. log2 may be off by one at the edge of a
    bin: the number then stands in the next bin, still whole.
    """
    infinity = "double('Infinity')"
    bins = (
        f"CASE WHEN _x IS NULL OR _x = 0 THEN {NO_BIN} WHEN isnan(_x) THEN {NOT_A_NUMBER} "
        f"WHEN _x = {infinity} THEN {PLUS_INFINITY} WHEN _x = -{infinity} THEN {MINUS_INFINITY} "
        f"ELSE CAST(floor(floor(log2(abs(_x))) / {DIGIT_BITS}) AS int) END"
    )
    scaled = f"_x * pow(2D, -13 * {BIN}) * pow(2D, {2 * DIGIT_BITS} - 14 * {BIN})"
    base, square = f"{1 << DIGIT_BITS}D", f"{1 << 2 * DIGIT_BITS}D"
    names = [*keys, STEP]
    frame = _addends(wanted, [*names, WEIGHT], delta)
    frame = frame.withColumn(BIN, F.expr(bins))
    frame = frame.withColumn("_z", F.expr(f"CASE WHEN {BIN} < {NOT_A_NUMBER} THEN {scaled} END"))
    frame = frame.withColumn("_high", F.expr(f"CAST(_z / {square} AS bigint)"))
    frame = frame.withColumn("_rest", F.expr(f"_z - _high * {square}"))
    frame = frame.withColumn("_middle", F.expr(f"CAST(_rest / {base} AS bigint)"))
    low = f"CAST(_rest - _middle * {base} AS bigint)"
    parts = [
        f"CASE WHEN {BIN} < {NOT_A_NUMBER} THEN {low} WHEN {BIN} < {NO_BIN} THEN 1L ELSE 0L END",
        "coalesce(_middle, 0L)",
        "coalesce(_high, 0L)",
    ]
    return frame.select(
        *columns_of([*names, PLACE, BIN]),
        *(
            F.expr(f"({part}) * {WEIGHT}").alias(name)
            for part, name in zip(parts, PARTS, strict=True)
        ),
    )


def _addends(
    wanted: Sequence[ExactSum | Comoment], columns: Sequence[str], delta: DataFrame
) -> DataFrame:
    """`columns`, `_place`, `_x double`: a row for each number that a row adds."""
    addends = dict.fromkeys(addend for one in wanted for addend in one.addends)
    if len(addends) == 1:
        [(place, text)] = addends
        return delta.select(
            *columns_of(columns), F.lit(place).alias(PLACE), F.expr(text).alias("_x")
        )
    structs = ", ".join(f"named_struct('place', {place}, 'x', {text})" for place, text in addends)
    added = F.explode(F.expr(f"array({structs})")).alias("_added")
    return delta.select(*columns_of(columns), added).select(
        *columns_of(columns), F.col("_added.place").alias(PLACE), F.col("_added.x").alias("_x")
    )


def _kernel(
    keys: tuple[str, ...], wanted: tuple[ExactSum | Comoment, ...]
) -> Callable[[pa.Table], pa.Table]:
    def one_sum(table: pa.Table, one: ExactSum | Comoment) -> pa.Table:
        places = pa.array([place for place, _ in one.addends], pa.int32())
        own = table.filter(pc.is_in(table[PLACE], places))
        changes = (
            own[PLACE].to_numpy(),
            own[KEY].to_numpy(),
            own[BIN].to_numpy().astype(np.int64),
            own[STEP].to_numpy(),
            np.stack([own[part].to_numpy() for part in PARTS], axis=1),
        )
        at, sums = one.values(changes)
        rows = pa.array(at)
        columns = {key: own[key].take(rows) for key in keys}
        columns[STEP] = own[STEP].take(rows)
        for other in wanted:
            columns[other.name] = pa.nulls(len(at), pa.float64())
        columns[one.name] = pa.array(sums)
        return pa.table(columns)

    def run(table: pa.Table) -> pa.Table:
        return pa.concat_tables([one_sum(table, one) for one in wanted])

    return run
