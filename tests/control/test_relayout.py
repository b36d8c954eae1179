"""A change of layout takes effect between two intervals, and stands beside what was made under it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest
from control_builders import attempt, deploy, interval, slice_of
from hypothesis import given
from hypothesis import strategies as st

from lockstep.control.changes import (
    BeginAttempt,
    Change,
    ChangeLayout,
    CommitVersion,
    RecordInterval,
)
from lockstep.control.job import Placement
from lockstep.control.layout import layouts
from lockstep.control.layout.layouts import Join, Layout, Leave, Move, Reshard
from lockstep.control.layout.records import FIRST, LayoutRecord, layout_of, text_of
from lockstep.control.layout.scaling import scaled
from lockstep.control.layout.sharding import Dynamic, Fixed, Sharding
from lockstep.control.model import AttemptState, Division, Interval, PipelineState, Version
from lockstep.control.step_log import logged_layouts, step_log
from lockstep.control.transitions import Precondition, apply
from lockstep.ids import LAYOUTS_TABLE

TWO = ChangeLayout(0, (Join({0: "a", 1: "b"}),))
THREE = ChangeLayout(1, (Join({2: "b"}),))
RECORDED = (deploy(), RecordInterval(interval(0, 3)))
BEGUN = (*RECORDED, BeginAttempt(attempt("x", 0, 2)))


def after(*changes: Change) -> PipelineState:
    state = None
    for change in changes:
        state = apply(state, change, name="p")
    assert state is not None
    return state


def steps(state: PipelineState) -> list[int | None]:
    return [record.from_step for record in state.layouts]


def test_a_change_takes_effect_at_once_where_nothing_is_under_way() -> None:
    state = after(deploy(), TWO)
    assert steps(state) == [0, 0]
    assert state.layout.hosts == {0: "a", 1: "b"}
    assert after(deploy(), TWO, TWO) == state


def test_a_change_waits_for_the_interval_under_way_and_others_wait_behind_it() -> None:
    waiting = after(*BEGUN, TWO, THREE)
    assert (waiting.layout.epoch, steps(waiting)) == (0, [0, None, None])
    committed = apply(waiting, CommitVersion(Version(1, "x", 2, 0, {"t": 7}), ""))
    assert (committed.layout.epoch, steps(committed)) == (2, [0, 3, 3])
    assert [one.epoch for one in committed.layouts_after(0)] == [1, 2]


def test_a_change_at_once_makes_what_was_done_under_another_void() -> None:
    state = after(*BEGUN, TWO, replace(TWO, at_once=True))
    assert (state.layout.epoch, steps(state)) == (1, [0, 0])
    assert state.attempts[0].state is AttemptState.ABANDONED
    assert after(*BEGUN, TWO, ChangeLayout(1, (), at_once=True)) == state
    with pytest.raises(Precondition, match="attempt x is abandoned"):
        apply(state, CommitVersion(Version(1, "x", 2, 1, {}), ""))
    again = apply(state, BeginAttempt(attempt("y", 0, 2)))
    with pytest.raises(Precondition, match="layout 1 is in effect, the commit says 0"):
        apply(again, CommitVersion(Version(1, "y", 2, 0, {}), ""))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (THREE, "the newest layout is 0, the change is of layout 1"),
        (ChangeLayout(0, ()), "changes something"),
        (ChangeLayout(1, (), at_once=True), "the newest layout is 0, the change is of layout 1"),
        (ChangeLayout(0, (Leave(frozenset({1})),)), "worker 1 leaves, and is not there"),
    ],
)
def test_a_change_of_another_layout_is_refused(change: Change, reason: str) -> None:
    with pytest.raises(Precondition, match=reason):
        after(deploy(), change)


def test_two_who_change_the_same_layout_do_not_both_land() -> None:
    with pytest.raises(Precondition, match="the newest layout is 1, the change is of layout 0"):
        after(deploy(), TWO, ChangeLayout(0, (Join({0: "a"}),)))


SHARDINGS = st.sampled_from((Fixed(16), Fixed(64), Dynamic(), Dynamic(Fraction(1, 3))))


@st.composite
def some_layouts(draw: st.DrawFn) -> Layout:
    hosts = draw(st.dictionaries(st.integers(0, 9), st.sampled_from(("a", "b ‰")), max_size=6))
    layout = layouts.after(Layout(), Reshard(draw(SHARDINGS)))
    if hosts:
        layout = layouts.after(layout, Join(hosts))
        shard = draw(st.integers(0, len(layout.owners) - 1))
        layout = layouts.after(layout, Move(shard, draw(st.sampled_from(sorted(hosts)))))
    return layout


@given(some_layouts(), st.integers(0, 99))
def test_a_layout_is_read_as_it_was_written(layout: Layout, step: int) -> None:
    assert layout_of(layout.epoch, text_of(layout)) == layout
    record = LayoutRecord(replace(layout, epoch=1), step)
    rows = step_log(interval(0, 1), [record.logged])[LAYOUTS_TABLE]
    assert logged_layouts(rows) == (FIRST, record)


@given(some_layouts(), st.integers(1, 12), st.integers(1, 12), SHARDINGS)
def test_a_scaled_layout_has_what_was_asked_for_and_no_more_comes_and_goes_than_must(
    layout: Layout, workers: int, hosts: int, sharding: Sharding
) -> None:
    if hosts > workers:
        with pytest.raises(Precondition, match=f"run on 1 to {workers} hosts, not on {hosts}"):
            scaled(layout, workers, hosts)
        return
    changes = scaled(layout, workers, hosts, sharding)
    made = layouts.after(layout, *changes) if changes else layout
    assert (len(made.hosts), made.sharding) == (workers, sharding)
    loads = Counter(made.hosts.values())
    assert len(loads) == hosts
    assert max(loads.values()) - min(loads.values()) <= 1
    before = Counter(layout.hosts.values())
    staying = len(made.hosts.keys() & layout.hosts.keys())
    most = sorted(before.values(), reverse=True)[:hosts]
    parts = sorted(loads.values(), reverse=True)
    assert staying == sum(min(there, part) for there, part in zip(most, parts, strict=False))
    assert scaled(made, workers, hosts, sharding) == ()


def test_hosts_are_as_many_as_there_are_where_none_are_named() -> None:
    four = layouts.after(Layout(), *scaled(Layout(), 4, 2))
    assert Counter(four.hosts.values()) == {"host-0": 2, "host-1": 2}
    assert scaled(four, 2) == (Leave(frozenset({1, 3})),)
    assert scaled(four, 5) == (Join({4: "host-0"}),)
    assert scaled(four, 4, sharding=Fixed(8)) == (Reshard(Fixed(8)),)
    with pytest.raises(Precondition, match="at least 1 worker is needed, not 0"):
        scaled(four, 0)


def test_the_engine_numbers_workers_without_gaps() -> None:
    layout = layouts.after(Layout(sharding=Fixed(4)), Join({3: "a", 7: "a"}))
    assert Placement.of(layout) == Placement(2, (0, 0, 1, 1), hosts=("a",))
    assert Placement.of(Layout()) is None


def test_a_topics_first_count_is_remembered_while_it_grows() -> None:
    grown = Division(
        3, interval(3, 1).divisions[0].time, (slice_of("s", (0, 30, 31), (1, 30, 30), (2, 0, 5)),)
    )
    committed = (*BEGUN, CommitVersion(Version(1, "x", 2, 0, {"t": 7}), ""))
    assert after(*RECORDED).first_counts == {"s": 2}
    state = after(*committed, RecordInterval(Interval((grown,))))
    assert len(state.positions[0].ranges) == 3  # type: ignore[union-attr]
    assert state.first_counts == {"s": 2}
    # Of a store that did not know them, what was recorded last counts.
    unknown = replace(after(*committed), first_counts={})
    assert apply(unknown, RecordInterval(Interval((grown,)))).first_counts == {"s": 2}
