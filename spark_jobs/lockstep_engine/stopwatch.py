"""Seconds per named part of a job, for the task log and the benchmarks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

__all__ = ["Stopwatch"]


class Stopwatch:
    """Adds up the wall time of parts; parts may run in several threads at once."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._lock = Lock()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time the body under `name`."""
        started = time.monotonic()
        try:
            yield
        finally:
            elapsed = time.monotonic() - started
            with self._lock:
                self.seconds[name] = round(self.seconds.get(name, 0.0) + elapsed, 3)
