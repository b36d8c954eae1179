"""What the tasks of a pipeline's DAG do, without Airflow: functions over an open pipeline.

A DAG run means "advance until this time is recorded and published". Its three tasks are the stages,
and each is one process that may be killed and started again::

    plan      records the first division up to `until`, or finds the one that nobody finished
    run       runs and commits it; while there was more than one interval could take, or somebody
              else's interval had to be finished first, it plans and runs the next, up to `until`
    publish   moves every sink to the newest version, whoever committed it

So a backlog of a day is one DAG run with many intervals, and the shape of the DAG does not depend
on the data. What each stage does follows from what is recorded, never from what the task before it
said: the only thing handed on is whether plan saw more to do, which saves run a question.

A backfill's run, or one that was cleared, whose data interval is published already, has nothing to
advance: its run task runs the steps of that interval again and compares (`replay`), where what that
takes is still there. Nothing changes by that, so nobody downstream is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from types import MappingProxyType
from typing import Protocol

from lockstep.adapters.clock import read_time
from lockstep.adapters.lease import in_turn
from lockstep.control.model import PipelineState, RunState
from lockstep.control.output_log import require_equal
from lockstep.control.ports import Progress
from lockstep.control.reports import Backfilled, Committed, Maintained, Planned, Published
from lockstep.errors import SourceChanged, WrongUse

__all__ = [
    "DESIRED",
    "Advanced",
    "Ask",
    "Opened",
    "maintain",
    "plan",
    "planned_text",
    "publish",
    "replay",
    "run",
    "steps_text",
    "until_of",
]


class Ask(Enum):
    """What a run can ask of its pipeline."""

    ADVANCE = "advance"
    PAUSE = "pause"
    RESUME = "resume"
    STOP = "stop"
    RECONCILE = "reconcile"


DESIRED: Mapping[Ask, RunState] = MappingProxyType(
    {Ask.PAUSE: RunState.PAUSE, Ask.RESUME: RunState.RUN, Ask.STOP: RunState.STOP}
)


class Opened(Protocol):
    """What the tasks need of `lockstep.runtime.Pipeline`."""

    name: str

    def state(self) -> PipelineState: ...

    def plan(self, until: datetime | None, progress: Progress) -> Planned: ...

    def run(self, progress: Progress) -> Committed | None: ...

    def publish(self, progress: Progress) -> Published: ...

    def is_published(self, until: datetime) -> bool: ...

    def backfill(self, start: datetime, end: datetime, progress: Progress) -> Backfilled: ...

    def maintain(self, progress: Progress) -> Maintained: ...


@dataclass
class Advanced:
    """What the intervals of one run task add up to; `changes` by view, `errors` by source."""

    intervals: int = 0
    first_step: int | None = None
    last_step: int | None = None
    version: int | None = None
    records: int = 0
    changes: dict[str, int] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)

    def add(self, committed: Committed) -> None:
        """Count one more committed interval."""
        self.intervals += 1
        self.first_step = committed.first_step if self.first_step is None else self.first_step
        self.last_step, self.version = committed.last_step, committed.version
        self.records += committed.records
        _add(self.changes, committed.changes)
        _add(self.errors, committed.errors)

    @property
    def summary(self) -> str:
        """One line for people."""
        if self.first_step is None or self.last_step is None:
            return "nothing to run"
        intervals = "1 interval" if self.intervals == 1 else f"{self.intervals} intervals"
        return (
            f"{steps_text(self.first_step, self.last_step)}: {_rows(self.records, 'record')} in, "
            f"{_rows(sum(self.changes.values()), 'change')} out, {intervals}, "
            f"version {self.version}"
        )


def until_of(
    params: Mapping[str, object],
    data_interval_end: datetime | None,
    run_after: datetime,
    now: datetime,
) -> datetime | None:
    """Up to which time a DAG run advances; None means all that is there now.

    What the person asked for wins, then the end of the data interval, then, for a run by hand
    without one, the moment it was asked for. Raises WrongUse where `until` is in the future, as
    waiting for it would hold the pipeline, or where it is given together with `once`.
    """
    asked = params.get("until")
    if params.get("once"):
        if asked:
            raise WrongUse(
                "the run has both parameters, `until` and `once`",
                expected="one of them",
                found=f"until {asked} and once",
                next_step="trigger it again with `once` alone to take all that is there now",
            )
        return None
    if asked:
        time = read_time(str(asked), "the parameter `until`")
        if time > now:
            raise WrongUse(
                "the parameter `until` lies in the future",
                expected=f"a time up to {_utc(now)}",
                found=_utc(time),
                next_step="trigger the run again with a time that has passed",
            )
        return time
    return _plain(data_interval_end or run_after)


def plan(pipeline: Opened, until: datetime | None, progress: Progress) -> Planned:
    """Record the next division up to `until`; says what is there where nothing is left to do."""
    progress(f"pipeline {pipeline.name}: {_goal(until)}")
    planned = in_turn(lambda: pipeline.plan(until, progress), progress)
    if planned.interval is None:
        progress(_nothing_text(pipeline.state(), until))
    return planned


def run(pipeline: Opened, until: datetime | None, more: bool, progress: Progress) -> Advanced:
    """Run and commit what is pending; with `more`, plan and run on until `until` is recorded."""
    advanced = Advanced()
    while True:
        committed = in_turn(lambda: pipeline.run(progress), progress)
        if committed is not None:
            advanced.add(committed)
            progress(_committed_text(committed))
        if not more:
            break
        planned = in_turn(lambda: pipeline.plan(until, progress), progress)
        if planned.interval is None:
            break
        more = planned.behind
    progress(advanced.summary)
    return advanced


def replay(
    pipeline: Opened, start: datetime, end: datetime, progress: Progress
) -> Backfilled | None:
    """Run the steps of a data interval again and compare; None where they are not all published yet,
    so that there is something to advance, or where they cannot be compared any more: what is asked of a
    run is to advance, and that is done. Raises StateDiverged where they give other rows."""
    start, end = _plain(start), _plain(end)
    if not pipeline.is_published(end):
        return None
    progress(f"published already; the steps up to {_utc(end)} are run again and compared")
    try:
        found = in_turn(lambda: pipeline.backfill(start, end, progress), progress)
    except (WrongUse, SourceChanged) as error:
        # Too old, or of another project, or its records are gone. What also keeps a pipeline from
        # advancing is raised again by that.
        progress(f"not compared: {error}")
        return None
    progress(found.text)
    require_equal(pipeline.name, found.compared)
    return found


def publish(pipeline: Opened, progress: Progress) -> Published:
    """Move every sink to the newest version's last step."""
    published = in_turn(lambda: pipeline.publish(progress), progress)
    for sink in sorted(published.markers):
        seconds = published.seconds.get(sink)
        progress(
            f"{sink}: at step {published.markers[sink]}, "
            f"{_rows(published.rows.get(sink, 0), 'row')} published"
            + ("" if seconds is None else f" in {seconds:.1f} s")
        )
    return published


