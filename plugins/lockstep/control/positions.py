"""How far each source has been read: divisions continue exactly where the recorded ones end.

The law: the positions after some steps are, for each topic's partition, the first offset that was
ever read and the end of the last range, and for each table the last snapshot read; what lies in
between has no gap and no overlap. Without it a replay could skip or repeat rows that no later check
would see.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from lockstep.control.model import (
    Division,
    Interval,
    OffsetRange,
    SourceSlice,
    TableSlice,
    TopicSlice,
)
from lockstep.control.preconditions import (
    Precondition,
    check_moment,
    check_sorted,
    is_moment,
    require,
)

__all__ = [
    "first_counts",
    "from_to",
    "has_forgotten",
    "positions_after",
    "positions_logged",
    "starts_of",
    "without_forgotten",
]


def first_counts(
    known: Mapping[str, int], before: Iterable[SourceSlice], division: Division
) -> Mapping[str, int]:
    """How many partitions each topic's source had when it was divided first, once the division is
    recorded; `before` are the positions before it: what has none begins with it."""
    counts = {one.source: len(one.ranges) for one in before if isinstance(one, TopicSlice)}
    counts |= {source: count for source, count in known.items() if source in counts}
    return {
        one.source: counts.get(one.source, len(one.ranges))
        for one in division.slices
        if isinstance(one, TopicSlice)
    }


def positions_logged(
    divisions: Iterable[Division],
) -> tuple[tuple[SourceSlice, ...], Mapping[str, int]]:
    """Positions and `first_counts` once steps are read that were recorded long ago. A source that was
    absent in between, or whose past was forgotten, begins where it came back."""
    known: dict[str, SourceSlice] = {}
    counts: Mapping[str, int] = {}
    for division in divisions:
        goes_on: list[SourceSlice] = []
        reached: dict[str, SourceSlice] = {}
        for slice_ in division.slices:
            before = known.get(slice_.source)
            try:
                reached[slice_.source] = _position_after(before, slice_, "")
            except Precondition:
                reached[slice_.source] = _position_after(None, slice_, "")
            else:
                goes_on += [before] if before is not None else []
        counts = first_counts(counts, goes_on, division)
        known = reached
    return tuple(known[source] for source in sorted(known)), counts


def positions_after(
    positions: tuple[SourceSlice, ...], divisions: Iterable[Division]
) -> tuple[SourceSlice, ...]:
    """Positions once the divisions are read, one after the other; raises where one does not start
    exactly at those before it."""
    for division in _joined(divisions):
        positions = _positions_after(positions, division)
    return positions


def _joined(divisions: Iterable[Division]) -> Iterator[Division]:
    """The same divisions, but those as one that read the same and go on where the ones before end: all
    of most intervals, which may have a thousand steps."""
    run: list[Division] = []
    for division in divisions:
        if run and not _goes_on(run[-1], division):
            yield _as_one(run)
            run = []
        run.append(division)
    if run:
        yield _as_one(run)


def _goes_on(before: Division, after: Division) -> bool:
    return (
        is_moment(after.time)
        and len(before.slices) == len(after.slices)
        and all(map(_slice_goes_on, before.slices, after.slices))
    )


def _slice_goes_on(before: SourceSlice, after: SourceSlice) -> bool:
    match before, after:
        case TopicSlice(), TopicSlice():
            return (
                (before.source, before.topic, before.topic_id, len(before.ranges))
                == (after.source, after.topic, after.topic_id, len(after.ranges))
            ) and all(
                one.partition == next_.partition and one.end == next_.start
                for one, next_ in zip(before.ranges, after.ranges, strict=True)
            )
        case TableSlice(), TableSlice():
            return (before.source, before.table, before.table_id, before.end) == (
                after.source,
                after.table,
                after.table_id,
                after.start,
            )
    return False


def _as_one(run: Sequence[Division]) -> Division:
    """From where the first starts to where the last ends."""
    first, last = run[0], run[-1]
    if first is last:
        return first
    return replace(first, slices=tuple(map(from_to, first.slices, last.slices)))


def from_to(first: SourceSlice, last: SourceSlice) -> SourceSlice:
    """The slice from where one begins to where a later one ends."""
    match first, last:
        case TopicSlice(), TopicSlice():
            starts = starts_of(first)
            ranges = (
                OffsetRange(r.partition, starts.get(r.partition, r.start), r.end)
                for r in last.ranges
            )
            return replace(last, ranges=tuple(ranges))
        case TableSlice(), TableSlice():
            records = first.records + last.records
            return replace(
                last, start=first.start, records=records if first.start != last.end else 0
            )
    raise AssertionError("the slices of a source are of one kind")


def has_forgotten(positions: Iterable[SourceSlice], interval: Interval) -> bool:
    """Whether an interval was divided with sources whose past was forgotten after that."""
    known = {position.source for position in positions}
    return any(s.source not in known for division in interval.divisions for s in division.slices)


def without_forgotten(positions: Sequence[SourceSlice], interval: Interval) -> Interval:
    """An interval without the slices of such sources: what they were to read may be gone."""
    if not has_forgotten(positions, interval):
        return interval
    known = {position.source for position in positions}
    return Interval(
        tuple(
            replace(division, slices=tuple(s for s in division.slices if s.source in known))
            for division in interval.divisions
        )
    )


def starts_of(slice_: TopicSlice) -> Mapping[int, int]:
    """Where the ranges of each partition begin."""
    return {range_.partition: range_.start for range_ in slice_.ranges}


def _positions_after(
    positions: tuple[SourceSlice, ...], division: Division
) -> tuple[SourceSlice, ...]:
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
    return tuple(
        _position_after(known.get(slice_.source), slice_, f"step {step}, source {slice_.source}")
        for slice_ in division.slices
    )


def _position_after(before: SourceSlice | None, read: SourceSlice, where: str) -> SourceSlice:
    match before, read:
        case TopicSlice() | None, TopicSlice():
            return _topic_after(before, read, where)
        case TableSlice() | None, TableSlice():
            return _table_after(before, read, where)
    raise Precondition(
        f"{where}: its position is recorded for {_name(before)}, the division is of {_name(read)}"
    )


def _name(slice_: SourceSlice | None) -> str:
    match slice_:
        case TopicSlice():
            return f"topic {slice_.topic}"
        case TableSlice():
            return f"table {slice_.table}"
        case None:
            return "nothing"


def _table_after(before: TableSlice | None, read: TableSlice, where: str) -> TableSlice:
    if before is not None:
        require(
            (before.table, before.table_id) == (read.table, read.table_id),
            lambda: (
                f"{where}: its position is recorded for table {before.table} with id "
                f"{before.table_id}, the division is of {read.table} with id {read.table_id}"
            ),
        )
    reached = None if before is None else before.end
    require(
        read.start == reached,
        lambda: f"{where}: snapshot {reached} was read last, the slice starts at {read.start}",
    )
    return replace(read, start=None, records=0)


def _topic_after(before: TopicSlice | None, read: TopicSlice, where: str) -> TopicSlice:
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
