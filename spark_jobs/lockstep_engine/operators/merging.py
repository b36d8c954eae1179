"""A trace and its merged rows are the same state: that is what lets maintenance rewrite files.

Rows of one key fold into one by the operation that look-ups fold them by; a row or group whose
weight has come to 0 is gone. Only the one group of an aggregate without keys stays whatever its
count, as its row in the output is there over empty input too.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lockstep.sql.circuit import TraceKind, TraceSpec
from lockstep_engine.deltas import WEIGHT, columns_of, merge_steps, quoted
from lockstep_engine.operators.accumulators import ROWS
from lockstep_engine.operators.exact_sums import BIN, PARTS, PLACE
from lockstep_engine.operators.sessions import netted_sessions
from lockstep_engine.operators.watermark import greatest_seen

__all__ = ["merge_trace", "without_past"]


def without_past(
    trace: TraceSpec, rows: DataFrame, read_trace: Callable[[str], DataFrame | None]
) -> DataFrame:
    """The rows of a trace but for those that are past: rows that would look them up are late, and are
    left out before. `read_trace` gives the traces of watermarks."""
    if trace.past is None:
        return rows
    marks = [greatest_seen(read_trace(table)) for table, _ in trace.past.watermarks]
    delays = [delay for _, delay in trace.past.watermarks]
    known = [mark - delay for mark, delay in zip(marks, delays, strict=True) if mark is not None]
    if len(known) < len(marks):
        return rows
    sign, mark = "<=" if trace.past.is_exclusive else "<", f"timestamp_micros({min(known)}L)"
    passed = (f"try_cast({end} AS TIMESTAMP) {sign} {mark}" for end in trace.past.ends)
    return rows.where(f"NOT coalesce({' AND '.join(passed)}, false)")


def merge_trace(trace: TraceSpec, rows: DataFrame) -> DataFrame:
    """The rows of a trace, at most one a key (or a row), in the columns of the trace."""
    names = rows.columns
    if trace.kind is TraceKind.SESSIONS:
        return netted_sessions(rows, trace.key)
    if trace.kind is not TraceKind.ACCUMULATORS:
        merged = merge_steps(rows, [name for name in names if name != WEIGHT])
        return merged.select(*columns_of(names))
    # The bins of an exact sum are rows of their own beside the group's.
    key = [*trace.key, *(name for name in (PLACE, BIN) if name in names)]
    accumulators = [name for name in names if name not in key]
    folds = [F.expr(f"{_fold(name)}({quoted(name)})").alias(name) for name in accumulators]
    merged = rows.groupBy(*columns_of(key)).agg(*folds)
    # the row of the group of all is there too where no row has ever reached it
    is_there = [f"coalesce({ROWS}, 0) <> 0" if trace.key else f"{PLACE} IS NULL"]
    is_there += [f"coalesce({name}, 0) <> 0" for name in PARTS if name in names]
    if key:
        merged = merged.where(" OR ".join(is_there))
    return merged.select(*columns_of(names))


def _fold(accumulator: str) -> str:
    """An accumulator's operation, which its name begins with; sums are all the others."""
    kind = accumulator.split("_")[1]
    return kind if kind in ("min", "max") else "sum"
