"""Spark in memory: the twin of `control.ports.Engine`, with one small circuit.

The view `totals` holds a row per key: how many records, their sum, and a chain of checksums over them
in the order in which they were read. So a record that is lost, read twice or read in another order
shows in every later row of its key.

Work that Spark does goes on when the client that asked for it dies, until the session is interrupted
or the server restarts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar
from zlib import crc32

from sim_kafka import Cluster, Sources
from sim_lake import Lake, Row, SimulatedState
from sim_sinks import Publishing
from sim_tables import OUTBOX, TRACE
from sim_world import MINUTE, Process, SparkError, World, milliseconds_of

from lockstep.control.job import (
    CompareJob,
    CompareResult,
    Difference,
    ExpireJob,
    IntervalJob,
    IntervalResult,
    MergeJob,
    PublishJob,
    PublishResult,
    TableWrite,
)
from lockstep.control.model import Interval, TopicSlice
from lockstep.control.ports import Progress
from lockstep.control.step_log import step_log
from lockstep.errors import EngineFailed, LockstepError, StateDiverged
from lockstep.ids import errors_table, is_trace
from lockstep.threads import in_parallel
from lockstep_engine.sinks.kafka_plan import FencedError, IncompleteRowsError

Answer = TypeVar("Answer")


@dataclass
class SimulatedEngine:
    """Implements `control.ports.Engine`. `is_submit`: the driver is a process of its own, which
    outlives the client as a whole; else only what runs on the server does."""

    world: World
    lake: Lake
    state: SimulatedState
    sources: Sources
    cluster: Cluster
    is_submit: bool

    def session(self, recorded: str) -> str:
        lives = recorded.endswith(f"-{self.world.server_restarts}")
        return recorded if lives else f"s{self.world.new_id()}-{self.world.server_restarts}"

    def interrupt(self, session: str) -> None:
        self.world.exchange(f"interrupt {session}", lambda: self.world.kill_session(session))

    def run(self, job: IntervalJob, progress: Progress) -> IntervalResult:
        del progress
        return self._driven("run", job.session, lambda: _Interval(self, job).run())

    def publish(self, job: PublishJob, progress: Progress) -> PublishResult:
        del progress
        publishing = Publishing(self, job, f"{job.session}/publish")
        return self._driven("publish", publishing.session, publishing.run)

    def compare(self, job: CompareJob, progress: Progress) -> CompareResult:
        del progress
        [table] = job.tables

        def rows(snapshot_id: int) -> Counter[Row]:
            held = self.lake.table(table.table).snapshot(snapshot_id).rows
            return Counter(row for row in held if job.first_step <= row[-1] <= job.last_step)

        def look() -> CompareResult:
            logged, replayed = rows(table.logged), rows(table.replayed)
            missing, unexpected = logged - replayed, replayed - logged
            other = sorted((missing + unexpected).elements(), key=repr)
            differences = [
                Difference(table.view, row[-1], missing[row], unexpected[row], (repr(row),))
                for row in other[:1]
            ]
            return CompareResult({table.view: logged.total()}, tuple(differences))

        session = f"{job.session}/compare"
        return self._driven("compare", session, lambda: self.on_server("compare", session, look))

    def merge(self, job: MergeJob, progress: Progress) -> Mapping[str, int]:
        del progress

        def merge_one(table: str, snapshot_id: int) -> int:
            def on_server() -> None:
                rows = list(self.lake.table(table).snapshot(snapshot_id).rows)
                if is_trace(table):
                    held: Counter[Row] = Counter()
                    for row in rows:
                        held[row[:-1]] += row[-1]
                    rows = [(*row, weight) for row, weight in sorted(held.items()) if weight]
                self.append(table, job.branch, rows, {"lockstep.merge": job.branch})

            self.on_server("merge", session, on_server)
            return self.state.head(table, job.branch)

        def merge() -> Mapping[str, int]:
            return {t.table: merge_one(t.table, t.snapshot_id) for t in job.tables}

        session = f"{job.session}/merge"
        return self._driven("merge", session, merge)

    def expire(self, job: ExpireJob, progress: Progress) -> int:
        del progress

        def expire_one(table: str) -> int:
            older_than = milliseconds_of(job.tables[table])
            gone = self.on_server(
                "expire", session, lambda: self.lake.table(table).expire(older_than)
            )
            self.world.note(f"{gone} snapshots of {table} have expired")
            return gone

        session = f"{job.session}/merge"
        return self._driven("expire", session, lambda: sum(map(expire_one, sorted(job.tables))))

    # ── what Spark does ─────────────────────────────────────────────────────────────────────────

    def _driven(self, what: str, session: str, work: Callable[[], Answer]) -> Answer:
        try:
            return self.on_server(what, session, work) if self.is_submit else work()
        except SparkError as error:
            raise EngineFailed(f"{what}: {error}") from error

    def on_server(self, what: str, session: str, work: Callable[[], Answer]) -> Answer:
        """Work that goes on without its client. Raises what it raises, or SparkError."""
        world = self.world
        answers: list[Answer] = []
        errors: list[Exception] = []

        def body() -> None:
            try:
                answers.append(work())
            except (LockstepError, SparkError, FencedError, IncompleteRowsError) as error:
                errors.append(error)

        task = world.start(Process(f"spark {what} for {world.process.name}", session=session), body)
        is_lost = world.chance("lost_reply_per_call")
        patience = world.random.choice((1, MINUTE)) if is_lost else float("inf")
        world.wait(lambda: task.is_done, patience)
        if errors:
            raise errors[0]
        if not answers:
            raise SparkError("the job was ended" if task.is_done else "the connection broke")
        return answers[0]

    def append(self, table: str, branch: str, rows: list[Row], summary: Mapping[str, str]) -> None:
        """One append by Spark's server; when that restarts, it can execute it a second time."""
        self.world.pause()
        times = 2 if self.world.chance("append_twice") else 1
        for _ in range(times):
            try:
                self.lake.append(self.lake.table(table), branch, rows, summary)
            except StateDiverged as error:
                raise SparkError(str(error)) from error
            self.world.note(f"{self.world.process.name}: append to {branch} of {table}")
            self.world.pause()


