"""Spark in memory: the twin of `control.ports.Engine`, with one small circuit.

The view `totals` holds a row per key: how many records, their sum, and a chain of checksums over them
in the order in which they were read. So a record that is lost, read twice or read in another order
shows in every later row of its key.

Work that Spark does goes on when the client that asked for it dies, until the session is interrupted
or the server restarts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from zlib import crc32

from sim_kafka import Cluster, Link, Sources, read_markers, read_tail
from sim_lake import DELETE, Lake, Row, SimulatedState
from sim_world import MINUTE, Process, World

from lockstep.control.job import (
    CompareJob,
    CompareResult,
    Difference,
    IntervalJob,
    IntervalResult,
    MergeJob,
    PublishJob,
    PublishResult,
    SinkTarget,
    TableWrite,
)
from lockstep.control.model import Interval, TopicSlice
from lockstep.control.ports import Progress, ViewHead
from lockstep.control.step_log import step_log
from lockstep.errors import AttemptLost, EngineFailed, LockstepError, StateDiverged
from lockstep.ids import LAYOUTS_TABLE, STEPS_TABLE, errors_table
from lockstep.threads import in_parallel
from lockstep_engine.sinks import kafka_plan
from lockstep_engine.sinks.kafka_plan import FencedError, IncompleteRowsError, Message, ShardWork
from lockstep_engine.sinks.view_publish import ViewTarget, move_view

Answer = TypeVar("Answer")

VIEW, OUTBOX, TRACE = "totals", "totals_changes", "_trace_totals"
COLUMNS: Mapping[str, tuple[str, ...]] = {
    VIEW: ("key", "count", "total", "chain"),
    OUTBOX: ("key", "count", "total", "chain", "_weight", "_step"),
    TRACE: ("key", "count", "total", "chain", "_weight"),
    STEPS_TABLE: (
        "step",
        "time",
        "source",
        "topic",
        "topic_id",
        "partition",
        "start_offset",
        "end_offset",
    ),
    LAYOUTS_TABLE: ("epoch", "from_step", "layout"),
}
TOPIC_TRIES = 3
ROWS_PER_TRANSACTION = 3


class SparkError(Exception):
    """Spark's own error: the job has failed, or its connection broke and it may go on."""


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
        publishing = _Publishing(self, job, f"{job.session}/publish")
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
                held: Counter[Row] = Counter()
                for row in self.lake.table(table).snapshot(snapshot_id).rows:
                    held[row[:-1]] += row[-1]
                rows = [(*row, weight) for row, weight in sorted(held.items()) if weight]
                self.append(table, job.branch, rows, {"lockstep.merge": job.branch})

            self.on_server("merge", session, on_server)
            return self.state.head(table, job.branch)

        def merge() -> Mapping[str, int]:
            return {t.table: merge_one(t.table, t.snapshot_id) for t in job.tables}

        session = f"{job.session}/merge"
        return self._driven("merge", session, merge)

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
        """In the order of `lockstep_engine.job`: tables, branches, appends, heads."""
        engine, job = self.engine, self.job
        steps = step_log(job.interval, job.new_layouts)
        touched = sorted({*appends, *steps})
        untouched = [errors_table(source) for source in engine.sources.topics]
        new = [table for table in (*touched, *untouched) if table not in job.base_tables]

        def make(table: str) -> None:
            engine.world.exchange(f"make {table}", lambda: engine.lake.make(table, {}))

        def write(table: str) -> None:
            summary = self._summary(table)
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

        in_parallel(make, new)
        opened_tables = sorted({*touched, *new})
        opened = in_parallel(
            lambda t: engine.state.open_branch(t, job.branch, job.base_tables.get(t)), opened_tables
        )
        tables = {**job.base_tables, **dict(zip(opened_tables, opened, strict=True))}
        in_parallel(write, touched)
        writes = tuple(in_parallel(written, touched))
        tables.update({write.table: write.snapshot_id for write in writes})
        return IntervalResult(tables, writes, {})

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


