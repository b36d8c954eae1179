"""The offsets of an interval's steps, and what of them is read by whom: pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter

from lockstep.control.model import Interval, OffsetRange, TopicSlice

__all__ = ["StepRange", "partition_ranges", "records_of", "slices_of", "step_ranges"]


@dataclass(frozen=True, order=True)
class StepRange:
    """Offsets start <= o < end of a partition belong to `step` of the interval; never empty."""

    partition: int
    start: int
    end: int
    step: int


_PLACE = attrgetter("partition", "start")


def step_ranges(interval: Interval, source: str) -> tuple[StepRange, ...]:
    """The ranges of a source that hold offsets, by partition and offset.

    Raises ValueError where ranges of a partition do not continue each other: reading from the first
    start to the last end would then read records that no step has.
    """
    ranges = sorted(
        (
            StepRange(
                range_.partition, range_.start, range_.end, division.step - interval.first_step
            )
            for division in interval.divisions
            for slice_ in division.slices
            if slice_.source == source and isinstance(slice_, TopicSlice)
            for range_ in slice_.ranges
            if range_.records
        ),
        key=_PLACE,
    )
    for before, after in pairwise(ranges):
        if before.partition == after.partition and before.end != after.start:
            raise ValueError(
                f"source {source}, partition {after.partition}: step {after.step} starts at offset "
                f"{after.start}, and step {before.step} ends at {before.end}"
            )
    return tuple(ranges)


def records_of(ranges: Iterable[StepRange]) -> int:
    """How many offsets they hold, a record each but for those that are none."""
    return sum(one.end - one.start for one in ranges)


def partition_ranges(ranges: Sequence[StepRange]) -> tuple[OffsetRange, ...]:
    """Of each partition all of its ranges as one, which continue each other."""
    starts, ends = dict[int, int](), dict[int, int]()
    for range_ in sorted(ranges, key=_PLACE):
        starts.setdefault(range_.partition, range_.start)
        ends[range_.partition] = range_.end
    return tuple(
        OffsetRange(partition, start, ends[partition]) for partition, start in starts.items()
    )


def slices_of(ranges: Sequence[StepRange], tasks: int) -> tuple[OffsetRange, ...]:
    """What tasks read: each partition's ranges, in pieces where these are fewer than tasks."""
    found: list[OffsetRange] = []
    whole = partition_ranges(ranges)
    of_a_task = records_of(ranges) / tasks
    for one in whole:
        pieces = max(1, round(one.records / of_a_task))
        cuts = [one.start + one.records * piece // pieces for piece in range(pieces + 1)]
        found.extend(OffsetRange(one.partition, *pair) for pair in pairwise(cuts))
    return tuple(found)
