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
from lockstep.ids import errors_table
from lockstep.sql.project import parse_project

if TYPE_CHECKING:
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
    `error_records` rows of the newest version's error tables, both by source; None, with the reason in
    `trouble`, where Kafka or the catalog could not be asked.
    """

    name: str
    desired: str
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
        project = parse_project(state.files, settings.variables())
        try:
            errors = _errors(project, state, settings)
        except LockstepError as error:
            trouble.append(str(error))
        lag = _lag(project, state, settings)
    except LockstepError as error:
        trouble.append(str(error))
    return Overview(
        name=name,
        desired=state.desired.value,
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
    """By source: rows of its error table in the newest version, from the snapshot's own summary."""
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchTableError

    wanted = catalog_settings(project.catalog, project.database, project.configuration, settings)
    snapshots = {
        source.name: state.version.tables.get(errors_table(source.name))
        for source in project.sources
    }
    if not any(snapshots.values()):
        return dict.fromkeys(snapshots, 0)
    catalog = load_catalog(wanted.name, **wanted.pyiceberg)
    counts = {}
    for source, snapshot_id in snapshots.items():
        counts[source] = 0
        if snapshot_id is None:
            continue
        try:
            table = catalog.load_table((wanted.database, errors_table(source)))
        except NoSuchTableError as error:
            raise LockstepError(
                f"the table {errors_table(source)} is in version {state.version.number}, but not "
                "in the catalog",
                expected=f"snapshot {snapshot_id} of it in {wanted.name}.{wanted.database}",
                found="no such table",
            ) from error
        snapshot = table.snapshot_by_id(snapshot_id)
        if snapshot is not None and snapshot.summary is not None:
            counts[source] = int(snapshot.summary["total-records"] or 0)
    return counts
