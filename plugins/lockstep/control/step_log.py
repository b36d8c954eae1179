"""What each step read, and under which layout it ran, as rows beside the output that rests on it.

The rows give divisions and layouts back, long after the control store has trimmed its own, or is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any

from lockstep.control.layout.records import FIRST, LayoutRecord, LoggedLayout
from lockstep.control.model import (
    Division,
    Interval,
    OffsetRange,
    SourceSlice,
    TableSlice,
    TopicSlice,
)
from lockstep.ids import LAYOUTS_TABLE, STEPS_TABLE, TABLE_STEPS_TABLE

__all__ = ["STEP_LOG_COLUMNS", "logged_divisions", "logged_layouts", "step_log"]

_STEP = "step bigint, time timestamp, source string"
STEP_LOG_COLUMNS: Mapping[str, str] = MappingProxyType(
    {
        STEPS_TABLE: f"{_STEP}, topic string, topic_id string, "
        "partition int, start_offset bigint, end_offset bigint",
        TABLE_STEPS_TABLE: f"{_STEP}, table string, table_id string, "
        "start_snapshot bigint, end_snapshot bigint",
        LAYOUTS_TABLE: "epoch int, from_step bigint, layout string",
    }
)
"""The columns of the tables, as Spark DDL."""

_Rows = Iterable[Mapping[str, Any]]


def step_log(
    interval: Interval, new_layouts: Iterable[LoggedLayout] = ()
) -> Mapping[str, Sequence[Mapping[str, object]]]:
    """The rows of an interval by table; a table without rows is left out."""
    topics: list[Mapping[str, object]] = []
    tables: list[Mapping[str, object]] = []
    for division in interval.divisions:
        for slice_ in division.slices:
            row = {"step": division.step, "time": division.time, "source": slice_.source}
            match slice_:
                case TopicSlice():
                    row |= {"topic": slice_.topic, "topic_id": slice_.topic_id}
                    topics += [
                        row
                        | {
                            "partition": range_.partition,
                            "start_offset": range_.start,
                            "end_offset": range_.end,
                        }
                        for range_ in slice_.ranges
                    ]
                case TableSlice():
                    row |= {"table": slice_.table, "table_id": slice_.table_id}
                    row |= {"start_snapshot": slice_.start, "end_snapshot": slice_.end}
                    tables.append(row)
    layouts = [
        {"epoch": one.epoch, "from_step": one.from_step, "layout": one.text} for one in new_layouts
    ]
    found: Mapping[str, Sequence[Mapping[str, object]]]
    found = {STEPS_TABLE: topics, TABLE_STEPS_TABLE: tables, LAYOUTS_TABLE: layouts}
    return {table: rows for table, rows in found.items() if rows}


def logged_layouts(rows: _Rows) -> tuple[LayoutRecord, ...]:
    """All layouts up to the last that the rows say, in any order given."""
    logged = (LoggedLayout(row["epoch"], row["from_step"], row["layout"]) for row in rows)
    return (FIRST, *(one.record for one in sorted(logged, key=lambda one: one.epoch)))


def logged_divisions(topics: _Rows, tables: _Rows) -> tuple[Division, ...]:
    """The divisions that the rows of the two tables say, by step, in any order given.

    How many rows a followed table changed in a step is not logged: 0 where it changed, which is no
    bound. A step of a pipeline without sources has no rows, and is not among them.
    """
    times: dict[int, datetime] = {}
    slices: dict[int, list[SourceSlice]] = {}
    ranges: dict[tuple[int, str, str, str], list[OffsetRange]] = {}
    for row in topics:
        times[row["step"]] = row["time"]
        key = (row["step"], row["source"], row["topic"], row["topic_id"])
        offsets = OffsetRange(row["partition"], row["start_offset"], row["end_offset"])
        ranges.setdefault(key, []).append(offsets)
    for (step, source, topic, topic_id), found in ranges.items():
        slices.setdefault(step, []).append(
            TopicSlice(source, topic, topic_id, tuple(sorted(found)))
        )
    for row in tables:
        times[row["step"]] = row["time"]
        ends = (row["start_snapshot"], row["end_snapshot"])
        slices.setdefault(row["step"], []).append(
            TableSlice(row["source"], row["table"], row["table_id"], *ends, 0)
        )
    return tuple(
        Division(step, time, tuple(sorted(slices[step], key=lambda one: one.source)))
        for step, time in sorted(times.items())
    )
