"""Changes of a pipeline's recorded state: a closed union of values that carry their preconditions.

`transitions.apply` applies one to a `PipelineState`, purely; a store writes the result by compare
and set. A change says what must still be true; it never says "whatever is there".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from lockstep.control.layout import layouts
from lockstep.control.layout.autoscaling import Load
from lockstep.control.model import (
    Attempt,
    Division,
    Interval,
    PipelineState,
    RunState,
    SinkState,
    SourceSlice,
    Version,
)
from lockstep.sql.circuit import ProjectFiles

__all__ = [
    "AbandonAttempt",
    "BeginAttempt",
    "BeginReplay",
    "Change",
    "ChangeLayout",
    "CommitVersion",
    "Deploy",
    "ForgetAttempts",
    "IntendPublish",
    "Landed",
    "Outcome",
    "RecordInterval",
    "RecordPublished",
    "RefuseAttempt",
    "Rejected",
    "ReleaseLease",
    "Restore",
    "RollBack",
    "SetDesired",
    "SwapSnapshots",
    "TakeLease",
    "TrimSteps",
    "TrimVersions",
    "UndoRollBack",
    "Unknown",
]


@dataclass(frozen=True)
class Deploy:
    """Record a pipeline, or new files for one that exists; the same files twice change nothing. Refused
    while dropped steps are replayed: what they give is compared with what these files gave.

    `incarnation` is used at the first deploy only; later deploys keep the recorded one. Sinks that
    are new enter with published_step = the newest committed step's predecessor set by the caller.

    `sinks` are all that the files have: known ones keep their progress and must not change their
    view or provider, others are dropped from the record (their own markers stay). `sources` are the
    names of the sources of these files: positions of others are forgotten; None keeps all.

    `rebuilds` says that the files need other state than the newest version holds, or that what it holds
    of the sources `distrusted` is not to be kept: the next interval makes it, and attempts that run
    become ABANDONED, as they work with other files. Nothing of that where there is no version yet.

    `compared_with` are the files that were deployed, and those that the newest version was made by, when
    all this was found: refused where others are by now. None: whatever is there.
    """

    files: ProjectFiles
    incarnation: str
    sinks: tuple[SinkState, ...]
    sources: tuple[str, ...] | None = None
    rebuilds: bool = False
    distrusted: tuple[str, ...] = ()
    compared_with: tuple[ProjectFiles, ProjectFiles] | None = None


@dataclass(frozen=True)
class Restore:
    """Record again what tables and sinks say of a pipeline, where the store has lost it, or is older.

    `divisions` are those that are still asked for, from `state.oldest_step` on. Refused where the store
    knows the same life of the pipeline at the same version or a newer one, or another life of it with
    a version of its own. Equal to what is there, nothing changes.
    """

    state: PipelineState
    divisions: tuple[Division, ...]


@dataclass(frozen=True)
class SetDesired:
    """Ask for RUN, PAUSE or STOP; takes effect at a step boundary.

    STOP names the step before which it stops, None for the next one that is not recorded; refused for a
    step that is recorded already. Twice is harmless."""

    desired: RunState
    stop_at: int | None = None


@dataclass(frozen=True)
class ChangeLayout:
    """Make layout `epoch` + 1 out of layout `epoch`, the newest one recorded, by all `changes` at once.

    It takes effect when no interval is pending: now, or with the commit of the one that is. `at_once`
    is for an interval that does not get through: attempts at it become ABANDONED, and the next one runs
    under the new layout; without changes it is layout `epoch` itself that waits no more. Refused where
    the newest layout has another epoch, or a change does not fit. Twice is harmless.
    """

    epoch: int
    changes: tuple[layouts.Change, ...]
    at_once: bool = False


@dataclass(frozen=True)
class TakeLease:
    """Take the lease if it is free, expired at `now`, or this holder's already (which renews it).

    A renewal never shortens it. Both times are UTC milliseconds; refused unless expires > now.
    """

    holder: str
    now: datetime
    expires: datetime


@dataclass(frozen=True)
class ReleaseLease:
    """Give the lease back; nothing happens if somebody else holds it by now."""

    holder: str


@dataclass(frozen=True)
class RecordInterval:
    """Fix a division. Refused if an interval is pending, or if its first step is not the next.

    Refused, too, unless every step has a slice of every recorded source (new ones may enter), of
    the recorded topic and topic id, with a range of every recorded partition (new ones may enter)
    that starts where the recorded one ends; unless slices are sorted by source, and ranges by
    partition; and unless times are UTC milliseconds, not before the last recorded one. Twice is
    harmless while the interval is pending: equal to the pending one, nothing changes.

    `positions` are those that it was divided from: refused where others are recorded by now, as a source
    that was forgotten meanwhile would go on where it was. None: whatever is recorded.
    """

    interval: Interval
    positions: tuple[SourceSlice, ...] | None = None


@dataclass(frozen=True)
class BeginAttempt:
    """Open the newest version for the pending interval.

    Refused unless the attempt is RUNNING under an id never used before, at the pending interval or its
    first steps (while a rollback is replayed, at all of them), and the newest version was made by
    attempt.base. Attempts that were RUNNING on this interval become ABANDONED in the same change: the
    newest starter wins, and the others' commits are refused. Twice is harmless while the attempt is
    as it began.
    """

    attempt: Attempt


@dataclass(frozen=True)
class CommitVersion:
    """The commit: version v+1 by attempt `version.attempt`, on the version made by `base`.

    Refused unless the attempt is RUNNING and opened `base`, the newest version's attempt is `base`,
    the number is one more, the layout epoch is that in effect, and its last step is the attempt's.
    Pending are then the rest of the interval, if any, or the next one of a replay. Twice is harmless:
    equal to the version that this attempt has committed, nothing changes. `load` is what it took, where
    that is to be known.
    """

    version: Version
    base: str
    load: Load | None = None


@dataclass(frozen=True)
class RollBack:
    """Make version `number`, made by `attempt`, the newest: later ones are dropped, recorded divisions
    never. The steps after it are pending again, cut into intervals as they were.

    Refused unless the version is kept, and the divisions after it. RUNNING attempts become ABANDONED,
    those of dropped versions DROPPED; versions that were dropped before stay so. Twice is harmless:
    nothing changes where it is the newest.
    """

    number: int
    attempt: str


@dataclass(frozen=True)
class UndoRollBack:
    """Take a rollback back: the dropped versions are the newest again, up to `number` by `attempt`,
    which is the last of them, and what was replayed in their place is dropped.

    Refused unless that version is the last one dropped: once all is replayed there is none. Twice is
    harmless.
    """

    number: int
    attempt: str


@dataclass(frozen=True)
class BeginReplay:
    """Run committed steps again, from a version kept, to compare what they give; nothing is committed.

    Refused unless the attempt is REPLAYING under an id never used before, from the step after the
    version made by its base, up to a step of the newest version. Replays at work become ABANDONED.
    Twice is harmless while the attempt is as it began.
    """

    attempt: Attempt


@dataclass(frozen=True)
class AbandonAttempt:
    """Rule that a RUNNING attempt shall never commit: the answer to an unknown outcome; or end one that
    is REPLAYING.

    Refused for one that has committed, was refused, or is not on record; twice is harmless.
    """

    attempt_id: str


@dataclass(frozen=True)
class RefuseAttempt:
    """Record that a RUNNING attempt's commit was refused, so that its branches may be deleted.

    Refused for one that has committed, is abandoned, or is not on record; twice is harmless.
    """

    attempt_id: str


@dataclass(frozen=True)
class ForgetAttempts:
    """Remove attempts whose branches are gone; refused for one that is RUNNING or REPLAYING, and for one
    whose version can still be given back.

    Ids that are not on record are passed over.
    """

    attempt_ids: tuple[str, ...]


@dataclass(frozen=True)
class IntendPublish:
    """Record that a sink is about to be moved. Refused beyond the newest version's last step, while
    dropped steps are replayed, or where the sink is not at intent.first_step - 1 by the record, or
    where an open intent went further. Twice is harmless; an open intent may grow.

    `is_resumed`, where not None, says whether an intent is open already: who finds the markers lost
    has to know whether somebody else may have sent rows.
    """

    sink: str
    first_step: int
    last_step: int
    is_resumed: bool | None = None


@dataclass(frozen=True)
class RecordPublished:
    """The sink's own marker says `last_step`; never moves back: an older step changes nothing.

    Refused beyond the last step that a version holds, or held before a rollback dropped it. Ends the
    intent as far as it is done.
    """

    sink: str
    last_step: int


@dataclass(frozen=True)
class SwapSnapshots:
    """Compaction: other snapshots with the same content for the newest version.

    Refused unless the newest version is `number` by `attempt` and holds exactly `expected` for the
    tables named, which are those of `replacement`; and while an attempt is RUNNING, as what it writes
    descends from the snapshots that it opened. `merged_from` made the version whose files were merged:
    refused once that is not kept, as maintenance then drops what holds the merged files. Twice is
    harmless.
    """

    number: int
    attempt: str
    expected: Mapping[str, int] = field(hash=False)
    replacement: Mapping[str, int] = field(hash=False)
    merged_from: str


@dataclass(frozen=True)
class TrimVersions:
    """Keep the newest `retain` versions (at least two)."""

    retain: int


@dataclass(frozen=True)
class TrimSteps:
    """Forget recorded divisions of steps before `first_kept`; never moves back.

    Refused beyond what the oldest version kept needs to be run from, and beyond what a sink has not
    published yet.
    """

    first_kept: int


Change = (
    Deploy
    | Restore
    | SetDesired
    | ChangeLayout
    | TakeLease
    | ReleaseLease
    | RecordInterval
    | BeginAttempt
    | CommitVersion
    | RollBack
    | UndoRollBack
    | BeginReplay
    | AbandonAttempt
    | RefuseAttempt
    | ForgetAttempts
    | IntendPublish
    | RecordPublished
    | SwapSnapshots
    | TrimVersions
    | TrimSteps
)


@dataclass(frozen=True)
class Landed:
    """The change is durable; `state` is the state right after it."""

    state: PipelineState


@dataclass(frozen=True)
class Rejected:
    """A precondition did not hold; nothing was written. `reason` is a sentence for people."""

    reason: str
    state: PipelineState | None


@dataclass(frozen=True)
class Unknown:
    """The store did not answer; whether the change landed is found out by reading or by a write."""

    reason: str


Outcome = Landed | Rejected | Unknown
