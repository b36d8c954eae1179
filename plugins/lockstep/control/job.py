"""What the control side asks of the engine and what comes back: values that are written as JSON.

The engine knows nothing of stores, leases or Airflow: an `IntervalJob` holds everything that the
result may depend on, so that the same job gives the same rows wherever it runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from lockstep.control.layout.layouts import Layout
from lockstep.control.layout.records import LoggedLayout
from lockstep.control.model import Division, Interval
from lockstep.sql.circuit import ProjectFiles

__all__ = [
    "CatalogSettings",
    "CompareJob",
    "CompareResult",
    "ComparedTable",
    "CopySettings",
    "Difference",
    "ExpireJob",
    "IntervalJob",
    "IntervalResult",
    "MergeJob",
    "MergeTable",
    "Placement",
    "PreviewJob",
    "PublishJob",
    "PublishResult",
    "Rebuilding",
    "SinkTarget",
    "TableWrite",
    "ViewDifference",
]


@dataclass(frozen=True)
class CopySettings:
    """Where copies of data files may be kept on the machine of whoever looks rows up, and how many bytes
    of them. No result depends on it."""

    folder: str
    most_bytes: int


@dataclass(frozen=True)
class CatalogSettings:
    """An Iceberg catalog and the database in it.

    `spark` are the properties below `spark.sql.catalog.<name>.`; `pyiceberg` those that
    `pyiceberg.catalog.load_catalog` takes. Both mean the same tables. `copies` None means that no data
    file is copied.
    """

    name: str
    database: str
    spark: Mapping[str, str] = field(hash=False)
    pyiceberg: Mapping[str, str] = field(hash=False)
    copies: CopySettings | None = None


@dataclass(frozen=True)
class Rebuilding:
    """The state is to be made that the version opened does not hold, before the interval runs.

    `files` are the project that made that version, `distrusted` the sources of which nothing that it
    holds is kept, `history` what had been read of all sources before the interval.
    """

    files: ProjectFiles
    distrusted: tuple[str, ...]
    history: Interval


@dataclass(frozen=True)
class Placement:
    """Who works on which keys, and where: `owners` is the worker of each shard, 0 <= worker < `workers`,
    and these run on `hosts`, named in order, as evenly spread as can be."""

    workers: int
    owners: tuple[int, ...]
    hosts: tuple[str, ...] = ("host-0",)

    @staticmethod
    def of(layout: Layout) -> Placement | None:
        """That of a layout, its workers numbered without gaps; None where there are none."""
        places = {worker: place for place, worker in enumerate(sorted(layout.hosts))}
        if not places:
            return None
        owners = tuple(places[owner] for owner in layout.owners)
        return Placement(len(places), owners, tuple(sorted(set(layout.hosts.values()))))


@dataclass(frozen=True)
class IntervalJob:
    """One attempt at one interval: read these ranges, from this version, append to this branch.

    `base_tables` maps table names to the snapshot ids of the version opened; a table that is not in
    it is new. `time_before` is the time of the step before the interval, None where there is none:
    what came due up to then has been shown. `variables` fill `${...}` in the project's files.
    `session` is the Connect session id that the attempt has recorded, '' under spark-submit.
    `rebuilding` is there in the first interval after a deploy of other queries. `placement` is that of
    the layout `layout_epoch`, None where Spark is to place the work, and `new_layouts` are those that
    the version opened does not know of.
    """

    pipeline: str
    incarnation: str
    attempt: str
    branch: str
    base_version: int
    base_tables: Mapping[str, int] = field(hash=False)
    interval: Interval
    layout_epoch: int
    files: ProjectFiles
    variables: Mapping[str, str] = field(hash=False)
    catalog: CatalogSettings
    session: str = ""
    time_before: datetime | None = None
    rebuilding: Rebuilding | None = None
    placement: Placement | None = None
    new_layouts: tuple[LoggedLayout, ...] = ()


@dataclass(frozen=True)
class PreviewJob:
    """What an interval that rebuilds would publish, and nothing written."""

    interval: IntervalJob

    @property
    def pipeline(self) -> str:
        """The pipeline's name."""
        return self.interval.pipeline


@dataclass(frozen=True)
class TableWrite:
    """One append to the attempt's branch of a table.

    `write_id` stands in the snapshot's summary as `lockstep.write`; `records` is what was added.
    """

    table: str
    write_id: str
    snapshot_id: int
    records: int


