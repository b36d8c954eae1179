"""Publishing in memory: the real protocols of view and topic, with twins of what they write to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from zlib import crc32

from sim_kafka import Link, read_markers, read_tail
from sim_lake import DELETE, Row
from sim_tables import OUTBOX
from sim_world import Process, SparkError

from lockstep.control.job import PublishJob, PublishResult, SinkTarget
from lockstep.control.ports import ViewHead
from lockstep.errors import AttemptLost, LockstepError, StateDiverged
from lockstep.threads import in_parallel
from lockstep_engine.sinks import kafka_plan
from lockstep_engine.sinks.kafka_plan import FencedError, IncompleteRowsError, Message, ShardWork
from lockstep_engine.sinks.view_publish import ViewTarget, move_view

if TYPE_CHECKING:
    from sim_engine import SimulatedEngine

TOPIC_TRIES = 3
ROWS_PER_TRANSACTION = 3


@dataclass(frozen=True)
class Publishing:
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
            writer = ViewWriter(engine, view, self.session)
            published = move_view(engine.state, writer, view, engine.world.new_id)
            return published.marker, published.rows
        pending = engine.state.records_after(OUTBOX, job.tables[OUTBOX], target.first_step - 1)
        topic = TopicPublish(engine, self.session, job, target, pending)
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
class ViewWriter:
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
class TopicPublish:
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
        publishing = Publishing(self.engine, self.job, self.session)
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
        self._stamp(plan.stamp, recorded)
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
