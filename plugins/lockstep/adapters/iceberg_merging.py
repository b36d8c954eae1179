"""Small files of a view, merged before it is published.

Each publish adds a file, and of each file from which rows are taken back there is a delete file: without
merges, a change of rows that are anywhere costs more with each publish, and so does a look at the view.
The rows stay the same, and the snapshot is a replace, which readers of what is appended pass over. Who
compares two snapshots finds the merged rows on both sides.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain

import numpy as np
import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, FileFormat, ManifestContent
from pyiceberg.table import FileScanTask, Table

from lockstep.adapters.iceberg_deletes import RowFiles, own_deletes
from lockstep.adapters.iceberg_files import info_of, written_files
from lockstep.adapters.iceberg_history import count_of, snapshot_of
from lockstep.adapters.iceberg_netting import is_flat
from lockstep.control.compaction import FANOUT, DataFileInfo, files_to_merge
from lockstep.lake.changed_files import are_readable_deletes, has_equality_deletes
from lockstep.lake.deleted_positions import deleted_positions, only_path, positions_within
from lockstep.lake.file_batches import are_readable, file_batches
from lockstep.lake.manifests import live_entries, manifests_of, planned_files
from lockstep.threads import in_parallel

_LOG = logging.getLogger(__name__)

__all__ = ["files_to_rewrite", "merged_files"]

_LARGE_BYTES, _LARGE_ROWS = 8 << 20, 250_000
"""Of the rows of a file that are left: one with more is as good as a merged one."""
_MOST_BYTES, _MOST_ROWS = 64 << 20, 2_000_000
"""Are read at once, which takes a second or two; those of the smaller files first."""
_MOST_HELD_BYTES = 512 << 20
"""As Arrow has them."""


def merged_files(name: str, table: Table, snapshot_id: int) -> RowFiles | None:
    """What is merged now of the files of a snapshot, by the levels of `files_to_merge`, written, but not
    yet the table's; with them go the delete files of data files that have gone. Mostly None."""
    snapshot = snapshot_of(name, table.metadata, snapshot_id)
    data, deletes = (count_of(snapshot, f"total-{kind}-files") for kind in ("data", "delete"))
    columns = [field.name for field in table.schema().fields]
    if (
        data + deletes < FANOUT
        or has_equality_deletes(table, snapshot_id)
        or not is_flat(table.schema())
        or not are_readable(table, columns, ())
    ):
        return None
    tasks = planned_files(table, manifests_of(table, snapshot_id))
    chosen = _chosen(table, tasks)
    dangling = _dangling(table, snapshot_id, tasks) if deletes else []
    if not chosen and len(dangling) < FANOUT:
        return None
    try:
        rows = _live_rows(table, chosen)
        added = written_files(table.metadata, rows, table.io)
    except (ValueError, pa.ArrowException) as error:
        # Texts that are not UTF-8, of which PyIceberg (0.12) reads no least one; much memory. The view
        # can be published as it is.
        _LOG.info("small files of %s are not merged: %s", name, error)
        return None
    gone = chain.from_iterable((task.file, *own_deletes(task)) for task in chosen)
    return RowFiles(table.metadata.default_spec_id, added, [], frozenset((*gone, *dangling)))


def _chosen(table: Table, tasks: Sequence[FileScanTask]) -> Sequence[FileScanTask]:
    possible = {
        task.file.file_path: task
        for task in tasks
        if task.file.spec_id == table.metadata.default_spec_id
        and task.file.file_format is FileFormat.PARQUET
        and are_readable_deletes(task.delete_files)
    }
    paths = files_to_rewrite([(info_of(one.file), _left(one)) for one in possible.values()])
    return [possible[path] for path in paths]


def files_to_rewrite(files: Sequence[tuple[DataFileInfo, DataFileInfo]]) -> Sequence[str]:
    """The paths of files to be merged now, of which each is given as a whole and as what is left of it:
    those of full levels, by what is left, and large ones of which half is gone; the smaller ones first,
    and no more than are read at once. One that is too large for that is among them once all of it is
    gone: then it is not read."""
    files = [one for one in files if _fits(one[0]) or not one[1].records]
    small = [left for _, left in files if not _is_large(left)]
    levels = {one.path for one in files_to_merge(small)}
    halves = {
        left.path for whole, left in files if _is_large(whole) and 2 * left.records <= whole.records
    }
    found = sorted(
        (one for one in files if one[1].path in levels | halves),
        key=lambda one: (one[1].bytes, one[1].path),
    )
    read = [whole if left.records else left for whole, left in found]
    sums = zip(
        accumulate(one.bytes for one in read), accumulate(one.records for one in read), strict=True
    )
    fit = sum(_fits(DataFileInfo("", *one)) for one in sums)
    paths = [left.path for _, left in found[:fit]]
    return paths if len(paths) > 1 or not halves.isdisjoint(paths) else []


def _is_large(file: DataFileInfo) -> bool:
    return file.bytes >= _LARGE_BYTES or file.records >= _LARGE_ROWS


def _fits(files: DataFileInfo) -> bool:
    return files.bytes <= _MOST_BYTES and files.records <= _MOST_ROWS


def _left(task: FileScanTask) -> DataFileInfo:
    """As far as delete files say it that are of this file alone."""
    file = task.file
    gone = min(sum(one.record_count for one in own_deletes(task)), file.record_count)
    left = file.record_count - gone
    size = file.file_size_in_bytes * left // max(1, file.record_count)
    return DataFileInfo(file.file_path, size, left)


def _dangling(table: Table, snapshot_id: int, tasks: Sequence[FileScanTask]) -> Sequence[DataFile]:
    """The delete files that are each of one data file, which is no longer there."""
    known = {None, *(task.file.file_path.encode() for task in tasks)}
    deletes = (
        entry.data_file
        for manifest in manifests_of(table, snapshot_id)
        if manifest.content == ManifestContent.DELETES
        for entry in live_entries(manifest, table.io)
    )
    return [delete for delete in deletes if only_path(delete) not in known]


def _live_rows(table: Table, tasks: Sequence[FileScanTask]) -> pa.Table:
    """The rows of the files but those that their delete files name. Raises ValueError where they take
    much memory."""
    schema = table.schema()
    plain = schema_to_pyarrow(schema, include_field_ids=False)
    sizes = list[int]()

    def batches(task: FileScanTask) -> Iterator[pa.Table]:
        gone = deleted_positions(table.io, tuple(task.delete_files), task.file.file_path)
        if len(gone) == task.file.record_count:
            return
        for first, rows in file_batches(table.io, table.metadata, schema, task.file):
            here = positions_within(gone, first, rows.num_rows)
            left = np.delete(np.arange(rows.num_rows), here)
            sizes.append(rows.nbytes)
            if sum(sizes) > _MOST_HELD_BYTES:
                raise ValueError("more than is to be held in memory")
            yield pa.Table.from_batches([rows.take(pa.array(left))]).cast(plain)

    found = in_parallel(lambda task: list(batches(task)), tasks)
    return pa.concat_tables([plain.empty_table(), *chain.from_iterable(found)])
