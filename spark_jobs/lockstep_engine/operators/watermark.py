"""A watermark: a row of step t is late where its column is below the watermark of t.

The watermark of step t is the greatest value of the column in all steps before t, less the delay: it
is known before a row of t is looked at, and is the same however the steps are cut into intervals. A
null is never late, and late rows, deletes among them, count for the greatest value as others do (they
do not change it). What is on time goes on, what is late goes to the source's late table, and whether
some operator still has what it would have met does not matter: if it did, what a view shows would
depend on when state was cleaned up.

The trace holds the greatest value so far, in microseconds, one row for each interval that raised it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lockstep.sql.circuit import Operator
from lockstep.sql.plans.nodes import Watermark
from lockstep_engine.context import Context
from lockstep_engine.deltas import STEP, by_step, quoted, union
from lockstep_engine.operators.evaluated import Evaluation, State
from lockstep_engine.told import types_of_columns

__all__ = ["UNKNOWN", "Late", "Progress", "greatest_seen", "standing", "watermark"]

UNKNOWN = -62_135_596_800_000_000
"""The watermark before the first value: Spark's least timestamp, below which no row is."""
_GREATEST = "_max_seen"
_BEFORE = -1


@dataclass(frozen=True)
class Late:
    """The late rows of an interval: the source's columns, `_weight`, `_step`."""

    rows: DataFrame
    is_any: bool


@dataclass(frozen=True)
class Progress:
    """The watermark of the first step, and what it is after each step, in microseconds."""

    before: int
    after: tuple[int, ...]


def watermark(
    operator: Operator, node: Watermark, delta: DataFrame, state: State, context: Context
) -> tuple[Evaluation, Late, Progress]:
    """The rows on time, the late ones, and the watermark; looks at the delta now, once."""
    (trace,) = operator.traces
    held = state.traces.get(trace.table)
    seen = _seen(node, delta, held)
    before = seen.pop(_BEFORE, (None, None))[1]
    progress = _progress(node, before, seen, len(context.times))
    marks = (progress.before, *progress.after[:-1])
    is_any = any(least < marks[step] for step, (least, _) in seen.items())
    is_before = F.col(quoted(node.column)) < F.timestamp_micros(by_step(marks))
    late = F.coalesce(is_before, F.lit(False))
    greatest = max((value for _, value in seen.values()), default=None)
    raises = greatest is not None and (before is None or greatest > before)
    kind = types_of_columns(context.spark, f"{_GREATEST} bigint")
    appended = context.spark.createDataFrame([(greatest,)] if raises else [], kind)
    return (
        Evaluation(
            delta.where(~late) if is_any else delta,
            {trace.table: appended} if raises or held is None else {},
        ),
        Late(delta.where(late), is_any),
        progress,
    )


def standing(node: Watermark, held: DataFrame | None, context: Context) -> Progress:
    """The watermark over an interval in which the source has no row."""
    return _progress(node, greatest_seen(held), {}, len(context.times))


def greatest_seen(held: DataFrame | None) -> int | None:
    """The greatest value in the trace, in microseconds."""
    if held is None:
        return None
    greatest: int | None = held.agg(F.max(_GREATEST)).collect()[0][0]
    return greatest


def _seen(node: Watermark, delta: DataFrame, held: DataFrame | None) -> dict[int, tuple[int, int]]:
    """The least and the greatest value of each step that has one, the trace's as those of step -1."""
    parts = [delta.selectExpr(STEP, f"unix_micros({quoted(node.column)}) AS _value")]
    if held is not None:
        parts.append(held.selectExpr(f"{_BEFORE}L AS {STEP}", f"{_GREATEST} AS _value"))
    rows = (
        union(parts)
        .where("_value IS NOT NULL")
        .groupBy(STEP)
        .agg(F.min("_value"), F.max("_value"))
        .collect()
    )
    return {row[0]: (row[1], row[2]) for row in rows}


def _progress(
    node: Watermark, greatest: int | None, seen: Mapping[int, tuple[int, int]], steps: int
) -> Progress:
    """`greatest` is what was seen before the steps."""
    marks: list[int] = []
    for step in range(_BEFORE, steps):
        if step in seen:
            greatest = seen[step][1] if greatest is None else max(greatest, seen[step][1])
        marks.append(UNKNOWN if greatest is None else max(UNKNOWN, greatest - node.delay))
    return Progress(marks[0], tuple(marks[1:]))
