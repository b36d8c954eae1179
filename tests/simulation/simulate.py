"""A simulation of the control side and the sinks, from one seed: `make sim RUNS=5000 [SEED=n]`.

Processes run the real stages (plan, run, commit, publish, maintain) against twins in memory. They are
started twice, late and at once; they die, sleep and wake as zombies; requests and answers get lost or
come late; clocks jump, markers and snapshots expire. Afterwards, without faults, all that producers
committed must get published, and what a user sees must be what the checker works out.
"""

from __future__ import annotations

import argparse
import sys
from ast import literal_eval
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields
from datetime import timedelta
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest import mock

from checker import Checker, Finding, Range
from sim_engine import COLUMNS, OUTBOX, TRACE, VIEW, SimulatedEngine
from sim_kafka import Cluster, SourcePartition, Sources, SourceTopic, topic_id
from sim_lake import REPLACE, Lake, RefChange, SimulatedFiles, SimulatedState
from sim_store import SimulatedStore
from sim_world import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    Process,
    ProcessClock,
    Rates,
    StuckError,
    World,
    threads_of,
)

from lockstep.adapters.lease import held
from lockstep.control import backfill, maintenance
from lockstep.control import interval as stages
from lockstep.control.changes import (
    Change,
    ChangeLayout,
    CommitVersion,
    Deploy,
    RecordPublished,
    RollBack,
    SetDesired,
    SwapSnapshots,
    UndoRollBack,
)
from lockstep.control.growth import Growth, GrowthRules
from lockstep.control.job import CatalogSettings
from lockstep.control.layout.scaling import scaled
from lockstep.control.layout.sharding import Fixed
from lockstep.control.model import (
    Division,
    PipelineState,
    RunState,
    SinkState,
    TopicSlice,
    Version,
)
from lockstep.control.planning import plan
from lockstep.control.publishing import publish
from lockstep.control.steps import StepLimits
from lockstep.control.stepwise import run_by_steps
from lockstep.errors import LockstepError
from lockstep.ids import LAYOUTS_TABLE
from lockstep.sql.circuit import ProjectFiles

PIPELINE, INCARNATION, TOPIC_SINK = "p", "incarnation1", "totals_topic"
SINKS = (SinkState(VIEW, VIEW, "iceberg"), SinkState(TOPIC_SINK, VIEW, "kafka"))
TOPIC_PARTITIONS = 3
QUIET_ROUNDS = 60
SCALINGS_PER_START = 0.4
ORDERED, MOST_ORDERED = "payments", 8
"""The topic of which the order of a key's records counts, and how many partitions it gets at most."""


@dataclass(frozen=True)
class Result:
    """What a run showed; `digest` is that of its history."""

    seed: int
    findings: tuple[Finding, ...]
    digest: str
    turns: int
    steps: int
    versions: int
    faults: dict[str, int]
    errors: dict[str, int]
    history: tuple[str, ...]


