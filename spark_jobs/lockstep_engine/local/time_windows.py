"""The windows of rows that this process has, where a time is in one: as `operators.linear` has them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from lockstep.sql.plans.nodes import TimeWindow
from lockstep.sql.reading.intervals import interval_microseconds
from lockstep_engine.deltas import STEP, WEIGHT
from lockstep_engine.local.functions import microseconds
from lockstep_engine.local.rows import Rows
from lockstep_engine.local.values import Unlike

__all__ = ["in_windows"]

_FAR = 1 << 62
"""Microseconds: a window that far away may begin, or end, where no timestamp is."""


def in_windows(rows: Rows, node: TimeWindow) -> Rows | None:
    """The rows with their windows; a null is in none. None where Spark is to make them."""
    size, slide = (interval_microseconds(text) for text in (node.size, node.slide))
    kind = rows.schema[node.timestamp].dataType
    there = rows.where(rows.table[node.timestamp].is_valid())
    try:
        since = microseconds(there.table[node.timestamp], kind).to_numpy()
    except Unlike:
        return None
    if size != slide or since.min(initial=0) < -_FAR or since.max(initial=0) > _FAR:
        return None
    starts = since - np.mod(since, size)
    window = StructType([StructField(name, kind) for name in ("start", "end")])
    added = StructField(node.name, window, nullable=False)
    [shape] = to_arrow_schema(StructType([added]))
    bounds = [pa.array(one).cast(shape.type[0].type) for one in (starts, starts + size)]
    made = pa.StructArray.from_arrays(bounds, fields=list(shape.type))
    rows, place = there.select([*node.input.columns, WEIGHT, STEP]), len(node.input.columns)
    fields = rows.schema.fields
    schema = StructType([*fields[:place], added, *fields[place:]])
    return Rows(rows.table.add_column(place, shape, pa.chunked_array([made])), schema)
