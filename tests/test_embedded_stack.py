"""`up`, `down` and `status` on the real parts: twice is harmless, only dead parts come back."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.adapters.embedded import process, stack
from lockstep.adapters.embedded.ports import HOST, free_ports
from lockstep.adapters.embedded.record import Record
from lockstep.adapters.settings import Settings
from lockstep.errors import WrongUse


@pytest.fixture
def options() -> stack.StackOptions:
    """Free ports and a small heap."""
    ports = dict(zip(stack.PORTS, free_ports(len(stack.PORTS)), strict=True))
    return stack.StackOptions(ports=ports, driver_memory="1g")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """An installation whose stack is ended whatever happens."""
    yield tmp_path / "home"
    stack.down(tmp_path / "home", print)


def states(home: Path) -> dict[str, str]:
    return {part.name: part.state for part in stack.status(home)}


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.airflow
def test_up_restarts_only_what_died_and_down_ends_it_all(
    home: Path, options: stack.StackOptions
) -> None:
    parts = stack.up(home, options, print)
    assert {part.state for part in parts} == {"running"}
    before = Record(home).parts

    settings = Settings.load({"LOCKSTEP_HOME": str(home)})
    assert settings.kafka == f"{HOST}:{options.ports['kafka']}"
    assert settings.airflow_url == f"http://{HOST}:{options.ports['airflow']}"

    victim = before["broker"].process
    os.kill(victim.pid, signal.SIGKILL)
    while process.alive(victim):
        time.sleep(0.05)
    assert states(home)["broker"] == "dead"
    # Ports need not be said again.
    stack.up(home, stack.StackOptions(driver_memory="1g"), print)
    after = Record(home).parts
    assert {name for name in after if after[name] != before[name]} == {"broker"}
    assert after["broker"].ports == before["broker"].ports

    with pytest.raises(WrongUse, match="the Spark Connect server runs already"):
        stack.up(home, stack.StackOptions(ports={"spark": free_ports(1)[0]}), print)

    assert len(stack.down(home, print)) == len(after)
    assert not any(process.alive(part.process) for part in after.values())
    assert set(states(home).values()) == {"not started"}
    assert Settings.load({"LOCKSTEP_HOME": str(home)}).kafka == ""
    assert stack.down(home, print) == ()


def test_a_taken_port_stops_up_before_anything_starts(
    home: Path, options: stack.StackOptions
) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, options.ports["spark_ui"]))
        taken.listen()
        with pytest.raises(WrongUse, match="for the Spark UI is taken"):
            stack.up(home, options, print)
    assert Record(home).parts == {}
