"""Merging files: the data half of a compaction. Of most tables every row stays.

Of a trace, rows are merged by the law: the sum of the merged rows equals the sum of the rows read, key
by key, but for groups of windows that are over, which nothing looks up any more; rows whose sum is
nothing (weight 0, no row left in a group) are gone. Without that, a trace of cancelled rows would grow
for ever, and every look-up would pay for the past.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from lockstep.control.job import MergeJob, MergeTable
from lockstep.control.ports import Progress, State
from lockstep.sql.circuit import TraceSpec
from lockstep.sql.incremental import build_circuit
from lockstep.sql.project import parse_project
from lockstep.threads import in_parallel
from lockstep_engine.deltas import STEP
from lockstep_engine.operators.merging import merge_trace, without_past
from lockstep_engine.ordering import files_of, spread
from lockstep_engine.tables import append, configure_catalog, read_at

__all__ = ["merge_traces"]


def merge_traces(
    spark: SparkSession, job: MergeJob, state: State, progress: Progress
) -> Mapping[str, int]:
    """Append the merged rows of each table to the job's branch; table → the snapshot that did."""
    circuit = build_circuit(parse_project(job.files, job.variables))
    configure_catalog(spark, job.catalog)
    specs = {trace.table: trace for trace in circuit.traces}
    in_parallel(lambda table: _merge(spark, job, table, specs.get(table.table)), job.tables)
    heads = in_parallel(lambda table: state.head(table.table, job.branch), job.tables)
    read = sum(table.records for table in job.tables)
    written = sum(
        in_parallel(
            lambda pair: state.added_records(pair[0].table, pair[1]),
            zip(job.tables, heads, strict=True),
        )
    )
    progress(f"merged {read:,} rows of {len(job.tables)} tables into {written:,}")
    return {table.table: head for table, head in zip(job.tables, heads, strict=True)}


def _merge(spark: SparkSession, job: MergeJob, table: MergeTable, trace: TraceSpec | None) -> None:
    """In the order of the key or of the steps."""
    merged = read_at(spark, job.catalog, table.table, table.snapshot_id)
    key = tuple(name for name in merged.columns if name == STEP)
    if trace is not None:
        merged = merge_trace(trace, without_past(trace, merged, partial(_read_trace, spark, job)))
        key = trace.key
    # Without a key (a cross join, a global aggregate, the log of steps) the first column is as good.
    ordered = spread(merged, key or merged.columns[:1], files_of(table.records))
    summary = {"lockstep.merge": job.branch, "lockstep.incarnation": job.incarnation}
    append(job.catalog, table.table, job.branch, ordered, summary)


def _read_trace(spark: SparkSession, job: MergeJob, name: str) -> DataFrame | None:
    snapshot = job.traces.get(name)
    return None if snapshot is None else read_at(spark, job.catalog, name, snapshot)
