"""A keyed table over rows that this process has, as `operators.upsert` has it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from lockstep.sql.circuit import Operator
from lockstep.sql.plans.nodes import CHANGE_COLUMNS, Upsert
from lockstep_engine.deltas import FIRST, STEP, WEIGHT
from lockstep_engine.kernels.groups import in_order, ranks, starts
from lockstep_engine.local.changes import netted, row_changes
from lockstep_engine.local.evaluated import LocalEvaluation
from lockstep_engine.local.linear import Sifted
from lockstep_engine.local.rows import Rows
from lockstep_engine.local.values import Unlike, are_exact, numbered, together

__all__ = ["upserted"]


def upserted(operator: Operator, delta: Rows, traces: Mapping[str, Rows]) -> LocalEvaluation:
    """`delta` has the table's columns and CHANGE_COLUMNS; `traces` has at least the rows of its keys,
    unless the trace is new. Raises Unlike where Spark is to do it."""
    node, (trace,) = operator.node, operator.traces
    assert isinstance(node, Upsert), "asked for before"
    if not are_exact([delta.schema[key].dataType for key in node.keys]):
        raise Unlike
    held = traces.get(trace.table)
    rows = [delta.table] if held is None else [delta.table, netted(held, trace.row).table]
    size, changed = sum(len(one) for one in rows), len(delta)
    groups = numbered([together(*(one[key] for one in rows)) for key in node.keys], size)
    partitions, offsets, deleted = (
        np.append(delta.table[name].to_numpy(), np.zeros(size - changed, np.int64))
        for name in CHANGE_COLUMNS
    )
    steps = np.append(delta.table[STEP].to_numpy(), np.full(size - changed, FIRST - 1))
    order = in_order(groups, steps, partitions, offsets)
    is_last = np.append(starts(groups[order], steps[order])[1:], True)
    # Of a key that does not change there is one row, which was there before.
    last = order[is_last]
    names = (*node.keys, *trace.columns)
    columns = {n: together(*(one[n] for one in rows)).take(pa.array(last)) for n in names}
    schema = StructType([*(delta.schema[name] for name in names), delta.schema[STEP]])
    states = Rows.of(pa.table({**columns, STEP: steps[last]}), schema)
    is_there = ~deleted[last].astype(bool)
    keys = groups[last]
    made = row_changes(states, trace.columns, node.keys, ranks(keys), is_there)
    # What a key's changes come to is what its last state has in place of the one before.
    is_end = np.append(starts(keys)[1:], True) | (steps[last] < FIRST)
    ends = states.where(pa.array(is_end))
    change = row_changes(ends, trace.columns, node.keys, ranks(keys[is_end]), is_there[is_end])
    return LocalEvaluation(
        Sifted(made.select([*node.columns, WEIGHT, STEP])),
        {trace.table: change.select([*trace.row, WEIGHT]).normalized()},
    )
