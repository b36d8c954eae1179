"""Processes that outlive the command that starts them, and are ended by identity, never by name.

A process id alone may have been reused by the time it is read again, so the time of its start (in
seconds after the start of the machine) is recorded with it. Each process leads a session of its own;
what it starts belongs to that session and ends with it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from lockstep.errors import LockstepError, Unreachable

__all__ = ["Process", "alive", "start", "stop", "tail", "this_process", "wait_ready"]

POLL_SECONDS = 0.1
SAME_START_SECONDS = 1.0
TAIL_LINES = 12


@dataclass(frozen=True)
class Process:
    """A process and the session that it leads; `started` is seconds after the machine's start."""

    pid: int
    started: float


def this_process() -> Process:
    """The process that asks, as others can recognise it."""
    return Process(os.getpid(), _started(os.getpid()) or 0.0)


def start(
    command: Sequence[str | Path], log: Path, environment: Mapping[str, str], folder: Path
) -> Process:
    """Start a command in `folder`, with exactly this environment; its output is appended to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        child = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            cwd=folder,
            start_new_session=True,
        )
    # It is left running on purpose: without this the interpreter warns when it forgets the object.
    child.returncode = 0
    return Process(child.pid, _started(child.pid) or 0.0)


def alive(process: Process) -> bool:
    """Whether this very process still runs; one that has the same id by chance does not count."""
    started = _started(process.pid)
    return started is not None and abs(started - process.started) < SAME_START_SECONDS


def stop(process: Process, timeout_seconds: float) -> bool:
    """End a process and its session: SIGTERM, then SIGKILL after the time-out.

    False where it was gone before. What its children leave of the session is killed as well.
    """
    was_alive = alive(process)
    if was_alive:
        _signal(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + timeout_seconds
        while alive(process) and time.monotonic() < deadline:
            _reap(process.pid)
            time.sleep(POLL_SECONDS)
    for pid in _session(process):
        _signal(pid, signal.SIGKILL)
    while alive(process):
        _reap(process.pid)
        time.sleep(POLL_SECONDS)
    return was_alive


def wait_ready(
    process: Process, name: str, log: Path, ready: Callable[[], bool], timeout_seconds: float
) -> None:
    """Wait until `ready()` holds. Raises LockstepError, with the end of the log, where the process
    ends before, and Unreachable after the time-out; the process is then left as it is."""
    deadline = time.monotonic() + timeout_seconds
    while not ready():
        _reap(process.pid)
        if not alive(process):
            raise LockstepError(
                f"{name} ended while it started",
                expected="a server that stays",
                found=tail(log),
                next_step=f"read {log}",
            )
        if time.monotonic() > deadline:
            raise Unreachable(
                f"{name} was not ready after {timeout_seconds:g} s",
                expected="an answer on its port",
                found=tail(log),
                next_step=f"read {log}, then run the command again",
            )
        time.sleep(POLL_SECONDS)


def tail(log: Path) -> str:
    """The last lines of a log file."""
    try:
        lines = log.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return "no log"
    return "\n".join(lines[-TAIL_LINES:]) or "an empty log"


def _started(pid: int) -> float | None:
    """Seconds from the machine's start to the process's; None where none runs under that id.

    The difference is what stays the same when the machine's clock is set.
    """
    try:
        found = psutil.Process(pid)
        if found.status() == psutil.STATUS_ZOMBIE:
            return None
        return float(found.create_time() - psutil.boot_time())
    except psutil.Error:
        return None


def _session(process: Process) -> list[int]:
    """Processes of the session that this process leads or led."""
    if _started(process.pid) is not None and not alive(process):
        return []  # The id belongs to somebody else now, who may lead a session of that number.
    members = []
    for pid in psutil.pids():
        try:
            if os.getsid(pid) == process.pid and _started(pid) is not None:
                members.append(pid)
        except OSError:
            continue
    return members


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _reap(pid: int) -> None:
    """Collect a child that has ended, where it is one: it would stay in the process table."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return
