"""Iceberg tables as deltas: exactly what the recorded snapshots changed, each change in its step.

The law: the sum of a source's delta up to a step is the table's rows at the snapshot that the step ends
at. How the rows are found (`control.table_history.Reading`) changes what is read, and never the sum:
the files that were appended, the files that differ, or all rows at both snapshots.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from lockstep.control.model import Interval, TableSlice
from lockstep.control.ports import Progress
from lockstep.control.table_history import Reading
from lockstep.lake.changed_files import (
    FileChange,
    appended_files,
    changed_files,
)
from lockstep.lake.file_batches import are_readable
from lockstep.lake.following import check_columns, load_followed, table_history
from lockstep.lake.lookups import look_up
from lockstep.lake.opening import OpenCatalog
from lockstep.lake.wanted_rows import Numbers
from lockstep.sql.circuit import SourceTable
from lockstep_engine.context import Context
from lockstep_engine.deltas import STEP, WEIGHT, columns_of, consolidate, quoted, union
from lockstep_engine.local.rows import Rows
from lockstep_engine.sources.file_rows import StepChange, read_changes, read_few
from lockstep_engine.told import no_rows, types_of_columns

__all__ = [
    "Followed",
    "declared_types",
    "look_up_before",
    "read_before",
    "read_table",
    "records_before",
]


@dataclass(frozen=True)
class Followed:
    """The changes of one followed table in one interval.

    `delta`: the wanted columns under their lower-case names, `_weight bigint`, `_step bigint`; the rows,
    where this process has read them. A frame is marked as persisted where it is in `kept`, on which
    whoever asked for it calls `unpersist` when done, as it is where the change is small, or netted.
    `is_netted`: it may hold far fewer rows than `records`, the upper bound that is recorded, for which
    files that were rewritten count whole. `is_silent`: it is known to hold none.
    """

    delta: DataFrame | Rows
    records: int
    is_netted: bool = False
    is_silent: bool = False
    kept: tuple[DataFrame, ...] = field(default=())


@dataclass(frozen=True)
class _Step:
    """A slice that changes rows: `number` is the step's, counted from the interval's first."""

    number: int
    slice: TableSlice
    reading: Reading


@dataclass(frozen=True)
class _Reader:
    """One table in one interval: its metadata is read once, when this is made."""

    spark: SparkSession
    source: SourceTable
    columns: tuple[str, ...]
    table: Table
    context: Context
    progress: Progress

    @property
    def name(self) -> str:
        """The table as SQL text."""
        return _name(self.source)

    def shown(self, rows: DataFrame, weight: int, *more: str) -> DataFrame:
        """The wanted columns as declared, and a weight."""
        return _shown(self.source, rows, self.columns, weight, *more)

    def all_rows(self, snapshot_id: int | None, weight: int, step: int) -> Iterator[DataFrame]:
        """The rows at a snapshot; nothing where there is none."""
        if snapshot_id is not None:
            rows = _at(self.spark, self.source, snapshot_id)
            yield self.shown(rows, weight, f"{step}L AS {STEP}")

    def appended(self, run: Sequence[_Step]) -> DataFrame | Rows:
        """The rows appended by a run of steps, in one read: here, where they are few."""
        found = None
        if self.context.is_small or self.context.is_all_here:
            files = self._appended_files(run)
            found = self._here([StepChange(number, FileChange(1, f, ())) for f, number in files])
        return self._appended_by_spark(run) if found is None else found

    def first_rows(self, step: _Step) -> Iterator[DataFrame | Rows]:
        """The rows at the end of a step before which there were none."""
        snapshot, found = step.slice.end, None
        changes = changed_files(self.table, None, snapshot) if self.context.is_all_here else None
        if changes is not None:
            found = self._here([StepChange(step.number, one) for one in changes])
        if found is not None:
            yield found
        else:
            yield from self.all_rows(snapshot, 1, step.number)

    def _here(self, changes: Sequence[StepChange]) -> DataFrame | Rows | None:
        """The rows, read by this process; None where that is not for it."""
        files = [one.change.file for one in changes]
        if not are_readable(self.table, self.columns, files):
            return None
        return read_few(self.spark, self.table, self.source, self.columns, changes, self._most)

    @property
    def _most(self) -> int:
        """So many rows are read by this process, if they are more than a few."""
        return self.context.records if self.context.is_all_here else 0

    def _appended_files(self, run: Sequence[_Step]) -> Iterator[tuple[DataFile, int]]:
        """The files that the steps added, each with the number of its step."""
        for step in run:
            if step.slice.end is not None:
                for file in appended_files(self.table, step.slice.start, step.slice.end):
                    yield file, step.number

    def _appended_by_spark(self, run: Sequence[_Step]) -> DataFrame:
        """Of several steps, a row's is that of its file: a read for each would make a plan that grows
        with them.

        By `load`, as Spark looks a table that is read by `table` up once a plan: a second read of it
        would silently get the options, and so the snapshots, of the first.
        """
        rows = (
            self.spark.read.format("iceberg")
            .option("start-snapshot-id", str(run[0].slice.start))
            .option("end-snapshot-id", str(run[-1].slice.end))
            .load(self.name)
        )
        if len(run) == 1:
            return self.shown(rows, 1, f"{run[0].number}L AS {STEP}")
        files = [(file.file_path, number) for file, number in self._appended_files(run)]
        declared = f"_lockstep_file string, {STEP} bigint"
        steps = self.spark.createDataFrame(files, types_of_columns(self.spark, declared))
        of_file = F.expr("_file = _lockstep_file")
        return self.shown(rows.select("*", "_file").join(F.broadcast(steps), of_file), 1, STEP)

    def differences(self, steps: Sequence[_Step]) -> Iterator[DataFrame | Rows]:
        """What these steps add and take away, not netted."""
        changes: list[StepChange] = []
        for step in steps:
            ends = (step.slice.start, step.slice.end)
            found = changed_files(self.table, *ends)
            files = [change.file for change in found or ()]
            if found is None or not are_readable(self.table, self.columns, files):
                self.progress(
                    f"source {self.source.name}: snapshots {step.slice.start} and {step.slice.end} have "
                    "files or columns that only a full read can compare; all rows of both are read"
                )
                for end, weight in zip(ends, (-1, 1), strict=True):
                    yield from self.all_rows(end, weight, step.number)
            else:
                changes += [StepChange(step.number, change) for change in found]
        if changes:
            yield read_changes(
                self.spark,
                self.table,
                self.source,
                self.columns,
                changes,
                self._most,
                self.context.partitions,
            )


def read_table(
    spark: SparkSession,
    source: SourceTable,
    columns: tuple[str, ...],
    interval: Interval,
    catalog: OpenCatalog,
    context: Context,
    progress: Progress,
) -> Followed:
    """What the interval's slices of `source` change; `columns` are the wanted ones.

    Reads the table's metadata, and the manifests of files that differ; rows are read lazily. The
    session's time zone must be UTC. Raises SourceChanged where the table was made anew, has lost a
    snapshot that is needed, or has other columns by now.
    """
    slices = [
        (number, slice_)
        for number, division in enumerate(interval.divisions)
        for slice_ in division.slices
        if isinstance(slice_, TableSlice) and slice_.source == source.name and not slice_.is_empty
    ]
    if not slices:
        return _no_change(spark, source, columns, context)
    table = load_followed(catalog, source)
    steps = _steps(source, table, slices)
    # A table of which nothing is wanted but how many rows there are still has to be read.
    reader = _Reader(spark, source, columns or (source.columns[0].key,), table, context, progress)
    added = [
        *(reader.appended(run) for run in _runs(steps)),
        *(rows for step in _of(steps, Reading.ALL) for rows in reader.first_rows(step)),
    ]
    differences = list(reader.differences(_of(steps, Reading.DIFFERENCE)))
    if not added and not differences:
        return _no_change(spark, source, columns, context)
    wanted, records = (*columns, WEIGHT, STEP), sum(slice_.records for _, slice_ in slices)
    known = [one for one in (*added, *differences) if isinstance(one, Rows)]
    if len(known) == len(added) + len(differences):
        # What cancels is little, as no file stands in another's place: it is left to the operators that
        # have to net what they read.
        rows = Rows.together(known).select(wanted)
        return Followed(rows, records, is_netted=True, is_silent=not len(rows))
    parts = [_as_frame(spark, one) for one in added]
    if differences:
        changed = union([_as_frame(spark, one) for one in differences])
        parts.append(consolidate(changed, reader.columns))
    delta = union(parts).select(*columns_of(wanted))
    if not differences and not context.is_small:
        # Each operator reads from the table what it wants of it, sooner than all of it would be kept.
        return Followed(delta, records)
    delta = delta.persist()
    return Followed(delta, records, bool(differences), kept=(delta,))


def _as_frame(spark: SparkSession, rows: DataFrame | Rows) -> DataFrame:
    return rows.along(spark) if isinstance(rows, Rows) else rows


def read_before(
    spark: SparkSession, source: SourceTable, columns: tuple[str, ...], interval: Interval
) -> DataFrame:
    """The rows that the table had before the interval: `columns` and `_weight`."""
    start = _start(source, interval)
    if start is None:
        return _nothing(spark, source, columns).drop(STEP)
    return _shown(source, _at(spark, source, start), columns, 1)


def look_up_before(
    spark: SparkSession,
    source: SourceTable,
    columns: tuple[str, ...],
    keys: Mapping[str, Numbers],
    interval: Interval,
    catalog: OpenCatalog,
    times: int = 1,
) -> Rows | None:
    """Of the rows that the table had before the interval at least those that hold wanted numbers, or
    null, in the columns `keys`, or all: `columns` and `_weight`. Read here; None where Spark should."""
    start = _start(source, interval)
    schema = types_of_columns(spark, _declared(source, columns))
    if start is None:
        return Rows(to_arrow_schema(schema).empty_table(), schema).with_number(WEIGHT, 1)
    table = load_followed(catalog, source)
    found = look_up(table, start, columns, keys, catalog.copies, times)
    return None if found is None else Rows.of(found, schema).with_number(WEIGHT, 1)


def declared_types(spark: SparkSession, source: SourceTable) -> StructType:
    """The columns of a followed table, by their lower-case names."""
    return types_of_columns(spark, _declared(source, tuple(one.key for one in source.columns)))


def records_before(source: SourceTable, interval: Interval, catalog: OpenCatalog) -> int:
    """How many rows the table had before the interval at most, by its snapshot's summary."""
    start = _start(source, interval)
    snapshot = start and load_followed(catalog, source).metadata.snapshot_by_id(start)
    if not snapshot or snapshot.summary is None:
        return 0
    return int(snapshot.summary.additional_properties.get("total-records", "0"))


