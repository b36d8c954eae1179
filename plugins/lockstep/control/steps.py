"""How offsets and snapshots are cut into steps: the plan of an interval, pure.

The law: over the steps of one plan, and from plan to plan, the ranges of a partition continue each
other without gap or overlap, from the first offset ever read, as do the snapshots of a table; and the
same arguments give the same division. Rows never move to another step afterwards, because the
division is recorded before anything reads it.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property

from lockstep.control.limits import StepLimits
from lockstep.control.model import (
    Division,
    Interval,
    OffsetRange,
    SourceSlice,
    TableSlice,
    TopicSlice,
)
from lockstep.control.ports import PartitionBounds, SourceBounds, TopicBounds
from lockstep.control.table_history import TableHistory
from lockstep.errors import SourceChanged

__all__ = [
    "Divided",
    "StepLimits",
    "boundaries",
    "check_continues",
    "check_readable",
    "divide",
    "up_to",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

_Partition = tuple[str, int]


@dataclass(frozen=True)
class Divided:
    """`interval` is None where there is no step; `behind`: rows up to the last time were left.

    `notes` say what a person should know about the division, and about what it could not take in, a
    sentence each.
    """

    interval: Interval | None
    behind: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Reached:
    """How far the sources are read: the next offset of each partition, the last snapshot of each
    table, both in the order of sources."""

    offsets: Mapping[_Partition, int]
    snapshots: Mapping[str, int | None]


@dataclass(frozen=True)
class _Looked:
    """What was looked up: topics by partition, tables by source."""

    topics: Mapping[_Partition, TopicBounds]
    tables: Mapping[str, TableHistory]

    def rows(self, start: _Reached, end: _Reached) -> int:
        """An upper bound of the rows from one to the other."""
        offsets = sum(end.offsets.values()) - sum(start.offsets.values())
        return offsets + sum(
            history.records(start.snapshots[source], end.snapshots[source])
            for source, history in self.tables.items()
        )

    def slices(self, start: _Reached, end: _Reached) -> tuple[SourceSlice, ...]:
        """What a step from one to the other reads, by source."""
        tables = [
            history.slice(start.snapshots[source], end.snapshots[source])
            for source, history in self.tables.items()
        ]
        topics = [
            TopicSlice(
                source,
                topic.topic,
                topic.topic_id,
                tuple(OffsetRange(key[1], start.offsets[key], end.offsets[key]) for key in keys),
            )
            for source, topic, keys in self._by_source
        ]
        return tuple(sorted([*topics, *tables], key=lambda slice_: slice_.source))

    @cached_property
    def _by_source(self) -> Sequence[tuple[str, TopicBounds, Sequence[_Partition]]]:
        """Topics with their partitions, in order."""
        found: dict[str, list[_Partition]] = {}
        for key in sorted(self.topics):
            found.setdefault(key[0], []).append(key)
        return [(source, self.topics[keys[0]], keys) for source, keys in found.items()]


def boundaries(
    last_time: datetime | None, until: datetime, limits: StepLimits
) -> tuple[datetime, ...]:
    """The step times in (last_time, until]: multiples of the step since the epoch, in UTC.

    With nothing recorded yet, those in (until - interval, until]. Beyond `steps_per_interval` the
    oldest are left out, so that their records join the first step that remains.
    """
    step = limits.step_milliseconds
    end = _milliseconds(until)
    start = end - limits.interval_milliseconds if last_time is None else _milliseconds(last_time)
    first, last = start // step + 1, end // step
    first = max(first, last - limits.steps_per_interval + 1)
    return tuple(_EPOCH + number * step * _MILLISECOND for number in range(first, last + 1))


def divide(
    positions: tuple[SourceSlice, ...],
    bounds: Mapping[str, SourceBounds],
    times: tuple[datetime, ...],
    offsets: Mapping[str, tuple[Mapping[int, int | None], ...]],
    next_step: int,
    limits: StepLimits,
    *,
    last_is_stable: bool = True,
    start_at_latest: Collection[str] = (),
) -> Divided:
    """Cut what lies between the recorded positions and the bounds into steps at `times`.

    `bounds` holds every source of the project, `offsets` per topic's source and time what
    `offsets_at` gave. `last_is_stable`: the last step takes all up to the last stable offset and the
    newest snapshot whatever their timestamps are, which is right where `times` reach the present: one
    record from the future then stalls nothing. Sources in `start_at_latest` start at the end of their
    topic when they are planned for the first time; a partition that enters later always starts at its
    first offset. A table's first step takes the rows of one snapshot, and nothing of what was there
    before it. Raises SourceChanged where a source cannot continue at its recorded position.
    """
    if not times:
        return Divided(None, behind=False)
    topics = {name: found for name, found in bounds.items() if isinstance(found, TopicBounds)}
    tables = {
        name: found for name, found in sorted(bounds.items()) if isinstance(found, TableHistory)
    }
    reached = _entries(positions, topics, tables, start_at_latest)
    looked = _Looked({key: topics[key[0]] for key in reached.offsets}, tables)
    ends = _ends(reached, topics, offsets, times, looked, last_is_stable)
    divisions: list[Division] = []
    rows, is_behind = 0, False
    for time, end in zip(times, ends, strict=True):
        for cut in _cuts(reached, end, looked, limits.rows_per_step):
            cut_rows = looked.rows(reached, cut)
            # A snapshot cannot be cut: alone it may be more than an interval takes.
            is_behind = is_behind or bool(divisions and rows + cut_rows > limits.most_rows)
            if is_behind:
                break
            step = next_step + len(divisions)
            divisions.append(Division(step, time, looked.slices(reached, cut)))
            reached, rows = cut, rows + cut_rows
    waiting = tuple(
        f"source {name}: {line}" for name, topic in sorted(topics.items()) for line in topic.waiting
    )
    return Divided(Interval(tuple(divisions)), is_behind, waiting + _notes(divisions, tables))


def up_to(divided: Divided, stop_at: int) -> Divided:
    """The steps before `stop_at`; what comes after them is left for later."""
    interval = divided.interval
    if interval is None or interval.last_step < stop_at:
        return divided
    kept = tuple(one for one in interval.divisions if one.step < stop_at)
    return Divided(Interval(kept) if kept else None, True, divided.notes)


def _notes(divisions: list[Division], tables: Mapping[str, TableHistory]) -> tuple[str, ...]:
    """A sentence for each step that finds a table with another past than the one it was read with."""
    return tuple(
        f"source {slice_.source}: snapshot {slice_.start}, which was read last, is no ancestor of "
        f"{slice_.end} any more; step {division.step} compares all rows of {slice_.table} at the two"
        for division in divisions
        for slice_ in division.slices
        if slice_.source in tables and isinstance(slice_, TableSlice)
        if slice_.start is not None
        and tables[slice_.source].between(slice_.start, slice_.end) is None
    )


def _ends(
    reached: _Reached,
    topics: Mapping[str, TopicBounds],
    offsets: Mapping[str, tuple[Mapping[int, int | None], ...]],
    times: tuple[datetime, ...],
    looked: _Looked,
    last_is_stable: bool,
) -> Iterator[_Reached]:
    """Where the steps of each time end."""
    stable = {
        (source, partition.partition): partition.last_stable
        for source, topic in topics.items()
        for partition in topic.partitions
    }
    snapshots = {
        source: history.ends(reached.snapshots[source], times, last_is_newest=last_is_stable)
        for source, history in looked.tables.items()
    }
    at = dict(reached.offsets)
    for index in range(len(times)):
        to_stable = last_is_stable and index == len(times) - 1
        at = {
            partition: max(offset, stable[partition])
            if to_stable
            else _end(offsets[partition[0]][index], partition, offset, stable[partition])
            for partition, offset in at.items()
        }
        yield _Reached(at, {source: ends[index] for source, ends in snapshots.items()})


def _end(
    looked_up: Mapping[int, int | None], partition: _Partition, at: int, last_stable: int
) -> int:
    """Where a step ends in a partition: what was looked up, kept within [at, last_stable].

    No record at or after the time means that all records are before it. A partition that the
    look-up did not know (it appeared in between) is left where it is until the next plan.
    """
    offset = looked_up.get(partition[1], at)
    return max(at, last_stable if offset is None else min(offset, last_stable))


def _cuts(
    start: _Reached, end: _Reached, looked: _Looked, rows_per_step: int
) -> Iterator[_Reached]:
    """Ends of the steps from `start` to `end`: one where the limit lets. Else first come the tables that
    are read for the first time, all in one step: no snapshot can be cut, what is joined of them is so
    once, and what joins a topic with them finds them there. Then come the topics', and then each
    other table's, cut between its snapshots."""
    if looked.rows(start, end) <= rows_per_step:
        yield end
        return
    moved = [s for s, snapshot in end.snapshots.items() if snapshot != start.snapshots[s]]
    new = {s: end.snapshots[s] for s in moved if start.snapshots[s] is None}
    if new:
        start = replace(start, snapshots={**start.snapshots, **new})
        yield start
    if start.offsets != end.offsets:
        for offsets in _offset_cuts(start.offsets, end.offsets, rows_per_step):
            start = replace(start, offsets=offsets)
            yield start
    for source in (one for one in moved if one not in new):
        history = looked.tables[source]
        for snapshot in history.pieces(
            start.snapshots[source], end.snapshots[source], rows_per_step
        ):
            start = replace(start, snapshots={**start.snapshots, source: snapshot})
            yield start


