"""How shards are given to workers: the checks of 6.824's shard controller, and the least movement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.control.layout.sharding import (
    BUCKETS,
    NOBODY,
    Dynamic,
    Fixed,
    Holdings,
    assign,
    moved,
    resharded,
)


def spread(owners: Sequence[int], among: Iterable[int]) -> int:
    counts = Counter(dict.fromkeys(among, 0)) + Counter(owners)
    owned = [Counter(owners)[worker] for worker in among]
    assert sum(counts.values()) == len(owners)
    return max(owned) - min(owned)


def least_movement(held: Holdings, among: Sequence[int]) -> int:
    """By trying all."""
    return min(
        moved(held, owners)
        for owners in product(among, repeat=len(held))
        if spread(owners, among) <= 1
    )


@given(st.data())
def test_no_even_assignment_moves_less(data: st.DataObject) -> None:
    """Of any holdings, after shards were split, merged, or left by workers that are gone."""
    before = data.draw(st.sampled_from((1, 2, 4, 8)))
    shards = data.draw(st.sampled_from((1, 2, 4)))
    names = range(5)
    owners = data.draw(
        st.lists(st.sampled_from([*names, NOBODY]), min_size=before, max_size=before)
    )
    among = sorted(data.draw(st.sets(st.sampled_from(names), min_size=1, max_size=4)))
    held = resharded(owners, shards)
    found = assign(held, among)
    assert set(found) <= set(among)
    assert spread(found, among) <= 1
    assert moved(held, found) == least_movement(held, among)
    assert assign(held, list(reversed(among))) == found


@given(st.data())
def test_any_joins_and_leaves_keep_all_shards_owned_and_even(data: st.DataObject) -> None:
    sharding = data.draw(st.sampled_from((Fixed(64), Fixed(4), Dynamic(), Dynamic(Fraction(1, 3)))))
    there: list[int] = []
    owners: tuple[int, ...] = (NOBODY,) * sharding.count(0)
    for _ in range(data.draw(st.integers(1, 6))):
        joining = data.draw(st.sets(st.integers(0, 11), max_size=4)) - set(there)
        leaving = data.draw(st.sets(st.sampled_from(there), max_size=3)) if there else set()
        there = sorted(set(there) - leaving | joining)
        held = resharded(owners, sharding.count(len(there)))
        owners = assign(held, there)
        if there:
            assert spread(owners, there) <= 1
        else:
            assert set(owners) == {NOBODY}


@pytest.mark.parametrize("count", [1, 2, 3, 7, 20, 63])
def test_one_worker_more_takes_its_part_and_nothing_else_moves(count: int) -> None:
    held = resharded((NOBODY,) * 1024, 1024)
    before = assign(held, range(count))
    held = resharded(before, 1024)
    after = assign(held, range(count + 1))
    assert moved(held, after) == 1024 // (count + 1)
    changed = {new for old, new in zip(before, after, strict=True) if old != new}
    assert changed == {count}
    # And when it leaves again, only its shards move.
    held = resharded(after, 1024)
    assert moved(held, assign(held, range(count))) == 1024 // (count + 1)


def test_nothing_moves_where_nothing_changes() -> None:
    for count in range(1, 12):
        owners = assign(resharded((NOBODY,) * 32, 32), range(count))
        held = resharded(owners, 32)
        assert assign(held, range(count)) == owners


def test_the_first_assignment_gives_each_worker_one_range() -> None:
    owners = assign(resharded((NOBODY,), 16), range(3))
    assert owners == (0,) * 6 + (1,) * 5 + (2,) * 5


def test_a_split_shard_stays_where_it_was() -> None:
    held = resharded((0, 1, 1, 0), 8)
    assert assign(held, [0, 1]) == (0, 0, 1, 1, 1, 1, 0, 0)


def test_a_merged_shard_goes_to_who_held_most_of_it() -> None:
    held = resharded((0, 0, 1, 0, 1, 1, 1, 1), 2)
    assert held == [{0: 3, 1: 1}, {1: 4}]
    assert assign(held, [0, 1]) == (0, 1)
    assert moved(held, (0, 1)) == 1


def test_what_nobody_held_does_not_move() -> None:
    held = resharded((NOBODY, 0), 4)
    assert moved(held, (0, 1, 1, 0)) == 1


@pytest.mark.parametrize(
    ("count", "shards"), [(0, 1), (1, 16), (2, 32), (3, 32), (4, 64), (12, 128), (13, 256)]
)
def test_dynamic_shards_double_as_workers_do(count: int, shards: int) -> None:
    assert Dynamic().count(count) == shards


def test_dynamic_shards_are_as_even_as_they_say() -> None:
    for count in range(1, 65):
        shards = Dynamic().count(count)
        most = -(-shards // count)
        assert most * count <= shards * Fraction(11, 10)


def test_there_are_no_more_shards_than_places_for_bounds() -> None:
    assert Dynamic(Fraction(1, 1000)).count(1000) == BUCKETS
    with pytest.raises(ValueError, match="a power of two up to 65536 is needed, not 12 shards"):
        Fixed(12)
    with pytest.raises(ValueError, match="not 131072 shards"):
        Fixed(2 * BUCKETS)
    with pytest.raises(ValueError, match="an inaccuracy lies between 0 and 1"):
        Dynamic(Fraction(1))
