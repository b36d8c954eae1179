"""`run`, `trigger`, `pause`, `resume`, `stop`, `backfill`, `reconcile`, `maintain`: of one pipeline."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lockstep.adapters.clock import read_time
from lockstep.adapters.lease import in_turn
from lockstep.adapters.settings import Settings
from lockstep.cli.names import pipeline_name
from lockstep.cli.output import command, progress, show
from lockstep.cli.spark import spark_for
from lockstep.control.maintenance import MAINTENANCE_SECONDS
from lockstep.control.model import RunState, RunStatus
from lockstep.errors import LockstepError, NotDeployed, WrongUse

if TYPE_CHECKING:
    from lockstep.adapters.airflow_api import DagRun
    from lockstep.control.reports import Committed, Published
    from lockstep.runtime import Pipeline

__all__ = ["register"]

POLL_SECONDS = 1.0
FINAL_STATES = ("success", "failed")


def register(cli: click.Group) -> None:
    """Add the commands of this module."""
    command(cli, "run", "lockstep run shop --once")(run)
    command(cli, "trigger", "lockstep trigger shop --wait")(trigger)
    command(cli, "pause", "lockstep pause shop --wait")(pause)
    command(cli, "resume", "lockstep resume shop")(resume)
    command(cli, "stop", "lockstep stop shop --wait")(stop)
    command(
        cli, "backfill", "lockstep backfill shop --from 2026-01-31T12:00Z --to 2026-01-31T13:00Z"
    )(backfill)
    command(cli, "reconcile", "lockstep reconcile shop")(reconcile)
    command(cli, "maintain", "lockstep maintain shop")(maintain)


@dataclass(frozen=True)
class Ran:
    """What `run` did: the intervals committed by it, and where each sink is now."""

    pipeline: str
    intervals: tuple[Committed, ...]
    markers: dict[str, int]


@click.argument("folder", metavar="DIR")
@click.option("--once", is_flag=True, help="All that is there now, then stop (the default).")
@click.option("--follow", is_flag=True, help="An interval each `lockstep.interval`, until Ctrl-C.")
@click.option("--until", metavar="TIME", help="ISO 8601; without a zone it is UTC. Then stop.")
def run(folder: str, once: bool, follow: bool, until: str | None) -> None:
    """Run intervals of the project in DIR without Airflow; deploys it if that was not done yet. It
    maintains too, every ten minutes.

    Where no Spark is up, one is started for this command alone.
    """
    given = {"--once": once, "--follow": follow, "--until": until is not None}
    _require_one_at_most(given, f"lockstep run {folder} --once")
    end = read_time(until, "--until") if until else None
    settings = Settings.load()
    name = _deployed(folder, settings)
    with _opened(name, settings) as pipeline:
        done: list[Committed] = []
        published: Published | None = None
        maintained = time.monotonic()
        for moment in _moments(pipeline, follow, end):
            published = _advance(pipeline, moment, done)
            if time.monotonic() - maintained >= MAINTENANCE_SECONDS:
                pipeline.maintain(progress)
                maintained = time.monotonic()
        markers = dict(published.markers) if published else {}
    result = Ran(name, tuple(done), markers)
    show(result, lambda: _ran_text(result))


@click.argument("pipeline", metavar="PIPELINE|DIR")
@click.option("--until", metavar="TIME", help="Advance to this time, ISO 8601. Default: now.")
@click.option("--once", is_flag=True, help="All that is there now, as one interval.")
@click.option("--wait", is_flag=True, help="Until the run has ended; exit code 1 if it failed.")
def trigger(pipeline: str, until: str | None, once: bool, wait: bool) -> None:
    """Start a run of the pipeline's DAG in Airflow."""
    from lockstep.adapters import airflow_api

    given = {"--once": once, "--until": until is not None}
    _require_one_at_most(given, f"lockstep trigger {pipeline} --once")
    settings = Settings.load()
    conf: dict[str, object] = {}
    if until:
        conf["until"] = read_time(until, "--until").isoformat()
    if once:
        conf["once"] = True
    started = airflow_api.trigger(settings, pipeline_name(pipeline), conf)
    while wait and started.state not in FINAL_STATES:
        time.sleep(POLL_SECONDS)
        started = airflow_api.run_state(settings, started)
    show(started, lambda: f"run {started.run_id} is {started.state}\n{started.url}")
    _check_success(started)


