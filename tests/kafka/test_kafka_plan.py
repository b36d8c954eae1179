"""Decisions of the Kafka sink, without Kafka: transactions, markers, and what a task may commit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.errors import StateDiverged
from lockstep_engine.sinks.kafka_plan import (
    FencedError,
    IncompleteRowsError,
    Marker,
    Message,
    ShardWork,
    SinkPlan,
    Transaction,
    cut_transactions,
    plan_shards,
    send_shard,
)

ROWS = st.dictionaries(st.integers(0, 20), st.integers(1, 9))


class MemoryLink:
    """A topic partition and its marker in memory; rows show when their transaction commits."""

    def __init__(self, marker: Marker | None = None) -> None:
        self.marker = marker
        self.topic: list[Message] = []
        self._open: list[Message] = []

    def open(self) -> Marker | None:
        self._open = []
        return self.marker

    def begin(self) -> None:
        assert not self._open

    def send(self, message: Message) -> None:
        self._open.append(message)

    def abort(self) -> None:
        self._open = []

    def commit(self, marker: Marker) -> None:
        self.topic += self._open
        self._open, self.marker = [], marker


def messages(rows: dict[int, int]) -> Iterator[Message]:
    return (
        Message(step, -1, None, b"%d" % number)
        for step in sorted(rows)
        for number in range(rows[step])
    )


def work(rows: dict[int, int], after: int = -1, last: int = 20) -> ShardWork:
    return ShardWork(0, 1, after, last, rows)


@given(ROWS, st.integers(-1, 20), st.integers(-1, 20), st.integers(1, 12))
def test_transactions_hold_each_step_once(
    rows: dict[int, int], after: int, last: int, limit: int
) -> None:
    cuts = cut_transactions(rows, after, last, limit)
    wanted = {step: count for step, count in rows.items() if after < step <= last}
    assert sum(cut.rows for cut in cuts) == sum(wanted.values())
    assert [cut.last_step for cut in cuts] == sorted({cut.last_step for cut in cuts})
    assert not cuts or cuts[-1].last_step == last
    start = after
    for cut in cuts:
        held = [wanted[step] for step in wanted if start < step <= cut.last_step]
        assert sum(held) == cut.rows
        assert cut.rows <= limit or len(held) == 1
        start = cut.last_step


def test_a_transaction_without_rows_moves_the_marker() -> None:
    assert cut_transactions({}, 3, 7, 10) == (Transaction(7, 0),)
    link = MemoryLink(Marker(3, 1))
    assert send_shard(work({}, after=3, last=7), iter(()), link, 10) == 0
    assert link.marker == Marker(7, 1)


@given(ROWS, st.integers(1, 12), st.lists(st.integers(0, 60), max_size=4))
def test_inputs_that_end_early_publish_whole_steps_only(
    rows: dict[int, int], limit: int, ends: list[int]
) -> None:
    """A failing job ends the other tasks' inputs without an error; the last try gets all rows."""
    link = MemoryLink()
    everything = list(messages(rows))
    for end in ends:
        cut_off = everything[:end]
        if len(cut_off) < len(everything):
            before = link.marker
            if before is None or before.step < 20:
                with pytest.raises(IncompleteRowsError):
                    send_shard(work(rows), iter(cut_off), link, limit)
        step = -1 if link.marker is None else link.marker.step
        assert link.topic == [m for m in everything if m.step <= step]
    send_shard(work(rows), iter(everything), link, limit)
    assert link.topic == everything
    assert send_shard(work(rows), iter(everything), link, limit) == 0
    assert link.topic == everything


def test_more_rows_than_counted_are_refused() -> None:
    link = MemoryLink()
    with pytest.raises(IncompleteRowsError, match="expected 1 rows, saw 2"):
        send_shard(work({3: 1}), messages({3: 2}), link, 10)
    assert link.topic == []
    assert link.marker is None


