"""Runs a plan interval by interval on Spark, with traces that are frames instead of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from lockstep.sql.circuit import Cost, Operator, TraceKind, TraceSpec
from lockstep.sql.nodes import Aggregate, Join, Node, Project, Scan
from lockstep.zset import ZSet
from lockstep_engine.context import Context
from lockstep_engine.deltas import absolute_steps
from lockstep_engine.operators import evaluate
from lockstep_engine.operators.merging import merge_trace

Interval = tuple[int, int]

LARGEST_WHOLE_PLAN = 2
"""Plans with at most so many stateful operators are one Spark plan an interval."""


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
            return tuple(traces)
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


class Runner:
    """Runs a plan; traces are kept as Arrow tables between intervals, one piece an interval."""

    def __init__(
        self,
        spark: SparkSession,
        plan: Node,
        append_only: frozenset[str],
        merges_traces: bool = False,
    ) -> None:
        self._spark = spark
        self._merges_traces = merges_traces
        self._operators = operators_of(plan, append_only)
        self._pieces: dict[str, list[pa.Table]] = {}
        self._types: dict[Node, Any] = {}

    def run(
        self, deltas: Mapping[str, DataFrame], interval: Interval, records: int, is_last: bool
    ) -> pa.Table:
        """The plan's delta over the steps of `interval`; state is kept unless this is the last.

        Steps of `deltas` and of the result are recorded ones.
        """
        first, last = interval
        context = Context(self._spark, records, 2, self._types)
        made: dict[int, DataFrame] = {}
        appends: dict[str, DataFrame] = {}
        for operator in self._operators:
            node = operator.node
            if isinstance(node, Scan):
                columns = [f"`{name}`" for name in node.columns]
                made[operator.ref] = deltas[node.source].select(
                    *columns, "_weight", F.expr(f"_step - {first}L").alias("_step")
                )
                continue
            state = {trace.table: self._trace(trace) for trace in operator.traces}
            evaluation = evaluate(
                operator, tuple(made[ref] for ref in operator.inputs), state, context
            )
            made[operator.ref] = self._kept(operator, evaluation.delta)
            appends.update(evaluation.appends)
        root = self._operators[-1].ref
        changes = absolute_steps(made[root], first, last)
        wanted = {"": changes, **({} if is_last else appends)}
        with ThreadPoolExecutor(4) as pool:
            tables = dict(zip(wanted, pool.map(DataFrame.toArrow, wanted.values()), strict=True))
        delta = tables.pop("")
        for name, rows in tables.items():
            if rows.num_rows:
                self._pieces.setdefault(name, []).append(rows)
        return delta

    def _kept(self, operator: Operator, delta: DataFrame) -> DataFrame:
        """The delta; in a large plan, one that was computed is handed on as rows, as Spark would
        compute it again for everything that it goes into."""
        is_stateful = [bool(one.traces) for one in self._operators]
        if sum(is_stateful) > LARGEST_WHOLE_PLAN and operator.traces:
            return as_frame(self._spark, delta.toArrow())
        return delta

    def _trace(self, trace: TraceSpec) -> DataFrame | None:
        pieces = self._pieces.get(trace.table)
        if not pieces:
            return None
        rows = as_frame(self._spark, pa.concat_tables(pieces))
        return merge_trace(trace, rows) if self._merges_traces else rows


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
