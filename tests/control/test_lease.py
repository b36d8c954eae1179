"""A lease whose holder has died is free at once where that can be told, and only there."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from control_builders import life

from lockstep.adapters import lease
from lockstep.adapters.memory_store import MemoryStore
from lockstep.control.changes import Deploy, Landed, TakeLease
from lockstep.errors import LeaseHeld

NAME = "shop"
NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)


class Standing:
    """A clock on which nothing passes but what is slept."""

    def __init__(self) -> None:
        self.time = NOW

    def now(self) -> datetime:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


def held_by(holder: str) -> MemoryStore:
    """A store where that holder has the lease for an hour."""
    store = MemoryStore()
    deploy = life(1)[0]
    assert isinstance(deploy, Deploy)
    assert isinstance(store.apply(NAME, deploy), Landed)
    taken = TakeLease(holder, NOW, NOW + timedelta(hours=1))
    assert isinstance(store.apply(NAME, taken), Landed)
    return store


def wait_for(store: MemoryStore) -> list[str]:
    """What is said until the lease is had. Raises LeaseHeld after a second of waiting."""
    said: list[str] = []
    with lease.held(store, NAME, lease.new_holder(), Standing(), said.append, 1.0):
        pass
    return said


def of_process(process_id: int) -> str:
    """How that process here would be called."""
    place, _, rest = lease.new_holder().partition(":")
    return f"{place}:{process_id}:{rest.partition(':')[2]}"


def ended_process() -> int:
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    process.wait()
    return process.pid


def test_of_a_process_here_that_has_ended_it_is_released() -> None:
    holder = of_process(ended_process())
    assert wait_for(held_by(holder)) == [f"the run {holder} has died; its lease is released"]


def test_of_a_process_here_that_is_alive_it_is_not() -> None:
    with pytest.raises(LeaseHeld):
        wait_for(held_by(of_process(os.getpid())))


@pytest.mark.parametrize("other", ["boot", "namespace"])
def test_of_another_machine_of_the_same_name_it_is_not(
    other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cloned machines, and containers that have the host's name, have process ids of their own."""
    there = of_process(ended_process())
    if other == "boot":
        monkeypatch.setattr(lease, "_boot", lambda: "another start")
    else:
        monkeypatch.setattr(os, "readlink", lambda _: "pid:[1]")
    with pytest.raises(LeaseHeld):
        wait_for(held_by(there))


def test_of_a_version_that_named_the_host_alone_it_is_not() -> None:
    host = lease.new_holder().partition("/")[0]
    with pytest.raises(LeaseHeld):
        wait_for(held_by(f"{host}:{ended_process()}:1"))
