"""Topics that grow while they are read: whether they may, and which step begins with what is new.

The law, of sources in which the order of a key's records counts: what was written before its topic grew
is in earlier steps than what was written to the new partitions. So new partitions stay out of all
divisions until one of them holds a record. Then the old ones are read up to what is stable, and the
step that gets there names the new ones, each with an empty range at its first offset: the next interval
reads them. Without that a record could come in a step before one that it replaces, and the older would
be the row of its key for good. Samza's SEP-5 asks this of the input system, and Kafka does not give
it (decision 0021).

A topic that was seen with 2 partitions and then with 8 may have had 4 in between, and keys that went
from 1 to 3 to 7. So new partitions are taken up in stages: up to each number that it may have had.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from lockstep.control.layout.partitions import (
    Grouping,
    Mapper,
    TaskAssignment,
    by_modulo,
    grouped,
    next_multiple,
    parents_of,
)
from lockstep.control.model import Interval, OffsetRange, PipelineState, SourceSlice, TopicSlice
from lockstep.control.ports import PartitionBounds, SourceBounds, TopicBounds
from lockstep.control.preconditions import Precondition
from lockstep.control.steps import Divided
from lockstep.errors import Refused, SourceChanged, WrongUse
from lockstep.sql.circuit import PARTITION_MAPPER, SourceTable
from lockstep.sql.sources.source_layout import layout_of

__all__ = ["Growing", "Growth", "GrowthRules", "grown_meanwhile"]

Offsets = Mapping[str, tuple[Mapping[int, int | None], ...]]


class Growth(Enum):
    """What the topic of a source may grow to.

    FREE      any number: rows without keys are a multiset, and new partitions are read at once
    MULTIPLE  a multiple, so that all keys of a new partition were in one before (SEP-5)
    ANY       any number: the source says that its keys need not be followed
    """

    FREE = "free"
    MULTIPLE = "multiple"
    ANY = "any"

    @staticmethod
    def of(source: SourceTable) -> Growth:
        """What a declaration says; its options are checked."""
        if source.is_table or not layout_of(source).keys:
            return Growth.FREE
        return Growth(source.options.get("partition_growth", "multiple"))


@dataclass(frozen=True)
class _Grown:
    """A topic with partitions that no step has read: there were `known`, now there are `count`; those of
    `new` come next."""

    source: str
    topic: str
    known: int
    count: int
    new: tuple[PartitionBounds, ...]
    ends: Mapping[int, int] = field(hash=False)
    """Of the old partitions, what is stable."""

    @property
    def has_records(self) -> bool:
        return any(partition.last_stable > partition.first for partition in self.new)

    def next_stage(self, first: int) -> _Grown:
        """Up to the least number of partitions that it may have had in between, and with records.

        Each multiple of `first`, how many there were at first, that divides how many there are now may
        have been one. What came to partition p was in some q < p while there were q + 1 to p of them:
        so no two partitions of a stage have had the same key. What is `known` may end a stage itself,
        and be none of the numbers that there were.
        """
        for count in range(first, self.count, first):
            stage = replace(self, new=self.new[: max(0, count - self.known)])
            if self.count % count == 0 and stage.has_records:
                return stage
        return self

    @property
    def text(self) -> str:
        return f"topic {self.topic} has grown from {self.known} to {self.count} partitions"


@dataclass(frozen=True)
class Growing:
    """The topics that have grown since they were divided last. The new partitions of those that are
    `ordered` have to wait for the old ones; the others have no order."""

    ordered: Mapping[str, _Grown] = field(default_factory=dict, hash=False)
    free: tuple[_Grown, ...] = ()

    def bounds(self, found: Mapping[str, SourceBounds]) -> Mapping[str, SourceBounds]:
        """What is there to be divided: no partition that has to wait."""
        return {source: self._without_new(source, one) for source, one in found.items()}

    def _without_new(self, source: str, found: SourceBounds) -> SourceBounds:
        grown = self.ordered.get(source)
        if grown is None or not isinstance(found, TopicBounds):
            return found
        return replace(
            found, partitions=tuple(p for p in found.partitions if p.partition in grown.ends)
        )

    def offsets(self, looked_up: Offsets) -> Offsets:
        """Where the steps end, the last of them at what is stable in topics of which new partitions
        hold records: whatever the last time is, nothing of before is left for later."""
        return {source: self._to_stable(source, times) for source, times in looked_up.items()}

    def _to_stable(
        self, source: str, times: tuple[Mapping[int, int | None], ...]
    ) -> tuple[Mapping[int, int | None], ...]:
        grown = self.ordered.get(source)
        if grown is None or not grown.has_records:
            return times
        return (*times[:-1], dict.fromkeys(grown.ends))

    def taken_up(self, divided: Divided) -> Divided:
        """The division with the new partitions in its last step, where that ends at what is stable: a
        division that was cut short does not, and leaves them to one that does."""
        interval = divided.interval
        if interval is None:
            return divided
        *before, last = interval.divisions
        slices = tuple(self._with_new(slice_) for slice_ in last.slices)
        if slices == last.slices:
            return divided
        divisions = (*before, replace(last, slices=slices))
        return replace(divided, interval=Interval(divisions), behind=True)

    def _with_new(self, slice_: SourceSlice) -> SourceSlice:
        grown = self.ordered.get(slice_.source)
        if grown is None or not grown.has_records or not isinstance(slice_, TopicSlice):
            return slice_
        if any(range_.end < grown.ends[range_.partition] for range_ in slice_.ranges):
            return slice_
        new = (OffsetRange(one.partition, one.first, one.first) for one in grown.new)
        return replace(slice_, ranges=(*slice_.ranges, *new))

    def is_taken_up(self, interval: Interval) -> bool:
        """Whether new partitions wait for the next interval, and hold records for it."""
        return bool(self._taken_up(interval))

    def notes(self, interval: Interval) -> Iterator[str]:
        """A sentence for each topic, once the interval is recorded."""
        taken_up = self._taken_up(interval)
        for grown in self.free:
            yield (
                f"source {grown.source}: {grown.text}; the new ones are read from their first offset"
            )
        for grown in self.ordered.values():
            if grown.source in taken_up:
                first, last = grown.new[0].partition, grown.new[-1].partition
                yield (
                    f"source {grown.source}: {grown.text}; what was written before is read up to step "
                    f"{interval.last_step}, partitions {first} to {last} after it"
                )
            elif grown.has_records:
                yield (
                    f"source {grown.source}: {grown.text}; the new ones wait until what was written "
                    "before is read"
                )

    def _taken_up(self, interval: Interval) -> frozenset[str]:
        return frozenset(
            slice_.source
            for slice_ in interval.divisions[-1].slices
            if isinstance(slice_, TopicSlice)
            and slice_.source in self.ordered
            and len(slice_.ranges) > self.ordered[slice_.source].known
        )


@dataclass(frozen=True)
class GrowthRules:
    """What topics may grow to, by source, and which function says where the keys of a partition were at
    first. A source that is not named may grow as it likes."""

    of_source: Mapping[str, Growth] = field(default_factory=dict, hash=False)
    mapper: Mapper = by_modulo

    @staticmethod
    def of(sources: Iterable[SourceTable], mapper: Mapper = by_modulo) -> GrowthRules:
        """The rules of declared sources."""
        return GrowthRules({source.name: Growth.of(source) for source in sources}, mapper)

    def growing(self, state: PipelineState, bounds: Mapping[str, SourceBounds]) -> Growing:
        """What has grown since it was divided last. Raises SourceChanged where the keys of a topic can't
        be followed; WrongUse where the mapper says what cannot be."""
        found = _all_grown(state.positions, bounds)
        for grown in found:
            self._check(grown, state.first_counts)
        ordered: dict[str, _Grown] = {}
        for grown in found:
            match self._kind(grown.source):
                case Growth.MULTIPLE:
                    first = state.first_counts.get(grown.source, grown.known)
                    ordered[grown.source] = grown.next_stage(first)
                case Growth.ANY:
                    ordered[grown.source] = grown
        return Growing(ordered, tuple(one for one in found if one.source not in ordered))

    def _kind(self, source: str) -> Growth:
        return self.of_source.get(source, Growth.FREE)

    def _check(self, grown: _Grown, first_counts: Mapping[str, int]) -> None:
        if self._kind(grown.source) is not Growth.MULTIPLE:
            return
        if grown.count % grown.known:
            enough = next_multiple(grown.count, grown.known)
            raise SourceChanged(
                f"source {grown.source}: {grown.text}, which is no multiple: keys have changed between "
                "partitions in a way that cannot be followed",
                expected=f"a multiple of {grown.known} partitions",
                found=f"{grown.count} partitions",
                next_step=f"make it {enough} partitions before more is sent to it; or, where the order "
                "of a key's records is seen to, declare the source with 'partition_growth' = 'any'; or "
                f"lockstep reconcile DIR --forget {grown.source}, which recomputes from what the topic "
                "holds now",
            )
        first = first_counts.get(grown.source, grown.known)
        self._parents(grown.source, grown.count, first)

    def _parents(self, source: str, count: int, first: int) -> None:
        """Raise WrongUse where the mapper says what cannot be, or fails: it is somebody's function."""
        try:
            parents_of(source, count, first, self.mapper)
        except Exception as error:
            raise WrongUse(
                f"source {source}: {PARTITION_MAPPER} does not say where the keys of its {count} "
                f"partitions were when there were {first}",
                expected=f"for each partition a number from 0 to {first - 1}, its own for those",
                found=error.reason if isinstance(error, Precondition) else repr(error),
                next_step=f"correct the function that {PARTITION_MAPPER} names",
            ) from error

    def tasks(self, state: PipelineState, grouping: Grouping) -> TaskAssignment:
        """Which task reads each partition that is recorded. Raises WrongUse, as `growing` does."""
        counts = {
            one.source: len(one.ranges) for one in state.positions if isinstance(one, TopicSlice)
        }
        firsts = {source: state.first_counts.get(source, counts[source]) for source in counts}
        # Of keys that are not followed any spread will do.
        followed = {s: n for s, n in counts.items() if self._kind(s) is Growth.MULTIPLE}
        for source, count in followed.items():
            self._parents(source, count, firsts[source])
        recorded = TaskAssignment({}, firsts)
        mapped = grouped(recorded, followed, grouping, self.mapper)
        others = {source: count for source, count in counts.items() if source not in followed}
        spread = grouped(recorded, others, grouping)
        return TaskAssignment({**mapped.tasks, **spread.tasks}, firsts)


