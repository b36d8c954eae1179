"""The published view as an Iceberg table: the rows themselves, for any engine (design, section 6).

Law: with marker s, the rows of `main` are the sum of the outbox's changes up to step s, each row as
often as its weight says. Every publish moves rows and marker in one change of `main`: it works on a
branch of its own made where `main` stands, and `main` moves there only if it still stands where the
branch was made. So a publish that dies has changed nothing, and one that is repeated finds the marker.

On the branch, rows that lose copies are deleted with all their copies (position deletes, by a MERGE
that only deletes: Spark then broadcasts the change instead of shuffling the view), and an append
brings new rows, and the copies that remain. The append's summary carries the marker. A view of few
rows is written anew instead: that is one Spark job and not five, and leaves no deletes behind. Where
nothing has changed, only the marker moves.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lockstep.control.job import CatalogSettings
from lockstep.control.ports import State, ViewHead
from lockstep.errors import AttemptLost, LockstepError, Refused, StateDiverged
from lockstep.ids import publish_branch, publish_branches
from lockstep_engine.deltas import STEP, WEIGHT, columns_of, merge_steps, quoted
from lockstep_engine.sinks.view_rows import as_copies, count_change, incomparable, within
from lockstep_engine.tables import (
    TABLE_PROPERTIES,
    add_columns,
    append,
    ensure_table,
    overwrite,
    read_at,
    table_name,
)

__all__ = ["SMALL_ROWS", "VIEW_PROPERTIES", "ViewPoint", "ViewPublished", "publish_view"]

TRIES = 5
"""How often a publish starts again because somebody else moved `main`: a user's compaction."""

SMALL_ROWS = 50_000
"""Up to so many rows, of the view and of the change together, the view is written anew."""

LACKING = "lockstep: too few rows like "
"""Marks Spark's error where a change takes back a row that is not there."""

BROADCAST_ROWS = 1_000_000
"""Up to so many deleted rows the change is sent to the view's files, beyond it both are shuffled."""

VIEW_PROPERTIES: Mapping[str, str] = MappingProxyType(
    {**TABLE_PROPERTIES, "write.merge.mode": "merge-on-read", "write.delete.mode": "merge-on-read"}
)


class ViewPoint(Enum):
    """Places in a publish where a crash must be harmless; tests raise and kill there."""

    MADE = "the view's table exists, with the marker of no step"
    BRANCHED = "the branch stands where main is"
    DELETED = "deletes stand on the branch, nothing is appended"
    APPENDED = "the branch holds the next state and its marker"
    SHOWN = "main shows it"


@dataclass(frozen=True)
class ViewPublished:
    """`marker` is the last step that the view holds; `rows` how many row changes this call made."""

    marker: int
    rows: int


@dataclass(frozen=True)
class _Publish:
    """What one publish works with; `columns` as written, in order."""

    spark: SparkSession
    state: State
    catalog: CatalogSettings
    view: str
    columns: tuple[str, ...]
    outbox_table: str
    outbox_snapshot_id: int
    last_step: int
    incarnation: str
    reached: Callable[[ViewPoint], None]
    small_rows: int

    def summary(self, step: int) -> Mapping[str, str]:
        """The marker, as it stands in a snapshot."""
        return {"lockstep.step": str(step), "lockstep.incarnation": self.incarnation}

    @property
    def outbox(self) -> DataFrame:
        return read_at(self.spark, self.catalog, self.outbox_table, self.outbox_snapshot_id)


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


