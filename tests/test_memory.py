"""How much memory a process may use."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from lockstep.memory import memory_bytes

MACHINE = psutil.virtual_memory().total


@pytest.mark.parametrize(
    ("said", "expected"),
    [(None, MACHINE), ("max\n", MACHINE), ("1048576\n", 1 << 20), (f"{1 << 60}\n", MACHINE)],
)
def test_it_is_the_machines_or_less(tmp_path: Path, said: str | None, expected: int) -> None:
    limit = tmp_path / "memory.max"
    if said is not None:
        limit.write_text(said)
    assert memory_bytes(limit) == expected
