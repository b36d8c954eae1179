#!/usr/bin/env python3
"""The flights of a year under Airflow in a few minutes, with a kill in the middle, and the proof.

    python examples/demo.py

A stack of its own is started below demo/home; the project examples/flights is deployed and its data
replayed; Airflow's scheduler runs an interval every 30 seconds, each of six steps. In the run stage
of one of them the Spark server is killed (kill -9 of its JVM, so the job is gone in mid-write); it is
started again, and Airflow's retry of the task does the interval over. At the end an independent
reader compares what the Kafka sink and the Iceberg views hold with what they should.

Writes demo/report.json and demo/delay_by_carrier.png. Exits 0 only if everything agreed. The stack
is stopped in the end, whatever happened.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import demo_reading as reading

from lockstep.adapters.embedded import stack
from lockstep.adapters.embedded.airflow import USER
from lockstep.adapters.embedded.ports import free_ports
from lockstep.adapters.settings import Settings
from lockstep.adapters.sql_store import SqlStore
from lockstep.adapters.verify import ViewCheck, verify
from lockstep.control.model import Attempt, AttemptState, PipelineState
from lockstep.deploying import deploy
from lockstep.errors import LockstepError
from lockstep.runtime import load_project
from lockstep.sql.circuit import Project

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "flights"
PIPELINE = "flights"
SINK, SINK_VIEW = "worst_routes_topic", "worst_routes"
SINK_TOPIC = "worst_routes"

INTERVALS = 5
STEPS = 6
BAD_RECORDS = 6
RUNS_BEFORE_KILL = 1
KILL_DELAY_SECONDS = 1.0
POLL_SECONDS = 0.2
ASK_AIRFLOW_SECONDS = 2.0

STARTED = time.monotonic()


def say(line: str) -> None:
    """One line of progress, with the seconds since the start."""
    print(f"{time.monotonic() - STARTED:6.1f} s  {line}", flush=True)


class DemoError(Exception):
    """Something did not happen that the demo is there to show."""


@dataclass
class Watched:
    """What has been seen so far: finished runs by id, the attempt that was killed, if any."""

    intervals: dict[str, dict[str, Any]] = field(default_factory=dict)
    idle_runs: set[str] = field(default_factory=set)
    victim: Attempt | None = None

    @property
    def counted(self) -> int:
        """Intervals that are as long as the demo promises."""
        return sum(one["steps"] >= STEPS for one in self.intervals.values())


# ── the stack and the data ──────────────────────────────────────────────────────────────────────


@contextmanager
def running_stack(home: Path, options: stack.StackOptions) -> Iterator[Settings]:
    """A fresh stack below `home`, stopped at the end."""
    try:
        stack.up(home, options, say)
        yield Settings.load({"LOCKSTEP_HOME": str(home)})
    finally:
        say("stopping the stack")
        stack.down(home, lambda _: None)


@contextmanager
def replaying(bootstrap: str, seconds: float, limit: int | None) -> Iterator[subprocess.Popen[str]]:
    """The flights on their way into Kafka, in a process of its own."""
    command = [sys.executable, str(EXAMPLE / "replay.py"), "--bootstrap", bootstrap]
    command += ["--seconds", str(seconds), "--bad-records", str(BAD_RECORDS)]
    command += [] if limit is None else ["--limit", str(limit)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def create_topics(bootstrap: str) -> None:
    """The topics of the sources and of the sink, made by the replay."""
    command = [sys.executable, str(EXAMPLE / "replay.py"), "--bootstrap", bootstrap]
    subprocess.run([*command, "--only-topics"], check=True)


# ── watching, and the kill ──────────────────────────────────────────────────────────────────────


def take_finished_runs(airflow: reading.Airflow, watched: Watched) -> None:
    """Report each scheduled run that has ended; raises DemoError for a failed one."""
    for run in reading.scheduled_runs(airflow, PIPELINE) or ():
        name = run["dag_run_id"]
        if name in watched.intervals or name in watched.idle_runs:
            continue
        if run["state"] == "failed":
            raise DemoError(f"the scheduled run {name} has failed; its log is in demo/home/airflow")
        if run["state"] != "success":
            continue
        interval = reading.interval_of(airflow, PIPELINE, name)
        if not interval:
            # {} is a run with nothing to do; None is no answer, so ask again.
            watched.idle_runs |= set() if interval is None else {name}
            continue
        watched.intervals[name] = interval
        seconds = ", ".join(f"{stage} {took:.1f} s" for stage, took in interval["seconds"].items())
        say(
            f"interval {len(watched.intervals)}: steps {interval['first_step']}.."
            f"{interval['last_step']}, {interval['records_in']:,} records in, "
            f"{interval['changes_out']:,} changes out ({seconds})"
        )


def running_attempt(state: PipelineState) -> Attempt | None:
    """The attempt that is at work on the pending interval, if that holds records at all."""
    if state.pending is None or state.pending.records == 0:
        return None
    return next(
        (
            attempt
            for attempt in state.attempts
            if attempt.state is AttemptState.RUNNING
            and attempt.first_step == state.pending.first_step
        ),
        None,
    )


def kill_spark(home: Path, options: stack.StackOptions, store: SqlStore) -> Attempt | None:
    """kill -9 the JVM that runs an attempt's job, and start Spark again; the attempt, or None where
    it had finished before the blow."""
    before = running_attempt(store.read(PIPELINE))
    if before is None:
        return None
    time.sleep(KILL_DELAY_SECONDS)
    if running_attempt(store.read(PIPELINE)) != before:
        return None
    pid = next(part.pid for part in stack.status(home) if part.name == "spark")
    assert pid is not None, "an attempt is running, so Spark is"
    os.kill(pid, signal.SIGKILL)
    say(
        f"kill -9 of the Spark server (process {pid}) while attempt {before.id} was running steps "
        f"{before.first_step}..{before.last_step}"
    )
    # The demo has started the server, so it can wait for its very end: only then is the port free.
    os.waitpid(pid, 0)
    stack.up(home, options, say)
    return before


def is_all_published(state: PipelineState, project: Project) -> bool:
    """Every record in Kafka is in a committed step, and every sink has published it."""
    from confluent_kafka import Consumer, TopicPartition

    if state.pending is not None or not state.positions:
        return False
    if any(sink.published_step != state.version.last_step for sink in state.sinks):
        return False
    options = {source.name: source.options for source in project.sources}
    for position in state.positions:
        bootstrap = options[position.source]["kafka.bootstrap.servers"]
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "demo"})
        try:
            for reached in position.ranges:
                partition = TopicPartition(position.topic, reached.partition)
                if consumer.get_watermark_offsets(partition, timeout=10)[1] > reached.end:
                    return False
        finally:
            consumer.close()
    return True


def watch(
    home: Path,
    options: stack.StackOptions,
    settings: Settings,
    project: Project,
    replay: subprocess.Popen[str],
    deadline: float,
) -> Watched:
    """Until at least five full intervals are published, one of them after a kill, and all data is.

    Raises DemoError where a run or the replay fails, or the time is over.
    """
    airflow = reading.log_in(settings.airflow_url, USER, stack.password(home))
    store = SqlStore(settings.store_url)
    watched = Watched()
    asked = 0.0
    while True:
        if time.monotonic() - STARTED > deadline:
            raise DemoError(
                f"after {deadline:.0f} s: {watched.counted} intervals of {STEPS} steps, expected "
                f"{INTERVALS}; killed: {watched.victim is not None}"
            )
        if replay.poll() not in (None, 0):
            raise DemoError(f"the replay ended with exit code {replay.returncode}")
        if watched.victim is None and len(watched.intervals) >= RUNS_BEFORE_KILL:
            watched.victim = kill_spark(home, options, store)
        if time.monotonic() - asked > ASK_AIRFLOW_SECONDS:
            asked = time.monotonic()
            take_finished_runs(airflow, watched)
            enough = watched.counted >= INTERVALS and watched.victim is not None
            if enough and replay.poll() == 0 and is_all_published(store.read(PIPELINE), project):
                # What the schedule still runs from here on has no input, and changes nothing.
                say(f"all is published, up to step {store.read(PIPELINE).version.last_step}")
                return watched
        time.sleep(POLL_SECONDS)


# ── the proof ───────────────────────────────────────────────────────────────────────────────────


def count_faults(
    settings: Settings, project: Project, checks: Sequence[ViewCheck]
) -> tuple[int, int]:
    """Changes lost and duplicated: in the Kafka sink against the outbox, step by step, and in the
    views against what a recomputation from Kafka gives."""
    catalog = reading.open_catalog(project, settings)
    sent = reading.read_outbox(catalog, project, SINK_VIEW)
    columns = next(view.columns for view in project.views if view.name == SINK_VIEW)
    received: Counter[reading.Row] = Counter()
    for step, value in reading.committed_changes(settings.kafka, SINK_TOPIC):
        received[(step, *(value[column] for column in columns))] += value["_weight"]
    lost, duplicated = reading.lost_and_duplicated(received, sent)
    say(
        f"Kafka sink {SINK}: {sum(map(abs, received.values())):,} changes in the topic, "
        f"{sum(map(abs, sent.values())):,} in the outbox: {lost} lost, {duplicated} duplicated"
    )
    lost += sum(check.missing for check in checks)
    duplicated += sum(check.unexpected for check in checks)
    return lost, duplicated


def was_got_over(watched: Watched, state: PipelineState) -> bool:
    """The killed attempt never committed, and another one did its interval."""
    victim = watched.victim
    if victim is None:
        return False
    recorded = state.attempt(victim.id)
    is_dead = recorded is None or recorded.state is not AttemptState.COMMITTED
    return is_dead and state.version.last_step >= victim.last_step


def show(checks: Sequence[ViewCheck]) -> None:
    """The views as a table."""
    print(f"\n{'view':<24}{'rows':>10}{'step':>7}  against a recomputation from Kafka by DuckDB")
    for check in checks:
        found = "equal" if check.equal else f"{check.missing} missing, {check.unexpected} too many"
        print(f"{check.view:<24}{check.rows_published:>10,}{check.step:>7}  {found}")
        for line in check.sample:
            print(f"    {line}")
    print(flush=True)


def report_of(
    watched: Watched, faults: tuple[int, int], killed: int, checks: Sequence[ViewCheck]
) -> dict[str, Any]:
    shown = ("steps", "records_in", "changes_out", "seconds")
    return {
        "intervals": [{key: one[key] for key in shown} for one in watched.intervals.values()],
        "lost": faults[0],
        "duplicated": faults[1],
        "killed": killed,
        "verify": {check.view: check.equal for check in checks},
    }


def is_good(report: Mapping[str, Any]) -> bool:
    full = [one for one in report["intervals"] if one["steps"] >= STEPS]
    return (
        len(full) >= INTERVALS
        and report["lost"] == report["duplicated"] == 0
        and report["killed"] == 1
        and all(report["verify"].values())
    )


def demonstrate(folder: Path, seconds: float, limit: int | None, deadline: float) -> bool:
    """The whole demo below `folder`; True if everything agreed."""
    home = folder / "home"
    ports = dict(zip(stack.PORTS, free_ports(len(stack.PORTS)), strict=True))
    options = stack.StackOptions(ports=ports)
    with running_stack(home, options) as settings:
        say(f"Airflow: {settings.airflow_url}  Kafka: {settings.kafka}  Spark: {settings.spark_ui}")
        create_topics(settings.kafka)
        deploy(str(EXAMPLE), settings)
        project, circuit = load_project(str(EXAMPLE), settings)
        say(
            f"deployed {PIPELINE}: {len(circuit.outboxes)} published views, "
            f"{len(circuit.operators)} operators, {len(circuit.traces)} traces"
        )
        with replaying(settings.kafka, seconds, limit) as replay:
            say(f"replaying 2013 in {seconds:.0f} s; an interval every 30 s, a step every 5 s")
            watched = watch(home, options, settings, project, replay, deadline)
        state = SqlStore(settings.store_url).read(PIPELINE)
        say("recomputing every view from Kafka's raw records with DuckDB")
        checks = verify(PIPELINE, settings, lambda line: say(f"  {line}"))
        faults = count_faults(settings, project, checks)
        killed = int(was_got_over(watched, state))
        catalog = reading.open_catalog(project, settings)
        daily = catalog.load_table((project.database, "departures_by_day"))
        reading.draw_delays(daily, folder / "delay_by_carrier.png")
    show(checks)
    report = report_of(watched, faults, killed, checks)
    (folder / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    say(f"{folder / 'report.json'} and {folder / 'delay_by_carrier.png'} are written")
    return is_good(report)


def end(_signal: int, _frame: object) -> None:
    """SIGTERM ends the demo as Ctrl-C does: with the stack stopped."""
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=ROOT / "demo", help="for all it writes")
    parser.add_argument("--seconds", type=float, default=150, help="how long the replay takes")
    parser.add_argument("--limit", type=int, help="only the first so many flights")
    parser.add_argument("--deadline", type=float, default=320, help="give up after so many seconds")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, end)
    folder = asked.folder.resolve()
    stack.down(folder / "home", lambda _: None)
    shutil.rmtree(folder / "home", ignore_errors=True)
    (folder / "home").mkdir(parents=True)
    try:
        good = demonstrate(folder, asked.seconds, asked.limit, asked.deadline)
    except (DemoError, LockstepError, OSError) as error:
        say(f"failed: {error}")
        return 1
    except KeyboardInterrupt:
        say("interrupted")
        return 1
    say("everything agreed" if good else "NOT everything agreed: see the report")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
