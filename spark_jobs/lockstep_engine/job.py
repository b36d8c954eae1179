"""One attempt at one interval: read the recorded ranges, run the circuit, append to the branches.

The job is a function of `IntervalJob` alone. It commits nothing: when it returns, its appends stand
on the attempt's branches, and nobody but the attempt can see them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import chain

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import StructType

from lockstep.control.job import IntervalJob, IntervalResult, TableWrite, ViewDifference
from lockstep.control.ports import Progress
from lockstep.control.step_log import step_log
from lockstep.errors import FailedRow, StateDiverged
from lockstep.ids import FAILED_ROWS_TABLE, errors_table, is_trace, late_table
from lockstep.sql.circuit import ON_ERROR, Circuit, Project
from lockstep.sql.incremental import build_circuit
from lockstep.sql.project import parse_project
from lockstep.threads import in_parallel
from lockstep_engine.appends import Appends, Tables, Written, fetching, write_appends
from lockstep_engine.attempt import Attempt, Worked
from lockstep_engine.context import Guarding
from lockstep_engine.deltas import STEP, WEIGHT, absolute_steps, consolidate
from lockstep_engine.failing_rows import FailingRow, find_failing_row
from lockstep_engine.failures import SPARK_ERRORS, first_line, is_of_a_row
from lockstep_engine.local.rows import Rows, as_frame
from lockstep_engine.python_functions import register_functions
from lockstep_engine.rebuild import (
    Corrections,
    differences,
    planned_rebuild,
    rebuild,
    rebuilding_attempt,
)
from lockstep_engine.sources.decoded import ERROR_COLUMNS
from lockstep_engine.stopwatch import Stopwatch
from lockstep_engine.tables import configure_catalog
from lockstep_engine.told import types_of_columns

__all__ = ["preview_rebuild", "run_interval"]


def run_interval(
    spark: SparkSession, job: IntervalJob, state: Tables, progress: Progress
) -> IntervalResult:
    """Run an attempt. Raises BadRecord where a source says on_error = 'fail' and FailedRow where the
    project says so and an expression fails for a row; what its branches then hold is nobody's.

    `tables` of the result names every table of the circuit: the head of this attempt's branch where
    it appended, else the snapshot of the version opened (the root of a new table).
    """
    watch = Stopwatch()
    with watch.part("compile"):
        project = parse_project(job.files, job.variables)
        circuit = build_circuit(project)
        _check_traces(job, circuit)
        configure_catalog(spark, job.catalog)
        register_functions(spark, project.functions)
    attempt = Attempt(spark, job, state, progress, project, circuit, watch)
    # A row that has failed may be read again, from what was there before.
    if FAILED_ROWS_TABLE in job.base_tables:
        return _run_guarded(attempt)
    try:
        return _Run(attempt).run()
    except SPARK_ERRORS as error:
        if not is_of_a_row(error):
            raise
        progress(
            f"an expression fails for a row; once more, without such rows: {first_line(error)}"
        )
    with watch.part("anew"):
        in_parallel(lambda table: state.drop_refs(table, [job.branch]), state.tables())
    return _run_guarded(attempt)


def _check_traces(job: IntervalJob, circuit: Circuit) -> None:
    """Raises StateDiverged where a trace would be taken for a new one, without rows, though the version
    has some: another release of Lockstep may make another plan of a query, and names are of plans."""
    if job.base_version == 0 or job.rebuilding is not None:
        return
    missing = sorted({trace.table for trace in circuit.traces} - job.base_tables.keys())
    if missing:
        raise StateDiverged(
            f"pipeline {job.pipeline}: its queries need state that version {job.base_version} has not",
            expected=f"{', '.join(missing)}: as this release names them",
            found=", ".join(sorted(filter(is_trace, job.base_tables))) or "no traces",
            next_step="lockstep deploy DIR: the next interval then makes it from the sources; or run "
            "the release that wrote the version",
        )


def preview_rebuild(
    spark: SparkSession, job: IntervalJob, state: Tables, progress: Progress
) -> tuple[ViewDifference, ...]:
    """By what the views would differ after an attempt at a job that rebuilds; writes nothing. Views
    that are the same query are not among them, nor are those that are dropped."""
    assert job.rebuilding is not None, "asked for after a change only"
    project = parse_project(job.files, job.variables)
    configure_catalog(spark, job.catalog)
    register_functions(spark, project.functions)
    circuit, kept = build_circuit(project), list[DataFrame]()
    guarding = Guarding(kept=kept)
    attempt = Attempt(spark, job, state, progress, project, circuit, Stopwatch(), guarding)
    try:
        return differences(attempt, job.rebuilding, kept)
    finally:
        for frame in kept:
            frame.unpersist()


def _run_guarded(attempt: Attempt) -> IntervalResult:
    """The same without the rows for which an expression fails."""
    run = _Run(replace(attempt, guarding=Guarding()))
    try:
        return run.run()
    except SPARK_ERRORS as error:
        if not is_of_a_row(error):
            raise
        for one in run.begun:
            assert one.guarding is not None, "all of a guarded run are"
            found = find_failing_row(one.guarding.looked_at, one.unguarded().context())
            if found is not None:
                raise _unguarded_row(found, one.job.interval.first_step) from error
        raise


@dataclass(frozen=True)
class _Run:
    """An attempt at work. `begun` are what it has begun to evaluate, in order: the past, where other
    queries need it, and the interval itself."""

    attempt: Attempt
    begun: list[Attempt] = field(default_factory=list)

    def run(self) -> IntervalResult:
        """Read, evaluate, append."""
        attempt, kept = self.attempt, list[DataFrame]()
        opened: Mapping[str, int] = {}
        writes: tuple[TableWrite, ...] = ()
        corrections: Corrections = {}
        try:
            if attempt.job.rebuilding is not None:
                plan = planned_rebuild(attempt, attempt.job.rebuilding)
                past = rebuilding_attempt(attempt, attempt.job.rebuilding, plan)
                self.begun.append(past)
                rebuilt = rebuild(attempt, past, plan, kept)
                opened, writes, corrections = rebuilt.opened, rebuilt.writes, rebuilt.corrections
                attempt = replace(attempt, job=replace(attempt.job, base_tables=rebuilt.tables))
            self.begun.append(attempt)
            with fetching(attempt.state, attempt.job.base_tables) as fetches:
                worked = attempt.work(kept, fetches)
                appends = _appends(attempt, worked, corrections)
                written = [Written({}, writes), _write(attempt, appends)]
            passed = {n: one for n, one in worked.decoded.items() if one.passed is not None}
            bad = attempt.count_errors(passed)
            errors = {errors_table(n): passed[n].errors for n, count in bad.items() if count}
            if errors:
                more = Appends(_recorded(attempt, errors))
                written.append(_write(attempt, more, written[-1].heads))
            return _result(attempt, {**worked.bad, **bad}, opened, written)
        finally:
            guarded = (one.guarding.kept for one in self.begun if one.guarding)
            in_parallel(lambda frame: frame.unpersist(), chain(kept, *guarded))


def _appends(attempt: Attempt, worked: Worked, corrections: Corrections) -> Appends:
    """Divide the tables into those that get rows and those that do not but may have to be made."""
    evaluated, job = worked.evaluated, attempt.job
    changes: dict[str, DataFrame | Rows] = dict(evaluated.outboxes)
    failed = _failed(attempt)
    if failed is not None:
        changes[FAILED_ROWS_TABLE] = failed
    for table, rows in corrections.items():
        own = changes.get(table)
        changes[table] = rows if own is None else _together(rows, as_frame(attempt.spark, own))
    untouched: dict[str, DataFrame | StructType] = {}
    for source, one in worked.decoded.items():
        if worked.bad.get(source):
            changes[errors_table(source)] = one.errors
        else:
            untouched[errors_table(source)] = types_of_columns(attempt.spark, ERROR_COLUMNS)
    for source, late in evaluated.late.items():
        declared = _as_declared(attempt.project, source, late.rows)
        if late.is_any:
            changes[late_table(source)] = declared
        else:
            untouched[late_table(source)] = declared
    return Appends(
        {**evaluated.appends, **_recorded(attempt, changes)},
        step_log(job.interval, job.new_layouts),
        untouched=untouched,
        fetches=worked.fetches,
        indexes=attempt.circuit.indexes,
    )


def _together(correction: DataFrame, rows: DataFrame) -> DataFrame:
    """A correction and the interval's own changes, which may meet in its first step."""
    both = correction.unionByName(rows, allowMissingColumns=True)
    return consolidate(both, [name for name in both.columns if name not in (WEIGHT, STEP)])


