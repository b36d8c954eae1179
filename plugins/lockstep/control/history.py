"""What had been read before an interval: the input from which a changed project's state is made.

The law: the past of an interval holds each source from its first offset, or from the empty table, up to
where the interval begins, and nothing of a source from before it was dropped and declared anew. As one
step or as the steps that were recorded, it is the same input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from lockstep.control.job import Rebuilding
from lockstep.control.model import (
    Division,
    Interval,
    OffsetRange,
    PipelineState,
    SourceSlice,
    TableSlice,
    TopicSlice,
)
from lockstep.control.ports import State, Store
from lockstep.control.positions import from_to, starts_of
from lockstep.control.step_log import logged_divisions
from lockstep.ids import STEPS_TABLE, TABLE_STEPS_TABLE

__all__ = [
    "all_divisions",
    "as_one_step",
    "as_recorded",
    "in_one_step",
    "rebuilding",
    "slices_of",
    "standing_interval",
]


def standing_interval(state: PipelineState) -> Interval:
    """The next step without any input, at the time of the last one."""
    assert state.last_time is not None, "there is a step before one that stands still"
    slices = (_standing(position) for position in state.positions)
    return Interval((Division(state.next_step, state.last_time, tuple(slices)),))


def _standing(position: SourceSlice) -> SourceSlice:
    match position:
        case TopicSlice():
            ends = (OffsetRange(r.partition, r.end, r.end) for r in position.ranges)
            return replace(position, ranges=tuple(ends))
        case TableSlice():
            return replace(position, start=position.end, records=0)


def as_one_step(state: PipelineState, interval: Interval, time: datetime) -> Interval:
    """All that was read before a pending interval, as one step of that time."""
    starts = {slice_.source: slice_ for slice_ in interval.divisions[0].slices}
    slices = (_before(position, starts[position.source]) for position in state.positions)
    return Interval((Division(interval.first_step - 1, time, tuple(slices)),))


def _before(position: SourceSlice, start: SourceSlice) -> SourceSlice:
    """From where the source was first read to where the interval starts."""
    match position, start:
        case TopicSlice(), TopicSlice():
            first = starts_of(position)
            ranges = (OffsetRange(r.partition, first[r.partition], r.start) for r in start.ranges)
            return replace(position, ranges=tuple(ranges))
        case TableSlice(), TableSlice():
            return replace(position, start=None, end=start.start, records=0)
    raise AssertionError("a position is of the kind that its divisions are")


def in_one_step(interval: Interval) -> Interval:
    """The input of all steps as that of the last."""
    found: dict[str, SourceSlice] = {}
    for division in interval.divisions:
        for slice_ in division.slices:
            before = found.get(slice_.source)
            found[slice_.source] = slice_ if before is None else from_to(before, slice_)
    last = interval.divisions[-1]
    return Interval((replace(last, slices=tuple(found[name] for name in sorted(found))),))


def as_recorded(divisions: Iterable[Division], positions: Iterable[SourceSlice]) -> Interval:
    """The steps themselves. Of a source that was absent in between, or whose past was forgotten, what
    came after that: nothing where it has no position."""
    recorded = tuple(divisions)
    read = {p.source: {step for step, _ in slices_of(p, recorded)} for p in positions}
    return Interval(
        tuple(
            replace(
                division,
                slices=tuple(s for s in division.slices if division.step in read.get(s.source, ())),
            )
            for division in recorded
        )
    )


def slices_of(
    position: SourceSlice, divisions: Sequence[Division]
) -> Iterator[tuple[int, SourceSlice]]:
    """The steps that have read a source up to its position, newest first, with what they read of it. A
    source that was absent in between, or whose past was forgotten, begins with what came after that:
    what was read before may have been another topic's, or be read again."""
    for division in reversed(divisions):
        slice_ = next((s for s in division.slices if s.source == position.source), None)
        if slice_ is None or not _continues(position, slice_):
            return
        yield division.step, slice_
        if _begins(position, slice_):
            return


def _continues(position: SourceSlice, slice_: SourceSlice) -> bool:
    """Whether a slice lies between where a source was first read and where it is now."""
    match position, slice_:
        case TopicSlice(), TopicSlice():
            first = starts_of(position)
            is_same = position.topic_id == slice_.topic_id
            return is_same and all(r.start >= first[r.partition] for r in slice_.ranges)
        case TableSlice(), TableSlice():
            return position.table_id == slice_.table_id
    return False


def _begins(position: SourceSlice, slice_: SourceSlice) -> bool:
    """Whether a slice is where a source was first read. What was recorded of it before that was
    forgotten, be it in the step before."""
    match position, slice_:
        case TopicSlice(), TopicSlice():
            first = starts_of(position)
            return all(r.start == first[r.partition] for r in slice_.ranges)
        case TableSlice(), TableSlice():
            return slice_.start is None
    raise AssertionError("a slice that continues is of the kind of its position")


def rebuilding(
    state: PipelineState,
    interval: Interval,
    time_before: datetime | None,
    store: Store,
    tables: State,
    needs_divisions: bool,
) -> Rebuilding | None:
    """From which past an attempt at a pending interval makes what the files need and the version opened
    does not hold; None where it holds everything. Raises Unreachable, StateDiverged."""
    replaced = state.replaced
    if replaced is None:
        return None
    if needs_divisions:
        divisions = all_divisions(state, interval.first_step - 1, store, tables)
        history = as_recorded(divisions, state.positions)
    else:
        assert time_before is not None, "a version that is replaced has a last step"
        history = as_one_step(state, interval, time_before)
    return Rebuilding(replaced.files, replaced.distrusted, history)


def all_divisions(
    state: PipelineState, last_step: int, store: Store, tables: State
) -> tuple[Division, ...]:
    """The divisions of all steps from the first on: the store's, and before those the logged ones."""
    kept = store.divisions(state.name, 0, last_step)
    if state.oldest_step == 0:
        return kept
    held = state.version.tables
    topics, followed = (
        tables.rows(table, held[table]) if table in held else ()
        for table in (STEPS_TABLE, TABLE_STEPS_TABLE)
    )
    logged = logged_divisions(topics, followed)
    return (*(one for one in logged if one.step < state.oldest_step), *kept)
