"""Runs a plan interval by interval on Spark, with traces that are frames instead of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from lockstep.sql.circuit import Circuit, Cost, Operator, OutboxSpec, Past, TraceKind, TraceSpec
from lockstep.sql.plans.expansion import expand
from lockstep.sql.plans.final import window_end
from lockstep.sql.plans.multiway import join_trees
from lockstep.sql.plans.nodes import (
    Aggregate,
    Filter,
    MultiwayJoin,
    Node,
    Project,
    Recursive,
    Scan,
    Temporal,
    UnionAll,
    Upsert,
    Values,
    Watermark,
    Weigh,
    Window,
)
from lockstep.zset import ZSet
from lockstep_engine.context import LARGE_STATE, Context, configure_session
from lockstep_engine.deltas import absolute_steps
from lockstep_engine.evaluation import Before, evaluate_circuit
from lockstep_engine.operators.merging import merge_trace, without_past

Interval = tuple[int, int]

START = datetime(2024, 1, 1, tzinfo=UTC)
_SECONDS = (-30.0, -22.0, -14.0, -9.0, -5.0, -3.0, -3.0, -2.0, 0.0, 0.0, 3.5, 6.0)


def time_of(step: int) -> datetime:
    """The time of a step, as streams have them: times never go back, and some steps share one."""
    beyond = max(0, step - len(_SECONDS) + 1)
    return START + timedelta(seconds=_SECONDS[step - beyond] + 10 * beyond)


def operators_of(
    plan: Node,
    append_only: frozenset[str],
    tables: frozenset[str] = frozenset(),
    within: str = "",
) -> list[Operator]:
    """The plan's operators, inputs first, equal ones once; `append_only` names such sources, `tables`
    those whose rows before an interval can be read."""
    found: dict[Node, Operator] = {}

    def visit(node: Node) -> Operator:
        if node not in found:
            inputs = [visit(below) for below in node.inputs]
            ref = len(found)
            keeps = all(one.append_only for one in inputs)
            if isinstance(node, Scan):
                keeps = node.source in append_only
            traces = _traces(node, f"{within}{ref}", keeps)
            ended = window_end(node) if isinstance(node, Aggregate) else None
            if ended is not None:
                marks = [(found[one].traces[0].table, one) for one in ended[1]]
                past = Past(ended[0].text, tuple((table, one.delay) for table, one in marks))
                traces = tuple(replace(trace, past=past) for trace in traces)
            rows = _rows_of(node, f"{within}{ref}", inputs, tables)
            traces += tuple(trace for trace in rows if trace is not None)
            body = _body(node, f"{within}{ref}_", inputs, tables)
            traces += tuple(dict.fromkeys(trace for one in body for trace in one.traces))
            if isinstance(node, Aggregate):
                keeps = keeps and not node.aggregates
            if isinstance(node, Temporal):
                keeps = keeps and node.enters
            if isinstance(node, Weigh | Window | Upsert | Recursive):
                keeps = False
            refs = tuple(one.ref for one in inputs)
            found[node] = Operator(ref, node, refs, traces, keeps, Cost.CHANGE, 1, rows, body)
        return found[node]

    visit(plan)
    return list(found.values())


def _body(
    node: Node, within: str, inputs: Sequence[Operator], tables: frozenset[str]
) -> tuple[Operator, ...]:
    """The operators of a recursion's step, over leaves for what is beside it."""
    if not isinstance(node, Recursive):
        return ()
    beside = {f"beside {n}": one for n, one in enumerate(inputs[1:])}
    keeping = frozenset(leaf for leaf, one in beside.items() if one.append_only)
    known = frozenset(leaf for leaf, one in beside.items() if _is_in(tables, one.node))
    return tuple(operators_of(*join_trees([node.step]), keeping, known, within))


def _traces(node: Node, ref: str, keeps: bool) -> tuple[TraceSpec, ...]:
    match node:
        case Aggregate():
            traces = [TraceSpec(f"trace_{ref}", TraceKind.ACCUMULATORS, node.keys, ())]
            if not keeps:
                arguments = dict.fromkeys(
                    call.argument for call in node.aggregates if call.function.is_extreme
                )
                traces += [
                    TraceSpec(f"trace_{ref}_{place}", TraceKind.VALUES, node.keys, (str(argument),))
                    for place, argument in enumerate(arguments)
                ]
            return tuple(traces)
        case Temporal():
            rest = tuple(name for name in node.columns if name != node.column)
            return (TraceSpec(f"trace_{ref}", TraceKind.ROWS, (node.column,), rest),)
        case Watermark():
            return (TraceSpec(f"trace_{ref}", TraceKind.ACCUMULATORS, (), ()),)
        case Upsert():
            return (_rows(f"trace_{ref}", node.columns, node.keys),)
        case _:
            return ()


