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
from lockstep.ids import is_trace
from lockstep.threads import in_parallel

__all__ = ["expire"]

RETAIN_TRACES = timedelta(hours=1)


def expire(parts: Parts, recorded: PipelineState, progress: Progress) -> int:
    """Expire snapshots of the tables that intervals append to, and of views; returns how many went.

    Of tables of changes, logs and errors they stay for `parts.retain_changes`, as others may follow
    them; of traces, which nobody else reads, no longer than an attempt is likely to work on its branch;
    of views for `parts.retain_views`, and for ever where that says nothing. A table
    is looked at once half of its snapshots can go, so that the work is in proportion to what intervals
    have written.
    """
    now, changes = parts.clock.now(), parts.retain_changes
    stays = {
        table: min(changes, RETAIN_TRACES) if is_trace(table) else changes
        for table in recorded.version.tables
    }
    if parts.retain_views is not None:
        # A view that is published elsewhere is no table here.
        views = parts.outboxes.keys() & set(parts.state.tables())
        stays.update(dict.fromkeys(views, parts.retain_views))

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
