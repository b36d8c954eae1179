"""Rows of a view's change: which can be compared, how many there are, where in the view they can be."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from lockstep_engine.deltas import WEIGHT, quoted

__all__ = ["as_copies", "count_change", "incomparable", "within"]


def incomparable(schema: StructType) -> list[StructField]:
    return [field for field in schema.fields if _is_incomparable(field.dataType)]


def _is_incomparable(kind: DataType) -> bool:
    match kind:
        case MapType() | VariantType():
            return True
        case ArrayType():
            return _is_incomparable(kind.elementType)
        case StructType():
            return any(_is_incomparable(field.dataType) for field in kind.fields)
        case _:
            return False


def as_copies(rows: DataFrame, count: str, most: int | None) -> DataFrame:
    """Each row as often as its column `count` says, which is dropped; `most` None is not known."""
    if most is None or most > 1:
        rows = rows.withColumn("_copy", F.explode(F.sequence(F.lit(1), F.col(count)))).drop("_copy")
    return rows.drop(count)


def count_change(net: DataFrame, columns: tuple[str, ...]) -> Row:
    """The size of a change, and the least and greatest of what can be compared with file metrics
    among its deleted rows. Reads the change once, which keeps it."""
    is_deleted = F.col(WEIGHT) < 0
    parts = [
        F.count(F.lit(1)).alias("rows"),
        F.max(WEIGHT).alias("most"),
        F.count_if(is_deleted).alias("deleted"),
        F.sum(F.when(is_deleted, -F.col(WEIGHT))).alias("lost"),
    ]
    for place, name in enumerate(columns):
        number = _as_number(F.col(quoted(name)), net.schema[name].dataType)
        if number is not None:
            parts += [
                F.min(F.when(is_deleted, number)).alias(f"least_{place}"),
                F.max(F.when(is_deleted, number)).alias(f"most_{place}"),
                F.count_if(is_deleted & number.isNull()).alias(f"nulls_{place}"),
            ]
    counted = net.agg(*parts).first()
    assert counted is not None, "an aggregate without groups is one row"
    return counted


def _as_number(column: Column, kind: DataType) -> Column | None:
    """Types by whose range whole files of a view can be passed over, as a bigint."""
    match kind:
        case IntegerType() | LongType():
            return column.cast("bigint")
        case DateType():
            return F.unix_date(column)
        case TimestampType():
            return F.unix_micros(column)
        case _:
            return None


def within(net: DataFrame, columns: tuple[str, ...], counted: Row) -> tuple[str, ...]:
    """Conditions on the target `t` that every deleted row fulfils; a column with nulls gives none."""
    ranges = []
    for place, name in enumerate(columns):
        if f"nulls_{place}" in counted and not counted[f"nulls_{place}"]:
            kind = net.schema[name].dataType
            least, most = (_as_sql(counted[f"{end}_{place}"], kind) for end in ("least", "most"))
            ranges.append(f"t.{quoted(name)} BETWEEN {least} AND {most}")
    return tuple(ranges)


def _as_sql(number: int, kind: DataType) -> str:
    """The inverse of `_as_number`, as a constant of the column's own type."""
    match kind:
        case DateType():
            return f"date_from_unix_date({number})"
        case TimestampType():
            return f"timestamp_micros({number}L)"
        case _:
            return f"CAST({number}L AS {kind.simpleString()})"
