"""The world of one simulated run: processes that take turns, a clock, a network, and their faults.

One `random.Random(seed)` decides everything: who goes on, who dies, which request or reply is lost or
late, who sleeps. Processes are greenlets. They change hands at every call to a twin and nowhere else,
so that the same seed gives the same history, byte for byte.

A process that dies is never told: its stack is unwound by `Killed`, which no `except` of the code
under test catches, and each call to a twin that a `finally` makes on the way raises it again. What
had been asked of the outside before stays asked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, TypeVar
from unittest import mock

import greenlet

from lockstep.errors import LockstepError, Unreachable

Answer = TypeVar("Answer")

T0 = datetime(2026, 1, 1, tzinfo=UTC)
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
"""In milliseconds, as all times of the simulation."""

MOST_TURNS = 40_000
"""A run takes some thousands; one that takes so many goes round in circles."""


def milliseconds_of(moment: datetime) -> int:
    """The world's time at a moment."""
    return (moment - T0) // timedelta(milliseconds=1)


@dataclass(frozen=True)
class Rates:
    """How often what goes wrong: chances per turn, per call, or per event, as the names say."""

    kill_per_turn: float = 0.002
    nap_per_turn: float = 0.002
    lost_request_per_call: float = 0.004
    lost_reply_per_call: float = 0.004
    late_request_per_call: float = 0.004
    unknown_commit: float = 0.06
    slow_change: float = 0.02
    append_twice: float = 0.02
    task_cancelled: float = 0.05
    server_restart_per_turn: float = 0.0003
    clock_jump_per_turn: float = 0.001
    expiry_per_turn: float = 0.004
    user_compaction_per_start: float = 0.2
    long_gap_per_start: float = 0.15
    other_shards_per_start: float = 0.15
    new_partition_per_start: float = 0.05
    pause_per_start: float = 0.05
    rollback_per_start: float = 0.15
    backfill_per_start: float = 0.1
    open_transaction_per_partition: float = 0.2

    def without_faults(self) -> Rates:
        return Rates(**dict.fromkeys(self.__dataclass_fields__, 0.0))

    def drawn(self, random: Random) -> Rates:
        """Some faults only, and more or less of them: what many faults together would hide."""
        return replace(
            self,
            **{
                name: getattr(self, name) * random.choice((0, 0.5, 1, 2))
                for name in self.__dataclass_fields__
            },
        )


class Killed(BaseException):
    """Unwinds the stack of a process that has died."""


class SparkError(Exception):
    """Spark's own error: the job has failed, or its connection broke and it may go on."""


class StuckError(AssertionError):
    """Nothing can go on, or nothing ever ends: a fault of the code under test, or of the twins."""


@dataclass(eq=False)
class Process:
    """A process on a machine of its own: `skew` is how far its clock is off, and before `wakes` none
    of its tasks goes on. `session` is the Spark session that a server's job belongs to."""

    name: str
    skew: int = 0
    wakes: int = 0
    session: str = ""
    is_immortal: bool = False
    is_alive: bool = True
    tasks: list[Task] = field(default_factory=list)


@dataclass(eq=False)
class Task:
    """A thread of a process. It goes on from `wakes` on, or earlier once `until` says so."""

    process: Process
    strand: Any
    wakes: float
    until: Callable[[], bool] | None = None
    is_done: bool = False

    def is_ready(self, now: int) -> bool:
        if now < self.process.wakes:
            return False
        return now >= self.wakes or (self.until is not None and self.until())

    def goes_on(self) -> float:
        """When it is ready, if nothing happens until then."""
        waits = 0 if self.until is not None and self.until() else self.wakes
        return max(waits, self.process.wakes)


