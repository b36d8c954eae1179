"""Doubles and builders for the Airflow tests: a pipeline that answers from a script, a job."""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from lockstep.adapters.settings import Settings
from lockstep.control.job import CatalogSettings, CompareResult, Difference, IntervalJob
from lockstep.control.model import (
    Division,
    Interval,
    OffsetRange,
    PipelineState,
    SinkState,
    TopicSlice,
    Version,
)
from lockstep.control.ports import Progress
from lockstep.control.reports import Backfilled, Committed, Maintained, Planned, Published
from lockstep.errors import LockstepError
from lockstep.sql.circuit import ProjectFiles

T0 = datetime(2013, 1, 1, tzinfo=UTC)
STEP, MINUTE = timedelta(seconds=10), timedelta(minutes=1)
RECORDS_PER_STEP = 100


class FakePipeline:
    """Steps of ten seconds with 100 records each; one interval takes at most `width` of them.

    `fails` maps a stage's name to errors that its first calls raise, in turn.
    """

    def __init__(self, width: int = 6, fails: Mapping[str, list[LockstepError]] | None = None):
        self.name = "shop"
        self.width = width
        self.calls: list[str] = []
        self.fails = {stage: list(errors) for stage, errors in (fails or {}).items()}
        self.now = T0 + 60 * STEP
        self.pending: Interval | None = None
        self.next_step = 0
        self.version = Version.zero()
        self.published = -1
        self.differences: tuple[Difference, ...] = ()

    def state(self) -> PipelineState:
        return PipelineState(
            self.name,
            "9f",
            1,
            ProjectFiles("name: shop", ()),
            next_step=self.next_step,
            last_time=T0 + self.next_step * STEP if self.next_step else None,
            pending=self.pending,
            versions=(self.version,),
            sinks=(SinkState("counts", "counts", "iceberg", self.published),),
        )

    def plan(self, until: datetime | None, progress: Progress) -> Planned:
        self._call("plan")
        if self.pending is not None:
            return Planned(self.pending, behind=True)
        left = int(((until or self.now) - T0) / STEP) - self.next_step
        if left <= 0:
            return Planned(None, behind=False)
        divisions = tuple(
            self._division(step)
            for step in range(self.next_step, self.next_step + min(left, self.width))
        )
        self.pending = Interval(divisions)
        self.next_step += len(divisions)
        progress("recorded")
        return Planned(self.pending, behind=left > self.width)

    def run(self, progress: Progress) -> Committed | None:
        self._call("run")
        if self.pending is None:
            return None
        interval, self.pending = self.pending, None
        number = self.version.number + 1
        self.version = Version(number, f"a{number}", interval.last_step, 0, {})
        progress("appended")
        return Committed(
            version=number,
            attempt=self.version.attempt,
            first_step=interval.first_step,
            last_step=interval.last_step,
            records=interval.records,
            changes={"counts": 7},
            errors={"orders": 1},
            seconds={"append": 0.5},
        )

    def publish(self, progress: Progress) -> Published:
        self._call("publish")
        last, before = self.version.last_step, self.published
        self.published = last
        progress("merged")
        if last == before:
            return Published({"counts": last}, {}, {})
        return Published({"counts": last}, {"counts": 7}, {"counts": 0.25})

    def is_published(self, until: datetime) -> bool:
        return until <= T0 + (self.published + 1) * STEP

    def backfill(self, start: datetime, end: datetime, progress: Progress) -> Backfilled:
        self._call("backfill")
        progress("compared")
        first, last = math.ceil((start - T0) / STEP), math.floor((end - T0) / STEP) - 1
        return Backfilled(self.name, first, last, 1, CompareResult({"counts": 7}, self.differences))

    def maintain(self, progress: Progress) -> Maintained:  # noqa: ARG002
        self._call("maintain")
        return Maintained({"branches dropped": 2})

    def close(self) -> None:
        self.calls.append("close")

    def __enter__(self) -> FakePipeline:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, stage: str) -> None:
        self.calls.append(stage)
        if errors := self.fails.get(stage):
            raise errors.pop(0)

    def _division(self, step: int) -> Division:
        start = step * RECORDS_PER_STEP
        ranges = (OffsetRange(0, start, start + RECORDS_PER_STEP),)
        return Division(step, T0 + (step + 1) * STEP, (TopicSlice("orders", "o", "id", ranges),))


class Memory:
    """A task state store that outlives a try, as Airflow's does."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def get(self, key: str, default: Any = None) -> Any:
        return self.kept.get(key, default)

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:  # noqa: ARG002
        self.kept[key] = value

    def delete(self, key: str) -> None:
        self.kept.pop(key, None)


NOON = datetime(2013, 1, 1, 12, 0, 0, 123000, tzinfo=UTC)


def interval(first: int = 12, last: int = 13) -> Interval:
    slices = (TopicSlice("orders", "orders", "id-1", (OffsetRange(0, 5, 9), OffsetRange(1, 0, 0))),)
    return Interval(tuple(Division(step, NOON, slices) for step in range(first, last + 1)))


def job() -> IntervalJob:
    return IntervalJob(
        pipeline="shop",
        incarnation="9f",
        attempt="a1",
        branch="attempt_a1",
        base_version=3,
        base_tables={"counts_changes": 7766554433221100998},
        interval=interval(),
        layout_epoch=0,
        files=ProjectFiles("name: shop\n", (("transformations/a.sql", "SELECT 'ü\n'"),)),
        variables={"lockstep.kafka": "127.0.0.1:9092"},
        catalog=CatalogSettings("lake", "shop", {"type": "jdbc"}, {"uri": "sqlite:///x"}),
    )


class StoredPipeline(FakePipeline):
    """A `FakePipeline` whose record is a file, so that the tasks of a real Airflow share it.

    The record begins ten steps of a minute before the time that is first planned to: an hour may turn
    between the making of an installation and its scheduler's first run.
    """

    def __init__(self, name: str, file: Path) -> None:
        super().__init__(width=7)
        self.name = name
        self._file = file
        self._since: datetime | None = None
        if file.exists():
            self.__dict__.update(pickle.loads(file.read_bytes()))

    def plan(self, until: datetime | None, progress: Progress) -> Planned:
        """As the real one: whole steps up to `until`, or up to now."""
        end = until or datetime.now(UTC)
        if self._since is None:
            self._since = end - 10 * MINUTE
        steps = max(0, math.floor((end - self._since) / MINUTE))
        return super().plan(T0 + steps * STEP, progress)

    def is_published(self, until: datetime) -> bool:
        if self._since is None:
            return False
        return super().is_published(T0 + (until - self._since) / MINUTE * STEP)

    def state(self) -> PipelineState:
        state = super().state()
        if self._since is None:
            return state
        return replace(state, last_time=self._since + self.next_step * MINUTE)

    def close(self) -> None:
        self._file.write_bytes(pickle.dumps(self.__dict__))


def open_stored(name: str, settings: Settings, engine: object = None) -> StoredPipeline:  # noqa: ARG001
    """What stands in for `runtime.open_pipeline` in the tasks of the tests' Airflow."""
    return StoredPipeline(name, settings.home / f"{name}.pickle")
