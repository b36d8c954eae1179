"""Sets of rows that this process has: netted, and compared from one step to the next."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from lockstep_engine.deltas import FIRST, STEP, UNTIL, WEIGHT
from lockstep_engine.kernels.groups import Integers, in_order, starts
from lockstep_engine.local.rows import Rows
from lockstep_engine.local.values import (
    Unlike,
    are_exact,
    check_sum,
    has_equality,
    has_order,
    numbered,
)

__all__ = ["consolidated", "netted", "periods", "row_changes", "standing"]

_NEVER = 1 << 60
"""A step beyond all."""

_Flags = npt.NDArray[np.bool_]


def netted(rows: Rows, by: Sequence[str]) -> Rows:
    """One row for each that is equal in the columns `by`: these and `_weight`, none 0. Raises Unlike
    where it is not known which values are equal."""
    if not all(has_equality(rows.schema[name].dataType) for name in by):
        raise Unlike
    wanted = rows.select([*by, WEIGHT]).normalized()
    groups = numbered([wanted.table[name] for name in by], len(rows))
    first = np.zeros(groups.max(initial=-1) + 1, np.int64)
    first[groups[::-1]] = np.arange(len(rows))[::-1]
    check_sum(wanted.table[WEIGHT])
    weights = np.zeros(len(first), np.int64)
    np.add.at(weights, groups, wanted.table[WEIGHT].to_numpy())
    kept = np.flatnonzero(weights)
    table = wanted.table.select(list(by)).take(pa.array(first[kept]))
    table = table.append_column(WEIGHT, pa.array(weights[kept]))
    return Rows(table, wanted.schema)


def is_netted(rows: Rows) -> bool:
    """Whether nothing in them can cancel, and netting would change no value: equal ones may as well
    stand apart."""
    kinds = [one.dataType for one in rows.schema]
    least = pc.min(rows.table[WEIGHT]).as_py()
    return are_exact(kinds) and (least is None or least > 0)


def netted_if_need_be(rows: Rows, by: Sequence[str]) -> Rows:
    """Rows in the columns `by`, and `_weight`. Raises Unlike."""
    return rows.select([*by, WEIGHT]) if is_netted(rows) else netted(rows, by)


def consolidated(rows: Rows, columns: Sequence[str]) -> Rows:
    """One row for each row and step, as `deltas.consolidate` has it."""
    return netted(rows, [*columns, STEP]).select([*columns, WEIGHT, STEP])


def periods(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """What each row's changes come to, for as long as it stays so, as `deltas.periods` has it:
    `columns`, `_weight`, none 0, from `_step` on until before `_until`, at the last beyond all steps.

    Rows are the same if their bits are: others that Spark takes for equal stand apart, and add up to
    the same.
    """
    numbers = numbered([_bits(rows[name]) for name in columns], len(rows))
    weights, steps = rows[WEIGHT].to_numpy(), rows[STEP].to_numpy()
    order = in_order(numbers, steps)
    begins = np.flatnonzero(starts(numbers[order], steps[order]))
    sums = np.add.reduceat(weights[order], begins) if len(begins) else weights
    at = order[begins][sums != 0]
    is_new = starts(numbers[at])
    totals = np.append(0, np.cumsum(sums[sums != 0]))
    came = np.flatnonzero(is_new)
    counts = totals[1:] - np.repeat(totals[came], np.diff(np.append(came, len(at))))
    until = np.full(len(at), _NEVER)
    until[:-1][~is_new[1:]] = steps[at][1:][~is_new[1:]]
    there = counts != 0
    found = rows.select(list(columns)).take(pa.array(at[there]))
    for name, column in ((WEIGHT, counts), (STEP, steps[at]), (UNTIL, until)):
        found = found.append_column(name, pa.array(column[there]))
    return found


def standing(rows: pa.Table) -> pa.Table:
    """The same of rows of which none is taken back: each stays from its step on."""
    return rows.append_column(UNTIL, pa.array(np.full(len(rows), _NEVER)))


def _bits(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Numbers of floating point as the whole numbers that have their bits."""
    if not pa.types.is_floating(column.type):
        return column
    kind = pa.int64() if column.type.bit_width == 64 else pa.int32()
    return pa.chunked_array([chunk.view(kind) for chunk in column.chunks], kind)


def row_changes(
    states: Rows, names: Sequence[str], keys: Sequence[str], ranks: Integers, is_there: _Flags
) -> Rows:
    """Keys, the columns `names`, `_weight` and `_step`, consolidated, as `operators.row_changes` has it.

    `states` has keys, `_step` and these columns, sorted by key and step; `ranks` is how many rows of
    the same key are before each; `is_there` whether the key has a row then. Raises Unlike where values
    can be equal that differ.
    """
    table = states.table
    before = np.maximum(np.arange(len(states)) - 1, 0)
    was_there = is_there[before] & (ranks > 0)
    differs = is_there != was_there
    if not all(has_order(states.schema[name].dataType) for name in names):
        raise Unlike
    # Where everything is new there is nothing to compare.
    for column in [table[name] for name in names] if was_there.any() else []:
        differs |= is_there & was_there & ~_same(column, column.take(pa.array(before)))
    changed = differs & (table[STEP].to_numpy() >= FIRST)
    gone, come = np.flatnonzero(changed & was_there), np.flatnonzero(changed & is_there)
    parts = [
        _part(table, keys, names, gone, before[gone], -1),
        _part(table, keys, names, come, come, 1),
    ]
    wanted = [*keys, *names, WEIGHT, STEP]
    types = states.with_number(WEIGHT, 1).schema
    return Rows.of(pa.concat_tables(parts), StructType([types[name] for name in wanted]))


def _same(one: pa.ChunkedArray, other: pa.ChunkedArray) -> _Flags:
    """Whether values are equal, null and null, too."""
    equal = pc.fill_null(pc.equal(one, other), False)
    if pa.types.is_floating(one.type):
        equal = pc.or_(equal, pc.fill_null(pc.and_(pc.is_nan(one), pc.is_nan(other)), False))
    both_null = pc.and_(one.is_null(), other.is_null())
    flags: _Flags = pc.or_(equal, both_null).to_numpy()
    return flags


def _part(
    table: pa.Table,
    keys: Sequence[str],
    names: Sequence[str],
    at: Integers,
    values_at: Integers,
    weight: int,
) -> pa.Table:
    """Rows with the keys and steps of some places, which are in order, and the values of others."""
    is_all = len(at) == len(table) and at is values_at

    def taken(name: str, places: Integers) -> pa.ChunkedArray:
        return table[name] if is_all else table[name].take(pa.array(places))

    columns = {name: taken(name, at) for name in keys}
    columns.update({name: taken(name, values_at) for name in names})
    columns[WEIGHT] = pa.chunked_array([np.full(len(at), weight, np.int64)])
    columns[STEP] = taken(STEP, at)
    return pa.table(columns)
