"""Data intervals of a fixed length, cut at UTC multiples of that length.

Airflow's `DeltaDataIntervalTimetable` cuts a backfill at its own start, a run by hand at the moment
of the click, and keeps the phase of an older schedule. Here the end of every data interval is a
multiple of the length, however the run came about, so that it is a step boundary too.
"""

from __future__ import annotations

from typing import Any

import pendulum
from airflow.timetables.base import DagRunInfo, DataInterval, TimeRestriction, Timetable
from pendulum import DateTime

__all__ = ["AlignedIntervalTimetable"]


class AlignedIntervalTimetable(Timetable):
    """Intervals [k x length, (k + 1) x length) since 1970-01-01 UTC; `seconds` is the length."""

    def __init__(self, seconds: int) -> None:
        if seconds < 1:
            raise ValueError(f"an interval of {seconds} seconds is none; it has at least one")
        self.seconds = seconds
        self.description = f"Every {self.summary}, at UTC multiples of it"

    @property
    def summary(self) -> str:
        """The length in the largest unit that divides it, for the DAG list."""
        for unit, seconds in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
            if self.seconds % seconds == 0:
                return _count(self.seconds // seconds, unit)
        return _count(self.seconds, "second")

    def serialize(self) -> dict[str, Any]:
        return {"seconds": self.seconds}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> Timetable:
        return cls(data["seconds"])

    def infer_manual_data_interval(self, *, run_after: DateTime) -> DataInterval:
        """The last interval that is complete at `run_after`."""
        return self._ending_at(self._floor(run_after))

    def next_dagrun_info(
        self, *, last_automated_data_interval: DataInterval | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        """The interval after the last one; without catchup at least the last complete one."""
        starts = []
        if last_automated_data_interval is not None:
            starts.append(self._ceiling(last_automated_data_interval.end))
        if restriction.earliest is not None:
            starts.append(self._ceiling(restriction.earliest))
        if not restriction.catchup:
            starts.append(self._ending_at(self._floor(pendulum.now("UTC"))).start)
        if not starts:
            return None
        start = max(starts)
        if restriction.latest is not None and start > restriction.latest:
            return None
        return DagRunInfo.interval(start=start, end=start.add(seconds=self.seconds))

    def _ending_at(self, end: DateTime) -> DataInterval:
        return DataInterval(start=end.subtract(seconds=self.seconds), end=end)

    def _floor(self, time: DateTime) -> DateTime:
        return pendulum.from_timestamp(time.timestamp() // self.seconds * self.seconds)

    def _ceiling(self, time: DateTime) -> DateTime:
        return pendulum.from_timestamp(-(-time.timestamp() // self.seconds) * self.seconds)


def _count(number: int, unit: str) -> str:
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"
