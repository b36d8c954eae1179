"""Window functions over rows that this process has, as `operators.window` has them.

Each partition that changes is laid out as it is after each of its steps; what differs from one to the
next is the change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    DataType,
    DecimalType,
    DoubleType,
    IntegerType,
    IntegralType,
    LongType,
    StructField,
    StructType,
)

from lockstep.sql.circuit import Operator
from lockstep.sql.plans.frames import AGGREGATES, FramedCall, framed_call
from lockstep.sql.plans.nodes import SortKey, Window
from lockstep_engine.deltas import FIRST, STEP, WEIGHT
from lockstep_engine.kernels import frames
from lockstep_engine.kernels.frames import LaidOut, Placed
from lockstep_engine.kernels.groups import Integers, in_order, starts
from lockstep_engine.local.accumulators import average_type, decimal_average
from lockstep_engine.local.evaluated import LocalEvaluation
from lockstep_engine.local.ordered import evaluated, events_of, sorted_rows
from lockstep_engine.local.rows import Rows
from lockstep_engine.local.values import Unlike, numbered, ranked, unscaled, with_point

__all__ = ["framed", "is_framed"]

_MOST_LAID_OUT = 4_000_000
"""Rows, at all positions together: some seconds' work."""

_MOST_BYTES = 512 << 20
"""Of what would be laid out, were it written down: what comes of it may be twice as much."""

_MOST_DIGITS = 18
"""Of decimals whose digits are a whole number of 63 bits."""

_GREATEST = (1 << 63) - 1
_EXACT = 1 << 53
"""Whole numbers up to it are doubles, and so are their sums, in whatever order they are added up."""


def is_framed(operator: Operator) -> bool:
    """Whether it can be worked out here, as far as that can be told without its input."""
    node = operator.node
    if not isinstance(node, Window):
        return False
    below = frozenset(node.input.columns)
    return all(framed_call(call) and below.issuperset(call.references) for call in node.calls)


def framed(operator: Operator, delta: Rows, before: Rows | None = None) -> LocalEvaluation:
    """`before` are at least the rows of the partitions in the delta, None where there were none. Raises
    Unlike where Spark is to do it."""
    node = operator.node
    assert isinstance(node, Window), "asked for before"
    calls = _calls(node)
    types = {name: _type_of(call, delta.schema) for name, call in calls.items()}
    try:
        making = _Making.of(node, events_of(node, delta, before))
        placed = {order: making.placed(order) for order in {call.order for call in node.calls}}
        values: Mapping[str, pa.ChunkedArray] = {
            one.name: making.value(calls[one.name], placed[one.order]).cast(
                to_arrow_type(types[one.name])
            )
            for one in node.calls
        }
        if node.first is not None:
            [ranks] = values.values()
            making, values = making.those(ranks.to_numpy() <= node.first, values)
        fields = [StructField(name, kind) for name, kind in types.items()]
        return evaluated(operator, delta, making.changes(values, fields))
    except (pa.ArrowInvalid, pa.ArrowCapacityError) as error:
        # A column has no more than 2 GB of texts.
        raise Unlike from error


def _calls(node: Window) -> dict[str, FramedCall]:
    found = {call.name: framed_call(call) for call in node.calls}
    assert all(found.values()), "asked for before"
    return {name: call for name, call in found.items() if call is not None}


def _type_of(call: FramedCall, schema: StructType) -> DataType:
    """Of what a call gives. Raises Unlike where it is made otherwise here."""
    match call.function:
        case "row_number" | "rank" | "dense_rank":
            return IntegerType()
        case "percent_rank" | "cume_dist":
            return DoubleType()
        case "count":
            return LongType()
    assert call.column is not None, "all others read one"
    kind = schema[call.column].dataType
    if call.function not in ("sum", "avg"):
        return kind
    if isinstance(kind, DecimalType) and kind.precision <= _MOST_DIGITS:
        is_sum = call.function == "sum"
        return DecimalType(kind.precision + 10, kind.scale) if is_sum else average_type(kind)
    if isinstance(kind, IntegralType):
        return LongType() if call.function == "sum" else DoubleType()
    # Sums of floating point depend on the order in which Spark adds up.
    raise Unlike