@dataclass(frozen=True)
class IntervalResult:
    """What an attempt has appended: the commit checks the branches against it.

    Every table of the circuit is in `tables` (all that version v+1 shall name), mapped to the
    snapshot at the head of the attempt's branch; `writes` are the appends that this attempt made.
    `seconds` are times per part, for the task log. `opened` are tables that the version opened does not
    name and that were continued all the same, from these snapshots.
    """

    tables: Mapping[str, int] = field(hash=False)
    writes: tuple[TableWrite, ...]
    seconds: Mapping[str, float] = field(hash=False)
    opened: Mapping[str, int] = field(hash=False, default_factory=dict)

    def records(self, table: str) -> int:
        """Rows that were added to a table."""
        return sum(write.records for write in self.writes if write.table == table)


@dataclass(frozen=True)
class SinkTarget:
    """One sink to move: provider 'iceberg' (the view `name`) or 'kafka'.

    `was_intended`: a publish of steps from `first_step` on has begun before, and its end is not
    recorded.
    """

    name: str
    view: str
    provider: str
    first_step: int
    last_step: int
    was_intended: bool = False


@dataclass(frozen=True)
class PublishJob:
    """Move sinks forward through the committed outbox, to `last_step` of a recorded version.

    `divisions` are those of the steps, as far as they are kept, where a Kafka sink may ask.
    `session` is the newest attempt's.
    """

    pipeline: str
    incarnation: str
    version: int
    last_step: int
    tables: Mapping[str, int] = field(hash=False)
    sinks: tuple[SinkTarget, ...]
    files: ProjectFiles
    variables: Mapping[str, str] = field(hash=False)
    catalog: CatalogSettings
    divisions: tuple[Division, ...] = ()
    session: str = ""


@dataclass(frozen=True)
class PublishResult:
    """Where each sink's own marker stands now, rows sent, and times per sink."""

    markers: Mapping[str, int] = field(hash=False)
    rows: Mapping[str, int] = field(hash=False)
    seconds: Mapping[str, float] = field(hash=False)


@dataclass(frozen=True)
class MergeTable:
    """A table whose branch has been narrowed to the files that are to be merged.

    `snapshot_id` is what to read, `records` how many rows stand there.
    """

    table: str
    snapshot_id: int
    records: int


@dataclass(frozen=True)
class MergeJob:
    """Merge files: read each narrowed snapshot, append its rows, those of traces merged, to `branch`.

    `session` is the newest attempt's; `traces` are the snapshots of all traces of the version.
    """

    pipeline: str
    incarnation: str
    branch: str
    tables: tuple[MergeTable, ...]
    files: ProjectFiles
    variables: Mapping[str, str] = field(hash=False)
    catalog: CatalogSettings
    session: str = ""
    traces: Mapping[str, int] = field(hash=False, default_factory=dict)


@dataclass(frozen=True)
class ExpireJob:
    """Expire the snapshots of each table that are older than a time and that no ref holds, and delete
    the files that only they had. `session` is the newest attempt's."""

    pipeline: str
    tables: Mapping[str, datetime] = field(hash=False)
    catalog: CatalogSettings
    session: str = ""


@dataclass(frozen=True)
class ViewDifference:
    """By what a view would differ under other queries: rows (each copy counts) that would come and go,
    and a few of them as JSON, with + or - before each."""

    view: str
    added: int
    removed: int
    sample: tuple[str, ...]


@dataclass(frozen=True)
class ComparedTable:
    """A view's outbox at two snapshots: as it was logged, and as a replay gave it."""

    view: str
    table: str
    logged: int
    replayed: int


@dataclass(frozen=True)
class CompareJob:
    """Compare the rows of first_step..last_step of outboxes at two snapshots each; changes nothing.

    `session` is the newest attempt's.
    """

    pipeline: str
    tables: tuple[ComparedTable, ...]
    first_step: int
    last_step: int
    catalog: CatalogSettings
    session: str = ""


@dataclass(frozen=True)
class Difference:
    """One step of a view whose rows differ: how many copies of rows the replay lacks, and has too many
    of, and some of these rows for people, each with its sign (-1: it is missing)."""

    view: str
    step: int
    missing: int
    unexpected: int
    rows: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"{self.view} at step {self.step}: {self.missing:,} missing, {self.unexpected:,} "
            f"unexpected, such as {', '.join(self.rows)}"
        )


@dataclass(frozen=True)
class CompareResult:
    """`rows`: those compared, by view, as they were logged. `differences`: of each view that differs,
    the first step, by step and view; none where all is equal."""

    rows: Mapping[str, int] = field(hash=False)
    differences: tuple[Difference, ...] = ()

    @staticmethod
    def joined(results: Iterable[CompareResult]) -> CompareResult:
        """Of several jobs over different steps, as one; the first difference of each view counts."""
        rows: dict[str, int] = {}
        first: dict[str, Difference] = {}
        for result in results:
            for view, count in result.rows.items():
                rows[view] = rows.get(view, 0) + count
            for difference in result.differences:
                first.setdefault(difference.view, difference)
        return CompareResult(rows, tuple(sorted(first.values(), key=lambda d: (d.step, d.view))))
