"""Rows of single data files of an Iceberg table, read through PyIceberg, by Spark's tasks or here.

Spark itself reads tables, not files: asked for the rows of one file it reads all of them. Here a task
is given a file, and the positions in it that count. Few rows of small files are read by this process: a
task would take longer to begin.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from threading import Lock

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from lockstep.lake.changed_files import FileChange
from lockstep.lake.deleted_positions import deleted_positions, positions_within
from lockstep.lake.file_batches import file_batches
from lockstep.sql.circuit import SourceTable
from lockstep.threads import in_parallel
from lockstep_engine.deltas import STEP, WEIGHT, quoted
from lockstep_engine.local.changes import consolidated
from lockstep_engine.local.room import has_room
from lockstep_engine.local.rows import Rows
from lockstep_engine.local.values import Unlike
from lockstep_engine.told import types_of_columns

__all__ = ["StepChange", "read_changes", "read_few"]

BYTES_PER_TASK = 64 << 20
_TIMES_HELD = 3
"""So often there is to be room for a table's rows, unless they are few: they are there a few times."""
_TELLING_ROWS = 200_000
"""By so many it is known about how many bytes all of them will have."""
FEW_ROWS = 100_000
FEW_BYTES = 4 * BYTES_PER_TASK
"""Up to so many rows, of columns of so many bytes, are read by this process; more rows where it works
out all that follows from them."""


@dataclass(frozen=True)
class StepChange:
    """What of a file has to be read, and the step it belongs to, counted from the interval's first."""

    step: int
    change: FileChange


@dataclass(frozen=True)
class _ReadFiles:
    """Runs in a task: numbers of changes in, their rows out. All of it goes to the task by value."""

    properties: dict[str, str]
    metadata: TableMetadata
    names: tuple[str, ...]
    changes: tuple[StepChange, ...]
    shape: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = load_file_io(self.properties)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self._rows(files, self.changes[number])

    def few(self, most: int) -> pa.Table | None:
        """All rows, read by this process, if they are no more, little has to be read for them, and there
        is room."""
        rows = sum(_rows_expected(one.change) for one in self.changes)
        if rows > most or self._bytes() > FEW_BYTES:
            return None
        files, room = load_file_io(self.properties), _Room(rows)

        def read(one: StepChange) -> list[pa.RecordBatch]:
            batches = list[pa.RecordBatch]()
            for batch in self._rows(files, one):
                batches.append(batch)
                if not room.is_there_with(batch):
                    break
            return batches

        parts = in_parallel(read, self.changes)
        if room.is_short or sum(batch.num_rows for part in parts for batch in part) > most:
            return None
        return pa.Table.from_batches(chain.from_iterable(parts), schema=self.shape)

    def _bytes(self) -> int:
        """How many there are to read at most, of the wanted columns of each file."""
        schema = self.metadata.schema().select(*self.names, case_sensitive=False)
        files = {one.change.file.file_path: one.change.file for one in self.changes}
        return sum(
            sum(file.column_sizes.get(id_, 0) for id_ in schema.field_ids)
            if file.column_sizes
            else file.file_size_in_bytes
            for file in files.values()
        )

    def _rows(self, files: FileIO, wanted: StepChange) -> Iterator[pa.RecordBatch]:
        change = wanted.change
        path = change.file.file_path
        counted = deleted = deleted_positions(files, change.deleted, path)
        if change.unless is not None:
            unless = deleted_positions(files, change.unless, path)
            counted = np.setdiff1d(unless, deleted, assume_unique=True)
            if not len(counted):
                return
        schema = self.metadata.schema().select(*self.names, case_sensitive=False)
        positions = None if change.unless is None else counted
        for first, batch in file_batches(files, self.metadata, schema, change.file, positions):
            if change.unless is None and not len(counted):
                yield from self._shaped(batch, change.weight, wanted.step)
                continue
            places = positions_within(counted, first, batch.num_rows)
            if change.unless is None:
                places = np.delete(np.arange(batch.num_rows), places)
            rows = batch if len(places) == batch.num_rows else batch.take(pa.array(places))
            yield from self._shaped(rows, change.weight, wanted.step)

    def _shaped(self, rows: pa.RecordBatch, weight: int, step: int) -> Iterator[pa.RecordBatch]:
        by_name = {name.lower(): rows.column(place) for place, name in enumerate(rows.schema.names)}
        columns = [by_name[name].cast(self.shape.field(name).type) for name in self.names]
        numbers = [
            pa.repeat(pa.scalar(value, pa.int64()), rows.num_rows) for value in (weight, step)
        ]
        if rows.num_rows:
            yield pa.RecordBatch.from_arrays([*columns, *numbers], schema=self.shape)


