"""Rows of single data files of an Iceberg table, read by Spark's tasks through PyIceberg.

Spark itself reads tables, not files: asked for the rows of one file it reads all of them. Here a task
is given a file, and the positions in it that count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.puffin import PuffinFile
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from lockstep.lake.changed_files import FileChange
from lockstep.sql.circuit import SourceTable
from lockstep_engine.deltas import STEP, WEIGHT, quoted

__all__ = ["StepChange", "read_changes"]


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

    def _rows(self, files: FileIO, wanted: StepChange) -> Iterator[pa.RecordBatch]:
        change = wanted.change
        path = change.file.file_path
        deleted = _positions(files, change.deleted, path)
        only: pa.Array | None = None
        if change.unless is not None:
            others = _positions(files, change.unless, path)
            only = others.filter(pc.invert(pc.is_in(others, value_set=deleted)))
            if not len(only):
                return
        schema = self.metadata.schema().select(*self.names, case_sensitive=False)
        scan = ArrowScan(self.metadata, files, schema, AlwaysTrue())
        first = 0
        for batch in scan.to_record_batches([FileScanTask(change.file)]):
            positions = pa.array(range(first, first + batch.num_rows), pa.int64())
            first += batch.num_rows
            if only is not None:
                live = pc.is_in(positions, value_set=only)
            else:
                live = pc.invert(pc.is_in(positions, value_set=deleted))
            yield from self._shaped(batch.filter(live), change.weight, wanted.step)

    def _shaped(self, rows: pa.RecordBatch, weight: int, step: int) -> Iterator[pa.RecordBatch]:
        by_name = {name.lower(): rows.column(place) for place, name in enumerate(rows.schema.names)}
        columns = [by_name[name].cast(self.shape.field(name).type) for name in self.names]
        numbers = [
            pa.repeat(pa.scalar(value, pa.int64()), rows.num_rows) for value in (weight, step)
        ]
        if rows.num_rows:
            yield pa.RecordBatch.from_arrays([*columns, *numbers], schema=self.shape)


def _positions(files: FileIO, deletes: Sequence[DataFile], path: str) -> pa.Array:
    """The positions in the file at `path` that the delete files name."""
    found = [chunk for delete in deletes for chunk in _read_delete_file(files, delete, path)]
    return pa.concat_arrays(
        [chunk.cast(pa.int64()) for chunk in (pa.array([], pa.int64()), *found)]
    )


def _read_delete_file(files: FileIO, delete: DataFile, path: str) -> list[pa.Array]:
    with files.new_input(delete.file_path).open() as opened:
        if delete.file_format is FileFormat.PUFFIN:
            vectors = deletion_vectors_from_puffin_file(PuffinFile(opened.read()))
            return [
                chunk
                for vector in vectors
                if vector.referenced_data_file == path
                for chunk in vector.to_vector().chunks
            ]
        named = pq.read_table(
            opened, columns=["file_path", "pos"], filters=[("file_path", "=", path)]
        )
        return list(named.column("pos").chunks)


def read_changes(
    spark: SparkSession,
    table: Table,
    source: SourceTable,
    columns: tuple[str, ...],
    changes: Sequence[StepChange],
    tasks: int,
) -> DataFrame:
    """The rows of the changes, lazily: `columns`, `_weight`, `_step`; not netted.

    `columns` are lower-case names of declared columns, at least one. Read in at most `tasks` tasks.
    """
    types = {column.key: column.type for column in source.columns}
    wanted = ", ".join(f"{quoted(name)} {types[name]}" for name in columns)
    schema = spark.createDataFrame([], f"{wanted}, {WEIGHT} bigint, {STEP} bigint").schema
    no_history: dict[str, object] = {
        "snapshots": [],
        "snapshot_log": [],
        "metadata_log": [],
        "refs": {},
    }
    read = _ReadFiles(
        dict(table.io.properties),
        table.metadata.model_copy(update=no_history),
        columns,
        tuple(changes),
        to_arrow_schema(schema),
    )
    numbers = spark.range(0, len(changes), 1, min(tasks, len(changes)))
    return numbers.mapInArrow(read, schema)
