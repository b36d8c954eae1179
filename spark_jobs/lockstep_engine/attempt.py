"""An interval's input, read and evaluated: lazy frames of what is to be appended."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from math import inf

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from lockstep.control.job import IntervalJob
from lockstep.control.model import SourceSlice, TableSlice
from lockstep.control.ports import Progress
from lockstep.errors import BadRecord
from lockstep.lake.lookups import MOST_ROWS, look_up
from lockstep.lake.opening import OpenCatalog
from lockstep.lake.wanted_rows import Numbers
from lockstep.sql.circuit import Circuit, Project, SourceTable, TraceSpec
from lockstep.sql.plans.nodes import Scan
from lockstep.threads import in_parallel
from lockstep_engine.appends import FEW_RECORDS, Fetches, Tables
from lockstep_engine.before import Before
from lockstep_engine.context import DEFAULT_PLACEMENT, Context, Guarding, configure_session
from lockstep_engine.evaluation import Evaluated, LeftToSpark, evaluate_circuit
from lockstep_engine.local.evaluation import sources_of_use
from lockstep_engine.local.rehearsal import can_be_worked_out
from lockstep_engine.local.rows import Rows, fetched_rows
from lockstep_engine.local.values import NOT_HERE
from lockstep_engine.ordering import few_in_order, in_order
from lockstep_engine.ranges import Measures
from lockstep_engine.reading import read_once
from lockstep_engine.sources.decoded import Decoded
from lockstep_engine.sources.iceberg import (
    Followed,
    declared_types,
    look_up_before,
    read_before,
    read_table,
    records_before,
)
from lockstep_engine.sources.kafka import plain_types, read_kafka
from lockstep_engine.stopwatch import Stopwatch
from lockstep_engine.tables import read_at
from lockstep_engine.touched import columns_met

__all__ = ["Attempt", "Worked"]


_LEFT_TO_SPARK: dict[tuple[object, ...], int] = {}
"""The projects of which this process has seen that it cannot work them out for many rows, and how many
records an interval had in which it saw that."""

_MOST_LOOKED_UP = 2_100_000
"""So many rows of a trace are looked up by an interval that is not of few records."""


@dataclass(frozen=True)
class Worked:
    """What an interval gives: who fetches what is appended, where records are few, decoded topics, how
    many of theirs are bad (of sources that are read once nobody knows yet), and the circuit's frames."""

    fetches: Fetches | None
    decoded: Mapping[str, Decoded]
    bad: Mapping[str, int]
    evaluated: Evaluated