def grown_meanwhile(
    rules: GrowthRules,
    state: PipelineState,
    interval: Interval,
    before: Mapping[str, TopicBounds],
    after: Mapping[str, TopicBounds],
) -> Iterator[str]:
    """A sentence for each topic that has grown while steps ran, between two looks at it; and what the
    next plan refuses."""
    for source in sorted(after):
        had, found = len(before[source].partitions), after[source]
        if len(found.partitions) <= had:
            continue
        told = (
            f"topic {found.topic} has grown from {had} to {len(found.partitions)} partitions while "
            f"{interval.text} ran"
        )
        try:
            rules.growing(state, {source: found})
        except Refused as error:
            yield (
                f"{told}; the next plan refuses it: {error.message}; expected: {error.expected}; "
                f"found: {error.found}; next: {error.next_step}"
            )
        else:
            yield f"{told}; the next interval takes them up once they hold records"


def _all_grown(
    positions: Sequence[SourceSlice], bounds: Mapping[str, SourceBounds]
) -> tuple[_Grown, ...]:
    """In the order of positions. What has another id or has lost partitions is no longer that topic,
    which the division refuses in words of its own."""
    found = []
    for position in positions:
        topic = bounds.get(position.source)
        if not isinstance(position, TopicSlice) or not isinstance(topic, TopicBounds):
            continue
        known = {range_.partition for range_ in position.ranges}
        there = {partition.partition for partition in topic.partitions}
        is_same = (position.topic, position.topic_id) == (topic.topic, topic.topic_id)
        if is_same and known < there:
            new = tuple(one for one in topic.partitions if one.partition not in known)
            ends = {p.partition: p.last_stable for p in topic.partitions if p.partition in known}
            found.append(_Grown(position.source, topic.topic, len(known), len(there), new, ends))
    return tuple(found)
