"""What a change does to a pipeline's recorded state: one pure function over the union of changes.

The law: `apply` gives the state in which the change has happened, or raises `Precondition`. It
never looks at a clock, a table or a broker, so that every store, and the model that tests the
stores, decides alike. A change that has already landed exactly as asked gives back the state as it
is (the same object, the same revision): that is what makes it safe to send a change again after an
unknown outcome.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from lockstep.control.changes import (
    AbandonAttempt,
    BeginAttempt,
    BeginReplay,
    Change,
    ChangeLayout,
    CommitVersion,
    Deploy,
    ForgetAttempts,
    IntendPublish,
    RecordInterval,
    RecordPublished,
    RefuseAttempt,
    ReleaseLease,
    Restore,
    RollBack,
    SetDesired,
    SwapSnapshots,
    TakeLease,
    TrimSteps,
    TrimVersions,
    UndoRollBack,
)
from lockstep.control.deploys import deploy_again, first_deploy, restore, set_desired
from lockstep.control.layout.autoscaling import KEPT_LOADS, Load
from lockstep.control.limits import LEAST_VERSIONS
from lockstep.control.model import (
    Attempt,
    AttemptState,
    Division,
    Lease,
    PipelineState,
)
from lockstep.control.positions import first_counts, has_forgotten, positions_after
from lockstep.control.preconditions import Precondition, check_moment, require
from lockstep.control.relayout import at_boundary, change_layout
from lockstep.control.rollbacks import (
    AT_WORK,
    StepLog,
    begin_replay,
    given_up,
    replayed,
    roll_back,
    undo_roll_back,
)
from lockstep.control.sink_progress import intend_publish, record_published

__all__ = ["Precondition", "apply"]


def _empty_log(_first: int, _last: int) -> tuple[Division, ...]:
    return ()


def apply(
    state: PipelineState | None, change: Change, *, name: str = "", log: StepLog = _empty_log
) -> PipelineState:
    """The state after the change; `state` itself where the change has already happened.

    `name` is the pipeline's, and is used by its first deploy alone (`state` is None before that). `log`
    gives recorded divisions: a rollback and a replay make them pending again. Raises Precondition. The
    revision is one more wherever anything changed.
    """
    if state is None:
        if isinstance(change, Restore):
            return change.state
        if not isinstance(change, Deploy):
            raise Precondition(f"no pipeline {name} is deployed, so nothing about it can change")
        return first_deploy(name, change)
    after = at_boundary(_changed(state, change, log))
    return state if after is state else replace(after, revision=state.revision + 1)


def _changed(state: PipelineState, change: Change, log: StepLog) -> PipelineState:
    match change:
        case Deploy() | Restore() | SetDesired() | ChangeLayout():
            return _asked_for(state, change)
        case TakeLease():
            return _take_lease(state, change)
        case ReleaseLease(holder):
            held = state.lease is not None and state.lease.holder == holder
            return replace(state, lease=None) if held else state
        case RecordInterval():
            return _record_interval(state, change)
        case BeginAttempt() | BeginReplay() | CommitVersion() | RollBack() | UndoRollBack():
            return _versions_changed(state, change, log)
        case AbandonAttempt(attempt_id):
            return _end_attempt(state, attempt_id, AttemptState.ABANDONED)
        case RefuseAttempt(attempt_id):
            return _end_attempt(state, attempt_id, AttemptState.REFUSED)
        case ForgetAttempts(attempt_ids):
            return _forget_attempts(state, attempt_ids)
        case IntendPublish():
            return intend_publish(state, change)
        case RecordPublished():
            return record_published(state, change)
        case SwapSnapshots():
            return _swap_snapshots(state, change)
        case TrimVersions(retain):
            require(
                retain >= LEAST_VERSIONS,
                lambda: f"at least {LEAST_VERSIONS} versions are kept, not {retain}",
            )
            kept = state.versions[-retain:]
            return state if kept == state.versions else replace(state, versions=kept)
        case TrimSteps(first_kept):
            return _trim_steps(state, first_kept)
        case _:
            assert_never(change)


def _asked_for(
    state: PipelineState, change: Deploy | Restore | SetDesired | ChangeLayout
) -> PipelineState:
    match change:
        case Deploy():
            return deploy_again(state, change)
        case Restore():
            return restore(state, change)
        case SetDesired():
            return set_desired(state, change)
        case ChangeLayout():
            return change_layout(state, change)
        case _:
            assert_never(change)


def _versions_changed(
    state: PipelineState,
    change: BeginAttempt | BeginReplay | CommitVersion | RollBack | UndoRollBack,
    log: StepLog,
) -> PipelineState:
    match change:
        case BeginAttempt(attempt):
            return _begin_attempt(state, attempt)
        case BeginReplay(attempt):
            return state if _is_begun(state, attempt) else begin_replay(state, attempt)
        case CommitVersion():
            return _commit_version(state, change, log)
        case RollBack():
            return roll_back(state, change, log)
        case UndoRollBack():
            return undo_roll_back(state, change, log)
        case _:
            assert_never(change)


# Leases


def _take_lease(state: PipelineState, change: TakeLease) -> PipelineState:
    require(bool(change.holder), lambda: "a lease needs a holder")
    check_moment("the time of the lease", change.now)
    check_moment("the end of the lease", change.expires)
    require(
        change.expires > change.now,
        lambda: f"a lease ends after {change.now}, not at {change.expires}",
    )
    lease = state.lease
    if lease is None or lease.expires <= change.now:
        return replace(state, lease=Lease(change.holder, change.expires))
    require(
        lease.holder == change.holder,
        lambda: f"the lease is held by {lease.holder} until {lease.expires}, now is {change.now}",
    )
    # A renewal that arrives late must not shorten what a later one has given.
    if change.expires <= lease.expires:
        return state
    return replace(state, lease=replace(lease, expires=change.expires))


# Intervals


def _record_interval(state: PipelineState, change: RecordInterval) -> PipelineState:
    interval = change.interval
    pending = state.pending
    if pending is not None:
        if pending == interval:
            return state
        raise Precondition(
            f"steps {pending.first_step} to {pending.last_step} are pending with a division of "
            f"their own, so {interval.first_step} to {interval.last_step} cannot be recorded"
        )
    require(
        interval.first_step == state.next_step,
        lambda: f"the next step is {state.next_step}, the interval starts at {interval.first_step}",
    )
    require(
        state.stop_at is None or interval.last_step < state.stop_at,
        lambda: (
            f"the pipeline stops before step {state.stop_at}, as was asked meanwhile; the interval ends "
            f"at step {interval.last_step}"
        ),
    )
    if state.last_time is not None:
        check_moment("the time of the interval", interval.divisions[0].time)
        require(
            interval.divisions[0].time >= state.last_time,
            lambda: (
                f"the last recorded step is of {state.last_time}, step {interval.first_step} "
                f"cannot be of {interval.divisions[0].time}, which is before it"
            ),
        )
    require(
        change.positions in (None, state.positions),
        lambda: (
            f"steps {interval.first_step} to {interval.last_step} were divided from other positions "
            "than are recorded: a source was forgotten or dropped meanwhile"
        ),
    )
    return replace(
        state,
        first_counts=first_counts(state.first_counts, state.positions, interval.divisions[0]),
        pending=interval,
        next_step=interval.last_step + 1,
        last_time=interval.divisions[-1].time,
        positions=positions_after(state.positions, interval.divisions),
    )


def _trim_steps(state: PipelineState, first_kept: int) -> PipelineState:
    if first_kept <= state.oldest_step:
        return state
    oldest = state.versions[0]
    require(
        first_kept <= oldest.last_step + 1,
        lambda: (
            f"steps from {oldest.last_step + 1} on are kept, because version {oldest.number} can "
            f"still be opened and run from there; trimming up to {first_kept} would lose them"
        ),
    )
    for sink in state.sinks:
        if first_kept > sink.published_step + 1:
            raise Precondition(
                f"steps from {sink.published_step + 1} on are kept for sink {sink.name}, which has "
                f"not published them; trimming up to {first_kept} would lose them"
            )
    return replace(state, oldest_step=first_kept)


# Attempts and versions


def _is_begun(state: PipelineState, attempt: Attempt) -> bool:
    """Whether this very attempt is on record; another of its id is refused."""
    recorded = state.attempt(attempt.id)
    if recorded == attempt:
        return True
    require(bool(attempt.id), lambda: "an attempt begins with an id")
    require(
        recorded is None,
        lambda: (
            f"an attempt's id is used once; {attempt.id} is {_found(state, attempt.id)} already"
        ),
    )
    for version in (*state.versions, *state.dropped):
        if version.attempt == attempt.id:
            raise Precondition(
                f"an attempt's id is used once; {attempt.id} has made version {version.number}"
            )
    return False


def _begin_attempt(state: PipelineState, attempt: Attempt) -> PipelineState:
    require(
        attempt.state is AttemptState.RUNNING,
        lambda: f"an attempt begins running, not '{attempt.id}' {attempt.state.value}",
    )
    if _is_begun(state, attempt):
        return state
    pending = state.pending
    if pending is None:
        raise Precondition(
            f"no interval is pending, attempt {attempt.id} is at steps {attempt.first_step} to "
            f"{attempt.last_step}"
        )
    require(
        attempt.first_step == pending.first_step
        and attempt.first_step <= attempt.last_step <= pending.last_step,
        lambda: (
            f"steps {pending.first_step} to {pending.last_step} are pending, attempt {attempt.id} "
            f"is at {attempt.first_step} to {attempt.last_step}"
        ),
    )
    require(
        not state.dropped or attempt.last_step == pending.last_step,
        lambda: (
            f"steps {pending.first_step} to {pending.last_step} are replayed after a rollback, whole as "
            f"they were; attempt {attempt.id} ends at {attempt.last_step}"
        ),
    )
    _check_base(state, attempt.base)
    return replace(state, attempts=(*given_up(state.attempts, AT_WORK), attempt))


def _commit_version(state: PipelineState, change: CommitVersion, log: StepLog) -> PipelineState:
    version, newest, pending = change.version, state.version, state.pending
    recorded = next((v for v in state.versions if v.attempt == version.attempt != ""), None)
    if recorded is not None:
        if recorded == version:
            return state
        raise Precondition(
            f"attempt {version.attempt} has committed version {recorded.number} already, up to "
            f"step {recorded.last_step}, and not with the content asked for now"
        )
    attempt = state.attempt(version.attempt)
    if attempt is None or attempt.state is not AttemptState.RUNNING:
        raise Precondition(
            f"only a running attempt commits; attempt {version.attempt} is "
            f"{_found(state, version.attempt)}"
        )
    require(
        attempt.base == change.base,
        lambda: (
            f"attempt {attempt.id} opened the version made by {_maker(attempt.base)}, "
            f"the commit says {_maker(change.base)}"
        ),
    )
    _check_base(state, change.base)
    require(
        version.number == newest.number + 1,
        lambda: f"the next version is {newest.number + 1}, the commit says {version.number}",
    )
    require(
        version.layout_epoch == state.layout.epoch,
        lambda: f"layout {state.layout.epoch} is in effect, the commit says {version.layout_epoch}",
    )
    # A running attempt is one at the pending interval: begun on it, and ended when it commits.
    require(
        pending is not None and version.last_step == attempt.last_step,
        lambda: (
            f"attempt {attempt.id} ends at step {attempt.last_step}, the commit says "
            f"{version.last_step}"
        ),
    )
    committed = replace(
        state,
        versions=(*state.versions, replace(version, tables=dict(version.tables))),
        attempts=_with_state(state, attempt.id, AttemptState.COMMITTED),
        pending=None if pending is None else pending.after(version.last_step),
        replaced=None,
        loads=state.loads if change.load is None else _with_load(state.loads, change.load),
        rebuilt_step=_rebuilt_step(state),
    )
    return replayed(committed, log) if state.dropped else committed


def _rebuilt_step(state: PipelineState) -> int:
    """That of the state in which a version of the pending interval, or of a piece of it, is committed.

    A source that was forgotten is read by none of the pieces, though it is recorded with them. Once it
    has a position again it would be read by those that are run once more. What is replayed after a
    rollback ran so the first time.
    """
    pending = state.pending
    if pending is None:
        return state.rebuilt_step
    is_forgotten = not state.dropped and has_forgotten(state.positions, pending)
    return pending.last_step if is_forgotten or state.replaced else state.rebuilt_step


def _with_load(loads: tuple[Load, ...], load: Load) -> tuple[Load, ...]:
    """With one interval more, or more of the newest, which was committed in pieces."""
    if loads and loads[-1].last_step == load.last_step:
        return (*loads[:-1], loads[-1].joined(load))
    return (*loads, load)[-KEPT_LOADS:]


def _check_base(state: PipelineState, base: str) -> None:
    newest = state.version
    require(
        newest.attempt == base,
        lambda: (
            f"the newest version is {newest.number}, made by {_maker(newest.attempt)}, "
            f"not the one made by {_maker(base)}"
        ),
    )


def _end_attempt(state: PipelineState, attempt_id: str, end: AttemptState) -> PipelineState:
    attempt = state.attempt(attempt_id)
    if attempt is not None and attempt.state is end:
        return state
    # A replay commits nothing that could be refused: it is abandoned when it has ended.
    at_work = AT_WORK if end is AttemptState.ABANDONED else (AttemptState.RUNNING,)
    require(
        attempt is not None and attempt.state in at_work,
        lambda: (
            f"only a running attempt becomes {end.value}; attempt {attempt_id} is "
            f"{_found(state, attempt_id)}"
        ),
    )
    return replace(state, attempts=_with_state(state, attempt_id, end))


def _forget_attempts(state: PipelineState, attempt_ids: tuple[str, ...]) -> PipelineState:
    gone = [attempt for attempt in state.attempts if attempt.id in attempt_ids]
    dropped = {version.attempt: version.number for version in state.dropped}
    for attempt in gone:
        if attempt.state in AT_WORK:
            raise Precondition(
                f"attempt {attempt.id} is {attempt.state.value}; only an ended one is forgotten"
            )
        if attempt.id in dropped:
            raise Precondition(
                f"version {dropped[attempt.id]} by attempt {attempt.id} is dropped, and its steps are "
                "not replayed yet"
            )
    if not gone:
        return state
    return replace(state, attempts=tuple(a for a in state.attempts if a not in gone))


def _swap_snapshots(state: PipelineState, change: SwapSnapshots) -> PipelineState:
    newest = state.version
    require(
        (newest.number, newest.attempt) == (change.number, change.attempt),
        lambda: (
            f"the newest version is {newest.number}, made by {_maker(newest.attempt)}; the swap is "
            f"for {change.number}, made by {_maker(change.attempt)}"
        ),
    )
    require(
        change.expected.keys() == change.replacement.keys(),
        lambda: (
            f"a swap replaces exactly the tables that it expects: it expects "
            f"{', '.join(sorted(change.expected))}, and replaces "
            f"{', '.join(sorted(change.replacement))}"
        ),
    )
    held = {table: newest.tables.get(table) for table in change.expected}
    if held == dict(change.replacement):
        return state
    for table, snapshot_id in sorted(change.expected.items()):
        if held[table] != snapshot_id:
            raise Precondition(
                f"version {newest.number} holds snapshot {held[table]} of {table}, "
                f"the swap expects {snapshot_id}"
            )
    opened_by = [a.id for a in state.attempts if a.state is AttemptState.RUNNING]
    require(
        not opened_by,
        lambda: (
            f"attempt {', '.join(opened_by)} is running and has opened version {newest.number} with the "
            "snapshots that the swap would replace"
        ),
    )
    require(
        change.merged_from in state.makers,
        lambda: (
            f"the files merged were read in the version by {_maker(change.merged_from)}, which is not "
            "kept"
        ),
    )
    swapped = replace(newest, tables={**newest.tables, **change.replacement})
    return replace(state, versions=(*state.versions[:-1], swapped))


# Small parts


def _with_state(state: PipelineState, attempt_id: str, end: AttemptState) -> tuple[Attempt, ...]:
    return tuple(replace(a, state=end) if a.id == attempt_id else a for a in state.attempts)


def _found(state: PipelineState, attempt_id: str) -> str:
    attempt = state.attempt(attempt_id)
    return "not on record" if attempt is None else attempt.state.value


def _maker(attempt_id: str) -> str:
    return f"attempt {attempt_id}" if attempt_id else "no attempt (it is empty)"