def publish_view(  # noqa: PLR0913, PLR0917 - one publish is told all of this by name
    spark: SparkSession,
    state: State,
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

    Raises StateDiverged where the view
    is not this incarnation's or does not hold what the outbox takes back, Refused for columns
    that cannot be compared, AttemptLost where others keep moving `main`.
    """
    publish = _Publish(
        spark,
        state,
        catalog,
        view,
        columns,
        outbox_table,
        outbox_snapshot_id,
        last_step,
        incarnation,
        reached,
        small_rows,
    )
    for _ in range(TRIES):
        head = _opened(publish)
        marker = _marker_step(publish, head)
        if marker >= last_step:
            return ViewPublished(marker, 0)
        rows = _move(publish, head, marker)
        if rows is not None:
            return ViewPublished(last_step, rows)
    raise AttemptLost(
        f"view {view}: main moved {TRIES} times while step {last_step} was published",
        expected="nobody else to write to a published view for as long as a publish takes",
        found="a new snapshot each time",
        next_step="publish again once its compaction has ended",
    )


# ── where the view is ───────────────────────────────────────────────────────────────────────────


def _opened(publish: _Publish) -> ViewHead:
    """The view's head; the table is made if it is not there, marked as holding no step yet."""
    head = publish.state.view_head(publish.view)
    if head is None:
        wanted = publish.outbox.select(*map(quoted, publish.columns))
        _check_types(publish, wanted.schema)
        ensure_table(
            publish.spark,
            publish.catalog,
            publish.view,
            wanted,
            VIEW_PROPERTIES,
            publish.summary(-1),
        )
        publish.reached(ViewPoint.MADE)
        head = publish.state.view_head(publish.view)
    if head is not None and set(head.columns) != set(publish.columns):
        _change_columns(publish, head)
    if head is not None and head.snapshot_id is None:
        # Somebody made the table by hand, with partitions perhaps; a branch needs a snapshot.
        empty = publish.outbox.select(*map(quoted, publish.columns)).limit(0)
        append(publish.catalog, publish.view, "main", empty, publish.summary(-1))
        head = publish.state.view_head(publish.view)
    assert head is not None, "the table has just been made or found"
    return head


def _change_columns(publish: _Publish, head: ViewHead) -> None:
    """Give the table the columns that the view has by now. In what stands there new ones are null, as
    they are in what the outbox takes back of it."""
    wanted = publish.outbox.select(*map(quoted, publish.columns)).schema
    add_columns(publish.spark, publish.catalog, publish.view, wanted)
    dropped = [name for name in head.columns if name not in publish.columns]
    if dropped:
        name, columns = table_name(publish.catalog, publish.view), ", ".join(map(quoted, dropped))
        publish.spark.sql(f"ALTER TABLE {name} DROP COLUMNS ({columns})")


def _rows_at(publish: _Publish, snapshot_id: int) -> DataFrame:
    """The view at a snapshot, under the columns that it has by now."""
    rows = read_at(publish.spark, publish.catalog, publish.view, snapshot_id)
    kinds = {field.name: field.dataType for field in publish.outbox.schema.fields}
    return rows.select(
        *(
            F.col(quoted(name))
            if name in rows.columns
            else F.lit(None).cast(kinds[name]).alias(name)
            for name in publish.columns
        )
    )


def _marker_step(publish: _Publish, head: ViewHead) -> int:
    """The last step in the view, by its own marker. An absent one is never taken for step -1, unless
    there is nothing in the table."""
    next_step = (
        f"rename or drop table {publish.view} to have it published anew, or give the project "
        "another database"
    )
    if head.marker is None:
        if head.records == 0:
            return -1
        raise StateDiverged(
            f"view {publish.view} holds rows, and no snapshot says up to which step",
            expected=f"a snapshot with lockstep.step of incarnation {publish.incarnation}",
            found=f"{head.records:,} rows without any marker",
            next_step=next_step,
        )
    if head.marker.incarnation != publish.incarnation:
        raise StateDiverged(
            f"view {publish.view} belongs to another pipeline, or to an earlier life of this one",
            expected=f"incarnation {publish.incarnation}",
            found=f"incarnation {head.marker.incarnation}, at step {head.marker.step}",
            next_step=next_step,
        )
    return head.marker.step


def _check_types(publish: _Publish, schema: StructType) -> None:
    """Rows are found again by comparing all their columns, which Spark cannot do for some types."""
    for field in incomparable(schema):
        raise Refused(
            f"view {publish.view}: column {field.name} cannot be published",
            expected="types that can be compared",
            found=field.dataType.simpleString(),
            next_step=f"publish it as text, `to_json({field.name})`, or as an array of entries, "
            f"`array_sort(map_entries({field.name}))`",
        )


# ── what changes ────────────────────────────────────────────────────────────────────────────────


def _since(publish: _Publish, marker: int) -> DataFrame:
    """The outbox's changes after the marker: columns and `_weight`."""
    return publish.outbox.where(f"{STEP} > {marker} AND {STEP} <= {publish.last_step}").select(
        *map(quoted, (*publish.columns, WEIGHT))
    )


def _change_since(publish: _Publish, delta: DataFrame) -> _Change:
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
    _check_types(publish, delta.schema)
    net = merge_steps(delta, publish.columns).persist()
    counted = count_change(net, publish.columns)
    inserted = as_copies(net.where(f"{WEIGHT} > 0"), WEIGHT, counted["most"])
    if not counted["deleted"]:
        return _Change(inserted, rows=counted["rows"], kept=(net,))
    return _Change(
        inserted,
        net.where(f"{WEIGHT} < 0"),
        counted["deleted"],
        counted["lost"],
        counted["rows"],
        within(net, publish.columns, counted),
        (net,),
    )


# ── moving the view ─────────────────────────────────────────────────────────────────────────────


def _move(publish: _Publish, head: ViewHead, marker: int) -> int | None:
    """Write the next state on a branch and show it on `main`: changed rows, or None where `main` has
    left the snapshot that the branch was made at."""
    base = head.snapshot_id
    assert base is not None, "an opened view has a snapshot"
    branch = publish_branch(publish.incarnation, uuid.uuid4().hex[:12])
    pending = publish.state.records_after(publish.outbox_table, publish.outbox_snapshot_id, marker)
    delta = _since(publish, marker)
    try:
        publish.state.open_branch(publish.view, branch, base)
        publish.reached(ViewPoint.BRANCHED)
        if not pending:
            publish.state.append_rows(publish.view, branch, (), publish.summary(publish.last_step))
            rows = 0
        elif head.records + pending <= publish.small_rows and not incomparable(delta.schema):
            rows = _rewrite(publish, delta, branch, base)
        else:
            rows = _write(publish, delta, branch, base)
    except LockstepError:
        # A refusal of our own: nothing is under way on the branch. After any other error something
        # may be, and the next publish that lands sweeps the branch.
        publish.state.drop_refs(publish.view, (branch,))
        raise
    except PySparkException:
        # Whoever moved main first has swept this branch: to be overtaken is no failure.
        newest = publish.state.view_head(publish.view)
        if newest is None or newest.snapshot_id == base:
            raise
        publish.state.drop_refs(publish.view, (branch,))
        return None
    publish.reached(ViewPoint.APPENDED)
    written = publish.state.summaries(publish.view, branch, base)
    is_marked = ["lockstep.step" in summary for _, summary in written]
    if is_marked.count(True) != 1 or not is_marked[-1]:
        # The server ran the append twice after a restart: what is on the branch is void.
        publish.state.drop_refs(publish.view, (branch,))
        return None
    # Branches of publishes that died: main leaves their base now, so they cannot land any more.
    stale = [name for name in head.refs if name.startswith(publish_branches(publish.incarnation))]
    shown = publish.state.show_marked(publish.view, base, written[-1][0], (branch, *stale))
    if not shown:
        publish.state.drop_refs(publish.view, (branch,))
        return None
    publish.reached(ViewPoint.SHOWN)
    return rows


def _rewrite(publish: _Publish, delta: DataFrame, branch: str, base: int) -> int:
    """The view at the base and the change, netted, in place of all that the branch holds; returns how
    many rows changed."""
    changed = Observation()
    change = merge_steps(delta, publish.columns)
    net = change.observe(changed, F.count(F.lit(1)).alias("rows"))
    copies = _rows_at(publish, base).withColumn(WEIGHT, F.lit(1).cast("bigint"))
    after = merge_steps(copies.unionByName(net), publish.columns)
    lacking = F.raise_error(
        F.concat(F.lit(LACKING), F.to_json(F.struct(*columns_of(publish.columns))))
    )
    weight = F.when(F.col(WEIGHT) < 0, lacking).otherwise(F.col(WEIGHT))
    rows = as_copies(after.withColumn(WEIGHT, weight), WEIGHT, None)
    summary = publish.summary(publish.last_step)
    try:
        overwrite(publish.catalog, publish.view, branch, rows, summary)
    except PySparkException as error:
        if LACKING not in str(error):
            raise
        found = str(error).split(LACKING, 1)[1].split("SQLSTATE", 1)[0].strip()
        raise _diverged(publish, found) from error
    # A busy server answers before its listener has the metrics, and then sends none.
    return int(changed.get["rows"]) if "rows" in changed.get else change.count()


def _write(publish: _Publish, delta: DataFrame, branch: str, base: int) -> int:
    """Deletes and an append in place; returns how many rows changed."""
    change = _change_since(publish, delta)
    try:
        appended = change.appended
        if change.deleted is not None:
            _delete(publish, change, branch)
            publish.reached(ViewPoint.DELETED)
            found = _deleted_copies(publish, branch, base)
            if found != change.lost:
                appended = appended.unionByName(_left_over(publish, _hinted(change), base))
        summary = publish.summary(publish.last_step)
        append(publish.catalog, publish.view, branch, appended, summary)
    finally:
        for frame in change.kept:
            frame.unpersist()
    return change.rows


def _hinted(change: _Change) -> DataFrame:
    """The deleted rows, to be sent to every file of the view where they are few enough."""
    assert change.deleted is not None, "asked for only where rows are deleted"
    is_small = change.deleted_rows <= BROADCAST_ROWS
    return F.broadcast(change.deleted) if is_small else change.deleted


def _delete(publish: _Publish, change: _Change, branch: str) -> None:
    """Delete all copies of the rows, found by null-safe equality of all columns."""
    source = f"_{branch}"
    _hinted(change).createOrReplaceTempView(source)
    try:
        matches = (*change.within, *_equal(publish.columns, "t", "s"))
        publish.spark.sql(
            f"MERGE INTO {table_name(publish.catalog, publish.view, f'branch_{branch}')} t "
            f"USING {quoted(source)} s ON {' AND '.join(matches)} WHEN MATCHED THEN DELETE"
        )
    finally:
        publish.spark.catalog.dropTempView(source)


def _equal(columns: tuple[str, ...], one: str, other: str) -> list[str]:
    return [f"{one}.{quoted(name)} <=> {other}.{quoted(name)}" for name in columns]


def _deleted_copies(publish: _Publish, branch: str, base: int) -> int:
    """How many rows the deletes on the branch removed, by their own summaries."""
    return sum(
        int(summary.get("added-position-deletes", "0")) + int(summary.get("deleted-records", "0"))
        for _, summary in publish.state.summaries(publish.view, branch, base)
    )


def _left_over(publish: _Publish, deleted: DataFrame, base: int) -> DataFrame:
    """The copies that must stay of rows that lose only some: the view at the base says how many there
    were. Raises StateDiverged where a row is taken back more often than it stands there."""
    at_base = _rows_at(publish, base).alias("t")
    matches = " AND ".join(_equal(publish.columns, "t", "s"))
    there = at_base.join(
        deleted.select(*map(quoted, publish.columns)).alias("s"),
        F.expr(matches),
        "left_semi",
    ).withColumn(WEIGHT, F.lit(1).cast("bigint"))
    left = merge_steps(deleted.unionByName(there), publish.columns)
    counted = left.agg(F.min(WEIGHT).alias("least"), F.max(WEIGHT).alias("most")).first()
    assert counted is not None, "an aggregate without groups is one row"
    if (counted["least"] or 0) < 0:
        lacking = left.where(f"{WEIGHT} < 0").first()
        raise _diverged(publish, str(lacking))
    return as_copies(left, WEIGHT, counted["most"])


def _diverged(publish: _Publish, lacking: str) -> StateDiverged:
    return StateDiverged(
        f"view {publish.view} does not hold rows that {publish.outbox_table} takes back: somebody "
        "else has changed it",
        expected="every row as often as the outbox says",
        found=f"too few of {lacking}",
        next_step=f"drop table {publish.view} and publish again: it is made anew from the outbox",
    )
