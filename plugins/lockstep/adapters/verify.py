"""Recomputes every published view from scratch with another engine and compares.

The truth is taken from Kafka's raw records in the offset ranges that the control store recorded, and
from Iceberg tables at the snapshots that it recorded, up to the step that the view itself says it
shows; decoding, evaluation (DuckDB) and comparison share
no code with the engine. What is compared is what a reader of the view sees now: the head of `main`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from lockstep.adapters.catalogs import catalog_settings
from lockstep.adapters.iceberg import IcebergState
from lockstep.adapters.settings import Settings
from lockstep.adapters.sql_store import SqlStore
from lockstep.adapters.verify_changes import reading_of
from lockstep.adapters.verify_compare import compare, inexact_columns
from lockstep.adapters.verify_decode import Row, UndecodableError, arrow_type
from lockstep.adapters.verify_functions import make_functions
from lockstep.adapters.verify_late import OnTime, refuse_watermark
from lockstep.adapters.verify_records import read_ranges
from lockstep.adapters.verify_tables import in_utc, load_table
from lockstep.adapters.verify_views import make_views
from lockstep.control.history import all_divisions, as_recorded
from lockstep.control.kafka_options import KafkaConnection
from lockstep.control.model import Division, OffsetRange, PipelineState, TopicSlice
from lockstep.control.ports import Progress
from lockstep.errors import StateDiverged, Unreachable, WrongUse
from lockstep.ids import FAILED_ROWS_TABLE
from lockstep.lake.opening import OpenCatalog
from lockstep.sql.circuit import Project, SourceTable, View
from lockstep.sql.duckdb_text import duckdb_statements
from lockstep.sql.project import parse_project
from lockstep.sql.sources.source_layout import layout_of
from lockstep.sql.sources.watermarks import watermark_of

if TYPE_CHECKING:
    from pyiceberg.table import Table

__all__ = ["ViewCheck", "verify"]

BATCH_ROWS = 50_000


@dataclass(frozen=True)
class ViewCheck:
    """One published view, compared at the step that it shows.

    `missing` and `unexpected` count rows with their copies; `sample` shows a few of them.
    `bad_records` counts records that were left out, by source. `equal` is None, and nothing was
    compared, where `failed_rows` are left out of the view because an expression fails for them (what
    the other engine would make of those is its own), or where it can't compute the view, for the
    `reason` that it gives.
    """

    view: str
    step: int
    equal: bool | None
    rows_published: int
    rows_expected: int
    missing: int
    unexpected: int
    sample: tuple[str, ...]
    bad_records: Mapping[str, int]
    failed_rows: int = 0
    reason: str = ""


@dataclass(frozen=True)
class _Shown:
    """What a reader sees of a view, and the step that it stands for."""

    view: View
    step: int
    rows: pa.Table


@dataclass(frozen=True)
class _Loaded:
    """A source's table: its rows, the records that are none, and the watermark after the last step."""

    rows: int
    bad_records: int = 0
    watermark: datetime | None = None


def verify(name: str, settings: Settings, progress: Progress) -> tuple[ViewCheck, ...]:
    """Check every published view of a deployed pipeline; in the order of the project.

    Raises NotDeployed; WrongUse where a view has never been published; StateDiverged where a marker
    or the recorded divisions do not fit; SourceChanged where records are gone; Unreachable.
    """
    store = SqlStore(settings.store_url)
    state = store.read(name)
    project = parse_project(state.version_files, settings.variables())
    wanted = catalog_settings(project.catalog, project.database, project.configuration, settings)
    catalog = OpenCatalog(wanted)
    shown = _published_views(project, state, catalog)
    failed = _failed_rows(project, state, catalog)
    checks: dict[str, ViewCheck] = {}
    for step, together in groupby(sorted(shown, key=lambda s: s.step), key=lambda s: s.step):
        progress(f"recomputing step {step} from the sources")
        logged = all_divisions(state, step, store, IcebergState(wanted))
        divisions = as_recorded(logged, state.positions).divisions
        with duckdb.connect() as connection:
            make_functions(connection, project.functions)
            loaded = _load_sources(connection, project, divisions, step, catalog, progress)
            bad_records = {source: one.bad_records for source, one in loaded.items()}
            watermarks = {source: one.watermark for source, one in loaded.items()}
            statements = duckdb_statements(project, divisions[-1].time, watermarks)
            unread = make_views(connection, statements)
            for one in together:
                left_out, reason = failed(one), unread.get(one.view.name, "")
                if left_out or reason:
                    check = _not_compared(one, bad_records, left_out, reason)
                else:
                    check = _check(connection, one, bad_records)
                checks[check.view] = check
                progress(_sentence(check))
    return tuple(checks[view.name] for view in project.views if _is_shown(view))


