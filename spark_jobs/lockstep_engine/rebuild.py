"""Making what a changed project needs and the version opened does not hold.

The law: after it, every trace of the circuit holds what it would hold had the new queries run from the
beginning, and the outbox of every view adds up to the view: to what the old query has published comes
the difference, in the first step of the interval, and nothing for rows that are the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lockstep.control.history import in_one_step
from lockstep.control.job import Rebuilding, TableWrite, ViewDifference
from lockstep.errors import StateDiverged
from lockstep.ids import (
    FAILED_ROWS_TABLE,
    LAYOUTS_TABLE,
    STEPS_TABLE,
    TABLE_STEPS_TABLE,
    errors_table,
    late_table,
    outbox_table,
)
from lockstep.lake.opening import OpenCatalog
from lockstep.sql.incremental import build_circuit
from lockstep.sql.plans.nodes import Scan
from lockstep.sql.project import parse_project
from lockstep.sql.rebuild import Rebuild, plan_rebuild
from lockstep_engine.appends import Appends, write_appends
from lockstep_engine.attempt import Attempt
from lockstep_engine.context import Guarding
from lockstep_engine.deltas import (
    FIRST,
    STEP,
    WEIGHT,
    columns_of,
    merge_steps,
    quoted,
    row_text,
)
from lockstep_engine.local.rows import Rows, as_frame
from lockstep_engine.operators.aggregate import groups_before
from lockstep_engine.sources.iceberg import records_before
from lockstep_engine.tables import add_columns, columns_there, read_at

__all__ = [
    "Corrections",
    "Rebuilt",
    "differences",
    "planned_rebuild",
    "rebuild",
    "rebuilding_attempt",
]

SAMPLE_ROWS = 6

Corrections = Mapping[str, DataFrame]
"""By outbox table (and the table of failed rows) what has to be added to it: its columns, `_weight`, and
`_step`, which is the interval's first."""


@dataclass(frozen=True)
class Rebuilt:
    """`tables` is what the interval goes on from, `opened` the snapshots of tables in there from an
    earlier life of a query, `writes` the traces that were made."""

    tables: Mapping[str, int]
    opened: Mapping[str, int]
    writes: tuple[TableWrite, ...]
    corrections: Corrections


def planned_rebuild(attempt: Attempt, rebuilding: Rebuilding) -> Rebuild:
    """What is kept and what is made. Where rows have failed, all is read again: what is noted of such
    rows says which views they are missing in."""
    job = attempt.job
    before = build_circuit(parse_project(rebuilding.files, job.variables))
    has_failed = FAILED_ROWS_TABLE in job.base_tables
    everything = tuple(source.name for source in attempt.project.sources)
    distrusted = everything if has_failed else rebuilding.distrusted
    return plan_rebuild(before, attempt.circuit, job.base_tables, distrusted)


def rebuilding_attempt(attempt: Attempt, rebuilding: Rebuilding, plan: Rebuild) -> Attempt:
    """The attempt that evaluates the past: what must be computed anew, over what had been read."""
    job, history = attempt.job, rebuilding.history
    if not plan.circuit.needs_divisions:
        history = in_one_step(history)
    sources = tuple(one for one in attempt.project.sources if one.name in plan.sources)
    catalog = OpenCatalog(job.catalog)
    followed = (one for one in sources if one.is_table)
    rows = sum(records_before(one, job.interval, catalog) for one in followed)
    rows += sum(attempt.state.total_records(k.table, job.base_tables[k.table]) for k in plan.known)
    return replace(
        attempt,
        job=replace(job, interval=history, base_tables={}, time_before=None),
        project=replace(attempt.project, sources=sources),
        circuit=plan.circuit,
        guarding=None if attempt.guarding is None else Guarding(),
        known=_known(attempt, plan),
        more_records=rows,
    )


