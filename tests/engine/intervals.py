"""Runs a plan interval by interval on Spark, with traces that are frames instead of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from lockstep.sql.circuit import Circuit, Cost, Operator, OutboxSpec, TraceKind, TraceSpec
from lockstep.sql.plans.expansion import expand
from lockstep.sql.plans.nodes import Aggregate, Join, Node, Project, Scan, Upsert, Weigh, Window
from lockstep.zset import ZSet
from lockstep_engine.context import Context, configure_session
from lockstep_engine.deltas import absolute_steps
from lockstep_engine.evaluation import evaluate_circuit
from lockstep_engine.operators.merging import merge_trace

Interval = tuple[int, int]


def operators_of(plan: Node, append_only: frozenset[str]) -> list[Operator]:
    """The plan's operators, inputs first, equal ones once; `append_only` names such sources."""
    found: dict[Node, Operator] = {}

    def visit(node: Node) -> Operator:
        if node not in found:
            inputs = [visit(below) for below in node.inputs]
            ref = len(found)
            keeps = all(one.append_only for one in inputs)
            if isinstance(node, Scan):
                keeps = node.source in append_only
            traces = _traces(node, ref, keeps)
            if isinstance(node, Aggregate):
                keeps = keeps and not node.aggregates
            if isinstance(node, Weigh | Window | Upsert):
                keeps = False
            refs = tuple(one.ref for one in inputs)
            found[node] = Operator(ref, node, refs, traces, keeps, Cost.CHANGE, 1)
        return found[node]

    visit(plan)
    return list(found.values())


def _traces(node: Node, ref: int, keeps: bool) -> tuple[TraceSpec, ...]:
    match node:
        case Join():
            sides = [(node.left, node.left_keys), (node.right, node.right_keys)]
            if _same_rows(node):
                del sides[1]
            return tuple(
                TraceSpec(
                    f"trace_{ref}_{place}",
                    TraceKind.ROWS,
                    keys,
                    tuple(name for name in side.columns if name not in keys),
                )
                for place, (side, keys) in enumerate(sides)
            )
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
            collected = [call for call in node.aggregates if call.expression is not None]
            if collected:
                read = dict.fromkeys(name for call in collected for name in call.references)
                rest = tuple(name for name in read if name not in node.keys)
                traces.append(TraceSpec(f"trace_{ref}_rows", TraceKind.ROWS, node.keys, rest))
            return tuple(traces)
        case Window():
            rest = tuple(name for name in node.input.columns if name not in node.partition)
            return (TraceSpec(f"trace_{ref}", TraceKind.ROWS, node.partition, rest),)
        case Upsert():
            others = tuple(name for name in node.columns if name not in node.keys)
            return (TraceSpec(f"trace_{ref}", TraceKind.ROWS, node.keys, others),)
        case _:
            return ()


def _same_rows(node: Join) -> bool:
    """True where the sides are one relation under different names, column for column, with the
    same keys: then one trace serves both."""
    left, right = node.left, node.right
    if not (isinstance(left, Project) and isinstance(right, Project)):
        return False
    places = [
        tuple(side.columns.index(key) for key in keys)
        for side, keys in ((left, node.left_keys), (right, node.right_keys))
    ]
    return (
        left.input == right.input
        and places[0] == places[1]
        and [o.expression for o in left.outputs] == [o.expression for o in right.outputs]
    )


def circuit_of(plan: Node, append_only: frozenset[str]) -> Circuit:
    """A circuit with the plan as its only view, `root`."""
    operators = operators_of(expand(plan), append_only)
    return Circuit(tuple(operators), (OutboxSpec("root", operators[-1].ref, plan.columns),))


class Runner:
    """Runs a circuit; traces are kept as Arrow tables between intervals, one piece an interval."""

    def __init__(self, spark: SparkSession, circuit: Circuit, merges_traces: bool = False) -> None:
        self._spark = spark
        self._merges_traces = merges_traces
        self._circuit = circuit
        self._specs = {trace.table: trace for trace in self._circuit.traces}
        self._pieces: dict[str, list[pa.Table]] = {}
        self._types: dict[Node, Any] = {}
        self._traces: dict[str, DataFrame] = {}
        self._empty: dict[str, pa.Table] = {}
        self._id = uuid4().hex
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
            self._trace,
            Context(self._spark, records, 2, is_first, self._types),
        )
        outboxes = {
            table: absolute_steps(rows, first, last) for table, rows in evaluated.outboxes.items()
        }
        wanted = outboxes if is_last else {**evaluated.appends, **outboxes}
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
        self._traces.clear()
        for name, rows in tables.items():
            self._pieces.setdefault(name, []).append(rows)
        return deltas_of

    def _trace(self, table: str) -> DataFrame | None:
        pieces = self._pieces.get(table)
        if pieces is None:
            return None
        if table not in self._traces:
            self._traces[table] = self._held(table, as_frame(self._spark, pa.concat_tables(pieces)))
        rows = self._traces[table]
        return merge_trace(self._specs[table], rows) if self._merges_traces else rows

    def _held(self, name: str, rows: DataFrame) -> DataFrame:
        """The rows under a name that the server knows: a plan that reads them many times would carry
        them as often."""
        view = f"{name}_of_{self._id}"
        rows.createOrReplaceTempView(view)
        return self._spark.table(view)


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