def _is_shown(view: View) -> bool:
    return view.published and not view.audit


def _published_views(
    project: Project, state: PipelineState, catalog: OpenCatalog
) -> tuple[_Shown, ...]:
    return tuple(
        _show(catalog, project, view, state.incarnation)
        for view in project.views
        if _is_shown(view)
    )


def _show(catalog: OpenCatalog, project: Project, view: View, incarnation: str) -> _Shown:
    from pyiceberg.exceptions import NoSuchTableError

    name = f"{project.catalog}.{project.database}.{view.name}"
    try:
        table = catalog.load(project.database, view.name)
    except NoSuchTableError as error:
        raise WrongUse(
            f"view {name} has never been published",
            expected="a table in the catalog",
            found="none",
            next_step="run an interval, then verify again",
        ) from error
    except Exception as error:
        raise Unreachable(
            f"view {name} could not be opened",
            found=str(error),
            next_step="see whether the catalog answers, then verify again",
        ) from error
    step, marked_by = _marker(table)
    if marked_by != incarnation:
        raise StateDiverged(
            f"view {name} was published by another incarnation of the pipeline",
            expected=incarnation,
            found=marked_by or "no marker",
            next_step=f"lockstep doctor {project.name}",
        )
    rows = table.scan().to_arrow()
    return _Shown(view, step, rows.cast(pa.schema([in_utc(field) for field in rows.schema])))


