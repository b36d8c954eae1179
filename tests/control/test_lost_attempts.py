"""What an attempt says that wakes up when it is over: another try may get on, so it is no refusal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from control_builders import FILES, attempt, interval
from recording import PIPELINE, Recording, opened, silent

from lockstep.control.changes import BeginAttempt, ForgetAttempts, Landed, RecordInterval
from lockstep.control.interval import run
from lockstep.control.planning import plan
from lockstep.errors import AttemptLost, EngineFailed, StateDiverged


@pytest.mark.parametrize("is_forgotten", [False, True])
@pytest.mark.parametrize("fails_in_the_job", [False, True])
def test_what_fails_after_another_began_is_a_lost_attempt(
    tmp_path: Path, fails_in_the_job: bool, is_forgotten: bool
) -> None:
    """Its branches are swept: the job, or the check before the commit, finds none."""
    engine = Recording()
    parts = opened(tmp_path, engine, RecordInterval(interval(0, 2, rows=0)))

    def overtake(attempt_id: str) -> None:
        other = parts.store.apply(PIPELINE, BeginAttempt(attempt("other", 0, 1)))
        assert isinstance(other, Landed)
        if is_forgotten:
            assert isinstance(parts.store.apply(PIPELINE, ForgetAttempts((attempt_id,))), Landed)
        engine.lost_branches.add(f"attempt_{attempt_id}")
        if fails_in_the_job:
            raise EngineFailed("no such branch")

    engine.during_run = overtake
    with pytest.raises(AttemptLost, match="failed when it was over already") as lost:
        run(parts, silent)
    state = "forgotten" if is_forgotten else "abandoned"
    cause = "no such branch" if fails_in_the_job else "table has no branch attempt_b0"
    assert lost.value.found == f"{state}; then: {cause}"


def test_what_fails_while_it_is_at_work_is_what_it_is(tmp_path: Path) -> None:
    engine = Recording()
    engine.during_run = lambda attempt_id: engine.lost_branches.add(f"attempt_{attempt_id}")
    parts = opened(tmp_path, engine, RecordInterval(interval(0, 2, rows=0)))
    with pytest.raises(StateDiverged, match="table has no branch attempt_b0"):
        run(parts, silent)


def test_a_run_that_has_opened_another_project_begins_nothing(tmp_path: Path) -> None:
    """Its sources may be elsewhere, and its views may not need steps one by one."""
    engine = Recording()
    parts = opened(tmp_path, engine, RecordInterval(interval(0, 2, rows=0)))
    stale = replace(parts, project_files=replace(FILES, spec="other"))
    for stage in (run, lambda parts, progress: plan(parts, None, progress)):
        with pytest.raises(AttemptLost, match="pipeline p was deployed anew meanwhile"):
            stage(stale, silent)
    assert engine.ran == []
    assert run(replace(parts, project_files=FILES), silent) is not None