def rebuild(attempt: Attempt, past: Attempt, plan: Rebuild, kept: list[DataFrame]) -> Rebuilt:
    """Write the traces that are to be made to the attempt's branches, and work out the corrections;
    `past` is the attempt's `rebuilding_attempt`."""
    job, state = attempt.job, attempt.state
    worked = past.work(kept)
    spark, appended = attempt.spark, worked.evaluated.appends
    traces = {t: as_frame(spark, rows) for t, rows in appended.items() if t in plan.made}
    outboxes = [outbox.table for outbox in plan.circuit.outboxes]
    opened = _earlier_lives(attempt, [*plan.made, *outboxes])
    # A distrusted trace that is named as before is made on top of what it holds.
    bases = {**opened, **{t: s for t, s in job.base_tables.items() if t in traces}}
    found = _corrections(past, worked.evaluated.outboxes, {**job.base_tables, **opened})
    for table, rows in found.items():
        if table in job.base_tables or table in opened:
            add_columns(attempt.spark, job.catalog, table, rows.schema)
    written = write_appends(
        attempt.spark,
        job,
        state,
        attempt.watch,
        Appends(
            frames={t: rows for t, rows in traces.items() if t not in bases},
            whole={t: rows for t, rows in traces.items() if t in bases},
            indexes=plan.circuit.indexes,
        ),
        bases,
    )
    wanted = _wanted_tables(attempt)
    tables = {t: s for t, s in {**job.base_tables, **opened}.items() if t in wanted}
    attempt.progress(
        f"made {len(traces)} traces from the past, kept {len(plan.kept)}, "
        f"{len(plan.circuit.outboxes)} views are looked at"
    )
    return Rebuilt({**tables, **written.heads}, opened, written.writes, found)


def differences(
    attempt: Attempt, rebuilding: Rebuilding, kept: list[DataFrame]
) -> tuple[ViewDifference, ...]:
    """By what each view that changes would differ, counted."""
    plan = planned_rebuild(attempt, rebuilding)
    past = rebuilding_attempt(attempt, rebuilding, plan)
    outboxes = {outbox.table: outbox.view for outbox in plan.circuit.outboxes}
    held = {**attempt.job.base_tables, **_earlier_lives(attempt, tuple(outboxes))}
    found = _corrections(past, past.work(kept).evaluated.outboxes, held)
    return tuple(_counted(view, found[table]) for table, view in sorted(outboxes.items()))


def _counted(view: str, rows: DataFrame) -> ViewDifference:
    weight = F.col(WEIGHT)
    counted = rows.agg(
        F.sum(F.when(weight > 0, weight).otherwise(0)).alias("added"),
        F.sum(F.when(weight < 0, -weight).otherwise(0)).alias("removed"),
    ).first()
    assert counted is not None, "an aggregate without groups is one row"
    some = rows.select(row_text(_row(rows)), WEIGHT).sort("row", WEIGHT).limit(SAMPLE_ROWS)
    sample = tuple(f"{'+' if w > 0 else '-'} {row}" for row, w in some.collect())
    return ViewDifference(view, counted["added"] or 0, counted["removed"] or 0, sample)


def _corrections(
    past: Attempt, outboxes: Mapping[str, DataFrame | Rows], held: Mapping[str, int]
) -> Corrections:
    """What the new queries give and the tables do not say yet, by table. `held` are the snapshots of
    what was published. Lazy."""
    guarding = past.guarding
    new = {table: as_frame(past.spark, rows).drop(STEP) for table, rows in outboxes.items()}
    found = {table: _difference(past, table, rows, held.get(table)) for table, rows in new.items()}
    noted = [] if guarding is None else guarding.noted or []
    if noted or FAILED_ROWS_TABLE in held:
        failed = [rows.drop(STEP) for rows in noted]
        found[FAILED_ROWS_TABLE] = _difference_of_failed(past, failed, held.get(FAILED_ROWS_TABLE))
    return found


