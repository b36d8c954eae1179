"""One attempt at one interval: read the recorded ranges, run the circuit, append to the branches.

The job is a function of `IntervalJob` alone. It commits nothing: when it returns, its appends stand
on the attempt's branches, and nobody but the attempt can see them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache, reduce

from pyspark.sql import DataFrame, Row, SparkSession

from lockstep.control.job import IntervalJob, IntervalResult, TableWrite
from lockstep.control.ports import Progress, State
from lockstep.errors import BadRecord, FailedRow
from lockstep.ids import FAILED_ROWS_TABLE, errors_table, late_table
from lockstep.lake.opening import OpenCatalog
from lockstep.sql.circuit import ON_ERROR, Circuit, Project, SourceTable
from lockstep.sql.incremental import build_circuit
from lockstep.sql.plans.nodes import Scan
from lockstep.sql.project import parse_project
from lockstep.threads import in_parallel
from lockstep_engine.context import SMALL_RECORDS, Context, Guarding, configure_session
from lockstep_engine.deltas import STEP, absolute_steps
from lockstep_engine.evaluation import Before, Evaluated, evaluate_circuit
from lockstep_engine.failing_rows import FailingRow, find_failing_row
from lockstep_engine.failures import SPARK_ERRORS, first_line, is_of_a_row
from lockstep_engine.ranges import Measures
from lockstep_engine.sources.iceberg import Followed, read_before, read_table, records_before
from lockstep_engine.sources.kafka import Decoded, read_kafka
from lockstep_engine.step_log import STEP_LOG_COLUMNS, step_log
from lockstep_engine.stopwatch import Stopwatch
from lockstep_engine.tables import append, configure_catalog, ensure_table, read_at

__all__ = ["run_interval"]


@dataclass(frozen=True)
class _Frames:
    """What this interval appends, by table: frames, the rows of the step log, and those tables to
    which nothing goes."""

    appends: Mapping[str, DataFrame]
    steps: Mapping[str, Sequence[Mapping[str, object]]]
    untouched: Mapping[str, DataFrame]

    @property
    def touched(self) -> list[str]:
        """The tables to which something goes."""
        return sorted((*self.appends, *self.steps))


def run_interval(
    spark: SparkSession, job: IntervalJob, state: State, progress: Progress
) -> IntervalResult:
    """Run an attempt. Raises BadRecord where a source says on_error = 'fail', before any append, and
    FailedRow where the project says so and an expression fails for a row.

    `tables` of the result names every table of the circuit: the head of this attempt's branch where
    it appended, else the snapshot of the version opened (the root of a new table).
    """
    watch = Stopwatch()
    with watch.part("compile"):
        project = parse_project(job.files, job.variables)
        circuit = build_circuit(project)
        configure_catalog(spark, job.catalog)
    attempt = _Attempt(spark, job, state, progress, project, circuit, watch)
    # A row that has failed may be read again, from what was there before.
    if FAILED_ROWS_TABLE in job.base_tables:
        return attempt.run_guarded()
    try:
        return attempt.run()
    except SPARK_ERRORS as error:
        if not is_of_a_row(error):
            raise
        progress(
            f"an expression fails for a row; once more, without such rows: {first_line(error)}"
        )
    with watch.part("anew"):
        in_parallel(lambda table: state.drop_refs(table, [job.branch]), state.tables())
    return attempt.run_guarded()


@dataclass(frozen=True)
class _Attempt:
    """An attempt at work; with `guarding`, rows for which an expression fails are taken out."""

    spark: SparkSession
    job: IntervalJob
    state: State
    progress: Progress
    project: Project
    circuit: Circuit
    watch: Stopwatch
    guarding: Guarding | None = None

    def run(self) -> IntervalResult:
        """Read, evaluate, append."""
        context = self._context(self.job.interval.records)
        kept: list[DataFrame] = [] if self.guarding is None else self.guarding.kept
        try:
            with self.watch.part("decode"):
                decoded = self._decode(context)
                kept.extend(frame for one in decoded.values() for frame in one.kept)
                catalog = OpenCatalog(self.job.catalog)
                followed = self._follow(context, catalog)
                kept.extend(frame for one in followed.values() for frame in one.kept)
                bad = self._count_errors(decoded)
                deltas = {name: one.delta for name, one in decoded.items()}
                deltas.update({name: one.delta for name, one in followed.items()})
                measures = Measures(deltas)
                context = self._netted(context, followed, measures)
            with self.watch.part("build"):
                silent, before = self._silent(deltas), self._before(catalog)
                evaluated = evaluate_circuit(
                    self.circuit, deltas, silent, before, context, measures
                )
                kept.extend(evaluated.kept)
                frames = self._frames(decoded, bad, evaluated)
            return self._write(frames)
        finally:
            for frame in kept:
                frame.unpersist()

    def run_guarded(self) -> IntervalResult:
        """The same without the rows for which an expression fails."""
        guarding = Guarding()
        try:
            return replace(self, guarding=guarding).run()
        except SPARK_ERRORS as error:
            if not is_of_a_row(error):
                raise
            context = self._context(self.job.interval.records)
            found = find_failing_row(guarding.looked_at, context)
            if found is None:
                raise
            raise _unguarded_row(found, self.job.interval.first_step) from error

    def _context(self, records: int) -> Context:
        job = self.job
        partitions = 2 if records <= SMALL_RECORDS else 8
        configure_session(self.spark, partitions)
        before = None if job.time_before is None else _microseconds(job.time_before)
        times = tuple(_microseconds(division.time) for division in job.interval.divisions)
        return Context(
            self.spark,
            records,
            partitions,
            is_first=not job.base_tables,
            times=times,
            time_before=before,
            guarding=self.guarding,
        )

    def _decode(self, context: Context) -> Mapping[str, Decoded]:
        """The decoded deltas and errors of every source, lazily; each topic is read once."""
        return {
            source.name: read_kafka(
                self.spark, source, self._wanted_columns(source), self.job.interval, context
            )
            for source in self.project.sources
            if not source.is_table
        }

    def _follow(self, context: Context, catalog: OpenCatalog) -> Mapping[str, Followed]:
        """The changes of every followed table, lazily; metadata is read now, that of each table once."""
        sources = [source for source in self.project.sources if source.is_table]

        def follow(source: SourceTable) -> Followed:
            columns, interval = self._wanted_columns(source), self.job.interval
            return read_table(
                self.spark, source, columns, interval, catalog, context, self.progress
            )

        return dict(zip((s.name for s in sources), in_parallel(follow, sources), strict=True))

    def _wanted_columns(self, source: SourceTable) -> tuple[str, ...]:
        """The columns that any scan of the source wants, in declared order."""
        wanted = {
            column
            for operator in self.circuit.operators
            if isinstance(operator.node, Scan) and operator.node.source == source.name
            for column in operator.node.columns
        }
        return tuple(column.key for column in source.columns if column.key in wanted)

    def _count_errors(self, decoded: Mapping[str, Decoded]) -> Mapping[str, int]:
        """Count bad records by source: this is the action that reads Kafka and fills the kept frames."""
        names = list(decoded)
        bad = dict(zip(names, in_parallel(lambda n: decoded[n].errors.count(), names), strict=True))
        for source in self.project.sources:
            if bad.get(source.name) and source.options.get("on_error", "table") == "fail":
                raise _bad_record(source, decoded[source.name].errors)
        interval = self.job.interval
        self.progress(
            f"steps {interval.first_step}..{interval.last_step}: read {interval.records:,} "
            f"records of {len(self.project.sources)} sources, {sum(bad.values()):,} of them bad"
        )
        return bad

    def _netted(
        self, context: Context, followed: Mapping[str, Followed], measures: Measures
    ) -> Context:
        """The context with netted changes counted: a file that was rewritten for one row has as many
        rows as before, and what is broadcast or shuffled depends on it. This also fills kept frames."""
        netted = {name: one.records for name, one in followed.items() if one.is_netted}
        if not netted:
            return context
        counted = sum(found.rows for found in in_parallel(measures.of, netted))
        records = self.job.interval.records - sum(netted.values()) + counted
        return replace(self._context(records), types=context.types)

    def _silent(self, sources: Iterable[str]) -> frozenset[str]:
        """The sources without a record in any step of a later interval."""
        divisions = self.job.interval.divisions
        read = {s.source for d in divisions for s in d.slices if s.records}
        return frozenset(sources) - read if self.job.base_tables else frozenset()

    def _before(self, catalog: OpenCatalog) -> Before:
        job = self.job
        sources = {source.name: source for source in self.project.sources}
        return Before(
            self._trace,
            lambda name, columns: read_before(self.spark, sources[name], columns, job.interval),
            cache(lambda table: self.state.total_records(table, job.base_tables[table])),
            cache(lambda name: records_before(sources[name], job.interval, catalog)),
        )

    def _trace(self, table: str) -> DataFrame | None:
        snapshot = self.job.base_tables.get(table)
        return None if snapshot is None else read_at(self.spark, self.job.catalog, table, snapshot)

    def _frames(
        self, decoded: Mapping[str, Decoded], bad: Mapping[str, int], evaluated: Evaluated
    ) -> _Frames:
        """Divide the tables into those that get rows and those that do not but may have to be made."""
        untouched: dict[str, DataFrame] = {}
        outboxes = {table: self._recorded(rows) for table, rows in evaluated.outboxes.items()}
        appends = {**evaluated.appends, **outboxes}
        for source, one in decoded.items():
            errors = self._recorded(one.errors)
            (appends if bad[source] else untouched)[errors_table(source)] = errors
        for source, late in evaluated.late.items():
            rows = self._recorded(_as_declared(self.project, source, late.rows))
            (appends if late.is_any else untouched)[late_table(source)] = rows
        failed = self._failed()
        if failed is not None:
            appends[FAILED_ROWS_TABLE] = self._recorded(failed)
        return _Frames(appends, step_log(self.job.interval), untouched)

    def _failed(self) -> DataFrame | None:
        """The rows for which an expression failed, None where there are none."""
        noted = [] if self.guarding is None else self.guarding.noted
        if not noted:
            return None
        failed = reduce(DataFrame.union, noted)
        first = failed.orderBy(STEP, "expression", "row").first()
        if first is not None and not self.project.keeps_failed_rows:
            raise _failed_row(first, self.job.interval.first_step)
        return None if first is None else failed

    def _recorded(self, rows: DataFrame) -> DataFrame:
        return absolute_steps(rows, self.job.interval.first_step, self.job.interval.last_step)

    def _write(self, frames: _Frames) -> IntervalResult:
        """Append every table to the attempt's branch."""
        job, state, watch = self.job, self.state, self.watch
        frame_of = {**frames.appends, **frames.untouched}
        new = [t for t in sorted({*frame_of, *frames.steps}) if t not in job.base_tables]

        def make(table: str) -> None:
            frame = frame_of.get(table)
            if frame is None:
                frame = self.spark.createDataFrame([], STEP_LOG_COLUMNS[table])
            ensure_table(self.spark, job.catalog, table, frame)

        def write(table: str) -> None:
            summary = _summary(job, table)
            with watch.part(f"append {table}"):
                if table in frames.steps:
                    # Rows that are known here: a Spark job would take several times as long.
                    state.append_rows(table, job.branch, frames.steps[table], summary)
                else:
                    append(job.catalog, table, job.branch, frames.appends[table], summary)

        with watch.part("create tables"):
            in_parallel(make, new)
        with watch.part("branches"):
            opened_tables = sorted({*frames.touched, *new})
            opened = in_parallel(
                lambda t: state.open_branch(t, job.branch, job.base_tables.get(t)), opened_tables
            )
        tables = {**job.base_tables, **dict(zip(opened_tables, opened, strict=True))}
        with watch.part("append"):
            in_parallel(write, frames.touched)
        with watch.part("heads"):
            writes = tuple(in_parallel(self._written, frames.touched))
        tables.update({write.table: write.snapshot_id for write in writes})
        self.progress(
            f"steps {job.interval.first_step}..{job.interval.last_step}: appended "
            f"{sum(write.records for write in writes):,} rows to {len(writes)} tables"
        )
        return IntervalResult(tables, writes, watch.seconds)

    def _written(self, table: str) -> TableWrite:
        head = self.state.head(table, self.job.branch)
        records = self.state.added_records(table, head)
        return TableWrite(table, _write_id(self.job, table), head, records)


