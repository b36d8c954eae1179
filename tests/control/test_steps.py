"""Plans of divisions: what they hold by property, and how refusals read."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from control_builders import T0, at, deploy, slice_of
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.control.changes import RecordInterval
from lockstep.control.model import TopicSlice
from lockstep.control.ports import PartitionBounds, TopicBounds
from lockstep.control.steps import Divided, StepLimits, boundaries, divide
from lockstep.control.transitions import apply
from lockstep.errors import SourceChanged

LIMITS = StepLimits()
Looked = tuple[dict[int, int | None], ...]


def topic(source: str, *partitions: tuple[int, int, int], topic_id: str = "id1") -> TopicBounds:
    """Partitions are (number, first, last stable)."""
    return TopicBounds(f"topic_{source}", topic_id, tuple(PartitionBounds(*p) for p in partitions))


def ranges(divided: Divided, source: str = "s") -> list[list[tuple[int, int]]]:
    assert divided.interval is not None
    return [
        [(r.start, r.end) for s in d.slices if s.source == source for r in s.ranges]
        for d in divided.interval.divisions
    ]


# Boundaries


def test_boundaries_are_multiples_of_the_step_after_the_last_one() -> None:
    assert boundaries(at(3), at(40), LIMITS) == (at(10), at(20), at(30), at(40))
    assert boundaries(at(10), at(29.999), LIMITS) == (at(20),)
    assert boundaries(at(20), at(29), LIMITS) == ()
    assert boundaries(at(20), at(5), LIMITS) == ()


def test_the_first_plan_looks_back_one_interval() -> None:
    assert boundaries(None, at(65), LIMITS) == tuple(at(s) for s in (10, 20, 30, 40, 50, 60))


def test_the_oldest_boundaries_are_joined() -> None:
    few = replace(LIMITS, steps_per_interval=3)
    assert boundaries(at(0), at(10_000_000), few) == (at(9_999_980), at(9_999_990), at(10_000_000))


@given(
    st.none() | st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.integers(1, 5_000),
    st.integers(1, 50),
)
def test_boundaries_by_property(last: int | None, until: int, step: int, most: int) -> None:
    limits = StepLimits(step_seconds=step / 1000, steps_per_interval=most, interval_seconds=9)
    last_time = None if last is None else T0 + timedelta(milliseconds=last)
    times = boundaries(last_time, T0 + timedelta(milliseconds=until), limits)
    found = [round((t - T0) / timedelta(milliseconds=1)) for t in times]
    start = until - 9_000 if last is None else last
    epoch = round(T0.timestamp() * 1000)
    expected = [t for t in range(start + 1, until + 1) if (epoch + t) % step == 0]
    assert found == expected[-most:]


# Divisions


@st.composite
def plans(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments of `divide` with two topics, where positions lie within what is still held."""
    times = tuple(at(10 * n) for n in range(1, draw(st.integers(1, 5)) + 1))
    positions, bounds, offsets = [], {}, {}
    for source in draw(st.sampled_from([("s",), ("a", "s"), ()])):
        numbers = range(draw(st.integers(1, 4)))
        held = [(n, draw(st.integers(0, 20)), draw(st.integers(0, 60))) for n in numbers]
        held = [(n, first, first + span) for n, first, span in held]
        bounds[source] = topic(source, *held)
        offset = st.none() | st.integers(0, 90)
        offsets[source] = tuple(
            {n: draw(offset) for n in numbers if draw(st.integers(0, 9))} for _ in times
        )
        known = held[: draw(st.integers(0, len(held)))]
        if known:
            at_offsets = [(n, 0, draw(st.integers(first, last))) for n, first, last in known]
            positions.append(slice_of(source, *at_offsets))
    rows = draw(st.integers(1, 30))
    return {
        "positions": tuple(positions),
        "bounds": bounds,
        "times": times,
        "offsets": offsets,
        "next_step": draw(st.integers(0, 9)),
        "limits": StepLimits(rows_per_step=rows, rows_per_interval=rows + draw(st.integers(0, 99))),
        "last_is_stable": draw(st.booleans()),
        "start_at_latest": draw(st.sampled_from([(), ("s",)])),
    }