@click.argument("pipeline", metavar="PIPELINE|DIR")
@click.option("--from", "start", metavar="TIME", required=True, help="ISO 8601; steps after it.")
@click.option("--to", "end", metavar="TIME", required=True, help="ISO 8601; steps up to it.")
def backfill(pipeline: str, start: str, end: str) -> None:
    """Run recorded steps again, from a version kept before them, and compare their output with what it
    was. Changes nothing; a difference ends with exit code 2.

    Where no Spark is up, one is started for this command alone.
    """
    from lockstep.control.output_log import require_equal

    name = pipeline_name(pipeline)
    times = read_time(start, "--from"), read_time(end, "--to")
    with _opened(name, Settings.load()) as opened:
        found = in_turn(lambda: opened.backfill(*times, progress), progress)
    show(found, lambda: found.text)
    require_equal(name, found.compared)


@click.argument("pipeline", metavar="PIPELINE|DIR")
@click.option("--forget", metavar="SOURCE", multiple=True, help="Read it from what it holds now.")
def reconcile(pipeline: str, forget: tuple[str, ...]) -> None:
    """Have all state made anew from the sources in the next interval, which publishes by what the views
    then differ: after a source was corrected or made anew, or where state is not trusted."""
    from lockstep import deploying

    state = deploying.reconcile(pipeline_name(pipeline), Settings.load(), forget)
    result = {"pipeline": state.name, "version": state.version.number, "step": state.next_step}

    def text() -> str:
        what = f"step {state.next_step} of {state.name} makes all state anew"
        if state.version.number == 0:
            what = f"{state.name} has no state yet, and reads {', '.join(forget)} from what it holds now"
        return f"{what}\nnext: lockstep trigger {state.name} --once, or lockstep run DIR --once"

    show(result, text)


@click.argument("pipeline", metavar="PIPELINE|DIR")
def maintain(pipeline: str) -> None:
    """Merge small files, trim versions that are not kept, sweep what dead attempts have left.

    Intervals may go on meanwhile. Airflow does it by itself, in a DAG of its own.

    Where no Spark is up, one is started for this command alone.
    """
    with _opened(pipeline_name(pipeline), Settings.load()) as opened:
        maintained = opened.maintain(progress)
    show(maintained, lambda: "\n".join(f"{kind}: {n}" for kind, n in maintained.done.items()))


@contextmanager
def _opened(name: str, settings: Settings) -> Iterator[Pipeline]:
    """A pipeline on the Spark that is up, or on one for this command alone, which ends with it."""
    from lockstep import runtime
    from lockstep.sql.reading.spec import parse_spec

    # Ended from outside it still ends the Spark that it started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    configuration = parse_spec(runtime.recorded(name, settings).files.spec).configuration
    with (
        spark_for(configuration, settings) as ready,
        runtime.open_pipeline(name, ready) as pipeline,
    ):
        yield pipeline


_WAIT = click.option("--wait", is_flag=True, help="Until it is there, however long that takes.")


@click.argument("pipeline", metavar="PIPELINE|DIR")
@_WAIT
def pause(pipeline: str, wait: bool) -> None:
    """Let the interval that is recorded end, and begin no other."""
    _desire(pipeline, RunState.PAUSE, wait)


@click.argument("pipeline", metavar="PIPELINE|DIR")
def resume(pipeline: str) -> None:
    """Let a pipeline go on that is paused or stopped."""
    _desire(pipeline, RunState.RUN, wait=False)


@click.argument("pipeline", metavar="PIPELINE|DIR")
@click.option(
    "--at", type=click.IntRange(0), help="The first step that is not done. Default: the next."
)
@_WAIT
def stop(pipeline: str, at: int | None, wait: bool) -> None:
    """Let a pipeline do all steps before one, and no other."""
    _desire(pipeline, RunState.STOP, wait, at)


def _desire(pipeline: str, desired: RunState, wait: bool, at: int | None = None) -> None:
    from lockstep import runtime

    name, settings = pipeline_name(pipeline), Settings.load()
    state = runtime.desire(name, desired, settings, at)
    if wait:
        state = runtime.at_rest(name, settings)
    result = {"pipeline": name, "state": state.status.value, "step": state.next_step}

    def text() -> str:
        match state.status:
            case RunStatus.RUN:
                return f"pipeline {name} runs; the next step is {state.next_step}"
            case RunStatus.PAUSE:
                return f"pipeline {name} pauses before step {state.next_step}"
            case RunStatus.STOP:
                return f"pipeline {name} stops before step {state.stop_at}"
            case RunStatus.PAUSED | RunStatus.STOPPED:
                return f"pipeline {name} is {state.status.value} before step {state.next_step}"

    show(result, text)


