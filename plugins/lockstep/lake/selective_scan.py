"""Rows of a large Parquet file by their keys, with a reader that decodes little more than them.

Arrow decodes all values of each column that is read, DuckDB of the other columns only those beside a
wanted key: of thirty million rows with three columns in a fourth of the time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import PyArrowFileIO

__all__ = ["Selected", "are_never_null", "can_select", "selected_rows"]

_POSITION = "file_row_number"
"""As DuckDB calls it."""
_PATTERNS = frozenset("*?[")
_CONFIGURATION: dict[str, str | bool | int | float | list[str]] = {
    "preserve_insertion_order": False,
    "memory_limit": "512MB",
    "threads": 2,
}
"""Of one file; several are read at the same time."""
_SAME = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal128,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_date32,
    lambda kind: pa.types.is_timestamp(kind) and kind.unit == "us",
)
"""Types whose values are the same by both readers. Other forms of times that files have, and what is
nested, are left to Arrow."""


class Selected(NamedTuple):
    """Rows of a file, in its order, and their positions."""

    positions: npt.NDArray[np.int64]
    rows: pa.RecordBatch


def can_select(
    path: str, footer: pq.FileMetaData, names: Mapping[str, str], wanted: Mapping[str, object]
) -> bool:
    """Whether `selected_rows` can be asked: of a file of this machine, no key of which may be null,
    where both readers mean the same."""
    scheme, _, local = PyArrowFileIO.parse_location(path)
    is_here = scheme == "file" and not _PATTERNS & set(local)
    return bool(wanted) and is_here and _are_alike(footer, names, wanted)


def selected_rows(
    path: str,
    footer: pq.FileMetaData,
    names: Mapping[str, str],
    wanted: Mapping[str, npt.NDArray[np.int64]],
    most: int,
) -> Selected | None:
    """The rows of the file at `path` that hold a wanted number in each of these columns, no more than
    `most` and one; None where DuckDB cannot read it. `names` are the file's by the table's, under which
    the columns come.
    """
    import duckdb  # takes as long to load as many a look-up

    local, kinds = PyArrowFileIO.parse_location(path)[2], footer.schema.to_arrow_schema()
    columns = ", ".join(map(_column, (_POSITION, *names.values())))
    joins, keys = "", dict[str, pa.Table]()
    for place, (name, numbers) in enumerate(wanted.items()):
        keys[f"keys_{place}"] = pa.table({"key": _within(numbers, kinds.field(names[name]).type)})
        joins += f" SEMI JOIN keys_{place} ON {_column(names[name])} = keys_{place}.key"
    query = (
        f"SELECT {columns} FROM read_parquet(?, {_POSITION} = true, hive_partitioning = false) AS file"
        f"{joins} LIMIT {most + 1}"
    )
    try:
        with duckdb.connect(config=_CONFIGURATION) as connection:
            for name, table in keys.items():
                connection.register(name, table)
            found = connection.sql(query, params=[local]).to_arrow_table()
        batches = found.sort_by(_POSITION).combine_chunks().to_batches() or [_empty(found)]
    except (duckdb.Error, pa.ArrowException):
        # Encodings that it does not read, text that is no UTF-8, more than it may take in memory.
        # What is wrong with a file is said by Arrow, too.
        return None
    if len(batches) > 1:
        return None  # texts of gigabytes
    [rows] = batches
    # Of times DuckDB says another zone.
    arrays = [rows.column(name).cast(kinds.field(name).type) for name in names.values()]
    batch = pa.RecordBatch.from_arrays(arrays, names=list(names))
    return Selected(rows.column(_POSITION).to_numpy(), batch)


def are_never_null(footer: pq.FileMetaData, columns: Collection[str]) -> bool:
    """Whether these columns of the file hold no null, by what it says of itself."""
    groups = map(footer.row_group, range(footer.num_row_groups))
    chunks = (group.column(place) for group in groups for place in range(group.num_columns))
    found = [chunk.statistics for chunk in chunks if chunk.path_in_schema in columns]
    return all(one is not None and one.null_count == 0 for one in found)


def _are_alike(
    footer: pq.FileMetaData, names: Mapping[str, str], wanted: Mapping[str, object]
) -> bool:
    """Whether both readers mean the same by these columns, and no key is null."""
    shape = footer.schema.to_arrow_schema()
    all_names = [name.lower() for name in (*shape.names, _POSITION)]
    if len(set(all_names)) < len(all_names):
        return False  # DuckDB does not tell letters by their case
    kinds = [shape.field(name).type for name in names.values()]
    if not all(any(is_one(kind) for is_one in _SAME) for kind in kinds):
        return False
    return are_never_null(footer, [names[name] for name in wanted])


def _within(numbers: npt.NDArray[np.int64], kind: pa.DataType) -> pa.Array:
    """Those of the numbers that the type has, in that type: of another one DuckDB would convert each
    value of the column, and leave out none by what the file says of its parts."""
    ends = np.iinfo(kind.to_pandas_dtype())
    return pa.array(numbers[(numbers >= ends.min) & (numbers <= ends.max)]).cast(kind)


def _empty(found: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=found.schema)


def _column(name: str) -> str:
    return 'file."' + name.replace('"', '""') + '"'
