"""`stack.json`: the addresses of a running stack, and the processes that `up` has started.

::

    {"kafka": "127.0.0.1:9092", "spark_remote": …,          the names that `Settings` reads
     "ports": {"kafka": 9092, …},                            of every part that was ever started
     "parts": {"broker": {"pid", "started", "ports": {"kafka": 9092, …}, "version"}, …}}
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lockstep.adapters.embedded import process
from lockstep.adapters.embedded.process import Process

__all__ = ["Record", "Started"]


@dataclass(frozen=True)
class Started:
    """A part that was started, with the ports that it was given, by their names, and by which version of
    Lockstep: '' where the record is of one that did not say so."""

    process: Process
    ports: Mapping[str, int] = field(hash=False)
    version: str = ""


class Record:
    """What is recorded in a home folder; each change is on the disk when its call returns.

    Threads may share it. Processes take turns by the lock of `stack`.
    """

    def __init__(self, home: Path) -> None:
        self._file = home / "stack.json"
        self._guard = threading.Lock()
        found = json.loads(self._file.read_text("utf-8")) if self._file.exists() else {}
        self.parts: dict[str, Started] = {
            name: Started(
                Process(part["pid"], part["started"]), part["ports"], part.get("version", "")
            )
            for name, part in found.pop("parts", {}).items()
        }
        # An older record has them by parts alone.
        of_parts = {name: port for part in self.parts.values() for name, port in part.ports.items()}
        self._ports: dict[str, int] = {**found.pop("ports", {}), **of_parts}
        self.addresses: dict[str, str] = found

    def alive(self, name: str) -> bool:
        """Whether the part was started and its process still runs."""
        part = self.parts.get(name)
        return part is not None and process.alive(part.process)

    def ports(self) -> dict[str, int]:
        """Every recorded port by its name, of parts that are dead or were ended too: they come back
        where they were."""
        return dict(self._ports)

    def add(self, name: str, part: Started) -> None:
        """Record a part that has just been started."""
        with self._guard:
            self.parts[name] = part
            self._ports.update(part.ports)
            self._write()

    def forget(self, name: str) -> None:
        """A part is gone for good; where it was is kept for the next one."""
        with self._guard:
            self.parts.pop(name, None)
            self._write()

    def set_addresses(self, addresses: Mapping[str, str]) -> None:
        """Replace what `Settings` reads."""
        with self._guard:
            self.addresses = dict(addresses)
            self._write()

    def _write(self) -> None:
        parts = {
            name: {
                "pid": part.process.pid,
                "started": part.process.started,
                "ports": dict(part.ports),
                "version": part.version,
            }
            for name, part in sorted(self.parts.items())
        }
        written = {**self.addresses, "ports": self._ports, "parts": parts}
        draft = self._file.with_suffix(".draft")
        draft.write_text(json.dumps(written, indent=2) + "\n", "utf-8")
        draft.replace(self._file)
