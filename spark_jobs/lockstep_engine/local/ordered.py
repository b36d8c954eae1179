"""What windows have in common: the rows of partitions that change, and their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lockstep.sql.circuit import Operator, TraceKind
from lockstep.sql.plans.nodes import SortKey, Window
from lockstep_engine.deltas import FIRST, STEP, WEIGHT
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

__all__ = ["evaluated", "events_of", "numbers_by", "sorted_rows"]


def events_of(node: Window, delta: Rows, before: Rows | None) -> Rows:
    """The change and, of the partitions in it, what was there before: the input's columns as GROUP BY
    gives them, `_weight`, `_step`. Raises Unlike where rows have no order here."""
    columns, types = node.input.columns, {f.name: f.dataType for f in delta.schema}
    if not all(has_order(types[name]) for name in columns):
        raise Unlike
    events = delta.select([*columns, WEIGHT, STEP]).normalized()
    if before is None:
        return events
    held = before.select([*columns, WEIGHT]).normalized().with_number(STEP, FIRST - 1)
    events = Rows.together([events, held])
    if not node.partition:
        return events
    numbers = numbered([events.table[key] for key in node.partition], len(events))
    is_new = events.table[STEP].to_numpy() >= FIRST
    return events.where(pa.array(np.isin(numbers, numbers[is_new])))


def evaluated(
    operator: Operator, delta: Rows, made: Rows, emitted: Rows | None = None
) -> LocalEvaluation:
    """The trace of first rows is of what is emitted, any other of what comes in, of which `delta` has
    at least what does not cancel by the end; as has `emitted` of what is made."""
    emitted = made if emitted is None else emitted
    appends = {
        trace.table: netted_if_need_be(
            emitted if trace.kind is TraceKind.FIRST else delta, trace.row
        )
        for trace in operator.traces
    }
    return LocalEvaluation(Sifted(made), appends)


class _Key(NamedTuple):
    """What rows are sorted by."""

    name: str
    descending: bool = False
    nulls_first: bool = True


def numbers_by(rows: Rows, order: Sequence[SortKey]) -> list[Integers]:
    """For each key of the order a number for each row, the less the sooner it comes."""
    return [_sorted(rows, key) for key in _keys_of(order)]


def sorted_rows(
    node: Window, rows: Rows, partitions: Integers, order: Sequence[SortKey]
) -> tuple[Integers, NDArray[np.bool_]]:
    """The places of rows in the order of partitions, by number, and, within one, in that of a call and
    then of all columns; and where one differs from the one before it."""
    # Among equals what they are equal in decides nothing.
    sorted_by = {key.expression.references[0] for key in order}
    names = (name for name in node.input.columns if name not in sorted_by.union(node.partition))
    return _in_order_of(rows, partitions, [*_keys_of(order), *map(_Key, names)])


def _keys_of(order: Sequence[SortKey]) -> list[_Key]:
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


def _in_order_of(
    events: Rows, partitions: Integers, keys: Sequence[_Key]
) -> tuple[Integers, NDArray[np.bool_]]:
    """Each key is looked at only of rows that are equal by those before: to rank texts takes longest."""
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
