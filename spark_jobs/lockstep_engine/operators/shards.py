"""Shards: a frame cut by the hash of its keys, for kernels that see whole numbers only.

All rows of a key are in one shard, and a kernel is started once a shard, not once a key: that would
cost thirty times as much. Each shard is a Spark partition of its own, at the worker that owns the key by
the layout. Keys and values of any type that Spark can order become dense ranks, in Spark's own order,
so that null, NaN, decimals and structs mean here what they mean in SQL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from lockstep_engine.context import Context
from lockstep_engine.deltas import columns_of, quoted

__all__ = ["KEY", "SHARD", "in_shards"]

ROWS_PER_SHARD = 250_000
"""About as many rows of the delta go to a kernel at once: some tens of megabytes."""

SHARD, KEY = "_shard", "_key"

_HASH_BITS = 64


def in_shards(
    rows: DataFrame, keys: Sequence[str], context: Context, ranks: Mapping[str, str] | None = None
) -> DataFrame:
    """The rows with `_shard int` and `_key bigint`, one number a key within its shard.

    `ranks` maps further columns, `bigint`, to the column by which they number the rows of a shard:
    in the order of keys and, within a key, of that column.
    """
    by = columns_of(keys)
    workers = context.placement.workers
    cuts = max(1, -(-context.records // (ROWS_PER_SHARD * workers)))
    shard = _owner(by, context) * cuts + _cut(by, cuts)
    # By its number, not by the number's hash: that would put two shards into one partition, and none
    # into another. What follows by `_shard` needs no exchange any more.
    ranked = rows.withColumn(SHARD, shard).repartitionById(workers * cuts, F.col(SHARD))
    window = Window.partitionBy(SHARD)
    for rank, value in (ranks or {}).items():
        order = window.orderBy(*by, quoted(value))
        ranked = ranked.withColumn(rank, F.dense_rank().over(order).cast("bigint"))
    # Last, as rows that are sorted by more than the keys need not be sorted again.
    key = F.dense_rank().over(window.orderBy(*by)) if by else F.lit(0)
    return ranked.withColumn(KEY, key.cast("bigint"))


def _owner(keys: Sequence[Column], context: Context) -> Column:
    """The worker of a key: the owner of the shard that the most significant bits of its hash name."""
    owners = context.placement.owners
    bits = len(owners).bit_length() - 1
    if not keys or not bits:
        return F.lit(owners[0])
    shard = F.shiftrightunsigned(F.xxhash64(*keys), _HASH_BITS - bits).cast("int")
    return F.element_at(F.array(*map(F.lit, owners)), shard + 1)


def _cut(keys: Sequence[Column], cuts: int) -> Column:
    """Which part of its worker's keys, by the least significant bits: the others say the worker."""
    return F.pmod(F.xxhash64(*keys), F.lit(cuts)).cast("int") if keys and cuts > 1 else F.lit(0)
