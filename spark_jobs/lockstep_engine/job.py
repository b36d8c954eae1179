"""One attempt at one interval: read the recorded ranges, run the circuit, append to the branches.

The job is a function of `IntervalJob` alone. It commits nothing: when it returns, its appends stand
on the attempt's branches, and nobody but the attempt can see them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache

from pyspark.sql import DataFrame, SparkSession

from lockstep.control.job import IntervalJob, IntervalResult, TableWrite
from lockstep.control.ports import Progress, State
from lockstep.errors import BadRecord
from lockstep.ids import errors_table, late_table
from lockstep.lake.opening import OpenCatalog
from lockstep.sql.circuit import Circuit, Project, SourceTable
from lockstep.sql.incremental import build_circuit
from lockstep.sql.plans.nodes import Scan
from lockstep.sql.project import parse_project
from lockstep.threads import in_parallel
from lockstep_engine.context import SMALL_RECORDS, Context, configure_session
from lockstep_engine.deltas import absolute_steps
from lockstep_engine.evaluation import Before, Evaluated, evaluate_circuit
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
    """Run an attempt. Raises BadRecord where a source says on_error = 'fail', before any append.

    `tables` of the result names every table of the circuit: the head of this attempt's branch where
    it appended, else the snapshot of the version opened (the root of a new table).
    """
    watch = Stopwatch()
    with watch.part("compile"):
        project = parse_project(job.files, job.variables)
        circuit = build_circuit(project)
        configure_catalog(spark, job.catalog)
        context = _context(spark, job, job.interval.records)
    kept: list[DataFrame] = []
    try:
        with watch.part("decode"):
            decoded = _decode(spark, job, project, circuit, context)
            kept.extend(frame for one in decoded.values() for frame in one.kept)
            catalog = OpenCatalog(job.catalog)
            followed = _follow(spark, job, project, circuit, context, catalog, progress)
            kept.extend(frame for one in followed.values() for frame in one.kept)
            bad = _count_errors(job, project, decoded, progress)
            deltas = {name: one.delta for name, one in decoded.items()}
            deltas.update({name: one.delta for name, one in followed.items()})
            measures = Measures(deltas)
            context = _netted(context, job, followed, measures)
        with watch.part("build"):
            evaluated = evaluate_circuit(
                circuit,
                deltas,
                _silent(job, deltas),
                _before(spark, job, project, state, catalog),
                context,
                measures,
            )
            kept.extend(evaluated.kept)
            frames = _frames(job, project, decoded, bad, evaluated)
        return _write(spark, job, state, frames, watch, progress)
    finally:
        for frame in kept:
            frame.unpersist()


def _context(spark: SparkSession, job: IntervalJob, records: int) -> Context:
    partitions = 2 if records <= SMALL_RECORDS else 8
    configure_session(spark, partitions)
    before = None if job.time_before is None else _microseconds(job.time_before)
    times = tuple(_microseconds(division.time) for division in job.interval.divisions)
    return Context(spark, records, partitions, not job.base_tables, times, before)


def _microseconds(time: datetime) -> int:
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _read_trace(spark: SparkSession, job: IntervalJob, table: str) -> DataFrame | None:
    snapshot = job.base_tables.get(table)
    return None if snapshot is None else read_at(spark, job.catalog, table, snapshot)


def _before(
    spark: SparkSession, job: IntervalJob, project: Project, state: State, catalog: OpenCatalog
) -> Before:
    sources = {source.name: source for source in project.sources}
    return Before(
        lambda table: _read_trace(spark, job, table),
        lambda name, columns: read_before(spark, sources[name], columns, job.interval),
        cache(lambda table: state.total_records(table, job.base_tables[table])),
        cache(lambda name: records_before(sources[name], job.interval, catalog)),
    )


def _silent(job: IntervalJob, sources: Iterable[str]) -> frozenset[str]:
    """The sources without a record in any step of a later interval."""
    read = {s.source for d in job.interval.divisions for s in d.slices if s.records}
    return frozenset(sources) - read if job.base_tables else frozenset()


def _wanted_columns(circuit: Circuit, source: SourceTable) -> tuple[str, ...]:
    """The columns that any scan of the source wants, in declared order."""
    wanted = {
        column
        for operator in circuit.operators
        if isinstance(operator.node, Scan) and operator.node.source == source.name
        for column in operator.node.columns
    }
    return tuple(column.key for column in source.columns if column.key in wanted)


def _decode(
    spark: SparkSession,
    job: IntervalJob,
    project: Project,
    circuit: Circuit,
    context: Context,
) -> Mapping[str, Decoded]:
    """The decoded deltas and errors of every source, lazily; each topic is read once."""
    return {
        source.name: read_kafka(
            spark, source, _wanted_columns(circuit, source), job.interval, context
        )
        for source in project.sources
        if not source.is_table
    }


def _follow(
    spark: SparkSession,
    job: IntervalJob,
    project: Project,
    circuit: Circuit,
    context: Context,
    catalog: OpenCatalog,
    progress: Progress,
) -> Mapping[str, Followed]:
    """The changes of every followed table, lazily; metadata is read now, that of each table once."""
    sources = [source for source in project.sources if source.is_table]

    def follow(source: SourceTable) -> Followed:
        columns = _wanted_columns(circuit, source)
        return read_table(spark, source, columns, job.interval, catalog, context, progress)

    return dict(zip((s.name for s in sources), in_parallel(follow, sources), strict=True))


def _netted(
    context: Context, job: IntervalJob, followed: Mapping[str, Followed], measures: Measures
) -> Context:
    """The context with netted changes counted: a file that was rewritten for one row has as many rows
    as before, and what is broadcast or shuffled depends on it. This also fills kept frames."""
    netted = {name: one.records for name, one in followed.items() if one.is_netted}
    if not netted:
        return context
    counted = sum(found.rows for found in in_parallel(measures.of, netted))
    records = job.interval.records - sum(netted.values()) + counted
    return replace(_context(context.spark, job, records), types=context.types)


def _count_errors(
    job: IntervalJob, project: Project, decoded: Mapping[str, Decoded], progress: Progress
) -> Mapping[str, int]:
    """Count bad records by source: this is the action that reads Kafka and fills the kept frames."""
    names = list(decoded)
    bad = dict(zip(names, in_parallel(lambda n: decoded[n].errors.count(), names), strict=True))
    for source in project.sources:
        if bad.get(source.name) and source.options.get("on_error", "table") == "fail":
            raise _bad_record(source, decoded[source.name].errors)
    progress(
        f"steps {job.interval.first_step}..{job.interval.last_step}: read {job.interval.records:,} "
        f"records of {len(project.sources)} sources, {sum(bad.values()):,} of them bad"
    )
    return bad


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


def _recorded(job: IntervalJob, rows: DataFrame) -> DataFrame:
    return absolute_steps(rows, job.interval.first_step, job.interval.last_step)


def _frames(
    job: IntervalJob,
    project: Project,
    decoded: Mapping[str, Decoded],
    bad: Mapping[str, int],
    evaluated: Evaluated,
) -> _Frames:
    """Divide the tables into those that get rows and those that do not but may have to be made."""
    untouched: dict[str, DataFrame] = {}
    outboxes = {table: _recorded(job, rows) for table, rows in evaluated.outboxes.items()}
    appends = {**evaluated.appends, **outboxes}
    for source, one in decoded.items():
        errors = _recorded(job, one.errors)
        (appends if bad[source] else untouched)[errors_table(source)] = errors
    for source, late in evaluated.late.items():
        rows = _recorded(job, _as_declared(project, source, late.rows))
        (appends if late.is_any else untouched)[late_table(source)] = rows
    return _Frames(appends, step_log(job.interval), untouched)


def _as_declared(project: Project, source: str, rows: DataFrame) -> DataFrame:
    """A source's rows under the names as they were declared."""
    [declared] = [one.columns for one in project.sources if one.name == source]
    return rows.withColumnsRenamed({column.key: column.name for column in declared})


