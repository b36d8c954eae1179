"""The values that the control side decides with: pure data, no input or output.

What step, interval, division, version and attempt mean, `docs/architecture.md` says under "Words".
Times are UTC and carry milliseconds, which is what Kafka records carry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from functools import cached_property

from lockstep.control.layout.autoscaling import Load
from lockstep.control.layout.layouts import Layout
from lockstep.control.layout.records import FIRST, LayoutRecord, LoggedLayout, in_effect
from lockstep.ids import attempt_branch
from lockstep.sql.circuit import ProjectFiles

__all__ = [
    "Attempt",
    "AttemptState",
    "Division",
    "Intent",
    "Interval",
    "Lease",
    "OffsetRange",
    "PipelineState",
    "Replaced",
    "RunState",
    "RunStatus",
    "SinkState",
    "SourceSlice",
    "TableSlice",
    "TopicSlice",
    "Version",
]


@dataclass(frozen=True, order=True)
class OffsetRange:
    """Offsets start <= o < end of one partition."""

    partition: int
    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(
                f"partition {self.partition}: offsets {self.start} to {self.end} are no range"
            )

    @property
    def records(self) -> int:
        """How many offsets the range spans: an upper bound of its records."""
        return self.end - self.start


@dataclass(frozen=True)
class TopicSlice:
    """What one step reads of a Kafka source: a range of every known partition, empty ranges too."""

    source: str
    topic: str
    topic_id: str
    ranges: tuple[OffsetRange, ...]

    @cached_property
    def records(self) -> int:
        """How many offsets the slice spans: an upper bound of its records."""
        return sum(range_.records for range_ in self.ranges)

    @property
    def is_empty(self) -> bool:
        return self.records == 0


@dataclass(frozen=True)
class TableSlice:
    """What one step reads of an Iceberg source: what takes its rows at `start` to its rows at `end`.

    `table` is the full name and `table_id` the table's uuid; both ends are snapshot ids, and None is
    the table without any snapshot, which has no rows. `records` is an upper bound of the rows that
    change, from the snapshots' summaries.
    """

    source: str
    table: str
    table_id: str
    start: int | None
    end: int | None
    records: int

    def __post_init__(self) -> None:
        if self.records < 0 or (self.records > 0 and self.start == self.end):
            raise ValueError(
                f"source {self.source}: snapshot {self.start} to {self.end} cannot change "
                f"{self.records} rows"
            )

    @property
    def is_empty(self) -> bool:
        return self.start == self.end


SourceSlice = TopicSlice | TableSlice
"""What one step reads of one source."""


@dataclass(frozen=True)
class Division:
    """The input of one step, fixed once recorded; `time` is the step's now()."""

    step: int
    time: datetime
    slices: tuple[SourceSlice, ...]

    @cached_property
    def records(self) -> int:
        """How many rows the step reads at most, over all sources."""
        return sum(slice_.records for slice_ in self.slices)


@dataclass(frozen=True)
class Interval:
    """Steps first..last, one job, version v to v+1. Named by (incarnation, first step)."""

    divisions: tuple[Division, ...]

    def __post_init__(self) -> None:
        if not self.divisions:
            raise ValueError("an interval has at least one step")
        for before, after in zip(self.divisions, self.divisions[1:], strict=False):
            if after.step != before.step + 1 or after.time < before.time:
                raise ValueError(
                    f"step {after.step} at {after.time} cannot follow {before.step} at "
                    f"{before.time}: steps have no gaps and times do not go back"
                )

    @property
    def first_step(self) -> int:
        return self.divisions[0].step

    @property
    def last_step(self) -> int:
        return self.divisions[-1].step

    @cached_property
    def records(self) -> int:
        return sum(division.records for division in self.divisions)

    @property
    def text(self) -> str:
        """Its steps, for people."""
        return f"steps {self.first_step}..{self.last_step}"

    def first(self, steps: int) -> Interval:
        """Its first steps, at most so many of them, of one or more."""
        return self if steps >= len(self.divisions) else Interval(self.divisions[:steps])

    def after(self, step: int) -> Interval | None:
        """Its steps after that one; None where there are none."""
        rest = tuple(division for division in self.divisions if division.step > step)
        return Interval(rest) if rest else None

    @property
    def is_empty(self) -> bool:
        """True where no step moves any source."""
        return all(slice_.is_empty for division in self.divisions for slice_ in division.slices)


