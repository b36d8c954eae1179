"""Rows of a large table by their keys, read by whoever asks.

The law: what is found are rows of the snapshot, each as often as it is there; and among them is every
row that holds, in each column of the keys, one of the wanted numbers, or null: without keys, all rows.

Spark takes longer to plan a scan, and to compile the loop over its rows, than it takes to read the few
row groups in which keys stand that are near one another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    GreaterThanOrEqual,
    IsNull,
    LessThanOrEqual,
    Or,
    Reference,
)
from pyiceberg.expressions.literals import literal
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import IntegerType, LongType

from lockstep.lake.changed_files import has_equality_deletes
from lockstep.lake.deleted_positions import deleted_positions
from lockstep.lake.file_batches import are_readable, batches_of_group, names_in_file
from lockstep.lake.manifests import manifests_of, planned_files
from lockstep.threads import in_parallel

__all__ = ["MOST_BYTES", "MOST_ROWS", "Numbers", "look_up"]

MOST_BYTES = 64 << 20
"""As they lie in the files, of the columns that are read: of more, Spark's tasks read."""
MOST_ROWS = 100_000
MOST_LISTED = 1000
"""So many files a snapshot may have: to read what is said of each takes longer here than in Spark."""
MOST_OPENED = 100

Numbers = npt.NDArray[np.int64]
"""In order, each once, at least one."""

_Wanted = Mapping[str, Numbers]
_WHOLE = (IntegerType, LongType)


@dataclass(frozen=True)
class _Part:
    """The row groups of a file in which wanted rows can be, each with the position of its first row;
    `names` are the file's of the columns, `size` the bytes of these."""

    task: FileScanTask
    footer: pq.FileMetaData
    names: Mapping[str, str]
    groups: Mapping[int, int]
    size: int


def look_up(
    table: Table, snapshot_id: int, columns: Sequence[str], keys: Mapping[str, Numbers]
) -> pa.Table | None:
    """These columns of the rows, whose names' letters may be of another case in the table.

    `keys` are some of the columns; one that does not hold whole numbers says nothing. None where all say
    nothing, much would have to be read, or files hold rows in another form than the table.
    """
    if _files_listed(table, snapshot_id) > MOST_LISTED:
        return None
    if has_equality_deletes(table, snapshot_id) or not are_readable(table, columns, ()):
        return None
    schema = table.schema().select(*columns, case_sensitive=False)
    names = {name: schema.find_field(name, case_sensitive=False).name for name in columns}
    wanted = {
        names[name]: numbers
        for name, numbers in keys.items()
        if isinstance(schema.find_type(names[name]), _WHOLE)
    }
    if keys and not wanted:
        return None
    tasks = planned_files(table, manifests_of(table, snapshot_id), _near(wanted))
    others = any(task.file.file_format is not FileFormat.PARQUET for task in tasks)
    if others or len(tasks) > MOST_OPENED:
        return None
    found = in_parallel(lambda task: _part(table.io, task, schema, wanted), tasks)
    parts = [part for part in found if part is not None]
    if len(parts) < len(found) or sum(part.size for part in parts) > MOST_BYTES:
        return None
    read = in_parallel(lambda part: list(_rows(table.io, part, wanted)), parts)
    shape = schema_to_pyarrow(schema, include_field_ids=False)
    tables = (pa.Table.from_batches([batch]).cast(shape) for batch in chain.from_iterable(read))
    rows = pa.concat_tables([shape.empty_table(), *tables])
    if rows.num_rows > MOST_ROWS:
        return None
    return rows.select(list(names.values())).rename_columns(list(names))


def _files_listed(table: Table, snapshot_id: int) -> float:
    """How many files a snapshot has. Infinitely many where it does not say, or is not there: PyIceberg
    would find no rows in one that is gone, and Spark says what is wrong."""
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    if snapshot is None or snapshot.summary is None:
        return inf
    said = snapshot.summary.additional_properties
    return sum(float(said.get(f"total-{kind}-files", inf)) for kind in ("data", "delete"))


def _near(wanted: _Wanted) -> BooleanExpression:
    """By which files are left out that hold neither a number between the ends nor null. Not as text: to
    read one takes two milliseconds, and names may hold any mark."""
    near: BooleanExpression = AlwaysTrue()
    for name, numbers in wanted.items():
        key, low, high = Reference(name), literal(int(numbers[0])), literal(int(numbers[-1]))
        ends = (GreaterThanOrEqual(term=key, value=low), LessThanOrEqual(term=key, value=high))
        near = And(near, Or(And(*ends), IsNull(term=key)))
    return near


def _part(files: FileIO, task: FileScanTask, schema: Schema, wanted: _Wanted) -> _Part | None:
    """None where the file has a column in another form."""
    with files.new_input(task.file.file_path).open() as opened:
        parquet = pq.ParquetFile(opened)
        footer, names = parquet.metadata, names_in_file(parquet.schema_arrow, schema)
    if names is None:
        return None
    groups, size, first = dict[int, int](), 0, 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        chunks = {c.path_in_schema: c for c in map(group.column, range(group.num_columns))}
        if all(_may_hold(chunks[names[name]], numbers) for name, numbers in wanted.items()):
            groups[number] = first
            # What a column holds has paths that begin with its name.
            read = (c for path, c in chunks.items() if path.split(".")[0] in names.values())
            size += sum(chunk.total_compressed_size for chunk in read)
        first += group.num_rows
    return _Part(task, footer, names, groups, size)


def _may_hold(chunk: pq.ColumnChunkMetaData, numbers: Numbers) -> bool:
    """Whether one of the numbers, or null, can be in a column of a row group, as far as it says."""
    found = chunk.statistics
    if found is None or not found.has_min_max or found.null_count != 0:
        return True
    first = np.searchsorted(numbers, found.min)
    return bool(first < len(numbers) and numbers[first] <= found.max)


def _rows(files: FileIO, part: _Part, wanted: _Wanted) -> Iterator[pa.RecordBatch]:
    if not part.groups:
        return
    path = part.task.file.file_path
    deleted = deleted_positions(files, tuple(part.task.delete_files), path)
    with files.new_input(path).open() as opened:
        parquet = pq.ParquetFile(opened, metadata=part.footer, pre_buffer=True)
        for group, start in part.groups.items():
            last = start + part.footer.row_group(group).num_rows - 1
            for first, rows in batches_of_group(parquet, group, part.names, start, last):
                here = slice(*np.searchsorted(deleted, [first, first + rows.num_rows]))
                kept = np.setdiff1d(_places(rows, wanted), deleted[here] - first, True)
                if len(kept):
                    yield rows.take(pa.array(kept))


def _places(rows: pa.RecordBatch, wanted: _Wanted) -> Numbers:
    """The places of the rows whose keys are wanted, in order."""
    places: Numbers = np.arange(rows.num_rows)
    for name, numbers in wanted.items():
        key = rows.column(name)
        # Most batches have nothing between the ends, which is cheap to see.
        inside = pc.and_(pc.greater_equal(key, numbers[0]), pc.less_equal(key, numbers[-1]))
        near = pc.or_kleene(inside, pc.is_null(key)).to_numpy(zero_copy_only=False)
        places = places[near[places]]
        few = key.take(pa.array(places)).cast(pa.int64())
        held = pc.or_(pc.is_in(few, pa.array(numbers)), pc.is_null(few))
        places = places[held.to_numpy(zero_copy_only=False)]
    return places
