"""How much of the machine's memory this process fills with rows that it works on."""

from __future__ import annotations

import pyarrow as pa

from lockstep.memory import memory_bytes

__all__ = ["has_room"]

_MOST_BYTES = memory_bytes() // 5
"""Of what Arrow holds. What is made of it on the way, outside of Arrow, is at most as much again."""


def has_room(more: int = 0) -> bool:
    """Whether so many bytes may be there beside all rows that this process has, of whatever interval."""
    held: int = pa.total_allocated_bytes()
    return held + more <= _MOST_BYTES
