"""How much memory a process may use, and what of it is looked through for garbage."""

from __future__ import annotations

import atexit
import gc
import os
from contextlib import suppress
from functools import cache
from pathlib import Path

__all__ = ["keep_loaded", "memory_bytes"]

_LIMIT_OF_GROUP = Path("/sys/fs/cgroup/memory.max")
"""Of a container, or of another group of processes that this one is in (Linux, cgroup v2)."""


def memory_bytes(limit_of_group: Path = _LIMIT_OF_GROUP) -> int:
    """The machine's, or what the process's container may have of it, where that is less."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    # The file is not there outside of a group, and says "max" where there is no limit.
    with suppress(OSError, ValueError):
        return min(machine, int(limit_of_group.read_text()))
    return machine


@cache
def keep_loaded() -> None:
    """Take what is there by now, modules above all, for what stays: no collection of garbage looks
    through it again, which takes a quarter of a second each time with the clients of Spark, Kafka and
    Iceberg. Once a process, as what is garbage by then, or becomes it later of what is there by then, is
    kept, too."""
    gc.freeze()
    # Python looks through all of it when it ends, without which some libraries say that it leaks.
    atexit.register(gc.unfreeze)
