"""Positions after many divisions are those after one and then the next, whatever goes on from what."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.control.model import Division, OffsetRange, SourceSlice, TableSlice, TopicSlice
from lockstep.control.positions import positions_after
from lockstep.control.preconditions import Precondition

TIME = datetime(2026, 1, 1, tzinfo=UTC)


@st.composite
def many_divisions(draw: st.DrawFn) -> list[Division]:
    """Most go on from the one before; of some a source, a partition, an offset, an id or a snapshot is
    another one."""
    divisions = list[Division]()
    topics = {name: [0] * draw(st.integers(1, 3)) for name in ("a", "c")}
    snapshot: int | None = None
    for step in range(draw(st.integers(1, 8))):
        slices = list[SourceSlice]()
        for name, ends in topics.items():
            if draw(st.integers(0, 9)) == 0:
                ends.append(0)
            ranges = [(end, end + draw(st.integers(0, 3))) for end in ends]
            topics[name] = [end for _, end in ranges]
            wrong = draw(st.integers(0, 20)) == 0
            slices.append(
                TopicSlice(
                    name,
                    f"topic of {name}",
                    "other" if draw(st.integers(0, 40)) == 0 else "id",
                    tuple(
                        OffsetRange(place, start, end + wrong)
                        for place, (start, end) in enumerate(ranges)
                    ),
                )
            )
        reached = draw(st.sampled_from([snapshot, step]))
        start = step + 90 if draw(st.integers(0, 20)) == 0 else snapshot
        slices.insert(1, TableSlice("b", "t", "id", start, reached, int(start != reached)))
        snapshot = reached
        if draw(st.integers(0, 30)) == 0:
            del slices[draw(st.integers(0, 2))]
        time = TIME.replace(microsecond=draw(st.sampled_from([0] * 30 + [1])))
        divisions.append(Division(step, time, tuple(slices)))
    return divisions


def reached(*parts: list[Division]) -> tuple[SourceSlice, ...] | str:
    """The positions after the parts, one after the other, or what is wrong with one."""
    positions: tuple[SourceSlice, ...] = ()
    try:
        for part in parts:
            positions = positions_after(positions, part)
    except Precondition as error:
        return str(error)
    return positions


@given(many_divisions())
def test_many_are_one_after_the_other(divisions: list[Division]) -> None:
    assert reached(divisions) == reached(*([one] for one in divisions))


def test_each_time_is_looked_at() -> None:
    right = Division(0, TIME, (TopicSlice("a", "t", "id", (OffsetRange(0, 0, 1),)),))
    wrong = replace(
        right,
        step=1,
        time=TIME.replace(microsecond=1),
        slices=(TopicSlice("a", "t", "id", (OffsetRange(0, 1, 2),)),),
    )
    with pytest.raises(Precondition, match="the time of step 1 must be UTC"):
        positions_after((), [right, wrong])
