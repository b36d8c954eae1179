"""Receipts: what has become of a record that a producer has sent, from what is recorded alone.

A receipt speaks of an offset. A producer's offset within a transaction that it aborted has one too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from lockstep.control.model import Division, PipelineState, SourceSlice
from lockstep.errors import WrongUse

__all__ = ["Receipt", "ReceiptStatus", "receipts"]


class ReceiptStatus(Enum):
    """How far a record is.

    ::

        PENDING ──► PLANNED ──► COMMITTED ──► PUBLISHED      SKIPPED

    PENDING remains until a step's division holds the offset; PLANNED until a version holds the step;
    COMMITTED until every sink is at that step. SKIPPED is final: the source began after the offset,
    which is known once a step has read it.
    """

    PENDING = "pending"
    PLANNED = "planned"
    COMMITTED = "committed"
    PUBLISHED = "published"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Receipt:
    """What one source of a pipeline has done with an offset.

    `step` is None while pending or skipped, and once the divisions are trimmed: then `before_step`
    says that it was in a step before that one. `version` is the oldest version kept that holds it.
    `published` and `waiting` name sinks.
    """

    source: str
    status: ReceiptStatus
    step: int | None = None
    before_step: int | None = None
    version: int | None = None
    published: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.status is ReceiptStatus.SKIPPED:
            return f"source {self.source}: not read, the source began after it"
        if self.status is ReceiptStatus.PENDING:
            return f"source {self.source}: pending, in no step yet"
        where = (
            f"in step {self.step}" if self.step is not None else f"before step {self.before_step}"
        )
        parts = [f"source {self.source}: {where}"]
        if self.version is not None:
            parts.append(f"committed, held by version {self.version}")
        if self.published:
            parts.append(f"published by {', '.join(self.published)}")
        if self.waiting:
            parts.append(f"not yet by {', '.join(self.waiting)}")
        return "; ".join(parts)


def receipts(
    state: PipelineState,
    divisions: Iterable[Division],
    topics: Mapping[str, str],
    topic: str,
    partition: int,
    offset: int,
) -> tuple[Receipt, ...]:
    """One receipt for each source that reads the topic, by source.

    `divisions` are those still kept, of any steps; `topics` are the sources of the project with the
    topic of each: one that no step has read yet has no position. Raises WrongUse where no source
    reads the topic.
    """
    positions = {position.source: position for position in state.positions}
    read = {**topics, **{source: position.topic for source, position in positions.items()}}
    sources = sorted(source for source, its_topic in read.items() if its_topic == topic)
    if not sources:
        raise WrongUse(
            f"pipeline {state.name} does not read topic {topic}",
            expected=" or ".join(sorted(set(read.values()))),
            found=topic,
            next_step=f"lockstep receipt {state.name} TOPIC PARTITION OFFSET",
        )
    kept = tuple(divisions)
    return tuple(
        _receipt(state, kept, source, positions.get(source), partition, offset)
        for source in sources
    )


def _receipt(
    state: PipelineState,
    divisions: tuple[Division, ...],
    source: str,
    position: SourceSlice | None,
    partition: int,
    offset: int,
) -> Receipt:
    ranges = position.ranges if position is not None else ()
    read = next((r for r in ranges if r.partition == partition), None)
    if read is None or offset >= read.end:
        return Receipt(source, ReceiptStatus.PENDING, waiting=tuple(s.name for s in state.sinks))
    if offset < read.start:
        return Receipt(source, ReceiptStatus.SKIPPED)
    step = _step_of(divisions, source, partition, offset)
    # Only steps that are committed and published everywhere are trimmed.
    holds = state.oldest_step - 1 if step is None else step
    version = next((v.number for v in state.versions if v.last_step >= holds), None)
    published = tuple(sink.name for sink in state.sinks if sink.published_step >= holds)
    waiting = tuple(sink.name for sink in state.sinks if sink.published_step < holds)
    if version is None:
        status = ReceiptStatus.PLANNED
    else:
        status = ReceiptStatus.COMMITTED if waiting else ReceiptStatus.PUBLISHED
    before = state.oldest_step if step is None else None
    return Receipt(source, status, step, before, version, published, waiting)


def _step_of(
    divisions: tuple[Division, ...], source: str, partition: int, offset: int
) -> int | None:
    for division in divisions:
        for slice_ in division.slices:
            if slice_.source != source:
                continue
            for range_ in slice_.ranges:
                if range_.partition == partition and range_.start <= offset < range_.end:
                    return division.step
    return None
