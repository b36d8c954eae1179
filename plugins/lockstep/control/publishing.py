"""The last of the stages: sinks move to the newest version."""

from __future__ import annotations

from lockstep.control.changes import IntendPublish, RecordPublished
from lockstep.control.interval import Parts, Point, record, settle
from lockstep.control.job import PublishJob, SinkTarget
from lockstep.control.model import Division
from lockstep.control.ports import Progress
from lockstep.control.reports import Published
from lockstep.errors import StateDiverged
from lockstep.ids import outbox_table

__all__ = ["publish"]


def publish(parts: Parts, progress: Progress) -> Published:
    """Move every sink to the newest version's last step.

    With the files that made the version: sinks that these do not have are left where they are, and have
    no intent, which would say that rows may be out. The intent is recorded before the first row goes
    out; afterwards the sink's own marker is what is recorded, so that a second publish after a crash
    finds out by reading the sink.
    """
    recorded = parts.store.read(parts.pipeline)
    version = recorded.version
    if recorded.dropped:
        progress(
            f"steps {version.last_step + 1}..{recorded.output_step} are replayed after a rollback; "
            "sinks stay where they are until that is done"
        )
        return Published({s.name: s.published_step for s in recorded.sinks}, {}, {})
    targets = tuple(
        SinkTarget(
            sink.name,
            sink.view,
            sink.provider,
            sink.published_step + 1,
            version.last_step,
            was_intended=sink.intent is not None,
        )
        for sink in recorded.version_sinks
        if sink.published_step < version.last_step and outbox_table(sink.view) in version.tables
    )
    if version.number == 0 or not targets:
        progress(f"every sink is at step {version.last_step} or beyond; nothing to publish")
        return Published({s.name: s.published_step for s in recorded.sinks}, {}, {})
    # A run that died right after its commit has not pinned the version yet.
    settle(parts, recorded, version)
    for target in targets:
        intent = (target.first_step, target.last_step, target.was_intended)
        record(parts, IntendPublish(target.name, *intent))
    parts.reached(Point.PUBLISH_INTENDED)
    job = PublishJob(
        pipeline=parts.pipeline,
        incarnation=recorded.incarnation,
        version=version.number,
        last_step=version.last_step,
        tables=version.tables,
        sinks=targets,
        files=recorded.version_files,
        variables=parts.variables,
        catalog=parts.catalog,
        divisions=_divisions(parts, targets),
        session=recorded.session,
    )
    result = parts.engine.publish(job, progress)
    parts.reached(Point.PUBLISH_MOVED)
    for target in targets:
        _check_marker(parts, target, result.markers[target.name])
        record(parts, RecordPublished(target.name, target.last_step))
    parts.reached(Point.PUBLISH_RECORDED)
    progress(
        f"published to step {version.last_step}: "
        + ", ".join(f"{name} {rows:,} rows" for name, rows in sorted(result.rows.items()))
    )
    return Published(result.markers, result.rows, result.seconds)


def _check_marker(parts: Parts, target: SinkTarget, marker: int) -> None:
    """A sink has come as far as it was asked to, and no further than versions go. Another publish, of a
    newer version, may have moved it while this one was at work: so the store is read once more."""
    if marker < target.last_step:
        raise StateDiverged(
            f"sink {target.name} was published to step {target.last_step}, but its marker says "
            f"{marker}",
            next_step="publish again; if this stays, somebody else writes to that sink",
        )
    if marker > target.last_step:
        recorded = parts.store.read(parts.pipeline)
        if marker > recorded.output_step:
            raise StateDiverged(
                f"sink {target.name} is ahead of the control store",
                expected=f"a marker up to step {recorded.output_step}, where version "
                f"{recorded.version.number} ends",
                found=f"step {marker}",
                next_step="lockstep doctor DIR; where the store is an old backup, what it has forgotten "
                "is in the sink already: lockstep doctor DIR --rebuild",
            )


def _divisions(parts: Parts, targets: tuple[SinkTarget, ...]) -> tuple[Division, ...]:
    """Only messages say when a step was, and from what."""
    wanted = [target for target in targets if target.provider == "kafka"]
    if not wanted:
        return ()
    first, last = min(t.first_step for t in wanted), max(t.last_step for t in wanted)
    return parts.store.divisions(parts.pipeline, first, last)
