"""`publish: step`: the pieces that an interval is run in, and what is out after each."""

from __future__ import annotations

from pathlib import Path

import pytest
from control_builders import attempt, interval
from recording import PIPELINE, Recording, opened, silent

from lockstep.control import interval as stages
from lockstep.control.changes import (
    BeginAttempt,
    CommitVersion,
    Landed,
    RecordInterval,
    Rejected,
    RollBack,
)
from lockstep.control.model import PipelineState, Version
from lockstep.control.stepwise import run_by_steps
from lockstep.errors import Unreachable


def state_of(parts: stages.Parts) -> PipelineState:
    return parts.store.read(PIPELINE)


def test_an_interval_is_out_after_1_2_4_steps_and_so_on(tmp_path: Path) -> None:
    engine = Recording()
    parts = opened(tmp_path, engine, RecordInterval(interval(0, 10, rows=0)))
    committed = run_by_steps(parts, silent)
    assert engine.ran == [(0, 0), (1, 2), (3, 6), (7, 9)]
    # The last piece is left to the stage that follows, which times and reports it.
    assert engine.published == [0, 2, 6]
    assert committed is not None
    assert (committed.first_step, committed.last_step, committed.version) == (0, 9, 4)
    assert committed.changes == {"v": 40}
    assert committed.seconds == {"a": 2.0}
    state = state_of(parts)
    assert (state.pending, state.version.last_step) == (None, 9)
    assert [version.last_step for version in state.versions] == [-1, 0, 2, 6, 9]


def test_nothing_pending_is_nothing_to_run(tmp_path: Path) -> None:
    engine = Recording()
    assert run_by_steps(opened(tmp_path, engine), silent) is None
    assert engine.ran == []


def test_after_a_crash_the_rest_is_run_and_nothing_twice(tmp_path: Path) -> None:
    engine = Recording()
    parts = opened(tmp_path, engine, RecordInterval(interval(0, 10, rows=0)))
    engine.refuses_publish = True
    with pytest.raises(Unreachable):
        run_by_steps(parts, silent)
    pending = state_of(parts).pending
    assert pending is not None
    assert (pending.first_step, pending.last_step) == (1, 9)
    engine.refuses_publish = False
    committed = run_by_steps(parts, silent)
    assert engine.ran == [(0, 0), (1, 1), (2, 3), (4, 7), (8, 9)]
    assert engine.published == [1, 3, 7]
    assert committed is not None
    assert (committed.first_step, committed.last_step) == (1, 9)


def test_what_a_rollback_dropped_is_replayed_as_it_ran(tmp_path: Path) -> None:
    """Its sinks stay until all is replayed, so there is nothing to be early with."""
    engine = Recording()
    parts = opened(tmp_path, engine, RecordInterval(interval(0, 3, rows=0)))
    run_by_steps(parts, silent)
    assert engine.ran == [(0, 0), (1, 2)]
    target = state_of(parts).versions[0]
    assert isinstance(parts.store.apply(PIPELINE, RollBack(target.number, target.attempt)), Landed)
    state = state_of(parts)
    assert state.pending is not None
    assert (state.pending.first_step, state.pending.last_step) == (0, 0)
    assert [version.last_step for version in state.dropped] == [0, 2]
    engine.ran.clear()
    run_by_steps(parts, silent)
    run_by_steps(parts, silent)
    assert engine.ran == engine.compared == [(0, 0), (1, 2)]
    assert (state_of(parts).pending, state_of(parts).dropped) == (None, ())


def test_an_attempt_is_at_the_first_steps_of_what_is_pending(tmp_path: Path) -> None:
    parts = opened(tmp_path, Recording(), RecordInterval(interval(0, 4, rows=0)))
    for first, last in ((1, 2), (0, 4), (0, -1)):
        refused = parts.store.apply(PIPELINE, BeginAttempt(attempt("x", first, last)))
        assert isinstance(refused, Rejected)
        assert "steps 0 to 3 are pending" in refused.reason
    assert isinstance(parts.store.apply(PIPELINE, BeginAttempt(attempt("a", 0, 1))), Landed)
    beyond = parts.store.apply(PIPELINE, CommitVersion(Version(1, "a", 3, 0, {}), ""))
    assert isinstance(beyond, Rejected)
    assert beyond.reason == "attempt a ends at step 1, the commit says 3"
    assert isinstance(
        parts.store.apply(PIPELINE, CommitVersion(Version(1, "a", 1, 0, {}), "")), Landed
    )
    assert state_of(parts).pending == interval(0, 4, rows=0).after(1)
