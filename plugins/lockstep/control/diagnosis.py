"""What is wrong between the control store, the tables, the sinks and the sources, and what to run: pure.

Each check looks at facts of one kind, and says what it found in one line. A fault is what stops the
pipeline, or would let it go wrong; a note is what heals by itself or is good to know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from lockstep.control.model import AttemptState, PipelineState, SinkState
from lockstep.control.opening import Opening
from lockstep.control.ports import ViewHead
from lockstep.errors import LockstepError
from lockstep.ids import version_tag

__all__ = [
    "Finding",
    "Health",
    "of_error",
    "of_leases",
    "of_markers",
    "of_tables",
    "of_versions",
    "of_view",
    "of_waiting",
]


class Health(Enum):
    """SOUND needs nothing, NOTE heals or is good to know, FAULT needs somebody."""

    SOUND = "sound"
    NOTE = "note"
    FAULT = "fault"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; `next_step` is a command or an instruction."""

    health: Health
    subject: str
    what: str
    next_step: str = ""


def of_error(subject: str, error: LockstepError) -> Finding:
    """What could not be looked at, or refused to be."""
    found = f": {error.found}" if error.found else ""
    return Finding(Health.FAULT, subject, f"{error.message}{found}", error.next_step)


def of_versions(state: PipelineState, opening: Opening) -> Iterator[Finding]:
    """Whether the newest version can be opened, and how many of the others."""
    newest = state.version.number
    if newest == 0:
        yield Finding(Health.SOUND, "versions", "none is committed yet")
        return
    lacking = opening.lacking.get(newest)
    if lacking is None:
        kept = len(opening.versions)
        yield Finding(Health.SOUND, "versions", f"version {newest} can be opened, {kept} in all")
        return
    tables = ", ".join(lacking[:5])
    back = opening.newest
    yield Finding(
        Health.FAULT,
        "versions",
        f"version {newest} cannot be opened: its snapshots of {tables} are gone",
        f"lockstep rollback {state.name} --to-version {back}"
        if back is not None
        else f"restore the tables' metadata, or lockstep reconcile {state.name}",
    )


def of_tables(
    state: PipelineState, refs: Mapping[str, Mapping[str, int]], heads: Mapping[str, ViewHead]
) -> Iterator[Finding]:
    """Whether versioned tables are this pipeline's, pinned, and no further than the store. `refs` and
    `heads` are those of tables that are there."""
    version = state.version
    tag = version_tag(version.number, version.attempt)
    loose = [t for t, snapshot in version.tables.items() if refs.get(t, {}).get(tag) != snapshot]
    if version.number and loose:
        yield Finding(
            Health.NOTE,
            "tables",
            f"version {version.number} is not pinned on {len(loose)} tables yet",
            "nothing: the next run or publish pins it",
        )
    foreign = [
        t for t, h in heads.items() if h.marker and h.marker.incarnation != state.incarnation
    ]
    for table in foreign:
        yield Finding(
            Health.FAULT,
            f"table {table}",
            "belongs to another pipeline, or to an earlier life of this one",
            "give the project another database, or drop the table if nobody needs it",
        )
    ahead = {
        table: head.marker.step
        for table, head in heads.items()
        if head.marker and table not in foreign and head.marker.step > state.output_step
    }
    if ahead:
        step = max(ahead.values())
        yield Finding(
            Health.FAULT,
            "tables",
            f"{len(ahead)} tables are at step {step}, the store ends at step {state.output_step}: it is "
            "an old backup",
            "lockstep doctor DIR --rebuild",
        )
    if not (loose or foreign or ahead):
        yield Finding(Health.SOUND, "tables", f"{len(version.tables)} are as the store says")


def of_view(state: PipelineState, sink: SinkState, head: ViewHead | None) -> Finding:
    """Whether a published view is where the store has seen it."""
    subject = f"view {sink.view}"
    if head is None:
        if sink.published_step < 0:
            return Finding(Health.SOUND, subject, "nothing is published yet")
        return Finding(
            Health.NOTE, subject, "its table is gone", "nothing: the next publish makes it anew"
        )
    if head.marker is None:
        return Finding(
            Health.FAULT,
            subject,
            f"its {head.records:,} rows have no marker that says up to which step they go",
            f"rename or drop {sink.view}: the next publish makes it anew",
        )
    return of_markers(state, sink, {"main": head.marker.step}, subject)


def of_waiting(state: PipelineState, sink: SinkState) -> Finding:
    """A sink that the files have which are deployed, and not those that made the newest version."""
    return Finding(
        Health.NOTE,
        f"view {sink.view}" if sink.provider == "iceberg" else f"sink {sink.name}",
        f"it is new, and waits for version {state.version.number + 1}",
        "nothing: the next run makes it",
    )


def of_markers(
    state: PipelineState, sink: SinkState, markers: Mapping[str, int], subject: str = ""
) -> Finding:
    """Whether what a sink says of itself, by part of it, fits what the store has seen and committed."""
    subject = subject or f"sink {sink.name}"
    steps = sorted(set(markers.values()))
    if not steps:
        if sink.published_step < 0:
            return Finding(Health.SOUND, subject, "nothing is published yet")
        return Finding(
            Health.NOTE,
            subject,
            f"its markers are gone; the store knows step {sink.published_step}",
            "nothing: the next publish stamps them again",
        )
    if steps[-1] > state.output_step:
        return Finding(
            Health.FAULT,
            subject,
            f"it is at step {steps[-1]}, the store ends at {state.output_step}: it is an old backup",
            "lockstep doctor DIR --rebuild",
        )
    if steps[0] < sink.published_step:
        return Finding(
            Health.FAULT,
            subject,
            f"it says step {steps[0]}, and was seen at {sink.published_step}: somebody moved it back",
            "see who writes to it besides Lockstep",
        )
    behind = state.version.last_step - steps[0]
    if behind > 0:
        return Finding(
            Health.NOTE,
            subject,
            f"it is {behind} steps behind",
            "nothing: the next publish moves it",
        )
    return Finding(Health.SOUND, subject, f"it is at step {steps[0]}")


def of_leases(state: PipelineState, now: datetime) -> Iterator[Finding]:
    """Whether what is at work is alive."""
    lease = state.lease
    is_held = lease is not None and lease.expires > now
    running = [one.id for one in state.attempts if one.state is AttemptState.RUNNING]
    dead = sum(
        one.state in (AttemptState.REFUSED, AttemptState.ABANDONED) for one in state.attempts
    )
    if is_held and lease is not None:
        yield Finding(Health.SOUND, "lease", f"{lease.holder} is at work")
    elif running:
        yield Finding(
            Health.NOTE,
            "attempts",
            f"attempt {', '.join(running)} was left at work by a process that died",
            "nothing: the next run goes on from what is recorded",
        )
    if dead:
        yield Finding(
            Health.NOTE,
            "attempts",
            f"{dead} ended without a version",
            "nothing: maintenance sweeps",
        )
