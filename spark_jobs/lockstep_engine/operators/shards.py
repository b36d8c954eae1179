"""Shards: a frame cut by the hash of its keys, for kernels that see whole numbers only.

All rows of a key are in one shard, and a kernel is started once a shard, not once a key: that would
cost thirty times as much. Keys and values of any type that Spark can order become dense ranks, in
Spark's own order, so that null, NaN, decimals and structs mean here what they mean in SQL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from lockstep_engine.context import Context
from lockstep_engine.deltas import columns_of, quoted

__all__ = ["KEY", "SHARD", "in_shards"]

ROWS_PER_SHARD = 250_000
"""About as many rows of the delta go to a kernel at once: some tens of megabytes."""

SHARD, KEY = "_shard", "_key"


def in_shards(
    rows: DataFrame, keys: Sequence[str], context: Context, ranks: Mapping[str, str] | None = None
) -> DataFrame:
    """The rows with `_shard int` and `_key bigint`, one number a key within its shard.

    `ranks` maps further columns, `bigint`, to the column by which they number the rows of a shard:
    in the order of keys and, within a key, of that column.
    """
    by = columns_of(keys)
    count = max(context.partitions, context.records // ROWS_PER_SHARD)
    shard = F.pmod(F.hash(*by), F.lit(count)) if by else F.lit(0)
    ranked = rows.withColumn(SHARD, shard)
    window = Window.partitionBy(SHARD)
    for rank, value in (ranks or {}).items():
        order = window.orderBy(*by, quoted(value))
        ranked = ranked.withColumn(rank, F.dense_rank().over(order).cast("bigint"))
    # Last, as rows that are sorted by more than the keys need not be sorted again.
    key = F.dense_rank().over(window.orderBy(*by)) if by else F.lit(0)
    return ranked.withColumn(KEY, key.cast("bigint"))
