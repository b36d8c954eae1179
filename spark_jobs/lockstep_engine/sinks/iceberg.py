"""The published view as an Iceberg table: the rows themselves, for any engine.

`view_publish` says when and where rows are written and how they are shown; here it is decided who
writes them. Of a view that only grows files are copied; one of few rows is written anew, which leaves
no deletes behind; of others rows are deleted by their positions, and new ones added: all without Spark,
in one snapshot, where that can be (decisions 0029, 0067). Else Spark writes. On the branch, rows that
lose copies are then deleted with all their copies, by a MERGE that only deletes, for which Spark
broadcasts the change instead of shuffling the view; and an append, whose summary carries the marker,
brings new rows, and the copies that remain. Where nothing has changed, only the marker moves. A view
whose columns were dropped by a publish that died, and are back, is written anew.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from lockstep.control.job import CatalogSettings
from lockstep.control.ports import Marker, OutboxSteps, Rewritten, ViewHead
from lockstep.errors import Refused, StateDiverged
from lockstep_engine.appends import Tables
from lockstep_engine.deltas import STEP, WEIGHT, columns_of, merge_steps, quoted
from lockstep_engine.sinks.view_publish import ViewPoint, ViewPublished, ViewTarget, move_view
from lockstep_engine.sinks.view_rows import as_copies, count_change, incomparable, within
from lockstep_engine.tables import (
    TABLE_PROPERTIES,
    add_columns,
    append,
    overwrite,
    read_at,
    table_name,
)
from lockstep_engine.told import counted_in_passing

__all__ = ["SMALL_ROWS", "VIEW_PROPERTIES", "publish_view"]

SMALL_ROWS = 50_000
"""Up to so many rows, of the view and of the change together, the view is written anew."""

NETTED_ROWS = 1_000_000
"""Up to so many changes are netted without Spark."""

LACKING = "lockstep: too few rows like "
"""Marks Spark's error where a change takes back a row that is not there."""

BROADCAST_ROWS = 1_000_000
"""Up to so many deleted rows the change is sent to the view's files, beyond it both are shuffled."""

VIEW_PROPERTIES: Mapping[str, str] = MappingProxyType(
    {
        **TABLE_PROPERTIES,
        "write.merge.mode": "merge-on-read",
        "write.delete.mode": "merge-on-read",
        # Nobody but its readers merges a view's files; PyIceberg (0.12) has other defaults than Spark.
        "commit.manifest-merge.enabled": "true",
    }
)


_Write = Callable[[str, str, int, OutboxSteps, Mapping[str, str]], Rewritten | None]


@dataclass(frozen=True)
class _Change:
    """What a publish does to the view, counted.

    `appended` are the rows to add as they are (copies as rows). `deleted` are distinct rows with the
    columns and `_weight` < 0, `lost` the copies that they lose together; None where there are none.
    `within` limits, as SQL over the target `t`, where deleted rows can be.
    """

    appended: DataFrame
    deleted: DataFrame | None = None
    deleted_rows: int = 0
    lost: int = 0
    rows: int = 0
    within: tuple[str, ...] = ()
    kept: tuple[DataFrame, ...] = ()


