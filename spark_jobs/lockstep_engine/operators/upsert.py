"""A keyed table is a function of the last record of each key: after step t, the last up to t.

Of the records of a key in one step only the last counts, by partition and offset; so the delta is
cut down to a row per (key, step) first. With the state's row of just those keys as that of the step
before, each of them is compared with the one before it: -old +new where they differ, and nothing
for a record that says again what is there. Without the state, a row that an earlier interval showed
would never be taken back, and a source that repeats records (at least once) would count them twice.

The trace is the integral of what is emitted: the table itself.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lockstep.sql.circuit import Operator
from lockstep.sql.plans.nodes import CHANGE_COLUMNS, Upsert
from lockstep_engine.context import Context
from lockstep_engine.deltas import (
    STEP,
    WEIGHT,
    columns_of,
    merge_steps,
    only_keys,
    quoted,
    step_before,
)
from lockstep_engine.operators.evaluated import Evaluation, State
from lockstep_engine.operators.row_changes import row_changes

__all__ = ["upsert"]


def upsert(
    operator: Operator, node: Upsert, delta: DataFrame, state: State, context: Context
) -> Evaluation:
    """The table's delta, consolidated, and the same without steps for its trace.

    `delta`: the table's columns and CHANGE_COLUMNS; its rows are records, none of them ever taken
    back. Keys are not null.
    """
    (trace,) = operator.traces
    others = trace.columns
    row = f"struct({', '.join(['true AS _there', *map(quoted, others)])})"
    states = _last_records(node, row, delta)
    held = state.traces.get(trace.table)
    if held is not None:
        rows = merge_steps(
            only_keys(held, node.keys, delta, context), [*node.keys, *others]
        ).select(*columns_of(node.keys), step_before(), F.expr(row).alias("_after"))
        states = rows.unionByName(states)
    changes = row_changes(states, node.keys, others).select(
        *columns_of([*node.columns, WEIGHT, STEP])
    )
    return Evaluation(changes, integrals={trace.table: trace.row})


def _last_records(node: Upsert, row: str, delta: DataFrame) -> DataFrame:
    """Keys, `_step`, and the row `_after` it, null where the last record deletes."""
    partition, offset, deleted = CHANGE_COLUMNS
    last = f"max_by(CASE WHEN NOT {deleted} THEN {row} END, struct({partition}, {offset}))"
    return delta.groupBy(*columns_of([*node.keys, STEP])).agg(F.expr(last).alias("_after"))
