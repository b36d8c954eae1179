"""Topics that grow while producers send to them, and a pipeline that is planned over them in memory.

A producer sends a record of key k to partition k % count. A key's records carry their place in the
order of sending, so that a plan can be asked in which step each of them was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from control_builders import at, deploy

from lockstep.adapters.memory_store import MemoryStore
from lockstep.control import interval as stages
from lockstep.control.changes import BeginAttempt, CommitVersion, Landed
from lockstep.control.growth import Growth, GrowthRules
from lockstep.control.layout.partitions import Mapper, by_modulo
from lockstep.control.model import Attempt, PipelineState, TopicSlice, Version
from lockstep.control.planning import plan
from lockstep.control.ports import PartitionBounds, TopicBounds
from lockstep.control.reports import Planned
from lockstep.control.steps import StepLimits

__all__ = ["Growers", "GrowingTopic"]

PIPELINE = "p"


@dataclass
class GrowingTopic:
    """A topic's partitions, each a list of (key, place in the order of sending, second of sending)."""

    partitions: list[list[tuple[int, int, float]]]
    sent: int = 0

    @staticmethod
    def of(count: int) -> GrowingTopic:
        return GrowingTopic([[] for _ in range(count)])

    def grow(self, count: int) -> None:
        self.partitions += [[] for _ in range(count - len(self.partitions))]

    def send(
        self, keys: Sequence[int], second: float, place: Callable[[int, int], int] | None = None
    ) -> None:
        """By the count that there is now."""
        count = len(self.partitions)
        for key in keys:
            partition = key % count if place is None else place(key, count)
            self.partitions[partition].append((key, self.sent, second))
            self.sent += 1


@dataclass
class Growers:
    """A pipeline over topics by source, which implements `control.ports.Sources` and `Clock` by itself.
    `said` are all lines of progress."""

    topics: dict[str, GrowingTopic]
    growth: Mapping[str, Growth]
    limits: StepLimits = field(default_factory=StepLimits)
    mapper: Mapper = by_modulo
    second: float = 1.0
    said: list[str] = field(default_factory=list)
    start_at_latest = frozenset[str]()

    def __post_init__(self) -> None:
        self.store = MemoryStore()
        assert isinstance(self.store.apply(PIPELINE, deploy()), Landed)
        self._versions = 0

    def now(self) -> datetime:
        return at(self.second)

    def bounds(self, source: str) -> TopicBounds:
        partitions = enumerate(self.topics[source].partitions)
        found = tuple(PartitionBounds(number, 0, len(log)) for number, log in partitions)
        return TopicBounds(f"topic_{source}", "id1", found)

    def offsets_at(
        self, source: str, times: Sequence[datetime]
    ) -> tuple[Mapping[int, int | None], ...]:
        def first(log: list[tuple[int, int, float]], time: datetime) -> int | None:
            return next((n for n, (*_, sent) in enumerate(log) if at(sent) >= time), None)

        partitions = self.topics[source].partitions
        return tuple({n: first(log, time) for n, log in enumerate(partitions)} for time in times)

    @property
    def parts(self) -> stages.Parts:
        double: Any = self
        nothing: Any = None
        return stages.Parts(
            pipeline=PIPELINE,
            store=self.store,
            sources=double,
            state=nothing,
            files=nothing,
            engine=nothing,
            clock=double,
            limits=self.limits,
            retain_versions=2,
            source_names=tuple(sorted(self.topics)),
            outboxes={},
            variables={},
            catalog=nothing,
            new_id=lambda: "",
            growth=GrowthRules(self.growth, self.mapper),
        )

    @property
    def state(self) -> PipelineState:
        return self.store.read(PIPELINE)

    def plan(self, until: float | None = None) -> Planned:
        return plan(self.parts, None if until is None else at(until), self.said.append)

    def advance(self, until: float | None = None) -> list[list[int]]:
        """One interval, planned and committed: how many partitions of each topic each step names."""
        interval = self.plan(until).interval
        if interval is None:
            return []
        self._versions += 1
        name, base = f"a{self._versions}", self.state.version.attempt
        begun = Attempt(name, interval.first_step, interval.last_step, base)
        made = Version(self._versions, name, interval.last_step, 0, {})
        for change in (BeginAttempt(begun), CommitVersion(made, base)):
            assert isinstance(self.store.apply(PIPELINE, change), Landed)
        return [
            [len(slice_.ranges) for slice_ in division.slices if isinstance(slice_, TopicSlice)]
            for division in interval.divisions
        ]

    def catch_up(self, until: float | None = None) -> None:
        """Intervals until there is nothing to do."""
        for _ in range(100):
            if not self.advance(until):
                return
        raise AssertionError(f"still at work: {self.said[-3:]}")

    def steps(self, source: str) -> list[tuple[int, int, int]]:
        """(key, place in the order of sending, step) of each record that a step has read."""
        logs = self.topics[source].partitions
        return [
            (*logs[range_.partition][offset][:2], division.step)
            for division in self.store.divisions(PIPELINE, 0, self.state.next_step)
            for slice_ in division.slices
            if slice_.source == source and isinstance(slice_, TopicSlice)
            for range_ in slice_.ranges
            for offset in range(range_.start, range_.end)
        ]

    def check_order(self, source: str) -> None:
        """Each record is in one step, and a key's steps never go back against the order of sending."""
        found = self.steps(source)
        assert sorted(place for _, place, _ in found) == list(range(self.topics[source].sent))
        by_key: dict[int, list[tuple[int, int]]] = {}
        for key, place, step in found:
            by_key.setdefault(key, []).append((place, step))
        for key, places in by_key.items():
            steps = [step for _, step in sorted(places)]
            assert steps == sorted(steps), f"key {key}: {sorted(places)}"