# ── one interval ────────────────────────────────────────────────────────────────────────────────

State = dict[str, tuple[int, int, int]]


def advanced(state: State, key: str, offset: int, value: int) -> None:
    """Take a record into the state of its key."""
    count, total, chain = state.get(key, (0, 0, 0))
    state[key] = (count + 1, total + value, crc32(f"{chain} {offset} {value}".encode()))


@dataclass(frozen=True)
class _Interval:
    engine: SimulatedEngine
    job: IntervalJob

    def run(self) -> IntervalResult:
        before = self._opened()
        records = self._records(self.job.interval)
        after, changes = dict(before), []
        for step, read in records.items():
            held = dict(after)
            for key, offset, value in read:
                advanced(after, key, offset, value)
            for key in sorted(after):
                if after[key] != held.get(key):
                    if key in held:
                        changes.append((key, *held[key], -1, step))
                    changes.append((key, *after[key], 1, step))
        net: Counter[Row] = Counter()
        for row in changes:
            net[row[:-2]] += row[-2]
        trace = [(*row, weight) for row, weight in sorted(net.items()) if weight]
        return self._write({TRACE: trace, OUTBOX: changes})

    def _opened(self) -> State:
        """The state at the version opened."""
        snapshot_id = self.job.base_tables.get(TRACE)
        if snapshot_id is None:
            return {}
        engine = self.engine
        rows = engine.world.exchange(
            "read the trace", lambda: engine.lake.table(TRACE).snapshot(snapshot_id).rows
        )
        held: Counter[Row] = Counter()
        for row in rows:
            held[row[:-1]] += row[-1]
        return {row[0]: row[1:] for row, weight in held.items() if weight > 0}

    def _records(self, interval: Interval) -> dict[int, list[tuple[str, int, int]]]:
        """Key, offset and value of each record, by step, in the order of source and partition."""

        def read(slice_: TopicSlice) -> list[tuple[str, int, int]]:
            topic = self.engine.sources.topics[slice_.source]
            return [
                (record.key, offset, record.value)
                for range_ in slice_.ranges
                for offset, record in topic.read(range_.partition, range_.start, range_.end)
            ]

        def look() -> dict[int, list[tuple[str, int, int]]]:
            return {
                division.step: [record for slice_ in division.slices for record in read(slice_)]
                for division in interval.divisions
            }

        return self.engine.world.exchange("read the ranges", look)

    def _write(self, appends: dict[str, list[Row]]) -> IntervalResult:
        """As `lockstep_engine.appends`: new tables to which nothing goes, appends, heads."""
        engine, job = self.engine, self.job
        steps = step_log(job.interval, job.new_layouts)
        touched = sorted({*appends, *steps})
        untouched = [errors_table(source) for source in engine.sources.topics]

        def opened(table: str) -> int:
            if table in job.base_tables:
                return engine.state.open_branch(table, job.branch, job.base_tables[table])
            engine.state.make_opened(table, job.branch, None, {})
            return engine.state.head(table, job.branch)

        def write(table: str) -> None:
            summary = self._summary(table)
            if table in steps and table not in job.base_tables:
                engine.state.make_opened(table, job.branch, steps[table], summary)
                return
            opened(table)
            if table in steps:
                engine.state.append_rows(table, job.branch, steps[table], summary)
            else:
                engine.on_server(
                    "append",
                    job.session,
                    lambda: engine.append(table, job.branch, appends[table], summary),
                )

        def written(table: str) -> TableWrite:
            head = engine.state.head(table, job.branch)
            records = engine.state.added_records(table, head)
            return TableWrite(table, self._write_id(table), head, records)

        new = [table for table in untouched if table not in job.base_tables]
        heads = dict(zip(new, in_parallel(opened, new), strict=True))
        in_parallel(write, touched)
        writes = tuple(in_parallel(written, touched))
        heads.update({write.table: write.snapshot_id for write in writes})
        return IntervalResult({**job.base_tables, **heads}, writes, {})

    def _write_id(self, table: str) -> str:
        return f"{self.job.attempt}:{table}"

    def _summary(self, table: str) -> Mapping[str, str]:
        return {
            "lockstep.write": self._write_id(table),
            "lockstep.attempt": self.job.attempt,
            "lockstep.incarnation": self.job.incarnation,
            "lockstep.version": str(self.job.base_version + 1),
            "lockstep.step": str(self.job.interval.last_step),
        }
