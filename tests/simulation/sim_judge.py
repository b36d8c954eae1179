"""What a pipeline's life shows to people, and what the checker says of it.

The checker reads what a user would: outboxes, traces, views, messages. It is told what the steps read,
and works the rest out by itself.
"""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Iterator, Mapping
from typing import Any

from checker import Checker, Finding, Range
from sim_kafka import Cluster, SourceTopic, topic_id
from sim_lake import Lake, SimulatedState
from sim_store import SimulatedStore
from sim_tables import COLUMNS, OUTBOX, TRACE, VIEW
from sim_world import World

from lockstep.control.changes import (
    Change,
    CommitVersion,
    RecordPublished,
    RollBack,
    SwapSnapshots,
    UndoRollBack,
)
from lockstep.control.model import Division, PipelineState, TopicSlice, Version
from lockstep.ids import LAYOUTS_TABLE

__all__ = ["PIPELINE", "TOPIC_PARTITIONS", "Judged", "ranges_read"]

PIPELINE = "p"
TOPIC_PARTITIONS = 3


class Judged:
    """Topics, tables and the store of one pipeline; `findings` are in order of their discovery."""

    def __init__(self, world: World, topics: Mapping[str, SourceTopic]) -> None:
        self.world = world
        self.lake = Lake(world)
        self.topics = topics
        self.store = SimulatedStore(world, self._seen)
        self.state = SimulatedState(self.lake, COLUMNS)
        self.cluster = Cluster(world, TOPIC_PARTITIONS)
        self.findings: list[Finding] = []
        self.versions = 0
        self._grown: list[tuple[str, int, dict[int, int]]] = []
        self._checker = self._new_checker()

    def _is_done(self) -> bool:
        state = self.store.memory.read(PIPELINE)
        if state.pending is not None or any(
            sink.published_step < state.next_step - 1 for sink in state.sinks
        ):
            return False
        read = {
            (slice_.topic_id, range_.partition): range_.end
            for slice_ in state.positions
            if isinstance(slice_, TopicSlice)
            for range_ in slice_.ranges
        }
        return all(read.get(place, 0) >= end for place, end in self._ends().items())

    def _ends(self) -> dict[tuple[str, int], int]:
        return {
            (topic_id(name, topic.made), number): partition.last_stable
            for name, topic in self.topics.items()
            for number, partition in enumerate(topic.partitions)
        }

    def _new_checker(self) -> Checker:
        def records(source: str, partition: int) -> list[tuple[int, str, int]]:
            topic = self._topic_of(source)
            end = len(topic.partitions[partition].log)
            return [(at, r.key, r.value) for at, r in topic.read(partition, 0, end)]

        return Checker(records)

    def _topic_of(self, source: str) -> SourceTopic:
        """The topic of an id, which is how the checker is told of it."""
        return next(t for name, t in self.topics.items() if topic_id(name, t.made) == source)

    def _seen(self, change: Change, before: PipelineState, after: PipelineState) -> None:
        """Judge what is recorded at the moment when it is."""
        if after.pending is not None:
            for division in after.pending.divisions:
                self.findings += self._checker.recorded(division.step, ranges_read(division))
        match change:
            case CommitVersion():
                self.versions += 1
                self.findings += self._version_judged(after.version)
                self.findings += self._layouts_judged(after, is_replay=bool(before.dropped))
            case SwapSnapshots():
                self.findings += self._version_judged(after.version)
            case RecordPublished(sink, last_step):
                self.findings += self._sink_judged(sink, last_step)
        is_meant = isinstance(change, RollBack | UndoRollBack)
        if after.version.number < before.version.number and not is_meant:
            self.findings.append(Finding("lost", "versions", f"{before.version.number}"))
        committed = max(after.output_step, before.output_step)
        for where, step in self._sink_steps():
            if step > committed:
                what = f"step {step}, where step {committed} is the last that is committed"
                self.findings.append(Finding("unexpected", where, what))

    def _version_judged(self, version: Version) -> list[Finding]:
        """Its tables exist, and hold what the steps up to its last have brought."""
        where = f"version {version.number} by {version.attempt}"
        rows: dict[str, tuple[tuple[Any, ...], ...]] = {}
        for name, snapshot_id in sorted(version.tables.items()):
            table = self.lake.tables.get(name)
            if table is None or snapshot_id not in table.snapshots:
                return [Finding("lost", where, f"snapshot {snapshot_id} of {name}")]
            rows[name] = table.snapshots[snapshot_id].rows
        outbox = [(row[-1], row[:-2], row[-2]) for row in rows[OUTBOX]]
        trace = [(row[:-1], row[-1]) for row in rows[TRACE]]
        return [
            *self._checker.changes(f"{where}, outbox", 0, version.last_step, outbox),
            *self._checker.trace(f"{where}, trace", version.last_step, trace),
        ]

    def _layouts_judged(self, state: PipelineState, *, is_replay: bool) -> list[Finding]:
        """The newest version was made under the layout in effect since before its first step, but for a
        replay, which is under the newest; and the tables know of all up to it."""
        version, where = state.version, f"version {state.version.number}"
        since = state.layouts[version.layout_epoch].from_step
        before = [one for one in state.versions if one.last_step < version.last_step]
        first_step = (before[-1].last_step if before else -1) + 1
        if since is None or (since > first_step and not is_replay):
            return [Finding("unexpected", where, f"layout {version.layout_epoch}, from {since} on")]
        snapshot_id = version.tables.get(LAYOUTS_TABLE)
        held = (
            () if snapshot_id is None else self.lake.table(LAYOUTS_TABLE).snapshot(snapshot_id).rows
        )
        if sorted(row[0] for row in held) != [*range(1, version.layout_epoch + 1)]:
            return [Finding("lost", f"{where}, layouts", f"{version.layout_epoch}, not of {held}")]
        return []

    def _sink_judged(self, sink: str, last_step: int) -> list[Finding]:
        """A sink is where the record says, or beyond."""
        if sink == VIEW:
            step = self._view_step()
            return (
                [Finding("lost", VIEW, f"step {last_step}, is at {step}")]
                if step < last_step
                else []
            )
        sent = [row for row in self._topic() if row[0] <= last_step]
        return self._checker.changes(f"the topic up to step {last_step}", 0, last_step, sent)

    def _sink_steps(self) -> Iterator[tuple[str, int]]:
        """The newest step that each sink shows."""
        if VIEW in self.lake.tables:
            yield "the view", self._view_step()
        yield "the topic", max((row[0] for row in self._topic()), default=-1)

    def _view_step(self) -> int:
        """The last step that the view has shown; snapshots of a user's compaction do not say one."""
        steps = [s.summary["lockstep.step"] for s in self.lake.table(VIEW).shown if s.summary]
        return int(steps[-1])

    def _topic(self) -> list[tuple[int, tuple[Any, ...], int]]:
        """Step, row and weight of each record, by partition."""
        found = []
        for partition in range(TOPIC_PARTITIONS):
            for sent in self.cluster.committed(partition):
                weight, row = literal_eval((sent.message.value or b"").decode())
                found.append((sent.message.step, row, weight))
        return found

    def _judged(self) -> list[Finding]:
        """What a user sees at the end."""
        state = self.store.memory.read(PIPELINE)
        checker = self._new_checker()
        for step in range(self._checker.last_step + 1):
            checker.recorded(step, self._checker.ranges(step))
        self._checker = checker
        last = checker.last_step
        found = [] if self._is_done() else [Finding("stuck", "the end", _where(state))]
        found += checker.input_read(self._ends())
        for source, partition, ends in self._grown:
            found += checker.grown(source, partition, ends)
        for version in state.versions[-1:] if state.versions[-1].number else ():
            found += self._version_judged(version)
        for version in state.versions[:-1]:
            if version.number:
                found += self._version_judged(version)
        for name, snapshot_id in state.version.tables.items():
            found += self._main_judged(name, snapshot_id)
        topic = self._topic()
        found += checker.changes("the topic", 0, last, topic)
        found += checker.order("the topic", topic)
        if VIEW in self.lake.tables:
            shown, steps = self.lake.table(VIEW).shown, []
            for number, snapshot in enumerate(shown):
                if snapshot.summary:
                    steps.append(int(snapshot.summary["lockstep.step"]))
                found += checker.view(f"the view, state {number}", steps[-1], snapshot.rows)
            if steps != sorted(steps):
                found.append(Finding("out of order", "the view", f"steps {steps}"))
            found += checker.view("the view at the end", last, shown[-1].rows)
        elif last >= 0:
            found.append(Finding("lost", "the view", "was never made"))
        return found

    def _main_judged(self, name: str, newest: int) -> list[Finding]:
        """What `main` of a versioned table shows to people: only ever more, and all of it at last."""
        table = self.lake.table(name)
        steps = [int(s.summary.get("lockstep.step", -1)) for s in table.shown]
        if name == LAYOUTS_TABLE:
            # A replay logs all layouts that the version of before lacks, at an earlier step maybe.
            steps = [max([row[0] for row in s.rows], default=0) for s in table.shown]
        found = []
        if steps != sorted(steps):
            found.append(Finding("out of order", f"main of {name}", f"steps {steps}"))
        if table.refs["main"] != newest:
            found.append(
                Finding("lost", f"main of {name}", f"is not at the newest version's {newest}")
            )
        return found


def ranges_read(division: Division) -> list[Range]:
    """What a step reads, as the checker is told."""
    return [
        (slice_.topic_id, range_.partition, range_.start, range_.end)
        for slice_ in division.slices
        if isinstance(slice_, TopicSlice)
        for range_ in slice_.ranges
    ]


def _where(state: PipelineState) -> str:
    sinks = ", ".join(f"{sink.name} {sink.published_step}" for sink in state.sinks)
    pending = "nothing" if state.pending is None else f"to {state.pending.last_step}"
    return f"next step {state.next_step}, pending {pending}, {sinks}"