@dataclass(frozen=True)
class Attempt:
    """The steps of a job through a circuit, from what the job says was there before.

    With `guarding`, rows for which an expression fails are taken out. `known` are relations, by leaf of
    the circuit, that are there in the first step: the columns of its scan, `_weight`, `_step`;
    `more_records` is how many rows these and others have that the divisions do not count.
    """

    spark: SparkSession
    job: IntervalJob
    state: Tables
    progress: Progress
    project: Project
    circuit: Circuit
    watch: Stopwatch
    guarding: Guarding | None = None
    known: Mapping[str, DataFrame] = field(default_factory=dict)
    more_records: int = 0

    def work(self, kept: list[DataFrame], fetches: Fetches | None = None) -> Worked:
        """Read and evaluate. To `kept` are added the frames that are to be released once all that
        follows from them is written; of few records, `fetches` begins with what is appended to traces.
        Raises BadRecord where a source says on_error = 'fail'."""
        with suppress(LeftToSpark):
            return self._work(kept, fetches)
        # By now nothing holds the rows any more that were here.
        _LEFT_TO_SPARK[self._project_name] = self.job.interval.records
        self.progress("some of it cannot be worked out here; Spark reads and works on all of it")
        # One that has not decided yet.
        again: Attempt = replace(self)
        return again._work(kept, fetches)

    def _work(self, kept: list[DataFrame], fetches: Fetches | None) -> Worked:
        context = self.context()
        configure_session(context)
        part = self.watch.part
        catalog = OpenCatalog(self.job.catalog)
        with part("read"):
            context, decoded, followed = self._read(context, catalog, kept)
        unread = {name: one for name, one in decoded.items() if one.passed is None}
        # Spark reads the records while the frames over them are built.
        with ThreadPoolExecutor(max_workers=1) as beside:
            counting = beside.submit(self.count_errors, unread)
            deltas: dict[str, DataFrame | Rows] = {n: one.delta for n, one in decoded.items()}
            deltas.update({name: one.delta for name, one in followed.items()})
            deltas.update(self.known)
            measures = Measures(deltas)
            with part("read"):
                context = self._netted(context, followed, measures)
                deltas.update(self._fetched(context, followed, measures))
            silent, before = self._silent(deltas, followed), self._before(catalog)
            if context.records > FEW_RECORDS and not context.is_all_here:
                fetches = None
            begin = None if fetches is None else fetches.begin
            # Of frames only plans are made now; what they say is worked out as it is written.
            with part("operators" if context.is_here else "plans"):
                evaluated = evaluate_circuit(
                    self.circuit, deltas, silent, before, context, measures, begin
                )
            kept.extend(evaluated.kept)
            with part("sort"):
                evaluated = replace(evaluated, appends=self._ordered(evaluated, context))
            with part("count errors"):
                bad = counting.result()
        return Worked(fetches, decoded, bad, evaluated)

    def _ordered(self, evaluated: Evaluated, context: Context) -> dict[str, DataFrame | Rows]:
        """What is appended, as it is written. Raises LeftToSpark where much cannot be sorted here."""
        if context.is_small:
            return few_in_order(self.circuit, evaluated.appends)
        tables = [source.name for source in self.project.sources if source.is_table]
        try:
            return in_order(self.circuit, evaluated.appends, tables, context.records)
        except NOT_HERE as error:
            raise LeftToSpark from error

    def context(self, netted_records: int = 0) -> Context:
        """The interval as operators see it; `netted_records` more than its divisions count."""
        job = self.job
        records = job.interval.records + self.more_records + netted_records
        before = None if job.time_before is None else _microseconds(job.time_before)
        times = tuple(_microseconds(division.time) for division in job.interval.divisions)
        return Context(
            self.spark,
            records,
            job.placement or DEFAULT_PLACEMENT,
            is_first=not job.base_tables,
            times=times,
            time_before=before,
            guarding=self.guarding,
            is_whole=self._is_whole,
            of_whole_tables=0 if job.base_tables else self._of_whole_tables,
        )

    @property
    def _of_whole_tables(self) -> int:
        """How many rows come with tables that are read for the first time."""
        tables = (one for one in self._slices if isinstance(one, TableSlice))
        return sum(one.records for one in tables if one.start is None)

    @property
    def _project_name(self) -> tuple[object, ...]:
        """What is the same project has the same."""
        job = self.job
        return job.pipeline, job.files, *sorted(job.variables.items())

    @cached_property
    def _is_whole(self) -> bool:
        """Whether this process can work all of it out: what comes are plain records of topics, or rows
        of tables, its types are of those that are known here, and what operators may have to read whole
        are few rows; of others it is seen how many they look up. It is asked where that makes a
        difference."""
        job, sources = self.job, self.project.sources
        is_asked = not job.base_tables or job.interval.records > FEW_RECORDS
        if not is_asked or self.known or self.guarding is not None:
            return False
        if 2 * job.interval.records > _LEFT_TO_SPARK.get(self._project_name, inf):
            return False  # Of half as many it may be able to.
        types = {
            one.name: (declared_types if one.is_table else plain_types)(self.spark, one)
            for one in sources
        }
        declared = {name: one for name, one in types.items() if one is not None}
        if len(declared) < len(types) or not can_be_worked_out(self.circuit, declared):
            return False
        catalog = OpenCatalog(job.catalog)
        held = [one for one in self.circuit.traces if one.table in job.base_tables]
        met = columns_met(self.circuit, self._changing)
        rows = in_parallel(lambda trace: self._rows_to_read(trace, met.get(trace.table, ())), held)
        tables = [one for one in sources if one.is_table and job.base_tables]
        rows += in_parallel(lambda one: records_before(one, job.interval, catalog), tables)
        return max(rows, default=0) <= self._times_looked_up * MOST_ROWS

    @property
    def _changing(self) -> frozenset[str]:
        """The sources of which the interval may have changes."""
        return frozenset(one.source for one in self._slices if not one.is_empty)

    @property
    def _slices(self) -> Iterator[SourceSlice]:
        for division in self.job.interval.divisions:
            yield from division.slices

    def _rows_to_read(self, trace: TraceSpec, met: Iterable[Collection[str]]) -> int:
        """How many rows of a trace an interval may have to read, as far as is known before its keys
        are; those that are met by whole numbers are seen when they are looked up."""
        snapshot = self.job.base_tables[trace.table]
        shape = self.state.columns(trace.table, snapshot)
        whole = {one.name for one in shape if pa.types.is_integer(one.type)}
        if all(not whole.isdisjoint(columns) for columns in met):
            return 0
        return self.state.total_records(trace.table, snapshot)

    @property
    def _times_looked_up(self) -> int:
        """So many times as much of a table is looked up as of a small change: Spark takes seconds for
        its stages, and this process one to read some million rows."""
        return _MOST_LOOKED_UP // MOST_ROWS if self.job.interval.records > FEW_RECORDS else 1

    def unguarded(self) -> Attempt:
        """The same, with rows for which an expression fails among all others."""
        return replace(self, guarding=None)

    def _decode(self, context: Context) -> Mapping[str, Decoded]:
        """The decoded deltas and errors of every source, lazily; each topic is read once."""
        # What is evaluated again, for rows that fail or the past, is read again; and the plan of a small
        # change is cut, which leaves behind what it would have counted.
        may = self.guarding is None and not self.known and not context.is_small
        once = read_once(self.circuit) if may else ()
        here = self._wanted_here(context)
        topics = [source for source in self.project.sources if not source.is_table]

        def read(source: SourceTable) -> Decoded:
            columns, interval = self._wanted_columns(source), self.job.interval
            return read_kafka(
                self.spark,
                source,
                columns,
                interval,
                context,
                is_read_once=source.name in once,
                is_wanted_here=source.name in here,
            )

        return dict(zip((s.name for s in topics), in_parallel(read, topics), strict=True))

    def _read(
        self, context: Context, catalog: OpenCatalog, kept: list[DataFrame]
    ) -> tuple[Context, Mapping[str, Decoded], Mapping[str, Followed]]:
        """The deltas of topics, and of tables, and the interval as it is worked on: by Spark, which then
        reads it, where this process has not got all of it. To `kept` go the frames that are to be
        released."""
        # Of tables it is known soon that they are not for this process to read.
        followed = self._follow(context, catalog)
        kept.extend(frame for one in followed.values() for frame in one.kept)
        if not context.is_all_here or self._has(followed):
            decoded = self._decode(context)
            kept.extend(frame for one in decoded.values() for frame in one.kept)
            if not context.is_all_here or self._has(decoded):
                return context, decoded, followed
        # Nobody but this process has read anything so far.
        self.progress("not all of it can be read here; Spark reads and works on all of it")
        return self._read(replace(context, is_whole=False), catalog, kept)

    def _has(self, read: Mapping[str, Decoded] | Mapping[str, Followed]) -> bool:
        """Whether this process has the rows of those sources from which an operator goes on here."""
        used = sources_of_use(self.circuit)
        return all(isinstance(one.delta, Rows) for name, one in read.items() if name in used)

    def _wanted_here(self, context: Context) -> Collection[str]:
        """The sources whose records this process is to have, as it goes on from them."""
        is_few = context.is_here and context.records <= FEW_RECORDS
        is_local = (is_few or context.is_all_here) and not self.known
        return sources_of_use(self.circuit) if is_local else ()

    def _follow(self, context: Context, catalog: OpenCatalog) -> Mapping[str, Followed]:
        """The changes of every followed table, lazily; metadata is read now, that of each table once."""
        sources = [source for source in self.project.sources if source.is_table]

        def follow(source: SourceTable) -> Followed:
            columns, interval = self._wanted_columns(source), self.job.interval
            return read_table(
                self.spark, source, columns, interval, catalog, context, self.progress
            )

        return dict(zip((s.name for s in sources), in_parallel(follow, sources), strict=True))

    def _wanted_columns(self, source: SourceTable) -> tuple[str, ...]:
        """The columns that any scan of the source wants, in declared order."""
        wanted = {
            column
            for operator in self.circuit.operators
            if isinstance(operator.node, Scan) and operator.node.source == source.name
            for column in operator.node.columns
        }
        return tuple(column.key for column in source.columns if column.key in wanted)

    def count_errors(self, decoded: Mapping[str, Decoded]) -> Mapping[str, int]:
        """Count bad records by source: this is the action that reads Kafka and fills the kept frames.
        Of sources that are read once it asks what has been seen. Raises BadRecord where a source says
        on_error = 'fail'."""
        names = list(decoded)
        counted = in_parallel(lambda name: decoded[name].bad_records(), names)
        bad = dict(zip(names, counted, strict=True))
        for source in self.project.sources:
            if bad.get(source.name) and source.options.get("on_error", "table") == "fail":
                raise _bad_record(source, decoded[source.name].errors)
        return bad

    def _netted(
        self, context: Context, followed: Mapping[str, Followed], measures: Measures
    ) -> Context:
        """The context with netted changes counted: a file that was rewritten for one row has as many
        rows as before, and what is broadcast or shuffled depends on it. This also fills kept frames."""
        netted = {name: one.records for name, one in followed.items() if one.is_netted}
        if not netted:
            return context
        counted = sum(in_parallel(measures.rows, netted))
        made = replace(
            self.context(counted - sum(netted.values())),
            types=context.types,
            is_whole=context.is_all_here,
        )
        if made.partitions != context.partitions:
            configure_session(made)
        return made

    def _fetched(
        self, context: Context, followed: Mapping[str, Followed], measures: Measures
    ) -> Mapping[str, Rows]:
        """The rows of changes that are few now that they are netted."""
        wanted = self._wanted_here(context)
        few = {
            name: one.delta
            for name, one in followed.items()
            if name in wanted and one.is_netted and not isinstance(one.delta, Rows)
        }
        rows = in_parallel(lambda name: fetched_rows(few[name]), few)
        found = {name: one for name, one in zip(few, rows, strict=True) if one is not None}
        measures.are_here(found)
        return found

    def _silent(self, sources: Iterable[str], followed: Mapping[str, Followed]) -> frozenset[str]:
        """The sources that change nothing in any step of a later interval. Of a table that is what was
        found when it was read: the rows that are recorded of it are what its writers have said."""
        if not self.job.base_tables:
            return frozenset()
        read = {*self._changing} - followed.keys()
        read |= {name for name, one in followed.items() if not one.is_silent}
        return frozenset(sources) - read

    def _before(self, catalog: OpenCatalog) -> Before:
        job = self.job
        sources = {source.name: source for source in self.project.sources}
        times = self._times_looked_up
        return Before(
            self._trace,
            lambda name, columns: read_before(self.spark, sources[name], columns, job.interval),
            cache(lambda table: self.state.total_records(table, job.base_tables[table])),
            cache(lambda name: records_before(sources[name], job.interval, catalog)),
            lambda name, columns, keys: look_up_before(
                self.spark, sources[name], columns, keys, job.interval, catalog, times
            ),
            lambda table, keys: self._look_up_trace(catalog, table, keys),
            times * MOST_ROWS,
        )

    def _trace(self, table: str) -> DataFrame | None:
        snapshot = self.job.base_tables.get(table)
        return None if snapshot is None else read_at(self.spark, self.job.catalog, table, snapshot)

    def _look_up_trace(
        self, catalog: OpenCatalog, name: str, keys: Mapping[str, Numbers]
    ) -> Rows | None:
        """Rows of a trace by their keys, read by this process."""
        table = catalog.load(self.job.catalog.database, name)
        columns = [column.name for column in table.schema().fields]
        snapshot, times = self.job.base_tables[name], self._times_looked_up
        found = look_up(table, snapshot, columns, keys, catalog.copies, times)
        return None if found is None else Rows.of(found)


def _microseconds(time: datetime) -> int:
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _bad_record(source: SourceTable, errors: DataFrame) -> BadRecord:
    first = errors.orderBy("partition", "offset").first()
    assert first is not None, "the caller has counted at least one"
    return BadRecord(
        f"source {source.name}: partition {first['partition']} offset {first['offset']} "
        "could not be decoded, and the source says on_error = 'fail'",
        expected="a record as the source declares it",
        found=str(first["reason"]),
        next_step="correct the producer, or set 'on_error' = 'table' and deploy again",
    )
