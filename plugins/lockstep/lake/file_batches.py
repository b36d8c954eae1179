"""The rows of one data file, batch by batch, with their positions.

The law: each row that is asked for is in one of the batches, under the names and types that the table's
schema has for its columns, and a batch's place is the position of its first row in the file.

PyIceberg's scan (0.12) gives a file's batches once all of them are in memory. Rows that were deleted are
few, and often stand together: of Parquet files only the row groups that hold some are read, a batch at
a time, and no further than to the last of them. What a scan would have to convert is left to it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata

from lockstep.lake.deleted_positions import Positions

__all__ = ["Batch", "file_batches"]

BATCH_ROWS = 1 << 16
"""So many rows are in memory at a time."""

_FIELD_ID = b"PARQUET:field_id"
_TEXT = (pa.types.is_string, pa.types.is_large_string)
_BYTES = (pa.types.is_binary, pa.types.is_large_binary)


class Batch(NamedTuple):
    """Rows of a file from position `first` on."""

    first: int
    rows: pa.RecordBatch


def file_batches(
    files: FileIO,
    metadata: TableMetadata,
    schema: Schema,
    file: DataFile,
    wanted: Positions | None = None,
) -> Iterator[Batch]:
    """The rows of a data file in its order, without regard to delete files, all or at least those at
    the positions `wanted`, which are in order. `schema` is the part of the table's that is read."""
    if file.file_format is FileFormat.PARQUET:
        with files.new_input(file.file_path).open() as opened:
            parquet = pq.ParquetFile(opened, pre_buffer=True)
            names = _names_in_file(parquet.schema_arrow, schema)
            if names is not None:
                yield from _of_parquet(parquet, names, wanted)
                return
    first = 0
    scan = ArrowScan(metadata, files, schema, AlwaysTrue())
    for rows in scan.to_record_batches([FileScanTask(file)]):
        yield Batch(first, rows)
        first += rows.num_rows


def _names_in_file(found: pa.Schema, schema: Schema) -> dict[str, str] | None:
    """The file's names of the columns by the table's; None where one of them is not there as it is in
    the table: it came later, has had another type, holds others, or the file does not number it."""
    by_id = {int((field.metadata or {}).get(_FIELD_ID, -1)): field for field in found}
    names = {}
    for column, wanted in zip(schema.columns, schema_to_pyarrow(schema), strict=True):
        field = by_id.get(column.field_id)
        if field is None or not _is_same(field.type, wanted.type):
            return None
        names[column.name] = field.name
    # A name with a dot would be taken for a path, and a name that stands twice for either.
    is_plain = all("." not in name and found.names.count(name) == 1 for name in names.values())
    return names if is_plain else None


def _is_same(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Texts and bytes have two forms each in Arrow, which hold the same."""
    if pa.types.is_nested(wanted):
        return False
    both = (found, wanted)
    return found == wanted or any(
        all(any(is_one(kind) for is_one in forms) for kind in both) for forms in (_TEXT, _BYTES)
    )


def _of_parquet(
    parquet: pq.ParquetFile, names: dict[str, str], wanted: Positions | None
) -> Iterator[Batch]:
    sizes = [parquet.metadata.row_group(n).num_rows for n in range(parquet.num_row_groups)]
    start = 0
    for group, size in enumerate(sizes):
        end = start + size
        last = end - 1 if wanted is None else _last_before(wanted, end)
        if last >= start:
            yield from _of_group(parquet, group, names, start, last)
        start = end


def _last_before(wanted: Positions, end: int) -> int:
    """The last position before `end`, -1 where there is none."""
    count = int(np.searchsorted(wanted, end))
    return int(wanted[count - 1]) if count else -1


def _of_group(
    parquet: pq.ParquetFile, group: int, names: dict[str, str], first: int, last: int
) -> Iterator[Batch]:
    columns = list(names.values())
    for rows in parquet.iter_batches(BATCH_ROWS, row_groups=[group], columns=columns):
        # They come in the order of the file, whatever the order in which they are asked for.
        arrays = [rows.column(name) for name in columns]
        yield Batch(first, pa.RecordBatch.from_arrays(arrays, names=list(names)))
        first += rows.num_rows
        if first > last:
            return
