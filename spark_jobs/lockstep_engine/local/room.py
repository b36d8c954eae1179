"""How much of the machine's memory this process fills with rows that it works on."""

from __future__ import annotations

import pyarrow as pa

from lockstep.lake.kept_batches import kept_bytes
from lockstep.memory import memory_bytes

__all__ = ["has_room"]

_MOST_BYTES = max(512 << 20, memory_bytes() // 4)
"""Of what Arrow has allocated. Columns that NumPy has made, and what it needs besides, come on top."""


def has_room(more: int = 0) -> bool:
    """Whether so many bytes may be allocated beside all rows that this process has, of whatever
    interval, but for those of files that are kept between intervals. Nothing is set aside by that."""
    held: int = pa.total_allocated_bytes() - kept_bytes()
    return max(0, held) + more <= _MOST_BYTES
