"""Layouts: the shard controller's tests of 6.824, and what a change moves."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.control.layout.layouts import (
    Change,
    Join,
    Layout,
    Leave,
    Move,
    Moved,
    OwnedRange,
    ReplaceHost,
    Reshard,
    after,
    difference,
    query,
)
from lockstep.control.layout.sharding import BUCKETS, NOBODY, Dynamic, Fixed
from lockstep.control.preconditions import Precondition


def joined(*workers: int) -> Join:
    return Join({worker: f"h{worker}" for worker in workers})


def left(*workers: int) -> Leave:
    return Leave(frozenset(workers))


TEN = Layout(sharding=Fixed(16))


def check(layout: Layout) -> None:
    """Every shard is owned by a worker that is there, and no two differ by more than one."""
    assert set(layout.owners) <= set(layout.hosts)
    owned = Counter(layout.owners)
    counts = [owned[worker] for worker in layout.hosts]
    assert max(counts) - min(counts) <= 1
    ranges = layout.ranges
    assert (ranges[0].low, ranges[-1].high) == (0, BUCKETS)
    assert all(a.high == b.low and a.worker != b.worker for a, b in pairwise(ranges))


@st.composite
def lives(draw: st.DrawFn) -> list[Layout]:
    """Layouts from the first on, by random changes that are allowed."""
    history = [Layout(sharding=draw(st.sampled_from((Fixed(16), Fixed(64), Dynamic()))))]
    for _ in range(draw(st.integers(1, 8))):
        there = sorted(history[-1].hosts)
        away = [worker for worker in range(9) if worker not in there]
        changes: list[Change] = []
        if away and (not there or draw(st.booleans())):
            changes.append(joined(*draw(st.sets(st.sampled_from(away), min_size=1, max_size=3))))
        if len(there) > 2 and draw(st.booleans()):
            changes.append(left(*draw(st.sets(st.sampled_from(there), min_size=1, max_size=2))))
        if draw(st.integers(0, 5)) == 0:
            changes.append(Reshard(draw(st.sampled_from((Fixed(32), Dynamic(Fraction(1, 4)))))))
        history.append(after(history[-1], *changes))
    return history


@given(lives())
def test_all_shards_are_owned_evenly_through_joins_and_leaves(history: list[Layout]) -> None:
    for layout in history[1:]:
        check(layout)
    assert [layout.epoch for layout in history] == list(range(len(history)))
    for epoch, layout in enumerate(history):
        assert query(history, epoch) is layout
    assert query(history, -1) is query(history, len(history) + 5) is history[-1]


@given(lives())
def test_what_moves_goes_to_its_new_owner_and_the_rest_stays(history: list[Layout]) -> None:
    for before, later in pairwise(history):
        moved = difference(before, later)
        places = [range(one.low, one.high) for one in moved.ranges]
        assert sum(map(len, places)) == moved.share * BUCKETS
        for place in range(0, BUCKETS, BUCKETS // 256):
            was, now = owner(before, place), owner(later, place)
            assert any(place in places_ for places_ in places) == (was not in (NOBODY, now))


def owner(layout: Layout, place: int) -> int:
    (found,) = (one.worker for one in layout.ranges if one.low <= place < one.high)
    return found


def test_without_workers_nobody_owns_anything() -> None:
    assert TEN.ranges == (OwnedRange(0, BUCKETS, NOBODY),)
    alone = after(TEN, joined(1))
    assert alone.ranges == (OwnedRange(0, BUCKETS, 1),)
    nobody = after(alone, left(1))
    assert set(nobody.owners) == {NOBODY}
    assert difference(TEN, alone).share == 0


def test_one_joins_and_takes_only_its_part() -> None:
    three = after(TEN, joined(1, 2, 3))
    four = after(three, joined(4))
    check(four)
    assert difference(three, four).share == Fraction(1, 4)
    assert {one.worker for one in difference(three, four).ranges} == {4}
    # It leaves: what it had goes back, nothing else moves.
    assert difference(four, after(four, left(4))).share == Fraction(1, 4)


def test_one_comes_as_another_goes_and_only_its_part_moves() -> None:
    """Half of what two changes one after the other would move."""
    four = after(TEN, joined(1, 2, 3, 4))
    replaced = after(four, joined(5), left(2))
    assert difference(four, replaced).share == Fraction(1, 4)
    assert difference(four, replaced).between_hosts == Fraction(1, 4)
    assert replaced.shards_of(5) == four.shards_of(2)
    grown = after(four, joined(5))
    shrunk = after(grown, left(2))
    assert difference(four, grown).share + difference(grown, shrunk).share > Fraction(1, 4)


def test_a_host_is_replaced_and_no_shard_changes_its_owner() -> None:
    two = after(TEN, joined(1, 2))
    other = after(two, ReplaceHost("h1", "new"))
    assert (other.owners, other.hosts) == (two.owners, {1: "new", 2: "h2"})
    assert difference(two, other) == Moved((), Fraction(0), between_hosts=Fraction(1, 2))


def test_a_move_stays_until_workers_come_or_go() -> None:
    two = after(TEN, joined(1, 2))
    shard = two.shards_of(1)[0]
    moved = after(two, Move(shard, 2))
    assert moved.owners[shard] == 2
    assert after(moved, ReplaceHost("h1", "new")).owners == moved.owners
    check(after(moved, joined(3)))


def test_another_number_of_shards_moves_nothing_by_itself() -> None:
    three = after(TEN, joined(1, 2, 3, 4))
    finer = after(three, Reshard(Fixed(64)))
    assert len(finer.owners) == 64
    assert finer.ranges == three.ranges
    assert difference(three, finer).share == 0
    assert after(finer, Reshard(Fixed(16))).ranges == three.ranges


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (joined(2, 3), "worker 2 joins, and is there"),
        (left(7, 8), "worker 7, 8 leaves, and is not there"),
        (Move(16, 1), "shards are 0 to 15, there is no 16"),
        (Move(0, 9), "shard 0 cannot move to worker 9, which is not there"),
        (ReplaceHost("h9", "x"), "no worker runs on host h9; hosts are: h1, h2"),
        (ReplaceHost("h1", "h2"), "workers run on host h2 already; hosts are: h1, h2"),
    ],
)
def test_what_cannot_be_says_why(change: Change, said: str) -> None:
    two = after(TEN, joined(1, 2))
    with pytest.raises(Precondition) as refused:
        after(two, change)
    assert refused.value.reason == said
