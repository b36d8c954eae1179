"""Data intervals: their ends are UTC multiples of their length, however a run came about."""

from __future__ import annotations

import pendulum
import pytest
from airflow.timetables.base import DataInterval, TimeRestriction
from hypothesis import given
from hypothesis import strategies as st
from pendulum import DateTime

from lockstep.airflow.schedule import timetable
from lockstep.airflow.timetable import AlignedIntervalTimetable
from lockstep.errors import WrongUse

LONG_AGO = pendulum.datetime(2000, 1, 1)
TIMES = st.floats(min_value=0, max_value=4e9).map(pendulum.from_timestamp)
LENGTHS = st.integers(min_value=1, max_value=100_000)


def is_cut(time: DateTime, seconds: int) -> bool:
    return time.timestamp() % seconds == 0


@pytest.mark.parametrize(
    ("text", "seconds", "summary"),
    [
        ("30 seconds", 30, "30 seconds"),
        ("1 minute", 60, "1 minute"),
        ("30s", 30, "30 seconds"),
        ("60", 60, "1 minute"),
        ("90 Seconds", 90, "90 seconds"),
        ("2 hours", 7200, "2 hours"),
        (" 1 day ", 86400, "1 day"),
    ],
)
def test_lengths_as_people_write_them(text: str, seconds: int, summary: str) -> None:
    found = timetable({"lockstep.interval": text})
    assert isinstance(found, AlignedIntervalTimetable)
    assert (found.seconds, found.summary) == (seconds, summary)


def test_cron_has_data_intervals_and_wins() -> None:
    by_cron = timetable({"lockstep.cron": "*/5 * * * *", "lockstep.interval": "1 hour"})
    assert type(by_cron).__name__ == "CronDataIntervalTimetable"


def test_a_cron_expression_that_is_none_is_refused() -> None:
    with pytest.raises(WrongUse, match=r"lockstep\.cron is no cron expression") as refused:
        timetable({"lockstep.cron": "now and then"})
    assert "now and then" in refused.value.found


@given(LENGTHS, TIMES)
def test_a_run_by_hand_has_the_last_complete_interval(seconds: int, moment: DateTime) -> None:
    interval = AlignedIntervalTimetable(seconds).infer_manual_data_interval(run_after=moment)
    assert is_cut(interval.end, seconds)
    assert (interval.end - interval.start).total_seconds() == seconds
    assert interval.end <= moment < interval.end.add(seconds=seconds)


@given(LENGTHS, TIMES, TIMES)
def test_after_a_run_comes_an_aligned_interval_without_overlap(
    seconds: int, start: DateTime, end: DateTime
) -> None:
    """Also where the last run had another schedule, and ended anywhere."""
    last = DataInterval(min(start, end), max(start, end))
    info = AlignedIntervalTimetable(seconds).next_dagrun_info(
        last_automated_data_interval=last, restriction=TimeRestriction(LONG_AGO, None, True)
    )
    assert info is not None
    assert info.data_interval is not None
    assert is_cut(info.data_interval.start, seconds)
    assert info.data_interval.start >= last.end
    assert info.run_after == info.data_interval.end


def test_without_catchup_the_first_run_is_the_last_complete_interval() -> None:
    before = pendulum.now("UTC")
    info = AlignedIntervalTimetable(3600).next_dagrun_info(
        last_automated_data_interval=None, restriction=TimeRestriction(LONG_AGO, None, False)
    )
    assert info is not None
    assert info.data_interval is not None
    assert info.data_interval.end in {
        pendulum.from_timestamp(t.timestamp() // 3600 * 3600) for t in (before, pendulum.now("UTC"))
    }


def test_a_backfill_takes_the_whole_intervals_of_its_range() -> None:
    start, end = pendulum.datetime(2013, 1, 1, 0, 0, 7), pendulum.datetime(2013, 1, 1, 0, 2)
    every_minute, ends = AlignedIntervalTimetable(60), []
    last = None
    while info := every_minute.next_dagrun_info(
        last_automated_data_interval=last, restriction=TimeRestriction(start, end, True)
    ):
        last = info.data_interval
        ends.append(info.run_after.to_time_string())
    assert ends == ["00:02:00", "00:03:00"]


def test_a_timetable_survives_the_database() -> None:
    stored = AlignedIntervalTimetable(90).serialize()
    back = AlignedIntervalTimetable.deserialize(stored)
    assert isinstance(back, AlignedIntervalTimetable)
    assert back.seconds == 90


def test_no_length_is_no_timetable() -> None:
    with pytest.raises(ValueError, match="at least one"):
        AlignedIntervalTimetable(0)