def _start(source: SourceTable, interval: Interval) -> int | None:
    """The snapshot that the interval starts from."""
    slices = interval.divisions[0].slices
    starts = (
        slice_.start
        for slice_ in slices
        if isinstance(slice_, TableSlice) and slice_.source == source.name
    )
    return next(starts, None)  # a source that was declared after the interval was divided


def _name(source: SourceTable) -> str:
    return ".".join(map(quoted, source.table.split(".")))


def _at(spark: SparkSession, source: SourceTable, snapshot_id: int) -> DataFrame:
    return spark.read.option("versionAsOf", snapshot_id).table(_name(source))


def _shown(
    source: SourceTable, rows: DataFrame, columns: tuple[str, ...], weight: int, *more: str
) -> DataFrame:
    """The columns as declared (an older snapshot may have narrower types), and a weight."""
    types = {column.key: column.type for column in source.columns}
    casts = [f"CAST({quoted(c)} AS {types[c]}) AS {quoted(c)}" for c in columns]
    return rows.selectExpr(*casts, f"{weight}L AS {WEIGHT}", *more)


def _steps(
    source: SourceTable, table: Table, slices: Sequence[tuple[int, TableSlice]]
) -> tuple[_Step, ...]:
    """The slices with how each is read; those that change no row are left out."""
    check_columns(source, table.metadata)
    history = table_history(source, table.metadata)
    for _, slice_ in slices:
        history.check_same(slice_)
    steps = (_Step(number, s, history.reading(s.start, s.end)) for number, s in slices)
    return tuple(step for step in steps if step.reading is not Reading.NOTHING)