@given(plans())
def test_divisions_continue_exactly_and_keep_the_limits(plan: dict[str, Any]) -> None:
    divided = divide(**plan)
    assert divided == divide(**plan)
    interval, limits = divided.interval, plan["limits"]
    assert interval is not None
    assert isinstance(limits, StepLimits)
    assert interval.first_step == plan["next_step"]
    assert interval.records <= limits.rows_per_interval
    times = [division.time for division in interval.divisions]
    for division in interval.divisions:
        assert division.records <= limits.rows_per_step
        if times.count(division.time) > 1:
            assert division.records > 0
    if not divided.behind:
        assert sorted(set(times)) == list(plan["times"])

    # The recorded state takes it: nothing is left out, nothing is there twice.
    state = replace(
        apply(None, deploy(), name="p"),
        next_step=plan["next_step"],
        positions=plan["positions"],
    )
    after = apply(state, RecordInterval(interval))
    bounds = plan["bounds"]
    assert isinstance(bounds, dict)
    known = {(s.source, r.partition) for s in state.positions for r in s.ranges}
    known_sources = {s.source for s in state.positions}
    for slice_ in after.positions:
        held = {p.partition: p for p in bounds[slice_.source].partitions}
        assert set(held) == {r.partition for r in slice_.ranges}
        for range_ in slice_.ranges:
            partition = held[range_.partition]
            assert range_.end <= partition.last_stable
            if plan["last_is_stable"] and not divided.behind:
                assert range_.end == partition.last_stable
            if (slice_.source, range_.partition) not in known:
                late = slice_.source in plan["start_at_latest"]
                late = late and slice_.source not in known_sources
                assert range_.start == (partition.last_stable if late else partition.first)


@settings(max_examples=40)
@given(plans())
def test_plan_after_plan_reads_all_there_is(plan: dict[str, Any]) -> None:
    """While a plan is behind, the next one goes on; together they end where one would have."""
    plan |= {"last_is_stable": True, "start_at_latest": ()}
    whole = divide(**(plan | {"limits": StepLimits()}))
    state = apply(None, deploy(), name="p")
    state = replace(state, next_step=plan["next_step"], positions=plan["positions"])
    behind, rows = True, 0
    while behind:
        again = {"positions": state.positions, "next_step": state.next_step}
        divided = divide(**(plan | again))
        assert divided.interval is not None
        assert divided.interval.records > 0 or not divided.behind
        rows += divided.interval.records
        state = replace(apply(state, RecordInterval(divided.interval)), pending=None)
        state, behind = replace(state, last_time=None), divided.behind
    assert whole.interval is not None
    assert rows == whole.interval.records


def test_offsets_are_clamped_and_never_go_back() -> None:
    looked: Looked = ({0: 40, 1: 2}, {0: 30, 1: None}, {0: 99, 1: 5})
    divided = divide(
        (slice_of("s", (0, 0, 20), (1, 0, 4)),),
        {"s": topic("s", (0, 0, 60), (1, 0, 9))},
        (at(10), at(20), at(30)),
        {"s": looked},
        5,
        LIMITS,
        last_is_stable=False,
    )
    assert ranges(divided) == [[(20, 40), (4, 4)], [(40, 40), (4, 9)], [(40, 60), (9, 9)]]
    assert divided.interval is not None
    assert divided.interval.first_step == 5


def test_one_record_from_the_future_stalls_nothing() -> None:
    """A look-up by time stays at the record from the future; the last step goes past it."""
    looked: Looked = ({0: 3}, {0: 3})
    divided = divide((), {"s": topic("s", (0, 0, 8))}, (at(10), at(20)), {"s": looked}, 0, LIMITS)
    assert ranges(divided) == [[(0, 3)], [(3, 8)]]


def test_empty_steps_are_kept_because_time_passes() -> None:
    looked: Looked = ({0: None}, {0: None})
    position = (slice_of("s", (0, 0, 8)),)
    held = {"s": topic("s", (0, 2, 8))}
    divided = divide(position, held, (at(10), at(20)), {"s": looked}, 3, LIMITS)
    assert ranges(divided) == [[(8, 8)], [(8, 8)]]
    assert not divided.behind


def test_without_a_boundary_there_is_no_interval() -> None:
    assert divide((), {}, (), {}, 0, LIMITS) == Divided(None, behind=False)


def test_a_large_step_is_cut_in_proportion() -> None:
    limits = StepLimits(rows_per_step=50, rows_per_interval=120)
    held = {"s": topic("s", (0, 0, 150), (1, 10, 60))}
    divided = divide((), held, (at(10),), {"s": ({0: None, 1: None},)}, 0, limits)
    assert ranges(divided) == [[(0, 38), (10, 22)], [(38, 75), (22, 35)]]
    assert divided.behind


