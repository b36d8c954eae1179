"""Stages on a real store, with an engine and tables that only keep a record of what they are asked."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from control_builders import deploy, store_url

from lockstep.adapters.clock import SystemClock
from lockstep.adapters.sql_store import SqlStore
from lockstep.control import interval as stages
from lockstep.control.changes import Change, Landed
from lockstep.control.job import (
    CompareJob,
    CompareResult,
    IntervalJob,
    IntervalResult,
    PublishJob,
    PublishResult,
    TableWrite,
)
from lockstep.control.ports import Progress
from lockstep.control.steps import StepLimits
from lockstep.errors import StateDiverged, Unreachable

__all__ = ["PIPELINE", "Recording", "opened", "silent"]

PIPELINE = "p"


class Recording:
    """An engine and its tables: each job appends one row, and sinks do what they are asked to."""

    def __init__(self) -> None:
        self.ran: list[tuple[int, int]] = []
        self.published: list[int] = []
        self.compared: list[tuple[int, int]] = []
        self.refuses_publish = False
        self.during_run: Callable[[str], None] = lambda _: None
        """Is called with the attempt's id while a job is at work."""
        self.lost_branches: set[str] = set()

    def session(self, _: str) -> str:
        return ""

    def interrupt(self, _: str) -> None:
        pass

    def run(self, job: IntervalJob, _: Progress) -> IntervalResult:
        self.during_run(job.attempt)
        self.ran.append((job.interval.first_step, job.interval.last_step))
        snapshot = len(self.ran)
        return IntervalResult(
            {"v_changes": snapshot},
            (TableWrite("v_changes", job.attempt, snapshot, 10),),
            {"a": 0.5},
        )

    def publish(self, job: PublishJob, _: Progress) -> PublishResult:
        if self.refuses_publish:
            raise Unreachable("the broker is away", next_step="publish again")
        self.published.append(job.last_step)
        names = [target.name for target in job.sinks]
        return PublishResult(dict.fromkeys(names, job.last_step), dict.fromkeys(names, 1), {})

    def compare(self, job: CompareJob, _: Progress) -> CompareResult:
        self.compared.append((job.first_step, job.last_step))
        return CompareResult({})

    def appended(self, _table: str, branch: str, _base: int | None) -> tuple[str, ...]:
        if branch in self.lost_branches:
            raise StateDiverged(f"table has no branch {branch}", next_step="look")
        return (branch.removeprefix("attempt_"),)

    def bounds(self, _: str) -> Any:
        raise AssertionError("of steps without records nobody looks at a topic")

    def settle(self, *_: object) -> None:
        pass

    def view_head(self, _: str) -> None:
        """No table is there that could know more than the store."""


def opened(tmp_path: Path, engine: Recording, *changes: Change) -> stages.Parts:
    store = SqlStore(store_url(tmp_path))
    for change in (deploy(), *changes):
        landed = store.apply(PIPELINE, change)
        assert isinstance(landed, Landed), landed
    nothing: Any = None
    double: Any = engine
    numbers = count()
    return stages.Parts(
        pipeline=PIPELINE,
        store=store,
        sources=double,
        state=double,
        files=nothing,
        engine=double,
        clock=SystemClock(),
        limits=StepLimits(),
        retain_versions=2,
        source_names=(),
        outboxes={"v": "v_changes"},
        variables={},
        catalog=nothing,
        new_id=lambda: f"b{next(numbers)}",
    )


def silent(_: str) -> None:
    pass
