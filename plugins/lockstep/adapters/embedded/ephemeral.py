"""A Spark Connect server for one command, where no stack is up."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from lockstep.adapters.embedded import connect, process
from lockstep.adapters.embedded.connect import ConnectOptions
from lockstep.adapters.embedded.ports import free_ports
from lockstep.adapters.embedded.process import Process
from lockstep.adapters.jars import jar_paths
from lockstep.control.ports import Progress

__all__ = ["ephemeral_connect"]

RECORD = "processes.json"


@contextmanager
def ephemeral_connect(
    folder: Path, progress: Progress, driver_memory: str = "2g", master: str = "local[2]"
) -> Iterator[str]:
    """Start a server below `folder`, give its address, and end it with the block.

    A command that was killed could not end its own: the next one here does.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _sweep(folder)
    jars = jar_paths("spark", progress)
    own = Path(tempfile.mkdtemp(dir=folder))
    options = ConnectOptions(free_ports(1)[0], 0, master, driver_memory)
    log = own / "connect.log"
    progress("starting Spark for this command (`lockstep up` keeps one warm)")
    server = connect.start(own, jars, options, log)
    try:
        processes = {"owner": asdict(process.this_process()), "server": asdict(server)}
        (own / RECORD).write_text(json.dumps(processes), "utf-8")
        connect.wait_ready(server, options.port, log)
        yield options.remote
    except BaseException:
        # The log is what a person needs then; the next command sweeps it away.
        process.stop(server, connect.STOP_SECONDS)
        raise
    process.stop(server, connect.STOP_SECONDS)
    shutil.rmtree(own, ignore_errors=True)


def _sweep(folder: Path) -> None:
    """End the servers of commands that are gone, and remove what they left."""
    for record in folder.glob(f"*/{RECORD}"):
        try:
            found = json.loads(record.read_text("utf-8"))
            owner, server = Process(**found["owner"]), Process(**found["server"])
        except (OSError, ValueError):
            continue  # Being written, or being removed by another command.
        if not process.alive(owner):
            process.stop(server, connect.STOP_SECONDS)
            shutil.rmtree(record.parent, ignore_errors=True)
