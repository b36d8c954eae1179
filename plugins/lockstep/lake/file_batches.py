"""The rows of one data file, batch by batch, with their positions.

The law: each row that is asked for is in one of the batches, under the names and types that the table's
schema has for its columns, and a batch's place is the position of its first row in the file.

PyIceberg's scan (0.12) gives a file's batches once all of them are in memory. Rows that were deleted are
few, and often stand together: of Parquet files only the row groups that hold some are read, a batch at
a time, and no further than to the last of them. What a scan would have to convert is left to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import IcebergType, ListType, MapType, StructType, UUIDType

from lockstep.lake.deleted_positions import Positions, positions_within
from lockstep.lake.kept_batches import (
    Batch,
    batches_of_group,
    footer_of,
    places_of_batches,
    places_of_rows,
)
from lockstep.threads import in_parallel

__all__ = ["are_readable", "file_batches", "names_in_file"]

_FIELD_ID = b"PARQUET:field_id"
_FORMATS = (FileFormat.PARQUET, FileFormat.ORC)

_Is = Callable[[pa.DataType], bool]
_LEAVES: tuple[_Is, ...] = (
    lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind),
    lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind),
)
_NESTED: tuple[_Is, ...] = (
    lambda kind: pa.types.is_list(kind) or pa.types.is_large_list(kind),
    pa.types.is_struct,
    pa.types.is_map,
)


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
        footer = footer_of(files, file.file_path)
        names = names_in_file(footer, schema_to_pyarrow(schema))
        if names is not None:
            yield from _of_parquet(files, file.file_path, footer, names, wanted)
            return
    first = 0
    scan = ArrowScan(metadata, files, schema, AlwaysTrue())
    for rows in scan.to_record_batches([FileScanTask(file)]):
        yield Batch(first, rows)
        first += rows.num_rows


def are_readable(table: Table, columns: Sequence[str], files: Sequence[DataFile]) -> bool:
    """Whether these columns come out of single files as Spark has them. Uuids do not, which it has as
    text; nor does Avro. Of a null list or map of structs PyIceberg's scan (0.12) makes an empty one
    (https://github.com/apache/iceberg-python/issues/3833): such columns are read without it, or not."""
    schema = table.schema().select(*columns, case_sensitive=False)
    kinds = [schema.find_type(id_) for id_ in schema.field_ids]
    if any(isinstance(kind, UUIDType) for kind in kinds):
        return False
    if any(file.file_format not in _FORMATS for file in files):
        return False
    if not any(map(_has_structs, kinds)):
        return True

    shape = schema_to_pyarrow(schema)

    def is_plain(file: DataFile) -> bool:
        if file.file_format is not FileFormat.PARQUET:
            return False
        footer = footer_of(table.io, file.file_path)
        return names_in_file(footer, shape) is not None

    return all(in_parallel(is_plain, files))


def _has_structs(kind: IcebergType) -> bool:
    """Whether it is a list or a map of structs."""
    if isinstance(kind, MapType):
        return any(isinstance(one, StructType) for one in (kind.key_type, kind.value_type))
    return isinstance(kind, ListType) and isinstance(kind.element_type, StructType)


def names_in_file(footer: pq.FileMetaData, shape: pa.Schema) -> dict[str, str] | None:
    """The file's names of the columns by the table's, which `shape` gives with their numbers. None where
    one of them is not there as it is in the table: it came later, has had another type, or the file does
    not number it."""
    found = footer.schema.to_arrow_schema()
    by_id = {number: field for field in found if (number := _id(field)) is not None}
    names = {}
    for wanted in shape:
        field = by_id.get(_id(wanted) or b"")
        if field is None or not _is_same(field.type, wanted.type):
            return None
        names[wanted.name] = field.name
    # A name with a dot would be taken for a path, and a name that stands twice for either.
    is_plain = all("." not in name and found.names.count(name) == 1 for name in names.values())
    return names if is_plain else None


def _id(field: pa.Field) -> bytes | None:
    return (field.metadata or {}).get(_FIELD_ID)


def _is_same(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Texts, bytes and lists have two forms each in Arrow, which hold the same. What is within has to
    have the same numbers, and in structs the same names."""
    if pa.types.is_nested(wanted):
        form = next(one for one in _NESTED if one(wanted))
        within = (
            [(found.field(n), wanted.field(n)) for n in range(wanted.num_fields)]
            if (form(found) and found.num_fields == wanted.num_fields)
            else None
        )
        return within is not None and all(
            _id(a) == _id(b)
            and (a.name == b.name or not pa.types.is_struct(wanted))
            and _is_same(a.type, b.type)
            for a, b in within
        )
    return found == wanted or any(one(found) and one(wanted) for one in _LEAVES)


def _of_parquet(
    files: FileIO,
    path: str,
    footer: pq.FileMetaData,
    names: Mapping[str, str],
    wanted: Positions | None,
) -> Iterator[Batch]:
    start = 0
    for group in range(footer.num_row_groups):
        size = footer.row_group(group).num_rows
        places: Sequence[int] = places_of_batches(size)
        if wanted is not None:
            places = places_of_rows(positions_within(wanted, start, size))
        # Where some were deleted others will be; a file that is read as a whole is so once.
        keeps = wanted is not None
        for first, rows in batches_of_group(files, path, group, names, places, keeps=keeps):
            yield Batch(start + first, rows)
        start += size