def _difference(past: Attempt, table: str, new: DataFrame, held: int | None) -> DataFrame:
    """The rows by which a published table is not what the query gives; columns that only one of them
    has are null in the other."""
    if held is None:
        return _at_first(merge_steps(new, _row(new)))
    there = columns_there(past.spark, past.job.catalog, table)
    old = _taken_back(past, table, held)
    both = new.unionByName(old, allowMissingColumns=True)
    for name, kind in there.items():
        if name not in both.columns and name != STEP:
            both = both.withColumn(name, F.lit(None).cast(kind))
    return _at_first(merge_steps(both, _row(both)))


def _difference_of_failed(past: Attempt, noted: list[DataFrame], held: int | None) -> DataFrame:
    parts = [*noted, *([] if held is None else [_taken_back(past, FAILED_ROWS_TABLE, held)])]
    rows = parts[0]
    for more in parts[1:]:
        rows = rows.unionByName(more)
    return _at_first(merge_steps(rows, _row(rows)))


def _taken_back(past: Attempt, table: str, snapshot_id: int) -> DataFrame:
    rows = read_at(past.spark, past.job.catalog, table, snapshot_id).drop(STEP)
    return rows.withColumn(WEIGHT, -F.col(WEIGHT))


def _row(rows: DataFrame) -> list[str]:
    return [name for name in rows.columns if name not in (WEIGHT, STEP)]


def _at_first(rows: DataFrame) -> DataFrame:
    return rows.withColumn(STEP, F.lit(FIRST).cast("bigint"))


def _known(attempt: Attempt, plan: Rebuild) -> Mapping[str, DataFrame]:
    """The relations that tables of the version hold, as changes of the first step."""
    names = {
        o.node.source: o.node.columns for o in plan.circuit.operators if isinstance(o.node, Scan)
    }
    job, found = attempt.job, {}
    for one in plan.known:
        rows = read_at(attempt.spark, job.catalog, one.table, job.base_tables[one.table])
        if one.groups is not None:
            rows = groups_before(one.groups, rows)
        columns = [
            F.col(quoted(held)).alias(name)
            for held, name in zip(one.columns, names[one.leaf], strict=True)
        ]
        merged = merge_steps(rows.select(*columns, WEIGHT), names[one.leaf])
        found[one.leaf] = _at_first(merged).select(*columns_of((*names[one.leaf], WEIGHT, STEP)))
    return found


def _earlier_lives(attempt: Attempt, tables: Collection[str]) -> Mapping[str, int]:
    """Tables that the version opened does not know and that are there, from a query that was dropped
    and has come back: they are continued where they stand. Raises StateDiverged for another's."""
    job, found = attempt.job, {}
    there = set(attempt.state.tables())
    for table in sorted(there & set(tables) - set(job.base_tables)):
        head = attempt.state.view_head(table)
        if head is None or head.snapshot_id is None or head.marker is None:
            continue
        if head.marker.incarnation != job.incarnation:
            raise StateDiverged(
                f"table {table} belongs to another pipeline, or to an earlier life of this one",
                expected=f"incarnation {job.incarnation}",
                found=f"incarnation {head.marker.incarnation}, at step {head.marker.step}",
                next_step=f"drop table {table} if nobody needs it, or use another database",
            )
        found[table] = head.snapshot_id
    return found


def _wanted_tables(attempt: Attempt) -> set[str]:
    """All tables that versions of the new project name."""
    traces = {trace.table for trace in attempt.circuit.traces}
    outboxes = {outbox_table(outbox.view) for outbox in attempt.circuit.outboxes}
    names = [source.name for source in attempt.project.sources]
    beside = {errors_table(name) for name in names} | {late_table(name) for name in names}
    return (
        traces
        | outboxes
        | beside
        | {STEPS_TABLE, TABLE_STEPS_TABLE, LAYOUTS_TABLE, FAILED_ROWS_TABLE}
    )
