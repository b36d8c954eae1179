"""A simulation of the control side and the sinks, from one seed: `make sim RUNS=5000 [SEED=n]`.

Processes run the real stages (plan, run, commit, publish, maintain) against twins in memory. They are
started twice, late and at once; they die, sleep and wake as zombies; requests and answers get lost or
come late; clocks jump, markers and snapshots expire. Afterwards, without faults, all that producers
committed must get published, and what a user sees must be what the checker works out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields
from datetime import timedelta
from random import Random
from typing import Any
from unittest import mock

from checker import Finding
from sim_engine import SimulatedEngine
from sim_files import SimulatedFiles
from sim_judge import PIPELINE, TOPIC_PARTITIONS, Judged
from sim_kafka import SourcePartition, Sources, SourceTopic, topic_id
from sim_lake import REPLACE, RefChange
from sim_tables import OUTBOX, VIEW
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
    Deploy,
    RollBack,
    SetDesired,
    UndoRollBack,
)
from lockstep.control.growth import Growth, GrowthRules
from lockstep.control.job import CatalogSettings
from lockstep.control.layout.scaling import scaled
from lockstep.control.layout.sharding import Fixed
from lockstep.control.model import (
    RunState,
    SinkState,
)
from lockstep.control.planning import plan
from lockstep.control.publishing import publish
from lockstep.control.steps import StepLimits
from lockstep.control.stepwise import run_by_steps
from lockstep.errors import LockstepError
from lockstep.sql.circuit import ProjectFiles

INCARNATION, TOPIC_SINK = "incarnation1", "totals_topic"
SINKS = (SinkState(VIEW, VIEW, "iceberg"), SinkState(TOPIC_SINK, VIEW, "kafka"))
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


class Simulation(Judged):
    """One pipeline's life under one seed."""

    def __init__(
        self, seed: int, rates: Rates, *, scales: bool = False, keep_history: bool = False
    ) -> None:
        draw = Random(seed)
        world = World(seed, rates.drawn(draw), keep_history=keep_history)
        topics = {
            name: SourceTopic([SourcePartition() for _ in range(draw.randint(1, 2))])
            for name in ("orders", "payments")[: draw.randint(1, 2)]
        }
        super().__init__(world, topics)
        self.seed = seed
        self.sources = Sources(world, topics)
        self.engine = SimulatedEngine(
            world, self.lake, self.state, self.sources, self.cluster, draw.random() < 0.3
        )
        self.limits = StepLimits(
            step_seconds=10,
            interval_seconds=60,
            steps_per_interval=draw.choice((2, 10)),
            rows_per_step=draw.choice((2, 5)),
            rows_per_interval=draw.choice((8, 1000)),
        )
        self.retain_versions = draw.choice((2, 3, 5))
        self.retain_changes = (
            timedelta(days=1) if Random(seed).random() < 0.5 else timedelta(seconds=1)
        )
        # Of its own, too: before there was such a setting a seed gave the same history.
        views = Random(f"views {seed}").choice((None, timedelta(seconds=1)))
        self.retain_views: timedelta | None = views
        self.run_stage = draw.choice((stages.run, stages.run, run_by_steps))
        self.starts = draw.randint(4, 12)
        # Of its own: where nobody scales, a seed gives the history that it would give anyway.
        self._scales = Random(f"layouts {seed}") if scales else None
        self.lease_of_runs = draw.choice((0.0, 0.5, 1.0))
        self.errors: dict[str, int] = {}
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
            retain_changes=self.retain_changes,
            retain_views=self.retain_views,
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
            mock.patch("lockstep.adapters.lease._place", return_value="here"),
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