def _marker(table: Table) -> tuple[int, str]:
    """Step and incarnation of the newest marked snapshot that `main` descends from; (-1, '') where
    there is none. A user's own snapshot on top has no marker, and changes nothing but the rows."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        if "lockstep.step" in summary:
            return int(summary["lockstep.step"]), summary.get("lockstep.incarnation", "")
        parent = snapshot.parent_snapshot_id
        snapshot = table.snapshot_by_id(parent) if parent is not None else None
    return -1, ""


def _load_sources(
    connection: duckdb.DuckDBPyConnection,
    project: Project,
    divisions: Sequence[Division],
    step: int,
    catalog: OpenCatalog,
    progress: Progress,
) -> Mapping[str, _Loaded]:
    """Make a table of each source with the rows of steps 0..step."""
    if [division.step for division in divisions] != list(range(step + 1)):
        raise StateDiverged(
            f"the control store does not hold the divisions of steps 0 to {step}",
            expected=f"{step + 1} divisions",
            found=f"{len(divisions)}",
            next_step=f"lockstep doctor {project.name}",
        )
    loaded = {}
    for source in project.sources:
        if source.is_table:
            refuse_watermark(source)
            one = _Loaded(load_table(connection, source, divisions, catalog))
        else:
            one = _load_source(connection, source, divisions)
        loaded[source.name] = one
        progress(f"{source.name}: {one.rows:,} rows, {one.bad_records} bad records")
    return loaded


def _load_source(
    connection: duckdb.DuckDBPyConnection, source: SourceTable, divisions: Sequence[Division]
) -> _Loaded:
    schema = pa.schema([(column.name, arrow_type(column.type)) for column in source.columns])
    reading = reading_of(source)
    if watermark_of(source) is not None:
        reading = OnTime(source, reading)
    steps = _Steps(source.name, divisions)
    shows_time = "step_time" in layout_of(source).metadata.values()
    times = {d.step: d.time.replace(tzinfo=None) for d in divisions if shows_time}
    total = bad = 0
    batch: list[tuple[object, ...]] = []

    def store(rows: Iterable[Row]) -> None:
        nonlocal total
        for row in rows:
            batch.append(row)
            total += 1
            if len(batch) >= BATCH_ROWS:
                store_batch()

    def store_batch() -> None:
        columns = zip(*batch, strict=True) if batch else [()] * len(schema)
        arrays = [
            pa.array(list(values), field.type)
            for values, field in zip(columns, schema, strict=True)
        ]
        connection.register("_batch", pa.Table.from_arrays(arrays, schema=schema))
        connection.execute(f'INSERT INTO "{source.name}" SELECT * FROM _batch')
        connection.unregister("_batch")
        batch.clear()

    connection.register("_empty", schema.empty_table())
    connection.execute(f'CREATE TABLE "{source.name}" AS SELECT * FROM _empty')
    for slice_ in _whole_range(source.name, divisions):
        broker = KafkaConnection.from_options(source.options, source.name)
        for record in read_ranges(broker, slice_.topic, slice_.topic_id, slice_.ranges):
            step = steps.of(record.partition, record.offset)
            timed = replace(record, step_time=times[step]) if times else record
            try:
                rows = reading.rows(timed, step)
            except UndecodableError:
                bad += 1
                continue
            store(rows)
    store(reading.rest())
    store_batch()
    return _Loaded(total, bad, reading.watermark if isinstance(reading, OnTime) else None)


class _Steps:
    """Which step a record of the source belongs to."""

    def __init__(self, source: str, divisions: Sequence[Division]) -> None:
        self._ends: dict[int, list[int]] = {}
        self._steps: dict[int, list[int]] = {}
        for division in divisions:
            for slice_ in division.slices:
                if isinstance(slice_, TopicSlice) and slice_.source == source:
                    for range_ in slice_.ranges:
                        self._ends.setdefault(range_.partition, []).append(range_.end)
                        self._steps.setdefault(range_.partition, []).append(division.step)

    def of(self, partition: int, offset: int) -> int:
        return self._steps[partition][bisect_right(self._ends[partition], offset)]


def _whole_range(source: str, divisions: Sequence[Division]) -> tuple[TopicSlice, ...]:
    """All that the divisions read of a source, as one slice of one range a partition, or nothing.

    Raises StateDiverged where a step does not begin where the one before it ended.
    """
    slices = [
        slice_
        for division in divisions
        for slice_ in division.slices
        if slice_.source == source and isinstance(slice_, TopicSlice)
    ]
    if not slices:
        return ()
    ranges: dict[int, OffsetRange] = {}
    for slice_ in slices:
        for range_ in slice_.ranges:
            before = ranges.get(range_.partition)
            if before is not None and before.end != range_.start:
                raise StateDiverged(
                    f"the recorded ranges of {source}, partition {range_.partition}, have a gap",
                    expected=f"a range from {before.end}",
                    found=f"one from {range_.start}",
                    next_step="lockstep doctor DIR",
                )
            start = range_.start if before is None else before.start
            ranges[range_.partition] = OffsetRange(range_.partition, start, range_.end)
    last = slices[-1]
    merged = tuple(ranges[partition] for partition in sorted(ranges))
    return (TopicSlice(source, last.topic, last.topic_id, merged),)


def _check(
    connection: duckdb.DuckDBPyConnection, shown: _Shown, bad_records: Mapping[str, int]
) -> ViewCheck:
    connection.register("_published", shown.rows)
    connection.execute(
        f'CREATE OR REPLACE TEMP TABLE _expected AS SELECT * FROM "{shown.view.name}"'
    )
    found = compare(connection, "_published", "_expected", inexact_columns(shown.view.plan))
    connection.unregister("_published")
    return ViewCheck(
        shown.view.name,
        shown.step,
        found.missing == 0 and found.unexpected == 0,
        found.rows_published,
        found.rows_expected,
        found.missing,
        found.unexpected,
        found.sample,
        bad_records,
    )


def _failed_rows(
    project: Project, state: PipelineState, catalog: OpenCatalog
) -> Callable[[_Shown], int]:
    """How many rows are left out of what a view shows, as an expression of it fails for them."""
    snapshot = state.version.tables.get(FAILED_ROWS_TABLE)
    if snapshot is None:
        return lambda _: 0
    table = catalog.load(project.database, FAILED_ROWS_TABLE)
    columns = ("views", "_weight", "_step")
    rows = table.scan(snapshot_id=snapshot, selected_fields=columns).to_arrow().to_pylist()
    return lambda shown: sum(
        row["_weight"]
        for row in rows
        if shown.view.name in row["views"] and row["_step"] <= shown.step
    )


def _not_compared(
    shown: _Shown, bad_records: Mapping[str, int], failed_rows: int, reason: str
) -> ViewCheck:
    return ViewCheck(
        shown.view.name,
        shown.step,
        None,
        shown.rows.num_rows,
        0,
        0,
        0,
        (),
        bad_records,
        failed_rows,
        reason,
    )


def _sentence(check: ViewCheck) -> str:
    if check.equal is None:
        failed = f"an expression fails for {check.failed_rows:,} rows ({FAILED_ROWS_TABLE})"
        why = f"DuckDB can't compute it: {check.reason}" if check.reason else failed
        return (
            f"{check.view}: {check.rows_published:,} rows at step {check.step}, not compared: {why}"
        )
    if check.equal:
        return f"{check.view}: {check.rows_published:,} rows at step {check.step}, equal"
    return (
        f"{check.view}: {check.rows_published:,} rows at step {check.step}, "
        f"expected {check.rows_expected:,}: {check.missing} missing, {check.unexpected} unexpected"
    )
