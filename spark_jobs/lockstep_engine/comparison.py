"""Comparing what a replay has given with what was given before, which its outboxes keep as a log.

Law: nothing is reported if and only if the two outboxes are the same Z-set at every step compared.
Few rows that are equal are found to be so by this process; of all others Spark says what they are.
There steps are compared by digest (rows and the sum of their hashes, one aggregate over both outboxes);
rows are only looked at where digests differ. Equal Z-sets whose digests differ (0.0 and -0.0 are one
value and two hashes) are then found to be equal.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lockstep.control.job import ComparedTable, CompareJob, CompareResult, Difference
from lockstep.control.ports import OutboxSteps, Progress
from lockstep.threads import in_parallel
from lockstep_engine.appends import Tables
from lockstep_engine.deltas import STEP, WEIGHT, columns_of, quoted, row_text
from lockstep_engine.sessions import set_all
from lockstep_engine.sinks.view_rows import incomparable
from lockstep_engine.tables import configure_catalog, read_at

__all__ = ["compare_outboxes"]

SIDE = "_side"
"""1 for a row of the replay, -1 for one of the log."""

ROWS_SHOWN = 5


def compare_outboxes(
    spark: SparkSession, job: CompareJob, state: Tables, progress: Progress
) -> CompareResult:
    """Compare every table of the job, in threads of one session."""
    configure_catalog(spark, job.catalog)
    # What is shuffled is a row a step, and the rows of one step.
    set_all(spark, {"spark.sql.shuffle.partitions": "2"})
    found = in_parallel(lambda table: _compare(spark, job, state, table), job.tables)
    rows = {table.view: count for table, (count, _) in zip(job.tables, found, strict=True)}
    differences = sorted(
        (difference for _, difference in found if difference is not None),
        key=lambda difference: (difference.step, difference.view),
    )
    progress(
        f"steps {job.first_step}..{job.last_step}: {sum(rows.values()):,} rows of {len(rows)} views "
        f"compared, {len(differences) or 'none'} of the views differ"
    )
    return CompareResult(rows, tuple(differences))


def _compare(
    spark: SparkSession, job: CompareJob, state: Tables, table: ComparedTable
) -> tuple[int, Difference | None]:
    """How many rows were logged, and the first step that differs."""
    logged, replayed = (
        OutboxSteps(table.table, snapshot, job.first_step - 1, job.last_step)
        for snapshot in (table.logged, table.replayed)
    )
    equal = state.rows_if_equal(logged, replayed)
    return _by_digest(spark, job, table) if equal is None else (equal, None)


def _by_digest(
    spark: SparkSession, job: CompareJob, table: ComparedTable
) -> tuple[int, Difference | None]:
    """The same by Spark, whatever there is."""
    sides = [
        read_at(spark, job.catalog, table.table, snapshot)
        .where(F.col(STEP).between(job.first_step, job.last_step))
        .withColumn(SIDE, F.lit(side))
        for snapshot, side in ((table.logged, -1), (table.replayed, 1))
    ]
    both = _comparable(sides[0].unionByName(sides[1]))
    names = [name for name in both.columns if name not in (STEP, WEIGHT, SIDE)]
    # Hashes are added up as decimals: their sums are beyond 64 bits.
    hashed = F.xxhash64(*columns_of([*names, WEIGHT])).cast("decimal(20,0)")
    digests = (
        both.groupBy(STEP)
        .agg(
            F.count_if(F.col(SIDE) < 0).alias("logged"),
            F.sum(SIDE).alias("rows"),
            F.sum(hashed * F.col(SIDE)).alias("digest"),
        )
        .collect()
    )
    suspects = sorted(row[STEP] for row in digests if row["rows"] or row["digest"])
    found = (_difference(both, names, table.view, step) for step in suspects)
    return sum(row["logged"] for row in digests), next(filter(None, found), None)


def _comparable(rows: DataFrame) -> DataFrame:
    """Values that Spark cannot compare, as text."""
    texts: dict[str, Column] = {
        field.name: F.to_json(quoted(field.name)) for field in incomparable(rows.schema)
    }
    return rows.withColumns(texts) if texts else rows


def _difference(both: DataFrame, names: list[str], view: str, step: int) -> Difference | None:
    """What one step's rows differ in, None where they are equal after all."""
    net = (
        both.where(F.col(STEP) == step)
        .groupBy(*columns_of(names))
        .agg(F.sum(F.col(WEIGHT) * F.col(SIDE)).alias(WEIGHT))
        .where(F.col(WEIGHT) != 0)
    )
    is_missing = F.col(WEIGHT) < 0
    counted = net.agg(
        F.sum(F.when(is_missing, -F.col(WEIGHT))).alias("missing"),
        F.sum(F.when(~is_missing, F.col(WEIGHT))).alias("unexpected"),
    ).first()
    assert counted is not None, "an aggregate without groups is one row"
    missing, unexpected = counted["missing"] or 0, counted["unexpected"] or 0
    if not missing and not unexpected:
        return None
    shown = net.select(row_text(names), WEIGHT).orderBy("row").limit(ROWS_SHOWN).collect()
    rows = tuple(f"{row[WEIGHT]:+} {row['row']}" for row in shown)
    return Difference(view, step, missing, unexpected, rows)