class World:
    """Processes, time and the network of one run."""

    def __init__(self, seed: int, rates: Rates, *, keep_history: bool = False) -> None:
        self.random = Random(seed)
        self.rates = rates
        self.now = 0
        self.turns = 0
        self.history: list[str] | None = [] if keep_history else None
        self.fault_counts: dict[str, int] = {}
        self.server_restarts = 0
        self._digest = hashlib.sha256()
        self._tasks: list[Task] = []
        self._hub = greenlet.getcurrent()
        self._current: Task | None = None
        self._ids = 0
        self.expire: Callable[[], None] = lambda: None

    # ── processes ───────────────────────────────────────────────────────────────────────────────

    @property
    def process(self) -> Process:
        assert self._current is not None, "asked for inside a process only"
        return self._current.process

    def start(self, process: Process, work: Callable[[], object], delay: int = 0) -> Task:
        """Let a process do some work, from `delay` milliseconds on, beside what it does already."""

        def body() -> None:
            # What a process dies of, its errors among it, ends here and is seen by its work alone.
            with suppress(Killed):
                work()

        task = Task(process, greenlet.greenlet(body, parent=self._hub), self.now + delay)
        process.tasks.append(task)
        self._tasks.append(task)
        return task

    def kill(self, process: Process) -> None:
        """End a process now; whoever runs at this moment is ended at its next turn."""
        if process.is_alive:
            self.note(f"{process.name} dies")
            process.is_alive = False
            process.wakes = 0
            for task in process.tasks:
                task.wakes = 0

    def run(self, until: Callable[[], bool] = lambda: False) -> None:
        """Let the processes take turns until none is left, or until `until`."""
        while self._tasks and not until():
            self.turns += 1
            if self.turns > MOST_TURNS:
                raise StuckError(f"still at work after {MOST_TURNS} turns: {self._waiting()}")
            ready = [task for task in self._tasks if task.is_ready(self.now)]
            if not ready:
                wakes = min(task.goes_on() for task in self._tasks)
                if wakes == float("inf"):
                    raise StuckError(f"nothing can go on: {self._waiting()}")
                self.now = int(wakes)
                continue
            task = ready[int(self.random.random() * len(ready))]
            self.now += int(self.random.random() * 40)
            self._turn(task)

    def _turn(self, task: Task) -> None:
        if task.process.is_alive and not task.process.is_immortal:
            self._disturb(task.process)
        self._current = task
        if task.process.is_alive:
            task.strand.switch()
        elif task.strand:
            task.strand.throw(Killed())
        self._current = None
        if task.strand.dead or not task.strand:
            task.is_done = True
            self._tasks.remove(task)
            task.process.tasks.remove(task)

    def _disturb(self, process: Process) -> None:
        if self.chance("kill_per_turn"):
            self.kill(process)
        elif self.chance("nap_per_turn"):
            nap = self.random.choice((SECOND, 20 * SECOND, 10 * MINUTE, 2 * HOUR))
            process.wakes = self.now + nap
            self.note(f"{process.name} sleeps for {nap} ms")
        elif self.chance("clock_jump_per_turn"):
            process.skew = self.random.choice((-HOUR, -MINUTE, -SECOND, 0, SECOND, MINUTE, HOUR))
            self.note(f"the clock of {process.name} is off by {process.skew} ms")
        elif self.chance("server_restart_per_turn"):
            self.restart_server()
        elif self.chance("expiry_per_turn"):
            self.expire()

    def restart_server(self) -> None:
        """The Spark server dies with all of its jobs; it is there again at once."""
        self.note("the Spark server restarts")
        self.server_restarts += 1
        self._kill_all(lambda process: bool(process.session))

    def kill_session(self, session: str) -> None:
        """End the jobs of one Spark session."""
        self._kill_all(lambda process: process.session == session != "")

    def _kill_all(self, wanted: Callable[[Process], bool]) -> None:
        for process in [task.process for task in self._tasks if wanted(task.process)]:
            self.kill(process)

    def is_alive(self, name: str) -> bool:
        """Whether a process of that name has anything left to do."""
        return any(t.process.name == name and t.process.is_alive for t in self._tasks)

    def close(self) -> None:
        """End all processes."""
        for task in list(self._tasks):
            task.process.is_alive = False
            self._turn(task)

    def _waiting(self) -> str:
        return ", ".join(sorted({task.process.name for task in self._tasks}))

    # ── what a process calls ────────────────────────────────────────────────────────────────────

    def pause(self, delay: int = 0) -> None:
        """Let others go on; continue after `delay` milliseconds at the earliest."""
        self._wait(self.now + delay, None)

    def wait(self, until: Callable[[], bool], at_most: float = float("inf")) -> None:
        """Continue once `until` holds, or after `at_most` milliseconds."""
        self._wait(self.now + at_most, until)

    def _wait(self, wakes: float, until: Callable[[], bool] | None) -> None:
        task = self._current
        assert task is not None, "only processes wait"
        if not task.process.is_alive:
            raise Killed
        task.wakes, task.until = wakes, until
        self._hub.switch()

    def exchange(
        self,
        what: str,
        act: Callable[[], Answer],
        prepare: Callable[[], Callable[[], object]] | None = None,
    ) -> Answer:
        """One request and its answer over the network; `act` is what happens at the other end.

        A request may get lost, an answer too, and a request may arrive after it was given up: then
        what `prepare` says when it is sent is what happens. Raises Unreachable where no answer comes.
        """
        self.pause()
        if self.chance("lost_request_per_call"):
            self.note(f"{self.process.name}: {what}: lost")
            raise no_answer(what)
        if self.chance("late_request_per_call"):
            with suppress(LockstepError):
                self.deliver_late(what, act if prepare is None else prepare())
            raise no_answer(what)
        try:
            answer = act()
        except LockstepError as error:
            self.note(f"{self.process.name}: {what}: {type(error).__name__}")
            raise
        self.note(f"{self.process.name}: {what}: {answer}")
        is_lost = self.chance("lost_reply_per_call")
        self.pause()
        if is_lost:
            self.note(f"{self.process.name}: {what}: the answer is lost")
            raise no_answer(what)
        return answer

    def deliver_late(self, what: str, act: Callable[[], object]) -> None:
        """Let a request arrive in a while, whether or not somebody waits for the answer."""
        self.note(f"{self.process.name}: {what}: late")

        def arrive() -> None:
            try:
                answer = act()
            except LockstepError as error:
                answer = type(error).__name__
            self.note(f"network: {what}: {answer}")

        delay = self.random.choice((SECOND, 10 * SECOND, 10 * MINUTE))
        self.start(Process("network", is_immortal=True), arrive, delay)

    # ── chance, names, history ──────────────────────────────────────────────────────────────────

    def chance(self, rate: str) -> bool:
        """Whether the fault of that rate happens now."""
        likely: float = getattr(self.rates, rate)
        if not likely or self.random.random() >= likely:
            return False
        self.fault_counts[rate] = self.fault_counts.get(rate, 0) + 1
        return True

    def new_id(self) -> str:
        """As random as an id is, and told apart by a person."""
        self._ids += 1
        return f"{self._ids}{self.random.choice('abcdefgh')}"

    def note(self, line: str) -> None:
        """Write a line of the history."""
        line = f"{self.now} {line}"
        self._digest.update(line.encode())
        if self.history is not None:
            self.history.append(line)

    def digest(self) -> str:
        """Equal where histories are, byte for byte."""
        return self._digest.hexdigest()


