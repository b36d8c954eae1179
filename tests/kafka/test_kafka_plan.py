"""Decisions of the Kafka sink, without Kafka: transactions, markers, and what a task may commit."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_builders import MemoryLink, messages

from lockstep.errors import StateDiverged
from lockstep_engine.sinks.kafka_plan import (
    FencedError,
    IncompleteRowsError,
    LostMarkers,
    Marker,
    ShardWork,
    SinkPlan,
    lost_markers,
    marker_after,
    markers_from_tail,
    plan_shards,
    rows_of_next_transaction,
    send_shard,
    step_of_all,
)

ROWS = st.dictionaries(st.integers(0, 20), st.integers(1, 9))


def work(rows: dict[int, int], after: int = -1, last: int = 20) -> ShardWork:
    return ShardWork(0, 1, after, last, rows)


def ends(given: ShardWork, marker: Marker, limit: int) -> list[Marker]:
    """Where the transactions end that take a shard from a marker to its last step."""
    found = [marker]
    while found[-1].step < given.last_step:
        rows = rows_of_next_transaction(given, found[-1], limit)
        found.append(marker_after(given, found[-1], rows))
    return found


@given(ROWS, st.integers(-1, 20), st.integers(-1, 20), st.integers(1, 12))
def test_transactions_hold_each_row_once(
    rows: dict[int, int], after: int, last: int, limit: int
) -> None:
    given = work(rows, after, last)
    markers = ends(given, Marker(after, 1), limit)
    wanted = {step: count for step, count in rows.items() if after < step <= last}
    held = 0
    for before, end in pairwise(markers):
        taken = rows_of_next_transaction(given, before, limit)
        held += taken
        done = sum(count for step, count in wanted.items() if step <= end.step) + end.rows
        assert held == done
        assert taken <= limit
        assert not end.rows or (taken == limit and wanted[end.step + 1] > limit)
    assert held == sum(wanted.values())
    assert markers[-1] == Marker(max(after, last), 1)


def test_whole_steps_share_a_transaction_and_long_ones_are_cut() -> None:
    given = ShardWork(0, 1, 2, 9, {3: 2, 5: 1, 6: 9, 7: 1}, {6: "d6"})
    assert ends(given, Marker(2, 1), 4)[1:] == [
        Marker(5, 1),
        Marker(5, 1, 4, "d6"),
        Marker(5, 1, 8, "d6"),
        Marker(9, 1),
    ]


def test_a_transaction_without_rows_moves_the_marker() -> None:
    link = MemoryLink(Marker(3, 1))
    assert send_shard(work({}, after=3, last=7), iter(()), link, 10) == 0
    assert link.marker == Marker(7, 1)


@given(ROWS, st.integers(1, 12), st.lists(st.integers(0, 60), max_size=4), st.integers(1, 9))
def test_inputs_that_end_early_publish_what_the_marker_says(
    rows: dict[int, int], limit: int, ends: list[int], patience: int
) -> None:
    """A failing job ends the other tasks' inputs without an error; the last try gets all rows."""
    link = MemoryLink(Marker(-1, 1), patience)
    everything = list(messages(rows))
    digests = {step: f"{step:x}" for step in rows}
    given = ShardWork(0, 1, -1, 20, rows, digests)
    for end in ends:
        cut_off = everything[:end]
        if len(cut_off) < len(everything) and link.marker.step < 20:
            with pytest.raises(IncompleteRowsError):
                send_shard(given, iter(cut_off), link, limit)
        there = sum(message.step <= link.marker.step for message in everything) + link.marker.rows
        assert link.topic == everything[:there]
        assert link.marker.digest == (digests[link.marker.step + 1] if link.marker.rows else "")
    send_shard(given, iter(everything), link, limit)
    assert link.topic == everything
    assert send_shard(given, iter(everything), link, limit) == 0
    assert link.topic == everything


def test_more_rows_than_counted_are_refused() -> None:
    link = MemoryLink(Marker(-1, 1))
    with pytest.raises(IncompleteRowsError, match="expected 1 rows, saw more"):
        send_shard(work({3: 1}), messages({3: 2}), link, 10)
    assert link.topic == []
    assert link.marker == Marker(-1, 1)


def test_rows_of_another_step_than_counted_are_refused() -> None:
    link = MemoryLink(Marker(-1, 1))
    with pytest.raises(IncompleteRowsError, match="expected 4 rows, saw 1 and then one of step 5"):
        send_shard(work({3: 2, 5: 2}), messages({3: 1, 5: 3}), link, 10)
    assert link.topic == []


def test_a_step_of_which_a_part_is_there_goes_on() -> None:
    rows = {3: 1, 4: 7, 6: 2}
    whole = list(messages(rows))
    link = MemoryLink(Marker(3, 1, 4, "d4"))
    given = ShardWork(0, 1, 3, 6, rows, {4: "d4", 6: "d6"})
    assert send_shard(given, iter(whole), link, 5) == 5
    assert link.topic == whole[5:]


