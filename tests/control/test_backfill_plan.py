"""Which jobs a backfill is cut into, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from control_builders import FILES, at, interval, life

from lockstep.adapters.memory_store import MemoryStore
from lockstep.control import limits as control_limits
from lockstep.control.backfill import Piece, plan_backfill, replay
from lockstep.control.changes import Landed, RecordPublished, TrimSteps, TrimVersions
from lockstep.control.layout.layouts import Layout
from lockstep.control.layout.records import LayoutRecord
from lockstep.control.model import PipelineState, Replaced, Version
from lockstep.control.steps import StepLimits
from lockstep.errors import AttemptLost, WrongUse

STEPS = interval(0, 12).divisions
"""A step a second, of 20 records; four versions of three steps each."""

VERSIONS = (Version.zero(), *(Version(n, f"a{n}", n * 3 - 1, 0, {}) for n in range(1, 5)))
LIMITS = StepLimits(step_seconds=1, interval_seconds=3)


def state(oldest: int = 0) -> PipelineState:
    return PipelineState("p", "i", 1, FILES, next_step=12, versions=VERSIONS[oldest:])


def plan(start: float, end: float, oldest: int = 0, limits: StepLimits = LIMITS):
    kept = [d for d in STEPS if d.step >= VERSIONS[oldest].last_step]
    return plan_backfill(state(oldest), kept, at(start), at(end), limits)


def test_the_newest_version_before_is_where_it_starts_and_many_intervals_are_one_job() -> None:
    assert plan(2, 5) == (Piece("a1", 3, 5),)
    assert plan(3, 10) == (Piece("a1", 3, 10),), "steps 4 to 10, from the version before step 3"
    assert plan(-1, 11) == (Piece("", 0, 11),)


def test_jobs_are_not_larger_than_an_interval_may_be_and_start_at_versions() -> None:
    limits = StepLimits(step_seconds=1, interval_seconds=3, rows_per_step=20, rows_per_interval=120)
    assert plan(-1, 11, limits=limits) == (Piece("", 0, 5), Piece("a2", 6, 11))
    few_steps = StepLimits(step_seconds=1, interval_seconds=3, steps_per_interval=3)
    assert plan(-1, 6, limits=few_steps) == (
        Piece("", 0, 2),
        Piece("a1", 3, 5),
        Piece("a2", 6, 6),
    )


@pytest.mark.parametrize(("workers", "pieces"), [(2, 2), (3, 1)])
def test_a_job_is_as_large_as_an_interval_of_as_many_workers(
    monkeypatch: pytest.MonkeyPatch, workers: int, pieces: int
) -> None:
    monkeypatch.setattr(control_limits, "_ROWS_OF_FEW", 120)
    hosts = {number: f"host-{number}" for number in range(workers)}
    layout = Layout(1, hosts=hosts, owners=(0,))
    recorded = replace(state(), layouts=(LayoutRecord(layout, 0),))
    limits = StepLimits(step_seconds=1, interval_seconds=3, rows_per_step=20)
    assert len(plan_backfill(recorded, STEPS, at(-1), at(11), limits)) == pieces


def test_what_no_version_is_kept_for_is_refused_with_what_would_have_kept_it() -> None:
    assert plan(5, 8, oldest=2) == (Piece("a2", 6, 8),)
    with pytest.raises(WrongUse) as refused:
        plan(-4, 8, oldest=2)
    assert refused.value.message == (
        "pipeline p cannot run steps after 2025-12-31T23:59:56+00:00 again: no version that old is kept"
    )
    assert refused.value.expected == (
        "a time from 2026-01-01T00:00:05+00:00 on, that of step 5: version 2, which ends with it, is "
        "the oldest kept"
    )
    assert "`lockstep.retain_versions: 6`" in refused.value.next_step


def test_steps_of_other_queries_are_refused() -> None:
    changed = replace(state(), rebuilt_step=4)
    kept = STEPS[2:]
    found = plan_backfill(changed, STEPS, at(5), at(8), LIMITS)
    assert found == (Piece("a2", 6, 8),)
    with pytest.raises(WrongUse) as refused:
        plan_backfill(changed, kept, at(4), at(8), LIMITS)
    assert "its queries have changed since" in refused.value.message
    assert "version 2, which ends with it, is the oldest of those" in refused.value.expected
    last = state().version.last_step
    for waiting in (
        replace(state(), replaced=Replaced(FILES)),
        replace(state(), rebuilt_step=last + 1),  # the newest is a piece of that interval
    ):
        with pytest.raises(WrongUse, match="has other queries since its newest version"):
            plan_backfill(waiting, STEPS, at(5), at(8), LIMITS)


def test_times_without_committed_steps_are_refused() -> None:
    with pytest.raises(WrongUse) as refused:
        plan(11, 20)
    assert "has no committed step after" in refused.value.message
    assert refused.value.found == "the last is of 2026-01-01T00:00:11+00:00"
    assert "lockstep steps p" in refused.value.next_step


def test_a_version_that_is_trimmed_between_two_jobs_ends_the_backfill() -> None:
    """Its divisions go with it: the simulation found a ValueError in their place."""
    store = MemoryStore()
    published = [RecordPublished(sink, 11) for sink in ("v", "k")]
    for change in (*life(4), *published, TrimVersions(2), TrimSteps(8)):
        assert isinstance(store.apply("p", change), Landed)
    parts: Any = SimpleNamespace(
        pipeline="p",
        store=store,
        engine=SimpleNamespace(session=lambda recorded: recorded),
        new_id=lambda: "r",
    )
    with pytest.raises(AttemptLost, match="no version kept, made by a0"):
        replay(parts, Piece("a0", 3, 5), lambda _: None)
