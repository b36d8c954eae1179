"""What few rows of a view come to with the changes of some steps, and whether two logs of few changes
are the same, worked out here, in Arrow.

Rows are equal where Spark groups them together: null is null, every NaN is one, and -0.0 is 0.0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    GreaterThan,
    LessThanOrEqual,
    Reference,
)
from pyiceberg.expressions.literals import literal
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table

from lockstep.adapters.iceberg_copies import STEP, WEIGHT, files_of, is_within
from lockstep.adapters.iceberg_files import files_at
from lockstep.adapters.iceberg_history import snapshot_of
from lockstep.control.ports import OutboxSteps
from lockstep.lake.file_batches import file_batches
from lockstep.threads import in_parallel

__all__ = [
    "Netted",
    "Taken",
    "is_flat",
    "net_change",
    "netted",
    "places_taken",
    "rows_as_often",
    "rows_if_equal",
]

_MOST_BYTES = 128 << 20
"""Of files: their rows, of all columns, are held here a few times."""

_MOST_COMPARED = 4_000_000
_MOST_COMPARED_BYTES = 256 << 20
"""Rows of files, and what those of a side take in memory: they are grouped here."""


_MOST_HELD_BYTES = 512 << 20
_Codes = npt.NDArray[np.unsignedinteger[Any]]


class Netted(NamedTuple):
    """The `rows` of the view after the steps, how many distinct rows they have `changed`, and one that
    is taken back more often than it was there, with its values by column, or None."""

    rows: pa.Table
    changed: int
    lacking: str | None


class Taken(NamedTuple):
    """The places of rows that are taken back, in order, and one that is lacking, as of `Netted`."""

    places: npt.NDArray[np.int64]
    lacking: str | None


def netted(view: Table, snapshot_id: int, outbox: Table, steps: OutboxSteps) -> Netted | None:
    """The view at a snapshot with the changes of the steps. None where rows cannot be compared here:
    columns that hold others, texts that are not UTF-8, files that are not Parquet, or are large."""
    there = list(files_at(view, snapshot_id).values())
    if not _are_parquet(there) or _size(there) > _MOST_BYTES:
        return None
    change = net_change(view, outbox, steps)
    rows = None if change is None else _comparable(view, _rows(view, view.schema(), there))
    if change is None or rows is None:
        return None
    ones = pa.chunked_array([np.ones(rows.num_rows, np.int64)])
    after = pa.concat_tables(
        [rows.append_column(WEIGHT, ones), change.cast(_weighted(rows.schema))]
    )
    after = _summed(after.drop_columns([WEIGHT]), after[WEIGHT])
    return Netted(rows_as_often(after), change.num_rows, named(after, pc.less(after[WEIGHT], 0)))


def net_change(view: Table, outbox: Table, steps: OutboxSteps) -> pa.Table | None:
    """What the steps change in the view: distinct rows, in its types, with `_weight`, which is not 0.
    None where they cannot be compared here."""
    columns = [field.name for field in view.schema().fields]
    changes = list(files_of(outbox, steps))
    is_comparable = is_flat(view.schema()) and _are_parquet(changes)
    if not is_comparable or _size(changes) > _MOST_BYTES:
        return None
    found = _rows(outbox, outbox.schema().select(*columns, WEIGHT), changes, steps)
    change = _comparable(view, found.select(columns))
    if change is None:
        return None
    change = _summed(change, found[WEIGHT])
    return change.filter(pc.not_equal(change[WEIGHT], 0))


def places_taken(taken: pa.Table, view: Table, rows: pa.Table) -> Taken | None:
    """Where in `rows`, of the view, stand those that are `taken`, which are distinct and have a
    `_weight` below 0: of each the first, as many as that. None where rows cannot be compared here."""
    there = _comparable(view, rows)
    if there is None:
        return None
    all_rows = pa.concat_tables([taken.drop_columns([WEIGHT]).cast(there.schema), there])
    numbered = _numbered(all_rows)
    names = numbered.column_names
    numbered = numbered.append_column("number", pa.array(np.arange(all_rows.num_rows)))
    # In one thread: of a group the numbers come in order, that of what is taken first.
    groups = numbered.group_by(names, use_threads=False).aggregate([("number", "list")])
    lists = groups["number_list"].combine_chunks()
    numbers = lists.flatten().to_numpy()
    counts = lists.value_lengths().to_numpy()
    starts = np.cumsum(counts) - counts
    first = numbers[starts]
    is_taken = first < taken.num_rows
    wanted = np.zeros(len(first), np.int64)
    wanted[is_taken] = -taken[WEIGHT].to_numpy()[first[is_taken]]
    place = np.arange(len(numbers)) - np.repeat(starts, counts)
    chosen = numbers[(place > 0) & (place <= np.repeat(wanted, counts))] - taken.num_rows
    lacking = np.zeros(taken.num_rows, np.bool_)
    lacking[first[is_taken]] = wanted[is_taken] > counts[is_taken] - 1
    return Taken(np.sort(chosen), named(taken, pa.array(lacking)))


def rows_as_often(weighted: pa.Table) -> pa.Table:
    """Each row as often as its `_weight` says, without it."""
    copies = np.maximum(weighted[WEIGHT].to_numpy(), 0)
    places = np.repeat(np.arange(weighted.num_rows), copies)
    return weighted.drop_columns([WEIGHT]).take(pa.array(places))


def named(weighted: pa.Table, is_one: pa.ChunkedArray | pa.Array) -> str | None:
    """The first row that is one, for people."""
    found = weighted.filter(is_one).slice(0, 1).drop_columns([WEIGHT]).to_pylist()
    return str(found[0]) if found else None


def rows_if_equal(outbox: Table, logged: OutboxSteps, replayed: OutboxSteps) -> int | None:
    """How many rows are logged of these steps, where they are the same Z-set at each step as those that
    the same table has of the same steps at another snapshot. None where they are not, or where rows
    cannot be compared here, as of `netted`, or are many."""
    schema = outbox.schema()
    heads = [snapshot_of(one.table, outbox.metadata, one.snapshot_id) for one in (logged, replayed)]
    if any(head.schema_id not in (None, schema.schema_id) for head in heads):
        return None  # Spark reads what columns there were
    found = [list(files_of(outbox, steps)) for steps in (logged, replayed)]
    files = [*found[0], *found[1]]
    if (
        not is_flat(schema)
        or not _are_parquet(files)
        or _size(files) > _MOST_BYTES
        or sum(file.record_count for file in files if file is not None) > _MOST_COMPARED
    ):
        return None
    try:
        columns = schema.as_arrow()
        sides = in_parallel(lambda of: _rows(outbox, schema, of, logged).cast(columns), found)
        if any(side.nbytes > _MOST_COMPARED_BYTES for side in sides):
            return None
        rows = pa.concat_tables(sides)
        if rows[WEIGHT].null_count:
            return None
        rows.validate(full=True)
        rows = _plain(rows)
        count: int = sides[0].num_rows
        if count == sides[1].num_rows and _are_halves_alike(rows):
            return count
        signs = np.repeat([1, -1], [side.num_rows for side in sides])
        weights = pa.chunked_array([rows[WEIGHT].to_numpy() * signs])
        differences = _summed(rows.drop_columns([WEIGHT]), weights)
    except (pa.ArrowInvalid, pa.ArrowCapacityError, pa.ArrowNotImplementedError):
        return None
    return None if pc.any(pc.not_equal(differences[WEIGHT], 0)).as_py() else count


def _within(steps: OutboxSteps) -> BooleanExpression:
    """A change is of one of the steps. Not as text, which takes two milliseconds to read."""
    step, after, last = Reference(STEP), literal(steps.after), literal(steps.last)
    return And(GreaterThan(term=step, value=after), LessThanOrEqual(term=step, value=last))


def _comparable(view: Table, rows: pa.Table) -> pa.Table | None:
    """Rows under the view's columns, in its types, with one form of each value; None where a text is not
    UTF-8, a type is unknown here, or they take much memory: they are grouped."""
    if rows.nbytes > _MOST_HELD_BYTES:
        return None
    try:
        found = _plain(rows.cast(view.schema().as_arrow()))
        found.validate(full=True)
    except (ValueError, pa.ArrowNotImplementedError, pa.ArrowCapacityError):
        return None
    return found


def is_flat(schema: Schema) -> bool:
    """Whether no column holds others: of such PyIceberg (0.12) reads and writes some otherwise than they
    are (https://github.com/apache/iceberg-python/issues/3833)."""
    return all(field.field_type.is_primitive for field in schema.fields)


def _are_parquet(files: Iterable[DataFile | None]) -> bool:
    return all(file is not None and file.file_format == FileFormat.PARQUET for file in files)


def _size(files: Iterable[DataFile | None]) -> int:
    return sum(file.file_size_in_bytes for file in files if file is not None)


def _rows(
    table: Table, schema: Schema, files: Sequence[DataFile | None], steps: OutboxSteps | None = None
) -> pa.Table:
    """The rows of files, of outboxes those of the steps; a column that a file has not is null.

    A scan of PyIceberg's (0.12) takes four milliseconds of Python for a file, whatever is in it. Only
    files that may have rows of other steps are for it.
    """
    whole, others = list[DataFile](), list[DataFile]()
    for file in (one for one in files if one is not None):
        is_whole = steps is None or is_within(table, file, steps)
        (whole if is_whole else others).append(file)

    def read(file: DataFile) -> list[pa.Table]:
        batches = file_batches(table.io, table.metadata, schema, file)
        return [pa.Table.from_batches([rows]) for _, rows in batches]

    where = AlwaysTrue() if steps is None else _within(steps)
    scan = ArrowScan(table.metadata, table.io, schema, where)
    scanned = scan.to_table([FileScanTask(file) for file in others])
    found = list(chain.from_iterable(in_parallel(read, whole)))
    # Without rows a scan's types are the schema's, which not all of a file's can be put to.
    if scanned.num_rows or not found:
        found.append(scanned)
    # As the scan does it: texts have two forms in Arrow.
    return pa.concat_tables(found, promote_options="permissive")


def _are_halves_alike(rows: pa.Table) -> bool:
    """Whether the first half has the rows of the second one, in any order. False, too, where they were
    not found to be: equal rows are found by a digest, and of some digests two rows have one.

    A third of what `_summed` takes (decision 0063): of each half whole numbers are sorted, with the
    place of a row in the bits that the digest leaves.
    """
    half = rows.num_rows // 2
    columns = list[_Codes]()
    for column in rows.columns:
        columns.extend(_codes(column))
        if sum(codes.nbytes for codes in columns) > 2 * _MOST_COMPARED_BYTES:
            return False
    digests = np.zeros(rows.num_rows, np.uint64)
    factors = np.random.default_rng(0).integers(1 << 63, (1 << 64) - 1, len(columns), np.uint64)
    for codes, factor in zip(columns, factors, strict=True):
        digests += codes * (factor | np.uint64(1))
    places = np.uint64((1 << half.bit_length()) - 1)
    orders = list[npt.NDArray[np.int64]]()
    for digest in (digests[:half], digests[half:]):
        found = (digest & ~places) | np.arange(half, dtype=np.uint64)
        found.sort()
        orders.append((found & places).astype(np.int64))
    return all(
        np.array_equal(codes[:half].take(orders[0]), codes[half:].take(orders[1]))
        for codes in columns
    )


def _codes(column: pa.ChunkedArray) -> Iterator[_Codes]:
    """Numbers that two rows have in common where they have the same value, or both have none."""
    kind = column.type
    if column.null_count:
        yield column.is_null().cast(pa.uint8()).to_numpy()
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif pa.types.is_temporal(kind):
        column = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    elif not pa.types.is_integer(kind) and not pa.types.is_floating(kind):
        column = column.combine_chunks().dictionary_encode().indices
    values = column.fill_null(0).to_numpy()
    yield values.view(f"u{values.itemsize}")


def _weighted(schema: pa.Schema) -> pa.Schema:
    return schema.append(pa.field(WEIGHT, pa.int64()))


def _plain(rows: pa.Table) -> pa.Table:
    """The same rows with one NaN and one zero."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_floating(field.type):
            nan, zero = pa.scalar(math.nan, field.type), pa.scalar(0.0, field.type)
            column = rows.column(place)
            column = pc.if_else(pc.equal(column, zero), zero, column)
            rows = rows.set_column(place, field, pc.if_else(pc.is_nan(column), nan, column))
    return rows


def _numbered(rows: pa.Table) -> pa.Table:
    """Numbers for names: a view may have columns of any."""
    return rows.rename_columns([str(place) for place in range(rows.num_columns)])


def _summed(rows: pa.Table, weights: pa.ChunkedArray) -> pa.Table:
    """Each distinct row once, with the sum of its weights."""
    numbered = _numbered(rows)
    names = numbered.column_names
    numbered = numbered.append_column("weight", weights)
    grouped = numbered.group_by(names, use_threads=False).aggregate([("weight", "sum")])
    found = grouped.select([*names, "weight_sum"]).rename_columns([*rows.column_names, WEIGHT])
    return found.cast(_weighted(rows.schema))