class _Placed(NamedTuple):
    """The rows that are laid out in one order of theirs: `order` are their places in another one that
    all calls have, `rows` their numbers."""

    order: Integers
    rows: Integers
    at: Placed


class _Making(NamedTuple):
    """Distinct rows, their partitions, by number, and their copies at positions."""

    node: Window
    rows: Rows
    partitions: Integers
    laid_out: LaidOut

    @staticmethod
    def of(node: Window, events: Rows) -> _Making:
        """Of the events of the partitions that change."""
        partitions = numbered([events.table[name] for name in node.partition], len(events))
        order, is_new = sorted_rows(node, events, partitions, node.calls[0].order)
        numbers, row_of = np.cumsum(is_new) - 1, order[is_new]
        weights, steps = (events.table[name].to_numpy()[order] for name in (WEIGHT, STEP))
        of_row = partitions[row_of]
        found = frames.laid_out(numbers, weights, steps, of_row, _MOST_LAID_OUT)
        if found is None:
            raise Unlike
        rows = events.select(node.input.columns)
        if rows.table.nbytes * len(found.rows) > _MOST_BYTES * max(1, len(events)):
            raise Unlike
        table = rows.table.take(pa.array(row_of))
        return _Making(node, Rows(table, rows.schema), of_row, found)

    def placed(self, order: Sequence[SortKey]) -> _Placed:
        """Each position's rows in an order, ties in that of all columns; of copies the same one comes
        first in each."""
        places = np.arange(len(self.rows))
        if order != self.node.calls[0].order:
            # In that of the first call rows are numbered.
            by = sorted_rows(self.node, self.rows, self.partitions, order)[0]
            places[by] = np.arange(len(places))
        positions = self.laid_out.positions
        by = in_order(positions, places[self.laid_out.rows])
        rows, groups = self.laid_out.rows[by], positions[by]
        keys = [self.rows.table[key.expression.references[0]] for key in order]
        equal = numbered(keys, len(self.rows))[rows]
        return _Placed(by, rows, frames.placed(groups, starts(groups, equal)))

    def value(self, call: FramedCall, placed: _Placed) -> pa.ChunkedArray:
        """The values of a call, in the order that all calls have."""
        if call.column is None and call.function != "count":
            found = _rank(call.function, placed.at)
        else:
            found = self._of_frames(call, placed)
        back = np.empty(len(placed.order), np.int64)
        back[placed.order] = np.arange(len(back))
        return pa.chunked_array([found]).take(pa.array(back))

    def _of_frames(self, call: FramedCall, placed: _Placed) -> pa.Array:
        frame = call.frame
        begin, end = frames.frames(placed.at, frame.first, frame.last, by_peers=frame.by_peers)
        if call.column is None:
            return pa.array(end - begin)
        column = self.rows.table[call.column]
        if call.function in AGGREGATES:
            return _aggregate(call.function, column, placed.rows, begin, end)
        at = begin if call.function == "first_value" else end - 1
        return _at(column, placed.rows, np.where(begin < end, at, -1))

    def those(
        self, are_wanted: NDArray[np.bool_], values: Mapping[str, pa.ChunkedArray]
    ) -> tuple[_Making, Mapping[str, pa.ChunkedArray]]:
        """Some of the copies, and what goes with them."""
        out = self.laid_out
        kept = out._replace(rows=out.rows[are_wanted], positions=out.positions[are_wanted])
        mask = pa.array(are_wanted)
        return self._replace(laid_out=kept), {n: one.filter(mask) for n, one in values.items()}

    def changes(self, values: Mapping[str, pa.ChunkedArray], fields: Sequence[StructField]) -> Rows:
        """What is given at each position and taken back at the next, consolidated: what stays is
        both."""
        out = self.laid_out
        steps, until = out.steps[out.positions], out.until[out.positions]
        given, taken = np.flatnonzero(steps >= FIRST), np.flatnonzero(until >= FIRST)
        at = np.concatenate([given, taken])
        weights = np.repeat(np.array([1, -1]), [len(given), len(taken)])
        steps = np.concatenate([steps[given], until[taken]])
        same = numbered([*values.values()], len(out.rows))
        columns = out.rows[at], steps, same[at]
        order = in_order(*columns)
        begins = np.flatnonzero(starts(*(one[order] for one in columns)))
        sums = np.add.reduceat(weights[order], begins) if len(begins) else weights
        places = order[begins][sums != 0]
        copies = pa.array(at[places])
        table = self.rows.table.take(pa.array(out.rows[at[places]]))
        for name, column in values.items():
            table = table.append_column(name, column.take(copies))
        table = table.append_column(WEIGHT, pa.array(sums[sums != 0]))
        table = table.append_column(STEP, pa.array(steps[places]))
        numbers = [StructField(name, LongType(), False) for name in (WEIGHT, STEP)]
        return Rows.of(table, StructType([*self.rows.schema.fields, *fields, *numbers]))


