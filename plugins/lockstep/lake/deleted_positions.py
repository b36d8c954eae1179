"""Which positions of a data file its delete files name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, InputStream
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.table.delete_file_index import PATH_FIELD_ID
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile

__all__ = ["Positions", "deleted_positions"]

Positions = npt.NDArray[np.int64]


def deleted_positions(files: FileIO, deletes: Sequence[DataFile], path: str) -> Positions:
    """The positions in the file at `path` that the delete files name, in order, each once."""
    found = [_read_delete_file(files, delete, path) for delete in deletes]
    positions = np.concatenate([np.empty(0, np.int64), *found])
    # A single file has them in order already, and may have many.
    in_order = bool(np.all(positions[1:] > positions[:-1]))
    return positions if in_order else np.unique(positions)


def _read_delete_file(files: FileIO, delete: DataFile, path: str) -> Positions:
    with files.new_input(delete.file_path).open() as opened:
        if delete.file_format is FileFormat.PUFFIN:
            vectors = deletion_vectors_from_puffin_file(PuffinFile(opened.read()))
            named = [v.to_vector() for v in vectors if v.referenced_data_file == path]
        else:
            named = [_of_table(opened, delete, path)]
    return np.concatenate([np.empty(0, np.int64), *(one.to_numpy() for one in named)])


def _of_table(opened: InputStream, delete: DataFile, path: str) -> pa.ChunkedArray:
    if _is_of_one(delete, path):
        return pq.read_table(opened, columns=["pos"]).column("pos")
    of_path = [("file_path", "=", path)]
    return pq.read_table(opened, columns=["file_path", "pos"], filters=of_path).column("pos")


def _is_of_one(delete: DataFile, path: str) -> bool:
    """Whether all that the file names is in the file at `path`: then its paths, each as long as a URL,
    need not be read. Least and greatest path say so, which writers do not cut short."""
    ends = (delete.lower_bounds, delete.upper_bounds)
    return all((one or {}).get(PATH_FIELD_ID) == path.encode() for one in ends)
