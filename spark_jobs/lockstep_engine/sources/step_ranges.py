"""Which step a record belongs to: the division, as a column.

The law: a record (partition, offset) gets the one step whose range holds it, and a record that no
range holds does not pass. The division is the only thing that decides; timestamps do not.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lockstep.sql.circuit import SMALL_RECORDS
from lockstep_engine.sources.offsets import StepRange, records_of
from lockstep_engine.told import types_of_columns

__all__ = ["block_bits", "blocked_rows", "step_text", "with_step"]

FEW_RANGES = 64
"""Up to so many ranges the step of many records is an expression, beyond it a broadcast join."""

MINIMUM_BLOCK_BITS = 12
MAXIMUM_BLOCKS = 16_384


def with_step(
    spark: SparkSession,
    records: DataFrame,
    ranges: Sequence[StepRange],
    partition: str,
    offset: str,
    step: str,
    most_joined: int = SMALL_RECORDS,
) -> DataFrame:
    """`records` and its step in a new bigint column `step`; rows outside all ranges are dropped.

    `partition` and `offset` name columns of `records`, which holds the ranges' partitions only. Ranges
    are joined by broadcast on blocks of offsets, as a plain range join is five times slower and a
    long CASE ten times. A nested expression over few ranges is faster still, but has the offsets in
    its generated code: it pays where there are more than `most_joined` records to compile it for.
    """
    steps = {range_.step for range_ in ranges}
    if len(steps) == 1:
        return records.selectExpr("*", f"{steps.pop()}L AS {step}")
    if len(ranges) <= FEW_RANGES and records_of(ranges) > most_joined:
        return records.selectExpr("*", f"{step_text(ranges, partition, offset)} AS {step}")
    bits = block_bits(ranges)
    declared = f"_b_partition int, _b_block bigint, _b_start bigint, _b_end bigint, {step} bigint"
    blocks = spark.createDataFrame(blocked_rows(ranges, bits), types_of_columns(spark, declared))
    same_block = F.expr(
        f"{partition} = _b_partition AND shiftright({offset}, {bits}) = _b_block "
        f"AND {offset} >= _b_start AND {offset} < _b_end"
    )
    return records.join(F.broadcast(blocks), same_block).drop(
        "_b_partition", "_b_block", "_b_start", "_b_end"
    )


def step_text(ranges: Sequence[StepRange], partition: str, offset: str) -> str:
    """The step as SQL text: the partition decides first, then a binary search in its ranges."""
    by_partition: dict[int, list[StepRange]] = {}
    for range_ in sorted(ranges):
        by_partition.setdefault(range_.partition, []).append(range_)
    branches = [
        f"WHEN {number} THEN {_search(found, offset)}" for number, found in by_partition.items()
    ]
    return f"CASE {partition} {' '.join(branches)} END"


def _search(ranges: Sequence[StepRange], offset: str) -> str:
    if len(ranges) == 1:
        return f"{ranges[0].step}L"
    middle = len(ranges) // 2
    left, right = _search(ranges[:middle], offset), _search(ranges[middle:], offset)
    return f"IF({offset} < {ranges[middle].start}L, {left}, {right})"


def block_bits(ranges: Sequence[StepRange]) -> int:
    """How many low bits of an offset a block spans, so that there are not too many blocks."""
    bits = MINIMUM_BLOCK_BITS
    offsets = records_of(ranges)
    while offsets >> bits > MAXIMUM_BLOCKS:
        bits += 1
    return bits


def blocked_rows(ranges: Sequence[StepRange], bits: int) -> list[tuple[int, int, int, int, int]]:
    """Each range once for every block that it touches: partition, block, start, end, step."""
    return [
        (r.partition, block, r.start, r.end, r.step)
        for r in ranges
        for block in range(r.start >> bits, ((r.end - 1) >> bits) + 1)
    ]