def no_answer(what: str) -> Unreachable:
    return Unreachable(f"no answer: {what}")


@dataclass(frozen=True)
class ProcessClock:
    """Implements `control.ports.Clock` as the process that asks has it."""

    world: World

    def now(self) -> datetime:
        return T0 + timedelta(milliseconds=self.world.now + self.world.process.skew)

    def sleep(self, seconds: float) -> None:
        self.world.pause(round(seconds * SECOND))


# ── threads of the code under test ──────────────────────────────────────────────────────────────


class _Future:
    def __init__(self) -> None:
        self.answer: Any = None
        self.error: Exception | None = None

    def result(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.answer


class _Pool:
    """Stands in for ThreadPoolExecutor: its threads are tasks of the process that makes it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._tasks: list[Task] = []

    def __enter__(self) -> _Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self._world.wait(lambda: all(task.is_done for task in self._tasks))

    def submit(self, work: Callable[[Any], Any], item: Any) -> _Future:
        future = _Future()

        def body() -> None:
            try:
                future.answer = work(item)
            except Exception as error:
                future.error = error

        self._tasks.append(self._world.start(self._world.process, body))
        return future


class _Thread:
    """Stands in for threading.Thread."""

    def __init__(
        self,
        world: World,
        target: Callable[..., object],
        args: Iterable[Any],
        daemon: bool,
        name: str,
    ) -> None:
        del daemon, name
        self._world, self._work = world, lambda: target(*args)
        self._task: Task | None = None

    def start(self) -> None:
        self._task = self._world.start(self._world.process, self._work)

    def join(self) -> None:
        self._world.wait(lambda: self._task is not None and self._task.is_done)


class _Event:
    """Stands in for threading.Event."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def wait(self, timeout: float) -> bool:
        self._world.wait(lambda: self._is_set, timeout * SECOND)
        return self._is_set


class _Threading:
    """Stands in for the module `threading`, as far as the lease needs it."""

    def __init__(self, world: World) -> None:
        self.Thread = lambda **arguments: _Thread(world, **arguments)
        self.Event = lambda: _Event(world)


@contextmanager
def threads_of(world: World) -> Any:
    """Let the threads that the code under test makes be tasks of the simulation."""
    with (
        mock.patch("lockstep.threads.ThreadPoolExecutor", side_effect=lambda **_: _Pool(world)),
        mock.patch("lockstep.adapters.lease.threading", _Threading(world)),
    ):
        yield
