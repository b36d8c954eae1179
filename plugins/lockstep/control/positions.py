"""How far each source has been read: divisions continue exactly where the recorded ones end.

The law: the positions after some steps are, for each source and partition, the first offset that
was ever read and the end of the last range; the ranges in between have no gap and no overlap.
Without it a replay could skip or repeat records that no later check would see.
"""

from __future__ import annotations

from dataclasses import replace

from lockstep.control.model import Division, OffsetRange, SourceSlice
from lockstep.control.preconditions import Precondition, check_moment, check_sorted, require

__all__ = ["positions_after"]


def positions_after(
    positions: tuple[SourceSlice, ...], division: Division
) -> tuple[SourceSlice, ...]:
    """Positions once the division is read; raises where it does not start exactly at them."""
    step = division.step
    check_moment(f"the time of step {step}", division.time)
    names = [slice_.source for slice_ in division.slices]
    check_sorted(f"the sources of step {step}", names)
    known = {slice_.source: slice_ for slice_ in positions}
    for name in known:
        if name not in names:
            raise Precondition(
                f"step {step} has no slice of source {name}, whose position is recorded"
            )
    return tuple(_slice_after(known.get(s.source), s, step) for s in division.slices)


def _slice_after(before: SourceSlice | None, read: SourceSlice, step: int) -> SourceSlice:
    where = f"step {step}, source {read.source}"
    require(bool(read.ranges), lambda: f"{where}: a topic has at least one partition")
    check_sorted(f"the partitions of {where}", [range_.partition for range_ in read.ranges])
    if before is None:
        return read
    require(
        (before.topic, before.topic_id) == (read.topic, read.topic_id),
        lambda: (
            f"{where}: its position is recorded for topic {before.topic} with id "
            f"{before.topic_id}, the division is of {read.topic} with id {read.topic_id}"
        ),
    )
    known = {range_.partition: range_ for range_ in before.ranges}
    ranges = []
    for range_ in read.ranges:
        position = known.pop(range_.partition, None)
        if position is None:
            ranges.append(range_)
            continue
        if range_.start != position.end:
            raise Precondition(
                f"{where}, partition {range_.partition}: the next offset is {position.end}, "
                f"the range starts at {range_.start}"
            )
        ranges.append(OffsetRange(range_.partition, position.start, range_.end))
    require(
        not known,
        lambda: f"{where}: partition {min(known)} is recorded and has vanished from the division",
    )
    return replace(read, ranges=tuple(ranges))