def _of(steps: Sequence[_Step], reading: Reading) -> tuple[_Step, ...]:
    return tuple(step for step in steps if step.reading is reading)


def _runs(steps: Sequence[_Step]) -> Iterator[list[_Step]]:
    """The appending steps in runs, in which each starts where the one before it ends."""
    run: list[_Step] = []
    for step in _of(steps, Reading.APPENDS):
        if run and run[-1].slice.end != step.slice.start:
            yield run
            run = []
        run.append(step)
    if run:
        yield run


def _no_change(
    spark: SparkSession, source: SourceTable, columns: tuple[str, ...], context: Context
) -> Followed:
    if not context.is_all_here:
        return Followed(_nothing(spark, source, columns), 0, is_silent=True)
    schema = types_of_columns(
        spark, _declared(source, columns, f"{WEIGHT} bigint", f"{STEP} bigint")
    )
    return Followed(Rows(to_arrow_schema(schema).empty_table(), schema), 0, is_silent=True)


def _declared(source: SourceTable, columns: tuple[str, ...], *more: str) -> str:
    types = {column.key: column.type for column in source.columns}
    return ", ".join([*(f"{quoted(name)} {types[name]}" for name in columns), *more])


def _nothing(spark: SparkSession, source: SourceTable, columns: tuple[str, ...]) -> DataFrame:
    """No change at all: the catalog is not asked."""
    return no_rows(spark, _declared(source, columns, f"{WEIGHT} bigint", f"{STEP} bigint"))
