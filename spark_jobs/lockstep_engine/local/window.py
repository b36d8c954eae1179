"""The first rows of each partition over rows that this process has, as `operators.window` has them.

Which rows are first is looked at after each step at which something changes; what differs from one to
the next is the change. For row_number over columns, and as far as a bound: LIMIT, and the first of each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.types import IntegerType, StructField, StructType

from lockstep.sql.circuit import Operator, TraceKind
from lockstep.sql.plans.nodes import SortKey, Window
from lockstep_engine.deltas import FIRST, STEP, WEIGHT
from lockstep_engine.kernels.groups import Integers, starts
from lockstep_engine.local.changes import netted
from lockstep_engine.local.evaluated import LocalEvaluation
from lockstep_engine.local.linear import Sifted
from lockstep_engine.local.rows import Rows
from lockstep_engine.local.values import Unlike, has_order, numbered, ranked, together
from lockstep_engine.operators.window import numbers_rows

__all__ = ["first_rows", "is_bounded"]

MOST_STEPS = 20
"""With more steps at which something changes, Spark lays all of it out at once."""

_Flags = npt.NDArray[np.bool_]


def is_bounded(operator: Operator) -> bool:
    """Whether it can be worked out here, as far as that can be told without its input."""
    node = operator.node
    if not isinstance(node, Window) or node.first is None or not numbers_rows(node):
        return False
    [call] = node.calls
    return all(key.expression.is_column for key in call.order)


def first_rows(operator: Operator, delta: Rows, before: Rows | None = None) -> LocalEvaluation:
    """`before` are at least the rows of the partitions in the delta, None where there were none. Raises
    Unlike where Spark is to do it."""
    node = operator.node
    assert isinstance(node, Window), "asked for before"
    columns, types = node.input.columns, {f.name: f.dataType for f in delta.schema}
    steps = np.unique(delta.table[STEP].to_numpy())
    if len(steps) > MOST_STEPS or not all(has_order(types[name]) for name in columns):
        raise Unlike
    events = delta.select([*columns, WEIGHT, STEP]).normalized()
    if before is not None:
        held = _worth_looking_at(node, before.select([*columns, WEIGHT]).normalized(), events)
        events = Rows.together([events, held.with_number(STEP, FIRST - 1)])
    made = _changes(node, events, steps)
    first = {t.table: t.row for t in operator.traces if t.kind is TraceKind.FIRST}
    appends = {
        trace.table: netted(made if trace.table in first else delta, trace.row)
        for trace in operator.traces
    }
    return LocalEvaluation(Sifted(made), appends)


def _worth_looking_at(node: Window, rows: Rows, delta: Rows) -> Rows:
    """Of the rows before the interval those of partitions that change; of a LIMIT those that have no
    more rows before them than are asked for, or taken back."""
    if node.partition:
        keys = [together(delta.table[key], rows.table[key]) for key in node.partition]
        numbers = numbered(keys, len(rows) + len(delta))
        wanted = np.isin(numbers[len(delta) :], numbers[: len(delta)])
    else:
        weights = delta.table[WEIGHT].to_numpy()
        most = (node.first or 0) - int(weights[weights < 0].sum())
        by_order = _order(rows, node.calls[0].order)
        if not by_order:
            return rows
        order = np.lexsort(by_order[::-1])
        is_new = starts(*(one[order] for one in by_order))
        counts = np.add.reduceat(rows.table[WEIGHT].to_numpy()[order], np.flatnonzero(is_new))
        last = np.searchsorted(np.cumsum(counts), most)
        wanted = np.zeros(len(rows), np.bool_)
        wanted[order[np.cumsum(is_new) - 1 <= last]] = True
    return rows.where(pa.array(wanted))


def _order(rows: Rows, order: Sequence[SortKey]) -> list[Integers]:
    """A number for each row by each key, the less the sooner it comes."""
    return [
        _sorted(rows, key.expression.references[0], key.descending, key.nulls_first)
        for key in order
    ]


def _sorted(rows: Rows, name: str, descending: bool, nulls_first: bool) -> Integers:
    kind = rows.schema[name].dataType
    if not has_order(kind):
        raise Unlike
    ranks = ranked(rows.table[name])
    placed = np.where(ranks < 0, 0, -ranks if descending else ranks)
    edge = len(rows) + 1
    return np.where(ranks < 0, -edge if nulls_first else edge, placed)


def _changes(node: Window, events: Rows, steps: Integers) -> Rows:
    """What is first at each of the steps and was not at the one before, and the other way round."""
    [call] = node.calls
    columns = node.input.columns
    by_order = _order(events, call.order)
    ties = [_sorted(events, name, False, True) for name in columns]
    keys = [events.table[name] for name in node.partition]
    partitions = numbered(keys, len(events))
    # Rows by number, in the order of partitions and, within one, of what they are sorted by.
    order = np.lexsort([*reversed([*by_order, *ties]), partitions])
    is_new = starts(*(one[order] for one in (partitions, *ties)))
    numbers = np.empty(len(events), np.int64)
    numbers[order] = np.cumsum(is_new) - 1
    row_of, partition_of = order[is_new], partitions[order[is_new]]
    weights, at = events.table[WEIGHT].to_numpy(), events.table[STEP].to_numpy()
    known = _first(numbers, weights, at < FIRST, partition_of, node.first or 0)
    found = []
    for step in steps:
        now = _first(numbers, weights, at <= step, partition_of, node.first or 0)
        for places, weight in ((np.setdiff1d(known, now), -1), (np.setdiff1d(now, known), 1)):
            found.append((places, np.full(len(places), weight), np.full(len(places), step)))
        known = now
    places, weights, at = (np.concatenate(one) for one in zip(*found, strict=True))
    made = events.table.select(list(columns)).take(pa.array(row_of[places // _span(node)]))
    fields = [*(events.schema[name] for name in columns), StructField(call.name, IntegerType())]
    numbered_rows = pa.array(places % _span(node) + 1, pa.int32())
    made = made.append_column(call.name, numbered_rows)
    made = made.append_column(WEIGHT, pa.array(weights, pa.int64()))
    made = made.append_column(STEP, pa.array(at, pa.int64()))
    fields += [events.schema[WEIGHT], events.schema[STEP]]
    return Rows.of(made, StructType(fields))


def _span(node: Window) -> int:
    return (node.first or 0) + 1


def _first(
    numbers: Integers, weights: Integers, is_counted: _Flags, partition_of: Integers, first: int
) -> Integers:
    """The first rows of each partition: of each the row's number times one more than the bound, and how
    many rows are before it."""
    size = len(partition_of)
    counts = np.bincount(numbers[is_counted], weights[is_counted], size).astype(np.int64)
    total = np.cumsum(counts) - counts
    begins = np.flatnonzero(starts(partition_of))
    before = total - np.repeat(total[begins], np.diff(np.append(begins, size)))
    copies = np.clip(first - before, 0, np.maximum(counts, 0))
    rows = np.repeat(np.arange(size), copies)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(copies) - copies, copies)
    places: Integers = rows * (first + 1) + before[rows] + within
    return places
