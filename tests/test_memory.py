"""How much memory a process may use, and what of it is looked through for garbage."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from pathlib import Path

import psutil
import pytest

from lockstep.memory import keep_loaded, memory_bytes

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


class Ring:
    """Refers to itself, so that only a collection can find that nothing else does."""

    def __init__(self) -> None:
        self.itself = self


def test_what_is_loaded_is_kept_once() -> None:
    gc.unfreeze()
    keep_loaded.cache_clear()
    keep_loaded()
    frozen = gc.get_freeze_count()
    assert frozen > 10_000
    later = weakref.ref(Ring())
    keep_loaded()
    assert gc.get_freeze_count() <= frozen
    gc.collect()
    assert later() is None, "what came later can be garbage"


def test_a_process_that_has_kept_what_is_loaded_ends_in_silence() -> None:
    """The extension of DuckDB counts its objects when Python has ended."""
    code = (
        "import duckdb; from lockstep.memory import keep_loaded; "
        "found = duckdb.connect().sql('SELECT 1'); keep_loaded(); print(found.fetchall())"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == ("[(1,)]\n", "")
