"""The first of the stages: what the next interval holds is fixed and recorded."""

from __future__ import annotations

from datetime import datetime

from lockstep.control import steps
from lockstep.control.changes import RecordInterval
from lockstep.control.growth import Growing
from lockstep.control.history import standing_interval
from lockstep.control.interval import Parts, Point, record, require_deployed
from lockstep.control.model import PipelineState, RunStatus
from lockstep.control.ports import Progress, TopicBounds
from lockstep.control.reports import Planned
from lockstep.errors import AttemptLost, SourceChanged
from lockstep.threads import in_parallel

__all__ = ["plan"]


def plan(parts: Parts, until: datetime | None, progress: Progress) -> Planned:
    """Fix and record the division of the next interval, up to `until`.

    A pending interval is given back as it is. After a deploy of other queries comes one step without
    input, in which their state is made. `until` None, or not in the past, means up to the last
    stable offset and the newest snapshot; None makes one boundary, at the present, and where nothing
    came in that is no step, unless the project reads the time of its steps. After an interval that
    takes up the new partitions of a topic comes one that reads them (`growth`). Where a stop is asked
    for meanwhile, it holds. Raises SourceChanged, WrongUse, Unreachable, AttemptLost.
    """
    while True:
        recorded = parts.store.read(parts.pipeline)
        require_deployed(parts, recorded)
        try:
            return _plan(parts, recorded, until, progress)
        except AttemptLost:
            if parts.store.read(parts.pipeline).stop_at == recorded.stop_at:
                raise
            progress("a stop was asked for meanwhile: what is to be planned is looked at again")


def _plan(
    parts: Parts, recorded: PipelineState, until: datetime | None, progress: Progress
) -> Planned:
    """The same, of what was recorded when it began."""
    if recorded.pending is not None:
        progress(f"{recorded.pending.text} recorded already and not committed yet")
        return Planned(recorded.pending, behind=True)
    if recorded.status in (RunStatus.PAUSED, RunStatus.STOPPED):
        progress(
            f"pipeline {parts.pipeline} is {recorded.status.value} before step "
            f"{recorded.next_step}; lockstep resume {parts.pipeline}"
        )
        return Planned(None, behind=False)
    if recorded.replaced is not None:
        landed = record(parts, RecordInterval(standing_interval(recorded), recorded.positions))
        parts.reached(Point.PLAN_RECORDED)
        progress(f"step {recorded.next_step} has no input: what other queries need is made in it")
        return Planned(landed.pending, behind=True)
    now = parts.clock.now()
    takes_all_there_is = until is None or until >= now
    if until is None:
        times: tuple[datetime, ...] = (max(now, recorded.last_time or now),)
    else:
        times = steps.boundaries(recorded.last_time, min(until, now), parts.limits)
    is_rest = not times and recorded.last_time is not None
    if is_rest:
        # An interval that was full left rows before its last boundary: they are further steps of
        # the same time. Mostly there are none.
        assert recorded.last_time is not None, "is_rest says so"
        times, takes_all_there_is = (recorded.last_time,), False
    divided, growing = _divide(parts, recorded, times, last_is_stable=takes_all_there_is)
    interval = divided.interval
    for note in divided.notes:
        progress(note)
    counts_time = (until is not None or parts.reads_time) and not is_rest
    if interval is None or (
        interval.is_empty
        and recorded.next_step > 0
        and not (counts_time or growing.is_taken_up(interval))
    ):
        progress(
            f"recorded already: all up to {recorded.last_time} in steps 0..{recorded.next_step - 1}, "
            f"version {recorded.version.number}; nothing to do"
        )
        return Planned(None, behind=False)
    parts.reached(Point.PLAN_LOOKED_UP)
    landed = record(parts, RecordInterval(interval, recorded.positions))
    parts.reached(Point.PLAN_RECORDED)
    assert landed.pending is not None, "RecordInterval leaves a pending interval"
    for note in growing.notes(interval):
        progress(note)
    progress(f"{landed.pending.text} recorded: {landed.pending.records:,} records")
    return Planned(landed.pending, divided.behind)


def _divide(
    parts: Parts, recorded: PipelineState, times: tuple[datetime, ...], *, last_is_stable: bool
) -> tuple[steps.Divided, Growing]:
    """Look up the offsets at the step times. The topic's id is read before and after: a topic made
    anew in between would give offsets of another topic. A table's history is one reading."""
    bounds = parts.sources.bounds
    before = dict(zip(parts.source_names, in_parallel(bounds, parts.source_names), strict=True))
    growing = parts.growth.growing(recorded, before)
    topics = {name: found for name, found in before.items() if isinstance(found, TopicBounds)}
    offsets = dict(
        zip(
            topics,
            in_parallel(lambda name: parts.sources.offsets_at(name, times), topics),
            strict=True,
        )
    )
    for (source, found), again in zip(topics.items(), in_parallel(bounds, topics), strict=True):
        if not isinstance(again, TopicBounds) or again.topic_id != found.topic_id:
            raise SourceChanged(
                f"source {source}: topic {found.topic} was made anew while it was planned",
                expected=f"topic id {found.topic_id}",
                found=again.topic_id if isinstance(again, TopicBounds) else again.table,
                next_step="plan again once the topic stays",
            )
    divided = steps.divide(
        recorded.positions,
        growing.bounds(before),
        times,
        growing.offsets(offsets),
        recorded.next_step,
        parts.limits.for_workers(len(recorded.layout.hosts)),
        last_is_stable=last_is_stable,
        start_at_latest=parts.sources.start_at_latest,
    )
    if recorded.stop_at is not None:
        divided = steps.up_to(divided, recorded.stop_at)
    return growing.taken_up(divided), growing
