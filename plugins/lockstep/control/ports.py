"""What the control side needs of the world, as protocols; adapters and their in-memory twins fit.

Every method may raise `lockstep.errors.Unreachable`. None of them retries for ever: a time-out is
the caller's to judge, and only `Store.apply` may answer `Unknown`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from lockstep.control.changes import Change, Outcome
from lockstep.control.compaction import DataFileInfo
from lockstep.control.job import (
    CompareJob,
    CompareResult,
    ExpireJob,
    IntervalJob,
    IntervalResult,
    MergeJob,
    PublishJob,
    PublishResult,
    ViewDifference,
)
from lockstep.control.model import Division, PipelineState, Version
from lockstep.control.table_history import TableHistory

__all__ = [
    "Clock",
    "Engine",
    "Files",
    "Marker",
    "OutboxSteps",
    "PartitionBounds",
    "Progress",
    "Rewritten",
    "SourceBounds",
    "Sources",
    "State",
    "Store",
    "TopicBounds",
    "ViewHead",
]

Progress = Callable[[str], None]
"""Takes one line in plain words for the task log."""


class Clock(Protocol):
    """Time, and waiting for it."""

    def now(self) -> datetime:
        """UTC, cut to milliseconds."""
        ...

    def sleep(self, seconds: float) -> None: ...


class Store(Protocol):
    """The control store: one consistent state a pipeline, changed by compare and set."""

    def pipelines(self) -> tuple[str, ...]:
        """Names of all deployed pipelines, sorted."""
        ...

    def read(self, pipeline: str) -> PipelineState:
        """The state as of one moment. Raises NotDeployed."""
        ...

    def apply(self, pipeline: str, change: Change) -> Outcome:
        """Apply a change if its preconditions hold; concurrent writers are retried inside."""
        ...

    def divisions(self, pipeline: str, first_step: int, last_step: int) -> tuple[Division, ...]:
        """Recorded divisions with first_step <= step <= last_step that are still kept, by step."""
        ...

    def versions(self, pipeline: str) -> tuple[Version, ...]:
        """Versions kept, oldest first."""
        ...


@dataclass(frozen=True)
class PartitionBounds:
    """Of one partition: first offset still held, and the last stable offset (read_committed)."""

    partition: int
    first: int
    last_stable: int


@dataclass(frozen=True)
class TopicBounds:
    """A topic as it is now; `partitions` sorted by number. `waiting` says, a sentence each, what open
    transaction keeps a partition's last stable offset from its end."""

    topic: str
    topic_id: str
    partitions: tuple[PartitionBounds, ...]
    waiting: tuple[str, ...] = ()


SourceBounds = TopicBounds | TableHistory
"""A source as it is now."""


class Sources(Protocol):
    """The sources of one project, as they are now: topics and followed tables."""

    @property
    def start_at_latest(self) -> frozenset[str]:
        """Sources that begin at the end of their topic when they are first planned."""
        ...

    def bounds(self, source: str) -> SourceBounds:
        """Raises SourceChanged where the topic or the table does not exist, or has not the declared
        columns; Unreachable where no broker or catalog answers."""
        ...

    def offsets_at(
        self, source: str, times: Sequence[datetime]
    ) -> tuple[Mapping[int, int | None], ...]:
        """For each time, partition -> the first offset whose record is at or after it, None where
        there is none. Not clamped, not monotone: records may carry any timestamp. For topics only."""
        ...


@dataclass(frozen=True)
class Marker:
    """What a published snapshot of a view says about itself: the last step in it, and whose it is."""

    snapshot_id: int
    step: int
    incarnation: str
    parent_snapshot_id: int | None


@dataclass(frozen=True)
class ViewHead:
    """A published view as `main` shows it: its snapshot (None: the table has none yet), how many rows
    its data files hold, the marker of its newest marked ancestor, the names of all its refs and of its
    columns, in order, and whether its rows are files alone, without deletes or partitions.

    `lost` are columns that the marked snapshot has and the table has no more, or has others in their
    names: only who reads that snapshot with the columns it had finds their values."""

    snapshot_id: int | None
    records: int
    marker: Marker | None
    refs: tuple[str, ...]
    columns: tuple[str, ...]
    is_files_alone: bool = False
    lost: frozenset[str] = frozenset()


@dataclass(frozen=True)
class OutboxSteps:
    """The changes of the steps after `after`, up to `last`, in an outbox at a snapshot."""

    table: str
    snapshot_id: int
    after: int
    last: int


@dataclass(frozen=True)
class Rewritten:
    """A view that was written anew: how many distinct rows changed. Nothing was written where a row is
    `lacking`, as it is taken back more often than it was there: its values, for people."""

    changed: int
    lacking: str | None