@dataclass(frozen=True)
class Version:
    """One consistent cut through all tables: the snapshot of each, after `last_step`.

    `tables` maps a table's name (without catalog and database) to its Iceberg snapshot id. Version 0
    is empty: no tables, last step -1, attempt ''.
    """

    number: int
    attempt: str
    last_step: int
    layout_epoch: int
    tables: Mapping[str, int] = field(hash=False)

    @staticmethod
    def zero() -> Version:
        """The version before the first interval."""
        return Version(0, "", -1, 0, {})


class AttemptState(Enum):
    """The life of an attempt.

    ::

        RUNNING ──► COMMITTED ◄─► DROPPED   its version landed; a rollback dropped it, or gave it back
           │  └──► REFUSED                  its commit was refused: another attempt had landed
           └─────► ABANDONED                somebody else ruled that it shall never commit
        REPLAYING ───▲                      it has ended, or somebody else ruled so

    RUNNING remains until one of three is recorded. REPLAYING, which runs committed steps again only to
    compare, remains until it is ABANDONED. REFUSED and ABANDONED are final, and only in them its
    branches may be deleted. COMMITTED remains until a rollback drops its version. DROPPED remains while
    the replay can be taken back; then the tags of its version may be deleted.
    """

    RUNNING = "running"
    COMMITTED = "committed"
    REFUSED = "refused"
    ABANDONED = "abandoned"
    DROPPED = "dropped"
    REPLAYING = "replaying"


@dataclass(frozen=True)
class Attempt:
    """One try at the interval that starts at `first_step`, from the version made by `base`.

    `base` is the attempt id of the version it opened ('' for version 0). `session` is the Spark
    Connect session id under which its jobs run, '' under spark-submit: what a successor interrupts.
    """

    id: str
    first_step: int
    last_step: int
    base: str
    state: AttemptState = AttemptState.RUNNING
    session: str = ""

    @property
    def branch(self) -> str:
        """The Iceberg branch that it writes to, on every table."""
        return attempt_branch(self.id)


@dataclass(frozen=True)
class Intent:
    """Steps first..last are being published to a sink; recorded before the first row goes out."""

    first_step: int
    last_step: int


@dataclass(frozen=True)
class SinkState:
    """How far a sink is, as the store knows; the sink's own marker decides.

    `name` is the view's name for its Iceberg view, the sink's name for a Kafka sink.
    """

    name: str
    view: str
    provider: str
    published_step: int = -1
    intent: Intent | None = None


@dataclass(frozen=True)
class Lease:
    """Who may work on a pipeline's intervals, until `expires` unless renewed."""

    holder: str
    expires: datetime


@dataclass(frozen=True)
class Replaced:
    """The project that made the newest version, while the next interval has to rebuild what another one
    needs. `distrusted` are sources of which nothing that the version holds is kept, `sinks` the names
    and views of the sinks that the project has."""

    files: ProjectFiles
    distrusted: tuple[str, ...] = ()
    sinks: tuple[tuple[str, str], ...] = ()


class RunState(Enum):
    """What somebody wants of a pipeline: to RUN, to PAUSE at the next step boundary, or to STOP at a
    step that is named. How far it is on the way there, `RunStatus` says."""

    RUN = "run"
    PAUSE = "pause"
    STOP = "stop"


class RunStatus(Enum):
    """Where a pipeline is: what is wanted of it, and how far it is on the way there.

    ::

        resume ──► RUN
        pause  ──► PAUSE ──► PAUSED
        stop   ──► STOP  ──► STOPPED

    Each can be asked for at any time, whatever the pipeline is at. RUN remains until something else is
    asked for. PAUSE until the interval that is recorded has been committed: its steps are then all
    done, and nothing waits for input; PAUSED(step) at once where none is recorded, the step is the next
    one. STOP(step) until the steps before it are all committed: they are still divided and run. PAUSED
    and STOPPED until something else is asked for.
    """

    RUN = "run"
    PAUSE = "pause"
    PAUSED = "paused"
    STOP = "stop"
    STOPPED = "stopped"


