"""Snapshots that nobody needs any more, and the files that only they have.

Law: whatever is opened, read or published is the head of a ref, and Iceberg's own expiry leaves those
and their files alone; so it may come at any time (the simulation lets it). Without it a table's
metadata, which is read and written whole with every commit, would grow with each interval for ever.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from lockstep.control.interval import Parts
from lockstep.control.job import ExpireJob
from lockstep.control.model import PipelineState
from lockstep.control.ports import Progress
from lockstep.errors import StateDiverged
from lockstep.ids import is_trace
from lockstep.threads import in_parallel

__all__ = ["expire"]

RETAIN_TRACES = timedelta(hours=1)


def expire(parts: Parts, recorded: PipelineState, progress: Progress) -> int:
    """Expire snapshots of the tables that intervals append to, and of views; returns how many went.

    Of tables of changes, logs and errors they stay for `parts.retain_changes`, as others may follow
    them; of traces, which nobody else reads, no longer than an attempt is likely to work on its branch;
    of views for `parts.retain_views`, and for ever where that says nothing. A table is looked at once
    half of its snapshots can go, so that the work is in proportion to what intervals have written.
    """
    now, stays = parts.clock.now(), _stays(parts, recorded)

    def over(table: str) -> tuple[datetime, int]:
        older_than = now - stays[table]
        can_go, stay = parts.state.ages(table, older_than)
        return older_than, can_go if can_go >= stay else 0

    tables = sorted(stays)
    found = dict(zip(tables, in_parallel(over, tables), strict=True))
    wanted = {table: older_than for table, (older_than, count) in found.items() if count}
    if not wanted:
        return 0
    job = ExpireJob(parts.pipeline, wanted, parts.catalog, recorded.session)
    progress(f"deleted {parts.engine.expire(job, progress):,} files that no snapshot needs")
    return sum(count for _, count in found.values())


def _stays(parts: Parts, recorded: PipelineState) -> dict[str, timedelta]:
    """For how long snapshots of which table stay."""
    changes, views = parts.retain_changes, parts.retain_views
    found = {
        table: min(changes, RETAIN_TRACES) if is_trace(table) else changes
        for table in recorded.version.tables
    }
    if views is not None:
        of_sinks = [sink.view for sink in recorded.sinks if sink.provider == "iceberg"]
        found.update((view, views) for view in of_sinks if _is_ours(parts, recorded, view))
    return found


def _is_ours(parts: Parts, recorded: PipelineState, view: str) -> bool:
    """Whether a view shows what this pipeline has published. Where somebody else has changed it, the
    snapshots that say so have to stay: publishing stops at them."""
    try:
        head = parts.state.view_head(view)
    except StateDiverged:
        return False
    marker = None if head is None else head.marker
    return marker is not None and marker.incarnation == recorded.incarnation
