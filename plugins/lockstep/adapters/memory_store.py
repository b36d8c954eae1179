"""The control store in memory: the twin that tests and simulations use instead of a database."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from threading import Lock

from lockstep.control import transitions
from lockstep.control.changes import Change, Deploy, Landed, Outcome, Rejected, Restore
from lockstep.control.model import Division, PipelineState, Version
from lockstep.errors import NotDeployed

__all__ = ["MemoryStore"]


class MemoryStore:
    """The `Store` of `control.ports` for one process; safe to use from many threads."""

    def __init__(self) -> None:
        self._states: dict[str, PipelineState] = {}
        self._divisions: dict[str, dict[int, Division]] = {}
        self._lock = Lock()

    def pipelines(self) -> tuple[str, ...]:
        """Names of all deployed pipelines, sorted."""
        with self._lock:
            return tuple(sorted(self._states))

    def read(self, pipeline: str) -> PipelineState:
        """The state as of one moment. Raises NotDeployed."""
        with self._lock:
            state = self._states.get(pipeline)
            names = ", ".join(sorted(self._states)) or "none"
        if state is None:
            raise NotDeployed(
                f"no pipeline {pipeline} is deployed",
                expected="the name of a deployed pipeline",
                found=names,
                next_step="lockstep deploy DIR",
            )
        return state

    def apply(self, pipeline: str, change: Change) -> Outcome:
        """Landed or Rejected, never Unknown. Raises NotDeployed for all changes but Deploy."""
        if not isinstance(change, Deploy | Restore):
            self.read(pipeline)
        with self._lock:
            before = self._states.get(pipeline)
            log = self._divisions.setdefault(pipeline, {})
            kept = partial(_between, log)
            try:
                after = transitions.apply(before, change, name=pipeline, log=kept)
            except transitions.Precondition as refused:
                return Rejected(refused.reason, before)
            if isinstance(change, Restore) and after is not before:
                log.update((d.step, d) for d in change.divisions)
            if after.pending is not None:
                log.update((d.step, d) for d in after.pending.divisions)
            # Some are beyond these where a restore goes back to fewer: they are divided anew.
            kept_steps = range(after.oldest_step, after.next_step)
            for step in [step for step in log if step not in kept_steps]:
                del log[step]
            self._states[pipeline] = after
            return Landed(after)

    def divisions(self, pipeline: str, first_step: int, last_step: int) -> tuple[Division, ...]:
        """Recorded divisions with first_step <= step <= last_step that are still kept, by step."""
        self.read(pipeline)
        with self._lock:
            return _between(self._divisions[pipeline], first_step, last_step)

    def versions(self, pipeline: str) -> tuple[Version, ...]:
        """Versions kept, oldest first."""
        return self.read(pipeline).versions


def _between(log: Mapping[int, Division], first_step: int, last_step: int) -> tuple[Division, ...]:
    return tuple(log[step] for step in sorted(log) if first_step <= step <= last_step)
