"""How far a deployed pipeline is: what is recorded, what waits in its sources, what could not be
read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lockstep.adapters.catalogs import catalog_settings
from lockstep.adapters.settings import Settings
from lockstep.adapters.sql_store import SqlStore
from lockstep.control.model import PipelineState, SourceSlice, TableSlice, TopicSlice
from lockstep.control.ports import SourceBounds
from lockstep.control.table_history import TableHistory
from lockstep.errors import LockstepError
from lockstep.ids import FAILED_ROWS_TABLE, errors_table
from lockstep.sql.project import parse_project

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from lockstep.sql.circuit import Project

__all__ = ["Overview", "SinkPosition", "overview"]


@dataclass(frozen=True)
class SinkPosition:
    """A sink and the last step that is recorded as published to it, -1 for none."""

    name: str
    provider: str
    step: int


@dataclass(frozen=True)
class Overview:
    """One pipeline. `step` and `version` are the newest committed; -1 and 0 before the first.

    `lag_records` counts offsets and changed rows (at most) that are in no recorded step yet, and
    `error_records` rows of the newest version's error tables, both by source, and by `_failed_rows`,
    where there is such a table, the rows for which an expression fails; None, with the reason in
    `trouble`, where Kafka or the catalog could not be asked.
    """

    name: str
    state: str
    step: int
    version: int
    is_pending: bool
    sinks: tuple[SinkPosition, ...]
    lag_records: Mapping[str, int] | None = field(hash=False)
    error_records: Mapping[str, int] | None = field(hash=False)
    trouble: tuple[str, ...] = ()


def overview(name: str, settings: Settings) -> Overview:
    """Raises NotDeployed; what does not answer stands in `trouble` instead of hiding the rest."""
    state = SqlStore(settings.store_url).read(name)
    lag: Mapping[str, int] | None = None
    errors: Mapping[str, int] | None = None
    trouble: list[str] = []
    try:
        project = parse_project(state.version_files, settings.variables())
        try:
            errors = _errors(project, state, settings)
        except LockstepError as error:
            trouble.append(str(error))
        lag = _lag(project, state, settings)
    except LockstepError as error:
        trouble.append(str(error))
    return Overview(
        name=name,
        state=state.status.value,
        step=state.version.last_step,
        version=state.version.number,
        is_pending=state.pending is not None,
        sinks=tuple(SinkPosition(s.name, s.provider, s.published_step) for s in state.sinks),
        lag_records=lag,
        error_records=errors,
        trouble=tuple(trouble),
    )


def _lag(project: Project, state: PipelineState, settings: Settings) -> Mapping[str, int]:
    """By source: what is there, less what recorded steps hold."""
    from lockstep.adapters.sources import ProjectSources

    catalog = catalog_settings(project.catalog, project.database, project.configuration, settings)
    reached = {slice_.source: slice_ for slice_ in state.positions}
    sources = ProjectSources(project, catalog)
    try:
        return {
            source.name: _behind(sources.bounds(source.name), reached.get(source.name))
            for source in project.sources
        }
    finally:
        sources.close()


def _behind(bounds: SourceBounds, position: SourceSlice | None) -> int:
    if isinstance(bounds, TableHistory):
        read = position.end if isinstance(position, TableSlice) else None
        return bounds.records(read, bounds.head)
    ranges = position.ranges if isinstance(position, TopicSlice) else ()
    known = {range_.partition: range_.end for range_ in ranges}
    return sum(
        max(0, held.last_stable - known.get(held.partition, held.first))
        for held in bounds.partitions
    )


def _errors(project: Project, state: PipelineState, settings: Settings) -> Mapping[str, int]:
    """By source: rows of its error table in the newest version, from the snapshot's own summary. And
    the rows that have failed, less those that went again."""
    from pyiceberg.exceptions import NoSuchTableError

    from lockstep.lake.opening import OpenCatalog

    wanted = catalog_settings(project.catalog, project.database, project.configuration, settings)
    table_of = {source.name: errors_table(source.name) for source in project.sources}
    counts = dict.fromkeys(table_of, 0)
    table_of[FAILED_ROWS_TABLE] = FAILED_ROWS_TABLE
    snapshots = state.version.tables
    found = {name: table for name, table in table_of.items() if table in snapshots}
    if not found:
        return counts
    catalog = OpenCatalog(wanted)
    for name, error_table in found.items():
        try:
            table = catalog.load(wanted.database, error_table)
        except NoSuchTableError as error:
            raise LockstepError(
                f"the table {error_table} is in version {state.version.number}, but not "
                "in the catalog",
                expected=f"snapshot {snapshots[error_table]} of it in {wanted.name}.{wanted.database}",
                found="no such table",
            ) from error
        counts[name] = _rows(table, snapshots[error_table], name == FAILED_ROWS_TABLE)
    return counts


def _rows(table: Table, snapshot_id: int, is_changes: bool) -> int:
    if is_changes:
        scan = table.scan(snapshot_id=snapshot_id, selected_fields=("_weight",))
        return sum(scan.to_arrow()["_weight"].to_pylist())
    snapshot = table.snapshot_by_id(snapshot_id)
    if snapshot is None or snapshot.summary is None:
        return 0
    return int(snapshot.summary["total-records"] or 0)
