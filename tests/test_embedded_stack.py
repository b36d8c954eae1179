"""`up`, `down` and `status` on the real parts: twice is harmless, only dead parts come back."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

import pytest

from lockstep.adapters.embedded import ports, process, stack
from lockstep.adapters.embedded.ports import HOST, free_ports
from lockstep.adapters.embedded.process import Process
from lockstep.adapters.embedded.record import Record, Started
from lockstep.adapters.settings import Settings
from lockstep.errors import WrongUse

# Its socket outlives it, as that of a killed server does until the kernel has ended all its threads:
# here by a child that holds it for a second (or until the test ends) after its parent has died.
HOLDER = """
import os, socket, sys, time
port, seconds = int(sys.argv[1]), float(sys.argv[2])
server = socket.create_server(("127.0.0.1", port))
parent = os.getpid()
if os.fork() == 0:
    while os.getppid() == parent:
        time.sleep(0.02)
    time.sleep(seconds)
else:
    time.sleep(600)
"""


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
    assert {part.version for part in before.values()} == {metadata.version("lockstep")}

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
    assert Record(home).ports() == options.ports


def test_a_taken_port_stops_up_before_anything_starts(
    home: Path, options: stack.StackOptions
) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, options.ports["spark_ui"]))
        taken.listen()
        with pytest.raises(WrongUse, match="for the Spark UI is taken"):
            stack.up(home, options, print)
    assert Record(home).parts == {}


def killed_holder(folder: Path, port: int, seconds: float) -> Process:
    """A process that listened on the port, dead, with its port taken for some more seconds."""
    command = [sys.executable, "-c", HOLDER, str(port), str(seconds)]
    holder = process.start(command, folder / "log", os.environ, folder)
    process.wait_ready(holder, "the holder", folder / "log", lambda: ports.listens(port), 30)
    os.kill(holder.pid, signal.SIGKILL)
    while process.alive(holder):
        time.sleep(0.01)
    assert not ports.is_free(port)
    return holder


@pytest.fixture
def nothing_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """`up` comes as far as to the start of the parts, and there are none."""
    monkeypatch.setattr(stack, "java_command", lambda: "java")
    monkeypatch.setattr(stack, "_chains", lambda *_: [])


def add_dead_parts(home: Path, chosen: Mapping[str, int]) -> None:
    """All parts that have ports, as they are recorded once they have died."""
    home.mkdir()
    gone = Process(2**22 - 1, 5.0)
    for part in {port.part for port in stack.PORTS.values()}:
        own = {name: chosen[name] for name, port in stack.PORTS.items() if port.part == part}
        Record(home).add(part, Started(gone, own))


def test_up_after_down_takes_the_ports_that_it_had(
    home: Path, options: stack.StackOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Mapping[str, int]] = []
    monkeypatch.setattr(stack, "java_command", lambda: "java")
    monkeypatch.setattr(stack, "_chains", lambda _, chosen, *__: given.append(chosen) or [])
    add_dead_parts(home, options.ports)
    stack.down(home, print)
    stack.up(home, stack.StackOptions(), print)
    assert given == [options.ports]
    assert Settings.load({"LOCKSTEP_HOME": str(home)}).kafka == f"{HOST}:{options.ports['kafka']}"


@pytest.mark.usefixtures("nothing_to_start")
def test_of_a_part_that_does_not_run_any_port_may_be_asked_for(
    home: Path, options: stack.StackOptions
) -> None:
    """Where it is not to be started either: it was said to run already."""
    add_dead_parts(home, options.ports)
    other = {"airflow": free_ports(1)[0]}
    stack.up(home, stack.StackOptions(other, with_airflow=False), print)


@pytest.mark.usefixtures("nothing_to_start")
@pytest.mark.parametrize("version", ["0.0.9", ""])
def test_up_tells_of_what_another_version_has_started(
    home: Path, tmp_path: Path, options: stack.StackOptions, version: str
) -> None:
    """A scheduler and a Spark server have loaded its code, and keep it."""
    add_dead_parts(home, options.ports)
    for name, its_version in (("spark", version), ("broker", metadata.version("lockstep"))):
        own = {port: options.ports[port] for port, of in stack.PORTS.items() if of.part == name}
        command = [sys.executable, "-c", "import time; time.sleep(600)"]
        running = process.start(command, tmp_path / "log", os.environ, tmp_path)
        Record(home).add(name, Started(running, own, its_version))
    lines: list[str] = []
    stack.up(home, options, lines.append)
    [line] = [line for line in lines if "Lockstep" in line]
    assert line.startswith(f"spark: started by Lockstep {version or 'of before'}, while ")
    assert line.endswith("lockstep down, then lockstep up, starts them anew")


@pytest.mark.usefixtures("nothing_to_start")
def test_up_waits_for_the_port_of_its_own_part_that_was_killed(
    home: Path, tmp_path: Path, options: stack.StackOptions
) -> None:
    home.mkdir()
    port = options.ports["spark"]
    holder = killed_holder(tmp_path, port, seconds=1)
    Record(home).add("spark", Started(holder, {"spark": port}))
    assert {part.state for part in stack.up(home, options, print) if part.name == "spark"} == {
        "dead"
    }
    assert ports.is_free(port)


@pytest.mark.usefixtures("nothing_to_start")
def test_up_does_not_wait_for_a_port_that_was_never_its_own(
    home: Path, tmp_path: Path, options: stack.StackOptions
) -> None:
    home.mkdir()
    other, port = free_ports(2)
    holder = killed_holder(tmp_path, options.ports["spark"], seconds=600)
    try:
        Record(home).add("spark", Started(holder, {"spark": other, "spark_ui": port}))
        since = time.monotonic()
        with pytest.raises(WrongUse, match="for the Spark Connect server is taken"):
            stack.up(home, options, print)
        assert time.monotonic() - since < ports.RELEASE_SECONDS
    finally:
        process.stop(holder, 1)
