"""What carries a group's progress within a process: between threads, and in simulations."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Condition

from lockstep.control.coordination.progress import Notice, Progress

__all__ = ["MemoryCarrier"]

REST_SECONDS = 0.01
"""How long a waiting worker does not look for other work; of what others tell it hears at once."""


class MemoryCarrier:
    """One group within a process, for threads and for simulations; gone with the process."""

    def __init__(self) -> None:
        self._told: Mapping[str, Progress] = {}
        self._changed = Condition()

    def publish(self, worker: str, notice: Notice) -> Progress:
        with self._changed:
            recorded = self._told.get(worker, Progress()).after(notice)
            self._told = {**self._told, worker: recorded}
            self._changed.notify_all()
        return recorded

    def read(self) -> Mapping[str, Progress]:
        return self._told

    def rest(self, known: Mapping[str, Progress]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._told is not known, timeout=REST_SECONDS)
