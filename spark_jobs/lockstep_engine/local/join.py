"""Inner joins of rows that this process has: the terms of `operators.join`, worked out in NumPy.

Where inputs take rows back at many steps, a change meets what the others have come to by its step, as
there: rows that are there for a while, from one step of a key's changes to another.

Values are compared here only where Spark takes just those for equal whose bits are: whole numbers,
texts without a collation, dates and times, decimals of one type. Conditions are left to Spark.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from threading import Lock
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import IntegralType, StructField, StructType

from lockstep.memory import memory_bytes
from lockstep.sql.plans.multiway import Hop, routes
from lockstep.sql.plans.nodes import Equality, MultiwayJoin
from lockstep.threads import in_parallel, pieces, processors
from lockstep_engine.deltas import FIRST, STEP, UNTIL, WEIGHT
from lockstep_engine.kernels.groups import Integers, in_order, pairs, spread
from lockstep_engine.local.changes import periods, standing
from lockstep_engine.local.linear import MOST_ROWS, Sifted
from lockstep_engine.local.room import has_room
from lockstep_engine.local.rows import Rows
from lockstep_engine.local.values import has_order, is_key, matched, together

__all__ = ["joined"]

_MOST_BYTES = min(1 << 31, memory_bytes() // 12)
"""Of the rows of a side: a column of texts has no more than the first."""
_ROWS_OF_A_PIECE = 150_000
_MOST_AT_ONCE = 4
"""Each of these has all pairs in memory before it is known that they are too many."""
_MANY_STEPS = 2
"""In one step the pairs of a key's changes are few, of two inputs."""


def joined(
    node: MultiwayJoin, changes: Mapping[int, Rows], before: Mapping[int, Rows]
) -> Sifted | None:
    """The join's delta, by the changes of some inputs and what was there before of those that had rows;
    both with `_weight` and `_step`. None where Spark is to make it."""
    types = {f.name: f for one in (*before.values(), *changes.values()) for f in one.schema}
    if not all(_is_equal_by_bits(types, one) for one in node.equalities):
        return None
    if any(types[f.name].dataType != f.dataType for one in before.values() for f in one.schema):
        return None
    ways = routes(node, list(changes))
    after = {n: _after(before.get(n), change) for n, change in changes.items()}
    taking = _taking_back_often(node, changes)
    if taking:
        after = {
            n: periods(rows, node.inputs[n].columns) if n in taking else standing(rows)
            for n, rows in after.items()
        }
    terms = []
    for place, hops in ways.meetings.items():
        sides = {n: rows.table for n, rows in before.items()}
        sides.update({n: rows for n, rows in after.items() if taking or n < place})
        sides[place] = changes[place].table
        if all(hop.input in sides for hop in (*hops, *ways.onward)):
            term = _met(_plain(sides[place]), hops[1:], sides, place)
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


def _is_equal_by_bits(types: Mapping[str, StructField], equality: Equality) -> bool:
    """Whether the two columns are equal in Spark where they are here; of one of them there may be no
    row, and no type."""
    kinds = [types[name].dataType for name in (equality.left, equality.right) if name in types]
    if all(isinstance(kind, IntegralType) for kind in kinds):
        return True
    return all(map(is_key, kinds)) and all(kind == kinds[0] for kind in kinds)


def _after(before: Rows | None, change: Rows) -> pa.Table:
    """The rows of an input with its change."""
    if before is None:
        return change.table
    names = change.table.column_names
    return pa.concat_tables([_plain(before.table).select(names), _plain(change.table)])


def _plain(rows: pa.Table) -> pa.Table:
    """Without what is said of nulls, of which tables that are put together may say different things."""
    return pa.table(rows.columns, names=rows.column_names)


def _taking_back_often(node: MultiwayJoin, changes: Mapping[int, Rows]) -> Collection[int]:
    """The inputs that take rows back, where there may be many pairs of what has been taken back long
    before, of rows of which it is known when they are the same; else none."""
    columns = [(rows, name) for n, rows in changes.items() for name in node.inputs[n].columns]
    if not all(has_order(rows.schema[name].dataType) for rows, name in columns):
        return ()
    taking = [n for n, rows in changes.items() if (pc.min(rows.table[WEIGHT]).as_py() or 0) < 0]
    if len(taking) < 2:
        return ()
    steps = np.concatenate([changes[n].table[STEP].to_numpy() for n in taking])
    is_often = len(taking) > 2 or len(np.unique(steps)) >= _MANY_STEPS
    return taking if is_often else ()


def _met(
    joined: pa.Table, hops: Iterable[Hop], sides: Mapping[int, pa.Table], place: int = 0
) -> pa.Table | None:
    """The rows with those that they meet on the way, with the product of the weights and the latest of
    the steps; None where they are too many. What is there for a while is met by the change of the
    input `place` if it is there then: of an input before it with what comes in that step, of one after
    it without."""
    for hop in hops:
        found = _met_at(joined, sides[hop.input], hop, is_before=hop.input < place)
        if found is None:
            return None
        joined = found
    return joined