# ── publishing ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Publishing:
    engine: SimulatedEngine
    job: PublishJob
    session: str

    def run(self) -> PublishResult:
        markers: dict[str, int] = {}
        rows: dict[str, int] = {}

        def publish(target: SinkTarget) -> None:
            markers[target.name], rows[target.name] = self._publish_one(target)

        in_parallel(publish, self.job.sinks)
        return PublishResult(markers, rows, {})

    def _publish_one(self, target: SinkTarget) -> tuple[int, int]:
        engine, job = self.engine, self.job
        if target.provider == "iceberg":
            view = ViewTarget(
                target.view, OUTBOX, job.tables[OUTBOX], target.last_step, job.incarnation
            )
            writer = _ViewWriter(engine, view, self.session)
            published = move_view(engine.state, writer, view, engine.world.new_id)
            return published.marker, published.rows
        pending = engine.state.records_after(OUTBOX, job.tables[OUTBOX], target.first_step - 1)
        topic = _TopicPublish(engine, self.session, job, target, pending)
        for _ in range(TOPIC_TRIES):
            try:
                return topic.publish()
            except FencedError as error:
                engine.world.note(f"{engine.world.process.name}: {error}")
        raise AttemptLost(f"sink {target.name}: other publishes took over")

    def changes(self, after: int, last_step: int) -> list[Row]:
        rows = self.engine.lake.table(OUTBOX).snapshot(self.job.tables[OUTBOX]).rows
        return [row for row in rows if after < row[-1] <= last_step]


@dataclass(frozen=True)
class _ViewWriter:
    """Implements `view_publish.ViewWriter`, anew or in place as chance has it."""

    engine: SimulatedEngine
    target: ViewTarget
    session: str

    failures = (SparkError,)

    def make(self) -> None:
        engine, summary = self.engine, self.target.summary(-1)
        engine.world.exchange("make the view", lambda: engine.lake.make(self.target.view, summary))

    def start(self) -> None:
        raise AssertionError("nobody makes a view by hand here")

    def write(self, branch: str, head: ViewHead, base: int, marker: int, pending: int) -> int:
        del head, pending
        return self.engine.on_server(
            "write", self.session, lambda: self._written(branch, base, marker)
        )

    def _written(self, branch: str, base: int, marker: int) -> int:
        engine, target = self.engine, self.target
        engine.world.pause()
        outbox = engine.lake.table(target.outbox_table).snapshot(target.outbox_snapshot_id)
        there = engine.lake.table(target.view).snapshot(base)
        net: Counter[Row] = Counter()
        for row in outbox.rows:
            if marker < row[-1] <= target.last_step:
                net[row[:-2]] += row[-2]
        after = Counter(there.rows)
        for row, weight in net.items():
            after[row] += weight
        if min(after.values(), default=0) < 0:
            raise StateDiverged(f"view {target.view} does not hold rows that are taken back")
        summary = target.summary(target.last_step)
        view = engine.lake.table(target.view)
        if engine.world.random.random() < 0.5:
            self._commit(lambda: engine.lake.overwrite(view, branch, expand(after), summary))
            return len(net)
        kept = Counter({row: n for row, n in Counter(there.rows).items() if net[row] >= 0})
        self._commit(lambda: engine.lake.overwrite(view, branch, expand(kept), {}, DELETE))
        engine.append(target.view, branch, expand(after - kept), summary)
        return len(net)

    def _commit(self, act: Callable[[], object]) -> None:
        try:
            act()
        except StateDiverged as error:
            raise SparkError(str(error)) from error
        self.engine.world.note(f"{self.engine.world.process.name}: writes on {self.target.view}")
        self.engine.world.pause()


def expand(rows: Counter[Row]) -> list[Row]:
    return [row for row in sorted(rows) for _ in range(rows[row])]