def _rank(function: str, rows: Placed) -> pa.Array:
    before, size = rows.first_peer - rows.begin, rows.end - rows.begin
    match function:
        case "row_number":
            return pa.array(np.arange(len(before)) - rows.begin + 1)
        case "rank":
            return pa.array(before + 1)
        case "dense_rank":
            return pa.array(rows.peers + 1)
        case "percent_rank":
            return pa.array(np.where(size > 1, before / np.maximum(size - 1, 1), 0.0))
        case _:
            return pa.array((rows.last_peer - rows.begin) / size)


def _at(column: pa.ChunkedArray, rows: Integers, places: Integers) -> pa.Array:
    """The values of laid out rows at some places, null at -1."""
    is_none = places < 0
    found = column.take(
        pa.array(rows[np.maximum(places, 0)] if len(rows) else places, mask=is_none)
    )
    return found.combine_chunks()


def _aggregate(
    function: str, column: pa.ChunkedArray, rows: Integers, begin: Integers, end: Integers
) -> pa.Array:
    """Of the values of each frame that are not null."""
    if function in ("min", "max"):
        ranks = ranked(column)
        best = ranks if function == "max" else np.where(ranks < 0, -1, len(ranks) - ranks)
        # One more, so that null is 0: it is taken where there is nothing else.
        return _at(column, rows, frames.greatest(best[rows] + 1, begin, end))
    counts = frames.sums(column.is_valid().to_numpy().astype(np.int64)[rows], begin, end)
    if function == "count":
        return pa.array(counts)
    numbers = unscaled(column)
    longest = int((end - begin).max(initial=0))
    most = max(abs(int(numbers.min(initial=0))), abs(int(numbers.max(initial=0)))) * longest
    is_decimal = pa.types.is_decimal(column.type)
    if most > (_EXACT if function == "avg" and not is_decimal else _GREATEST):
        raise Unlike
    sums = frames.sums(numbers[rows], begin, end)
    return _made_of(function, column.type, sums, counts)


def _made_of(function: str, kind: pa.DataType, sums: Integers, counts: Integers) -> pa.Array:
    """Null of no value."""
    is_none, size = counts == 0, np.maximum(counts, 1)
    if not pa.types.is_decimal(kind):
        return pa.array(sums if function == "sum" else sums / size, mask=is_none)
    found = with_point(sums, pa.decimal128(kind.precision + 10, kind.scale))
    if function == "avg":
        decimal = DecimalType(kind.precision, kind.scale)
        averages = decimal_average(pa.chunked_array([found]), size, decimal)
        if averages is None:
            raise Unlike
        found = averages
    return pc.if_else(pa.array(~is_none), found, pa.scalar(None, found.type))
