"""min and max over input that takes rows back: the values themselves have to be known.

A running extreme is no group: when the greatest value goes, the next one down is in nothing that
was added up. So a trace holds the distinct values of each key with their weights; for the keys of
the delta they go with the delta to a kernel, a shard of keys at a time, which gives the extremes
after each step. Values that the delta does not touch stay what they are throughout the interval, so
of these only the least and the greatest of a key are taken along.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from lockstep_engine.context import Context
from lockstep_engine.deltas import (
    STEP,
    WEIGHT,
    columns_of,
    merge_steps,
    only_keys,
    quoted,
    step_before,
    union,
)
from lockstep_engine.kernels.extremes import running_extremes
from lockstep_engine.operators.shards import KEY, SHARD, in_shards

__all__ = ["Extremes", "extremes_per_step", "values_append"]


@dataclass(frozen=True)
class Extremes:
    """The extremes of one argument, by field (name and type); `place` is the argument's number.

    Columns `least` and `greatest` are made, or None where not wanted; `table` is the trace.
    """

    argument: StructField
    place: int
    table: str
    least: str | None
    greatest: str | None

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are made."""
        return tuple(name for name in (self.least, self.greatest) if name is not None)

    @property
    def value(self) -> str:
        """The argument's column on the way to the kernel."""
        return f"_value_{self.place}"

    @property
    def rank(self) -> str:
        """The column of the value's rank within its shard."""
        return f"_rank_{self.place}"


def values_append(delta: DataFrame, keys: Sequence[str], argument: str) -> DataFrame:
    """What the interval adds to the trace: keys, the argument where it is not null, `_weight`."""
    columns = tuple(dict.fromkeys((*keys, argument)))
    return merge_steps(delta.where(F.col(quoted(argument)).isNotNull()), columns)


def extremes_per_step(
    wanted: Sequence[Extremes],
    keys: Sequence[StructField],
    delta: DataFrame,
    state: Mapping[str, DataFrame | None],
    context: Context,
) -> DataFrame:
    """Keys, `_step`, and the extremes after it: a row per key and step in the delta, and one for
    the step before the first of a key that had values."""
    names = [key.name for key in keys]
    changes = delta.select(
        *columns_of(names),
        *(F.col(quoted(one.argument.name)).alias(one.value) for one in wanted),
        *columns_of([WEIGHT, STEP]),
    )
    parts = [changes]
    for one in wanted:
        trace = state.get(one.table)
        if trace is not None:
            parts.append(_seeds(one, names, changes, trace, context))
    schema = StructType(
        [
            *keys,
            StructField(STEP, LongType()),
            *(StructField(name, one.argument.dataType) for one in wanted for name in one.names),
        ]
    )
    ranks = {one.rank: one.value for one in wanted}
    sharded = in_shards(union(parts), names, context, ranks)
    return sharded.groupBy(SHARD).applyInArrow(_kernel(tuple(names), tuple(wanted)), schema)


def _seeds(
    wanted: Extremes,
    keys: Sequence[str],
    changes: DataFrame,
    trace: DataFrame,
    context: Context,
) -> DataFrame:
    """The state of the delta's keys as changes of the step before: of what the delta does not
    touch, the ends only."""
    by, value = columns_of(keys), wanted.value
    held = only_keys(trace, keys, changes, context).select(
        *by,
        F.col(quoted(wanted.argument.name)).alias(value),
        *columns_of([WEIGHT]),
        F.lit(False).alias("_is_touched"),
    )
    touched = changes.where(f"{value} IS NOT NULL").select(
        *by,
        *columns_of([value]),
        F.lit(0).cast("bigint").alias(WEIGHT),
        F.lit(True).alias("_is_touched"),
    )
    values = (
        held.unionByName(touched)
        .groupBy(*by, value)
        .agg(F.sum(WEIGHT).alias(WEIGHT), F.max("_is_touched").alias("_is_touched"))
        .where(f"{WEIGHT} > 0")
    )
    ends = (
        values.withColumn("_own", F.expr(f"CASE WHEN _is_touched THEN {value} END"))
        .groupBy(*by, "_is_touched", "_own")
        .agg(
            F.expr(f"array_distinct(array(min({value}), max({value})))").alias("_ends"),
            F.max(WEIGHT).alias(WEIGHT),
        )
    )
    return ends.select(*by, F.explode("_ends").alias(value), *columns_of([WEIGHT]), step_before())


def _kernel(keys: tuple[str, ...], wanted: tuple[Extremes, ...]) -> Callable[[pa.Table], pa.Table]:
    def run(table: pa.Table) -> pa.Table:
        columns: dict[str, pa.Array] = {}
        for one in wanted:
            values = table[one.value].combine_chunks()
            is_null = values.is_null().to_numpy(zero_copy_only=False)
            found = running_extremes(
                table[KEY].to_numpy(),
                np.where(is_null, -1, table[one.rank].to_numpy()),
                table[STEP].to_numpy(),
                table[WEIGHT].to_numpy(),
            )
            # The positions are those of all rows, whatever the value: the same for each argument.
            at = pa.array(found.at)
            for name, rows in ((one.least, found.least), (one.greatest, found.greatest)):
                if name is not None:
                    columns[name] = values.take(pa.array(rows, mask=rows < 0))
        return pa.table(
            {**{key: table[key].take(at) for key in keys}, STEP: table[STEP].take(at), **columns}
        )

    return run
