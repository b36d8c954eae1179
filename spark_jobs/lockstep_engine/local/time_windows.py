"""The windows of rows that this process has, where a time is in one: as `operators.linear` has them."""

from __future__ import annotations

from math import gcd

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from lockstep.sql.plans.nodes import TimeWindow
from lockstep.sql.reading.intervals import interval_microseconds
from lockstep_engine.deltas import STEP, WEIGHT
from lockstep_engine.kernels.groups import Integers
from lockstep_engine.local.changes import consolidated
from lockstep_engine.local.functions import near_microseconds
from lockstep_engine.local.rows import Rows
from lockstep_engine.local.values import NOT_HERE, Unlike, are_exact

__all__ = ["in_windows", "netted_by_pane"]


def in_windows(rows: Rows, node: TimeWindow, most_rows: int) -> Rows | None:
    """The rows with each window that they are in; a null is in none. None where Spark is to make them,
    or they would be more."""
    size, slide = (interval_microseconds(text) for text in (node.size, node.slide))
    kind, times = rows.schema[node.timestamp].dataType, _times(rows, node)
    if times is None or len(times) * -(-size // slide) > most_rows:
        return None
    there = rows.having(node.timestamp)
    last = times - np.mod(times, slide)
    starts = (last[:, None] - np.arange(0, size, slide)).ravel()
    if size > slide:
        of_row = np.repeat(np.arange(len(times)), len(starts) // max(1, len(times)))
        # The first of a row's windows may have ended before its time.
        is_in = times[of_row] < starts + size
        starts, of_row = starts[is_in], of_row[is_in]
        there = Rows(there.table.take(pa.array(of_row)), there.schema)
    window = StructType([StructField(name, kind) for name in ("start", "end")])
    added = StructField(node.name, window, nullable=False)
    [shape] = to_arrow_schema(StructType([added]))
    bounds = [pa.array(one).cast(shape.type[0].type) for one in (starts, starts + size)]
    made = pa.StructArray.from_arrays(bounds, fields=list(shape.type))
    rows, place = there.select([*node.input.columns, WEIGHT, STEP]), len(node.input.columns)
    fields = rows.schema.fields
    schema = StructType([*fields[:place], added, *fields[place:]])
    return Rows(rows.table.add_column(place, shape, pa.chunked_array([made])), schema)


def netted_by_pane(rows: Rows, node: TimeWindow) -> Rows:
    """One row for all that differ only in the time, and are in the same windows by it, also if these
    are few: there is no exchange here. The rows as they are where it is not known which are equal. What
    reads them must not read the time."""
    size, slide = (interval_microseconds(text) for text in (node.size, node.slide))
    name, columns = node.timestamp, node.input.columns
    times = _times(rows, node)
    if times is None or not are_exact([rows.schema[column].dataType for column in columns]):
        return rows
    there = rows.having(name)
    # Every window begins and ends at a multiple of it.
    panes = pa.array(times - np.mod(times, gcd(size, slide)))
    field = there.table.schema.field(name)
    place = there.table.column_names.index(name)
    table = there.table.set_column(place, field, panes.cast(field.type))
    try:
        return consolidated(Rows(table, there.schema), columns)
    except NOT_HERE:
        return rows


def _times(rows: Rows, node: TimeWindow) -> Integers | None:
    """Microseconds since the epoch, of those that are there; None where windows could begin or end where
    no timestamp is, or it is none."""
    try:
        return near_microseconds(rows.table[node.timestamp], rows.schema[node.timestamp].dataType)
    except Unlike:
        return None
