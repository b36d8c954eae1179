"""The first rows of each partition over rows that this process has, as `operators.window` has them.

Which rows are first is looked at after each step, of the partitions in which something changes; what
differs from one to the next is the change. For row_number over columns, and as far as a bound: LIMIT,
and the first of each.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.types import IntegerType, StructField, StructType

from lockstep.sql.circuit import Operator, TraceKind
from lockstep.sql.plans.nodes import Window
from lockstep_engine.deltas import FIRST, STEP, WEIGHT
from lockstep_engine.kernels.first_rows import FirstRows, Taken, changes_of_first
from lockstep_engine.kernels.groups import in_order, starts
from lockstep_engine.local.evaluated import LocalEvaluation
from lockstep_engine.local.ordered import evaluated, events_of, numbers_by, sorted_rows
from lockstep_engine.local.rows import Rows
from lockstep_engine.local.values import Unlike, numbered
from lockstep_engine.operators.window import numbers_rows

__all__ = ["first_rows", "is_bounded"]

_MOST_LOOKED_AT = 20_000_000
"""Rows and copies, each as often as it is looked at: some seconds' work, beyond which it is Spark's."""


def is_bounded(operator: Operator) -> bool:
    """Whether it can be worked out here, as far as that can be told without its input."""
    node = operator.node
    if not isinstance(node, Window) or node.first is None or not numbers_rows(node):
        return False
    [call] = node.calls
    # Without an order, and with a frame, Spark refuses it, and says why.
    is_ordered = bool(call.order) and not call.frame
    return is_ordered and all(key.expression.is_column for key in call.order)


def first_rows(operator: Operator, delta: Rows, before: Rows | None = None) -> LocalEvaluation:
    """`before` are at least the rows of the partitions in the delta, None where there were none. Raises
    Unlike where Spark is to do it."""
    node = operator.node
    assert isinstance(node, Window), "asked for before"
    events = events_of(node, delta, before)
    if before is not None and not node.partition:
        return evaluated(operator, delta, _changes(node, _near_the_first(node, events)).made)
    found = _changes(node, events)
    kinds = {trace.kind for trace in operator.traces}
    emitted = found.emitted() if TraceKind.FIRST in kinds else found.made
    # They come first among the events.
    undone = found.is_undone[: len(delta)]
    came = _without(delta, undone) if kinds - {TraceKind.FIRST} else delta
    return evaluated(operator, came, found.made, emitted)


class _Changes(NamedTuple):
    """What is first at each of the steps and was not at the one before, and the other way round, with
    the rows and places it is of; and which of the events are undone by the end."""

    made: Rows
    first: FirstRows
    is_undone: NDArray[np.bool_]

    def emitted(self) -> Rows:
        """What is made, without what is first in the end if and only if it was before."""
        return _without(self.made, _are_undone(self.first))


def _without(rows: Rows, undone: NDArray[np.bool_]) -> Rows:
    return rows.where(pa.array(~undone)) if undone.any() else rows


def _near_the_first(node: Window, events: Rows) -> Rows:
    """Of a LIMIT without rows that have more before them than are asked for, or taken back, whether they
    were there or come."""
    weights, at = events.table[WEIGHT].to_numpy(), events.table[STEP].to_numpy()
    is_new = at >= FIRST
    most = (node.first or 0) - int(weights[is_new & (weights < 0)].sum())
    by_order = numbers_by(events, node.calls[0].order)
    if not by_order:
        return events
    order = in_order(*by_order)
    begins = starts(*(one[order] for one in by_order))
    held = np.where(is_new, 0, weights)[order]
    last = np.searchsorted(np.cumsum(np.add.reduceat(held, np.flatnonzero(begins))), most)
    wanted = np.zeros(len(events), np.bool_)
    wanted[order[np.cumsum(begins) - 1 <= last]] = True
    return events.where(pa.array(wanted))


def _changes(node: Window, events: Rows) -> _Changes:
    [call] = node.calls
    columns = node.input.columns
    partitions = numbered([events.table[name] for name in node.partition], len(events))
    order, is_new = sorted_rows(node, events, partitions, call.order)
    numbers, row_of = np.cumsum(is_new) - 1, order[is_new]
    # In this order they are sorted again in no time.
    weights, at = (events.table[name].to_numpy()[order] for name in (WEIGHT, STEP))
    is_held = at < FIRST
    held, added = np.zeros((2, len(row_of)), np.int64)
    np.add.at(held, numbers[is_held], weights[is_held])
    later = Taken(*(one[~is_held] for one in (numbers, weights, at)))
    np.add.at(added, later.rows, later.weights)
    found = changes_of_first(held, later, partitions[row_of], node.first or 0, _MOST_LOOKED_AT)
    if found is None:
        raise Unlike
    made = events.table.select(list(columns)).take(pa.array(row_of[found.rows]))
    fields = [*(events.schema[name] for name in columns), StructField(call.name, IntegerType())]
    made = made.append_column(call.name, pa.array(found.before + 1, pa.int32()))
    made = made.append_column(WEIGHT, pa.array(found.weights, pa.int64()))
    made = made.append_column(STEP, pa.array(found.steps, pa.int64()))
    fields += [events.schema[WEIGHT], events.schema[STEP]]
    is_undone = np.empty(len(events), np.bool_)
    is_undone[order] = added[numbers] == 0
    return _Changes(Rows.of(made, StructType(fields)), found, is_undone)


def _are_undone(found: FirstRows) -> NDArray[np.bool_]:
    """Changes of what is first in the end if and only if it was before."""
    order = in_order(found.rows, found.before)
    begins = np.flatnonzero(starts(found.rows[order], found.before[order]))
    undone = np.zeros(len(order), np.bool_)
    if len(begins):
        sums = np.add.reduceat(found.weights[order], begins)
        undone[order] = np.repeat(sums == 0, np.diff(np.append(begins, len(order))))
    return undone