class Simulation:
    """One pipeline's life under one seed."""

    def __init__(
        self, seed: int, rates: Rates, *, scales: bool = False, keep_history: bool = False
    ) -> None:
        draw = Random(seed)
        self.seed = seed
        self.world = World(seed, rates.drawn(draw), keep_history=keep_history)
        self.lake = Lake(self.world)
        self.topics = {
            name: SourceTopic([SourcePartition() for _ in range(draw.randint(1, 2))])
            for name in ("orders", "payments")[: draw.randint(1, 2)]
        }
        self.store = SimulatedStore(self.world, self._seen)
        self.state = SimulatedState(self.lake, COLUMNS)
        self.cluster = Cluster(self.world, TOPIC_PARTITIONS)
        self.sources = Sources(self.world, self.topics)
        self.engine = SimulatedEngine(
            self.world, self.lake, self.state, self.sources, self.cluster, draw.random() < 0.3
        )
        self.limits = StepLimits(
            step_seconds=10,
            interval_seconds=60,
            steps_per_interval=draw.choice((2, 10)),
            rows_per_step=draw.choice((2, 5)),
            rows_per_interval=draw.choice((8, 1000)),
        )
        self.retain_versions = draw.choice((2, 3, 5))
        self.run_stage = draw.choice((stages.run, stages.run, run_by_steps))
        self.starts = draw.randint(4, 12)
        # Of its own: where nobody scales, a seed gives the history that it would give anyway.
        self._scales = Random(f"layouts {seed}") if scales else None
        self.lease_of_runs = draw.choice((0.0, 0.5, 1.0))
        self.findings: list[Finding] = []
        self._grown: list[tuple[str, int, dict[int, int]]] = []
        self.errors: dict[str, int] = {}
        self.versions = 0
        self._checker = self._new_checker()
        self._processes = 0

    def parts(self) -> stages.Parts:
        world = self.world
        return stages.Parts(
            pipeline=PIPELINE,
            store=self.store,
            sources=self.sources,
            state=self.state,
            files=SimulatedFiles(self.lake),
            engine=self.engine,
            clock=ProcessClock(world),
            limits=self.limits,
            retain_versions=self.retain_versions,
            source_names=tuple(self.topics),
            outboxes={VIEW: OUTBOX},
            variables={},
            catalog=CatalogSettings("lake", "db", {}, {}),
            new_id=world.new_id,
            growth=GrowthRules({ORDERED: Growth.MULTIPLE}),
        )

    # ── a run ───────────────────────────────────────────────────────────────────────────────────

    def run(self) -> Result:
        """The whole life; findings are in order of their discovery."""
        world = self.world
        with self._outside():
            try:
                self._deploy(1)
                world.start(Process("operator", is_immortal=True), self._operate)
                world.expire = self._expire
                world.run(lambda: bool(self.findings))
                world.rates = world.rates.without_faults()
                world.run(lambda: bool(self.findings))
                self._go_quiet()
            except StuckError as stuck:
                self.findings.append(Finding("stuck", "the run", str(stuck)))
            if not self.findings:
                self.findings += self._judged()
            world.close()
        return Result(
            self.seed,
            tuple(self.findings),
            world.digest(),
            world.turns,
            self._checker.last_step + 1,
            self.versions,
            world.fault_counts,
            self.errors,
            tuple(world.history or ()),
        )

    @contextmanager
    def _outside(self) -> Iterator[None]:
        """Put the simulated machine in the place of the real one."""

        def is_alive(process_id: int) -> bool:
            return self.world.is_alive(f"process {process_id}")

        with (
            threads_of(self.world),
            mock.patch(
                "lockstep.adapters.lease.socket", SimpleNamespace(gethostname=lambda: "here")
            ),
            mock.patch("lockstep.adapters.lease._is_alive", is_alive),
        ):
            yield

    def _deploy(self, shards: int) -> None:
        files = ProjectFiles(str(shards), (), "")
        self.store.send(PIPELINE, Deploy(files, INCARNATION, SINKS, tuple(self.topics)))

    def _operate(self) -> None:
        """What comes from outside: records, starts, changes of the project, a user's doings."""
        world = self.world
        for _ in range(self.starts):
            self._disturb()
            if self._scales is not None and self._scales.random() < SCALINGS_PER_START:
                self.scale(self._scales)
            for name, topic in self.topics.items():
                topic.produce(world, name)
            for _ in range(world.random.choice((1, 1, 2, 3))):
                self._start(world.random.choice((0, 0, SECOND, 5 * SECOND)))
            if world.random.random() < 0.6:
                self._start(world.random.choice((0, SECOND)), (self._maintain,), is_leased=False)
            gap = world.random.choice((SECOND, 10 * SECOND, MINUTE))
            if world.chance("long_gap_per_start"):
                gap = world.random.choice((HOUR, 2 * DAY, 8 * DAY))
            world.pause(gap)

    def _disturb(self) -> None:
        world = self.world
        if world.chance("other_shards_per_start"):
            self._deploy(world.random.randint(1, TOPIC_PARTITIONS))
        if world.chance("new_partition_per_start"):
            self._grow(world.random.choice(list(self.topics)))
        if world.chance("pause_per_start"):
            self.store.send(PIPELINE, SetDesired(world.random.choice(list(RunState))))
        if world.chance("user_compaction_per_start"):
            self._compact_view()
        if world.chance("rollback_per_start"):
            self._roll_back()
        if world.chance("backfill_per_start"):
            self._start(0, (self._backfill,))

    def scale(self, random: Random) -> None:
        """To so many workers; now and then under the interval under way, too."""
        state = self.store.memory.read(PIPELINE)
        newest = state.layouts[-1].layout
        changes = scaled(newest, random.randint(1, 5), sharding=Fixed(8))
        at_once = random.random() < 0.3
        if changes or at_once:
            change = ChangeLayout(newest.epoch, changes, at_once)
            self.store.send(PIPELINE, change)
            self.world.note(f"the operator: {change}")

    def _grow(self, name: str) -> None:
        """By one partition; where order counts to twice as many, which some records then came before."""
        topic = self.topics[name]
        if name != ORDERED:
            topic.partitions.append(SourcePartition())
        elif len(topic.partitions) <= MOST_ORDERED / 2:
            ends = {n: partition.last_stable for n, partition in enumerate(topic.partitions)}
            topic.partitions += [SourcePartition() for _ in ends]
            new = range(len(ends), 2 * len(ends))
            self._grown += [(topic_id(name, topic.made), partition, ends) for partition in new]

    def _roll_back(self) -> None:
        """To any version that is kept and pinned, which the empty one is not; or a rollback is taken
        back."""
        state = self.store.memory.read(PIPELINE)
        change: Change = SetDesired(state.desired)
        if state.dropped and self.world.random.random() < 0.5:
            change = UndoRollBack(state.dropped[-1].number, state.dropped[-1].attempt)
        elif pinned := [version for version in state.versions[:-1] if version.number]:
            target = self.world.random.choice(pinned)
            change = RollBack(target.number, target.attempt)
        self.store.send(PIPELINE, change)
        self.world.note(f"the operator: {change}")

    def _expire(self) -> None:
        """Snapshots expire at any time, the youngest too: only refs keep them."""
        age = self.world.random.choice((0, HOUR, DAY))
        self.world.note(f"{self.lake.expire(self.world.now - age)} snapshots have expired")

    def _compact_view(self) -> None:
        if VIEW in self.lake.tables:
            view = self.lake.tables[VIEW]
            head = view.at("main")
            files = self.lake.new_files(head.rows)
            compacted = self.lake.add(view, head, REPLACE, {}, files)
            self.lake.change(view, RefChange({"main": compacted.id}))

    # ── processes ───────────────────────────────────────────────────────────────────────────────

    def _start(
        self,
        delay: int = 0,
        work: tuple[Callable[[stages.Parts], object], ...] = (),
        *,
        is_leased: bool | None = None,
    ) -> None:
        """A process that goes through stages, as a task of a DAG or a run by hand does."""
        world = self.world
        self._processes += 1
        process = Process(f"process {self._processes}")
        holder = f"{world.random.choice(('here', 'there'))}:{self._processes}:{world.new_id()}"
        leased = world.random.random() < self.lease_of_runs if is_leased is None else is_leased
        if not work:
            advance = (self._plan, self._run, self._publish)
            work = world.random.choice((advance, advance, advance * 2, advance[1:], advance[2:]))

        def body() -> None:
            parts = self.parts()
            for stage in work:
                try:
                    with self._lease(holder) if leased else nullcontext():
                        stage(parts)
                except LockstepError as error:
                    kind = type(error).__name__
                    self.errors[kind] = self.errors.get(kind, 0) + 1
                    world.note(f"{process.name} ends: {error}")
                    return

        world.start(process, body, delay)

    def _lease(self, holder: str) -> Any:
        return held(self.store, PIPELINE, holder, ProcessClock(self.world), _silent, 20.0)

    def _plan(self, parts: stages.Parts) -> None:
        until = None
        if self.world.random.random() < 0.4:
            until = parts.clock.now() - timedelta(seconds=self.world.random.choice((0, 0, 30)))
        plan(parts, until, _silent)

    def _run(self, parts: stages.Parts) -> None:
        self.run_stage(parts, _silent)

    def _publish(self, parts: stages.Parts) -> None:
        publish(parts, _silent)

    def _backfill(self, parts: stages.Parts) -> None:
        """All that versions are kept for, job by job."""
        state = self.store.read(PIPELINE)
        first, last = max(0, state.versions[0].last_step), state.version.last_step
        kept = self.store.divisions(PIPELINE, first, last)
        if len(state.versions) == 1 or not kept:
            return
        begin = kept[0].time if state.versions[0].number else kept[0].time - timedelta(days=1)
        if begin == kept[-1].time:
            return
        for piece in backfill.plan_backfill(state, kept, begin, kept[-1].time, self.limits):
            for difference in backfill.replay(parts, piece, _silent).differences:
                self.findings.append(Finding("changed", "a replay", str(difference)))

    def _maintain(self, parts: stages.Parts) -> None:
        maintenance.maintain(parts, _silent)

    # ── afterwards ──────────────────────────────────────────────────────────────────────────────

    def _go_quiet(self) -> None:
        """Without faults, everything that producers have committed gets published, whatever is left
        of before; and maintenance, and expiry after it, harm none of it."""
        for topic in self.topics.values():
            topic.decide(self.world)
        self.store.send(PIPELINE, SetDesired(RunState.RUN))
        plan_all = (lambda parts: plan(parts, None, _silent), self._run, self._publish)
        for _ in range(QUIET_ROUNDS):
            if self._is_done() or self.findings:
                break
            self.world.now += HOUR
            self._start(0, plan_all, is_leased=True)
            self.world.run()
        self._start(0, (self._maintain,), is_leased=False)
        self.world.run()
        self.world.now += 2 * DAY
        self.lake.expire(self.world.now - DAY)

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

    # ── what is checked ─────────────────────────────────────────────────────────────────────────

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


