"""The store in a database and the one in memory are one machine: same changes, same answers.

Hypothesis draws changes, right and wrong ones, from the state that they meet, and sends them
through two writers of one SQLite file and to the memory store. After each, outcomes, states and the
step log must be equal, and a record that the test keeps by itself must agree with both. Races, and
commits whose answer is lost, are steps of the machine like any other.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from control_builders import FILES, at, life, slice_of, store_url
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from sqlalchemy import Connection

from lockstep.adapters.memory_store import MemoryStore
from lockstep.adapters.sql_store import SqlStore
from lockstep.control.changes import (
    AbandonAttempt,
    BeginAttempt,
    BeginReplay,
    Change,
    ChangeLayout,
    CommitVersion,
    Deploy,
    ForgetAttempts,
    IntendPublish,
    Landed,
    Outcome,
    RecordInterval,
    RecordPublished,
    RefuseAttempt,
    Rejected,
    ReleaseLease,
    RollBack,
    SetDesired,
    SwapSnapshots,
    TakeLease,
    TrimSteps,
    TrimVersions,
    UndoRollBack,
    Unknown,
)
from lockstep.control.layout import layouts
from lockstep.control.layout.autoscaling import Load
from lockstep.control.layout.sharding import Dynamic, Fixed
from lockstep.control.model import (
    Attempt,
    AttemptState,
    Division,
    Interval,
    OffsetRange,
    PipelineState,
    RunState,
    SinkState,
    TopicSlice,
    Version,
)

Draw = Callable[[st.SearchStrategy[Any]], Any]

IS_LARGE = os.environ.get("LOCKSTEP_LAW") == "large"


def often(right: Any, *wrong: Any) -> st.SearchStrategy[Any]:
    """Mostly what fits, now and then what does not."""
    return st.sampled_from([right] * 8 + list(wrong))


# Changes that fit the state they meet, or miss it by little


def _deploy(draw: Draw, state: PipelineState) -> Change:
    last = state.version.last_step
    new = draw(often(last, -1, last + 1, -2))
    sinks = tuple(
        SinkState(name, draw(often("v", "w")), "kafka", new)
        for name in draw(st.permutations(["v", "k", "l"]))[: draw(st.integers(1, 3))]
    )
    files = replace(FILES, spec=draw(st.sampled_from(["one", "two ‰"])))
    sources = draw(often(None, ("a", "b"), ("a",), ()))
    incarnation = draw(st.sampled_from(["i1", "i2"]))
    rebuilds, distrusted = draw(often(False, True)), draw(often((), ("a",), ("b", "a")))
    return Deploy(files, incarnation, sinks, sources, rebuilds, distrusted)


def _record(draw: Draw, state: PipelineState) -> Change:
    if state.pending is not None and draw(st.booleans()):
        return RecordInterval(state.pending)
    ends = {s.source: {r.partition: r.end for r in s.ranges} for s in state.positions}
    for source, partition in draw(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2)))):
        ends.setdefault(source, {}).setdefault(partition, draw(st.integers(0, 5)))
    first = max(0, state.next_step + draw(often(0, -1, 1)))
    time = state.last_time or at(0)
    divisions = []
    for step in range(first, first + draw(st.integers(1, 4))):
        slices = []
        for source in sorted(ends):
            if not ends[source]:
                continue
            ranges = []
            for partition in sorted(ends[source]):
                start = max(0, ends[source][partition] + draw(often(0, 0, 1, -1)))
                ends[source][partition] = start + draw(st.integers(0, 9))
                ranges.append((partition, start, ends[source][partition]))
            topic_id = draw(st.sampled_from(["id1"] * 30 + ["id2"]))
            slices.append(slice_of(source, *ranges[draw(often(0, 0, 1)) :], topic_id=topic_id))
        divisions.append(Division(step, time, tuple(slices[draw(often(0, 0, 1)) :])))
        time = at((time - at(0)).total_seconds() + draw(st.integers(0, 3)))
    earlier = draw(often(0, 0, 1))
    head = replace(divisions[0], time=at((divisions[0].time - at(0)).total_seconds() - earlier))
    return RecordInterval(Interval((head, *divisions[1:])))


def _begin(draw: Draw, state: PipelineState) -> Change:
    pending = state.pending
    first, last = (pending.first_step, pending.last_step) if pending else (0, 0)
    return BeginAttempt(
        Attempt(
            draw(st.sampled_from([f"a{state.revision}"] * 6 + [*_attempt_ids(state), ""])),
            draw(often(first, first + 1)),
            draw(st.sampled_from((last, last, last, max(first, last - 1), last + 1))),
            draw(often(state.version.attempt, "other")),
            session=draw(st.sampled_from(["", "s1"])),
        )
    )


def _commit(draw: Draw, state: PipelineState) -> Change:
    if draw(st.integers(0, 5)) == 0:
        version = draw(st.sampled_from(state.versions))
        return CommitVersion(version, draw(st.sampled_from(["", state.version.attempt])))
    running = [a for a in state.attempts if a.state is AttemptState.RUNNING]
    last = running[0].last_step if running else state.version.last_step
    tables = draw(
        st.dictionaries(st.sampled_from(["t", "u", "v_changes"]), st.integers(1, 2**63 - 1))
    )
    version = Version(
        state.version.number + draw(often(1, 0, 2)),
        draw(st.sampled_from([a.id for a in running] * 6 + _attempt_ids(state))),
        draw(often(last, last + 1)),
        state.layout.epoch + draw(often(0, 1, -1)),
        tables,
    )
    load = draw(st.sampled_from((None, Load(last, state.layout.epoch, 0.1 + 0.2, -1e-9))))
    return CommitVersion(version, draw(often(state.version.attempt, "other")), load)


def _attempt_ids(state: PipelineState) -> list[str]:
    return [a.id for a in state.attempts] + ["never"]


def _end(draw: Draw, state: PipelineState) -> Change:
    ids = _attempt_ids(state)
    kind = draw(st.sampled_from([AbandonAttempt, RefuseAttempt, None, None]))
    if kind is not None:
        ended: Change = kind(draw(st.sampled_from(ids)))
        return ended
    return ForgetAttempts(tuple(draw(st.lists(st.sampled_from(ids), max_size=3))))


def _lease(draw: Draw, _: PipelineState) -> Change:
    holder = draw(st.sampled_from(["x", "y"]))
    if draw(st.integers(0, 3)) == 0:
        return ReleaseLease(holder)
    now = draw(st.integers(0, 20))
    return TakeLease(holder, at(now), at(now + draw(often(5, 0, 0.0005))))


def _publish(draw: Draw, state: PipelineState) -> Change:
    sink = draw(st.sampled_from(state.sinks)) if state.sinks else SinkState("none", "", "")
    newest = draw(st.sampled_from([state.version.last_step, state.output_step]))
    last = draw(often(newest, newest - 1, newest + 1, 0, -1))
    if draw(st.booleans()):
        return RecordPublished(sink.name, last)
    return IntendPublish(sink.name, sink.published_step + draw(often(1, 0, 2)), last)


def _maintain(draw: Draw, state: PipelineState) -> Change:
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return TrimVersions(draw(st.integers(1, 3)))
    if kind == 1:
        published = [sink.published_step + 1 for sink in state.sinks]
        most = min([state.versions[0].last_step + 1, *published])
        return TrimSteps(draw(often(most, most - 1, most + 1, state.next_step)))
    if kind == 2:
        desired = draw(st.sampled_from(RunState))
        stop_at = draw(often(None, state.next_step, state.next_step + 2, state.next_step - 1))
        return SetDesired(desired, stop_at)
    newest = state.version
    held = {t: s + draw(often(0, 1)) for t, s in newest.tables.items() if draw(st.booleans())}
    replacement = {t: draw(st.integers(1, 99)) for t in held}
    maker, merged = draw(often(newest.attempt, "other")), draw(often(newest.attempt, "other"))
    return SwapSnapshots(newest.number, maker, held, replacement, merged)


def _roll_back(draw: Draw, state: PipelineState) -> Change:
    kind = draw(st.integers(0, 3))
    if kind == 0:
        base = draw(st.sampled_from(state.versions))
        first = base.last_step + draw(often(1, 0))
        last = draw(often(state.version.last_step, first, state.next_step))
        name = draw(st.sampled_from([f"r{state.revision}"] * 6 + _attempt_ids(state)))
        replaying = draw(often(AttemptState.REPLAYING, AttemptState.RUNNING))
        return BeginReplay(Attempt(name, first, last, draw(often(base.attempt, "x")), replaying))
    if kind == 1:
        last_one = (*state.versions, *state.dropped)[-1]
        return UndoRollBack(last_one.number, draw(often(last_one.attempt, "other")))
    target = draw(st.sampled_from((*state.versions, *state.dropped)))
    return RollBack(target.number + draw(often(0, 1)), draw(often(target.attempt, "other")))


def _change_layout(draw: Draw, state: PipelineState) -> Change:
    newest = state.layouts[-1].layout
    if newest.epoch and draw(st.integers(0, 3)) == 0:
        newest = state.layouts[-2].layout  # the last change again, or one that comes too late
    there = draw(st.sampled_from(sorted(newest.hosts) or [0]))
    change = draw(
        st.sampled_from(
            (
                layouts.Join({max(newest.hosts, default=-1) + 1: "h ‰"}),
                layouts.Leave(frozenset({there})),
                layouts.Move(0, there),
                layouts.Reshard(
                    draw(st.sampled_from((Fixed(4), Fixed(8), Dynamic(Fraction(1, 3)))))
                ),
            )
        )
    )
    return ChangeLayout(newest.epoch + draw(often(0, 1, -1)), (change,), draw(often(False, True)))


KINDS = (
    _deploy,
    _end,
    _change_layout,
    _lease,
    _roll_back,
    *(_record, _begin, _commit, _publish, _maintain) * 2,
)


class RacingStore(SqlStore):
    """Lets somebody else act between the read and the write of one change."""

    interloper: Callable[[], object] | None = None

    def _before(
        self, connection: Connection, pipeline: str, change: Change, *, lock: bool
    ) -> PipelineState | None:
        state = super()._before(connection, pipeline, change, lock=lock)
        act, self.interloper = self.interloper, None
        if act is not None:
            act()
        return state


class Record:
    """What has landed, as the test keeps it: shares no code with transitions and stores."""

    def __init__(self) -> None:
        self.reached: dict[str, dict[int, tuple[int, int]]] = {}
        self.log: dict[int, Division] = {}
        self.committed: set[str] = set()
        self.line: list[tuple[int, str, int]] = [(0, "", -1)]
        self.dropped: list[tuple[int, str, int]] = []
        self.published: dict[str, int] = {}
        self.layouts: list[tuple[int, int | None]] = [(0, 0)]

    def note(self, change: Change, landed: PipelineState) -> None:
        match change:
            case Deploy(sources=sources) if sources is not None:
                self.reached = {s: r for s, r in self.reached.items() if s in sources}
            case RecordInterval(interval) if interval.first_step not in self.log:
                for division in interval.divisions:
                    self.log[division.step] = division
                    for slice_ in division.slices:
                        of_source = self.reached.setdefault(slice_.source, {})
                        for r in slice_.ranges:
                            first, rows = of_source.get(r.partition, (r.start, 0))
                            of_source[r.partition] = (first, rows + r.end - r.start)
            case CommitVersion(version) if version.attempt not in {"", *self.committed}:
                self.committed.add(version.attempt)
                self.line.append((version.number, version.attempt, version.last_step))
                if self.dropped and version.last_step == self.dropped[-1][2]:
                    self.dropped = []
            case RollBack(number, attempt) if self.line[-1][:2] != (number, attempt):
                place = [one[:2] for one in self.line].index((number, attempt)) + 1
                for one in reversed(self.line[place:]):
                    if all(one[2] < other[2] for other in self.dropped):
                        self.dropped.insert(0, one)
                del self.line[place:]
            case ChangeLayout(epoch, _, at_once):
                if epoch == self.layouts[-1][0]:
                    self.layouts.append((epoch + 1, None))
                if at_once and landed.pending is not None:
                    self._in_effect(landed.pending.first_step)
            case UndoRollBack() if self.dropped:
                self.line = [one for one in self.line if one[2] < self.dropped[0][2]] + self.dropped
                self.dropped = []
        if landed.pending is None:
            self._in_effect(landed.next_step)
        self.check(landed)

    def _in_effect(self, step: int) -> None:
        self.layouts = [(epoch, step if since is None else since) for epoch, since in self.layouts]

    def check(self, state: PipelineState) -> None:
        assert [(one.layout.epoch, one.from_step) for one in state.layouts] == self.layouts
        kept = [(v.number, v.attempt, v.last_step) for v in state.versions]
        assert kept == self.line[-len(kept) :]
        assert [(v.number, v.attempt, v.last_step) for v in state.dropped] == self.dropped
        numbers = [version.number for version in state.versions]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        lasts = [version.last_step for version in state.versions]
        assert lasts == sorted(set(lasts))
        makers = [version.attempt for version in state.versions]
        assert len(set(makers)) == len(makers)

        expected_positions = tuple(
            TopicSlice(
                source,
                f"topic_{source}",
                next(s.topic_id for s in state.positions if s.source == source),
                tuple(OffsetRange(p, f, f + rows) for p, (f, rows) in sorted(ranges.items())),
            )
            for source, ranges in sorted(self.reached.items())
        )
        assert state.positions == expected_positions
        assert state.next_step == len(self.log)
        # A replay goes from one end of an interval to the next.
        end = next((last for _, _, last in self.dropped if last > lasts[-1]), len(self.log) - 1)
        pending = tuple(self.log[s] for s in range(lasts[-1] + 1, end + 1))
        assert (state.pending.divisions if state.pending else ()) == pending

        for at_work in (AttemptState.RUNNING, AttemptState.REPLAYING):
            assert len([a for a in state.attempts if a.state is at_work]) <= 1
        running = [a for a in state.attempts if a.state is AttemptState.RUNNING]
        for attempt in running:
            assert state.pending is not None
            assert attempt.first_step == state.pending.first_step
            assert attempt.base == state.version.attempt
        for attempt in state.attempts:
            has_committed = attempt.state in (AttemptState.COMMITTED, AttemptState.DROPPED)
            assert has_committed == (attempt.id in self.committed)
            if has_committed:
                # A version may be trimmed, but of no attempt that was dropped is one in the line.
                is_in_line = attempt.id in {one[1] for one in self.line}
                assert is_in_line == (attempt.state is AttemptState.COMMITTED)
        output_step = max(last for _, _, last in (*self.dropped, self.line[-1]))
        for sink in state.sinks:
            assert self.published.get(sink.name, -1) <= sink.published_step
            assert sink.published_step <= output_step
            if sink.intent is not None:
                assert sink.intent.first_step == sink.published_step + 1
                assert sink.intent.last_step <= output_step
        # A sink that a deploy drops, and another adds, starts where that says.
        self.published = {sink.name: sink.published_step for sink in state.sinks}


class Stores(RuleBasedStateMachine):
    template: bytes = b""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        folder = Path(self.folder.name)
        if not Stores.template:
            SqlStore(store_url(folder)).pipelines()
            Stores.template = (folder / "control.db").read_bytes()
        else:
            (folder / "control.db").write_bytes(Stores.template)
        self.racing = RacingStore(store_url(folder))
        self.writers = (self.racing, SqlStore(store_url(folder)))
        self.memory = MemoryStore()
        self.record = Record()
        self.reads = 0

    @initialize(intervals=st.integers(0, 4))
    def begin(self, intervals: int) -> None:
        """Some start where versions and steps can be trimmed."""
        for change in life(intervals):
            assert self.racing.apply("p", change) == self.expect(change)
        self.agree()

    def teardown(self) -> None:
        self.folder.cleanup()

    def drawn(self, data: st.DataObject) -> Change:
        state = self.memory.read("p")
        change: Change = data.draw(st.sampled_from(KINDS))(data.draw, state)
        return change

    def expect(self, change: Change) -> Outcome:
        outcome = self.memory.apply("p", change)
        if isinstance(outcome, Landed):
            self.record.note(change, outcome.state)
        return outcome

    def agree(self) -> None:
        state = self.memory.read("p")
        log = self.memory.divisions("p", 0, 10**9)
        assert log == tuple(self.record.log[s] for s in range(state.oldest_step, state.next_step))
        self.reads += 1
        # One that has read or written before keeps what it knows.
        fresh = SqlStore(store_url(Path(self.folder.name)))
        for store in (fresh, self.writers[self.reads % 2]):
            assert store.read("p") == state
        assert self.racing.divisions("p", 0, 10**9) == log
        assert self.memory.divisions("p", 1, 2) == tuple(d for d in log if 1 <= d.step <= 2)

    @rule(data=st.data(), writer=st.integers(0, 1), twice=st.booleans())
    def change(self, data: st.DataObject, writer: int, twice: bool) -> None:
        change = self.drawn(data)
        for store in (self.writers[writer], self.writers[1 - writer])[: 1 + twice]:
            assert store.apply("p", change) == self.expect(change)
        self.agree()

    @rule(data=st.data())
    def race(self, data: st.DataObject) -> None:
        """The second writer acts after the first has read, and before it writes."""
        slow, fast = self.drawn(data), self.drawn(data)
        answers: list[Outcome] = []
        self.racing.interloper = lambda: answers.append(self.writers[1].apply("p", fast))
        answer = self.racing.apply("p", slow)
        # A change that has nothing to write is decided by what it has read.
        before = self.memory.read("p")
        probe = MemoryStore()
        probe._states["p"] = before
        probe._divisions["p"] = dict(self.memory._divisions["p"])
        slow_alone = probe.apply("p", slow)
        is_written = isinstance(slow_alone, Landed) and slow_alone.state is not before
        if is_written:
            assert answers == [self.expect(fast)]
            assert answer == self.expect(slow)
        else:
            assert answer == self.expect(slow)
            assert answers == [self.expect(fast)]
        self.agree()

    @rule(data=st.data(), landed=st.booleans())
    def lose_the_answer(self, data: st.DataObject, landed: bool) -> None:
        """The database fails at the commit, after or before it is durable; all is sent again."""
        change, before = self.drawn(data), self.memory.read("p")
        dialect = self.racing._engine.dialect

        def fail(connection: Any) -> None:
            if connection.total_changes == 0:  # the end of a read
                connection.commit()
                return
            if landed:
                connection.commit()
            raise sqlite3.OperationalError("disk I/O error")

        dialect.do_commit = fail  # type: ignore[method-assign, assignment]
        try:
            answer = self.racing.apply("p", change)
        finally:
            del dialect.do_commit
        if isinstance(answer, Unknown):
            assert "disk I/O error" in answer.reason
            assert self.racing.read("p") != before or not landed
            if landed:
                assert isinstance(self.expect(change), Landed)
        else:
            expected = self.expect(change)
            assert answer == expected
            assert isinstance(expected, Rejected) or expected == Landed(before)
        self.agree()
        assert self.racing.apply("p", change) == self.expect(change)
        self.agree()


Stores.TestCase.settings = settings(
    max_examples=500 if IS_LARGE else 12,
    stateful_step_count=30,
    suppress_health_check=list(HealthCheck),
)
TestStores = Stores.TestCase
