"""The first rows of each partition over rows that this process has, as `operators.window` has them.

Which rows are first is looked at after each step, of the partitions in which something changes; what
differs from one to the next is the change. For row_number over columns, and as far as a bound: LIMIT,
and the first of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.types import IntegerType, StructField, StructType

from lockstep.sql.circuit import Operator, TraceKind
from lockstep.sql.plans.nodes import SortKey, Window
from lockstep_engine.deltas import FIRST, STEP, WEIGHT
from lockstep_engine.kernels.first_rows import Taken, changes_of_first
from lockstep_engine.kernels.groups import Integers, in_order, starts
from lockstep_engine.local.changes import netted_if_need_be
from lockstep_engine.local.evaluated import LocalEvaluation
from lockstep_engine.local.linear import Sifted
from lockstep_engine.local.rows import Rows
from lockstep_engine.local.values import (
    Unlike,
    has_order,
    is_number_inside,
    numbered,
    numbers_inside,
    ranked,
)
from lockstep_engine.operators.window import numbers_rows

__all__ = ["first_rows", "is_bounded"]

_MOST_LOOKED_AT = 100_000_000
"""Rows, at all steps together: a second's work, beyond which Spark lays all of it out at once."""


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
    if not all(has_order(types[name]) for name in columns):
        raise Unlike
    events = delta.select([*columns, WEIGHT, STEP]).normalized()
    if before is not None:
        held = before.select([*columns, WEIGHT]).normalized().with_number(STEP, FIRST - 1)
        events = _worth_looking_at(node, Rows.together([events, held]))
    made = _changes(node, events)
    first = {t.table: t.row for t in operator.traces if t.kind is TraceKind.FIRST}
    appends = {
        trace.table: netted_if_need_be(made if trace.table in first else delta, trace.row)
        for trace in operator.traces
    }
    return LocalEvaluation(Sifted(made), appends)


def _worth_looking_at(node: Window, events: Rows) -> Rows:
    """Without rows before the interval of partitions that do not change; of a LIMIT without those that
    have more rows before them than are asked for, or taken back, whether they were there or come."""
    weights, at = events.table[WEIGHT].to_numpy(), events.table[STEP].to_numpy()
    is_new = at >= FIRST
    if node.partition:
        numbers = numbered([events.table[key] for key in node.partition], len(events))
        return events.where(pa.array(np.isin(numbers, numbers[is_new])))
    most = (node.first or 0) - int(weights[is_new & (weights < 0)].sum())
    by_order = [_sorted(events, key) for key in _keys(node.calls[0].order)]
    if not by_order:
        return events
    order = in_order(*by_order)
    begins = starts(*(one[order] for one in by_order))
    held = np.where(is_new, 0, weights)[order]
    last = np.searchsorted(np.cumsum(np.add.reduceat(held, np.flatnonzero(begins))), most)
    wanted = np.zeros(len(events), np.bool_)
    wanted[order[np.cumsum(begins) - 1 <= last]] = True
    return events.where(pa.array(wanted))


class _Key(NamedTuple):
    """What rows are sorted by."""

    name: str
    descending: bool = False
    nulls_first: bool = True


def _keys(order: Sequence[SortKey]) -> list[_Key]:
    return [_Key(one.expression.references[0], one.descending, one.nulls_first) for one in order]


def _sorted(rows: Rows, key: _Key) -> Integers:
    """A number for each row, the less the sooner it comes."""
    kind = rows.schema[key.name].dataType
    if not has_order(kind):
        raise Unlike
    if (numbers := _numbers_of(rows, key)) is not None:
        return numbers
    ranks = ranked(rows.table[key.name])
    placed = np.where(ranks < 0, 0, -ranks if key.descending else ranks)
    edge = len(rows) + 1
    return np.where(ranks < 0, -edge if key.nulls_first else edge, placed)


def _numbers_of(rows: Rows, key: _Key) -> Integers | None:
    """Whole numbers that are in the order of the key, where its values are such, none is null, and a few
    bits are left: to rank them takes as long as to sort by them."""
    column = rows.table[key.name]
    if not is_number_inside(column.type) or column.null_count or not len(column):
        return None
    values = numbers_inside(column)
    least, greatest = int(values.min()), int(values.max())
    fits = least > -1 << 62 and (greatest - least + 1) * (len(values) + 1) < 1 << 62
    if not fits:
        return None
    return -values if key.descending else values


def _in_order(
    events: Rows, partitions: Integers, keys: Sequence[_Key]
) -> tuple[Integers, NDArray[np.bool_]]:
    """The places of rows as they are sorted in partitions, and where one differs from the one before it.
    Each key is looked at only of rows that are equal by those before: to rank texts takes longest."""
    # Numbers are sorted by, too, at once.
    numbers = _numbers_of(events, keys[0]) if keys else None
    sorted_by = (partitions,) if numbers is None else (partitions, numbers)
    order = in_order(*sorted_by)
    is_new = starts(*(one[order] for one in sorted_by))
    for key in keys[len(sorted_by) - 1 :]:
        is_tied = ~is_new
        is_tied[:-1] |= is_tied[1:]
        places = np.flatnonzero(is_tied)
        if not len(places):
            break
        rows, groups = order[places], np.cumsum(is_new, dtype=np.int64)[places]
        tied = events.select([key.name])
        ranks = _sorted(Rows(tied.table.take(pa.array(rows)), tied.schema), key)
        again = in_order(groups, ranks)
        order[places] = rows[again]
        is_new[places] = starts(groups[again], ranks[again])
    return order, is_new


def _changes(node: Window, events: Rows) -> Rows:
    """What is first at each of the steps and was not at the one before, and the other way round."""
    [call] = node.calls
    columns = node.input.columns
    partitions = numbered([events.table[name] for name in node.partition], len(events))
    # Among equals what they are equal in decides nothing.
    sorted_by = {key.expression.references[0] for key in call.order}
    ties = [_Key(name) for name in columns if name not in sorted_by.union(node.partition)]
    # Rows by number, in the order of partitions and, within one, of what they are sorted by.
    order, is_new = _in_order(events, partitions, [*_keys(call.order), *ties])
    numbers, row_of = np.cumsum(is_new) - 1, order[is_new]
    # In this order they are sorted again in no time.
    weights, at = (events.table[name].to_numpy()[order] for name in (WEIGHT, STEP))
    is_held = at < FIRST
    held = np.zeros(len(row_of), np.int64)
    np.add.at(held, numbers[is_held], weights[is_held])
    later = Taken(*(one[~is_held] for one in (numbers, weights, at)))
    found = changes_of_first(held, later, partitions[row_of], node.first or 0, _MOST_LOOKED_AT)
    if found is None:
        raise Unlike
    made = events.table.select(list(columns)).take(pa.array(row_of[found.rows]))
    fields = [*(events.schema[name] for name in columns), StructField(call.name, IntegerType())]
    made = made.append_column(call.name, pa.array(found.before + 1, pa.int32()))
    made = made.append_column(WEIGHT, pa.array(found.weights, pa.int64()))
    made = made.append_column(STEP, pa.array(found.steps, pa.int64()))
    fields += [events.schema[WEIGHT], events.schema[STEP]]
    return Rows.of(made, StructType(fields))
