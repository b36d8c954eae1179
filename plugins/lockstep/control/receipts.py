"""Receipts: what has become of a record that a producer has sent, or of a snapshot that a writer has
committed, from what is recorded alone.

A receipt speaks of an offset. A producer's offset within a transaction that it aborted has one too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

from lockstep.control.history import slices_of
from lockstep.control.model import Division, PipelineState, SourceSlice, TableSlice, TopicSlice
from lockstep.control.ports import Clock
from lockstep.control.table_history import TableHistory
from lockstep.errors import Retry, WrongUse

__all__ = [
    "Receipt",
    "ReceiptStatus",
    "input_of_step",
    "receipts",
    "snapshot_receipts",
    "wait_until_settled",
]

POLL_SECONDS = 0.5


class ReceiptStatus(Enum):
    """How far a record is.

    ::

        PENDING ──► PLANNED ──► COMMITTED ──► PUBLISHED      SKIPPED

    PENDING remains until a step's division holds the offset or the snapshot; PLANNED until a version
    holds the step; COMMITTED until every sink is at that step. SKIPPED is final: the source began
    after the offset, which is known once a step has read it.
    """

    PENDING = "pending"
    PLANNED = "planned"
    COMMITTED = "committed"
    PUBLISHED = "published"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Receipt:
    """What one source of a pipeline has done with an offset, or with a snapshot.

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

    @property
    def is_settled(self) -> bool:
        """Whether nothing more will happen: every sink shows it, or none ever will."""
        return self.status in (ReceiptStatus.PUBLISHED, ReceiptStatus.SKIPPED)

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
    positions = {p.source: p for p in state.positions if isinstance(p, TopicSlice)}
    read = {**topics, **{source: position.topic for source, position in positions.items()}}
    sources = _sources_of(state, "topic", read, topic, "TOPIC PARTITION OFFSET")
    kept = tuple(divisions)
    return tuple(
        _receipt(state, kept, source, positions.get(source), partition, offset)
        for source in sources
    )


def snapshot_receipts(
    state: PipelineState,
    divisions: Iterable[Division],
    tables: Mapping[str, TableHistory],
    table: str,
    snapshot_id: int,
) -> tuple[Receipt, ...]:
    """One receipt for each source that follows the table (its full name), by source.

    `divisions` are those still kept, of any steps; `tables` are the followed tables by source, as they
    are now. Raises WrongUse where no source follows the table, or the table never had the snapshot as
    far as its metadata still says.
    """
    names = {source: history.table for source, history in tables.items()}
    sources = _sources_of(state, "table", names, table, "TABLE SNAPSHOT")
    positions = {p.source: p for p in state.positions if isinstance(p, TableSlice)}
    kept = tuple(divisions)
    return tuple(
        _snapshot_receipt(state, kept, tables[source], positions.get(source), snapshot_id)
        for source in sources
    )


def wait_until_settled(
    ask: Callable[[], tuple[Receipt, ...]], what: str, timeout_seconds: float, clock: Clock
) -> tuple[Receipt, ...]:
    """The receipts, as soon as every sink shows what they are for, or none ever will. `ask` gives them
    as they are now; `what` names it. Raises Retry once `timeout_seconds` have passed."""
    until = clock.now() + timedelta(seconds=timeout_seconds)
    while True:
        found = ask()
        waiting = [receipt for receipt in found if not receipt.is_settled]
        if not waiting:
            return found
        if clock.now() >= until:
            raise Retry(
                f"{what} is not published everywhere after {timeout_seconds:g} seconds",
                expected="every sink at the step that holds it",
                found="; ".join(dict.fromkeys(map(str, waiting))),
                next_step="wait again; `lockstep status` shows whether the pipeline runs",
            )
        clock.sleep(POLL_SECONDS)


