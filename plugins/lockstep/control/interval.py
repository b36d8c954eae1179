"""The order of the stages: `planning`, then run and commit, which are here, then `publishing` (design,
section 2).

Each stage may be started twice and killed anywhere: it begins by reading what is recorded, and what
it does next follows from that alone. Nothing here trusts a time-out, a task order or an exit code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum

from lockstep.control import opening, steps
from lockstep.control.changes import (
    AbandonAttempt,
    BeginAttempt,
    Change,
    CommitVersion,
    Landed,
    RefuseAttempt,
    Rejected,
    Unknown,
)
from lockstep.control.growth import GrowthRules, grown_meanwhile
from lockstep.control.history import rebuilding
from lockstep.control.job import (
    CatalogSettings,
    CompareResult,
    IntervalJob,
    IntervalResult,
    Placement,
)
from lockstep.control.layout.autoscaling import Autoscaling, Load
from lockstep.control.limits import RETAIN_CHANGES
from lockstep.control.model import (
    Attempt,
    AttemptState,
    Interval,
    PipelineState,
    TopicSlice,
    Version,
)
from lockstep.control.output_log import OutputLog, compare_job, require_equal
from lockstep.control.ports import (
    Clock,
    Engine,
    Files,
    Progress,
    Sources,
    State,
    Store,
    TopicBounds,
)
from lockstep.control.positions import without_forgotten
from lockstep.control.reports import Committed
from lockstep.control.rollbacks import AT_WORK
from lockstep.control.unrecorded import require_recorded
from lockstep.errors import AttemptLost, LockstepError, StateDiverged, Unreachable
from lockstep.ids import attempt_branch, errors_table, version_tag
from lockstep.sql.circuit import ProjectFiles
from lockstep.threads import in_parallel

__all__ = [
    "Parts",
    "Point",
    "append",
    "check_branches",
    "commit",
    "compare",
    "interval_job",
    "record",
    "require_deployed",
    "run",
    "settle",
]


class Point(Enum):
    """The places between two durable writes: where a crash must be harmless, and tests kill."""

    PLAN_LOOKED_UP = "offsets are looked up, the division is not recorded"
    PLAN_RECORDED = "the division is recorded"
    RUN_BEGUN = "the attempt is recorded, no branch is made"
    RUN_APPENDED = "all appends stand on the attempt's branches"
    COMMIT_CHECKED = "the branches are checked, the version is not recorded"
    COMMIT_LANDED = "the version is recorded, its snapshots are not pinned"
    COMMIT_SETTLED = "the version is pinned and shown on main"
    PUBLISH_INTENDED = "intents are recorded, no row has gone out"
    PUBLISH_MOVED = "every sink has moved, none is recorded as published"
    PUBLISH_RECORDED = "all is recorded"


@dataclass(frozen=True)
class Parts:
    """What the stages of one pipeline work with.

    `source_names` are the project's sources, `reads_time` says that a view changes as time goes on,
    `needs_divisions` that a view's rows depend on which step a record was in,
    `outboxes` maps a published view to its outbox table, `new_id` gives a fresh attempt id,
    `reached` is told each point that a stage gets to, `growth` says what topics may grow to,
    `autoscaling` when there should be more workers, or fewer, and `retain_changes` for how long others
    can follow a table of changes, `retain_views` for how long views have a past, None where that is
    left to their users. All this is of `project_files`, which have to be those that are deployed; None
    where nothing is made of them.
    """

    pipeline: str
    store: Store
    sources: Sources
    state: State
    files: Files
    engine: Engine
    clock: Clock
    limits: steps.StepLimits
    retain_versions: int
    source_names: tuple[str, ...]
    outboxes: Mapping[str, str]
    variables: Mapping[str, str]
    catalog: CatalogSettings
    new_id: Callable[[], str]
    reached: Callable[[Point], None] = lambda _: None
    project_files: ProjectFiles | None = None
    reads_time: bool = False
    needs_divisions: bool = False
    autoscaling: Autoscaling = Autoscaling()  # noqa: RUF009 - frozen
    growth: GrowthRules = field(default_factory=GrowthRules)
    retain_changes: timedelta = RETAIN_CHANGES
    retain_views: timedelta | None = None


# ── run ─────────────────────────────────────────────────────────────────────────────────────────


def run(parts: Parts, progress: Progress, most_steps: int | None = None) -> Committed | None:
    """Run the pending interval, or its first `most_steps` steps, as a new attempt and commit it; None
    where nothing is pending.

    Steps that are replayed after a rollback run whole as they did, and are compared with their output
    of before. Raises AttemptLost where another attempt has landed or this one was abandoned,
    StateDiverged where the version cannot be opened, the tables know more than the store, or a replay
    gives other rows.
    """
    started = parts.clock.now()
    recorded = parts.store.read(parts.pipeline)
    interval = recorded.pending
    if interval is None:
        progress("no interval is pending; nothing to run")
        return None
    if most_steps is not None and not recorded.dropped:
        interval = interval.first(most_steps)
    require_recorded(recorded, parts.store, parts.state, parts.outboxes.values())
    base = recorded.version
    _interrupt_predecessors(parts, recorded, interval, progress)
    attempt = Attempt(
        parts.new_id(),
        interval.first_step,
        interval.last_step,
        base.attempt,
        session=parts.engine.session(recorded.session),
    )
    began = record(parts, BeginAttempt(attempt))
    require_deployed(parts, began)
    # Maintenance may have swapped files of this version since it was read; from here on it cannot.
    base = began.version
    parts.reached(Point.RUN_BEGUN)
    progress(
        f"{interval.text}: attempt {attempt.id} opens version {base.number} "
        f"to make version {base.number + 1}"
    )
    job = interval_job(parts, began, attempt, base, interval)
    result = append(parts, began, job, progress)
    parts.reached(Point.RUN_APPENDED)
    return commit(parts, began, attempt, job, result, started, progress)


def interval_job(
    parts: Parts, began: PipelineState, attempt: Attempt, base: Version, interval: Interval
) -> IntervalJob:
    """What the engine is asked to do for an attempt at an interval, from the version `base`."""
    time_before = _time_before(parts, interval)
    interval = without_forgotten(began.positions, interval)
    return IntervalJob(
        pipeline=parts.pipeline,
        incarnation=began.incarnation,
        attempt=attempt.id,
        branch=attempt.branch,
        base_version=base.number,
        base_tables=base.tables,
        interval=interval,
        layout_epoch=began.layout.epoch,
        files=began.files,
        variables=parts.variables,
        catalog=parts.catalog,
        session=attempt.session,
        time_before=time_before,
        rebuilding=rebuilding(
            began, interval, time_before, parts.store, parts.state, parts.needs_divisions
        ),
        placement=Placement.of(began.layout),
        new_layouts=began.layouts_after(base.layout_epoch),
    )


def append(
    parts: Parts, began: PipelineState, job: IntervalJob, progress: Progress
) -> IntervalResult:
    """Have the engine do it. Raises StateDiverged where the version cannot be opened, SourceChanged
    where a topic was made anew. A topic that grows meanwhile is told."""
    reads_past = job.rebuilding is not None
    before = _check_topics(parts, job.interval, reads_past=reads_past)
    try:
        result = parts.engine.run(job, progress)
    except LockstepError as error:
        _require_at_work(parts, job.attempt, error)
        opening.require(began, job.base_version, opening.examine(parts.state, began.versions))
        raise
    after = _check_topics(parts, job.interval, reads_past=reads_past)
    for line in grown_meanwhile(parts.growth, began, job.interval, before, after):
        progress(line)
    return result


def _require_at_work(parts: Parts, attempt_id: str, error: LockstepError) -> None:
    """Raise AttemptLost where the attempt is over: what it then fails for is what others have left of
    its branches, and of the version that it opened."""
    attempt = parts.store.read(parts.pipeline).attempt(attempt_id)
    if attempt is not None and attempt.state in AT_WORK:
        return
    raise AttemptLost(
        f"attempt {attempt_id} failed when it was over already",
        expected="to be at work until its end",
        found=f"{attempt.state.value if attempt else 'forgotten'}; then: {error.message}",
        next_step=f"run again: it starts from what is recorded, see `lockstep steps {parts.pipeline}`",
    ) from error


def _check_topics(
    parts: Parts, interval: Interval, *, reads_past: bool
) -> Mapping[str, TopicBounds]:
    """A topic that is made anew while it is read, or before, has other records at the same offsets: its
    id is looked at before and after. What was found, by source."""
    read: dict[str, TopicSlice] = {}
    for division in interval.divisions:
        for slice_ in division.slices:
            if isinstance(slice_, TopicSlice) and (slice_.records or reads_past):
                read.setdefault(slice_.source, slice_)
    topics: dict[str, TopicBounds] = {}
    for source, found in zip(read, in_parallel(parts.sources.bounds, read), strict=True):
        assert isinstance(found, TopicBounds), "a topic's slice is of a topic"
        steps.check_readable(read[source], found)
        topics[source] = found
    return topics


def _time_before(parts: Parts, interval: Interval) -> datetime | None:
    """Of the step before, which is the last of the version opened: its division is kept."""
    before = interval.first_step - 1
    found = parts.store.divisions(parts.pipeline, before, before) if before >= 0 else ()
    return found[0].time if found else None


def _interrupt_predecessors(
    parts: Parts, recorded: PipelineState, interval: Interval, progress: Progress
) -> None:
    """A client's death does not stop its Spark jobs. The commit is fenced, so this only saves work:
    failing to reach a dead session is no reason not to go on."""
    for attempt in recorded.attempts:
        if attempt.state is AttemptState.RUNNING and attempt.first_step == interval.first_step:
            progress(f"attempt {attempt.id} did not finish; what it left running is stopped")
            try:
                parts.engine.interrupt(attempt.session)
            except Unreachable as error:
                progress(f"its session could not be reached: {error.message}")


# ── commit ──────────────────────────────────────────────────────────────────────────────────────


def commit(
    parts: Parts,
    began: PipelineState,
    attempt: Attempt,
    job: IntervalJob,
    result: IntervalResult,
    started: datetime,
    progress: Progress,
) -> Committed:
    """Check the attempt's branches against what it says it wrote, and a replay's rows against what they
    were, then compare and set the version. `began` is the state in which the attempt began, `started`
    when that was."""
    base, interval = began.version, job.interval
    check_branches(parts, attempt, base, result)
    if began.dropped:
        _check_replay(parts, began, job, result, progress)
    parts.reached(Point.COMMIT_CHECKED)
    version = Version(
        base.number + 1, attempt.id, interval.last_step, job.layout_epoch, result.tables
    )
    change = CommitVersion(version, base.attempt, _load(parts, began, job, started))
    outcome = parts.store.apply(parts.pipeline, change)
    if isinstance(outcome, Unknown):
        outcome = _resolve_unknown(parts, attempt, outcome)
    if isinstance(outcome, Rejected):
        # Refused is certain, so nothing can read these branches any more.
        parts.store.apply(parts.pipeline, RefuseAttempt(attempt.id))
        raise AttemptLost(
            f"attempt {attempt.id} at {interval.text} was not committed: {outcome.reason}",
            next_step=f"run the interval again; `lockstep steps {parts.pipeline}` shows who landed",
        )
    parts.reached(Point.COMMIT_LANDED)
    settle(parts, outcome.state, version)
    parts.reached(Point.COMMIT_SETTLED)
    progress(f"{interval.text}: version {version.number} is committed")
    return _committed(parts, version, interval, result)


def _load(parts: Parts, began: PipelineState, job: IntervalJob, started: datetime) -> Load | None:
    """What the interval has taken until now; of one that only repeats, or makes state anew, it says
    nothing of those that follow."""
    if began.dropped or job.rebuilding is not None or began.pending is None:
        return None
    now = parts.clock.now()
    lag = now - job.interval.divisions[-1].time
    return Load(
        began.pending.last_step,
        job.layout_epoch,
        (now - started).total_seconds(),
        lag.total_seconds(),
    )


def check_branches(parts: Parts, attempt: Attempt, base: Version, result: IntervalResult) -> None:
    """Each branch holds exactly the appends that the attempt lists, on the snapshot it opened.

    Spark Connect can execute an append twice when its server restarts; such a branch is not what the
    attempt computed, and the attempt is given up.
    """

    def check(table: str) -> str:
        listed = [write for write in result.writes if write.table == table]
        expected = tuple(write.write_id for write in listed)
        start = result.opened.get(table, base.tables.get(table))
        found = parts.state.appended(table, attempt.branch, start)
        if found != expected:
            return f"{table}: expected the appends {expected}, found {found}"
        if listed and result.tables[table] != listed[-1].snapshot_id:
            return f"{table}: the branch's head is not the snapshot that was written last"
        return ""

    tables = sorted({write.table for write in result.writes})
    try:
        faults = [fault for fault in in_parallel(check, tables) if fault]
    except StateDiverged as error:
        _require_at_work(parts, attempt.id, error)
        raise
    if faults:
        parts.store.apply(parts.pipeline, AbandonAttempt(attempt.id))
        raise AttemptLost(
            f"attempt {attempt.id} is given up: its branches do not hold what it wrote",
            expected="each append once",
            found="; ".join(faults),
            next_step="run the interval again",
        )


def compare(
    parts: Parts, job: IntervalJob, log: OutputLog, result: IntervalResult, progress: Progress
) -> CompareResult:
    """Compare the output of a replay with what the log holds."""
    comparison = compare_job(job, parts.outboxes, log, result.tables)
    if not comparison.tables:
        return CompareResult({})
    return parts.engine.compare(comparison, progress)


def _check_replay(
    parts: Parts, began: PipelineState, job: IntervalJob, result: IntervalResult, progress: Progress
) -> None:
    """Compare with the newest version that was dropped, whose outboxes hold all steps up to its last."""
    logged = began.dropped[-1]
    compared = compare(parts, job, OutputLog(logged, began.oldest_step), result, progress)
    way_back = (
        f"lockstep rollback {parts.pipeline} --undo, which brings version {logged.number} back"
    )
    try:
        require_equal(parts.pipeline, compared, way_back)
    except StateDiverged:
        parts.store.apply(parts.pipeline, AbandonAttempt(job.attempt))
        raise


def _resolve_unknown(parts: Parts, attempt: Attempt, unknown: Unknown) -> Landed | Rejected:
    """Unknown is resolved by a write, never by a guess: if the attempt can be abandoned, its commit
    has not landed and never will; if it cannot, because it is committed, it has landed."""
    ruling = parts.store.apply(parts.pipeline, AbandonAttempt(attempt.id))
    if isinstance(ruling, Unknown):
        raise Unreachable(
            f"the control store does not say whether attempt {attempt.id} was committed: "
            f"{unknown.reason}; {ruling.reason}",
            next_step="run the interval again; the next attempt finds out",
        )
    if isinstance(ruling, Landed):
        return Rejected(f"the control store did not answer ({unknown.reason})", ruling.state)
    state = parts.store.read(parts.pipeline)
    recorded = state.attempt(attempt.id)
    if recorded is not None and recorded.state is AttemptState.COMMITTED:
        return Landed(state)
    return Rejected(ruling.reason, state)


def settle(parts: Parts, recorded: PipelineState, version: Version) -> None:
    """Pin the version's snapshots by a tag, show them on main, and drop the attempt's branch.

    During a replay main stays at what a rollback dropped: its readers see no step back."""
    dropped = [a.id for a in recorded.attempts if a.state is AttemptState.DROPPED]
    replaced = None if recorded.dropped else dropped
    tag = version_tag(version.number, version.attempt)
    branch = attempt_branch(version.attempt)
    in_parallel(
        lambda table: parts.state.settle(table, version.tables[table], tag, (branch,), replaced),
        sorted(version.tables),
    )


def _committed(
    parts: Parts, version: Version, interval: Interval, result: IntervalResult
) -> Committed:
    return Committed(
        version=version.number,
        attempt=version.attempt,
        first_step=interval.first_step,
        last_step=interval.last_step,
        records=interval.records,
        changes={view: result.records(table) for view, table in parts.outboxes.items()},
        errors={name: result.records(errors_table(name)) for name in parts.source_names},
        seconds=result.seconds,
    )


# ── helpers ─────────────────────────────────────────────────────────────────────────────────────


def require_deployed(parts: Parts, recorded: PipelineState) -> None:
    """Raise AttemptLost where other files have been deployed than those that the parts are of: sources
    may be elsewhere, and views may need steps one by one."""
    if parts.project_files not in (None, recorded.files):
        raise AttemptLost(
            f"pipeline {parts.pipeline} was deployed anew meanwhile",
            expected="the project that this run has opened",
            found="other files",
            next_step="run again: it opens what is deployed",
        )


def record(parts: Parts, change: Change) -> PipelineState:
    """Apply a change that this run needs; a refusal here means that another run has moved on."""
    outcome = parts.store.apply(parts.pipeline, change)
    match outcome:
        case Landed(state):
            return state
        case Rejected(reason, _):
            raise AttemptLost(
                f"{type(change).__name__} was refused: {reason}",
                next_step="run again: it starts from what is recorded",
            )
        case Unknown(reason):
            raise Unreachable(
                f"the control store does not say whether {type(change).__name__} landed: {reason}",
                next_step="run again: it starts from what is recorded",
            )
