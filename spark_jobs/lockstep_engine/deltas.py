"""Deltas: frames of a relation's columns, `_weight bigint` and `_step bigint`.

`_step` counts from the interval's first step, which is 0; the state at the version opened is that of
step -1. Recorded steps would stand in the Java that Spark generates for a plan, and every interval
would compile its own and run it cold; so they appear where rows leave the engine, and not as constants
of the code (`absolute_steps`).

The law of consolidation: a delta and its consolidation are the same Z-set at every step. Without it
a consumer that looks at single rows (an outbox, a kernel) would see +1 and -1 of one row as a
change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType, StructType

from lockstep_engine.context import Context

__all__ = [
    "FIRST",
    "STEP",
    "UNTIL",
    "WEIGHT",
    "absolute_steps",
    "by_step",
    "columns_of",
    "consolidate",
    "keys_apart",
    "keys_equal",
    "merge_steps",
    "only_keys",
    "periods",
    "quoted",
    "row_text",
    "step_before",
    "union",
]

WEIGHT = "_weight"
STEP = "_step"
UNTIL = "_until"
FIRST = 0
"""The interval's first step; the state at the version opened is that of the step before it."""


def quoted(name: str) -> str:
    """The name as SQL text."""
    return "`" + name.replace("`", "``") + "`"


def columns_of(names: Iterable[str]) -> list[Column]:
    """References to columns by their plain names, whatever characters they hold."""
    return [F.col(quoted(name)) for name in names]


def row_text(names: Iterable[str]) -> Column:
    """A row for people: JSON by column name, nulls among it."""
    return F.to_json(F.struct(*columns_of(names)), {"ignoreNullFields": "false"}).alias("row")


def consolidate(delta: DataFrame, columns: Iterable[str]) -> DataFrame:
    """One row per (row, step), weights added, none 0: columns, `_weight`, `_step`.

    Rows are equal as in GROUP BY: null equals null, NaN equals NaN, -0.0 equals 0.0.
    """
    names = list(columns)
    return (
        delta.groupBy(*columns_of([*names, STEP]))
        .agg(F.sum(WEIGHT).alias(WEIGHT))
        .where(f"{WEIGHT} <> 0")
        .select(*columns_of([*names, WEIGHT, STEP]))
    )


def normalized(rows: DataFrame, types: StructType) -> DataFrame:
    """With values as GROUP BY gives them, of columns of these types: of numbers of floating point that
    it takes for equal, zeros and NaNs, one."""
    made = {
        field.name: F.expr(_one_of_equal(quoted(field.name), field.dataType.simpleString()))
        for field in types
        if isinstance(field.dataType, DoubleType | FloatType)
    }
    return rows.withColumns(made) if made else rows


def _one_of_equal(value: str, name: str) -> str:
    return (
        f"CASE WHEN isnan({value}) THEN CAST('NaN' AS {name}) "
        f"WHEN {value} = CAST(0 AS {name}) THEN CAST(0 AS {name}) ELSE {value} END"
    )


def periods(consolidated: DataFrame, columns: Iterable[str], time: str = STEP) -> DataFrame:
    """What each row's changes come to, for as long as it stays so: columns, `_weight`, none 0, from
    `time` on until before `_until`, null at the last.

    `consolidated` has one row per (row, `time`); further columns that follow from the two are left out.
    """
    names = list(columns)
    by_row = Window.partitionBy(*columns_of(names)).orderBy(time)
    to_now = by_row.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return consolidated.select(
        *columns_of([*names, time]),
        F.sum(WEIGHT).over(to_now).alias(WEIGHT),
        F.lead(time).over(by_row).alias(UNTIL),
    ).where(f"{WEIGHT} <> 0")


def step_before() -> Column:
    """The column `_step` of rows that were there at the version opened."""
    return F.lit(FIRST - 1).cast("bigint").alias(STEP)


def absolute_steps(rows: DataFrame, first: int, last: int) -> DataFrame:
    """The rows with the recorded step in place of the interval's own number for it."""
    # A thousand literals take longer to write down than to look up.
    return rows.withColumn(STEP, _of_step(F.sequence(F.lit(first), F.lit(last))))


def by_step(values: Iterable[int]) -> Column:
    """The value of the row's step, of one for each of the interval's; null for the step before them."""
    return _of_step(F.lit(list(values)))


def _of_step(values: Column) -> Column:
    """By look-up in an array, which generated code refers to and does not contain. Rows of the step
    before are filtered out by then, but Spark's optimizer may have it the other way round."""
    return F.when(F.col(STEP) >= FIRST, values.cast("array<bigint>")[F.col(STEP)])


def merge_steps(delta: DataFrame, columns: Iterable[str]) -> DataFrame:
    """What the whole interval adds to an integral: columns and `_weight`, none 0."""
    names = list(columns)
    return (
        delta.groupBy(*columns_of(names)).agg(F.sum(WEIGHT).alias(WEIGHT)).where(f"{WEIGHT} <> 0")
    )


def union(parts: Sequence[DataFrame]) -> DataFrame:
    """All rows, by name; a column that a part lacks is null in its rows."""
    return reduce(lambda some, more: some.unionByName(more, allowMissingColumns=True), parts)


def only_keys(
    state: DataFrame, keys: Sequence[str], delta: DataFrame, context: Context
) -> DataFrame:
    """The rows of `state` whose key occurs in `delta`; both have the columns `keys`, nulls are
    equal.

    The keys of a small delta are broadcast, so that the state is read where it lies.
    """
    if not keys:
        return state
    wanted = keys_apart(delta, keys).distinct()
    if context.is_small:
        wanted = F.broadcast(wanted)
    is_number = len(keys) == 1 and keys[0] in context.whole
    equal = _numbers_equal(quoted(keys[0])) if is_number else keys_equal(keys)
    return state.join(wanted, F.expr(" AND ".join(equal)), "left_semi")


def keys_apart(rows: DataFrame, keys: Sequence[str], *others: str) -> DataFrame:
    """These columns of the rows, the keys under names by which they can be told from those that they are
    compared with."""
    named = (F.col(quoted(key)).alias(f"_key_{place}") for place, key in enumerate(keys))
    return rows.select(*named, *columns_of(others))


def keys_equal(keys: Sequence[str]) -> list[str]:
    """The conditions by which keys are equal to those of `keys_apart`, nulls too."""
    return [f"{quoted(key)} <=> _key_{place}" for place, key in enumerate(keys)]


def _numbers_equal(key: str) -> list[str]:
    """The same for one key that is a whole number.

    Of `<=>` Spark makes two keys, the number and whether it is null, and looks them up as a row. One
    number is looked up as such: of a large state twice as many rows a second.
    """
    nulls = f"IF({key} IS NULL, _key_0 IS NULL, _key_0 IS NOT NULL)"
    return [f"coalesce({key}, 0) = coalesce(_key_0, 0)", nulls]
