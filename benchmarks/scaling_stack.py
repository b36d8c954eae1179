"""A broker and Spark Connect servers for the time being, below one folder, on loopback."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from lockstep.adapters.embedded import broker, connect, process
from lockstep.adapters.embedded.ports import HOST, free_ports
from lockstep.adapters.embedded.process import Process
from lockstep.adapters.jars import jar_paths
from lockstep.adapters.settings import Settings

__all__ = ["SparkServer", "running_broker", "settings_of"]


@contextmanager
def running_broker(folder: Path) -> Iterator[str]:
    """The address of a broker that ends with the body."""
    port, controller = free_ports(2)
    log = folder / "broker.log"
    started = broker.start(folder / "kafka", jar_paths("broker"), port, controller, log)
    try:
        broker.wait_ready(started, port, log)
        yield f"{HOST}:{port}"
    finally:
        process.stop(started, broker.STOP_SECONDS)


class SparkServer:
    """A Connect server that can be ended and started anew with other cores; `stop` it at the end."""

    def __init__(self, folder: Path, memory: str, conf: Mapping[str, str] | None = None) -> None:
        self._folder, self._memory, self._conf = folder, memory, conf or {}
        self._running: Process | None = None

    def start(self, cores: int) -> str:
        """Start it and wait until it answers; its address. Raises LockstepError, Unreachable."""
        assert self._running is None, "it is started once"
        # Another port each time: a client may have got the last one for a connection of its own.
        (port,) = free_ports(1)
        options = connect.ConnectOptions(
            port, master=f"local[{cores}]", driver_memory=self._memory, conf=self._conf
        )
        log = self._folder / "connect.log"
        self._running = connect.start(self._folder, jar_paths("spark"), options, log)
        connect.wait_ready(self._running, port, log)
        return options.remote

    def stop(self) -> None:
        """End it. Twice is harmless."""
        if self._running is not None:
            process.stop(self._running, connect.STOP_SECONDS)
        self._running = None


def settings_of(home: Path, kafka: str, remote: str) -> Settings:
    """An installation of its own on these servers."""
    home.mkdir(parents=True, exist_ok=True)
    found = {"HOME": str(home), "KAFKA": kafka, "SPARK_REMOTE": remote}
    return Settings.load({f"LOCKSTEP_{name}": value for name, value in found.items()})
