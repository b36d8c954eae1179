"""Snapshots of a table and what they say of themselves: pure functions of its metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot

from lockstep.control.ports import Marker
from lockstep.errors import StateDiverged
from lockstep.ids import MARKED_TAG, is_whole

__all__ = [
    "count_of",
    "descends",
    "is_root",
    "line",
    "lost_columns",
    "newest_marker",
    "root_of",
    "snapshot_of",
    "summary_of",
    "write_id_of",
]


def line(metadata: TableMetadata, head: int) -> Iterator[Snapshot]:
    """The snapshot and its ancestors, newest first, as far as they are still kept."""
    snapshot = metadata.snapshot_by_id(head)
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else metadata.snapshot_by_id(parent)


def descends(metadata: TableMetadata, snapshot_id: int, ancestor: int) -> bool:
    """Whether a snapshot is another, or stands on it."""
    return any(snapshot.snapshot_id == ancestor for snapshot in line(metadata, snapshot_id))


def is_root(snapshot: Snapshot) -> bool:
    """Whether it is a table's first snapshot ever. Its sequence number is asked for, too: expiry may cut
    a later snapshot off from its parent."""
    return snapshot.parent_snapshot_id is None and snapshot.sequence_number == 1


def root_of(table: str, metadata: TableMetadata) -> Snapshot:
    """The first snapshot ever. Raises StateDiverged where it is gone."""
    for snapshot in metadata.snapshots:
        if is_root(snapshot):
            return snapshot
    raise StateDiverged(
        f"table {table} has lost its root, the empty snapshot that it was made with",
        expected="a snapshot without parent, of sequence number 1",
        found=f"{len(metadata.snapshots)} later snapshots",
        next_step="lockstep doctor DIR",
    )


def snapshot_of(table: str, metadata: TableMetadata, snapshot_id: int) -> Snapshot:
    """The snapshot of that id. Raises StateDiverged where it has been expired."""
    snapshot = metadata.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise StateDiverged(
            f"table {table} has no snapshot {snapshot_id}",
            expected="a snapshot that a recorded version or a ref names",
            found=f"{len(metadata.snapshots)} others; it has been expired",
            next_step="lockstep doctor DIR",
        )
    return snapshot


def summary_of(snapshot: Snapshot) -> Mapping[str, str]:
    """What a snapshot says of itself, `operation` too."""
    summary = snapshot.summary
    if summary is None:
        return {}
    return {"operation": summary.operation.value, **summary.additional_properties}


def count_of(snapshot: Snapshot, key: str) -> int:
    """A count of the summary; writers leave out those that are 0."""
    return int(summary_of(snapshot).get(key, "0"))


def write_id_of(table: str, branch: str, snapshot: Snapshot) -> str:
    """The write of an attempt that made a snapshot. Raises StateDiverged where none did."""
    summary = summary_of(snapshot)
    write_id = summary.get("lockstep.write")
    is_append = summary.get("operation") == Operation.APPEND.value
    if not write_id or not (is_append or is_whole(write_id)):
        raise StateDiverged(
            f"table {table}: branch {branch} holds snapshot {snapshot.snapshot_id}, which no attempt "
            "has appended",
            expected="appends with a lockstep.write",
            found=f"operation {summary.get('operation')}, lockstep.write {write_id}",
            next_step="run the interval again; if this stays, somebody else writes to that table",
        )
    return write_id


def newest_marker(table: str, metadata: TableMetadata, head: Snapshot) -> Marker | None:
    """The marker of the newest marked ancestor. On the way only compactions may stand: anything
    else has changed rows that publishing would silently build upon."""
    snapshot = head
    for snapshot in line(metadata, head.snapshot_id):
        marker = _marker_of(snapshot)
        if marker is not None:
            return marker
        summary = summary_of(snapshot)
        is_empty_root = (
            snapshot.parent_snapshot_id is None and count_of(snapshot, "total-records") == 0
        )
        if summary.get("operation") != Operation.REPLACE.value and not is_empty_root:
            raise StateDiverged(
                f"view {table}: snapshot {snapshot.snapshot_id} on main changed rows, and Lockstep "
                "has not written it",
                expected="published snapshots, and compactions (operation replace)",
                found=f"operation {summary.get('operation')} without lockstep.step",
                next_step=f"move main back to the tag {MARKED_TAG}, or drop the view to have it "
                "published anew",
            )
    marked = metadata.refs.get(MARKED_TAG)
    if snapshot.parent_snapshot_id is None or marked is None:
        return None
    # Compactions in between were expired; the tag keeps the snapshot that they came from.
    pinned = metadata.snapshot_by_id(marked.snapshot_id)
    if pinned is None or (pinned.sequence_number or 0) >= (snapshot.sequence_number or 0):
        return None
    return _marker_of(pinned)


def lost_columns(metadata: TableMetadata, marker: Marker | None) -> frozenset[str]:
    """Those of the marked snapshot that are no longer the table's, whatever has their names by now:
    Iceberg knows columns by ids, and never gives one again."""
    marked = None if marker is None else metadata.snapshot_by_id(marker.snapshot_id)
    if marked is None or marked.schema_id in {None, metadata.current_schema_id}:
        return frozenset()
    then = next((one for one in metadata.schemas if one.schema_id == marked.schema_id), None)
    now = {field.name: field.field_id for field in metadata.schema().fields}
    fields = () if then is None else then.fields
    return frozenset(field.name for field in fields if now.get(field.name) != field.field_id)


def _marker_of(snapshot: Snapshot) -> Marker | None:
    summary = summary_of(snapshot)
    if "lockstep.step" not in summary:
        return None
    return Marker(
        snapshot.snapshot_id,
        int(summary["lockstep.step"]),
        summary.get("lockstep.incarnation", ""),
        snapshot.parent_snapshot_id,
    )
