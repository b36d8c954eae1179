"""Which data files of a table differ between two snapshots, and what of each has to be read.

The law: the rows of `FileChange`s, with their weights, sum to the rows at the end less the rows at the
start. A file that both snapshots show with the same rows deleted is in neither; one that both show with
other rows deleted stands for those rows alone. Nothing is assumed of how the two snapshots are related.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pyiceberg.manifest import DataFile, FileFormat, ManifestContent, ManifestFile
from pyiceberg.table import FileScanTask, Table

from lockstep.lake.manifests import manifests_of, planned_files

__all__ = [
    "FileChange",
    "appended_files",
    "are_readable_deletes",
    "changed_files",
    "has_equality_deletes",
]

_DELETE_FORMATS = (FileFormat.PARQUET, FileFormat.PUFFIN)


@dataclass(frozen=True)
class FileChange:
    """The rows of `file` that `deleted` leaves, each with `weight`; where `unless` is given, only those
    of them that `unless` deletes. Both are position delete files or deletion vectors."""

    weight: int
    file: DataFile
    deleted: tuple[DataFile, ...]
    unless: tuple[DataFile, ...] | None = None


def appended_files(table: Table, start: int | None, end: int) -> Iterator[DataFile]:
    """The data files that the append snapshots after `start` up to `end` added."""
    scan = table.incremental_append_scan(
        from_snapshot_id_exclusive=start, to_snapshot_id_inclusive=end
    )
    for task in scan.plan_files():
        yield task.file


def changed_files(
    table: Table, start: int | None, end: int | None
) -> tuple[FileChange, ...] | None:
    """What takes the table's rows at `start` to its rows at `end`; either may be None, for no rows.

    None where deletes do not say which positions of which files: equality deletes are rows to be looked
    for in all files before them, and of Avro only Spark knows. Reads manifests, and no rows.
    """
    if has_equality_deletes(table, start) or has_equality_deletes(table, end):
        return None
    before, after = (
        {one.manifest_path: one for one in manifests_of(table, snapshot)}
        for snapshot in (start, end)
    )
    same_deletes = _of(before, ManifestContent.DELETES) == _of(after, ManifestContent.DELETES)
    # With the same deletes, what stands in a manifest of both is the same rows on both sides.
    common = _of(before, ManifestContent.DATA) & _of(after, ManifestContent.DATA)
    skipped = common if same_deletes else frozenset()
    old, new = _tasks(table, before, skipped), _tasks(table, after, skipped)
    changes = tuple(_changes(old, new))
    return changes if all(map(_has_readable_deletes, changes)) else None


def _of(manifests: Mapping[str, ManifestFile], content: ManifestContent) -> frozenset[str]:
    return frozenset(path for path, manifest in manifests.items() if manifest.content == content)


def _tasks(
    table: Table, manifests: Mapping[str, ManifestFile], skipped: frozenset[str]
) -> Mapping[str, FileScanTask]:
    wanted = (manifest for path, manifest in manifests.items() if path not in skipped)
    return {task.file.file_path: task for task in planned_files(table, wanted)}


def _changes(
    old: Mapping[str, FileScanTask], new: Mapping[str, FileScanTask]
) -> Iterator[FileChange]:
    for path, task in sorted(old.items()):
        before, after = _deletes(task), _deletes(new[path]) if path in new else None
        if after is None:
            yield FileChange(-1, task.file, before)
        elif before != after:
            gone = FileChange(-1, task.file, before, unless=after)
            back = FileChange(1, task.file, after, unless=before)
            # Where one has all that the other deletes, the other way there is nothing to be found.
            yield from (
                one for one in (gone, back) if not set(one.unless or ()) <= set(one.deleted)
            )
    for path, task in sorted(new.items()):
        if path not in old:
            yield FileChange(1, task.file, _deletes(task))


def _deletes(task: FileScanTask) -> tuple[DataFile, ...]:
    return tuple(sorted(task.delete_files, key=lambda file: file.file_path))


def _has_readable_deletes(change: FileChange) -> bool:
    return are_readable_deletes((*change.deleted, *(change.unless or ())))


def are_readable_deletes(deletes: Iterable[DataFile]) -> bool:
    """Whether `deleted_positions` reads them: of Avro and ORC only Spark knows."""
    return all(file.file_format in _DELETE_FORMATS for file in deletes)


def has_equality_deletes(table: Table, snapshot_id: int | None) -> bool:
    """By the snapshot's summary; one that does not say may have some."""
    snapshot = None if snapshot_id is None else table.metadata.snapshot_by_id(snapshot_id)
    if snapshot is None:
        return False
    if snapshot.summary is None:
        return True
    return str(snapshot.summary.additional_properties.get("total-equality-deletes", "")) != "0"
