"""Rows that this process has, as Arrow has them, and as a frame for Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, LongType, MapType, StructField, StructType

from lockstep_engine.computed import given
from lockstep_engine.deltas import STEP
from lockstep_engine.failures import SPARK_ERRORS, is_of_size
from lockstep_engine.local.values import normalized
from lockstep_engine.told import fetched_within, is_well_formed

__all__ = ["Rows", "as_frame", "fetched_rows", "has_lists"]

_MOST_BYTES = 256 << 20
"""Of rows that are few: a worker of Airflow may have several intervals, of several sources each."""


@dataclass(frozen=True, eq=False)
class Rows:
    """`table` has the columns of `schema`, in order, as Spark gives such a frame to Arrow."""

    table: pa.Table
    schema: StructType
    _frames: list[DataFrame] = field(default_factory=list, init=False, repr=False)

    @staticmethod
    def of(table: pa.Table, schema: StructType | None = None) -> Rows:
        """The rows of a table, as of these types, or of those that it would have in Spark."""
        if schema is None:
            schema = from_arrow_schema(table.schema, prefer_timestamp_ntz=True)
        return Rows(table.cast(to_arrow_schema(schema)), schema)

    @staticmethod
    def together(parts: Sequence[Rows]) -> Rows:
        """All of them, one after the other, of the same columns and types: null where one may be."""
        names = parts[0].schema.names
        fields = [
            StructField(
                name, parts[0].schema[name].dataType, any(p.schema[name].nullable for p in parts)
            )
            for name in names
        ]
        # What is said of nulls has to be the same in tables that are put together.
        tables = [pa.table([one.table[n] for n in names], names=names) for one in parts]
        return Rows.of(pa.concat_tables(tables), StructType(fields))

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def where(self, is_wanted: pa.ChunkedArray) -> Rows:
        """The rows for which it is true."""
        return Rows(self.table.filter(is_wanted), self.schema)

    def having(self, name: str) -> Rows:
        """The rows that have a value of this name."""
        column = self.table[name]
        return self.where(column.is_valid()) if column.null_count else self

    def normalized(self) -> Rows:
        """With values as GROUP BY gives them."""
        columns = [normalized(column) for column in self.table.columns]
        return Rows(pa.Table.from_arrays(columns, schema=self.table.schema), self.schema)

    def select(self, names: Iterable[str]) -> Rows:
        """These columns."""
        return self.renamed({name: name for name in names})

    def renamed(self, names: Mapping[str, str]) -> Rows:
        """The columns that stand in `names`, by new name, and no others."""
        fields = (self.schema[old] for old in names.values())
        schema = StructType(
            [
                StructField(new, one.dataType, one.nullable)
                for new, one in zip(names, fields, strict=True)
            ]
        )
        arrays = [self.table.column(old) for old in names.values()]
        return Rows(pa.Table.from_arrays(arrays, schema=to_arrow_schema(schema)), schema)

    def with_number(self, name: str, value: int) -> Rows:
        """With one more column, a bigint that is the same in all rows."""
        numbers = pa.repeat(pa.scalar(value, pa.int64()), len(self))
        added = StructField(name, LongType(), False)
        table = self.table.append_column(pa.field(name, pa.int64(), nullable=False), numbers)
        return Rows(table, StructType([*self.schema.fields, added]))

    def later(self, steps: int) -> Rows:
        """With `_step` so many steps later."""
        place = self.table.column_names.index(STEP)
        later = pc.add(self.table[STEP], steps)
        return Rows(self.table.set_column(place, self.table.schema.field(STEP), later), self.schema)

    def along(self, spark: SparkSession) -> DataFrame:
        """A frame of the rows for one request, with which they go along."""
        return spark.createDataFrame(self.table, self.schema)

    def frame(self, spark: SparkSession) -> DataFrame:
        """A frame of the rows for several; it is made once."""
        if not self._frames:
            self._frames.append(given(spark, self.table, self.schema))
        return self._frames[0]


def as_frame(spark: SparkSession, rows: DataFrame | Rows) -> DataFrame:
    """A frame, whoever has the rows."""
    return rows.frame(spark) if isinstance(rows, Rows) else rows


def fetched_rows(frame: DataFrame) -> Rows | None:
    """The rows of a frame; None where they are more than a driver hands out, or this process should
    hold, or a text is not UTF-8."""
    try:
        found = fetched_within(frame, _MOST_BYTES)
    except SPARK_ERRORS as error:
        if not is_of_size(error):
            raise
        return None
    return Rows(*found) if found is not None and is_well_formed(found[0]) else None


def has_lists(kind: DataType) -> bool:
    """Whether it is a list or a map, or columns or fields of it are: tables that have any are Spark's to
    write."""
    if isinstance(kind, StructType):
        return any(has_lists(field.dataType) for field in kind)
    return isinstance(kind, ArrayType | MapType)
