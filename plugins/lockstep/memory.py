"""How much memory a process may use."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

__all__ = ["memory_bytes"]

_LIMIT_OF_GROUP = Path("/sys/fs/cgroup/memory.max")
"""Of a container, or of another group of processes that this one is in (Linux, cgroup v2)."""


def memory_bytes(limit_of_group: Path = _LIMIT_OF_GROUP) -> int:
    """The machine's, or what the process's container may have of it, where that is less."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    # The file is not there outside of a group, and says "max" where there is no limit.
    with suppress(OSError, ValueError):
        return min(machine, int(limit_of_group.read_text()))
    return machine