def _microseconds(time: datetime) -> int:
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _bad_record(source: SourceTable, errors: DataFrame) -> BadRecord:
    first = errors.orderBy("partition", "offset").first()
    assert first is not None, "the caller has counted at least one"
    return BadRecord(
        f"source {source.name}: partition {first['partition']} offset {first['offset']} "
        "could not be decoded, and the source says on_error = 'fail'",
        expected="a record as the source declares it",
        found=str(first["reason"]),
        next_step="correct the producer, or set 'on_error' = 'table' and deploy again",
    )


def _failed_row(row: Row, first_step: int) -> FailedRow:
    views = ", ".join(row["views"])
    return FailedRow(
        f"step {first_step + row[STEP]}: an expression of {views} fails for a row, and the project "
        f"says `{ON_ERROR}: fail`",
        expected=f"a value of {row['expression']}",
        found=f"none for {row['row']}",
        next_step="write the expression with a try_ function or a CASE, or remove the setting: the "
        f"row then goes to {FAILED_ROWS_TABLE}",
    )


def _unguarded_row(found: FailingRow, first_step: int) -> FailedRow:
    return FailedRow(
        f"step {first_step + found.step}: an expression of {', '.join(found.views)} fails for a row, "
        "in a way that has no try_ form",
        expected="a value",
        found=f"{first_line(found.error)} For the row {found.row}",
        next_step="write the expression with a CASE, or filter such rows before it",
    )


def _as_declared(project: Project, source: str, rows: DataFrame) -> DataFrame:
    """A source's rows under the names as they were declared."""
    [declared] = [one.columns for one in project.sources if one.name == source]
    return rows.withColumnsRenamed({column.key: column.name for column in declared})


def _write_id(job: IntervalJob, table: str) -> str:
    return f"{job.attempt}:{table}"


def _summary(job: IntervalJob, table: str) -> Mapping[str, str]:
    """What each appended snapshot says about itself; from these the store can be rebuilt."""
    return {
        "lockstep.write": _write_id(job, table),
        "lockstep.attempt": job.attempt,
        "lockstep.incarnation": job.incarnation,
        "lockstep.version": str(job.base_version + 1),
        "lockstep.step": str(job.interval.last_step),
        "lockstep.layout": str(job.layout_epoch),
    }