def _write(
    spark: SparkSession,
    job: IntervalJob,
    state: State,
    frames: _Frames,
    watch: Stopwatch,
    progress: Progress,
) -> IntervalResult:
    frame_of = {**frames.appends, **frames.untouched}
    new = [t for t in sorted({*frame_of, *frames.steps}) if t not in job.base_tables]

    def make(table: str) -> None:
        frame = frame_of.get(table)
        if frame is None:
            frame = spark.createDataFrame([], STEP_LOG_COLUMNS[table])
        ensure_table(spark, job.catalog, table, frame)

    with watch.part("create tables"):
        in_parallel(make, new)
    with watch.part("branches"):
        opened_tables = sorted({*frames.touched, *new})
        opened = in_parallel(
            lambda t: state.open_branch(t, job.branch, job.base_tables.get(t)), opened_tables
        )
    tables = {**job.base_tables, **dict(zip(opened_tables, opened, strict=True))}

    def write(table: str) -> None:
        with watch.part(f"append {table}"):
            if table in frames.steps:
                # A few rows that are known here: a Spark job would take several times as long.
                state.append_rows(table, job.branch, frames.steps[table], _summary(job, table))
            else:
                append(job.catalog, table, job.branch, frames.appends[table], _summary(job, table))

    with watch.part("append"):
        in_parallel(write, frames.touched)
    with watch.part("heads"):
        writes = tuple(in_parallel(lambda t: _written(state, job, t), frames.touched))
    tables.update({write.table: write.snapshot_id for write in writes})
    progress(
        f"steps {job.interval.first_step}..{job.interval.last_step}: appended "
        f"{sum(write.records for write in writes):,} rows to {len(writes)} tables"
    )
    return IntervalResult(tables, writes, watch.seconds)


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


def _written(state: State, job: IntervalJob, table: str) -> TableWrite:
    head = state.head(table, job.branch)
    return TableWrite(table, _write_id(job, table), head, state.added_records(table, head))