def _met_at(joined: pa.Table, more: pa.Table, hop: Hop, *, is_before: bool) -> pa.Table | None:
    """One hop of `_met`. The side that has more is taken piece by piece, where the other one is small
    beside a piece: pieces are worked on at the same time, and what is made of one is still in the cache
    for what is made of that."""
    is_ours = len(joined) >= len(more)
    most, least = (joined, more) if is_ours else (more, joined)
    room = _Room(_most_pairs(len(joined), len(more)))

    def met(piece: slice) -> pa.Table | None:
        sides = (most[piece], least) if is_ours else (least, most[piece])
        return _met_by(*sides, hop, room, is_before=is_before)

    rows = max(_ROWS_OF_A_PIECE, 2 * len(least))
    at_once = min(processors(), _MOST_AT_ONCE)
    parts = in_parallel(met, pieces(len(most), rows) or [slice(None)], at_once)
    made = [part for part in parts if part is not None]
    return pa.concat_tables(made) if len(made) == len(parts) else None


def _met_by(
    joined: pa.Table, more: pa.Table, hop: Hop, room: _Room, *, is_before: bool
) -> pa.Table | None:
    ours, theirs = _keys(joined, more, hop.equalities)
    if UNTIL in more.column_names:
        there = more[STEP].to_numpy(), more[UNTIL].to_numpy()
        at = joined[STEP].to_numpy()
        found = _pairs_then(ours, at, theirs, there, is_before, room.pairs)
        more = more.drop_columns([UNTIL])
    else:
        found = _pairs(ours, theirs, room.pairs)
    if found is None or not room.has(joined, more, len(found[0])):
        return None
    left, right = map(_taken, (joined, more), found)
    columns = {
        **{name: left[name] for name in left.column_names},
        **{name: right[name] for name in right.column_names},
        WEIGHT: pc.multiply_checked(left[WEIGHT], right[WEIGHT]),
        STEP: pc.max_element_wise(left[STEP], right[STEP]),
    }
    return pa.table(columns)


class _Room:
    """For how many pairs there is room, of all pieces of a join, and for how many bytes of each side."""

    def __init__(self, pairs: int) -> None:
        self.pairs = pairs
        self._left = self._right = _MOST_BYTES
        self._taking = Lock()

    def has(self, left: pa.Table, right: pa.Table, pairs: int) -> bool:
        """Whether there is some for so many pairs of these rows; it is taken."""
        ours, theirs = (one.nbytes * pairs // max(1, len(one)) for one in (left, right))
        with self._taking:
            self.pairs -= pairs
            self._left -= ours
            self._right -= theirs
            is_there = min(self.pairs, self._left, self._right) >= 0
        return is_there and (not pairs or has_room(ours + theirs))


def _pairs(ours: Integers, theirs: Integers, most: int) -> tuple[Integers, Integers] | None:
    """The places of those that are equal, in the order of the side that has more, as it is the other
    one that may have to be sorted. None where they are more than `most`."""
    if len(theirs) <= len(ours):
        return pairs(ours, theirs, most)
    found = pairs(theirs, ours, most)
    return None if found is None else (found[1], found[0])


def _taken(rows: pa.Table, places: Integers) -> pa.Table:
    """The rows at these places; often all of a side, as they are."""
    if len(places) == len(rows) and np.array_equal(places, np.arange(len(rows))):
        return rows
    return rows.take(pa.array(places))


def _most_pairs(ours: int, theirs: int) -> int:
    """More are not made here of so many rows: of many that one row meets which changes at each of a few
    steps, some times as many."""
    return max(MOST_ROWS, 8 * (ours + theirs))


def _pairs_then(
    ours: Integers,
    at: Integers,
    theirs: Integers,
    there: tuple[Integers, Integers],
    with_own_step: bool,
    most: int,
) -> tuple[Integers, Integers] | None:
    """The places of the rows whose keys are equal, where theirs, from and until before the steps
    `there`, are there `at` ours; None where they are more than `most`."""
    span = int(at.max(initial=FIRST)) + 3
    moments = ours * span + at + 1
    order = in_order(moments)
    side: Literal["left", "right"] = "left" if with_own_step else "right"
    first, last = (
        np.searchsorted(moments[order], theirs * span + np.minimum(step + 1, span - 1), side)
        for step in there
    )
    if int((last - first).sum()) > most:
        return None
    places, within = spread(first, last)
    return order[within], places


def _keys(
    left: pa.Table, right: pa.Table, equalities: Sequence[Equality]
) -> tuple[Integers, Integers]:
    """Numbers of the rows of both sides, the same where all keys are equal, or nothing is equated."""
    if equalities:
        return _numbered(left, right, equalities)
    ours, theirs = (np.zeros(side.num_rows, np.int64) for side in (left, right))
    return ours, theirs


def _numbered(
    left: pa.Table, right: pa.Table, equalities: Sequence[Equality]
) -> tuple[Integers, Integers]:
    """Numbers that are equal where all keys are, of the rows of both sides, not many more than these."""
    size, keys = left.num_rows, []
    is_null = np.zeros(size + right.num_rows, bool)
    for one in equalities:
        key = together(left[one.left], right[one.right])
        keys.append(key)
        if not one.null_safe and key.null_count:
            is_null |= key.is_null().to_numpy()
    numbers = matched(keys, len(is_null))
    if is_null.any():
        # A null is equal to nothing: those of one side are one number, those of the other another.
        ours, theirs = (numbers.max() + more for more in (1, 2))
        numbers = np.where(is_null, np.where(np.arange(len(numbers)) < size, ours, theirs), numbers)
    return numbers[:size], numbers[size:]
