"""The sources of a project, topics and followed tables: what the plan of an interval looks up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from lockstep.adapters.kafka import KafkaSources
from lockstep.control.job import CatalogSettings
from lockstep.control.ports import SourceBounds
from lockstep.control.table_history import TableHistory
from lockstep.lake.following import check_columns, load_followed, table_history
from lockstep.lake.opening import OpenCatalog
from lockstep.sql.circuit import Project

__all__ = ["ProjectSources"]


class ProjectSources:
    """Implements `control.ports.Sources` for a project whose tables are in `catalog`. Close it when
    done.

    Connects to a broker or to the catalog when a source of its kind is first asked for.
    """

    def __init__(self, project: Project, catalog: CatalogSettings) -> None:
        self._tables = {source.name: source for source in project.sources if source.is_table}
        self._topics = KafkaSources(project)
        self._catalog = OpenCatalog(catalog)

    @property
    def start_at_latest(self) -> frozenset[str]:
        """Sources that begin at the end of their topic."""
        return self._topics.start_at_latest

    def bounds(self, source: str) -> SourceBounds:
        """What the source holds now. A table is read once, so that all of it is of one moment."""
        return self.history(source) if source in self._tables else self._topics.bounds(source)

    def history(self, source: str) -> TableHistory:
        """The snapshots of a followed table. Raises SourceChanged, ProjectError, Unreachable."""
        followed = self._tables[source]
        metadata = load_followed(self._catalog, followed).metadata
        check_columns(followed, metadata)
        return table_history(followed, metadata)

    def offsets_at(
        self, source: str, times: Sequence[datetime]
    ) -> tuple[Mapping[int, int | None], ...]:
        """As `KafkaSources.offsets_at`."""
        return self._topics.offsets_at(source, times)

    def close(self) -> None:
        """Close the connections; the next question opens them again."""
        self._topics.close()
