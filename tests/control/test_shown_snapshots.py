"""Which snapshots of a followed table end steps: those that `main` has shown, when it has shown them."""

from __future__ import annotations

from itertools import pairwise

from control_builders import at
from hypothesis import given
from hypothesis import strategies as st

from lockstep.control.table_history import Shown, TableHistory, TableSnapshot


def snapshot(number: int, parent: int | None, seconds: float, rows: int = 10) -> TableSnapshot:
    return TableSnapshot(number, parent, at(seconds), "append", rows, 0, 100)


def history(
    *snapshots: TableSnapshot, log: tuple[tuple[int, float], ...], head: int | None = None
) -> TableHistory:
    """A table whose `main` is at `head`, or at the last snapshot; the log is of ids and seconds."""
    by_id = {one.snapshot_id: one for one in snapshots}
    last = snapshots[-1].snapshot_id if head is None else head
    shown = tuple(Shown(number, at(seconds)) for number, seconds in log)
    return TableHistory("s", "lake.shop.orders", "u1", last, by_id, log=shown)


def ends(
    table: TableHistory, start: int | None, *seconds: float, last_is_newest: bool = False
) -> tuple[int | None, ...]:
    return table.ends(start, tuple(map(at, seconds)), last_is_newest=last_is_newest)


def pieces(table: TableHistory, start: int, end: int, rows: int) -> list[int | None]:
    return list(table.pieces(start, end, rows))


HIDDEN = (snapshot(1, None, 5), snapshot(2, 1, 10), snapshot(3, 2, 12))
"""The second deletes, say, and the third appends, on a branch; then `main` goes there."""
PUBLISHED = history(*HIDDEN, log=((1, 5), (3, 20)))


def test_a_step_ends_at_no_snapshot_that_main_never_showed() -> None:
    assert ends(PUBLISHED, None, 7, 11, 15, 25) == (1, 1, 1, 3)
    assert ends(PUBLISHED, 1, 11, 25) == (1, 3)


def test_a_snapshot_counts_from_when_main_showed_it() -> None:
    assert ends(PUBLISHED, None, 5, 20, 20.1) == (None, 1, 3)
    assert ends(PUBLISHED, None, 7, 15, last_is_newest=True) == (1, 3)


def test_a_step_is_cut_at_no_snapshot_that_main_never_showed() -> None:
    assert pieces(PUBLISHED, 1, 3, 1) == [3]
    longer = history(
        *HIDDEN,
        snapshot(4, 3, 30),
        snapshot(5, 4, 40),
        snapshot(6, 5, 41),
        log=((1, 5), (3, 20), (4, 30), (6, 45)),
    )
    assert pieces(longer, 1, 6, 1) == [3, 4, 6]
    assert pieces(longer, 1, 6, 30) == [4, 6]
    assert pieces(longer, 1, 6, 40) == [4, 6]
    assert pieces(longer, 1, 6, 50) == [6]


def test_what_an_older_release_ended_at_a_hidden_snapshot_goes_on_from_there() -> None:
    assert ends(PUBLISHED, 2, 15, 25) == (2, 3)
    assert pieces(PUBLISHED, 2, 3, 1) == [3]
    assert PUBLISHED.records(2, 3) == 10


def test_a_log_that_was_cut_off_where_a_snapshot_has_expired() -> None:
    line = (snapshot(2, 1, 10), snapshot(3, 2, 12), snapshot(4, 3, 30))
    cut = history(*line, log=((3, 20), (4, 30)))
    for start in (1, 2):
        assert ends(cut, start, 15, 25, 35) == (start, 3, 4)
    # Nothing tells any more whether the second was shown.
    assert ends(cut, None, 15, 25, 35) == (None, 3, 4)


def test_what_a_writer_did_not_log_counts_from_its_commit() -> None:
    assert ends(history(*HIDDEN, log=()), None, 7, 11, 15) == (1, 2, 3)
    assert ends(history(*HIDDEN, log=((1, 6),)), None, 6, 11, 15) == (None, 2, 3)
    assert pieces(history(*HIDDEN, log=((1, 6),)), 1, 3, 1) == [2, 3]


def test_a_rollback_of_main_stands_in_the_log() -> None:
    line = (snapshot(1, None, 5), snapshot(2, 1, 10), snapshot(3, 1, 20))
    back = history(*line, log=((1, 5), (2, 10), (1, 15), (3, 20)))
    # What was read last is held until `main` leaves it.
    assert ends(back, 2, 12, 17, 25) == (2, 1, 3)
    assert ends(back, 1, 12, 17, 25) == (1, 1, 3)
    assert ends(back, None, 4, 12, 17, 25) == (None, 1, 1, 3)
    there = history(*line, log=((1, 5), (2, 10), (1, 15)), head=1)
    assert ends(there, 2, 12, 17) == (2, 1)


def test_a_rollback_that_was_taken_back() -> None:
    table = history(*HIDDEN, log=((1, 5), (3, 10), (1, 15), (3, 20)))
    assert ends(table, None, 7, 12, 17, 25) == (1, 3, 3, 3)
    assert ends(table, 1, 17, 25) == (1, 3)
    assert ends(table, 3, 17, 25) == (3, 3)


def test_a_step_is_cut_at_no_snapshot_that_main_showed_after_its_end() -> None:
    table = history(*HIDDEN, log=((1, 5), (3, 10), (1, 15), (2, 20), (3, 20)))
    assert ends(table, None, 7, 12) == (1, 3)
    assert pieces(table, 1, 3, 1) == [3]


def test_a_rollback_that_is_not_in_the_log_ends_at_the_head() -> None:
    table = history(*HIDDEN, log=((1, 5), (3, 20)), head=1)
    assert ends(table, 3, 4, 25) == (3, 1)


def test_a_clock_that_was_behind() -> None:
    table = history(*HIDDEN, log=((1, 25), (3, 7)))
    assert ends(table, None, 10, 20, 30) == (None, None, 3)


@st.composite
def logged(draw: st.DrawFn) -> TableHistory:
    """A line of snapshots, of which `main` has gone to some and back, and came to the last."""
    count = draw(st.integers(1, 7))
    line = [snapshot(n, n - 1 or None, draw(st.integers(0, 60))) for n in range(1, count + 1)]
    moves = [*draw(st.lists(st.integers(1, count), max_size=6)), count]
    times = sorted(draw(st.lists(st.integers(0, 60), min_size=len(moves), max_size=len(moves))))
    return history(*line, log=tuple(zip(moves, map(float, times), strict=True)))


@given(logged(), st.lists(st.integers(0, 70), min_size=1, max_size=5), st.integers(1, 40))
def test_steps_end_where_main_was_and_go_on(
    table: TableHistory, seconds: list[int], rows: int
) -> None:
    for start in (None, *table.snapshots):
        found = ends(table, start, *map(float, sorted(seconds)))
        for before, end in pairwise((start, *found)):
            shown = {one.snapshot_id for one in table.log if one.time < at(max(seconds))}
            assert end == before or end in shown
            assert (end or 0) >= (before or 0)
            for piece in table.pieces(before, end, rows):
                assert piece == end or piece in shown
