"""Tasks of a log, scheduled anew on other numbers of cores."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scaling_model import Recorded, Stage, makespan, recorded

START = 1_000_000


def alone(*tasks: float) -> Stage:
    return Stage((), 0.0, tasks)


@pytest.mark.parametrize(("cores", "seconds"), [(1, 14), (2, 7), (3, 5), (4, 5), (16, 5)])
def test_the_longest_tasks_go_first(cores: int, seconds: float) -> None:
    assert makespan([alone(2, 3, 4, 5)], cores) == seconds


def test_a_stage_waits_for_those_before_it_and_for_the_driver() -> None:
    stages = [alone(2, 2), alone(1), Stage((0, 1), 0.5, (4, 4)), Stage((1,), 0.0, (1,))]
    # On one core the other follower runs while the driver takes its half second.
    assert makespan(stages, 1) == 5 + 1 + 8
    assert makespan(stages, 4) == 2 + 0.5 + 4


def test_the_stage_submitted_first_gets_the_cores() -> None:
    assert makespan([alone(1, 1), alone(9), Stage((0,), 0.0, (3,))], 1) == 14
    # The long task of the second stage waits for the first stage, whose follower then waits for it.
    assert makespan([alone(4, 4), alone(5), Stage((0,), 0.0, (3,))], 2) == 9


def test_nothing_takes_no_time() -> None:
    assert makespan([], 4) == 0
    assert Recorded(2.0, (), 2.0).on(4) == 2.0


_SECONDS = st.integers(1, 1000).map(lambda milliseconds: milliseconds / 1000)


@st.composite
def _chained(draw: st.DrawFn) -> Sequence[Stage]:
    stages: list[Stage] = []
    for place in range(draw(st.integers(1, 6))):
        after = draw(st.sets(st.integers(0, place - 1))) if place else set()
        tasks = draw(st.lists(_SECONDS, min_size=1, max_size=8))
        stages.append(Stage(tuple(sorted(after)), draw(_SECONDS), tuple(tasks)))
    return stages


@given(_chained(), st.integers(1, 20))
def test_no_schedule_is_faster_than_the_work_or_the_longest_way(
    stages: Sequence[Stage], cores: int
) -> None:
    ways: list[float] = []
    for stage in stages:
        before = max((ways[place] for place in stage.after), default=0.0)
        ways.append(before + stage.delay + max(stage.tasks))
    work = sum(sum(stage.tasks) for stage in stages)
    found = makespan(stages, cores)
    assert found >= max(*ways, work / cores) - 1e-9
    assert found <= work + sum(stage.delay for stage in stages) + 1e-9
    assert makespan(stages, 1000) == pytest.approx(max(ways))


def submitted(number: int, time: int, *parents: int) -> dict[str, Any]:
    stage = {"Stage ID": number, "Submission Time": START + time, "Parent IDs": list(parents)}
    return {"Event": "SparkListenerStageSubmitted", "Stage Info": stage}


def ended(number: int, launch: int, finish: int) -> dict[str, Any]:
    task = {"Launch Time": START + launch, "Finish Time": START + finish}
    return {"Event": "SparkListenerTaskEnd", "Stage ID": number, "Task Info": task}


def logged(*events: dict[str, Any]) -> Recorded:
    lines = [json.dumps(event, separators=(",", ":")) for event in events]
    return recorded(lines, START, START + 10_000)


def test_a_log_gives_tasks_and_the_time_of_the_driver() -> None:
    found = logged(
        submitted(7, -500),
        ended(7, -400, 100),
        submitted(8, 1000),
        ended(8, 1010, 3000),
        ended(8, 3005, 4000),
        submitted(10, 4200, 8, 9),
        ended(10, 4200, 5000),
        submitted(11, 7000),
        ended(11, 7000, 9000),
    )
    assert found.stages == (
        Stage((), 1.0, (2.0, 1.0)),
        Stage((0,), 0.2, (0.8,)),
        Stage((1,), 2.0, (2.0,)),
    )
    assert (found.seconds, found.rest, found.task_seconds) == (10.0, 1.0, 5.8)
    assert found.on(1) == pytest.approx(10.0)
    assert found.on(2) == pytest.approx(9.0)


def test_one_core_has_one_task_at_a_time() -> None:
    found = logged(submitted(0, 0), ended(0, 100, 2500), ended(0, 2000, 3000), ended(0, 3100, 4000))
    assert found.stages == (Stage((), 0.0, (2.0, 1.0, 1.0)),)
    assert found.on(1) == 10.0


def test_stages_of_two_threads_overlap_as_they_did() -> None:
    found = logged(
        submitted(0, 1000),
        submitted(1, 1100),
        ended(0, 1000, 2000),
        ended(1, 2000, 4000),
        submitted(2, 4000),
        ended(2, 4000, 9000),
    )
    assert [stage.after for stage in found.stages] == [(), (), (1,)]
    assert found.on(1) == pytest.approx(10.0)
    assert found.on(2) == pytest.approx(1.1 + 2 + 5 + 1)