@dataclass(frozen=True)
class PipelineState:
    """All that decisions about a pipeline are made from; the store reads it as one consistent value.

    `pending` is the recorded interval beyond the newest version, if there is one. `versions` are
    those kept, oldest first, never empty (version zero stands alone at first). `dropped` are the
    versions that a rollback took away, oldest first, until all of their steps have been replayed: an
    interval is pending for each, and what it gives is compared with theirs. `rebuilt_step` is the
    last step of the newest interval that made the state of a changed project, or was not read as it is
    recorded, since a source was forgotten; -1 where there was none. What versions before it hold is
    another project's, or what only a part of that interval has made. `last_time` is the time of the
    newest recorded step, and `positions` how far recorded steps have read each source: of a topic,
    ranges of (partition, first offset ever, next offset); of a table, from None to the last snapshot.
    `revision` rises with each change. Divisions of steps before `oldest_step` are trimmed. `files`
    are what was deployed last; where they need other state than the newest version holds, `replaced`
    is there until a version is committed. `stop_at` is the step before which the pipeline stops,
    where that is desired. `layouts` are all there ever were, by epoch, and last those that wait for
    the pending interval to be committed. `first_counts` says of topics' sources how many partitions
    there were when they were divided first. `loads` are what the last intervals took, oldest first.
    """

    name: str
    incarnation: str
    revision: int
    files: ProjectFiles
    desired: RunState = RunState.RUN
    lease: Lease | None = None
    next_step: int = 0
    last_time: datetime | None = None
    positions: tuple[SourceSlice, ...] = ()
    pending: Interval | None = None
    versions: tuple[Version, ...] = (Version.zero(),)
    attempts: tuple[Attempt, ...] = ()
    sinks: tuple[SinkState, ...] = ()
    oldest_step: int = 0
    replaced: Replaced | None = None
    stop_at: int | None = None
    dropped: tuple[Version, ...] = ()
    rebuilt_step: int = -1
    layouts: tuple[LayoutRecord, ...] = (FIRST,)
    first_counts: Mapping[str, int] = field(default_factory=dict, hash=False)
    loads: tuple[Load, ...] = ()

    @property
    def layout(self) -> Layout:
        """The layout that attempts run under, and the next interval's."""
        return in_effect(self.layouts)

    @property
    def has_waiting_layout(self) -> bool:
        """Whether a layout is recorded that waits for the pending interval."""
        return self.layouts[-1].from_step is None

    def layouts_after(self, epoch: int) -> tuple[LoggedLayout, ...]:
        """Those after an epoch, up to the one in effect."""
        last = self.layout.epoch
        return tuple(one.logged for one in self.layouts if epoch < one.layout.epoch <= last)

    @property
    def version(self) -> Version:
        """The newest version."""
        return self.versions[-1]

    @property
    def makers(self) -> frozenset[str]:
        """The attempts whose versions are kept, or may come back from a rollback. An attempt that has
        left these never comes back."""
        return frozenset(version.attempt for version in (*self.versions, *self.dropped))

    @property
    def status(self) -> RunStatus:
        """How far the pipeline is on the way to what is desired."""
        match self.desired:
            case RunState.RUN:
                return RunStatus.RUN
            case RunState.PAUSE:
                return RunStatus.PAUSED if self.pending is None else RunStatus.PAUSE
            case RunState.STOP:
                is_there = self.pending is None and self.next_step == self.stop_at
                return RunStatus.STOPPED if is_there else RunStatus.STOP

    @property
    def version_files(self) -> ProjectFiles:
        """The project that made the newest version."""
        return self.files if self.replaced is None else self.replaced.files

    @property
    def version_sinks(self) -> tuple[SinkState, ...]:
        """The sinks that `version_files` say how to move. One that was deployed since waits for the next
        version, also where this one has its view's outbox; so does one that was dropped and has its
        name again for another view."""
        if self.replaced is None:
            return self.sinks
        return tuple(sink for sink in self.sinks if (sink.name, sink.view) in self.replaced.sinks)

    @property
    def output_step(self) -> int:
        """The last step of which there is output: that of the newest version, or of one that a rollback
        has dropped. Sinks are there at most."""
        return max(version.last_step for version in (self.version, *self.dropped[-1:]))

    @property
    def session(self) -> str:
        """The Spark session that the newest attempt recorded; '' before it, and under spark-submit."""
        return self.attempts[-1].session if self.attempts else ""

    def attempt(self, attempt_id: str) -> Attempt | None:
        """The attempt of that id, if it is still on record."""
        return next((a for a in self.attempts if a.id == attempt_id), None)