def input_of_step(state: PipelineState, divisions: Iterable[Division], step: int) -> Division:
    """What a step was made from: its time, offsets and snapshots. `divisions` are those of the step
    that are still kept. Raises WrongUse for a step that is not recorded yet, or is trimmed."""
    found = next((division for division in divisions if division.step == step), None)
    if found is not None:
        return found
    is_trimmed = step < state.oldest_step
    raise WrongUse(
        f"pipeline {state.name}: step {step} is "
        + ("trimmed from the step log" if is_trimmed else "not recorded yet"),
        expected=f"a step from {state.oldest_step} to {state.next_step - 1}",
        found=str(step),
        next_step=f"SELECT * FROM _steps WHERE step = {step}, in the pipeline's database"
        if is_trimmed
        else f"lockstep steps {state.name}",
    )


def _sources_of(
    state: PipelineState, kind: str, read: Mapping[str, str], name: str, arguments: str
) -> list[str]:
    sources = sorted(source for source, read_name in read.items() if read_name == name)
    if not sources:
        raise WrongUse(
            f"pipeline {state.name} does not read {kind} {name}",
            expected=" or ".join(sorted(set(read.values()))) or f"a source that reads a {kind}",
            found=name,
            next_step=f"lockstep receipt {state.name} {arguments}",
        )
    return sources


def _snapshot_receipt(
    state: PipelineState,
    divisions: tuple[Division, ...],
    history: TableHistory,
    position: TableSlice | None,
    snapshot_id: int,
) -> Receipt:
    if snapshot_id not in history.snapshots:
        raise WrongUse(
            f"table {history.table} has no snapshot {snapshot_id}",
            expected=f"one of its {len(history.snapshots)} snapshots, the newest of which is "
            f"{history.head}",
            found=str(snapshot_id),
            next_step=f"see SELECT snapshot_id FROM {history.table}.snapshots",
        )
    # Of a table that was made anew no step has read anything until its source is forgotten.
    if position is None or position.table_id != history.table_id:
        return _pending(state, history.source)
    if not _holds(history, None, position.end, snapshot_id):
        return _pending(state, history.source)

    def holds(slice_: SourceSlice) -> bool:
        assert isinstance(slice_, TableSlice), "it continues a table's position"
        return _holds(history, slice_.start, slice_.end, snapshot_id)

    return _placed(state, history.source, _step_of(divisions, position, holds))


def _holds(history: TableHistory, start: int | None, end: int | None, snapshot_id: int) -> bool:
    """Whether a slice brought the snapshot's rows in; one that compared two pasts, its end's."""
    line = history.between(start, end)
    if line is None:
        line = history.between(None, end) or ()
    return any(snapshot.snapshot_id == snapshot_id for snapshot in line)


def _receipt(
    state: PipelineState,
    divisions: tuple[Division, ...],
    source: str,
    position: TopicSlice | None,
    partition: int,
    offset: int,
) -> Receipt:
    if position is None:
        return _pending(state, source)
    read = next((r for r in position.ranges if r.partition == partition), None)
    if read is None or offset >= read.end:
        return _pending(state, source)
    if offset < read.start:
        return Receipt(source, ReceiptStatus.SKIPPED)

    def holds(slice_: SourceSlice) -> bool:
        assert isinstance(slice_, TopicSlice), "it continues a topic's position"
        return any(r.partition == partition and r.start <= offset < r.end for r in slice_.ranges)

    return _placed(state, source, _step_of(divisions, position, holds))


def _pending(state: PipelineState, source: str) -> Receipt:
    return Receipt(source, ReceiptStatus.PENDING, waiting=tuple(s.name for s in state.sinks))


def _placed(state: PipelineState, source: str, step: int | None) -> Receipt:
    """The receipt for what stands in a recorded step; None: in one that is trimmed."""
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
    divisions: tuple[Division, ...],
    position: SourceSlice,
    holds: Callable[[SourceSlice], bool],
) -> int | None:
    """The first step that holds it, of those since the source began; None where that is trimmed."""
    read = slices_of(position, divisions)
    return min((step for step, slice_ in read if holds(slice_)), default=None)