def _offset_cuts(
    start: Mapping[_Partition, int], end: Mapping[_Partition, int], rows_per_step: int
) -> Iterator[dict[_Partition, int]]:
    """Ends of the steps into which [start, end) is cut: as few as the limit lets, of equal size.

    The records are ordered by how far into their partition's range they lie, ties by partition, and
    that order is cut: so every cut takes from each partition in proportion.
    """
    spans = {partition: end[partition] - at for partition, at in start.items()}
    total = sum(spans.values())
    pieces = max(1, -(-total // rows_per_step))
    for piece in range(1, pieces):
        taken = _proportion(spans, total * piece // pieces)
        yield {partition: at + taken[partition] for partition, at in start.items()}
    yield dict(end)


def _proportion(spans: Mapping[_Partition, int], rows: int) -> dict[_Partition, int]:
    """How many of the first `rows` records, in that order, are of each partition: the same everywhere,
    and more with more `rows`.

    Record r of n lies at (2r + 1) / 2n. Up to a place t lie t * total records, and at most half a
    record a partition more: where t is so small that these are not too many, all of them are taken at
    once, and the few that are missing one by one.
    """
    total = sum(spans.values())
    halves = max(0, 2 * rows - len(spans))
    taken = {p: min(span, (halves * span + total) // (2 * total)) for p, span in spans.items()}
    missing = rows - sum(taken.values())
    if not missing:
        return taken
    # Places that differ do so by at least one over the product of their spans. So many times as large
    # they differ by more than one: their whole parts are in the same order.
    shift = 2 * max(spans.values()).bit_length()

    def next_of(number: int, partition: _Partition) -> tuple[int, int, _Partition]:
        return ((2 * taken[partition] + 1) << shift) // spans[partition], number, partition

    waiting = [next_of(number, p) for number, p in enumerate(spans) if taken[p] < spans[p]]
    heapq.heapify(waiting)
    for _ in range(missing):
        _, number, partition = heapq.heappop(waiting)
        taken[partition] += 1
        if taken[partition] < spans[partition]:
            heapq.heappush(waiting, next_of(number, partition))
    return taken


def _entries(
    positions: tuple[SourceSlice, ...],
    bounds: Mapping[str, TopicBounds],
    tables: Mapping[str, TableHistory],
    start_at_latest: Collection[str],
) -> _Reached:
    """How far the recorded steps have read; where they have not, where a source begins."""
    topics = {slice_.source: slice_ for slice_ in positions if isinstance(slice_, TopicSlice)}
    followed = {slice_.source: slice_ for slice_ in positions if isinstance(slice_, TableSlice)}
    for source, topic in topics.items():
        _check_there(source, f"topic {topic.topic}", bounds)
    for source, before in followed.items():
        _check_there(source, f"table {before.table}", tables)
        tables[source].check_same(before)
    return _Reached(
        _first_offsets(topics, bounds, start_at_latest),
        {s: followed[s].end if s in followed else None for s in sorted(tables)},
    )


def _check_there(source: str, what: str, found: Collection[str]) -> None:
    if source not in found:
        raise SourceChanged(
            f"source {source} is recorded, and is no longer among the project's sources",
            expected=f"a source {source}, which reads {what}",
            found=", ".join(sorted(found)) or "no source",
            next_step="lockstep deploy DIR",
        )


def _first_offsets(
    known: Mapping[str, TopicSlice],
    bounds: Mapping[str, TopicBounds],
    start_at_latest: Collection[str],
) -> dict[_Partition, int]:
    """The next offset of every partition, in the order of source and partition."""
    reached: dict[_Partition, int] = {}
    for source in sorted(bounds):
        topic, before = bounds[source], known.get(source)
        if before is not None:
            _check_same_topic(before, topic)
        recorded = {} if before is None else {r.partition: r.end for r in before.ranges}
        for partition in sorted(topic.partitions, key=lambda p: p.partition):
            at = recorded.get(partition.partition)
            if at is not None:
                _check_held(source, topic.topic, partition, at)
            elif before is None and source in start_at_latest:
                at = max(partition.first, partition.last_stable)
            else:
                at = partition.first
            reached[source, partition.partition] = at
    return reached


def check_continues(position: TopicSlice, topic: TopicBounds) -> None:
    """Raise SourceChanged where a topic no longer holds what comes after a position."""
    _check_same_topic(position, topic)
    there = {partition.partition: partition for partition in topic.partitions}
    for range_ in position.ranges:
        _check_held(position.source, topic.topic, there[range_.partition], range_.end)


def check_readable(slice_: TopicSlice, topic: TopicBounds) -> None:
    """Raise SourceChanged where a recorded slice can no longer be read as it was recorded: a topic that
    was made anew has other records at the same offsets."""
    _check_same_topic(slice_, topic)
    there = {partition.partition: partition for partition in topic.partitions}
    for range_ in slice_.ranges:
        if range_.records:
            _check_held(slice_.source, topic.topic, there[range_.partition], range_.start)


def _check_same_topic(position: TopicSlice, topic: TopicBounds) -> None:
    source = position.source
    if position.topic != topic.topic:
        raise SourceChanged(
            f"source {source} reads another topic than before",
            expected=f"topic {position.topic}, whose offsets are recorded",
            found=f"topic {topic.topic}",
            next_step=f"give the source of {topic.topic} another name, then lockstep deploy DIR",
        )
    if position.topic_id != topic.topic_id:
        raise SourceChanged(
            f"source {source}: topic {topic.topic} was deleted and made anew",
            expected=f"topic id {position.topic_id}, whose offsets are recorded",
            found=f"topic id {topic.topic_id}",
            next_step=_decide(source),
        )
    there = {partition.partition for partition in topic.partitions}
    gone = [range_ for range_ in position.ranges if range_.partition not in there]
    if gone:
        raise SourceChanged(
            f"source {source}: partition {gone[0].partition} of topic {topic.topic} has vanished",
            expected=f"partition {gone[0].partition}, read up to offset {gone[0].end}",
            found=f"partitions {', '.join(map(str, sorted(there))) or 'none'}",
            next_step=_decide(source),
        )


def _check_held(source: str, topic: str, partition: PartitionBounds, at: int) -> None:
    where = f"source {source}: topic {topic}, partition {partition.partition}"
    if at < partition.first:
        raise SourceChanged(
            f"{where}: {partition.first - at} offsets were removed before they were read",
            expected=f"offset {at}, which is the next to read",
            found=f"{partition.first} as the first offset still held (retention.ms, "
            "retention.bytes, or deleted records)",
            next_step=_decide(source),
        )
    if at > partition.last_stable:
        raise SourceChanged(
            f"{where}: the topic ends before what was read of it",
            expected=f"a last stable offset of {at} or more, which is the next to read",
            found=f"last stable offset {partition.last_stable} (the topic was truncated)",
            next_step=_decide(source),
        )


def _decide(source: str) -> str:
    return (
        f"lockstep doctor DIR, which shows what is left of source {source}; "
        f"lockstep reconcile DIR --forget {source} recomputes from what the topic holds now"
    )


def _milliseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // _MILLISECOND
