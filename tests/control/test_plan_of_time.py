"""Steps without records: time goes on, and a project that reads it has steps for that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from control_builders import FILES, SINKS, at, attempt, deploy, store_url

from lockstep.adapters.sql_store import SqlStore
from lockstep.control import interval as stages
from lockstep.control import limits
from lockstep.control.changes import (
    BeginAttempt,
    ChangeLayout,
    CommitVersion,
    Deploy,
    Landed,
    SetDesired,
)
from lockstep.control.job import IntervalJob, IntervalResult
from lockstep.control.layout.layouts import Join
from lockstep.control.model import OffsetRange, RunState, RunStatus, TopicSlice, Version
from lockstep.control.planning import plan as plan_interval
from lockstep.control.ports import PartitionBounds, Progress, TopicBounds
from lockstep.control.reports import Planned
from lockstep.control.steps import StepLimits
from lockstep.errors import AttemptLost

PIPELINE = "p"


class OneTopic:
    """A topic of one partition, whose records all came before time 0."""

    start_at_latest = frozenset[str]()
    records = 3
    waiting: tuple[str, ...] = ()

    def bounds(self, _: str) -> TopicBounds:
        partitions = (PartitionBounds(0, 0, self.records),)
        return TopicBounds("t", "id1", partitions, self.waiting)

    def offsets_at(self, _: str, times: Sequence[datetime]) -> tuple[Mapping[int, int | None], ...]:
        return tuple({0: None} for _ in times)


class Asked(Exception):
    """The engine was asked to run this job."""

    def __init__(self, job: IntervalJob) -> None:
        self.job = job


class AskedEngine:
    def session(self, recorded: str) -> str:
        return recorded

    def run(self, job: IntervalJob, _: Progress) -> IntervalResult:
        raise Asked(job)


class StandingClock:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def now(self) -> datetime:
        return at(self.seconds)


Open = Callable[[bool, float], stages.Parts]


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    """A deployed pipeline whose first interval, at time 1, took all records."""

    def opened(reads_time: bool, seconds: float) -> stages.Parts:
        nothing: Any = None
        store = SqlStore(store_url(tmp_path))
        parts = stages.Parts(
            pipeline=PIPELINE,
            store=store,
            sources=OneTopic(),
            state=nothing,
            files=nothing,
            engine=AskedEngine(),  # type: ignore[arg-type]
            clock=StandingClock(1),  # type: ignore[arg-type]
            limits=StepLimits(step_seconds=10.0, interval_seconds=60.0),
            retain_versions=2,
            source_names=("s",),
            outboxes={},
            variables={},
            catalog=nothing,
            new_id=lambda: "b",
            reads_time=reads_time,
        )
        assert isinstance(store.apply(PIPELINE, deploy()), Landed)
        planned = plan_interval(parts, None, lambda _: None)
        assert planned.interval is not None
        assert planned.interval.records == OneTopic.records
        store.apply(PIPELINE, BeginAttempt(attempt("a", 0, 0)))
        landed = store.apply(PIPELINE, CommitVersion(Version(1, "a", 0, 0, {}), ""))
        assert isinstance(landed, Landed), landed
        assert isinstance(parts.clock, StandingClock)
        parts.clock.seconds = seconds
        return parts

    return opened


def plan(parts: stages.Parts, until: datetime | None) -> list[tuple[int, datetime, int]]:
    """Step, time and records of what is planned."""
    interval = plan_interval(parts, until, lambda _: None).interval
    return [(d.step, d.time, d.records) for d in interval.divisions] if interval else []


def test_all_there_is_now_is_a_step_where_time_is_read(opened: Open) -> None:
    parts = opened(True, 95)
    assert plan(parts, None) == [(1, at(95), 0)]


def test_all_there_is_now_is_no_step_where_only_records_count(opened: Open) -> None:
    assert plan(opened(False, 95), None) == []


@pytest.mark.parametrize(("workers", "records"), [(2, 20), (3, 60)])
def test_an_interval_has_as_many_rows_as_its_workers_are_for(
    opened: Open, monkeypatch: pytest.MonkeyPatch, workers: int, records: int
) -> None:
    monkeypatch.setattr(limits, "_ROWS_OF_FEW", 20)
    parts = opened(False, 95)
    parts = replace(parts, limits=StepLimits(rows_per_step=10))
    joins = Join({number: f"host-{number}" for number in range(workers)})
    assert isinstance(parts.store.apply(PIPELINE, ChangeLayout(0, (joins,))), Landed)
    monkeypatch.setattr(OneTopic, "records", OneTopic.records + 60)
    planned = plan_interval(parts, None, lambda _: None)
    assert planned.interval is not None
    assert (planned.interval.records, planned.behind) == (records, records < 60)


@pytest.mark.parametrize("reads_time", [False, True])
def test_up_to_a_time_every_boundary_is_a_step(opened: Open, reads_time: bool) -> None:
    parts = opened(reads_time, 95)
    assert plan(parts, at(35)) == [(1, at(10), 0), (2, at(20), 0), (3, at(30), 0)]


def test_an_interval_is_told_the_time_of_the_step_before_it(opened: Open) -> None:
    parts = opened(True, 95)
    plan(parts, at(35))
    with pytest.raises(Asked) as asked:
        stages.run(parts, lambda _: None)
    assert asked.value.job.time_before == at(1)
    assert asked.value.job.interval.divisions[0].time == at(10)


def test_planned_twice_it_is_what_was_recorded(opened: Open) -> None:
    parts = opened(True, 95)
    first = plan(parts, None)
    assert isinstance(parts.clock, StandingClock)
    parts.clock.seconds = 200
    assert plan(parts, None) == first


@pytest.mark.parametrize("reads_time", [False, True])
def test_what_a_partition_waits_for_is_told(opened: Open, reads_time: bool) -> None:
    """Where that is all there is to say, too: it is then that somebody asks why nothing comes."""
    parts = opened(reads_time, 95)
    assert isinstance(parts.sources, OneTopic)
    parts.sources.waiting = ("partition 0 of topic t waits for an open transaction",)
    lines: list[str] = []
    assert (plan_interval(parts, None, lines.append).interval is not None) is reads_time
    assert lines[0] == "source s: partition 0 of topic t waits for an open transaction"


def test_a_paused_pipeline_ends_what_is_recorded_and_plans_no_more(opened: Open) -> None:
    parts = opened(True, 95)
    parts.store.apply(PIPELINE, SetDesired(RunState.PAUSE))
    said: list[str] = []
    assert plan_interval(parts, at(95), said.append).interval is None
    assert said == ["pipeline p is paused before step 1; lockstep resume p"]
    parts.store.apply(PIPELINE, SetDesired(RunState.RUN))
    recorded = plan_interval(parts, at(95), said.append).interval
    parts.store.apply(PIPELINE, SetDesired(RunState.PAUSE))
    assert plan_interval(parts, at(95), said.append).interval == recorded


def test_a_pipeline_that_is_to_stop_divides_the_steps_before_and_no_other(opened: Open) -> None:
    parts = opened(True, 95)
    parts.store.apply(PIPELINE, SetDesired(RunState.STOP, 3))
    planned = plan_interval(parts, at(95), lambda _: None)
    assert planned.interval is not None
    assert [division.step for division in planned.interval.divisions] == [1, 2]
    assert planned.behind
    parts.store.apply(PIPELINE, BeginAttempt(attempt("c", 1, 2, "a")))
    assert parts.store.read(PIPELINE).status is RunStatus.STOP
    parts.store.apply(PIPELINE, CommitVersion(Version(2, "c", 2, 0, {}), "a"))
    assert parts.store.read(PIPELINE).status is RunStatus.STOPPED
    assert plan_interval(parts, at(95), lambda _: None).interval is None


def test_what_was_divided_before_a_stop_was_asked_for_is_not_recorded(opened: Open) -> None:
    parts = opened(True, 95)

    def stop(point: stages.Point) -> None:
        assert point is stages.Point.PLAN_LOOKED_UP
        assert isinstance(parts.store.apply(PIPELINE, SetDesired(RunState.STOP)), Landed)

    said: list[str] = []
    planned = plan_interval(replace(parts, reached=stop), at(95), said.append)
    assert planned == Planned(None, behind=False)
    assert parts.store.read(PIPELINE).status is RunStatus.STOPPED
    assert said == [
        "a stop was asked for meanwhile: what is to be planned is looked at again",
        "pipeline p is stopped before step 1; lockstep resume p",
    ]


def test_a_stop_that_is_asked_for_meanwhile_cuts_what_is_divided(opened: Open) -> None:
    parts = opened(True, 95)
    reached: list[stages.Point] = []

    def stop(point: stages.Point) -> None:
        reached.append(point)
        if len(reached) == 1:
            assert isinstance(parts.store.apply(PIPELINE, SetDesired(RunState.STOP, 3)), Landed)

    planned = plan_interval(replace(parts, reached=stop), at(95), lambda _: None)
    assert planned.interval is not None
    assert (planned.interval.first_step, planned.interval.last_step) == (1, 2)
    looked_up, recorded = stages.Point.PLAN_LOOKED_UP, stages.Point.PLAN_RECORDED
    assert reached == [looked_up, looked_up, recorded]


def test_what_somebody_else_has_recorded_meanwhile_ends_a_plan(opened: Open) -> None:
    """The stop is not to blame: it was there before."""
    parts = opened(True, 95)
    parts.store.apply(PIPELINE, SetDesired(RunState.STOP, 3))

    def overtake(_: stages.Point) -> None:
        assert plan_interval(parts, at(15), lambda _: None).interval is not None

    with pytest.raises(AttemptLost, match="are pending with a division of their own"):
        plan_interval(replace(parts, reached=overtake), at(95), lambda _: None)


def test_other_queries_are_a_step_without_input(opened: Open) -> None:
    parts = opened(False, 95)
    change = Deploy(FILES, "i1", SINKS, rebuilds=True)
    parts.store.apply(PIPELINE, change)
    planned = plan_interval(parts, at(95), lambda _: None)
    assert planned.behind
    assert planned.interval is not None
    [division] = planned.interval.divisions
    assert (division.step, division.time, division.records) == (1, at(1), 0)
    assert division.slices == (TopicSlice("s", "t", "id1", (OffsetRange(0, 3, 3),)),)
    with pytest.raises(Asked) as asked:
        stages.run(parts, lambda _: None)
    rebuilding = asked.value.job.rebuilding
    assert rebuilding is not None
    assert rebuilding.files == FILES
    [past] = rebuilding.history.divisions
    assert past.slices == (TopicSlice("s", "t", "id1", (OffsetRange(0, 0, 3),)),)
