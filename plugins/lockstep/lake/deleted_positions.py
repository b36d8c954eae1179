"""Which positions of a data file its delete files name.

Law: a delete file never changes. A writer that keeps one for each data file, as Spark's does, writes it
anew with each deletion, and all that was deleted before is in it: what a process has read of the new one
is the old one of the next change.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from cachetools import LRUCache, cached
from pyiceberg.io import FileIO, InputStream
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.table.delete_file_index import PATH_FIELD_ID
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile

__all__ = ["Positions", "deleted_positions", "is_of_one", "only_path", "positions_within"]

Positions = npt.NDArray[np.int64]

MOST_BYTES = 32 << 20
"""So much a process keeps of positions, those that were asked for last: four million."""


def deleted_positions(files: FileIO, deletes: Sequence[DataFile], path: str) -> Positions:
    """The positions in the file at `path` that the delete files name, in order, each once."""
    found = [_read_delete_file(files, delete, path) for delete in deletes]
    positions = np.concatenate([np.empty(0, np.int64), *found])
    # A single file has them in order already, and may have many.
    in_order = bool(np.all(positions[1:] > positions[:-1]))
    return positions if in_order else np.unique(positions)


_KEPT = LRUCache[tuple[str, str], Positions](MOST_BYTES, lambda positions: 100 + positions.nbytes)


@cached(_KEPT, key=lambda _, delete, path: (delete.file_path, path), lock=Lock())
def _read_delete_file(files: FileIO, delete: DataFile, path: str) -> Positions:
    with files.new_input(delete.file_path).open() as opened:
        if delete.file_format is FileFormat.PUFFIN:
            vectors = deletion_vectors_from_puffin_file(PuffinFile(opened.read()))
            named = [v.to_vector() for v in vectors if v.referenced_data_file == path]
        else:
            named = [_of_table(opened, delete, path)]
    return np.concatenate([np.empty(0, np.int64), *(one.to_numpy() for one in named)])


def _of_table(opened: InputStream, delete: DataFile, path: str) -> pa.ChunkedArray:
    if is_of_one(delete, path):
        return pq.read_table(opened, columns=["pos"]).column("pos")
    of_path = [("file_path", "=", path)]
    return pq.read_table(opened, columns=["file_path", "pos"], filters=of_path).column("pos")


def is_of_one(delete: DataFile, path: str) -> bool:
    """Whether all that a delete file names is in the file at `path`: then its paths, each as long as a
    URL, need not be read."""
    return only_path(delete) == path.encode()


def only_path(delete: DataFile) -> bytes | None:
    """The path of the one file in which is all that a delete file names, if it says so. Least and
    greatest path do, which writers do not cut short."""
    least, most = (
        (one or {}).get(PATH_FIELD_ID) for one in (delete.lower_bounds, delete.upper_bounds)
    )
    return least if least == most else None


def positions_within(positions: Positions, first: int, count: int) -> Positions:
    """Those of the positions, which are in order, that are of so many rows from `first` on, counted from
    there."""
    return positions[slice(*np.searchsorted(positions, [first, first + count]))] - first
