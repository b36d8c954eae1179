"""What an attempt appends to the branches that are its own, and what it then says that it wrote."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lockstep.control.job import IntervalJob, TableWrite
from lockstep.control.ports import OutboxSteps, Rewritten, State
from lockstep.control.step_log import STEP_LOG_COLUMNS
from lockstep.ids import is_trace, write_id
from lockstep.threads import MAX_THREADS, in_parallel, shares
from lockstep_engine.local.rows import Rows, as_frame, has_lists
from lockstep_engine.stopwatch import Stopwatch
from lockstep_engine.tables import (
    INDEX_PROPERTIES,
    TABLE_PROPERTIES,
    TRACE_PROPERTIES,
    MakesTables,
    append,
    columns_of_table,
    overwrite,
)
from lockstep_engine.told import few_rows, is_well_formed, types_of_columns

__all__ = [
    "FEW_RECORDS",
    "FEW_ROWS",
    "Appends",
    "Fetches",
    "Tables",
    "Written",
    "fetching",
    "write_appends",
]

_TRACE_FILE_BYTES = 32 << 20
"""Of what Spark writes to a trace: some million rows of numbers, as many as merged files have. Of larger
files no copies are made (`lake.sorted_copies`) by which keys are found that are anywhere."""

FEW_RECORDS = 100_000
FEW_ROWS = 2 * FEW_RECORDS
"""Of an interval with at most FEW_RECORDS up to so many rows of a table are fetched and appended here: a
record may take a row away and put another there."""


class Tables(State, MakesTables, Protocol):
    """The tables of one catalog and database, and rows for them."""

    def make_opened(
        self,
        table: str,
        columns: pa.Schema,
        properties: Mapping[str, str],
        branch: str,
        rows: pa.Table | Sequence[Mapping[str, object]] | None,
        summary: Mapping[str, str],
    ) -> None:
        """As `make`, with a root that says nothing, and `append_opening` at the root; without rows as
        `open_branch`. One commit where the table was not there."""
        ...

    def append_opening(
        self,
        table: str,
        branch: str,
        snapshot_id: int | None,
        rows: pa.Table | Sequence[Mapping[str, object]],
        summary: Mapping[str, str],
    ) -> None:
        """One snapshot on the branch with these rows, by column name, which carries the summary. The
        branch is made with it, as `open_branch` does, in one commit."""
        ...

    def has_lists(self, table: str) -> bool:
        """Whether a column holds lists or maps."""
        ...

    def columns(self, table: str, snapshot_id: int) -> pa.Schema:
        """The columns that a table had at a snapshot."""
        ...

    def describe(self, table: str, comment: str | None, columns: Mapping[str, str]) -> None:
        """Have the table and these of its columns say so, whatever they said before; a column that is
        not there is passed over. None: what the table says of itself stays."""
        ...

    def append_inserted(
        self, view: str, branch: str, steps: OutboxSteps, summary: Mapping[str, str]
    ) -> int | None:
        """One snapshot on the branch with copies of the outbox's files of these steps, which carries the
        summary; how many rows they hold. None, and nothing is done, where that cannot be, or is not what
        these steps come to."""
        ...

    def replace_netted(
        self, view: str, branch: str, base: int, steps: OutboxSteps, summary: Mapping[str, str]
    ) -> Rewritten | None:
        """One snapshot on the branch, which carries the summary, in place of all rows that are there:
        those of the view at `base` with the changes of these steps; both are few, and the view's are
        files alone. None, and nothing is done, where that cannot be worked out from here."""
        ...

    def change_netted(
        self, view: str, branch: str, base: int, steps: OutboxSteps, summary: Mapping[str, str]
    ) -> Rewritten | None:
        """One snapshot on the branch, which stands at `base`, with the summary: rows of the view are
        deleted, and others added, as these steps come to. None, and nothing is done, where that cannot
        be worked out from here."""
        ...

    def merge_small_files(self, view: str, outbox: str, branch: str, base: int) -> int:
        """One snapshot on the branch, which stands at `base`, of the same rows in fewer files, or none;
        at which snapshot it stands then."""
        ...

    def rows_if_equal(self, logged: OutboxSteps, replayed: OutboxSteps) -> int | None:
        """How many rows an outbox has of these steps, where they are the same Z-set at each step at both
        snapshots. None where they are not, or where that cannot be worked out from here."""
        ...


class Fetches:
    """The rows of frames, by the table that they go to, if they are few. Spark takes several times as
    long to plan and commit a write as to compute so many.

    Those for tables of `there`, which exist already, may be fetched in threads of `pool` from when
    their frames are there, while others are still being built: one core would be idle.
    """

    def __init__(self, state: Tables, there: Collection[str], pool: ThreadPoolExecutor) -> None:
        self._state, self._there, self._pool = state, there, pool
        self._begun: dict[str, Future[pa.Table | None]] = {}

    def begin(self, table: str, frame: DataFrame | Rows) -> None:
        """Fetch what will be asked for, where there is such a table."""
        if table in self._there and not isinstance(frame, Rows):
            self._begun[table] = self._pool.submit(self._fetch, table, frame)

    def rows(self, table: str, frame: DataFrame | Rows) -> pa.Table | None:
        """None where they are many, or PyIceberg (0.12) would write other ones, or could not: it takes a
        null array of structs for an empty one (https://github.com/apache/iceberg-python/issues/3833),
        and reads texts as UTF-8 for the least and greatest of a file."""
        begun = self._begun.get(table)
        return self._fetch(table, frame) if begun is None else begun.result()

    def _fetch(self, table: str, frame: DataFrame | Rows) -> pa.Table | None:
        if self._has_lists(table, frame):
            return None
        rows = frame.table if isinstance(frame, Rows) else few_rows(frame, FEW_ROWS)
        return rows if rows is not None and _are_well_formed(rows) else None

    def _has_lists(self, table: str, frame: DataFrame | Rows) -> bool:
        """A table that is there knows it; what types a frame of Spark's has would be a request."""
        if table in self._there and not isinstance(frame, Rows):
            return self._state.has_lists(table)
        return has_lists(frame.schema)


def _are_well_formed(rows: pa.Table) -> bool:
    parts = [rows[share] for share in shares(rows.num_rows, FEW_ROWS)]
    return all(in_parallel(is_well_formed, parts))


@contextmanager
def fetching(state: Tables, there: Collection[str]) -> Iterator[Fetches]:
    """What has begun has ended when this does."""
    with ThreadPoolExecutor(MAX_THREADS) as pool:
        yield Fetches(state, there, pool)


@dataclass(frozen=True)
class Appends:
    """What goes to which table: frames, or the rows where this process has them; rows as Python has
    them; frames in place of all that a table holds; and tables to which nothing goes, but which have to
    be there. `fetches`: it is worth a try to fetch the frames' rows. `indexes` are among the tables."""

    frames: Mapping[str, DataFrame | Rows] = field(default_factory=dict)
    rows: Mapping[str, Sequence[Mapping[str, object]]] = field(default_factory=dict)
    whole: Mapping[str, DataFrame] = field(default_factory=dict)
    untouched: Mapping[str, DataFrame | StructType] = field(default_factory=dict)
    fetches: Fetches | None = None
    indexes: Collection[str] = ()

    @property
    def touched(self) -> list[str]:
        """The tables to which something goes."""
        return sorted((*self.frames, *self.rows, *self.whole))

    def rows_of(self, table: str) -> pa.Table | Sequence[Mapping[str, object]] | None:
        """What is appended to a table that is touched; None where Spark is to write it."""
        if table in self.rows:
            return self.rows[table]
        if table not in self.frames or self.fetches is None:
            return None
        return self.fetches.rows(table, self.frames[table])


class Written(NamedTuple):
    """Of each table that was touched or made the head of the attempt's branch, and the writes."""

    heads: Mapping[str, int]
    writes: tuple[TableWrite, ...]


def write_appends(
    spark: SparkSession,
    job: IntervalJob,
    state: Tables,
    watch: Stopwatch,
    appends: Appends,
    bases: Mapping[str, int],
) -> Written:
    """Append every table to the attempt's branch, which starts at its snapshot in `bases`; a table that
    is not in there is made where it does not exist, and starts at its root."""
    types = {**appends.frames, **appends.whole, **appends.untouched}
    new = {t for t in (*types, *appends.rows) if t not in bases}

    def columns(table: str) -> tuple[pa.Schema, Mapping[str, str]]:
        found = types.get(table)
        if found is None:
            found = types_of_columns(spark, STEP_LOG_COLUMNS[table])
        schema = found if isinstance(found, StructType) else found.schema
        of_traces = INDEX_PROPERTIES if table in appends.indexes else TRACE_PROPERTIES
        properties = of_traces if is_trace(table) else TABLE_PROPERTIES
        return columns_of_table(table, schema), properties

    def write(table: str) -> None:
        summary = _summary(job, table, whole=table in appends.whole)
        with watch.part(f"append {table}"):
            wanted = columns(table) if table in new else None
            # Rows that are known here: a Spark job would take several times as long.
            rows = appends.rows_of(table)
            if wanted is not None:
                state.make_opened(table, *wanted, job.branch, rows, summary)
            elif rows is not None:
                state.append_opening(table, job.branch, bases[table], rows, summary)
            else:
                state.open_branch(table, job.branch, bases[table])
            if rows is not None or table in appends.untouched:
                return
            if table in appends.whole:
                overwrite(job.catalog, table, job.branch, appends.whole[table], summary)
            else:
                frame = as_frame(spark, appends.frames[table])
                append(job.catalog, table, job.branch, frame, summary, _file_bytes(table))

    def written(table: str) -> TableWrite:
        head = state.head(table, job.branch)
        id_ = write_id(job.attempt, table, whole=table in appends.whole)
        return TableWrite(table, id_, head, state.added_records(table, head))

    untouched = sorted(new.intersection(appends.untouched))
    with watch.part("append"):
        # New tables are made with what is written to them, where that is here.
        in_parallel(write, [*appends.touched, *untouched])
    with watch.part("heads"):
        writes = tuple(in_parallel(written, appends.touched))
        opened = in_parallel(lambda table: state.head(table, job.branch), untouched)
    heads = {write.table: write.snapshot_id for write in writes}
    return Written({**dict(zip(untouched, opened, strict=True)), **heads}, writes)


def _file_bytes(table: str) -> int | None:
    return _TRACE_FILE_BYTES if is_trace(table) else None


def _summary(job: IntervalJob, table: str, *, whole: bool) -> Mapping[str, str]:
    """What each appended snapshot says about itself; from these the store can be rebuilt."""
    return {
        "lockstep.write": write_id(job.attempt, table, whole=whole),
        "lockstep.attempt": job.attempt,
        "lockstep.incarnation": job.incarnation,
        "lockstep.version": str(job.base_version + 1),
        "lockstep.step": str(job.interval.last_step),
        "lockstep.layout": str(job.layout_epoch),
    }