@given(
    spans=st.lists(st.integers(0, 30), min_size=1, max_size=5).filter(any),
    rows_per_step=st.integers(1, 40),
)
def test_cuts_are_in_the_order_of_how_far_into_its_partition_a_record_lies(
    spans: list[int], rows_per_step: int
) -> None:
    total = sum(spans)
    limits = StepLimits(rows_per_step=rows_per_step, rows_per_interval=1_000)
    held = {"s": topic("s", *((number, 0, span) for number, span in enumerate(spans)))}
    looked_up = {"s": (dict.fromkeys(range(len(spans))),)}
    divided = divide((), held, (at(10),), looked_up, 0, limits)
    records = sorted(
        (Fraction(2 * record + 1, 2 * span), partition)
        for partition, span in enumerate(spans)
        for record in range(span)
    )
    steps = -(-total // rows_per_step)
    ends = [total * step // steps for step in range(steps + 1)]
    expected = [
        Counter(partition for _, partition in records[start:end]) for start, end in pairwise(ends)
    ]
    found = [
        Counter({number: end - start for number, (start, end) in enumerate(step) if end > start})
        for step in ranges(divided)
    ]
    assert found == expected


@given(
    spans=st.lists(
        st.sampled_from([1, 2, 3, 1 << 20]) | st.integers(1, 1 << 45), min_size=2, max_size=6
    ),
    steps=st.integers(2, 9),
)
def test_large_partitions_are_cut_in_the_same_order(spans: list[int], steps: int) -> None:
    """Each record before a cut is nearer to the begin of its partition than each after it."""
    total = sum(spans)
    limits = StepLimits(rows_per_step=-(-total // steps), rows_per_interval=2 * total)
    held = {"s": topic("s", *((number, 0, span) for number, span in enumerate(spans)))}
    looked_up = {"s": (dict.fromkeys(range(len(spans))),)}
    divided = divide((), held, (at(10),), looked_up, 0, limits)
    for step in ranges(divided):
        ends = list(zip(spans, (end for _, end in step), strict=True))
        before = [(Fraction(2 * end - 1, 2 * n), p) for p, (n, end) in enumerate(ends) if end]
        after = [(Fraction(2 * end + 1, 2 * n), p) for p, (n, end) in enumerate(ends) if end < n]
        assert not before or not after or max(before) < min(after)


def test_a_partition_that_enters_later_starts_at_its_first_offset() -> None:
    divided = divide(
        (slice_of("s", (0, 0, 5)),),
        {"s": topic("s", (0, 0, 5), (1, 7, 9)), "z": topic("z", (0, 1, 4))},
        (at(10),),
        {"s": ({0: None},), "z": ({0: None},)},
        0,
        LIMITS,
        start_at_latest={"s", "z"},
    )
    assert ranges(divided) == [[(5, 5), (7, 9)]]
    assert ranges(divided, "z") == [[(4, 4)]]


POSITION = slice_of("s", (0, 0, 20), (1, 0, 4))
HELD = ((0, 0, 60), (1, 0, 9))


@pytest.mark.parametrize(
    ("position", "bounds", "message", "expected", "found"),
    [
        (
            POSITION,
            {"s": topic("s", (0, 25, 60), (1, 0, 9))},
            "source s: topic topic_s, partition 0: 5 offsets were removed before they were read",
            "offset 20, which is the next to read",
            "25 as the first offset still held (retention.ms, retention.bytes, or deleted records)",
        ),
        (
            POSITION,
            {"s": topic("s", (0, 0, 60), (1, 0, 3))},
            "source s: topic topic_s, partition 1: the topic ends before what was read of it",
            "a last stable offset of 4 or more, which is the next to read",
            "last stable offset 3 (the topic was truncated)",
        ),
        (
            POSITION,
            {"s": topic("s", *HELD, topic_id="id2")},
            "source s: topic topic_s was deleted and made anew",
            "topic id id1, whose offsets are recorded",
            "topic id id2",
        ),
        (
            POSITION,
            {"s": topic("s", HELD[0])},
            "source s: partition 1 of topic topic_s has vanished",
            "partition 1, read up to offset 4",
            "partitions 0",
        ),
        (
            replace(POSITION, topic="before"),
            {"s": topic("s", *HELD)},
            "source s reads another topic than before",
            "topic before, whose offsets are recorded",
            "topic topic_s",
        ),
        (
            POSITION,
            {"z": topic("z", *HELD)},
            "source s is recorded, and is no longer among the project's sources",
            "a source s, which reads topic topic_s",
            "z",
        ),
    ],
)
def test_a_source_that_cannot_continue_is_named(
    position: TopicSlice, bounds: dict[str, TopicBounds], message: str, expected: str, found: str
) -> None:
    with pytest.raises(SourceChanged) as refused:
        divide((position,), bounds, (at(10),), {}, 0, LIMITS)
    error = refused.value
    assert (error.message, error.expected, error.found) == (message, expected, found)
    assert "lockstep" in error.next_step
