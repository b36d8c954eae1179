"""`lockstep up`, `down` and `status`: the embedded stack as a whole.

A part is recorded the moment it is started: whatever interrupts `up`, `down` finds it. Only what is
recorded, by process id and time of start, is ever ended.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from lockstep.adapters.embedded import airflow, broker, connect, process
from lockstep.adapters.embedded.java import java_command
from lockstep.adapters.embedded.parts import (
    AIRFLOW,
    API_SERVER,
    BROKER,
    PORTS,
    SPARK,
    Part,
    StackOptions,
    addresses,
    airflow_parts,
    broker_part,
    log_file,
    part_names,
    spark_part,
)
from lockstep.adapters.embedded.ports import HOST, check_free
from lockstep.adapters.embedded.record import Record, Started
from lockstep.control.ports import Progress
from lockstep.errors import WrongUse
from lockstep.threads import in_parallel

__all__ = ["PORTS", "USER", "PartStatus", "StackOptions", "down", "password", "status", "up"]

USER = airflow.USER


@dataclass(frozen=True)
class PartStatus:
    """One part. `state` is running, silent (it runs but does not answer), dead, or not started."""

    name: str
    state: str
    address: str
    pid: int | None
    log: str


def up(home: Path, options: StackOptions, progress: Progress) -> tuple[PartStatus, ...]:
    """Start what does not run yet, and wait until all of it answers. Twice is harmless. What
    another version of Lockstep has started is told of, and left as it is.

    Raises WrongUse (no Java, a taken port, another port than a running part has), LockstepError or
    Unreachable where a part does not come up: the others are left running, and are recorded.
    """
    home.mkdir(parents=True, exist_ok=True)
    with _alone(home):
        record = Record(home)
        _tell_of_other_versions(record, progress)
        dead = [name for name in part_names(options.with_airflow) if not record.alive(name)]
        ports = _ports(record, options, dead)
        if dead:
            java_command()
            # Tasks may run before the last part is ready: they can read the addresses from now on.
            record.set_addresses({**record.addresses, **addresses(ports, options)})
            chains = _chains(home, ports, options, dead, progress)
            in_parallel(lambda chain: _bring_up(chain(), record, ports, dead, progress), chains)
        else:
            progress("everything runs already")
    return status(home)


def down(home: Path, progress: Progress) -> tuple[str, ...]:
    """End every recorded part and forget it, but for its ports; names of those that still ran. Twice is
    harmless."""
    if not home.exists():
        return ()
    with _alone(home):
        record = Record(home)
        ended: list[str] = []

        def end(name: str) -> None:
            if process.stop(record.parts[name].process, _stop_seconds(name)):
                progress(f"{name} has ended")
                ended.append(name)
            record.forget(name)

        # The schedulers first: what they run talks to all the others.
        first = [n for n in record.parts if n.startswith(AIRFLOW) and n != API_SERVER]
        in_parallel(end, first)
        in_parallel(end, list(record.parts))
        record.set_addresses({})
    return tuple(sorted(ended))


def status(home: Path) -> tuple[PartStatus, ...]:
    """What runs, asked of each part itself."""
    record = Record(home)
    ports = {name: port.default for name, port in PORTS.items()} | record.ports()
    healthy = airflow.healthy_parts(ports["airflow"]) if record.alive(API_SERVER) else frozenset()
    asked: Mapping[str, tuple[str, Callable[[], bool]]] = {
        BROKER: (f"{HOST}:{ports['kafka']}", lambda: broker.answers(ports["kafka"])),
        SPARK: (f"sc://{HOST}:{ports['spark']}", lambda: connect.answers(ports["spark"])),
        API_SERVER: (airflow.url(ports["airflow"]), lambda: airflow.API_SERVER in healthy),
    }

    def one(name: str) -> PartStatus:
        log = str(log_file(home, name))
        if name not in record.parts:
            return PartStatus(name, "not started", "", None, log)
        if not record.alive(name):
            return PartStatus(name, "dead", "", None, log)
        address, answers = asked.get(name, ("", lambda: name.removeprefix(AIRFLOW) in healthy))
        state = "running" if answers() else "silent"
        return PartStatus(name, state, address, record.parts[name].process.pid, log)

    return tuple(in_parallel(one, part_names(with_airflow=True)))


def password(home: Path) -> str:
    """The password of `admin` in the stack's Airflow."""
    return airflow.password(home)


def _tell_of_other_versions(record: Record, progress: Progress) -> None:
    """A process goes on with the code that it has loaded, whatever has been installed since."""
    here = metadata.version("lockstep")
    others = {
        name: part.version or "of before"
        for name, part in record.parts.items()
        if record.alive(name) and part.version != here
    }
    if others:
        progress(
            f"{', '.join(sorted(others))}: started by Lockstep {', '.join(sorted({*others.values()}))}, "
            f"while {here} is installed; lockstep down, then lockstep up, starts them anew"
        )


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    """One `up` or `down` of a home at a time; a second one waits."""
    with (home / "stack.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _ports(record: Record, options: StackOptions, dead: Sequence[str]) -> dict[str, int]:
    """Every port by name; those of parts to be started are free, those of running parts as asked.

    A part that was killed a moment ago may still have its port: that is waited for.
    """
    known = record.ports()
    ports: dict[str, int] = {}
    to_check: dict[str, tuple[int, str]] = {}
    for name, port in PORTS.items():
        option = f"--{name.replace('_', '-')}-port"
        ports[name] = options.ports.get(name) or known.get(name, port.default)
        if port.part in dead:
            to_check[port.use] = (ports[name], option)
        elif record.alive(port.part) and ports[name] != known[name]:
            raise WrongUse(
                f"{port.use} runs already, on port {known[name]}",
                expected=f"port {known[name]}, or a stack that is down",
                found=f"{option} {ports[name]}",
                next_step="lockstep down, then lockstep up with that port",
            )
    recorded = (record.parts[name].ports for name in dead if name in record.parts)
    check_free(to_check, {port for its_ports in recorded for port in its_ports.values()})
    return ports


def _chains(
    home: Path,
    ports: Mapping[str, int],
    options: StackOptions,
    dead: Sequence[str],
    progress: Progress,
) -> list[Callable[[], Sequence[Part]]]:
    """What can come up side by side: the broker and Spark start while Airflow's database is made."""

    def airflow_chain() -> Sequence[Part]:
        if not any(name.startswith(AIRFLOW) for name in dead):
            return ()
        variables = airflow.environment(home, ports["airflow"], options.master)
        airflow.migrate(variables, progress)
        return airflow_parts(home, variables, ports["airflow"])

    return [
        lambda: (broker_part(home, ports, progress),),
        lambda: (spark_part(home, ports, options, progress),),
        airflow_chain,
    ]


def _bring_up(
    chain: Sequence[Part],
    record: Record,
    ports: Mapping[str, int],
    dead: Sequence[str],
    progress: Progress,
) -> None:
    """Start the dead parts of a chain at once, then wait for each."""
    todo = [part for part in chain if part.name in dead]
    for part in todo:
        progress(f"{part.name} is starting")
        own = {name: ports[name] for name, port in PORTS.items() if port.part == part.name}
        record.add(part.name, Started(part.start(), own, metadata.version("lockstep")))
    for part in todo:
        part.wait_ready(record.parts[part.name].process)
        progress(f"{part.name} is ready")


def _stop_seconds(name: str) -> float:
    if name == BROKER:
        return broker.STOP_SECONDS
    return connect.STOP_SECONDS if name == SPARK else airflow.STOP_SECONDS
