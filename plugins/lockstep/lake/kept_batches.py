"""Batches of Parquet files, of which a process keeps those that were read last, and the files' footers.

Law: a data file never changes, and no other one ever has its name; so what has been read of it is what
it holds.

The rows that a change meets are often where the last one met some: in the newest row groups of large
tables, and in the same small files of a trace. To open such a file, read its footer and decode a few
thousand rows takes some milliseconds, and an interval asks ten traces for ten files each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from threading import Lock
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from cachetools import LRUCache, cached
from pyiceberg.io import FileIO

from lockstep.memory import memory_bytes

__all__ = [
    "BATCH_ROWS",
    "KEPT_BYTES",
    "Batch",
    "are_kept",
    "batches_of_group",
    "footer_of",
    "is_footer_kept",
    "kept_bytes",
    "place_of",
    "places_of_batches",
    "places_of_rows",
]

BATCH_ROWS = 1 << 16
"""So many rows are in memory at a time, of what is not kept."""
_SHARE_OF_MEMORY = 24
KEPT_BYTES = max(256 << 20, memory_bytes() // _SHARE_OF_MEMORY)
"""Of batches, as Arrow has them."""
_FOOTER_BYTES = 64 << 20
_IN_MEMORY = 8
"""So many times as much as in its file a footer takes."""

_Key = tuple[str, int, int, tuple[str, ...]]
"""Path, row group, place of the batch in it, and columns as the file names them."""


class Batch(NamedTuple):
    """Rows of a file from position `first` on."""

    first: int
    rows: pa.RecordBatch


_LOCK = Lock()
_KEPT = LRUCache[_Key, pa.RecordBatch](KEPT_BYTES, lambda rows: 1000 + rows.get_total_buffer_size())
_FOOTERS = LRUCache[str, pq.FileMetaData](
    _FOOTER_BYTES, lambda one: _IN_MEMORY * (1000 + one.serialized_size)
)
"""Both of the whole process."""


@cached(_FOOTERS, key=lambda _, path: path, lock=Lock())
def footer_of(files: FileIO, path: str) -> pq.FileMetaData:
    """What the Parquet file at `path` says of itself."""
    with files.new_input(path).open() as opened:
        return pq.read_metadata(opened)


def is_footer_kept(path: str) -> bool:
    """Whether `footer_of` has no file to open."""
    return path in _FOOTERS


def kept_bytes() -> int:
    """About how many bytes of batches are kept now."""
    with _LOCK:
        return int(_KEPT.currsize)


def places_of_batches(rows: int) -> range:
    """The places of the batches of a row group of so many rows."""
    return range(-(-rows // BATCH_ROWS))


def places_of_rows(rows: npt.NDArray[np.int64]) -> list[int]:
    """The places of the batches of a row group that hold these of its rows."""
    return [int(place) for place in np.unique(rows // BATCH_ROWS)]


def place_of(first: int, rows: pa.RecordBatch, size: int) -> int | None:
    """The place of the batch that these are, which begin at row `first` of a row group of `size`; None
    where they are cut in another way, as Arrow does where texts are very long."""
    is_whole = first % BATCH_ROWS == 0 and len(rows) == min(BATCH_ROWS, size - first)
    return first // BATCH_ROWS if is_whole else None


def are_kept(path: str, group: int, names: Sequence[str], wanted: Sequence[int]) -> bool:
    """Whether `batches_of_group` has no file to open."""
    return all((path, group, place, tuple(names)) in _KEPT for place in wanted)


def batches_of_group(
    files: FileIO,
    path: str,
    group: int,
    names: Mapping[str, str],
    wanted: Sequence[int],
    *,
    keeps: bool,
) -> Iterator[Batch]:
    """At least the batches at the places `wanted`, in order, of a row group, each with the position of
    its first row within the group; with `keeps` they are kept. `names` are the file's by the table's,
    under which the columns come."""
    if not wanted:
        return
    columns = tuple(names.values())
    with _LOCK:
        kept = [_KEPT.get((path, group, place, columns)) for place in wanted]
    if None not in kept:
        for at, rows in zip(wanted, kept, strict=True):
            yield Batch(at * BATCH_ROWS, _named(rows, names))
        return
    footer, first = footer_of(files, path), 0
    size = footer.row_group(group).num_rows
    last = min((wanted[-1] + 1) * BATCH_ROWS, size)
    with files.new_input(path).open() as opened:
        parquet = pq.ParquetFile(opened, metadata=footer, pre_buffer=True)
        for rows in parquet.iter_batches(BATCH_ROWS, row_groups=[group], columns=list(columns)):
            place = place_of(first, rows, size)
            if keeps and place is not None and place in wanted:
                _keep((path, group, place, columns), rows)
            yield Batch(first, _named(rows, names))
            first += len(rows)
            if first >= last:
                return


def _keep(key: _Key, rows: pa.RecordBatch) -> None:
    """Not at the cost of all others."""
    if rows.get_total_buffer_size() <= KEPT_BYTES // 16:
        with _LOCK:
            _KEPT[key] = rows


def _named(rows: pa.RecordBatch, names: Mapping[str, str]) -> pa.RecordBatch:
    """They come in the order of the file, whatever the order in which they are asked for."""
    arrays = [rows.column(name) for name in names.values()]
    return pa.RecordBatch.from_arrays(arrays, names=list(names))