def _rows(table: str, columns: tuple[str, ...], key: tuple[str, ...]) -> TraceSpec:
    key = tuple(dict.fromkeys(key))
    rest = tuple(name for name in dict.fromkeys(columns) if name not in key)
    return TraceSpec(table, TraceKind.ROWS, key, rest)


def _rows_of(
    node: Node, ref: str, inputs: Sequence[Operator], tables: frozenset[str]
) -> tuple[TraceSpec | None, ...]:
    """The traces of the rows that a node looks up; those of `tables` are known."""
    match node:
        case MultiwayJoin():
            equated = {name for e in node.equalities for name in (e.left, e.right)}
            wanted = [(tuple(n for n in i.columns if n in equated), i.columns) for i in node.inputs]
        case Aggregate() if node.collected:
            read = tuple(name for call in node.collected for name in call.references)
            wanted = [(node.keys, read)]
        case Window():
            wanted = [(node.partition, node.input.columns)]
        case _:
            wanted = []
    return tuple(
        None if _is_in(tables, below.node) else _rows(f"trace_{ref}_rows_{place}", columns, key)
        for place, ((key, columns), below) in enumerate(zip(wanted, inputs, strict=False))
    )


def _is_in(tables: frozenset[str], node: Node) -> bool:
    """Whether the rows of a node are those of tables, or stand in the query."""
    if isinstance(node, Scan):
        return node.source in tables
    is_linear = isinstance(node, Values | Project | Filter | Weigh | UnionAll)
    return is_linear and all(_is_in(tables, below) for below in node.inputs)


def circuit_of(
    plan: Node, append_only: frozenset[str], tables: frozenset[str] = frozenset()
) -> Circuit:
    """A circuit with the plan as its only view, `root`."""
    operators = operators_of(*join_trees([expand(plan)]), append_only, tables)
    return Circuit(tuple(operators), (OutboxSpec("root", operators[-1].ref, plan.columns),))


class Runner:
    """Runs a circuit; traces are kept as Arrow tables between intervals, one piece an interval."""

    def __init__(
        self,
        spark: SparkSession,
        circuit: Circuit,
        merges_traces: bool = False,
        large_state: int = LARGE_STATE,
    ) -> None:
        self._spark = spark
        self._merges_traces = merges_traces
        self._large_state = large_state
        self._circuit = circuit
        self._specs = {trace.table: trace for trace in self._circuit.traces}
        self._pieces: dict[str, list[pa.Table]] = {}
        self._types: dict[Node, Any] = {}
        self._traces: dict[str, DataFrame] = {}
        self._empty: dict[str, pa.Table] = {}
        self._id = uuid4().hex
        self.late: dict[str, list[tuple[tuple[Any, ...], int, int]]] = {}
        """All late rows by source, as `changes_of` gives them."""
        configure_session(spark, 2)

    def run(
        self, deltas: Mapping[str, DataFrame], interval: Interval, records: int, is_last: bool
    ) -> Mapping[str, pa.Table]:
        """Each view's delta over the steps of `interval`; state is kept unless this is the last.

        Steps of `deltas` and of the result are recorded ones. From the second interval on, sources
        without rows are silent, as they are where no step has a record of them.
        """
        first, last = interval
        is_first = not self._empty
        silent = () if is_first else [name for name, rows in deltas.items() if rows.isEmpty()]
        evaluated = evaluate_circuit(
            self._circuit,
            {
                name: self._held(name, rows).withColumn("_step", F.expr(f"_step - {first}L"))
                for name, rows in deltas.items()
            },
            silent,
            Before(self._trace, self._table, self._size, lambda name: self._size(f"source {name}")),
            self._context(interval, records, is_first),
        )
        outboxes = {
            table: absolute_steps(rows, first, last) for table, rows in evaluated.outboxes.items()
        }
        late = {
            f"{source} late": absolute_steps(found.rows, first, last)
            for source, found in evaluated.late.items()
            if found.is_any
        }
        wanted = {**late, **outboxes} if is_last else {**evaluated.appends, **late, **outboxes}
        try:
            with ThreadPoolExecutor(4) as pool:
                tables = dict(
                    zip(wanted, pool.map(DataFrame.toArrow, wanted.values()), strict=True)
                )
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

    def _context(self, interval: Interval, records: int, is_first: bool) -> Context:
        first, last = interval
        before = None if is_first else _microseconds(time_of(first - 1))
        times = tuple(_microseconds(time_of(step)) for step in range(first, last + 1))
        return Context(
            self._spark, records, 2, is_first, times, before, self._types, self._large_state
        )

    def _trace(self, table: str) -> DataFrame | None:
        pieces = self._pieces.get(table)
        if pieces is None:
            return None
        if table not in self._traces:
            self._traces[table] = self._held(table, as_frame(self._spark, pa.concat_tables(pieces)))
        rows = self._traces[table]
        if not self._merges_traces:
            return rows
        return merge_trace(self._specs[table], without_past(self._specs[table], rows, self._trace))

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
