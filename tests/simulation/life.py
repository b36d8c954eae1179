"""A pipeline's life in the twins in which somebody says what happens, and when: what `scenarios.py` is
made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

from checker import Checker, Finding, Range
from sim_judge import PIPELINE, TOPIC_PARTITIONS, ranges_read
from sim_kafka import Record, SourcePartition, SourceTopic, topic_id
from sim_tables import OUTBOX, TRACE, VIEW
from sim_world import SECOND, Process, Rates, Task
from simulate import INCARNATION, SINKS, TOPIC_SINK, Simulation

from lockstep.adapters.memory_store import MemoryStore
from lockstep.control import planning
from lockstep.control.changes import Change, Deploy, Landed, Outcome, SwapSnapshots
from lockstep.control.interval import Parts, Point
from lockstep.control.model import PipelineState, SinkState
from lockstep.control.restoring import said_by_tables
from lockstep.errors import LockstepError
from lockstep.ids import LAYOUTS_TABLE, STEPS_TABLE, errors_table
from lockstep.sql.circuit import ProjectFiles
from lockstep_engine.sinks import kafka_plan

Stage = Callable[[Parts], object]
Reached = Callable[[Point, Process], None]


class Life(Simulation):
    """A pipeline's life in which somebody says what happens, and when; nothing fails by itself.

    `lineage` is what each step read, by the record that counts; `refusals` are the errors that stages
    have ended with. Where `is_judged_later`, what is recorded is not judged at once.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed, Rates().without_faults())
        self.moments = Random(f"moments {seed}")
        self.lineage: list[list[Range]] = []
        self.refusals: list[LockstepError] = []
        self.shards = 1
        self.is_judged_later = False
        self._gone: dict[str, SourceTopic] = {}
        self._topic_from = [0] * TOPIC_PARTITIONS

    # ── what happens ────────────────────────────────────────────────────────────────────────────

    def deploy(self, shards: int, incarnation: str = INCARNATION) -> None:
        self.shards = shards
        files = ProjectFiles(str(shards), (), "")
        self.store.send(PIPELINE, Deploy(files, incarnation, SINKS, tuple(self.topics)))

    def produce(self) -> None:
        """Records for every source, ten seconds after what was before."""
        self.world.now += 10 * SECOND
        for name, topic in self.topics.items():
            topic.produce(self.world, name)
            topic.partitions[0].log.append(Record(f"{name}0x", 1, self.world.now))

    def start(self, *work: Stage, reached: Reached = lambda *_: None) -> tuple[Process, Task]:
        self._processes += 1
        process = Process(f"process {self._processes}")
        parts = replace(self.parts(), reached=lambda point: reached(point, process))

        def body() -> None:
            try:
                for stage in work:
                    stage(parts)
            except LockstepError as error:
                self.refusals.append(error)
                self.world.note(f"{process.name} ends: {error}")

        return process, self.world.start(process, body)

    def go(self, *work: Stage, reached: Reached = lambda *_: None) -> None:
        """A process that goes through these stages; others go on meanwhile."""
        _, task = self.start(*work, reached=reached)
        self.world.run(lambda: task.is_done)

    def go_half_way(self, *work: Stage, turns: int = 150) -> None:
        """Until some moment, of which `turns` is the latest."""
        end = self.world.turns + self.moments.randint(1, turns)
        _, task = self.start(*work)
        self.world.run(lambda: task.is_done or self.world.turns >= end)

    def publish_half_way(self, turns: int = 40) -> Task:
        """Until some moment after its first row has gone out, of which `turns` is the latest."""
        sent = sum(map(len, self.cluster.logs))
        _, task = self.start(self._publish)
        self.world.run(lambda: task.is_done or sum(map(len, self.cluster.logs)) > sent)
        end = self.world.turns + self.moments.randint(0, turns)
        self.world.run(lambda: task.is_done or self.world.turns >= end)
        return task

    def forget_markers(self) -> None:
        """Some of the topic's, or all."""
        everyone = range(TOPIC_PARTITIONS)
        some = self.moments.choice((everyone, [0], self.moments.sample(everyone, 2)))
        self.cluster.forget(f"{INCARNATION}/{TOPIC_SINK}", some)

    def advance(self, times: int = 1) -> None:
        for _ in range(times):
            self.produce()
            self.go(self._plan_all, self._run, self._publish)

    def _plan_all(self, parts: Parts) -> None:
        planning.plan(parts, None, lambda _: None)

    def die(self) -> None:
        """All processes end where they are."""
        for task in list(self.world._tasks):
            self.world.kill(task.process)
        self.world.run()

    def fall_asleep(self, pause: int) -> None:
        """All processes do nothing for a while, then go on as if nothing had happened."""
        for task in self.world._tasks:
            task.process.wakes = self.world.now + pause

    def was_told(self, what: str) -> bool:
        """Whether a stage has refused with these words."""
        return any(what in str(refusal) for refusal in self.refusals)

    def hold_swap(self, delay: int) -> list[Change]:
        """The first swap of files is asked for so much later; it is in the list from then on."""
        held: list[Change] = []
        apply = self.store.apply

        def slow(pipeline: str, change: Change) -> Outcome:
            if isinstance(change, SwapSnapshots) and not held:
                held.append(change)
                self.world.pause(delay)
            return apply(pipeline, change)

        self.store.apply = slow  # type: ignore[method-assign]
        return held

    def recorded(self) -> PipelineState:
        return self.store.memory.read(PIPELINE)

    # ── what happens to the store ───────────────────────────────────────────────────────────────

    def backup(self) -> tuple[MemoryStore, int]:
        copy = MemoryStore()
        copy._states = dict(self.store.memory._states)
        copy._divisions = {name: dict(d) for name, d in self.store.memory._divisions.items()}
        return copy, len(self.lineage)

    def set_back(self, backup: tuple[MemoryStore, int]) -> list[list[Range]]:
        """The store is an old backup from now on; gives what counted until now."""
        told = self.lineage
        self.store.memory, kept = backup
        self.lineage = told[:kept]
        self.is_judged_later = True
        return told

    def lose_store(self) -> list[list[Range]]:
        return self.set_back((MemoryStore(), 0))

    def rebuild(self, told: list[list[Range]]) -> None:
        """`lockstep doctor DIR --rebuild`, of what tables and sinks say."""
        files = ProjectFiles(str(self.shards), (), "")

        def restore(parts: Parts) -> None:
            needed = {TRACE, OUTBOX, STEPS_TABLE}
            beside = {LAYOUTS_TABLE, *map(errors_table, self.topics)}
            change = said_by_tables(PIPELINE, files, needed, beside, parts.state, self._published)
            outcome = self.store.send(PIPELINE, change)
            self.world.note(f"recorded again: {outcome}")
            if not isinstance(outcome, Landed):
                self.findings.append(Finding("stuck", "the store", outcome.reason))
                return
            for division in change.divisions:
                if told[division.step : division.step + 1] != [ranges_read(division)]:
                    self.findings.append(
                        Finding("changed", f"step {division.step}", "by a rebuild")
                    )
            self.lineage = told[: outcome.state.next_step]
            self.is_judged_later = False
            self._checker = self._told(self.lineage)

        self.go(restore)

    def _published(self, incarnation: str) -> tuple[SinkState, ...]:
        head = self.lake.tables.get(VIEW)
        step = -1 if head is None else self._view_step()
        group = f"{incarnation}/{TOPIC_SINK}"
        markers = self.cluster.markers(group, range(TOPIC_PARTITIONS))
        topic_step = kafka_plan.step_of_all(markers, TOPIC_SINK)
        return (
            SinkState(VIEW, VIEW, "iceberg", step),
            SinkState(TOPIC_SINK, VIEW, "kafka", topic_step),
        )

    # ── what happens to a source ────────────────────────────────────────────────────────────────

    def make_anew(self, name: str) -> None:
        """A topic is deleted, and made anew with more records than it had."""
        old = self.topics[name]
        self._gone[topic_id(name, old.made)] = old
        new = SourceTopic([SourcePartition() for _ in old.partitions], old.made + 1)
        for number, partition in enumerate(old.partitions):
            for value in range(len(partition.log) + self.moments.randint(1, 4)):
                record = Record(f"{name}{number}x", value + 10, self.world.now)
                new.partitions[number].log.append(record)
        self.topics[name] = new

    def _topic_of(self, source: str) -> SourceTopic:
        return self._gone[source] if source in self._gone else super()._topic_of(source)

    # ── what is checked ─────────────────────────────────────────────────────────────────────────

    def _seen(self, change: Change, before: PipelineState, after: PipelineState) -> None:
        if after.pending is not None and after.pending.last_step >= len(self.lineage):
            self.lineage[after.pending.first_step :] = [
                ranges_read(division) for division in after.pending.divisions
            ]
        if not self.is_judged_later:
            super()._seen(change, before, after)

    def _topic(self) -> list[tuple[int, tuple[object, ...], int]]:
        return [row for row, is_new in self._rows_with_age() if is_new]

    def _rows_with_age(self) -> list[tuple[tuple[int, tuple[object, ...], int], bool]]:
        """Each row of the topic, and whether it came after `forget_topic`."""
        rows, found = super()._topic(), []
        at = 0
        for partition in range(TOPIC_PARTITIONS):
            known = set(map(id, self.cluster.logs[partition][: self._topic_from[partition]]))
            for sent in self.cluster.committed(partition):
                found.append((rows[at], id(sent) not in known))
                at += 1
        return found

    def begin_topic(self, *, anew: bool = True) -> None:
        """What is in the topic now is another life's, and is not judged with this one's."""
        self._topic_from = [len(log) if anew else 0 for log in self.cluster.logs]

    def _told(self, lineage: Sequence[Sequence[Range]]) -> Checker:
        checker = self._new_checker()
        for step, ranges in enumerate(lineage):
            checker.recorded(step, ranges)
        return checker

    def finish(self) -> None:
        """All that producers have committed gets published, and is right."""
        self.world.run()
        self._go_quiet()
        if self.findings:
            return
        self._checker = checker = self._told(self.lineage)
        read = {(s, p): end for ranges in self.lineage for s, p, _, end in ranges}
        gone = {place: end for place, end in read.items() if place[0] in self._gone}
        self.findings += checker.input_read({**gone, **self._ends()})
        state = self.recorded()
        self.findings += self._version_judged(state.version)
        for name, snapshot_id in state.version.tables.items():
            table = self.lake.tables.get(name)
            if table is None or table.refs["main"] != snapshot_id:
                self.findings.append(Finding("lost", f"main of {name}", "is not the newest"))
        self.judge_sinks(checker.last_step)
        if not self._is_done():
            self.findings.append(Finding("stuck", "the end", str(self.recorded().sinks)))

    def judge_sinks(self, last: int, lineage: Sequence[Sequence[Range]] | None = None) -> None:
        """View and topic hold all up to a step, and nothing else."""
        checker = self._told(self.lineage if lineage is None else lineage)
        topic = self._topic()
        self.findings += checker.changes("the topic", 0, last, topic)
        self.findings += checker.order("the topic", topic)
        view = self.lake.tables.get(VIEW)
        rows = () if view is None else view.shown[-1].rows
        self.findings += checker.view("the view", last, rows)
