"""One strike: input, a victim, a moment, what happens to it there, and the way back.

The victim's pipeline is driven by processes of its own (`tests/end_to_end/drive.py`) or by Airflow.
A driver stops itself at a named point, or is caught at a random moment; then the victim is killed, or
paused for some seconds while another driver starts. Recovery is from the strike until all that was
sent before it is published, by whoever gets there.
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from torture_servers import BROKER, ROOT, SCHEDULER, SPARK, Servers

from lockstep import scaling
from lockstep.adapters import airflow_api
from lockstep.adapters.settings import Settings
from lockstep.control.layout.scaling import scaled
from lockstep.errors import LockstepError
from lockstep.runtime import recorded

sys.path.insert(0, str(ROOT / "tests" / "end_to_end"))
import drive
import reader
from driven import FORKS
from long_lived import LongLived
from stopping import AS_IF_LARGE, AnyPoint, Ways, name_of, stop_at, stopped

__all__ = ["RANDOM", "Action", "Field", "Outcome", "Strike", "TortureError", "Victim"]

RANDOM = "random"
ROWS, MORE_ROWS = 60, 12
DRIVER_SECONDS, GIVE_UP_SECONDS = 600.0, 900.0
ERROR_CHARACTERS = 6000
TRIGGER_SECONDS = 60.0
CHANCES = 6
"""How often a moment is looked for again, where a driver had ended before it."""
POLL_SECONDS = 0.02
REFUSED = 2


class TortureError(Exception):
    """The pipeline did not get over a strike, or the strike could not be made."""


class Victim(Enum):
    """Who is struck."""

    TASK = "task"
    MAINTENANCE = "maintenance"
    SPARK = "spark"
    BROKER = "broker"
    AIRFLOW_TASK = "airflow task"
    SCHEDULER = "airflow scheduler"

    @property
    def is_of_airflow(self) -> bool:
        """Whether Airflow drives the pipeline."""
        return self in (Victim.AIRFLOW_TASK, Victim.SCHEDULER)


SERVER_OF = {Victim.SPARK: SPARK, Victim.BROKER: BROKER, Victim.SCHEDULER: SCHEDULER}


class Action(Enum):
    """What happens to it: SIGKILL, or SIGSTOP and later SIGCONT."""

    KILL = "kill"
    STOP = "stop"


@dataclass(frozen=True)
class Strike:
    """One run. `point` None: after `share` of a normal interval. A victim that is stopped sleeps for
    `sleep_seconds`. `ways`: few rows may take those of many. `with_rival`: two drivers start at
    once. `with_maintenance`: maintenance starts too, after another share of an interval.
    `with_more_input`: records go on coming in after the strike. `scaled_to`: the layout changes right
    after it, to so many workers; under the interval under way, too, where `scaled_at_once`."""

    pipeline: str
    victim: Victim
    action: Action
    point: AnyPoint | None
    share: float
    sleep_seconds: float
    ways: Ways = Ways.OF_FEW
    with_rival: bool = False
    with_maintenance: float | None = None
    with_more_input: bool = False
    scaled_to: int | None = None
    scaled_at_once: bool = False

    @property
    def kind(self) -> str:
        """Victim and action."""
        return f"{self.victim.value} {self.action.value}"

    @property
    def moment(self) -> str:
        """The point's name, or 'random'."""
        return RANDOM if self.point is None else name_of(self.point)


@dataclass(frozen=True)
class Outcome:
    """What came of a strike: seconds to recover, tries that took, what the reader found."""

    seconds: float
    tries: int
    findings: reader.Findings