class _Room:
    """Whether there is some for all of about so many rows, which several threads read."""

    def __init__(self, rows: int) -> None:
        self.is_short = False
        self._expected, self._rows, self._bytes = rows, 0, 0
        self._counting = Lock()

    def is_there_with(self, batch: pa.RecordBatch) -> bool:
        """To be asked of each batch. That there is none is seen by the first rows of many."""
        with self._counting:
            self._rows += batch.num_rows
            self._bytes += batch.nbytes
            times = self._expected / self._rows if self._rows >= _TELLING_ROWS else 1.0
            all_bytes = int(max(times, 1.0) * self._bytes)
            if all_bytes > FEW_BYTES and not has_room(_TIMES_HELD * all_bytes - self._bytes):
                self.is_short = True
            return not self.is_short


def _rows_expected(change: FileChange) -> int:
    """How many rows a change has, if no rows of its file came back."""
    if change.unless is None:
        return int(change.file.record_count)
    taken, before = (sum(f.record_count for f in d) for d in (change.unless, change.deleted))
    return max(0, taken - before)


def read_few(
    spark: SparkSession,
    table: Table,
    source: SourceTable,
    columns: tuple[str, ...],
    changes: Sequence[StepChange],
    most: int,
) -> DataFrame | Rows | None:
    """The same as `read_changes`, by this process; None where they are more, or much has to be read."""
    return _read_here(spark, *_reader(spark, table, source, columns, changes), max(most, FEW_ROWS))


def _read_here(
    spark: SparkSession, read: _ReadFiles, schema: StructType, most: int
) -> DataFrame | Rows | None:
    table = read.few(most)
    if table is None:
        return None
    rows, changes = Rows(table, schema), (one.change for one in read.changes)
    if not any(change.weight < 0 and change.unless is None for change in changes):
        return rows
    # A file stands in another's place: netted they are far fewer.
    try:
        return consolidated(rows, read.names)
    except Unlike:
        return rows.along(spark)


def read_changes(
    spark: SparkSession,
    table: Table,
    source: SourceTable,
    columns: tuple[str, ...],
    changes: Sequence[StepChange],
    most: int,
    least_tasks: int,
) -> DataFrame | Rows:
    """The rows of the changes: the wanted columns, `_weight`, `_step`, not netted.

    `columns` are lower-case names of declared columns, at least one. No more than `most`, or a few, are
    read by this process. Large files have tasks of their
    own; small ones share them, but for `least_tasks`.
    """
    read, schema = _reader(spark, table, source, columns, changes)
    few = _read_here(spark, read, schema, max(most, FEW_ROWS))
    if few is not None:
        return few
    size = sum(change.change.file.file_size_in_bytes for change in changes)
    tasks = min(len(changes), max(least_tasks, size // BYTES_PER_TASK))
    numbers = spark.range(0, len(changes), 1, tasks)
    return numbers.mapInArrow(read, schema)


def _reader(
    spark: SparkSession,
    table: Table,
    source: SourceTable,
    columns: tuple[str, ...],
    changes: Sequence[StepChange],
) -> tuple[_ReadFiles, StructType]:
    """What reads the changes, and the types of the rows."""
    types = {column.key: column.type for column in source.columns}
    wanted = ", ".join(f"{quoted(name)} {types[name]}" for name in columns)
    schema = types_of_columns(spark, f"{wanted}, {WEIGHT} bigint, {STEP} bigint")
    no_history: dict[str, object] = {
        "snapshots": [],
        "snapshot_log": [],
        "metadata_log": [],
        "refs": {},
    }
    read = _ReadFiles(
        # A SQL catalog's address may hold its password, and no file is read by it.
        {key: value for key, value in table.io.properties.items() if key != "uri"},
        table.metadata.model_copy(update=no_history),
        columns,
        tuple(changes),
        to_arrow_schema(schema),
    )
    return read, schema