@pytest.mark.parametrize(
    ("rows", "digest", "found"),
    [(7, "other", "7 rows with digest other"), (3, "d4", "3 rows with digest d4")],
)
def test_a_step_of_which_a_part_is_there_may_not_change(rows: int, digest: str, found: str) -> None:
    link = MemoryLink(Marker(3, 1, 4, "d4"))
    given = ShardWork(0, 1, 3, 6, {4: rows}, {4: digest})
    with pytest.raises(StateDiverged) as caught:
        send_shard(given, messages({4: rows}), link, 5)
    assert caught.value.expected == (
        "step 4, of which 4 rows of shard 0 are in the topic, with digest d4"
    )
    assert caught.value.found == found
    assert link.topic == []


def test_a_task_of_another_number_of_shards_is_refused() -> None:
    for marker in (Marker(4, 2), Marker(3, 1), None):
        link = MemoryLink(marker)
        with pytest.raises(FencedError, match="planned from step 4 with 1 shards"):
            send_shard(work({5: 1}, after=4), messages({5: 1}), link, 10)
        assert link.topic == []


def test_the_first_publish_starts_where_the_store_says() -> None:
    for step in (-1, 6):
        stamp = dict.fromkeys((1, 0), Marker(step, 2))
        assert plan_shards({}, 2, step, "s") == SinkPlan(2, {0: step, 1: step}, stamp)


def test_an_interrupted_publish_ends_with_its_own_shards() -> None:
    first_only = {1: Marker(9, 2)}
    assert plan_shards(first_only, 3, 4, "s") == SinkPlan(2, {0: 4, 1: 9}, {0: Marker(4, 2)})
    both = {0: Marker(9, 2), 1: Marker(4, 2)}
    assert plan_shards(both, 1, 4, "s") == SinkPlan(2, {0: 9, 1: 4}, {})
    in_parts = {0: Marker(9, 2), 1: Marker(9, 2, 5, "d")}
    assert plan_shards(in_parts, 1, 4, "s") == SinkPlan(2, {0: 9, 1: 9}, {})


def test_another_number_of_shards_is_stamped_when_all_are_equal() -> None:
    equal = {0: Marker(9, 2), 1: Marker(9, 2)}
    assert plan_shards(equal, 2, 9, "s") == SinkPlan(2, {0: 9, 1: 9}, {})
    one = plan_shards(equal, 1, 9, "s")
    assert one == SinkPlan(1, {0: 9}, {1: Marker(9, 1), 0: Marker(9, 1)})
    assert list(one.stamp) == [1, 0]
    assert plan_shards(equal, 3, 9, "s").stamp == dict.fromkeys((2, 1, 0), Marker(9, 3))


def test_stamping_that_died_goes_on() -> None:
    """Shard 0 is stamped last: until then the old number holds."""
    half = {0: Marker(9, 2), 1: Marker(9, 1)}
    assert plan_shards(half, 1, 9, "s") == SinkPlan(1, {0: 9}, {0: Marker(9, 1)})
    assert list(plan_shards({0: Marker(9, 4)}, 3, 9, "s").stamp) == [3, 2, 1, 0]


def test_stamps_of_a_number_that_lost_are_stamped_over() -> None:
    """Two publishes wanted 2 and 3 shards at once: shard 0 says that 2 hold, the rest was stamped by
    the other. Work planned with 2 would find 3 in the marker of shard 1, for ever."""
    crossed = {0: Marker(13, 2), 1: Marker(7, 3), 2: Marker(7, 3)}
    stamp = {1: Marker(7, 2), 0: Marker(13, 2)}
    assert plan_shards(crossed, 2, 7, "s") == SinkPlan(2, {0: 13, 1: 7}, stamp)


@pytest.mark.parametrize(
    "markers",
    [
        {0: Marker(3, 2), 1: Marker(5, 1)},
        {0: Marker(3, 2, 4, "d"), 1: Marker(3, 1)},
        {0: Marker(3, 2), 1: Marker(3, 1)},
        {0: Marker(3, 2)},
    ],
)
def test_a_stamp_asks_whether_shard_0_is_still_its_own(markers: dict[int, Marker]) -> None:
    """Another publish may have taken it over before this one came to the others."""
    plan = plan_shards(markers, 2, 3, "s")
    assert list(plan.stamp) == [1, 0]
    assert plan.stamp[0] == markers[0], "as it was"


def test_markers_of_two_moments_are_read_again() -> None:
    """Another publish moved shard 1 after shard 0 was read: a stamp would take that back."""
    with pytest.raises(FencedError, match=r"shards at \{1: 51\}, read after others at step 35"):
        plan_shards({0: Marker(35, 1), 1: Marker(51, 2)}, 2, 35, "s")


