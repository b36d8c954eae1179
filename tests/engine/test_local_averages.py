"""Averages by the totals of their accumulators: what Spark makes of the same totals, or nothing."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Context, Decimal
from random import Random
from typing import Any

import hypothesis
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DataType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StructField,
    StructType,
)

from lockstep.sql.plans.nodes import Aggregate, AggregateCall, AggregateFunction, Scan
from lockstep_engine.local.accumulators import average_type, value
from lockstep_engine.local.rows import Rows
from lockstep_engine.operators.accumulators import value_of
from lockstep_engine.told import fetched

pytestmark = pytest.mark.spark

MEAN = AggregateCall("mean", AggregateFunction.AVG, "v")
NODE = Aggregate(Scan("t", ("v",)), (), (MEAN,))

COUNTS = st.one_of(st.integers(1, 40), st.integers(1, 10**8))
DECIMALS = [DecimalType(15, 2), DecimalType(7, 0), DecimalType(30, 11)]


def totals_of(kind: DataType, sums: list[Any], counts: list[int | None]) -> pa.Table:
    """As a trace has them for values of this type."""
    columns: dict[str, pa.Array] = {"_count_0": pa.array(counts, pa.int64())}
    if isinstance(kind, DecimalType):
        columns["_sum_0"] = pa.array(sums, pa.decimal128(38, kind.scale))
    elif isinstance(kind, LongType):
        columns["_high_0"] = pa.array([None if s is None else s >> 32 for s in sums], pa.int64())
        # Not brought to form: the lower half has grown beyond its bits.
        lows = [None if s is None else (s & 0xFFFFFFFF) for s in sums]
        columns["_low_0"] = pa.array(lows, pa.int64())
    elif isinstance(kind, DoubleType):
        columns["_exact_0"] = pa.array(sums, pa.float64())
    else:
        columns["_sum_0"] = pa.array(sums, pa.int64())
    return pa.table(columns)


def laid_out(spark: SparkSession, totals: pa.Table) -> DataFrame:
    return Rows.of(totals.append_column("_at", pa.array(range(totals.num_rows)))).along(spark)


def by_text(frame: DataFrame, kind: DataType) -> tuple[pa.ChunkedArray, StructType]:
    """The averages that Spark makes of totals, in order, and their type."""
    made = F.expr(value_of(MEAN, NODE, {"v": kind})).alias("mean")
    return in_order(frame.select("_at", made))


def in_order(frame: DataFrame) -> tuple[pa.ChunkedArray, StructType]:
    table, schema = fetched(frame)
    return table.sort_by("_at")["mean"], schema


def check(spark: SparkSession, kind: DataType, totals: pa.Table, *, is_made: bool = True) -> None:
    found = value(MEAN, NODE, {"v": kind}, totals)
    assert (found is not None) == is_made
    if found is None:
        return
    wanted, schema = by_text(laid_out(spark, totals), kind)
    assert schema["mean"] == StructField("mean", average_type(kind))
    assert found.type == wanted.type
    assert list(map(str, found.to_pylist())) == list(map(str, wanted.to_pylist()))


def decimals(kind: DecimalType, numbers: list[int | None]) -> list[Decimal | None]:
    exact = Context(prec=40)
    return [None if n is None else Decimal(n).scaleb(-kind.scale, exact) for n in numbers]


@pytest.mark.parametrize("kind", DECIMALS, ids=str)
def test_decimals_are_rounded_half_up(spark: SparkSession, kind: DecimalType) -> None:
    """Away from zero; eighths of ten thousandths, and thirds, and none."""
    numbers = [1, -1, 3, -3, 5, 12345, -12345, 0, 7, None, 10**6 + 1]
    counts = [n for n in (1, 3, 7, 8, 16, 20_000, 32, 30_000) for _ in numbers]
    sums = decimals(kind, numbers * 8)
    check(spark, kind, totals_of(kind, [*sums, Decimal(1), None], [*counts, 0, None]))


@hypothesis.settings(max_examples=15)
@hypothesis.given(st.data())
def test_any_averages(spark: SparkSession, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([*DECIMALS, DecimalType(28, 18)]))
    rows = data.draw(st.lists(st.tuples(st.integers(-(10**13), 10**13), COUNTS), min_size=30))
    most = 10**kind.precision - 1
    numbers = [max(-most * count, min(most * count, number)) for number, count in rows]
    sums = decimals(kind, [*numbers])
    check(spark, kind, totals_of(kind, sums, [count for _, count in rows]))


@pytest.mark.parametrize(
    ("kind", "number", "count"),
    [
        (DecimalType(15, 2), 3 * 10**14, 4),
        (DecimalType(30, 11), 10**25, 3),
        (DecimalType(15, 2), 1, 10**9),
        (DecimalType(35, 2), 1, 3),
        (DecimalType(38, 36), 1, 3),
        (DecimalType(7, 0), 10**8, 2),
        (DecimalType(20, 2), -(2**63), 2),
        (DecimalType(28, 19), 533, 1333),
    ],
)
def test_long_ones_are_left_to_spark(
    spark: SparkSession, kind: DecimalType, number: int, count: int
) -> None:
    totals = totals_of(kind, decimals(kind, [number]), [count])
    check(spark, kind, totals, is_made=False)


LONG = [(28, 9), (28, 14), (28, 18), (38, 18), (30, 22), (30, 27), (38, 26), (38, 2), (34, 0)]


def check_rounded_once(spark: SparkSession, kind: DecimalType, rows: list[tuple[int, int]]) -> None:
    """By totals as by rows of which all but one are zero, of (total, count)."""
    sums, counts = decimals(kind, [total for total, _ in rows]), [count for _, count in rows]
    frame = laid_out(spark, totals_of(kind, sums, [*counts]))
    found, _ = by_text(frame, kind)
    total, none = (f"CAST({one} AS {kind.simpleString()})" for one in ("_sum_0", "0"))
    value = f"IF(place = 1, {total}, {none})"
    apart = frame.select("_at", "_sum_0", F.expr("explode(sequence(1, _count_0))").alias("place"))
    wanted, _ = in_order(apart.groupBy("_at").agg(F.expr(f"avg({value})").alias("mean")))
    assert found.type == wanted.type
    both = zip(rows, found.to_pylist(), wanted.to_pylist(), strict=True)
    unlike = [(row, mine, spark_s) for row, mine, spark_s in both if mine != spark_s]
    assert unlike == []


@pytest.mark.parametrize("kind", [DecimalType(*one) for one in LONG], ids=str)
def test_averages_of_many_digits_are_rounded_once(spark: SparkSession, kind: DecimalType) -> None:
    """All short fractions, and halves of the last digit just missed."""
    rows = [
        (sign * n, count) for sign in (1, -1) for count in (1, 2, 3, 7, 9) for n in (0, 1, 2, 5)
    ]
    rows += [(sign * n, 1333) for sign in (1, -1) for n in range(500, 560)]
    rows += [(10**20 + 533, 1333), (-(10**20) - 4, 7)]
    check_rounded_once(spark, kind, rows)


@pytest.mark.parametrize(
    "kind",
    [DecimalType(*one) for one in [*LONG, (38, 0), (38, 1), (35, 3), (38, 8)]],
    ids=str,
)
def test_averages_of_very_many_rows(spark: SparkSession, kind: DecimalType) -> None:
    """As many as cannot be laid out beside them."""
    random = Random(kind.scale)
    most = 13 if kind.scale <= 18 else 31 - kind.scale
    counts = [random.randrange(10 ** (most - 1)) + 10 ** (most - 1) for _ in range(40)]
    counts += [min(2_000_001, 10**most - 1), min(20_000_001, 10**most - 1)]
    sums = [
        random.choice((1, -1)) * random.randrange(10 ** random.randrange(1, 28)) for _ in counts
    ]
    sums[-2:] = [10 ** (2 + kind.scale), 10 ** (2 + kind.scale)]
    frame = laid_out(spark, totals_of(kind, decimals(kind, [*sums]), [*counts]))
    found, _ = by_text(frame, kind)
    digit, exact = Decimal(1).scaleb(-kind.scale - 4), Context(prec=80, rounding=ROUND_HALF_UP)
    wanted = [
        exact.quantize(exact.divide(Decimal(total).scaleb(-kind.scale), Decimal(count)), digit)
        for total, count in zip(sums, counts, strict=True)
    ]
    assert found.to_pylist() == wanted


@hypothesis.settings(max_examples=10)
@hypothesis.given(st.data())
def test_any_averages_of_many_digits(spark: SparkSession, data: st.DataObject) -> None:
    kind = DecimalType(*data.draw(st.sampled_from(LONG)))
    most = 10 ** min(kind.precision, 28) - 1
    numbers = st.one_of(st.integers(-most, most), st.integers(-2000, 2000))
    rows = data.draw(st.lists(st.tuples(numbers, st.integers(1, 2000)), min_size=20))
    check_rounded_once(spark, kind, rows)


@pytest.mark.parametrize("kind", [IntegerType(), LongType()], ids=str)
def test_whole_numbers_are_doubled_first(spark: SparkSession, kind: DataType) -> None:
    sums = [1, -1, 2**53 + 1, -(2**53) - 1, 2**62 + 12345, -(2**63), 0, 7, None, 10]
    counts = [3, 3, 1, 7, 10, 3, 5, 0, None, 4]
    check(spark, kind, totals_of(kind, sums, counts))


def test_sums_of_doubles_are_divided(spark: SparkSession) -> None:
    sums = [0.1, -0.0, float("nan"), float("inf"), 1e308, 5e-324, None, 1.0]
    check(spark, DoubleType(), totals_of(DoubleType(), sums, [3, 3, 2, 2, 3, 2, 2, 0]))