@dataclass(frozen=True)
class _SparkWriter:
    """Implements `view_publish.ViewWriter`; `columns` as written, in order."""

    spark: SparkSession
    state: Tables
    catalog: CatalogSettings
    columns: tuple[str, ...]
    target: ViewTarget
    reached: Callable[[ViewPoint], None]
    small_rows: int

    failures = (PySparkException,)

    @property
    def outbox(self) -> DataFrame:
        return read_at(
            self.spark, self.catalog, self.target.outbox_table, self.target.outbox_snapshot_id
        )

    def make(self) -> None:
        target = self.target
        # Spark would say the same, and has to look at the table for it.
        there = self.state.columns(target.outbox_table, target.outbox_snapshot_id)
        wanted = pa.schema([there.field(name) for name in self.columns])
        _check_types(target, from_arrow_schema(wanted))
        self.state.make(target.view, wanted, VIEW_PROPERTIES, target.summary(-1))

    def start(self) -> None:
        empty = self.outbox.select(*map(quoted, self.columns)).limit(0)
        append(self.catalog, self.target.view, "main", empty, self.target.summary(-1))

    def write(self, branch: str, head: ViewHead, base: int, marker: int, pending: int) -> int:
        if set(head.columns) != set(self.columns):
            _change_columns(self, head)
        if head.marker is not None and not head.lost.isdisjoint(self.columns):
            return _write_lost(self, branch, head.marker)
        is_small = head.records + pending <= self.small_rows
        is_netted = head.records <= self.small_rows and pending <= NETTED_ROWS
        is_anew = head.is_files_alone and (is_small or is_netted)
        if not is_anew:
            target = self.target
            base = self.state.merge_small_files(target.view, target.outbox_table, branch, base)
        rows = None if is_small else _append_inserted(self, branch, marker)
        if rows is None and is_anew:
            rows = _from_here(self, self.state.replace_netted, branch, base, marker)
        if rows is None and pending <= NETTED_ROWS:
            rows = _from_here(self, self.state.change_netted, branch, base, marker)
        if rows is not None:
            return rows
        delta = _since(self, marker)
        if is_small and not incomparable(delta.schema):
            return _rewrite(self, delta, branch, base)
        return _write(self, delta, branch, base)


def publish_view(  # noqa: PLR0913, PLR0917 - one publish is told all of this by name
    spark: SparkSession,
    state: Tables,
    catalog: CatalogSettings,
    view: str,
    columns: tuple[str, ...],
    outbox_table: str,
    outbox_snapshot_id: int,
    last_step: int,
    incarnation: str,
    reached: Callable[[ViewPoint], None] = lambda _: None,
    small_rows: int = SMALL_ROWS,
) -> ViewPublished:
    """Bring the view to `last_step` from whatever step its own marker names; nothing if it is there.

    Raises StateDiverged where the view is not this incarnation's or does not hold what the outbox
    takes back, Refused for columns that cannot be compared, AttemptLost where others keep moving
    `main`.
    """
    target = ViewTarget(view, outbox_table, outbox_snapshot_id, last_step, incarnation)
    writer = _SparkWriter(spark, state, catalog, columns, target, reached, small_rows)
    return move_view(state, writer, target, lambda: uuid.uuid4().hex[:12], reached)


def _change_columns(writer: _SparkWriter, head: ViewHead) -> None:
    """Give the table the columns that the view has by now. In what stands there new ones are null, as
    they are in what the outbox takes back of it."""
    wanted = writer.outbox.select(*map(quoted, writer.columns)).schema
    add_columns(writer.spark, writer.catalog, writer.target.view, wanted)
    dropped = [name for name in head.columns if name not in writer.columns]
    if dropped:
        name, columns = table_name(writer.catalog, writer.target.view), map(quoted, dropped)
        writer.spark.sql(f"ALTER TABLE {name} DROP COLUMNS ({', '.join(columns)})")


def _write_lost(writer: _SparkWriter, branch: str, marker: Marker) -> int:
    """Write the view anew where the table has other columns in the names of some that it shows.

    A publish drops columns before it moves `main`: were it to die in between, the next one that wants
    them would find the values that stand in files, of rows that have had none since. But where it dies
    before `main` moves, the columns that the next one adds are new ones, null in all files that stand
    there, though no step that is shown has taken their values away. The marked snapshot still has the
    columns of before, and is read, not `main`: a user may have compacted that meanwhile, without them.
    """
    delta = _since(writer, marker.step)
    _check_types(writer.target, delta.schema)
    return _rewrite(writer, delta, branch, marker.snapshot_id)


def _rows_at(writer: _SparkWriter, snapshot_id: int) -> DataFrame:
    """The view at a snapshot, under the columns that it has by now."""
    rows = read_at(writer.spark, writer.catalog, writer.target.view, snapshot_id)
    kinds = {field.name: field.dataType for field in writer.outbox.schema.fields}
    return rows.select(
        *(
            F.col(quoted(name))
            if name in rows.columns
            else F.lit(None).cast(kinds[name]).alias(name)
            for name in writer.columns
        )
    )