def test_retired_shards_stay_behind() -> None:
    markers = {0: Marker(30, 1), 1: Marker(9, 1)}
    assert plan_shards(markers, 1, 30, "s") == SinkPlan(1, {0: 30}, {})
    assert plan_shards(markers, 2, 30, "s") == SinkPlan(
        2, {0: 30, 1: 30}, dict.fromkeys((1, 0), Marker(30, 2))
    )


def test_a_marker_behind_the_store_is_refused() -> None:
    with pytest.raises(StateDiverged, match="sink s: its markers") as caught:
        plan_shards({0: Marker(3, 1)}, 1, 5, "s")
    assert caught.value.found == "shards at {0: 3}"
    assert caught.value.next_step == "lockstep doctor DIR"


def test_foreign_metadata_is_no_marker() -> None:
    for offset, metadata in ((5, "somebody else's"), (5, Marker(6, 1).metadata), (5, None)):
        with pytest.raises(ValueError, match="no marker of a sink"):
            Marker.read(offset, metadata)


@pytest.mark.parametrize(
    "marker",
    [
        Marker(-1, 2),
        Marker(0, 1),
        Marker(5, 3),
        Marker(-1, 1, 10, "9f"),
        Marker(7, 2, 1 << 40, f"{(1 << 90) - 1:x}"),
        Marker(7, 2, 3),
    ],
)
def test_markers_are_read_as_written(marker: Marker) -> None:
    assert Marker.read(marker.offset, marker.metadata) == marker


def test_metadata_without_rows_is_that_of_earlier_releases() -> None:
    assert Marker(5, 3).metadata == "step=5 shards=3"
    assert Marker(5, 3, 10, "9f").metadata == "step=5 shards=3 rows=10 digest=9f"


def test_where_markers_are_lost_the_store_or_the_topic_knows() -> None:
    def lost(markers: dict[int, Marker], was_intended: bool) -> LostMarkers | None:
        return lost_markers(markers, 5, was_intended, "s")

    assert lost({}, False) is None
    assert lost({}, True) == LostMarkers(0, False)
    there = {0: Marker(5, 3), 1: Marker(9, 3), 2: Marker(5, 3)}
    assert lost(there, True) is None
    moved = {0: Marker(5, 3), 1: Marker(9, 3)}
    assert lost(moved, True) == lost(moved, False) == LostMarkers(3, False)
    in_part = {1: Marker(5, 2, 7, "d")}
    assert lost(in_part, False) == LostMarkers(2, False)
    standing = {0: Marker(5, 3), 2: Marker(5, 3)}
    assert lost(standing, False) is None
    assert lost(standing, True) == LostMarkers(3, True)
    retired = {0: Marker(5, 1), 3: Marker(2, 1)}
    assert lost(retired, True) is None
    # A change of the number had begun, which is done where all are equal.
    assert lost({1: Marker(5, 3), 2: Marker(5, 1)}, True) == LostMarkers(3, True)
    with pytest.raises(StateDiverged, match="sink s: its markers") as caught:
        lost({1: Marker(5, 3), 2: Marker(6, 1)}, True)
    assert caught.value.expected == "a marker of shard 0"


def test_how_far_a_topic_is_only_all_of_its_markers_say() -> None:
    """A shard that says nothing may be anywhere, not where the others are."""
    there = {0: Marker(5, 3), 1: Marker(9, 3), 2: Marker(7, 3), 3: Marker(2, 4)}
    assert step_of_all(there, "s") == 5
    assert step_of_all({0: Marker(5, 3), 2: Marker(7, 3)}, "s") == -1
    assert step_of_all({1: Marker(7, 2)}, "s") == step_of_all({}, "s") == -1


def test_markers_are_told_by_the_topic() -> None:
    assert markers_from_tail({}, 0, 4) == {}
    assert markers_from_tail({}, 2, 4) == {0: Marker(4, 2), 1: Marker(4, 2)}
    tail = {(0, 2, 5): 3, (0, 2, 7): 2, (1, 2, 6): 9}
    assert markers_from_tail(tail, 0, 4) == {0: Marker(6, 2, 2), 1: Marker(5, 2, 9)}
    # With the third shard came a time at which all were at step 7.
    tail |= {(1, 3, 9): 1}
    told = {0: Marker(7, 3), 1: Marker(8, 3, 1), 2: Marker(7, 3)}
    assert markers_from_tail(tail, 0, 4) == told


@given(ROWS, st.integers(1, 12), st.integers(0, 60))
def test_markers_told_by_the_topic_go_on_where_it_ends(
    rows: dict[int, int], limit: int, there: int
) -> None:
    everything = list(messages(rows))
    tail = Counter((0, 1, message.step) for message in everything[:there])
    told = markers_from_tail(tail, 1, -1)[0]
    link = MemoryLink(told)
    link.topic = everything[:there]
    send_shard(work(rows, after=told.step), iter(everything), link, limit)
    assert link.topic == everything
