"""What each step read, as rows beside the output that rests on it: topics in one table, followed tables
in another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from lockstep.control.model import Interval, TableSlice, TopicSlice
from lockstep.ids import STEPS_TABLE, TABLE_STEPS_TABLE

__all__ = ["STEP_LOG_COLUMNS", "step_log"]

_STEP = "step bigint, time timestamp, source string"
STEP_LOG_COLUMNS: Mapping[str, str] = MappingProxyType(
    {
        STEPS_TABLE: f"{_STEP}, topic string, topic_id string, "
        "partition int, start_offset bigint, end_offset bigint",
        TABLE_STEPS_TABLE: f"{_STEP}, table string, table_id string, "
        "start_snapshot bigint, end_snapshot bigint",
    }
)
"""The columns of the tables, as Spark DDL."""


def step_log(interval: Interval) -> Mapping[str, Sequence[Mapping[str, object]]]:
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
    found = {STEPS_TABLE: topics, TABLE_STEPS_TABLE: tables}
    return {table: rows for table, rows in found.items() if rows}
