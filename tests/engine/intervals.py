"""Runs a plan interval by interval on Spark, with traces that are frames instead of tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import IntegralType, StructType

from lockstep.control.job import Placement
from lockstep.errors import Position
from lockstep.lake.wanted_rows import Numbers
from lockstep.sql.circuit import Circuit, Project, SourceColumn, SourceTable, View
from lockstep.sql.incremental import build_circuit
from lockstep.sql.plans.expansion import expand
from lockstep.sql.plans.nodes import Node, Scan
from lockstep.zset import ZSet
from lockstep_engine.before import Before
from lockstep_engine.context import (
    DEFAULT_PLACEMENT,
    LARGE_STATE,
    MANY_STEPS,
    Context,
    configure_session,
)
from lockstep_engine.deltas import absolute_steps, quoted
from lockstep_engine.evaluation import evaluate_circuit
from lockstep_engine.local.rehearsal import can_be_worked_out
from lockstep_engine.local.rows import Rows
from lockstep_engine.operators.merging import merge_trace, without_past

Interval = tuple[int, int]

AT = Position("law.sql")
START = datetime(2024, 1, 1, tzinfo=UTC)
_SECONDS = (-30.0, -22.0, -14.0, -9.0, -5.0, -3.0, -3.0, -2.0, 0.0, 0.0, 3.5, 6.0)


def time_of(step: int) -> datetime:
    """The time of a step, as streams have them: times never go back, and some steps share one."""
    beyond = max(0, step - len(_SECONDS) + 1)
    return START + timedelta(seconds=_SECONDS[step - beyond] + 10 * beyond)


def circuit_of(
    plan: Node,
    append_only: frozenset[str],
    tables: frozenset[str] = frozenset(),
    indexes: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Circuit:
    """A circuit with the plan as its only view, `root`; `append_only` names such sources, `tables` those
    whose rows before an interval can be read, some of which have indexes."""
    expanded = expand(plan)
    columns: dict[str, dict[str, SourceColumn]] = {}
    for scan in _scans(expanded):
        for name in scan.columns:
            # Of some type: a frame says by itself of which its columns are.
            columns.setdefault(scan.source, {})[name] = SourceColumn(name, "STRING")
    sources = tuple(
        _source(
            name,
            tuple(found.values()),
            name in append_only,
            None if name not in tables else indexes.get(name, ()),
        )
        for name, found in columns.items()
    )
    view = View("root", expanded, plan.columns, True, "", AT)
    return build_circuit(Project("law", "lake", "law", {}, sources, (view,), ()))


def _scans(node: Node) -> Iterator[Scan]:
    if isinstance(node, Scan):
        yield node
    for below in node.inputs:
        yield from _scans(below)


def _source(
    name: str, columns: tuple[SourceColumn, ...], append_only: bool, index: Sequence[str] | None
) -> SourceTable:
    """A table with an index, or none; or a topic, where it is None."""
    if index is None:
        options = {"subscribe": name, "format": "json" if append_only else "debezium"}
        return SourceTable(name, columns, "kafka", options, AT)
    options = {"table": f"lake.law.{name}", "append_only": str(append_only).lower()}
    if index:
        options["index"] = ", ".join(index)
    return SourceTable(name, columns, "iceberg", options, AT)


class Runner:
    """Runs a circuit; traces are kept as Arrow tables between intervals, one piece an interval."""

    def __init__(
        self,
        spark: SparkSession,
        circuit: Circuit,
        merges_traces: bool = False,
        large_state: int = LARGE_STATE,
        many_steps: int = MANY_STEPS,
        is_here: bool = False,
    ) -> None:
        """`is_here`: this process has the rows of the changes, and reads those of the state."""
        self._spark = spark
        self._merges_traces = merges_traces
        self._large_state = large_state
        self._many_steps = many_steps
        self._is_here = is_here
        self._circuit = circuit
        self._specs = {trace.table: trace for trace in self._circuit.traces}
        self._pieces: dict[str, list[pa.Table]] = {}
        self._types: dict[str, Any] = {}
        self._traces: dict[str, DataFrame] = {}
        self._empty: dict[str, pa.Table] = {}
        self._id = uuid4().hex
        self.late: dict[str, list[tuple[tuple[Any, ...], int, int]]] = {}
        """All late rows by source, as `changes_of` gives them."""

    def run(
        self,
        deltas: Mapping[str, DataFrame],
        interval: Interval,
        records: int,
        is_last: bool,
        placement: Placement = DEFAULT_PLACEMENT,
    ) -> Mapping[str, pa.Table]:
        """Each view's delta over the steps of `interval`; state is kept unless this is the last.

        Steps of `deltas` and of the result are recorded ones. Each interval may have another placement.
        From the second interval on, sources without rows are silent, as they are where no step
        has a record of them.
        """
        first, last = interval
        is_first = not self._empty
        context = self._context(interval, records, is_first, placement)
        if self._is_here and is_first:
            context = replace(context, is_whole=can_be_worked_out(self._circuit, _types(deltas)))
        configure_session(context)
        silent = () if is_first else [name for name, rows in deltas.items() if rows.isEmpty()]
        sources = {name: self._source(name, rows, first) for name, rows in deltas.items()}
        evaluated = evaluate_circuit(
            self._circuit,
            sources,
            silent,
            Before(
                self.trace,
                self._table,
                self._size,
                lambda name: self._size(f"source {name}"),
                lambda source, columns, keys: self._looked_up(self._table(source, columns), keys),
                lambda table, keys: self._looked_up(self.trace(table), keys),
            ),
            context,
        )
        outboxes = {
            table: rows.later(first)
            if isinstance(rows, Rows)
            else absolute_steps(rows, first, last)
            for table, rows in evaluated.outboxes.items()
        }
        late = {
            f"{source} late": absolute_steps(found.rows, first, last)
            for source, found in evaluated.late.items()
            if found.is_any
        }
        wanted = {**late, **outboxes} if is_last else {**evaluated.appends, **late, **outboxes}
        try:
            with ThreadPoolExecutor(4) as pool:
                tables = dict(zip(wanted, pool.map(_as_table, wanted.values()), strict=True))
        finally:
            evaluated.release()
        deltas_of = {}
        for outbox in self._circuit.outboxes:
            delta = tables.pop(outbox.table, None)
            if delta is not None:
                self._empty[outbox.view] = delta.slice(0, 0)
            deltas_of[outbox.view] = self._empty[outbox.view] if delta is None else delta
        for name, rows in deltas.items():
            self._pieces.setdefault(f"source {name}", []).append(rows.drop("_step").toArrow())
        for name in late:
            rows = changes_of(tables.pop(name))
            self.late.setdefault(name.removesuffix(" late"), []).extend(rows)
        self._traces.clear()
        for name, rows in tables.items():
            self._pieces.setdefault(name, []).append(rows)
        return deltas_of

    def _source(self, name: str, rows: DataFrame, first: int) -> DataFrame | Rows:
        """A source's delta, whose steps are counted from the interval's first."""
        if self._is_here:
            return Rows.of(rows.toArrow(), rows.schema).later(-first)
        return self._held(name, rows).withColumn("_step", F.expr(f"_step - {first}L"))

    def _looked_up(self, rows: DataFrame | None, keys: Mapping[str, Numbers]) -> Rows | None:
        """The rows that hold one of the numbers, or null, in each of the columns, and no others."""
        assert rows is not None, "nothing is looked up in what is new"
        if not self._is_here:
            return None
        whole = {field.name for field in rows.schema if isinstance(field.dataType, IntegralType)}
        if keys and whole.isdisjoint(keys):
            return None
        for name in whole & keys.keys():
            column = F.col(quoted(name))
            rows = rows.where(column.isin(keys[name].tolist()) | column.isNull())
        return Rows.of(rows.toArrow(), rows.schema)

    def remembered(self, table: str) -> ZSet:
        """What the rows of a trace come to, without their weights."""
        rows = (row for piece in self._pieces.get(table, ()) for row in piece.to_pylist())
        return ZSet(
            (tuple(row.values()), weight) for row in rows for weight in [row.pop("_weight")]
        )

    def _context(
        self, interval: Interval, records: int, is_first: bool, placement: Placement
    ) -> Context:
        first, last = interval
        before = None if is_first else _microseconds(time_of(first - 1))
        times = tuple(_microseconds(time_of(step)) for step in range(first, last + 1))
        return Context(
            self._spark,
            records,
            placement,
            is_first,
            times,
            before,
            self._types,
            self._large_state,
            self._many_steps,
        )

    def trace(self, table: str) -> DataFrame | None:
        """What a trace has before the next interval, merged where this is done between them."""
        pieces = self._pieces.get(table)
        if pieces is None:
            return None
        if table not in self._traces:
            self._traces[table] = self._held(table, as_frame(self._spark, pa.concat_tables(pieces)))
        rows = self._traces[table]
        if not self._merges_traces:
            return rows
        return merge_trace(self._specs[table], without_past(self._specs[table], rows, self.trace))

    def _table(self, source: str, columns: tuple[str, ...]) -> DataFrame:
        """What a source brought before the interval."""
        name = f"source {source}"
        if name not in self._traces:
            pieces = as_frame(self._spark, pa.concat_tables(self._pieces[name]))
            self._traces[name] = self._held(f"before_{source}", pieces)
        return self._traces[name].select(*columns, "_weight")

    def _size(self, table: str) -> int:
        return sum(piece.num_rows for piece in self._pieces[table])

    def _held(self, name: str, rows: DataFrame) -> DataFrame:
        """The rows under a name that the server knows: a plan that reads them many times would carry
        them as often."""
        view = f"{name}_of_{self._id}"
        rows.createOrReplaceTempView(view)
        return self._spark.table(view)


def _types(deltas: Mapping[str, DataFrame]) -> Mapping[str, StructType]:
    """The columns of sources."""
    return {
        name: StructType([one for one in rows.schema if one.name not in ("_weight", "_step")])
        for name, rows in deltas.items()
    }


def _as_table(rows: DataFrame | Rows) -> pa.Table:
    """Without what is said of nulls: one interval's rows may have none where another's have some."""
    table = rows.table if isinstance(rows, Rows) else rows.toArrow()
    return pa.Table.from_arrays(table.columns, names=table.column_names)


def _microseconds(time: datetime) -> int:
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def as_frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """The table as a frame; without its schema Spark refuses one without rows."""
    return spark.createDataFrame(table, from_arrow_schema(table.schema))


def changes_of(table: pa.Table) -> list[tuple[tuple[Any, ...], int, int]]:
    """Rows of a delta as (row, weight, step)."""
    names = [name for name in table.column_names if name not in ("_weight", "_step")]
    columns = [table[name].to_pylist() for name in names]
    rows = zip(*columns, strict=True) if columns else [()] * table.num_rows
    return list(zip(rows, table["_weight"].to_pylist(), table["_step"].to_pylist(), strict=True))


def up_to(changes: Sequence[tuple[tuple[Any, ...], int, int]], step: int) -> ZSet:
    """The integral after a step."""
    return ZSet((row, weight) for row, weight, at in changes if at <= step)