class Field:
    """Where strikes are made: servers, pipelines, and how long an interval normally takes."""

    def __init__(
        self,
        folder: Path,
        servers: Servers,
        pipelines: Mapping[str, LongLived],
        say: Callable[[str], None],
    ) -> None:
        self.servers = servers
        self.pipelines = pipelines
        self._normal: list[float] = []
        self._home = Settings.load(servers.variables).home
        self._log = folder / "drivers.log"
        self._say = say
        self._drivers: list[ForkServerProcess] = []
        self._timers: list[threading.Timer] = []

    def measure_normal(self) -> float:
        """Seconds of drivers that nobody disturbs, one of each pipeline: the median of all so far."""
        for pipeline in self.pipelines.values():
            pipeline.change(ROWS)
            started = time.monotonic()
            self._recover(pipeline, started)
            self._normal.append(time.monotonic() - started)
        return self.normal_seconds

    @property
    def normal_seconds(self) -> float:
        """0 where none was measured."""
        return statistics.median(self._normal) if self._normal else 0.0

    def strike(self, strike: Strike) -> Outcome:
        """Make one. Raises TortureError."""
        pipeline = self.pipelines[strike.pipeline]
        if strike.victim.is_of_airflow:
            seconds, tries, sent = self._strike_airflow(strike, pipeline)
        else:
            seconds, tries, sent = self._strike_driver(strike, pipeline)
        pipeline.flush()
        self._wait_for_drivers()
        while not pipeline.is_settled:
            # A zombie that woke up late began something.
            self._recover(pipeline, time.monotonic())
        return Outcome(seconds, tries, pipeline.check(sent))

    def end(self) -> None:
        """End the drivers that still run."""
        stop_at(self._home, "", None)
        for driver in self._drivers:
            driver.kill()
            driver.join()

    # ── drivers ─────────────────────────────────────────────────────────────────────────────────

    def _start(
        self, pipeline: LongLived, work: str = "advance", *, ways: Ways = Ways.OF_FEW
    ) -> ForkServerProcess:
        variables = {**self.servers.variables, AS_IF_LARGE: ways.value}
        driver = FORKS.Process(
            target=drive.drive_forked, args=(pipeline.name, work, variables, self._log)
        )
        driver.start()
        self._drivers.append(driver)
        return driver

    def _end_of(self, driver: ForkServerProcess) -> int:
        """Its exit code. A refusal is never right: Airflow would not try again after it."""
        driver.join(DRIVER_SECONDS)
        code = driver.exitcode
        if code is None:
            raise TortureError(f"a driver did not end in {DRIVER_SECONDS:.0f} s")
        if code == REFUSED:
            raise TortureError("a driver was refused what another try would have to do")
        if code > REFUSED:
            self._say(
                f"an error that is none of Lockstep's own (exit code {code}):\n{self._last_error()}"
            )
        return code

    def _last_error(self) -> str:
        """The last one that the drivers' log has; the log goes with the folder."""
        log = self._log.read_text("utf-8", errors="replace")
        return log[log.rfind("Traceback (most recent call last)") :][:ERROR_CHARACTERS]

    def _recover(self, pipeline: LongLived, since: float, *, ways: Ways = Ways.OF_FEW) -> int:
        """Drive until a driver that began now ends well; how many it took."""
        tries = 1
        while self._end_of(self._start(pipeline, ways=ways)):
            if time.monotonic() - since > GIVE_UP_SECONDS:
                raise TortureError(f"not recovered after {tries} tries; see {self._log}")
            tries += 1
        return tries

    def _wait_for_drivers(self) -> None:
        """And for those that are still to start or to wake up."""
        for timer in self._timers:
            timer.join()
        self._timers.clear()
        for driver in self._drivers:
            self._end_of(driver)
        self._drivers.clear()

    # ── a strike at drivers ─────────────────────────────────────────────────────────────────────

    def _strike_driver(self, strike: Strike, pipeline: LongLived) -> tuple[float, int, int]:
        victim = self._at_the_moment(strike, pipeline)
        struck, sent = time.monotonic(), pipeline.sent
        self._hit(strike, victim)
        self._scale(strike, pipeline)
        if strike.with_more_input:
            pipeline.send(MORE_ROWS)
        tries = self._recover(pipeline, struck, ways=strike.ways)
        seconds = time.monotonic() - struck
        if strike.victim is Victim.MAINTENANCE:
            self._start(pipeline, "maintain")
        return seconds, tries, sent

    def _at_the_moment(self, strike: Strike, pipeline: LongLived) -> int:
        """Start what the strike says; the process that is at the moment: it has stopped itself at the
        point, or it is at work. Looks for the moment again where it has been missed."""
        share = strike.share
        for _ in range(CHANCES):
            pipeline.change(ROWS)
            stop_at(self._home, pipeline.name, strike.point)
            first = self._start(pipeline, ways=strike.ways)
            if strike.with_rival:
                self._start(pipeline, ways=strike.ways)
            if strike.with_maintenance is not None:
                wait_seconds = strike.with_maintenance * self.normal_seconds
                self._later(wait_seconds, self._start, pipeline, "maintain")
            if strike.victim is Victim.MAINTENANCE:
                first = self._start(pipeline, "maintain")
            found = self._wait_for_moment(strike, first, share)
            if found is not None:
                return found
            self._wait_for_drivers()
            share *= 0.6
        raise TortureError(f"no driver was caught at {strike.moment} in {CHANCES} tries")

    def _later(self, seconds: float, what: Callable[..., object], *arguments: object) -> None:
        timer = threading.Timer(seconds, what, arguments)
        self._timers.append(timer)
        timer.start()

    def _wait_for_moment(
        self, strike: Strike, driver: ForkServerProcess, share: float
    ) -> int | None:
        """The process id, or None where all drivers had ended before."""
        if strike.point is None:
            time.sleep(share * self.normal_seconds)
            return driver.pid if driver.is_alive() else None
        while (found := stopped(self._home)) is None:
            if not any(one.is_alive() for one in self._drivers):
                return None
            time.sleep(POLL_SECONDS)
        return found

    def _hit(self, strike: Strike, process_id: int) -> None:
        """Strike; what sleeps wakes up later. A process that stopped goes on, if it is no victim."""
        server = SERVER_OF.get(strike.victim)
        match strike.action, server:
            case Action.KILL, None:
                os.kill(process_id, signal.SIGKILL)
                self._collect(process_id)
            case Action.STOP, None:
                os.kill(process_id, signal.SIGSTOP)
                self._later(strike.sleep_seconds, os.kill, process_id, signal.SIGCONT)
            case Action.KILL, str():
                self.servers.kill(server)
                os.kill(process_id, signal.SIGCONT)
                self.servers.start(server)
            case Action.STOP, str():
                self.servers.pause(server)
                self._later(strike.sleep_seconds, self.servers.resume, server)
                os.kill(process_id, signal.SIGCONT)

    @staticmethod
    def _scale(strike: Strike, pipeline: LongLived) -> None:
        """What an attempt has done under another layout is void, or it commits first."""
        workers, at_once = strike.scaled_to, strike.scaled_at_once
        if workers is None:
            return
        settings = pipeline.settings
        plan = scaling.plan_change(
            pipeline.name, lambda newest: scaled(newest, workers), settings, at_once=at_once
        )
        scaling.change(plan, settings)

    def _collect(self, process_id: int) -> None:
        """Until its parent has collected it, a dead process has an id that somebody may ask for."""
        for driver in self._drivers:
            if driver.pid == process_id:
                driver.join()

    # ── a strike at Airflow ─────────────────────────────────────────────────────────────────────

    def _strike_airflow(self, strike: Strike, pipeline: LongLived) -> tuple[float, int, int]:
        settings = pipeline.settings
        for _ in range(CHANCES):
            pipeline.change(ROWS)
            stop_at(self._home, pipeline.name, strike.point)
            run = self._triggered(pipeline)
            victim = self._task_at_the_moment(strike, pipeline, run)
            if victim is not None:
                break
        else:
            raise TortureError(f"no task was caught at {strike.moment} in {CHANCES} tries")
        struck, sent = time.monotonic(), pipeline.sent
        self._hit(strike, victim)
        self._scale(strike, pipeline)
        if strike.with_more_input:
            pipeline.send(MORE_ROWS)
        while (state := self._state(settings, run)) not in ("success", "failed"):
            if time.monotonic() - struck > GIVE_UP_SECONDS:
                raise TortureError(f"Airflow's run {run.run_id} is {state} for ever")
            time.sleep(POLL_SECONDS * 10)
        if state == "failed":
            raise TortureError(f"Airflow's run {run.run_id} failed")
        return time.monotonic() - struck, 1, sent

    @staticmethod
    def _triggered(pipeline: LongLived) -> airflow_api.DagRun:
        """A run by hand. Airflow on SQLite answers with an error where its database is busy for long."""
        until = time.monotonic() + TRIGGER_SECONDS
        while True:
            try:
                return airflow_api.trigger(pipeline.settings, pipeline.name, {"once": True})
            except LockstepError:
                if time.monotonic() > until:
                    raise
                time.sleep(1.0)

    def _task_at_the_moment(
        self, strike: Strike, pipeline: LongLived, run: airflow_api.DagRun
    ) -> int | None:
        """The task's process: at the point, or, some time after a task has taken the lease, at work."""
        began = 0.0
        while self._state(pipeline.settings, run) != "success":
            if strike.point is not None:
                found = stopped(self._home)
            else:
                found = self._lease_holder(pipeline)
                began = began or (time.monotonic() if found else 0.0)
                if time.monotonic() - began < strike.share * self.normal_seconds:
                    found = None
            if found is not None:
                return found
            time.sleep(POLL_SECONDS)
        return None

    def _lease_holder(self, pipeline: LongLived) -> int | None:
        """The process of the task that is at work: it says so in its lease."""
        lease = recorded(pipeline.name, pipeline.settings).lease
        if lease is None:
            return None
        process_id = int(lease.holder.split(":")[1])
        return process_id if self.servers.owns(process_id) else None

    @staticmethod
    def _state(settings: Settings, run: airflow_api.DagRun) -> str:
        try:
            return airflow_api.run_state(settings, run).state
        except LockstepError as error:
            return f"unknown ({error})"
