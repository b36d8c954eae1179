"""Tables that know more than the control store: an old backup of it, or a life that it has forgotten.

The law: `main` shows a version once it is recorded. So a step on `main` that the store does not know
says that the store was set back, and what it would run now would be a second division of steps that may
be published. Nothing runs then, and above all no version is committed: the store would soon be as far
as the tables, and nobody could tell any more which of the two is right.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from lockstep.control.model import AttemptState, PipelineState
from lockstep.control.ports import Marker, State, Store
from lockstep.errors import StateDiverged
from lockstep.ids import STEPS_TABLE, TABLE_STEPS_TABLE
from lockstep.threads import in_parallel

__all__ = ["require_recorded"]


def require_recorded(
    recorded: PipelineState, store: Store, tables: State, outboxes: Collection[str]
) -> None:
    """Raise StateDiverged where the tables are another life's, or hold steps that are not recorded.

    `recorded` may have been read before somebody else committed: only what the store does not know now
    either is refused. The step log tells, as each version writes to it; before the first version
    `outboxes` are asked, too, as a life before may have left any.
    """
    names = _telling(recorded, outboxes)
    found = dict(zip(names, in_parallel(lambda name: _marker(tables, name), names), strict=True))
    markers = {table: marker for table, marker in found.items() if marker is not None}
    if any(not _is_known(recorded, marker) for marker in markers.values()):
        _check(store.read(recorded.name), tables, markers)


def _telling(recorded: PipelineState, outboxes: Collection[str]) -> tuple[str, ...]:
    logs = (STEPS_TABLE, TABLE_STEPS_TABLE)
    if recorded.version.number == 0:
        return (*logs, *sorted(outboxes))
    there = recorded.version.tables
    # A pipeline without sources logs no steps.
    return tuple(table for table in logs if table in there) or tuple(
        table for table in sorted(outboxes)[:1] if table in there
    )


def _marker(tables: State, table: str) -> Marker | None:
    try:
        head = tables.view_head(table)
    except StateDiverged:
        # Somebody else has written to `main`: that is found out where it is moved.
        return None
    return None if head is None else head.marker


def _is_known(recorded: PipelineState, marker: Marker) -> bool:
    return marker.incarnation == recorded.incarnation and marker.step <= recorded.output_step


def _check(recorded: PipelineState, tables: State, markers: Mapping[str, Marker]) -> None:
    name = recorded.name
    dropped = {one.id for one in recorded.attempts if one.state is AttemptState.DROPPED}
    for table, marker in markers.items():
        if _is_known(recorded, marker):
            continue
        if marker.incarnation != recorded.incarnation:
            raise StateDiverged(
                f"pipeline {name}: table {table} belongs to another pipeline, or to an earlier life of "
                "this one",
                expected=f"incarnation {recorded.incarnation}, or no such table",
                found=f"incarnation {marker.incarnation}, at step {marker.step}",
                next_step="lockstep doctor DIR --rebuild, to go on with that life; else give the "
                "project another database, or drop its tables if nobody needs them",
            )
        if tables.summary(table, marker.snapshot_id).get("lockstep.attempt") not in dropped:
            raise StateDiverged(
                f"pipeline {name}: its tables are ahead of the control store, which is an old backup",
                expected=f"tables up to step {recorded.output_step}, where version "
                f"{recorded.version.number} ends",
                found=f"step {marker.step} in {table}",
                next_step="lockstep doctor DIR --rebuild",
            )
