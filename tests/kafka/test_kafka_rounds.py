"""Shards that go step by step, without Kafka: how far apart they get, and where they stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from threading import Lock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_builders import MemoryLink, messages

from lockstep.threads import MAX_THREADS, in_parallel
from lockstep_engine.sinks.kafka_plan import (
    FencedError,
    IncompleteRowsError,
    Marker,
    Message,
    ShardWork,
    send_shard,
)
from lockstep_engine.sinks.kafka_rounds import send_by_threads

LAST = 6
ROWS = st.dictionaries(st.integers(0, LAST), st.integers(1, 5))
AFTER = st.integers(-1, LAST - 1)


class BrokenError(Exception):
    """What a shard fails with."""


@dataclass
class Watch:
    """Every shard's producer, and what it saw of the others when a transaction began or ended."""

    random: Random
    links: list[WatchedLink] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)
    behind: list[str] = field(default_factory=list)
    apart: int = 0

    def begins(self, link: WatchedLink) -> None:
        with self.lock:
            step = link.step
            behind = [one.shard for one in self.links if one.step < step]
            if behind:
                self.behind.append(f"step {step + 1} of shard {link.shard} before {behind}")

    def commits(self, link: WatchedLink, marker: Marker) -> None:
        time.sleep(self.random.uniform(0, 0.001))
        with self.lock:
            MemoryLink.commit(link, marker)
            steps = [one.step for one in self.links]
            self.apart = max(self.apart, max(steps) - min(steps))


class WatchedLink(MemoryLink):
    """Fails once it is to begin or commit something of `broken_step`."""

    def __init__(
        self, watch: Watch, work: ShardWork, broken_step: int | None, breaks_at: str
    ) -> None:
        super().__init__(Marker(work.after, work.shards))
        self.shard, self.is_open = work.shard, False
        self._watch, self._broken_step, self._breaks_at = watch, broken_step, breaks_at

    @property
    def step(self) -> int:
        assert self.marker is not None
        return self.marker.step

    def begin(self) -> None:
        self._watch.begins(self)
        self._break("begin")
        super().begin()
        self.is_open = True

    def abort(self) -> None:
        super().abort()
        self.is_open = False

    def commit(self, marker: Marker) -> None:
        self._break("commit")
        self._watch.commits(self, marker)
        self.is_open = False

    def _break(self, where: str) -> None:
        if self.step + 1 == self._broken_step and where == self._breaks_at:
            raise BrokenError(where)


@dataclass(frozen=True)
class Publish:
    """Shards with rows by step, each after some step; `broken` maps shards to a step and a place."""

    rows: list[dict[int, int]]
    after: list[int]
    row_limit: int = 3
    broken: Mapping[int, tuple[int, str]] = field(default_factory=dict)
    seed: int = 0

    @property
    def works(self) -> list[ShardWork]:
        count = len(self.rows)
        return [
            ShardWork(shard, count, self.after[shard], LAST, rows)
            for shard, rows in enumerate(self.rows)
        ]

    def watched(self) -> Watch:
        watch = Watch(Random(self.seed))
        for work in self.works:
            step, place = self.broken.get(work.shard, (None, ""))
            watch.links.append(WatchedLink(watch, work, step, place))
        return watch

    def messages_of(self, work: ShardWork) -> Iterator[Message]:
        return (one for one in messages(self.rows[work.shard]) if one.step > work.after)

    def run(self, watch: Watch) -> int:
        return send_by_threads(
            self.works, self.messages_of, lambda work: watch.links[work.shard], self.row_limit
        )

    def check_topics(self, watch: Watch) -> None:
        """Each shard has its rows up to its marker, once."""
        for work, link in zip(self.works, watch.links, strict=True):
            expected = [one for one in self.messages_of(work) if one.step <= link.step]
            assert link.marker is not None
            if link.marker.rows:
                part = [one for one in self.messages_of(work) if one.step == link.step + 1]
                expected += part[: link.marker.rows]
            assert link.topic == expected
            assert not link.is_open


SHARDS = st.lists(ROWS, min_size=1, max_size=10)


@settings(deadline=None)
@given(SHARDS, st.integers(-1, 3), st.integers(1, 6), st.integers())
def test_shards_are_never_more_than_a_step_apart(
    rows: list[dict[int, int]], after: int, row_limit: int, seed: int
) -> None:
    publish = Publish(rows, [after] * len(rows), row_limit, seed=seed)
    watch = publish.watched()
    sent = publish.run(watch)
    assert watch.behind == []
    assert watch.apart <= 1
    assert {link.step for link in watch.links} == {LAST}
    assert sent == sum(len(link.topic) for link in watch.links)
    publish.check_topics(watch)