@dataclass
class _TopicPublish:
    """The order of `lockstep_engine.sinks.kafka`: fences, markers, fences, stamps, rows."""

    engine: SimulatedEngine
    session: str
    job: PublishJob
    target: SinkTarget
    pending: int
    _links: dict[int, Link] = field(default_factory=dict)

    def publish(self) -> tuple[int, int]:
        self._links.clear()
        cluster, last = self.engine.cluster, self.target.last_step
        plan = self._plan()
        from_step = min(plan.after.values())
        if from_step >= last:
            return from_step, 0
        messages: dict[int, list[Message]] = {shard: [] for shard in range(plan.shards)}
        counts: dict[int, Counter[int]] = {shard: Counter() for shard in range(plan.shards)}
        for row in self._ordered(from_step):
            key = row[0].encode()
            shard = crc32(key) % plan.shards
            messages[shard].append(Message(row[-1], -1, key, repr((row[-2], row[:-2])).encode()))
            counts[shard][row[-1]] += 1
        works = [
            ShardWork(
                shard, plan.shards, plan.after[shard], last, counts[shard], digests(messages[shard])
            )
            for shard in range(plan.shards)
            if plan.after[shard] < last
        ]
        rows = self._send(works, messages)
        markers = read_markers(cluster, self._group, range(plan.shards))
        steps = [markers[s].step if s in markers else -1 for s in range(plan.shards)]
        return min(steps), rows

    def _ordered(self, after: int) -> list[Row]:
        if not self.pending:
            return []
        publishing = _Publishing(self.engine, self.job, self.session)
        rows = publishing.changes(after, self.target.last_step)
        return sorted(rows, key=lambda row: (row[-1], row[-2], row))

    def _plan(self) -> kafka_plan.SinkPlan:
        cluster, published = self.engine.cluster, self.target.first_step - 1
        wanted = int(self.job.files.spec)
        self._init(range(wanted))
        before = self._markers(range(len(cluster.logs)))
        most = max((marker.shards for marker in before.values()), default=0)
        others = sorted(shard for shard in before if wanted <= shard < most)
        recorded = {**before, **self._fence(others)}
        restored = self._restored(recorded, published)
        self._stamp(restored, recorded)
        recorded.update(restored)
        plan = kafka_plan.plan_shards(recorded, wanted, published, self.target.name)
        stamps = {s: kafka_plan.Marker(step, plan.shards) for s, step in plan.stamp.items()}
        self._stamp(stamps, recorded)
        return plan

    def _restored(
        self, recorded: Mapping[int, kafka_plan.Marker], published: int
    ) -> dict[int, kafka_plan.Marker]:
        """The markers that are lost, from a topic that keeps all."""
        lost = kafka_plan.lost_markers(
            recorded, published, self.target.was_intended, self.target.name
        )
        if lost is None:
            return {}
        tail = read_tail(self.engine.cluster, self._group, published)
        told = kafka_plan.markers_from_tail(tail, lost.shards, published)
        return {shard: marker for shard, marker in told.items() if shard not in recorded}

    def _stamp(
        self, markers: Mapping[int, kafka_plan.Marker], recorded: Mapping[int, kafka_plan.Marker]
    ) -> None:
        """Markers without rows, that of shard 0 last, where nobody has moved them since."""
        for shard, marker in sorted(markers.items(), reverse=True):
            link = self._link(shard, marker.shards)
            found = link.open()
            if found != recorded.get(shard):
                raise FencedError(f"{FencedError.TEXT} shard {shard}: found {found}")
            link.begin()
            link.commit(marker)

    def _init(self, shards: Sequence[int]) -> None:
        for shard in shards:
            self._links.pop(shard, None)
            self._link(shard, 0).fence()

    def _fence(self, shards: Sequence[int]) -> dict[int, kafka_plan.Marker]:
        """The markers after it."""
        self._init(shards)
        return self._markers(shards) if shards else {}

    def _markers(self, shards: Sequence[int]) -> dict[int, kafka_plan.Marker]:
        """Producers that have fenced their shard go on from there."""
        found = read_markers(self.engine.cluster, self._group, shards)
        for shard in self._links.keys() & set(shards):
            self._links[shard].opened_at(found.get(shard))
        return found

    @property
    def _group(self) -> str:
        return f"{self.job.incarnation}/{self.target.name}"

    def _link(self, shard: int, shards: int) -> Link:
        link = self._links.get(shard)
        if link is None:
            link = self._links[shard] = self._new_link(shard, shards)
        link.shards = shards
        return link

    def _new_link(self, shard: int, shards: int) -> Link:
        return Link(self.engine.cluster, self._group, shard, shards)

    def _send(self, works: list[ShardWork], messages: Mapping[int, list[Message]]) -> int:
        """From the driver, or by a task a shard; where one of these fails, the inputs of the others
        end as if they were complete."""
        world = self.engine.world
        is_cancelled: list[bool] = []

        def rows_of(shard: int) -> Iterator[Message]:
            for message in messages[shard]:
                if is_cancelled:
                    return
                yield message

        def send(work: ShardWork) -> int:
            try:
                new = self._link if is_from_driver else self._new_link
                link = new(work.shard, work.shards)
                rows = rows_of(work.shard)
                return kafka_plan.send_shard(work, rows, link, ROWS_PER_TRANSACTION)
            except (FencedError, IncompleteRowsError, LockstepError):
                is_cancelled.append(True)
                raise

        def cancel() -> None:
            world.pause(world.random.randint(0, 200))
            is_cancelled.append(True)

        is_from_driver = world.random.random() < 0.5
        if not is_from_driver and world.chance("task_cancelled"):
            world.start(Process("spark cancels", is_immortal=True), cancel)
        try:
            if is_from_driver:
                return sum(send(work) for work in works)
            return sum(
                in_parallel(
                    lambda work: self.engine.on_server("task", self.session, lambda: send(work)),
                    works,
                )
            )
        except IncompleteRowsError as error:
            raise SparkError(str(error)) from error


def digests(messages: list[Message]) -> dict[int, str]:
    """By step, of its messages in their order."""
    steps = sorted({message.step for message in messages})
    return {
        step: f"{crc32(repr([m for m in messages if m.step == step]).encode()):x}" for step in steps
    }
