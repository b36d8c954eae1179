"""Small files of a view that are merged while its rows change.

Each publish adds a file, and of each file from which rows are taken back there is a delete file: without
merges, a change of rows that are anywhere costs more with each publish, and so does a look at the view.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import FileScanTask, Table

from lockstep.control.compaction import DataFileInfo, files_to_merge
from lockstep.lake.deleted_positions import Positions, deleted_positions
from lockstep.lake.file_batches import are_readable, file_batches
from lockstep.lake.manifests import manifests_of, planned_files
from lockstep.threads import in_parallel

__all__ = ["live_rows", "mergeable"]

_LARGE_BYTES = 8 << 20
"""Of the rows of a file that are left: one with more is as good as a merged one."""
_MOST_ROWS = 2_000_000
_MOST_BYTES = 64 << 20
"""Are merged at once, which takes a second or two; the smaller files first."""

_LEAST = 2


def mergeable(table: Table, snapshot_id: int) -> list[FileScanTask]:
    """The files of the snapshot to merge now, often none, by the levels of `files_to_merge`; a file is
    as large as what is left of it."""
    tasks = planned_files(table, manifests_of(table, snapshot_id))
    by_path = {task.file.file_path: task for task in tasks}
    small = [one for one in map(_left, tasks) if one.bytes < _LARGE_BYTES]
    found = sorted(files_to_merge(small), key=lambda one: (one.bytes, one.path))
    sums = zip(
        accumulate(one.bytes for one in found),
        accumulate(one.records for one in found),
        strict=True,
    )
    fit = [size <= _MOST_BYTES and rows <= _MOST_ROWS for size, rows in sums]
    chosen = [by_path[one.path] for one in found[: sum(fit)]]
    columns = [field.name for field in table.schema().fields]
    is_possible = len(chosen) >= _LEAST and are_readable(table, columns, [t.file for t in chosen])
    return chosen if is_possible else []


def _left(task: FileScanTask) -> DataFileInfo:
    """A file by the rows that its delete files leave of it, of which some may name other files' rows."""
    file = task.file
    gone = min(sum(one.record_count for one in task.delete_files), file.record_count)
    left = file.record_count - gone
    size = file.file_size_in_bytes * left // max(1, file.record_count)
    return DataFileInfo(file.file_path, size, left)


def live_rows(
    table: Table, tasks: Sequence[FileScanTask], deleted: Mapping[str, Positions]
) -> pa.Table:
    """The rows of the files but those that their delete files name, and those at the positions `deleted`
    by path."""
    schema = table.schema()
    plain = schema_to_pyarrow(schema, include_field_ids=False)

    def batches(task: FileScanTask) -> Iterator[pa.Table]:
        path = task.file.file_path
        gone = deleted_positions(table.io, tuple(task.delete_files), path)
        if path in deleted:
            gone = np.union1d(gone, deleted[path])
        for first, rows in file_batches(table.io, table.metadata, schema, task.file):
            here = slice(*np.searchsorted(gone, [first, first + rows.num_rows]))
            left = np.delete(np.arange(rows.num_rows), gone[here] - first)
            yield pa.Table.from_batches([rows.take(pa.array(left))]).cast(plain)

    found = in_parallel(lambda task: list(batches(task)), tasks)
    return pa.concat_tables([plain.empty_table(), *(rows for part in found for rows in part)])
