"""A temporal filter: after step t, the rows for which `column comparison bound(t)` is true.

The bound never goes back, so each row has one step at which its time comes: the first whose bound
has passed it. With `<` the row is there from the later of that step and its own on; with `>` from its
own step until then, and never if that is not before. So what changes without input are the rows whose
time comes, and they are found by it: the trace holds the rows whose time has not come, by the column
that is compared, and an interval reads those between the bounds of the step before it and of its last
one. Their opposites are appended, so that merged files forget them; without the rows that come early,
a view would show them only when something else with them changes.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lockstep.sql.circuit import Operator
from lockstep.sql.plans.nodes import Temporal
from lockstep_engine.context import Context
from lockstep_engine.deltas import STEP, WEIGHT, columns_of, merge_steps, quoted, union
from lockstep_engine.operators.evaluated import Evaluation, State
from lockstep_engine.operators.join import may_retract

__all__ = ["count_due", "temporal"]

_AT = "_at"
"""The step of the interval at which a row's time comes; their number where it is none of them."""
_FORMS = {
    "timestamp": ("unix_micros({})", "timestamp_micros({})"),
    "date": ("unix_date({})", "date_from_unix_date(CAST({} AS INT))"),
    "bigint": ("{}", "{}"),
}
"""By the type of a bound: how it is a whole number, and how a whole number is it."""


@dataclass(frozen=True)
class _Bounds:
    """The bounds of an interval's steps as whole numbers, and that of the step before, if any."""

    kind: str
    before: int | None
    steps: tuple[int, ...]

    def text(self, number: str) -> str:
        """A bound as Spark SQL."""
        return _FORMS[self.kind][1].format(number)


def temporal(
    operator: Operator, node: Temporal, delta: DataFrame | None, state: State, context: Context
) -> Evaluation:
    """The rows that come and go, by input and by time, and what the trace then waits for.

    `delta` None is a delta that is known to be empty. The trace's rows are the input's columns and
    `_weight`.
    """
    (trace,) = operator.traces
    bounds, held = _bounds(node, context), state.traces.get(trace.table)
    retracts = may_retract(node.input)
    emitted: list[DataFrame] = []
    waiting: list[DataFrame] = []
    if delta is not None:
        arrived = _with_step(node, bounds, delta.where(f"{quoted(node.column)} IS NOT NULL"))
        emitted.append(_of_input(node, bounds, arrived))
        waiting.append(arrived.where(f"{_AT} = {len(bounds.steps)}"))
    if held is not None:
        rows = _due(node, bounds, held)
        if retracts:
            rows = merge_steps(rows, node.columns)
        due = _with_step(node, bounds, rows)
        sign = "" if node.enters else "-"
        emitted.append(_changed(node, due, f"{sign}{WEIGHT}", _AT))
        waiting.append(due.withColumn(WEIGHT, F.expr(f"-{WEIGHT}")))
    if not emitted:
        raise ValueError("an empty delta needs the rows that wait")
    appended = union([rows.select(*columns_of([*trace.row, WEIGHT])) for rows in waiting])
    if retracts:
        appended = merge_steps(appended, trace.row)
    return Evaluation(union(emitted), {trace.table: appended})


def count_due(node: Temporal, held: DataFrame, context: Context) -> int:
    """Of how many rows of the trace the time comes in the interval."""
    return _due(node, _bounds(node, context), held).count()


def _bounds(node: Temporal, context: Context) -> _Bounds:
    """Spark computes the bounds from the times of the steps, but for those that are the times."""
    before, times = context.time_before, context.times
    assert times, "the steps of an interval with a temporal filter have times"
    if node.bound.text == "`now`":
        return _Bounds("timestamp", before, times)
    every = [*([] if before is None else [before]), *times]
    rows = ", ".join(f"({place}, timestamp_micros({time}L))" for place, time in enumerate(every))
    found = context.spark.sql(
        f"SELECT place, {node.bound.text} AS bound FROM VALUES {rows} AS times (place, `now`)"
    )
    kind = found.schema["bound"].dataType.simpleString()
    number = _FORMS["bigint" if kind == "int" else kind][0].format("bound")
    numbers = [
        row[0] for row in found.orderBy("place").selectExpr(f"CAST({number} AS BIGINT)").collect()
    ]
    assert numbers == sorted(numbers), f"{node.bound.text} goes back: {numbers}"
    start = len(every) - len(times)
    return _Bounds(kind, numbers[0] if start else None, tuple(numbers[start:]))


def _waits(node: Temporal, bound: str) -> str:
    """True of a row whose time has not come at a bound."""
    sign = ">" if node.comparison in (">", "<=") else ">="
    return f"{quoted(node.column)} {sign} {bound}"


def _due(node: Temporal, bounds: _Bounds, held: DataFrame) -> DataFrame:
    """The rows of the trace whose time comes in the interval, by a range that Iceberg is told."""
    came = held.where(f"NOT ({_waits(node, bounds.text(f'{bounds.steps[-1]}L'))})")
    if bounds.before is not None:
        came = came.where(_waits(node, bounds.text(f"{bounds.before}L")))
    return came


def _with_step(node: Temporal, bounds: _Bounds, rows: DataFrame) -> DataFrame:
    """The rows with the step at which their time comes: the number of bounds at which they wait.

    Bisected, in an array, which generated code refers to and does not contain (decision 0005).
    """
    numbers = f"array({', '.join(f'{number}L' for number in bounds.steps)})"
    halves = [1 << place for place in reversed(range(len(bounds.steps).bit_length()))]
    probe = bounds.text(f"get({numbers}, _found + _half - 1)")
    return rows.withColumn(
        _AT,
        F.expr(
            f"CAST(aggregate(array({', '.join(map(str, halves))}), 0, (_found, _half) -> "
            f"IF({_waits(node, probe)}, _found + _half, _found)) AS BIGINT)"
        ),
    )


def _of_input(node: Temporal, bounds: _Bounds, arrived: DataFrame) -> DataFrame:
    """What the rows of the delta do: come, now or later, or come and go."""
    never = len(bounds.steps)
    if node.enters:
        here = arrived.where(f"{_AT} < {never}")
        return _changed(node, here, WEIGHT, f"greatest({_AT}, {STEP})")
    return arrived.select(
        *columns_of(node.columns),
        F.expr(
            f"inline(CASE WHEN {_AT} <= {STEP} THEN NULL "
            f"WHEN {_AT} = {never} THEN array(struct({WEIGHT} AS {WEIGHT}, {STEP} AS {STEP})) "
            f"ELSE array(struct({WEIGHT} AS {WEIGHT}, {STEP} AS {STEP}), "
            f"struct(-{WEIGHT} AS {WEIGHT}, {_AT} AS {STEP})) END)"
        ),
    )


def _changed(node: Temporal, rows: DataFrame, weight: str, step: str) -> DataFrame:
    return rows.select(
        *columns_of(node.columns), F.expr(weight).alias(WEIGHT), F.expr(step).alias(STEP)
    )
