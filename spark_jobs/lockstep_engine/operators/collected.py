"""Aggregates that are no sum and no extreme: a median, a list, a mode, a sketch.

Law: the value of a group after step t is Spark's own function of the rows of the group after step t,
in the order of the columns that the function reads. The order matters: with another one a list, a
float's last bit or a sketch could come out in another way, and what is taken back in a later interval
would not be what was given in an earlier one.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from lockstep.sql.plans.nodes import Aggregate
from lockstep_engine.context import Context
from lockstep_engine.deltas import STEP, WEIGHT, columns_of, normalized
from lockstep_engine.operators.accumulators import collected_name
from lockstep_engine.operators.partitions import AT, events_of, in_order, rows_at_positions

__all__ = ["collected_per_step"]


def collected_per_step(
    node: Aggregate,
    delta: DataFrame,
    before: DataFrame | None,
    context: Context,
    stay: bool,
    types: Mapping[str, DataType],
) -> DataFrame:
    """Keys, `_step`, and each call's value after it: a row per key and step in the delta at which the
    group has rows, and one for the step before the first. With `stay` no row is taken back. `types` are
    those of the keys."""
    keys = node.keys
    read = [name for call in node.collected for name in call.references]
    columns = tuple(dict.fromkeys((*keys, *read)))
    changes = delta.select(*columns_of([*columns, WEIGHT, STEP]))
    events = events_of(changes, before, keys, columns, context)
    rows = rows_at_positions(events, keys, columns, context, stay)
    # An aggregate over sorted rows takes one zero, and one NaN, for another (Spark 4.1.3, where
    # ReplaceHashWithSortAgg makes one aggregate of two, and the second has the keys as they were).
    rows = normalized(rows, StructType([StructField(key, types[key]) for key in keys]))
    ordered = in_order(rows, keys, columns_of(columns), context)
    values = [F.expr(call.text).alias(collected_name(call)) for call in node.collected]
    return ordered.groupBy(*columns_of([*keys, AT])).agg(*values).withColumnRenamed(AT, STEP)
