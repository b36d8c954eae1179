"""The stages behind the operators: how far a run advances, when it loops, and what it says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pendulum
import pytest
from airflow_fakes import STEP, T0, FakePipeline

from lockstep.airflow import tasks
from lockstep.errors import LeaseHeld, SourceChanged, WrongUse

NOW = datetime(2013, 1, 2, tzinfo=UTC)
END = datetime(2013, 1, 1, 1, tzinfo=UTC)


def advance(pipeline: FakePipeline, until: datetime | None) -> tuple[tasks.Advanced, list[str]]:
    lines: list[str] = []
    planned = tasks.plan(pipeline, until, lines.append)
    advanced = tasks.run(pipeline, until, planned.behind, lines.append)
    tasks.publish(pipeline, lines.append)
    return advanced, lines


@pytest.mark.parametrize(
    ("params", "end", "until"),
    [
        ({}, END, END),
        ({}, None, NOW - timedelta(hours=1)),
        ({"until": None, "once": False}, END, END),
        ({"once": True}, END, None),
        ({"until": "2013-01-01T00:30:00Z"}, END, T0 + timedelta(minutes=30)),
        ({"until": "2013-01-01T00:30:00"}, None, T0 + timedelta(minutes=30)),
        ({"until": "2013-01-01T01:30:00+01:00"}, None, T0 + timedelta(minutes=30)),
    ],
)
def test_what_a_person_asks_for_wins_over_the_data_interval_over_the_moment(
    params: dict[str, object], end: datetime | None, until: datetime | None
) -> None:
    assert tasks.until_of(params, end, NOW - timedelta(hours=1), NOW) == until


def test_times_of_airflow_s_kind_become_plain_ones() -> None:
    until = tasks.until_of({}, pendulum.datetime(2013, 1, 1, 1, tz="Europe/Paris"), NOW, NOW)
    assert (type(until), until) == (datetime, T0)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"until": "2014-01-01T00:00:00Z"}, "lies in the future"),
        ({"until": "tomorrow"}, "the parameter `until` cannot be read"),
        ({"until": "2013-01-01T00:00:00Z", "once": True}, "both parameters"),
    ],
)
def test_parameters_that_cannot_be_followed_are_refused(
    params: dict[str, object], message: str
) -> None:
    with pytest.raises(WrongUse, match=message):
        tasks.until_of(params, END, NOW, NOW)


def test_one_interval_is_one_plan_one_run_one_publish() -> None:
    pipeline = FakePipeline()
    advanced, lines = advance(pipeline, T0 + 6 * STEP)
    assert pipeline.calls == ["plan", "run", "publish"]
    assert (advanced.first_step, advanced.last_step, advanced.version) == (0, 5, 1)
    assert "steps 0..5: 600 records in, 7 changes out, 1 interval, version 1" in lines
    assert "counts: at step 5, 7 rows published in 0.2 s" in lines


def test_bad_records_and_changes_are_named_per_interval() -> None:
    _, lines = advance(FakePipeline(), T0 + STEP)
    assert (
        "step 0: 100 records in, changes out: counts 7; 1 bad in orders_errors; version 1, 0.5 s"
        in lines
    )


def test_a_backlog_is_many_intervals_of_one_run() -> None:
    pipeline = FakePipeline(width=6)
    advanced, _ = advance(pipeline, T0 + 20 * STEP)
    assert (advanced.intervals, advanced.first_step, advanced.last_step) == (4, 0, 19)
    assert (advanced.records, advanced.changes) == (2000, {"counts": 28})
    assert pipeline.published == 19


def test_an_interval_that_nobody_finished_comes_first_and_the_run_goes_on_to_its_time() -> None:
    pipeline = FakePipeline()
    pipeline.plan(T0 + 2 * STEP, lambda _: None)
    advanced, _ = advance(pipeline, T0 + 5 * STEP)
    assert (advanced.intervals, advanced.first_step, advanced.last_step) == (2, 0, 4)


def test_a_run_task_that_lost_what_plan_said_asks_again() -> None:
    pipeline = FakePipeline(width=3)
    advanced = tasks.run(pipeline, T0 + 6 * STEP, True, lambda _: None)
    assert (advanced.intervals, advanced.last_step) == (2, 5)


def test_a_backfill_of_what_is_recorded_says_so_and_does_nothing() -> None:
    pipeline = FakePipeline()
    advance(pipeline, T0 + 6 * STEP)
    advanced, lines = advance(pipeline, T0 + 3 * STEP)
    assert "recorded already: steps 0..5, version 1; nothing to do" in lines
    assert advanced.intervals == 0
    assert advanced.summary == "nothing to run"
    assert pipeline.version.number == 1


def test_once_takes_what_is_there_and_ends() -> None:
    pipeline = FakePipeline(width=100)
    advanced, lines = advance(pipeline, None)
    assert advanced.last_step == 59
    assert lines[0] == "pipeline shop: advance to all that is there now"


def test_a_held_lease_is_waited_for_in_plain_words() -> None:
    held = LeaseHeld("pipeline shop: another run is at work", found="held by host-a")
    pipeline = FakePipeline(fails={"plan": [held, held], "publish": [held]})
    _, lines = advance(pipeline, T0 + STEP)
    assert pipeline.calls == ["plan", "plan", "plan", "run", "publish", "publish"]
    waits = [line for line in lines if line.startswith("still waiting: pipeline shop: another run")]
    assert len(waits) == 3
    assert "held by host-a" in waits[0]


def test_every_other_error_goes_up() -> None:
    gone = SourceChanged("topic orders is gone")
    with pytest.raises(SourceChanged):
        advance(FakePipeline(fails={"plan": [gone]}), T0 + STEP)


def test_maintenance_counts_by_kind() -> None:
    lines: list[str] = []
    tasks.maintain(FakePipeline(), lines.append)
    assert lines == ["branches dropped: 2"]