def _check_types(target: ViewTarget, schema: StructType) -> None:
    """Rows are found again by comparing all their columns, which Spark cannot do for some types."""
    for field in incomparable(schema):
        raise Refused(
            f"view {target.view}: column {field.name} cannot be published",
            expected="types that can be compared",
            found=field.dataType.simpleString(),
            next_step=f"publish it as text, `to_json({field.name})`, or as an array of entries, "
            f"`array_sort(map_entries({field.name}))`",
        )


# ── what changes ────────────────────────────────────────────────────────────────────────────────


def _since(writer: _SparkWriter, marker: int) -> DataFrame:
    """The outbox's changes after the marker: columns and `_weight`."""
    return writer.outbox.where(f"{STEP} > {marker} AND {STEP} <= {writer.target.last_step}").select(
        *map(quoted, (*writer.columns, WEIGHT))
    )


def _change_since(writer: _SparkWriter, delta: DataFrame) -> _Change:
    """Net the changes, row by row. What is only inserted into needs no netting: equal rows may stand
    as several rows."""
    raw = delta.agg(
        F.count(F.lit(1)).alias("rows"), F.min(WEIGHT).alias("least"), F.max(WEIGHT).alias("most")
    ).first()
    assert raw is not None, "an aggregate without groups is one row"
    if raw["rows"] == 0:
        return _Change(delta.limit(0).drop(WEIGHT))
    if raw["least"] > 0:
        return _Change(as_copies(delta, WEIGHT, raw["most"]), rows=raw["rows"])
    _check_types(writer.target, delta.schema)
    net = merge_steps(delta, writer.columns).persist()
    counted = count_change(net, writer.columns)
    inserted = as_copies(net.where(f"{WEIGHT} > 0"), WEIGHT, counted["most"])
    if not counted["deleted"]:
        return _Change(inserted, rows=counted["rows"], kept=(net,))
    return _Change(
        inserted,
        net.where(f"{WEIGHT} < 0"),
        counted["deleted"],
        counted["lost"],
        counted["rows"],
        within(net, writer.columns, counted),
        (net,),
    )


# ── writing on the branch ───────────────────────────────────────────────────────────────────────


def _from_here(
    writer: _SparkWriter, write: _Write, branch: str, base: int, marker: int
) -> int | None:
    """The view at the base with the change, netted, written by `write` without Spark; returns how many
    rows changed, None where Spark has to do it."""
    target = writer.target
    steps, summary = _steps(writer, marker), target.summary(target.last_step)
    found = write(target.view, branch, base, steps, summary)
    if found is not None and found.lacking is not None:
        raise _diverged(writer, found.lacking)
    return None if found is None else found.changed


def _rewrite(writer: _SparkWriter, delta: DataFrame, branch: str, base: int) -> int:
    """The view at the base and the change, netted, in place of all that the branch holds, by Spark."""
    changed = Observation()
    change = merge_steps(delta, writer.columns)
    net = change.observe(changed, F.count(F.lit(1)).alias("rows"))
    copies = _rows_at(writer, base).withColumn(WEIGHT, F.lit(1).cast("bigint"))
    after = merge_steps(copies.unionByName(net), writer.columns)
    lacking = F.raise_error(
        F.concat(F.lit(LACKING), F.to_json(F.struct(*columns_of(writer.columns))))
    )
    weight = F.when(F.col(WEIGHT) < 0, lacking).otherwise(F.col(WEIGHT))
    rows = as_copies(after.withColumn(WEIGHT, weight), WEIGHT, None)
    summary = writer.target.summary(writer.target.last_step)
    try:
        overwrite(writer.catalog, writer.target.view, branch, rows, summary)
    except PySparkException as error:
        if LACKING not in str(error):
            raise
        found = str(error).split(LACKING, 1)[1].split("SQLSTATE", 1)[0].strip()
        raise _diverged(writer, found) from error
    rows_changed = counted_in_passing(changed, "rows")
    return change.count() if rows_changed is None else rows_changed


def _append_inserted(writer: _SparkWriter, branch: str, marker: int) -> int | None:
    """The outbox's own files, if the change is nothing but rows to add; returns how many, else None."""
    target = writer.target
    return writer.state.append_inserted(
        target.view, branch, _steps(writer, marker), target.summary(target.last_step)
    )