class State(Protocol):
    """Branches, tags and snapshots of the tables of one catalog and database (no rows)."""

    def open_branch(self, table: str, branch: str, snapshot_id: int | None) -> int:
        """Make `branch` at a snapshot; None means the table's root snapshot, the one without parent,
        which is pinned with it. Doing it twice is harmless while the branch has not moved. Returns the
        snapshot id."""
        ...

    def appended(self, table: str, branch: str, base_snapshot_id: int | None) -> tuple[str, ...]:
        """Write ids (`lockstep.write`) of the snapshots on the branch after the base, oldest first.
        Raises StateDiverged where the branch does not descend from the base, or where a snapshot
        carries no write id, or is no append, and its id does not say that it is whole."""
        ...

    def head(self, table: str, branch: str) -> int:
        """The snapshot id that the branch points to."""
        ...

    def added_records(self, table: str, snapshot_id: int) -> int:
        """How many rows a snapshot added, by its own summary."""
        ...

    def total_records(self, table: str, snapshot_id: int) -> int:
        """How many rows a table has at a snapshot, by its own summary."""
        ...

    def total_bytes(self, table: str, snapshot_id: int) -> int:
        """How many bytes the files of a table have at a snapshot, by its own summary."""
        ...

    def records_after(self, table: str, snapshot_id: int, step: int) -> int:
        """How many rows at most the snapshot and its ancestors added for later steps than `step`, by
        their summaries: all of the table's where ancestors that would tell have expired. Raises
        StateDiverged where an append does not say up to which step it goes."""
        ...

    def append_rows(
        self,
        table: str,
        branch: str,
        rows: Sequence[Mapping[str, object]],
        summary: Mapping[str, str],
    ) -> None:
        """One snapshot on the branch with these rows, by column name, which carries the summary; it
        stands for no rows, too."""
        ...

    def rows(self, table: str, snapshot_id: int) -> Sequence[Mapping[str, Any]]:
        """All rows of a small table at a snapshot, by column name, in no order."""
        ...

    def settle(
        self,
        table: str,
        snapshot_id: int,
        tag: str,
        drop: Sequence[str] = (),
        replaced: Collection[str] | None = (),
    ) -> None:
        """In one commit: pin a snapshot by a tag, move `main` forward to it (nothing if `main` is
        there or beyond), and drop refs. Twice is harmless. A tag that is there moves to descendants
        only (a version whose files were merged); raises StateDiverged for any other snapshot.

        From snapshots of the attempts `replaced`, `main` moves to this one whatever their ancestry is;
        None leaves `main` where it is."""
        ...

    def summary(self, table: str, snapshot_id: int) -> Mapping[str, str]:
        """What a snapshot says of itself, with `operation`."""
        ...

    def snapshots(self, table: str) -> frozenset[int | None]:
        """Where the table can be opened: the ids of all snapshots that it still has, and None, which
        stands for its root, where it has that or is not there at all and can be made."""
        ...

    def ages(self, table: str, older_than: datetime) -> tuple[int, int]:
        """How many snapshots are older than that and held by no ref, and how many there are besides."""
        ...

    def drop_refs(self, table: str, names: Sequence[str]) -> None:
        """Remove branches and tags; those that do not exist are passed over."""
        ...

    def refs(self, table: str) -> Mapping[str, int]:
        """All branches and tags with their snapshot ids."""
        ...

    def tables(self) -> tuple[str, ...]:
        """Names of the tables in the database, sorted; empty where the database does not exist."""
        ...

    def view_head(self, table: str) -> ViewHead | None:
        """Where a published view is; None where the table does not exist. Raises StateDiverged where
        somebody else than Lockstep has changed rows after the newest marker (compaction has not)."""
        ...

    def summaries(
        self, table: str, branch: str, base_snapshot_id: int
    ) -> tuple[tuple[int, Mapping[str, str]], ...]:
        """Id and summary (with `operation`) of the snapshots on a branch after the base, oldest
        first. Raises StateDiverged where the branch does not descend from the base."""
        ...

    def show_marked(
        self, table: str, expected: int, snapshot_id: int, drop: Sequence[str] = ()
    ) -> bool:
        """In one commit: move `main` of a view from `expected` to a published descendant, the tag
        `lockstep` with it, and drop refs. False, and nothing done, where `main` has left `expected`.
        Twice is harmless."""
        ...


class Files(Protocol):
    """Data files of append-only tables: which there are at a snapshot, and swapping them."""

    def data_files(self, table: str, snapshot_id: int) -> tuple[DataFileInfo, ...]:
        """The data files at a snapshot, sorted by path."""
        ...

    def narrow(self, table: str, branch: str, snapshot_id: int, keep: Collection[str]) -> int:
        """Make `branch` at a snapshot with only the files `keep`; returns the branch's snapshot."""
        ...

    def swap(
        self,
        table: str,
        branch: str,
        snapshot_id: int,
        removed: Collection[str],
        merged_snapshot_id: int,
        summary: Mapping[str, str],
    ) -> int:
        """Make `branch` at a snapshot, with the files `removed` out and those in that
        `merged_snapshot_id` added; returns the new snapshot, which says of a table that is no trace
        that it has the same rows. Raises StateDiverged where a file to be removed is not there."""
        ...


class Engine(Protocol):
    """Spark, as the control side sees it."""

    def run(self, job: IntervalJob, progress: Progress) -> IntervalResult: ...

    def preview(self, job: IntervalJob, progress: Progress) -> tuple[ViewDifference, ...]:
        """By what each view would differ after a job that rebuilds; nothing is written."""
        ...

    def publish(self, job: PublishJob, progress: Progress) -> PublishResult: ...

    def compare(self, job: CompareJob, progress: Progress) -> CompareResult:
        """Compare what a replay has given with what was logged."""
        ...

    def merge(self, job: MergeJob, progress: Progress) -> Mapping[str, int]:
        """Append the rows of each table, those of a trace merged, to the job's branch; table → the new
        snapshot."""
        ...

    def expire(self, job: ExpireJob, progress: Progress) -> int:
        """Expire snapshots as the job says; how many files were deleted. Twice is harmless."""
        ...

    def interrupt(self, session: str) -> None:
        """Stop whatever still runs under a dead attempt's session; harmless where nothing does."""
        ...

    def session(self, recorded: str) -> str:
        """The session for the next attempt, to be recorded before the engine uses it: the one that
        the newest attempt has recorded where it still lives, else a new one."""
        ...
