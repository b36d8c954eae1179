"""Merging the rows of a trace's files: the data half of a compaction.

Law: the sum of the merged rows equals the sum of the rows read, key by key, but for groups of windows
that are over, which nothing looks up any more; rows whose sum is nothing (weight 0, no row left in a
group) are gone. Without that, a trace of cancelled rows would grow for ever, and every look-up would
pay for the past.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from lockstep.control.job import MergeJob, MergeTable
from lockstep.control.ports import Progress, State
from lockstep.sql.circuit import TraceSpec
from lockstep.sql.incremental import build_circuit
from lockstep.sql.project import parse_project
from lockstep.threads import in_parallel
from lockstep_engine.operators.merging import merge_trace, without_past
from lockstep_engine.tables import append, configure_catalog, read_at

__all__ = ["merge_traces"]

ROWS_PER_FILE = 4_000_000


def merge_traces(
    spark: SparkSession, job: MergeJob, state: State, progress: Progress
) -> Mapping[str, int]:
    """Append the merged rows of each table to the job's branch; table → the snapshot that did."""
    circuit = build_circuit(parse_project(job.files, job.variables))
    configure_catalog(spark, job.catalog)
    specs = {trace.table: trace for trace in circuit.traces}
    in_parallel(lambda table: _merge(spark, job, table, specs[table.table]), job.tables)
    heads = in_parallel(lambda table: state.head(table.table, job.branch), job.tables)
    read = sum(table.records for table in job.tables)
    written = sum(
        in_parallel(
            lambda pair: state.added_records(pair[0].table, pair[1]),
            zip(job.tables, heads, strict=True),
        )
    )
    progress(f"merged {read:,} rows of {len(job.tables)} traces into {written:,}")
    return {table.table: head for table, head in zip(job.tables, heads, strict=True)}


def _merge(spark: SparkSession, job: MergeJob, table: MergeTable, trace: TraceSpec) -> None:
    """Sorted by key, and range-partitioned where it is several files, so that they do not overlap
    and a look-up by key skips most of them."""
    rows = read_at(spark, job.catalog, trace.table, table.snapshot_id)

    def read_trace(name: str) -> DataFrame | None:
        snapshot = job.traces.get(name)
        return None if snapshot is None else read_at(spark, job.catalog, name, snapshot)

    merged = merge_trace(trace, without_past(trace, rows, read_trace))
    files = max(1, -(-table.records // ROWS_PER_FILE))
    # Without a key (a cross join, a global aggregate) any column is as good.
    order = [f"`{name}`" for name in (trace.key or merged.columns[:1])]
    spread = merged.coalesce(1) if files == 1 else merged.repartitionByRange(files, *order)
    ordered = spread.sortWithinPartitions(*order)
    summary = {"lockstep.merge": job.branch, "lockstep.incarnation": job.incarnation}
    append(job.catalog, trace.table, job.branch, ordered, summary)