def _silent(_: str) -> None:
    """Task logs are not read here."""


def simulate(
    seed: int, rates: Rates | None = None, *, scales: bool = False, keep_history: bool = False
) -> Result:
    """One run, with changes of layout or without. The same arguments give the same history, byte for
    byte."""
    return Simulation(seed, rates or Rates(), scales=scales, keep_history=keep_history).run()


# ── the command ─────────────────────────────────────────────────────────────────────────────────


def main() -> int:
    parser = argparse.ArgumentParser(description="Simulate the control side and the sinks.")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1, help="of the first run; each has the next")
    parser.add_argument("--history", action="store_true", help="print what happened in each run")
    arguments = parser.parse_args()
    rates = Rates()
    print(
        f"seeds {arguments.seed} to {arguments.seed + arguments.runs - 1}; even ones change the layout, "
        "each draws a part of"
    )
    for rate in fields(rates):
        print(f"  {rate.name:32} {getattr(rates, rate.name)}")
    totals: dict[str, int] = {}
    failed = []
    for number, seed in enumerate(range(arguments.seed, arguments.seed + arguments.runs), 1):
        result = simulate(seed, rates, scales=seed % 2 == 0, keep_history=arguments.history)
        for line in result.history:
            print(line)
        for counts in (result.faults, result.errors):
            for name, count in counts.items():
                totals[name] = totals.get(name, 0) + count
        for name in ("turns", "steps", "versions"):
            totals[name] = totals.get(name, 0) + getattr(result, name)
        if result.findings:
            failed.append(seed)
            print(f"seed {seed}: {len(result.findings)} findings, the first of them:", flush=True)
            for finding in result.findings[:5]:
                print(f"  {finding}")
        if number % 250 == 0:
            print(f"{number} runs, {len(failed)} failed", flush=True)
    print(f"{arguments.runs} runs: " + ", ".join(f"{n} {c}" for n, c in sorted(totals.items())))
    if failed:
        print(f"failed: {', '.join(map(str, failed))}")
        print(f"next: python {sys.argv[0]} --runs 1 --history --seed {failed[0]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