def _require_one_at_most(given: Mapping[str, bool], next_step: str) -> None:
    """Raises WrongUse where several options are given of which one says what to do."""
    if sum(given.values()) < 2:
        return
    *others, last = given
    raise WrongUse(
        f"{', '.join(others)} and {last} exclude each other",
        expected="one of them",
        found=" and ".join(name for name, is_given in given.items() if is_given),
        next_step=next_step,
    )


def _check_success(ended: DagRun) -> None:
    if ended.state == "failed":
        raise LockstepError(
            f"run {ended.run_id} of pipeline {ended.pipeline} failed",
            expected="success",
            found="failed",
            next_step=f"read its task logs at {ended.url}",
        )


def _deployed(folder: str, settings: Settings) -> str:
    """The name of the project; deploys it where it is not, and says where the record is older."""
    from lockstep import deploying, runtime
    from lockstep.sql.reading.spec import parse_spec, read_project_files

    files = read_project_files(Path(folder))
    name = parse_spec(files.spec).name
    try:
        recorded = runtime.recorded(name, settings).files
    except NotDeployed:
        deploying.deploy(folder, settings)
        progress(f"pipeline {name} is deployed")
        return name
    # Before a Spark is started in vain.
    runtime.require_broker(name, recorded, settings)
    if (recorded.spec, recorded.written) != (files.spec, files.written):
        progress(
            f"{folder} differs from what is deployed, which is what runs; "
            f"`lockstep deploy {folder}` records it"
        )
    return name


def _moments(pipeline: Pipeline, follow: bool, end: datetime | None) -> Iterator[datetime | None]:
    """The times to advance to: None once; or each end of an interval when it has come, up to `end`."""
    from lockstep.control.steps import StepLimits

    if not follow and end is None:
        yield None
        return
    configuration = pipeline.project.configuration
    length = StepLimits.from_configuration(configuration).interval_seconds
    moment = _floor(datetime.now(UTC), length)
    while end is None or moment < end:
        yield moment
        moment += timedelta(seconds=length)
        due = moment if end is None else min(moment, end)
        time.sleep(max(0.0, (due - datetime.now(UTC)).total_seconds()))
        # What took longer than an interval is caught up with in one go.
        moment = max(moment, _floor(datetime.now(UTC), length))
    yield end


def _floor(moment: datetime, seconds: float) -> datetime:
    return datetime.fromtimestamp(moment.timestamp() // seconds * seconds, UTC)


def _advance(pipeline: Pipeline, until: datetime | None, done: list[Committed]) -> Published:
    """Plan and run until there is no more up to that time, then publish."""
    published: Published | None = None
    while published is None:
        published = in_turn(lambda: _interval(pipeline, until, done), progress)
    return published


def _interval(
    pipeline: Pipeline, until: datetime | None, done: list[Committed]
) -> Published | None:
    """One interval, in one go; None where there is more up to that time, and nothing is published."""
    with pipeline.held(progress):
        planned = pipeline.plan(until, progress)
        if planned.interval is not None:
            committed = pipeline.run(progress)
            if committed is not None:
                done.append(committed)
            if planned.behind:
                return None
        return pipeline.publish(progress)


def _ran_text(ran: Ran) -> str:
    if not ran.intervals:
        lines = [f"pipeline {ran.pipeline}: nothing to do"]
    else:
        records = sum(c.records for c in ran.intervals)
        changes = sum(sum(c.changes.values()) for c in ran.intervals)
        bad = sum(sum(c.errors.values()) for c in ran.intervals)
        lines = [
            f"pipeline {ran.pipeline}: version {ran.intervals[-1].version}, steps "
            f"{ran.intervals[0].first_step}..{ran.intervals[-1].last_step}, {records:,} records in, "
            f"{changes:,} changes out, {bad:,} bad records"
        ]
    lines += [f"{sink} is at step {step}" for sink, step in sorted(ran.markers.items())]
    return "\n".join(lines)