def _steps(writer: _SparkWriter, marker: int) -> OutboxSteps:
    target = writer.target
    return OutboxSteps(target.outbox_table, target.outbox_snapshot_id, marker, target.last_step)


def _write(writer: _SparkWriter, delta: DataFrame, branch: str, base: int) -> int:
    """Deletes and an append in place; returns how many rows changed."""
    change = _change_since(writer, delta)
    try:
        appended = change.appended
        if change.deleted is not None:
            _delete(writer, change, branch)
            writer.reached(ViewPoint.DELETED)
            found = _deleted_copies(writer, branch, base)
            if found != change.lost:
                appended = appended.unionByName(_left_over(writer, _hinted(change), base))
        summary = writer.target.summary(writer.target.last_step)
        append(writer.catalog, writer.target.view, branch, appended, summary)
    finally:
        for frame in change.kept:
            frame.unpersist()
    return change.rows


def _hinted(change: _Change) -> DataFrame:
    """The deleted rows, to be sent to every file of the view where they are few enough."""
    assert change.deleted is not None, "asked for only where rows are deleted"
    is_small = change.deleted_rows <= BROADCAST_ROWS
    return F.broadcast(change.deleted) if is_small else change.deleted


def _delete(writer: _SparkWriter, change: _Change, branch: str) -> None:
    """Delete all copies of the rows, found by null-safe equality of all columns."""
    source = f"_{branch}"
    _hinted(change).createOrReplaceTempView(source)
    try:
        matches = (*change.within, *_equal(writer.columns, "t", "s"))
        writer.spark.sql(
            f"MERGE INTO {table_name(writer.catalog, writer.target.view, f'branch_{branch}')} t "
            f"USING {quoted(source)} s ON {' AND '.join(matches)} WHEN MATCHED THEN DELETE"
        )
    finally:
        writer.spark.catalog.dropTempView(source)


def _equal(columns: tuple[str, ...], one: str, other: str) -> list[str]:
    return [f"{one}.{quoted(name)} <=> {other}.{quoted(name)}" for name in columns]


def _deleted_copies(writer: _SparkWriter, branch: str, base: int) -> int:
    """How many rows the deletes on the branch removed, by their own summaries."""
    # Spark writes those of before once more, beside the new ones, and has the former go.
    counted = {"added-position-deletes": 1, "removed-position-deletes": -1, "deleted-records": 1}
    return sum(
        sign * int(summary.get(count, "0"))
        for _, summary in writer.state.summaries(writer.target.view, branch, base)
        for count, sign in counted.items()
    )


def _left_over(writer: _SparkWriter, deleted: DataFrame, base: int) -> DataFrame:
    """The copies that must stay of rows that lose only some: the view at the base says how many there
    were. Raises StateDiverged where a row is taken back more often than it stands there."""
    at_base = _rows_at(writer, base).alias("t")
    matches = " AND ".join(_equal(writer.columns, "t", "s"))
    there = at_base.join(
        deleted.select(*map(quoted, writer.columns)).alias("s"),
        F.expr(matches),
        "left_semi",
    ).withColumn(WEIGHT, F.lit(1).cast("bigint"))
    left = merge_steps(deleted.unionByName(there), writer.columns)
    counted = left.agg(F.min(WEIGHT).alias("least"), F.max(WEIGHT).alias("most")).first()
    assert counted is not None, "an aggregate without groups is one row"
    if (counted["least"] or 0) < 0:
        lacking = left.where(f"{WEIGHT} < 0").first()
        raise _diverged(writer, str(lacking))
    return as_copies(left, WEIGHT, counted["most"])


def _diverged(writer: _SparkWriter, lacking: str) -> StateDiverged:
    target = writer.target
    return StateDiverged(
        f"view {target.view} does not hold rows that {target.outbox_table} takes back: somebody "
        "else has changed it",
        expected="every row as often as the outbox says",
        found=f"too few of {lacking}",
        next_step=f"drop table {target.view} and publish again: it is made anew from the outbox",
    )