def maintain(pipeline: Opened, progress: Progress) -> Maintained:
    """Trim and sweep; says how much of what was done."""
    maintained = pipeline.maintain(progress)
    for kind, count in sorted(maintained.done.items()):
        progress(f"{kind}: {count:,}")
    return maintained


def steps_text(first_step: int, last_step: int) -> str:
    """'step 12', 'steps 12..17', 'no step'."""
    if last_step < first_step:
        return "no step"
    return f"step {first_step}" if first_step == last_step else f"steps {first_step}..{last_step}"


def planned_text(planned: Planned) -> str:
    """A division in one line, for the task's page."""
    if planned.interval is None:
        return "nothing to do"
    interval = planned.interval
    more = ", more to follow" if planned.behind else ""
    return (
        f"{steps_text(interval.first_step, interval.last_step)}, "
        f"{_rows(interval.records, 'record')}{more}"
    )


def _committed_text(committed: Committed) -> str:
    seconds = committed.seconds.get("total", sum(committed.seconds.values()))
    changes = ", ".join(f"{view} {rows:,}" for view, rows in sorted(committed.changes.items()))
    bad = {source: rows for source, rows in committed.errors.items() if rows}
    errors = "".join(f"; {rows:,} bad in {source}_errors" for source, rows in sorted(bad.items()))
    return (
        f"{steps_text(committed.first_step, committed.last_step)}: "
        f"{_rows(committed.records, 'record')} in, changes out: {changes or 'none'}{errors}; "
        f"version {committed.version}, {seconds:.1f} s"
    )


def _nothing_text(recorded: PipelineState, until: datetime | None) -> str:
    """A backfill of the past ends here: what it asks for has been recorded once, for good."""
    steps, version = steps_text(0, recorded.version.last_step), recorded.version.number
    if until is not None and recorded.last_time is not None and until <= recorded.last_time:
        return f"recorded already: {steps}, version {version}; nothing to do"
    return f"nothing to do; recorded are {steps}, version {version}"


def _goal(until: datetime | None) -> str:
    if until is None:
        return "advance to all that is there now"
    return f"advance until {_utc(until)} is recorded and published"


def _plain(time: datetime) -> datetime:
    """Airflow's times are pendulum's, whose differences do not divide by a plain timedelta."""
    return datetime.fromisoformat(time.isoformat()).astimezone(UTC)


def _utc(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _rows(count: int, noun: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count:,} {noun}s"


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, count in more.items():
        total[name] = total.get(name, 0) + count
