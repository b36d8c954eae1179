"""How offsets are cut into steps: the plan of an interval, pure.

The law: over the steps of one plan, and from plan to plan, the ranges of a partition continue each
other without gap or overlap, from the first offset ever read; and the same arguments give the same
division. Records never move to another step afterwards, because the division is recorded before
anything reads it. The design, section 2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from lockstep.control.limits import StepLimits
from lockstep.control.model import Division, Interval, OffsetRange, SourceSlice
from lockstep.control.ports import PartitionBounds, TopicBounds
from lockstep.errors import SourceChanged

__all__ = ["Divided", "StepLimits", "boundaries", "divide"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_RESOLUTION = 1 << 64

_Partition = tuple[str, int]


@dataclass(frozen=True)
class Divided:
    """`interval` is None where there is no step; `behind`: rows up to the last time were left."""

    interval: Interval | None
    behind: bool


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
    bounds: Mapping[str, TopicBounds],
    times: tuple[datetime, ...],
    offsets: Mapping[str, tuple[Mapping[int, int | None], ...]],
    next_step: int,
    limits: StepLimits,
    *,
    last_is_stable: bool = True,
    start_at_latest: Collection[str] = (),
) -> Divided:
    """Cut what lies between the recorded positions and the bounds into steps at `times`.

    `bounds` holds every source of the project, `offsets` per source and time what `offsets_at`
    gave. `last_is_stable`: the last step takes all up to the last stable offset whatever its
    records' timestamps are, which is right where `times` reach the present: one record from the
    future then stalls nothing. Sources in `start_at_latest` start at the end of their topic when
    they are planned for the first time; a partition that enters later always starts at its first
    offset. Raises SourceChanged where a source cannot continue at its recorded position.
    """
    if not times:
        return Divided(None, behind=False)
    reached = _entries(positions, bounds, start_at_latest)
    names = {partition: bounds[partition[0]] for partition in reached}
    stable = {
        (source, partition.partition): partition.last_stable
        for source, topic in bounds.items()
        for partition in topic.partitions
    }
    divisions: list[Division] = []
    rows = 0
    for index, time in enumerate(times):
        to_stable = last_is_stable and index == len(times) - 1
        ends = {
            partition: max(at, stable[partition])
            if to_stable
            else _end(offsets[partition[0]][index], partition, at, stable[partition])
            for partition, at in reached.items()
        }
        for cut in _cuts(reached, ends, limits.rows_per_step):
            cut_rows = sum(cut.values()) - sum(reached.values())
            if rows + cut_rows > limits.rows_per_interval:
                return Divided(Interval(tuple(divisions)), behind=True)
            step = next_step + len(divisions)
            divisions.append(Division(step, time, _slices(reached, cut, names)))
            reached, rows = cut, rows + cut_rows
    return Divided(Interval(tuple(divisions)), behind=False)


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
    """How many of the first `rows` records, in that order, are of each partition.

    Record r of n lies at (2r + 1) / 2n. The threshold below which `rows` records lie is searched in
    steps of 1 / 2^64, in whole numbers: the result is the same everywhere, grows with `rows`, and
    sums to it.
    """

    def below(threshold: int) -> dict[_Partition, int]:
        return {
            partition: min(span, (2 * threshold * span + _RESOLUTION) // (2 * _RESOLUTION))
            for partition, span in spans.items()
        }

    low, high = 0, _RESOLUTION
    while high - low > 1:
        middle = (low + high) // 2
        if sum(below(middle).values()) <= rows:
            low = middle
        else:
            high = middle
    taken, next_taken = below(low), below(high)
    missing = rows - sum(taken.values())
    for partition, count in next_taken.items():
        more = min(missing, count - taken[partition])
        taken[partition] += more
        missing -= more
    return taken


def _slices(
    start: Mapping[_Partition, int],
    end: Mapping[_Partition, int],
    topics: Mapping[_Partition, TopicBounds],
) -> tuple[SourceSlice, ...]:
    ranges: dict[str, list[OffsetRange]] = {}
    of_source: dict[str, TopicBounds] = {}
    for key in sorted(start):
        source, partition = key
        ranges.setdefault(source, []).append(OffsetRange(partition, start[key], end[key]))
        of_source[source] = topics[key]
    return tuple(
        SourceSlice(source, of_source[source].topic, of_source[source].topic_id, tuple(found))
        for source, found in ranges.items()
    )


def _entries(
    positions: tuple[SourceSlice, ...],
    bounds: Mapping[str, TopicBounds],
    start_at_latest: Collection[str],
) -> dict[_Partition, int]:
    """The next offset of every partition, in the order of source and partition."""
    known = {slice_.source: slice_ for slice_ in positions}
    for source, position in known.items():
        if source not in bounds:
            raise SourceChanged(
                f"source {source} is recorded, and is no longer among the project's sources",
                expected=f"a source {source}, which reads topic {position.topic}",
                found=", ".join(sorted(bounds)) or "no source",
                next_step="lockstep deploy DIR",
            )
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


def _check_same_topic(position: SourceSlice, topic: TopicBounds) -> None:
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
        "lockstep reconcile DIR recomputes from what the topic holds now"
    )


def _milliseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // _MILLISECOND
