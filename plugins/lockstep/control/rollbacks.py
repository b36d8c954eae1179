"""What a rollback does to a pipeline's recorded state, and what is pending after it: pure.

The law: a rollback takes versions away, never divisions. The steps of the versions dropped are pending
again, an interval for each as it was, so that a replay takes no more memory than the first run did;
and the versions dropped stay on record, with their snapshots, until the last of their steps has been
replayed. Until then there is something to compare with, and a way back (decision 0016).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from lockstep.control.changes import RollBack, UndoRollBack
from lockstep.control.model import Attempt, AttemptState, Division, Interval, PipelineState, Version
from lockstep.control.preconditions import Precondition, require

__all__ = [
    "AT_WORK",
    "StepLog",
    "begin_replay",
    "given_up",
    "pending_interval",
    "replayed",
    "roll_back",
    "undo_roll_back",
]

StepLog = Callable[[int, int], tuple[Division, ...]]
"""Recorded divisions of steps first..last that are still kept: they never change, so that what asks
for them is a function of the state all the same."""

AT_WORK = (AttemptState.RUNNING, AttemptState.REPLAYING)


def pending_interval(
    last_step: int, dropped: Iterable[Version], next_step: int, log: StepLog
) -> Interval | None:
    """What is to be run on top of a version that ends at `last_step`, None where all is in it.

    While dropped versions are replayed it ends where the next of them did.
    """
    ends = (version.last_step for version in dropped if version.last_step > last_step)
    last = next(ends, next_step - 1)
    if last <= last_step:
        return None
    divisions = log(last_step + 1, last)
    require(
        len(divisions) == last - last_step,
        lambda: (
            f"the divisions of steps {last_step + 1} to {last} are needed to run them again, and "
            f"{len(divisions)} of them are kept"
        ),
    )
    return Interval(divisions)


def roll_back(state: PipelineState, change: RollBack, log: StepLog) -> PipelineState:
    """The state with `change` in it; itself where the version is the newest already."""
    if (state.version.number, state.version.attempt) == (change.number, change.attempt):
        return state
    target = _kept(state, change)
    require(
        state.replaced is None,
        lambda: (
            f"other queries are deployed, and no version holds their state yet: version {change.number} "
            "was made by those of before"
        ),
    )
    require(
        target.last_step >= state.rebuilt_step,
        lambda: (
            f"version {target.number} ends at step {target.last_step}, and queries or sources have "
            f"changed up to step {state.rebuilt_step}: it is not, or not whole, of those deployed"
        ),
    )
    later = tuple(version for version in state.versions if version.number > target.number)
    # Of a step that has been replayed, the version dropped first stays: what was replayed is equal.
    before = state.dropped[0].last_step if state.dropped else state.next_step
    dropped = (*(version for version in later if version.last_step < before), *state.dropped)
    return replace(
        state,
        versions=state.versions[: -len(later)],
        dropped=dropped,
        attempts=_with_dropped(given_up(state.attempts, AT_WORK), later),
        pending=pending_interval(target.last_step, dropped, state.next_step, log),
    )


def _kept(state: PipelineState, change: RollBack) -> Version:
    for version in state.versions:
        if (version.number, version.attempt) == (change.number, change.attempt):
            return version
    kept = ", ".join(f"{v.number} by {v.attempt or 'no attempt'}" for v in state.versions)
    raise Precondition(
        f"version {change.number} by {change.attempt or 'no attempt'} is not kept; those kept are: "
        f"{kept}"
    )


def undo_roll_back(state: PipelineState, change: UndoRollBack, log: StepLog) -> PipelineState:
    """The state before the rollback, with what has been recorded since."""
    wanted = (change.number, change.attempt)
    if not state.dropped and (state.version.number, state.version.attempt) == wanted:
        return state
    last = state.dropped[-1] if state.dropped else None
    require(
        last is not None and (last.number, last.attempt) == wanted,
        lambda: (
            "no rollback is under way: all that was dropped has been replayed"
            if last is None
            else f"the last version dropped is {last.number} by {last.attempt}, not {change.number} by "
            f"{change.attempt}"
        ),
    )
    below = state.dropped[0].number
    replays = tuple(version for version in state.versions if version.number >= below)
    attempts = _with_dropped(given_up(state.attempts, AT_WORK), replays)
    return replace(
        state,
        versions=(*(v for v in state.versions if v.number < below), *state.dropped),
        dropped=(),
        attempts=_changed(attempts, _makers(state.dropped), AttemptState.COMMITTED),
        pending=pending_interval(state.dropped[-1].last_step, (), state.next_step, log),
    )


def replayed(state: PipelineState, log: StepLog) -> PipelineState:
    """The state after a commit, with the next interval of the replay pending; with the last of them,
    the versions dropped are forgotten."""
    last_step = state.version.last_step
    dropped = state.dropped if state.dropped[-1].last_step > last_step else ()
    pending = pending_interval(last_step, dropped, state.next_step, log)
    return replace(state, dropped=dropped, pending=pending)


def begin_replay(state: PipelineState, attempt: Attempt) -> PipelineState:
    """The state with the replay on record, instead of another that was at work."""
    require(
        attempt.state is AttemptState.REPLAYING,
        lambda: f"a replay begins replaying, not {attempt.state.value}",
    )
    base = next((v for v in state.versions if v.attempt == attempt.base), None)
    require(
        base is not None and attempt.first_step == base.last_step + 1,
        lambda: (
            f"replay {attempt.id} begins at step {attempt.first_step}, and no version kept, made by "
            f"{attempt.base or 'no attempt'}, ends at the step before"
        ),
    )
    require(
        attempt.first_step <= attempt.last_step <= state.version.last_step,
        lambda: (
            f"version {state.version.number} ends at step {state.version.last_step}, so steps "
            f"{attempt.first_step} to {attempt.last_step} cannot be replayed"
        ),
    )
    require(
        state.replaced is None and attempt.first_step > state.rebuilt_step,
        lambda: (
            f"replay {attempt.id} begins at step {attempt.first_step}, and queries have changed since"
        ),
    )
    others = given_up(state.attempts, (AttemptState.REPLAYING,))
    return replace(state, attempts=(*others, attempt))


def given_up(attempts: Iterable[Attempt], states: Collection[AttemptState]) -> tuple[Attempt, ...]:
    """The attempts, those in one of the states abandoned."""
    return tuple(
        replace(attempt, state=AttemptState.ABANDONED) if attempt.state in states else attempt
        for attempt in attempts
    )


def _with_dropped(
    attempts: tuple[Attempt, ...], versions: Iterable[Version]
) -> tuple[Attempt, ...]:
    return _changed(attempts, _makers(versions), AttemptState.DROPPED)


def _makers(versions: Iterable[Version]) -> frozenset[str]:
    return frozenset(version.attempt for version in versions)


def _changed(
    attempts: tuple[Attempt, ...], ids: Collection[str], state: AttemptState
) -> tuple[Attempt, ...]:
    return tuple(replace(a, state=state) if a.id in ids else a for a in attempts)
