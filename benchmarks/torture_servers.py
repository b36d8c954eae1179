"""The servers that torture kills: broker, Spark and Airflow's parts, all of its own, in one folder."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from lockstep.adapters.embedded import airflow, process
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
    spark_part,
)
from lockstep.adapters.embedded.ports import check_free, is_free
from lockstep.adapters.embedded.process import Process

__all__ = ["AIRFLOW_PARTS", "BROKER", "SCHEDULER", "SPARK", "Servers"]

SCHEDULER = AIRFLOW + "scheduler"
AIRFLOW_PARTS = (API_SERVER, AIRFLOW + "dag-processor", SCHEDULER)

FIRST_PORT, LAST_PORT = 21_000, 31_000
"""Below the ports that outgoing connections get: none of those can sit down where a dead server was."""
STOP_SECONDS = 20

DAG_FILE = """\
import sys
sys.path.insert(0, {tests!r})
from lockstep import runtime
def open_pipeline(*arguments):
    import stopping
    return stopping.open_pipeline(*arguments)
runtime.open_pipeline = open_pipeline
exec(compile(open({dags!r}).read(), __file__, "exec"))
# Airflow looks for the words airflow and dag before it reads a file.
"""
ROOT = Path(__file__).resolve().parents[1]


class Servers:
    """Each is started, killed with SIGKILL, paused, and started again where it was.

    `variables` is the environment of the processes that use them.
    """

    def __init__(self, home: Path) -> None:
        home.mkdir(parents=True)
        options = StackOptions(driver_memory="2g", spark_master="local[2]")
        self._ports = _free_ports()
        self._parts: dict[str, Part] = {
            BROKER: broker_part(home, self._ports, _quiet),
            SPARK: spark_part(home, self._ports, options, _quiet),
        }
        self._home = home
        self._running: dict[str, Process] = {}
        self._dead: list[Process] = []
        found = {f"LOCKSTEP_{k.upper()}": v for k, v in addresses(self._ports, options).items()}
        self.variables: Mapping[str, str] = {
            **os.environ,
            **found,
            "LOCKSTEP_HOME": str(home),
            "PYTHONFAULTHANDLER": "1",
        }

    def start(self, *names: str) -> None:
        """Start these, and wait until they answer. Raises LockstepError, Unreachable."""
        for name in names:
            own = {port: self._ports[port] for port, one in PORTS.items() if one.part == name}
            # The kernel may hold the sockets of a process that was killed a moment ago.
            check_free({use: (port, name) for use, port in own.items()}, set(own.values()))
            self._running[name] = self._parts[name].start()
        for name in names:
            self._parts[name].wait_ready(self._running[name])

    def start_airflow(self) -> None:
        """API server, DAG processor and scheduler, whose tasks stop where `stopping` is told to."""
        dags = self._home / "dags"
        dags.mkdir()
        text = DAG_FILE.format(
            tests=str(ROOT / "tests" / "end_to_end"), dags=str(ROOT / "dags/lockstep_pipelines.py")
        )
        (dags / "lockstep_pipelines.py").write_text(text, "utf-8")
        port = self._ports["airflow"]
        variables = {
            **self.variables,
            **airflow.environment(self._home, port, "local[2]"),
            "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        }
        airflow.migrate(variables, _quiet)
        self._parts |= {part.name: part for part in airflow_parts(self._home, variables, port)}
        self.start(*AIRFLOW_PARTS)

    def kill(self, name: str) -> None:
        """kill -9, and wait for the end."""
        running = self._running.pop(name)
        self._dead.append(running)
        os.kill(running.pid, signal.SIGKILL)
        os.waitpid(running.pid, 0)

    def pause(self, name: str) -> None:
        os.kill(self._running[name].pid, signal.SIGSTOP)

    def resume(self, name: str) -> None:
        os.kill(self._running[name].pid, signal.SIGCONT)

    def owns(self, process_id: int) -> bool:
        """Whether one of these, dead ones too, has started that process: nobody else's is killed."""
        leaders = {one.pid for one in (*self._running.values(), *self._dead)}
        try:
            return os.getsid(process_id) in leaders
        except ProcessLookupError:
            return False

    def stop(self) -> None:
        """End all of them, and what dead ones have left."""
        for one in (*self._dead, *reversed(self._running.values())):
            if process.alive(one):
                os.kill(one.pid, signal.SIGCONT)
            process.stop(one, STOP_SECONDS)


def _free_ports() -> dict[str, int]:
    start = FIRST_PORT + time.monotonic_ns() // 1000 % 8000
    free = (port for port in range(start, LAST_PORT) if is_free(port))
    return {name: next(free) for name in PORTS}


def _quiet(_: str) -> None:
    """The progress of starting servers is nobody's concern here."""
