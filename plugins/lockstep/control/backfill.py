"""Backfill without a change: recorded steps run again, and their output compared with what it was.

The law: nothing that is there is touched. A replay opens a version that is kept, appends to branches of
its own, and ends abandoned, whatever it finds; the newest version, the sinks and the step log stay as
they are. What it shows is that the recorded input still gives the recorded output.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from lockstep.control.changes import AbandonAttempt, BeginReplay
from lockstep.control.interval import (
    Parts,
    append,
    check_branches,
    compare,
    interval_job,
    record,
    require_deployed,
)
from lockstep.control.job import CompareResult
from lockstep.control.model import Attempt, AttemptState, Division, Interval, PipelineState, Version
from lockstep.control.output_log import OutputLog
from lockstep.control.ports import Progress
from lockstep.control.steps import StepLimits
from lockstep.errors import LockstepError, WrongUse
from lockstep.threads import in_parallel

__all__ = ["Piece", "plan_backfill", "replay"]


@dataclass(frozen=True)
class Piece:
    """One job of a backfill: the steps after those of version `base`, up to `last_step`."""

    base: str
    first_step: int
    last_step: int


def plan_backfill(
    recorded: PipelineState,
    divisions: Sequence[Division],
    start: datetime,
    end: datetime,
    limits: StepLimits,
) -> tuple[Piece, ...]:
    """The jobs that run the committed steps of start < time <= end again, oldest first.

    `divisions` are those from the oldest version's last step on, by step. Each job starts at a version
    that is kept, and holds as many of the intervals after it as one interval may hold. Raises WrongUse
    where there are no such steps, and where the versions before them are not kept any more.
    """
    if recorded.replaced is not None or recorded.version.last_step < recorded.rebuilt_step:
        raise WrongUse(
            f"pipeline {recorded.name} has other queries since its newest version",
            expected="a version by the queries deployed, and no piece of the first interval of theirs",
            found=f"version {recorded.version.number}, up to step {recorded.version.last_step}",
            next_step=f"lockstep trigger {recorded.name} --once, then backfill",
        )
    # What versions before a change of queries hold is another project's state.
    versions = [v for v in recorded.versions if v.last_step >= recorded.rebuilt_step]
    newest, oldest = recorded.version, versions[0]
    committed = [d for d in divisions if d.step <= newest.last_step]
    asked = [d.step for d in committed if start < d.time <= end]
    kept = [d for d in committed if d.step > oldest.last_step]
    before = [d for d in committed if d.step <= oldest.last_step]
    if before and start < before[-1].time:
        raise _too_old(recorded, oldest, before[-1].time, start, limits)
    if not asked:
        last = f"the last is of {committed[-1].time.isoformat()}" if committed else "none"
        raise WrongUse(
            f"pipeline {recorded.name} has no committed step after {start.isoformat()} and up to "
            f"{end.isoformat()}",
            expected="times of which steps are committed",
            found=last,
            next_step=f"lockstep steps {recorded.name}",
        )
    of_workers = limits.for_workers(len(recorded.layout.hosts))
    return _pieces(versions, kept, asked[0], asked[-1], of_workers)


def _pieces(
    versions: Sequence[Version],
    kept: Sequence[Division],
    first_step: int,
    last_step: int,
    limits: StepLimits,
) -> tuple[Piece, ...]:
    """Intervals as they were, joined as long as the limits of one interval allow it."""
    records = {division.step: division.records for division in kept}
    pieces: list[Piece] = []
    for base, after in pairwise(versions):
        if after.last_step < first_step or base.last_step >= last_step:
            continue
        piece = Piece(base.attempt, base.last_step + 1, min(after.last_step, last_step))
        joined = Piece(pieces[-1].base, pieces[-1].first_step, piece.last_step) if pieces else piece
        steps = range(joined.first_step, joined.last_step + 1)
        is_small = sum(records[step] for step in steps) <= limits.most_rows
        if pieces and is_small and len(steps) <= limits.steps_per_interval:
            pieces[-1] = joined
        else:
            pieces.append(piece)
    return tuple(pieces)


def _too_old(
    recorded: PipelineState,
    oldest: Version,
    reached: datetime,
    start: datetime,
    limits: StepLimits,
) -> WrongUse:
    expected = (
        f"a time from {reached.isoformat()} on, that of step {oldest.last_step}: version "
        f"{oldest.number}, which ends with it, is the oldest "
    )
    if oldest is not recorded.versions[0]:
        return WrongUse(
            f"pipeline {recorded.name} cannot run steps after {start.isoformat()} again: its queries "
            "have changed since",
            expected=f"{expected}of those that are deployed",
            found=start.isoformat(),
            next_step="ask for later times; `lockstep verify` compares with all that the sources hold",
        )
    behind = (reached - start).total_seconds() / limits.interval_seconds
    wanted = len(recorded.versions) + math.ceil(behind)
    return WrongUse(
        f"pipeline {recorded.name} cannot run steps after {start.isoformat()} again: no version that "
        "old is kept",
        expected=f"{expected}kept",
        found=start.isoformat(),
        next_step=f"ask for later times; `lockstep.retain_versions: {wanted}` in spark-pipeline.yml "
        "would have kept a version so old",
    )


def replay(parts: Parts, piece: Piece, progress: Progress) -> CompareResult:
    """Run a piece again, and compare. Raises AttemptLost where the version that it starts from is gone,
    or somebody else has given it up."""
    recorded = parts.store.read(parts.pipeline)
    divisions = parts.store.divisions(parts.pipeline, piece.first_step, piece.last_step)
    attempt = Attempt(
        parts.new_id(),
        piece.first_step,
        piece.last_step,
        piece.base,
        AttemptState.REPLAYING,
        parts.engine.session(recorded.session),
    )
    began = record(parts, BeginReplay(attempt))
    require_deployed(parts, began)
    # As long as a version is kept, so are the divisions of the steps after it: they are all here.
    interval = Interval(divisions)
    [base] = [version for version in began.versions if version.attempt == piece.base]
    progress(
        f"steps {piece.first_step}..{piece.last_step}: replay {attempt.id} opens version {base.number}; "
        f"version {began.version.number} stays as it is"
    )
    try:
        job = interval_job(parts, began, attempt, base, interval)
        result = append(parts, began, job, progress)
        check_branches(parts, attempt, base, result)
        log = OutputLog(began.version, began.oldest_step)
        compared = compare(parts, job, log, result, progress)
    except LockstepError:
        # Something may still write to its branches: maintenance drops them later.
        parts.store.apply(parts.pipeline, AbandonAttempt(attempt.id))
        raise
    parts.store.apply(parts.pipeline, AbandonAttempt(attempt.id))
    in_parallel(lambda table: parts.state.drop_refs(table, [attempt.branch]), parts.state.tables())
    return compared