def _failed(attempt: Attempt) -> DataFrame | None:
    """The rows for which an expression failed, None where there are none."""
    noted = [] if attempt.guarding is None else attempt.guarding.noted
    if not noted:
        return None
    failed = reduce(DataFrame.union, noted)
    first = failed.orderBy(STEP, "expression", "row").first()
    if first is not None and not attempt.project.keeps_failed_rows:
        raise _failed_row(first, attempt.job.interval.first_step)
    return None if first is None else failed


def _recorded(
    attempt: Attempt, frames: Mapping[str, DataFrame | Rows]
) -> Mapping[str, DataFrame | Rows]:
    """The same, with steps as they are counted from the pipeline's first."""
    first, last = attempt.job.interval.first_step, attempt.job.interval.last_step
    return {
        table: rows.later(first) if isinstance(rows, Rows) else absolute_steps(rows, first, last)
        for table, rows in frames.items()
    }


def _write(attempt: Attempt, appends: Appends, heads: Mapping[str, int] | None = None) -> Written:
    """Append to every table on the attempt's branch; `heads` are those of tables that are opened."""
    bases = {**attempt.job.base_tables, **(heads or {})}
    return write_appends(attempt.spark, attempt.job, attempt.state, attempt.watch, appends, bases)


def _result(
    attempt: Attempt,
    bad: Mapping[str, int],
    opened: Mapping[str, int],
    written: Sequence[Written],
) -> IntervalResult:
    """What was read and written, told to people and to who commits it."""
    interval = attempt.job.interval
    steps = f"steps {interval.first_step}..{interval.last_step}"
    writes = tuple(write for one in written for write in one.writes)
    heads = {table: head for one in written for table, head in one.heads.items()}
    attempt.progress(
        f"{steps}: read {interval.records:,} records of {len(attempt.project.sources)} sources, "
        f"{sum(bad.values()):,} of them bad"
    )
    attempt.progress(
        f"{steps}: appended {sum(write.records for write in writes):,} rows to "
        f"{len({write.table for write in writes})} tables"
    )
    # Traces that no query needs any more would stand still, and be taken for good ones by a release
    # that has them.
    named = {trace.table for trace in attempt.circuit.traces}
    base = {t: s for t, s in attempt.job.base_tables.items() if not is_trace(t) or t in named}
    tables = {**base, **heads}
    return IntervalResult(tables, writes, attempt.watch.seconds, opened)


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
