"""What had been read before an interval, as one step and as the steps that were recorded."""

from __future__ import annotations

from control_builders import at, slice_of

from lockstep.control.history import as_recorded, in_one_step
from lockstep.control.model import Division, Interval, SourceSlice, TableSlice
from lockstep.control.step_log import logged_divisions, step_log
from lockstep.ids import STEPS_TABLE, TABLE_STEPS_TABLE


def table(start: int | None, end: int | None) -> TableSlice:
    return TableSlice("t", "lake.in.t", "uuid", start, end, 0)


def divisions(*slices: tuple[SourceSlice, ...]) -> tuple[Division, ...]:
    return tuple(Division(step, at(step), found) for step, found in enumerate(slices))


RECORDED = divisions(
    (slice_of("s", (0, 0, 10)), table(None, None)),
    (slice_of("s", (0, 10, 12), (1, 5, 7)), table(None, 71)),
    (slice_of("s", (0, 12, 12), (1, 7, 9)), table(71, 72)),
)


def test_all_steps_as_one() -> None:
    [one] = in_one_step(Interval(RECORDED)).divisions
    assert (one.step, one.time) == (2, at(2))
    assert one.slices == (slice_of("s", (0, 0, 12), (1, 5, 9)), table(None, 72))


def test_a_source_that_was_declared_anew_has_no_past_before_that() -> None:
    old = slice_of("s", (0, 0, 10))
    anew = slice_of("s", (0, 0, 4))
    recorded = divisions((old, table(None, 1)), (table(1, 1),), (anew, table(1, 2)))
    found = as_recorded(recorded, (anew, table(None, 2)))
    assert [division.slices for division in found.divisions] == [
        (table(None, 1),),
        (table(1, 1),),
        (anew, table(1, 2)),
    ]


def test_a_source_whose_past_was_forgotten_has_what_was_read_since() -> None:
    old, later = slice_of("s", (0, 0, 4)), slice_of("s", (0, 7, 9))
    found = as_recorded(divisions((old,), (old,), (later,)), (slice_of("s", (0, 7, 9)),))
    assert [division.slices for division in found.divisions] == [(), (), (later,)]
    anew = slice_of("s", (0, 0, 2), topic_id="id2")
    found = as_recorded(divisions((old,), (anew,)), (anew,))
    assert [division.slices for division in found.divisions] == [(), (anew,)]
    assert [d.slices for d in as_recorded(divisions((old,)), ()).divisions] == [()]


def test_a_source_that_was_forgotten_while_an_interval_was_pending_begins_once() -> None:
    """Its steps follow those that are forgotten, without one in between that has none of it."""
    of_table = divisions((table(None, 71),), (table(71, 72),), (table(None, 80),), (table(80, 81),))
    found = as_recorded(of_table, (table(None, 81),))
    kept = [division.slices for division in found.divisions]
    assert kept == [(), (), (table(None, 80),), (table(80, 81),)]
    old, anew = slice_of("s", (0, 4, 9)), slice_of("s", (0, 2, 7), (1, 0, 3))
    later = slice_of("s", (0, 7, 8), (1, 3, 3))
    reached = slice_of("s", (0, 2, 8), (1, 0, 3))
    found = as_recorded(divisions((old,), (anew,), (later,)), (reached,))
    assert [division.slices for division in found.divisions] == [(), (anew,), (later,)]


def test_the_logged_rows_give_the_divisions_back() -> None:
    rows = step_log(Interval(RECORDED))
    found = logged_divisions(reversed(rows[STEPS_TABLE]), reversed(rows[TABLE_STEPS_TABLE]))
    assert found == RECORDED