def test_a_task_of_another_number_of_shards_is_refused() -> None:
    link = MemoryLink(Marker(4, 2))
    with pytest.raises(FencedError, match="planned from step 4 with 1 shards"):
        send_shard(work({5: 1}, after=4), messages({5: 1}), link, 10)
    assert link.topic == []


def test_the_first_publish_starts_where_the_store_says() -> None:
    assert plan_shards({}, 2, -1, "s") == SinkPlan(2, {0: -1, 1: -1}, {1: -1, 0: -1})
    assert plan_shards({}, 2, 6, "s") == SinkPlan(2, {0: 6, 1: 6}, {1: 6, 0: 6})


def test_an_interrupted_publish_ends_with_its_own_shards() -> None:
    first_only = {1: Marker(9, 2)}
    assert plan_shards(first_only, 3, 4, "s") == SinkPlan(2, {0: 4, 1: 9}, {})
    both = {0: Marker(9, 2), 1: Marker(4, 2)}
    assert plan_shards(both, 1, 4, "s") == SinkPlan(2, {0: 9, 1: 4}, {})


def test_another_number_of_shards_is_stamped_when_all_are_equal() -> None:
    equal = {0: Marker(9, 2), 1: Marker(9, 2)}
    assert plan_shards(equal, 2, 9, "s") == SinkPlan(2, {0: 9, 1: 9}, {})
    assert plan_shards(equal, 1, 9, "s") == SinkPlan(1, {0: 9}, {1: 9, 0: 9})
    assert plan_shards(equal, 3, 9, "s").stamp == {2: 9, 1: 9, 0: 9}


def test_stamping_that_died_goes_on() -> None:
    """Shard 0 is stamped last: until then the old number holds."""
    half = {0: Marker(9, 2), 1: Marker(9, 1)}
    assert plan_shards(half, 1, 9, "s") == SinkPlan(1, {0: 9}, {0: 9})
    assert list(plan_shards({0: Marker(9, 4)}, 3, 9, "s").stamp) == [3, 2, 1, 0]


def test_stamps_of_a_number_that_lost_are_stamped_over() -> None:
    """Two publishes wanted 2 and 3 shards at once: shard 0 says that 2 hold, the rest was stamped by
    the other. Work planned with 2 would find 3 in the marker of shard 1, for ever."""
    crossed = {0: Marker(13, 2), 1: Marker(7, 3), 2: Marker(7, 3)}
    assert plan_shards(crossed, 2, 7, "s") == SinkPlan(2, {0: 13, 1: 7}, {1: 7})


def test_markers_of_two_moments_are_read_again() -> None:
    """Another publish moved shard 1 after shard 0 was read: a stamp would take that back."""
    with pytest.raises(FencedError, match=r"shards at \{1: 51\}, read after others at step 35"):
        plan_shards({0: Marker(35, 1), 1: Marker(51, 2)}, 2, 35, "s")


def test_retired_shards_stay_behind() -> None:
    markers = {0: Marker(30, 1), 1: Marker(9, 1)}
    assert plan_shards(markers, 1, 30, "s") == SinkPlan(1, {0: 30}, {})
    assert plan_shards(markers, 2, 30, "s") == SinkPlan(2, {0: 30, 1: 30}, {1: 30, 0: 30})


def test_a_marker_behind_the_store_is_refused() -> None:
    with pytest.raises(StateDiverged, match="sink s: its markers") as caught:
        plan_shards({0: Marker(3, 1)}, 1, 5, "s")
    assert caught.value.found == "shards at {0: 3}"
    assert caught.value.next_step == "lockstep doctor DIR"


def test_foreign_metadata_is_no_marker() -> None:
    for offset, metadata in ((5, "somebody else's"), (5, Marker(6, 1).metadata), (5, None)):
        with pytest.raises(ValueError, match="no marker of a sink"):
            Marker.read(offset, metadata)


@pytest.mark.parametrize("marker", [Marker(-1, 2), Marker(0, 1), Marker(5, 3)])
def test_markers_are_read_as_written(marker: Marker) -> None:
    assert Marker.read(marker.offset, marker.metadata) == marker
