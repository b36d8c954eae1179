"""What the processes of one run of the tests share: a server that the first of them to ask for it
starts, and the last that leaves it ends.

A folder is common to the processes. In it are, by server, a description, which is there as long as
the server can be used, and two locks: one is held for a moment by whoever comes or goes, the other is
shared by all who use the server. The system lets go of the locks of a process that dies.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from lockstep.adapters.embedded import process
from lockstep.adapters.embedded.process import Process

__all__ = ["common_folder", "shared"]

Description = Mapping[str, Any]


def common_folder(factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of this run of the tests see: xdist's workers have theirs in it."""
    base = factory.getbasetemp()
    return base.parent if base.name.startswith("popen-") else base


@contextmanager
def shared(
    folder: Path, name: str, start: Callable[[Path], tuple[Process, Description]], seconds: float
) -> Iterator[tuple[Process, Description]]:
    """A server in a folder of its own, and what `start` says of it, JSON values; it has `seconds` to
    end."""
    own = folder / name
    own.mkdir(exist_ok=True)
    described = own / "description.json"
    with (folder / f"{name}.users").open("a") as users:
        with _moment(folder, name):
            if not described.exists():
                server, description = start(own)
                described.write_text(json.dumps([server.pid, server.started, description]))
            fcntl.flock(users, fcntl.LOCK_SH)
        pid, started, description = json.loads(described.read_text())
        server = Process(pid, started)
        try:
            yield server, description
        finally:
            with _moment(folder, name):
                if _is_last(users):
                    described.unlink()
                    process.stop(server, seconds)


@contextmanager
def _moment(folder: Path, name: str) -> Iterator[None]:
    """Nobody else comes or goes meanwhile."""
    with (folder / f"{name}.door").open("a") as door:
        fcntl.flock(door, fcntl.LOCK_EX)
        yield


def _is_last(users: IO[str]) -> bool:
    """Whether nobody else uses the server; nobody can begin to."""
    fcntl.flock(users, fcntl.LOCK_UN)
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
