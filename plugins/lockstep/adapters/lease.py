"""Holding a pipeline's lease: taken before a stage, renewed while it works, given back after.

The lease is for order and thrift, not for safety: two runs that both believe to hold it waste work,
and the commit refuses one of them. So a renewal that fails is left to the commit to judge.
"""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from lockstep.control.changes import Landed, Outcome, Rejected, ReleaseLease, TakeLease
from lockstep.control.ports import Clock, Progress, Store
from lockstep.errors import LeaseHeld, LockstepError

__all__ = ["held", "in_turn", "new_holder"]

_Answer = TypeVar("_Answer")

TIME_TO_LIVE_SECONDS = 15.0
RENEWAL_SECONDS = 4.0
POLL_SECONDS = 0.5
SAY_EVERY_SECONDS = 10.0


def new_holder() -> str:
    """A name for this process as a holder: its place, process id, and something that nobody else has."""
    return f"{_place()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


def _place() -> str:
    """Where a process id says which process it is: this host, since it was started, and of its
    containers this one. Cloned machines, and containers with the host's network, have one name."""
    host = socket.gethostname()
    try:
        marks = f"{_boot()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        # Another system than Linux, where the name has to do.
        return host
    return f"{host}/{sha256(marks.encode()).hexdigest()[:8]}"


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text("ascii")


@contextmanager
def held(
    store: Store,
    pipeline: str,
    holder: str,
    clock: Clock,
    progress: Progress,
    wait_seconds: float = 3600.0,
) -> Iterator[None]:
    """Hold the lease for the body. Waits while another holder renews it, up to `wait_seconds`, then
    raises LeaseHeld. After a holder's death it is free within TIME_TO_LIVE_SECONDS."""
    _wait_for(store, pipeline, holder, clock, progress, wait_seconds)
    done = threading.Event()
    renewal = threading.Thread(
        target=_renew, args=(store, pipeline, holder, clock, done), daemon=True, name="lease"
    )
    renewal.start()
    try:
        yield
    finally:
        done.set()
        renewal.join()
        store.apply(pipeline, ReleaseLease(holder))


def in_turn(stage: Callable[[], _Answer], progress: Progress) -> _Answer:
    """What a stage gives once the pipeline is free. A held lease is no failure: its holder does work
    that is wanted here too, and if it dies, the lease expires."""
    while True:
        try:
            return stage()
        except LeaseHeld as held:
            by = f" ({held.found})" if held.found else ""
            progress(f"still waiting: {held.message}{by}")


def _take(store: Store, pipeline: str, holder: str, clock: Clock) -> Outcome:
    now = clock.now()
    return store.apply(
        pipeline, TakeLease(holder, now, now + timedelta(seconds=TIME_TO_LIVE_SECONDS))
    )


def _wait_for(
    store: Store,
    pipeline: str,
    holder: str,
    clock: Clock,
    progress: Progress,
    wait_seconds: float,
) -> None:
    waited, said = 0.0, -SAY_EVERY_SECONDS
    while not isinstance(outcome := _take(store, pipeline, holder, clock), Landed):
        if isinstance(outcome, Rejected) and _release_of_dead(store, pipeline, outcome, progress):
            continue
        reason = outcome.reason
        if waited >= wait_seconds:
            raise LeaseHeld(
                f"pipeline {pipeline}: another run is at work and has not ended in "
                f"{wait_seconds:.0f} s",
                found=reason,
                next_step=f"look at it with `lockstep steps {pipeline}`, or wait",
            )
        if waited - said >= SAY_EVERY_SECONDS:
            progress(f"waiting for another run of {pipeline}: {reason}")
            said = waited
        clock.sleep(POLL_SECONDS)
        waited += POLL_SECONDS


def _release_of_dead(store: Store, pipeline: str, rejected: Rejected, progress: Progress) -> bool:
    """A holder in this very place whose process is gone will not renew: no need to wait for the end of
    its lease. Of others nothing is known but the lease."""
    lease = rejected.state.lease if rejected.state is not None else None
    if lease is None:
        return False
    place, _, rest = lease.holder.partition(":")
    process_id = rest.partition(":")[0]
    if place != _place() or not process_id.isdigit() or _is_alive(int(process_id)):
        return False
    progress(f"the run {lease.holder} has died; its lease is released")
    return isinstance(store.apply(pipeline, ReleaseLease(lease.holder)), Landed)


def _is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _renew(store: Store, pipeline: str, holder: str, clock: Clock, done: threading.Event) -> None:
    while not done.wait(RENEWAL_SECONDS):
        try:
            _take(store, pipeline, holder, clock)
        except LockstepError:
            # The store is away for a moment: the next renewal, or the commit, finds out.
            continue
