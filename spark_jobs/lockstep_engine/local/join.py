"""Inner joins of rows that this process has: the terms of `operators.join`, worked out in NumPy.

Values are compared here only where Spark takes just those for equal whose bits are: whole numbers,
texts without a collation, dates and times, decimals of one type. Conditions are left to Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import IntegralType, StructField, StructType

from lockstep.sql.plans.multiway import Hop, routes
from lockstep.sql.plans.nodes import Equality, MultiwayJoin
from lockstep_engine.deltas import STEP, WEIGHT
from lockstep_engine.kernels.groups import Integers
from lockstep_engine.local.linear import MOST_ROWS, Sifted
from lockstep_engine.local.rows import Rows
from lockstep_engine.local.values import are_exact, numbered, together

__all__ = ["joined"]


def joined(
    node: MultiwayJoin, changes: Mapping[int, Rows], before: Mapping[int, Rows]
) -> Sifted | None:
    """The join's delta, by the changes of some inputs and what was there before of those that had rows;
    both with `_weight` and `_step`. None where Spark is to make it."""
    types = {f.name: f for one in (*before.values(), *changes.values()) for f in one.schema}
    if not all(_is_exact(types, one) for one in node.equalities):
        return None
    if any(types[f.name].dataType != f.dataType for one in before.values() for f in one.schema):
        return None
    ways = routes(node, list(changes))
    terms = []
    for place, hops in ways.meetings.items():
        sides = {n: rows.table for n, rows in before.items()}
        sides.update({n: _after(before.get(n), changes[n]) for n in changes if n < place})
        sides[place] = changes[place].table
        if all(hop.input in sides for hop in (*hops, *ways.onward)):
            term = _met(_plain(sides[hops[0].input]), hops[1:], sides)
            if term is None:
                return None
            terms.append(term.select(sorted(term.column_names)))
    if not terms:
        return None
    sides = {n: rows.table for n, rows in before.items()}
    found = _met(pa.concat_tables(terms), ways.onward, sides)
    if found is None:
        return None
    schema = StructType([types[name] for name in (*node.columns, WEIGHT, STEP)])
    every = [*(hop for way in ways.meetings.values() for hop in way), *ways.onward]
    conditions = dict.fromkeys(one for hop in every for one in hop.conditions)
    return Sifted(Rows.of(found.select(schema.names), schema), tuple(conditions))


def _is_exact(types: Mapping[str, StructField], equality: Equality) -> bool:
    """Whether the two columns are equal in Spark where they are here; of one of them there may be no
    row, and no type."""
    kinds = [types[name].dataType for name in (equality.left, equality.right) if name in types]
    if all(isinstance(kind, IntegralType) for kind in kinds):
        return True
    return are_exact(kinds) and all(kind == kinds[0] for kind in kinds)


def _after(before: Rows | None, change: Rows) -> pa.Table:
    """The rows of an input with its change."""
    if before is None:
        return change.table
    names = change.table.column_names
    return pa.concat_tables([_plain(before.table).select(names), _plain(change.table)])


def _plain(rows: pa.Table) -> pa.Table:
    """Without what is said of nulls, of which tables that are put together may say different things."""
    return pa.table(rows.columns, names=rows.column_names)


def _met(joined: pa.Table, hops: Iterable[Hop], sides: Mapping[int, pa.Table]) -> pa.Table | None:
    """The rows with those that they meet on the way, with the product of the weights and the latest of
    the steps; None where they are too many."""
    for hop in hops:
        more = sides[hop.input]
        pairs = _pairs(joined, more, hop.equalities)
        if pairs is None:
            return None
        left, right = (
            side.take(pa.array(at)) for side, at in zip((joined, more), pairs, strict=True)
        )
        columns = {
            **{name: left[name] for name in left.column_names},
            **{name: right[name] for name in right.column_names},
            WEIGHT: pc.multiply_checked(left[WEIGHT], right[WEIGHT]),
            STEP: pc.max_element_wise(left[STEP], right[STEP]),
        }
        joined = pa.table(columns)
    return joined


def _pairs(
    left: pa.Table, right: pa.Table, equalities: Sequence[Equality]
) -> tuple[Integers, Integers] | None:
    """The places of the rows that are equal, or of all pairs where nothing is equated."""
    if equalities:
        ours, theirs = _numbered(left, right, equalities)
    else:
        ours, theirs = (np.zeros(side.num_rows, np.int64) for side in (left, right))
    order = np.argsort(theirs, kind="stable")
    first, last = (np.searchsorted(theirs[order], ours, side) for side in ("left", "right"))
    counts = last - first
    total = int(counts.sum())
    if total > MOST_ROWS:
        return None
    places = np.repeat(np.arange(len(ours)), counts)
    within = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    return places, order[np.repeat(first, counts) + within]


def _numbered(
    left: pa.Table, right: pa.Table, equalities: Sequence[Equality]
) -> tuple[Integers, Integers]:
    """Numbers that are equal where all keys are, of the rows of both sides."""
    size, keys = left.num_rows, []
    is_null = np.zeros(size + right.num_rows, bool)
    for one in equalities:
        key = together(left[one.left], right[one.right])
        keys.append(key)
        if not one.null_safe:
            is_null |= key.is_null().to_numpy()
    numbers = numbered(keys, len(is_null))
    ours, theirs = numbers[:size], numbers[size:]
    return np.where(is_null[:size], -1, ours), np.where(is_null[size:], -2, theirs)