@settings(deadline=None)
@given(st.lists(st.tuples(ROWS, AFTER), min_size=2, max_size=10), st.integers())
def test_who_is_behind_catches_up_first(
    shards: list[tuple[dict[int, int], int]], seed: int
) -> None:
    publish = Publish([rows for rows, _ in shards], [after for _, after in shards], seed=seed)
    watch = publish.watched()
    publish.run(watch)
    assert watch.behind == []
    assert {link.step for link in watch.links} == {LAST}
    publish.check_topics(watch)


@settings(deadline=None)
@given(SHARDS, st.data())
def test_all_stop_after_the_step_in_which_one_cannot_go_on(
    rows: list[dict[int, int]], data: st.DataObject
) -> None:
    places = st.tuples(st.integers(0, LAST), st.sampled_from(["begin", "commit"]))
    shards = st.integers(0, len(rows) - 1)
    broken = data.draw(st.dictionaries(shards, places, min_size=1, max_size=3))
    publish = Publish(rows, [-1] * len(rows), broken=broken, seed=data.draw(st.integers()))
    watch = publish.watched()
    with pytest.raises(BrokenError):
        publish.run(watch)
    stopped = min(step for step, _ in broken.values())
    assert watch.behind == []
    assert watch.apart <= 1
    for link in watch.links:
        is_broken = link.shard in broken and broken[link.shard][0] == stopped
        # With more shards than threads, those after a broken one in its thread may be behind.
        least = stopped if len(rows) <= MAX_THREADS and not is_broken else stopped - 1
        assert least <= link.step <= stopped - is_broken
    publish.check_topics(watch)
    again = Publish(rows, [link.step for link in watch.links])
    for link, work in zip(watch.links, again.works, strict=True):
        link._broken_step = None
        assert work.after == link.step
    again.run(watch)
    assert {link.step for link in watch.links} == {LAST}
    assert [link.topic for link in watch.links] == [list(messages(one)) for one in rows]


def alone(publish: Publish, watch: Watch) -> None:
    """As without the option."""

    def send(work: ShardWork) -> int:
        link = watch.links[work.shard]
        return send_shard(work, publish.messages_of(work), link, publish.row_limit)

    in_parallel(send, publish.works)


def one_after_the_other(publish: Publish, watch: Watch) -> None:
    for work in publish.works:
        link = watch.links[work.shard]
        send_shard(work, publish.messages_of(work), link, publish.row_limit)


@pytest.mark.parametrize("send", [alone, one_after_the_other])
def test_without_rounds_they_are_further_apart(send: Callable[[Publish, Watch], None]) -> None:
    rows = [dict.fromkeys(range(LAST + 1), 3), {}, dict.fromkeys(range(LAST + 1), 3)]
    publish = Publish(rows, [-1, -1, -1])
    watch = publish.watched()
    send(publish, watch)
    assert watch.apart > 1
    assert watch.behind


@pytest.mark.parametrize(
    ("there", "saw"), [({0: 1, 2: 1}, "0 and then the end"), ({0: 1, 1: 2, 2: 1}, "more")]
)
def test_rows_that_are_not_as_counted_stop_all(there: dict[int, int], saw: str) -> None:
    publish = Publish([{0: 1, 1: 1, 2: 1}, {0: 1, 1: 1, 2: 1}, {}], [-1, -1, -1])
    watch = publish.watched()
    told = [publish.rows[0], there, {}]
    with pytest.raises(IncompleteRowsError, match=f"up to step 1: .* saw {saw}"):
        send_by_threads(
            publish.works,
            lambda work: messages(told[work.shard]),
            lambda work: watch.links[work.shard],
            10,
        )
    assert [link.step for link in watch.links] == [1, 0, 1]


def test_a_shard_whose_producer_cannot_be_had_stops_all() -> None:
    publish = Publish([{0: 1}, {0: 1}, {0: 1}], [-1, -1, -1])
    watch = publish.watched()

    def link_of(work: ShardWork) -> WatchedLink:
        if work.shard == 1:
            raise FencedError(FencedError.TEXT)
        return watch.links[work.shard]

    with pytest.raises(FencedError):
        send_by_threads(publish.works, publish.messages_of, link_of, 10)
    assert [link.step for link in watch.links] == [0, -1, 0]
