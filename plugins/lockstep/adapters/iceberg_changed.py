"""What steps change in a view of many rows, found without Spark: rows to be added, and the positions in
the view's files of those that are taken back.

A row is found by its whole numbers, which say in which files and row groups it can be, as any row is
that is looked up; then it is compared as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import FileScanTask, Table

from lockstep.adapters.iceberg_copies import WEIGHT
from lockstep.adapters.iceberg_netting import net_change, places_taken, rows_as_often
from lockstep.control.ports import OutboxSteps
from lockstep.lake.deleted_positions import Positions, positions_within
from lockstep.lake.lookups import Located, locate
from lockstep.lake.wanted_rows import Numbers

__all__ = ["Changed", "changed"]

_MOST_KEYS = 3
"""By so many columns rows are found: those with the most numbers, of which each leaves out the most."""
_TIMES = 4
"""So many times as much is looked at as for a small change: Spark takes a second to begin."""


class Changed(NamedTuple):
    """The rows to be `added`, the positions of those to be deleted by file, how many distinct rows have
    `changed`, and one that is taken back more often than it is there, with its values by column, or
    None."""

    added: pa.Table
    deleted: Sequence[tuple[FileScanTask, Positions]]
    changed: int
    lacking: str | None


def changed(view: Table, snapshot_id: int, outbox: Table, steps: OutboxSteps) -> Changed | None:
    """What takes the view from the snapshot on past the steps. None where rows cannot be compared here,
    as of `netted`, or much would have to be looked at."""
    change = net_change(view, outbox, steps)
    if change is None:
        return None
    added = rows_as_often(change.filter(pc.greater(change[WEIGHT], 0)))
    taken = change.filter(pc.less(change[WEIGHT], 0))
    if not taken.num_rows:
        return Changed(added, [], change.num_rows, None)
    columns = [field.name for field in view.schema().fields]
    keys = _keys(taken)
    there = locate(view, snapshot_id, columns, keys, times=_TIMES if keys else 1)
    if there is None:
        return None
    found = places_taken(taken, view, there.rows)
    if found is None:
        return None
    return Changed(added, _by_file(there, found.places), change.num_rows, found.lacking)


def _keys(taken: pa.Table) -> Mapping[str, Numbers]:
    """Numbers of the rows by column, where they have any."""
    found = dict[str, Numbers]()
    for field in taken.drop_columns([WEIGHT]).schema:
        if pa.types.is_integer(field.type):
            numbers = pc.unique(taken[field.name]).drop_null().cast(pa.int64()).to_numpy()
            if len(numbers):
                found[field.name] = np.sort(numbers)
    by_number = sorted(found.items(), key=lambda one: len(one[1]), reverse=True)
    return dict(by_number[:_MOST_KEYS])


def _by_file(there: Located, places: Positions) -> Sequence[tuple[FileScanTask, Positions]]:
    """The positions in its file of each row at one of the places, which are in order. Of a file there
    may be several parts."""
    tasks = dict[str, FileScanTask]()
    positions = dict[str, list[Positions]]()
    first = 0
    for task, at in there.places:
        within = positions_within(places, first, len(at))
        first += len(at)
        if len(within):
            path = task.file.file_path
            tasks[path] = task
            positions.setdefault(path, []).append(at[within])
    return [(tasks[path], np.concatenate(found)) for path, found in positions.items()]
