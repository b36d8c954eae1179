"""What an attempt appends to the branches that are its own, and what it then says that it wrote."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from lockstep.control.job import IntervalJob, TableWrite
from lockstep.control.ports import OutboxSteps, Rewritten, State
from lockstep.control.step_log import STEP_LOG_COLUMNS
from lockstep.ids import is_trace, write_id
from lockstep.threads import in_parallel
from lockstep_engine.stopwatch import Stopwatch
from lockstep_engine.tables import (
    TABLE_PROPERTIES,
    TRACE_PROPERTIES,
    append,
    ensure_table,
    overwrite,
)
from lockstep_engine.told import few_rows, no_rows

__all__ = [
    "FEW_RECORDS",
    "FEW_ROWS",
    "Appends",
    "Tables",
    "Written",
    "append_few",
    "write_appends",
]

FEW_RECORDS = 100_000
FEW_ROWS = 2 * FEW_RECORDS
"""Of an interval with at most FEW_RECORDS up to so many rows of a table are fetched and appended here: a
record may take a row away and put another there."""


class Tables(State, Protocol):
    """The tables of one catalog and database, and rows for them."""

    def append_arrow(
        self, table: str, branch: str, rows: pa.Table, summary: Mapping[str, str]
    ) -> None:
        """One snapshot on the branch with these rows, by column name, which carries the summary."""
        ...

    def has_nested(self, table: str) -> bool:
        """Whether a column holds others."""
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


@dataclass(frozen=True)
class Appends:
    """What goes to which table: frames, rows that are known here, frames in place of all that a table
    holds; and tables to which nothing goes, but which have to be there. `may_be_few`: it is worth a try
    to fetch the frames' rows."""

    frames: Mapping[str, DataFrame] = field(default_factory=dict)
    rows: Mapping[str, Sequence[Mapping[str, object]]] = field(default_factory=dict)
    whole: Mapping[str, DataFrame] = field(default_factory=dict)
    untouched: Mapping[str, DataFrame] = field(default_factory=dict)
    may_be_few: bool = False

    @property
    def touched(self) -> list[str]:
        """The tables to which something goes."""
        return sorted((*self.frames, *self.rows, *self.whole))


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
    frame_of = {**appends.frames, **appends.whole, **appends.untouched}
    new = [t for t in sorted({*frame_of, *appends.rows}) if t not in bases]

    def make(table: str) -> None:
        frame = frame_of.get(table)
        if frame is None:
            frame = no_rows(spark, STEP_LOG_COLUMNS[table])
        properties = TRACE_PROPERTIES if is_trace(table) else TABLE_PROPERTIES
        ensure_table(spark, job.catalog, table, frame, properties)

    def write(table: str) -> None:
        summary = _summary(job, table, whole=table in appends.whole)
        with watch.part(f"append {table}"):
            if table in appends.rows:
                # Rows that are known here: a Spark job would take several times as long.
                state.append_rows(table, job.branch, appends.rows[table], summary)
            elif table in appends.whole:
                overwrite(job.catalog, table, job.branch, appends.whole[table], summary)
            else:
                frame = appends.frames[table]
                branch = job.branch
                if not (appends.may_be_few and append_few(state, table, branch, frame, summary)):
                    append(job.catalog, table, branch, frame, summary)

    def written(table: str) -> TableWrite:
        head = state.head(table, job.branch)
        id_ = write_id(job.attempt, table, whole=table in appends.whole)
        return TableWrite(table, id_, head, state.added_records(table, head))

    with watch.part("create tables"):
        in_parallel(make, new)
    with watch.part("branches"):
        heads = _open_branches(state, job, {*appends.touched, *new}, bases)
    with watch.part("append"):
        in_parallel(write, appends.touched)
    with watch.part("heads"):
        writes = tuple(in_parallel(written, appends.touched))
    heads.update({write.table: write.snapshot_id for write in writes})
    return Written(heads, writes)


def append_few(
    state: Tables, table: str, branch: str, frame: DataFrame, summary: Mapping[str, str]
) -> bool:
    """Append the rows from here, if they are few; whether they were. Spark takes several times as long
    to plan and commit a write as to compute so many.

    Not where PyIceberg (0.12) would write something else, or could not: it takes a null array of structs
    for an empty one (https://github.com/apache/iceberg-python/issues/3833), and reads texts as UTF-8 for
    the least and greatest of a file.
    """
    rows = _few_of(state, table, frame)
    if rows is None:
        return False
    state.append_arrow(table, branch, rows, summary)
    return True


def _few_of(state: Tables, table: str, frame: DataFrame) -> pa.Table | None:
    """The rows of the frame, fetched; None where they are many, or PyIceberg would write other ones."""
    rows = None if state.has_nested(table) else few_rows(frame, FEW_ROWS)
    if rows is None:
        return None
    try:
        rows.validate(full=True)
    except pa.ArrowInvalid:
        return None
    return rows


def _open_branches(
    state: State, job: IntervalJob, tables: Iterable[str], bases: Mapping[str, int]
) -> dict[str, int]:
    wanted = sorted(tables)
    opened = in_parallel(lambda t: state.open_branch(t, job.branch, bases.get(t)), wanted)
    return dict(zip(wanted, opened, strict=True))


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
