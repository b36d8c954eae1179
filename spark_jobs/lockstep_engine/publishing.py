"""Moving every sink of a pipeline forward through the committed outbox."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from lockstep.control.job import PublishJob, PublishResult, SinkTarget
from lockstep.control.ports import Progress, State
from lockstep.errors import AuditFailed
from lockstep.sql.circuit import OutboxSpec, Project
from lockstep.sql.incremental import build_circuit
from lockstep.sql.project import parse_project
from lockstep.threads import in_parallel
from lockstep_engine.appends import Tables
from lockstep_engine.deltas import STEP, WEIGHT, consolidate, merge_steps, row_text
from lockstep_engine.sessions import set_all
from lockstep_engine.sinks.iceberg import publish_view
from lockstep_engine.sinks.kafka import Publishing, publish_kafka
from lockstep_engine.stopwatch import Stopwatch
from lockstep_engine.tables import configure_catalog, read_at

__all__ = ["publish_sinks"]

ROWS_PER_PARTITION = 250_000
SHOWN_ROWS = 5


def publish_sinks(
    spark: SparkSession, job: PublishJob, state: Tables, progress: Progress
) -> PublishResult:
    """Publish each sink, in threads of one session.

    Sinks are independent: all are tried, and the first failure is raised after the others are done.
    Raises AuditFailed before any where an audit has rows at the job's last step.
    """
    project = parse_project(job.files, job.variables)
    outboxes = {outbox.view: outbox for outbox in build_circuit(project).outboxes}
    watch = Stopwatch()
    markers: dict[str, int] = {}
    rows: dict[str, int] = {}

    configure_catalog(spark, job.catalog)
    audits = [o for o in outboxes.values() if o.audit and o.table in job.tables]
    in_parallel(lambda audit: _check(spark, job, state, audit), audits)
    set_all(spark, {"spark.sql.shuffle.partitions": str(_partitions(job, outboxes, state))})

    def publish(target: SinkTarget) -> None:
        with watch.part(target.name):
            markers[target.name], rows[target.name] = _publish_one(
                spark, job, state, project, outboxes[target.view], target, progress
            )
        progress(
            f"{target.name}: {rows[target.name]:,} rows, now at step {markers[target.name]} "
            f"({watch.seconds[target.name]:.1f} s)"
        )

    in_parallel(publish, job.sinks)
    return PublishResult(markers, rows, watch.seconds)


def _check(spark: SparkSession, job: PublishJob, state: State, audit: OutboxSpec) -> None:
    """Raise where the audit's changes do not add up to nothing."""
    snapshot = job.tables[audit.table]
    if not state.total_records(audit.table, snapshot):
        return
    rows = read_at(spark, job.catalog, audit.table, snapshot)
    left = merge_steps(rows, audit.columns).select(row_text(audit.columns)).sort("row")
    found = [row["row"] for row in left.limit(SHOWN_ROWS).collect()]
    if found:
        raise AuditFailed(
            f"audit {audit.view} has rows at step {job.last_step}: nothing is published",
            expected="no row",
            found=", ".join(found),
            next_step=f"correct the input or the query; lockstep deploy, and the next run publishes. "
            f"All of them: SELECT * FROM {audit.table}",
        )


def _partitions(job: PublishJob, outboxes: Mapping[str, OutboxSpec], state: State) -> int:
    """Shuffle partitions for the largest of the changes."""
    tables = {outboxes[target.view].table for target in job.sinks}
    most = max(in_parallel(lambda t: state.added_records(t, job.tables[t]), sorted(tables)))
    return max(2, -(-most // ROWS_PER_PARTITION))


def _publish_one(
    spark: SparkSession,
    job: PublishJob,
    state: Tables,
    project: Project,
    outbox: OutboxSpec,
    target: SinkTarget,
    progress: Progress,
) -> tuple[int, int]:
    """Marker and rows sent."""
    snapshot = job.tables[outbox.table]
    if target.provider == "iceberg":
        published = publish_view(
            spark,
            state,
            job.catalog,
            target.view,
            outbox.columns,
            outbox.table,
            snapshot,
            target.last_step,
            job.incarnation,
        )
        _describe(state, project, target.view)
        return published.marker, published.rows
    sink = next(sink for sink in project.sinks if sink.name == target.name)
    return publish_kafka(
        spark,
        sink,
        job.incarnation,
        _changes(read_at(spark, job.catalog, outbox.table, snapshot), outbox),
        target.first_step,
        target.last_step,
        Publishing(
            job.divisions,
            target.was_intended,
            pending=state.records_after(outbox.table, snapshot, target.first_step - 1),
            progress=progress,
        ),
    )


def _describe(state: Tables, project: Project, name: str) -> None:
    """Once it shows the columns that are described. Where that dies, the publish is not recorded, and is
    repeated."""
    view = next(view for view in project.views if view.name == name)
    if view.comment is not None or view.column_comments:
        state.describe(view.name, view.comment, view.column_comments)


def _changes(rows: DataFrame, outbox: OutboxSpec) -> DataFrame:
    """The outbox's rows under the columns that the view has: where others were dropped, rows that
    differed in these alone are the same."""
    if set(rows.columns) == {*outbox.columns, WEIGHT, STEP}:
        return rows
    return consolidate(rows, outbox.columns)
