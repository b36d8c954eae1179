"""Sessions of rows that stay, over rows that this process has, as `operators.sessions` has them.

Pieces are put together at each position, that is a key and a step at which it changes: those of the
steps up to it, and the sessions that were there beside them. What differs from one position of a key to
the next is the change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType, LongType, StructField, StructType

from lockstep.sql.circuit import Operator
from lockstep.sql.plans.nodes import SessionGroups
from lockstep.sql.reading.intervals import interval_microseconds
from lockstep_engine.deltas import FIRST, STEP, WEIGHT
from lockstep_engine.kernels.groups import Integers, in_order, spread, starts
from lockstep_engine.local.accumulators import merged, value
from lockstep_engine.local.aggregate import AT, MADE, Groups, check_types, increments_of, type_of
from lockstep_engine.local.changes import consolidated
from lockstep_engine.local.evaluated import LocalEvaluation
from lockstep_engine.local.functions import FAR, near_microseconds
from lockstep_engine.local.linear import Sifted
from lockstep_engine.local.rows import Rows
from lockstep_engine.local.values import Unlike
from lockstep_engine.operators import accumulators as sql
from lockstep_engine.operators.sessions import SESSION_BOUNDS

__all__ = ["are_sessions", "sessions"]

_MOST_LAID_OUT = 2_000_000
"""Pieces, at all positions together: some seconds' work."""


def are_sessions(operator: Operator) -> bool:
    """Whether it can be worked out here, as far as that can be told without its input."""
    node = operator.node
    return isinstance(node, SessionGroups) and all(c.function in MADE for c in node.aggregates)


def sessions(operator: Operator, delta: Rows, traces: Mapping[str, Rows]) -> LocalEvaluation:
    """The change of the groups, consolidated, and of the sessions for the trace. `traces` has, by table,
    at least the sessions of the keys in the delta, where there are any. Raises Unlike where Spark is to
    do it."""
    node, [trace] = operator.node, operator.traces
    assert isinstance(node, SessionGroups), "asked for before"
    types = {field.name: field.dataType for field in delta.schema}
    delta = delta.having(node.time)
    check_types(node, node.by, (), types)
    if any(sql.is_exact(types[name]) for name in sql.summed(node)):
        raise Unlike
    accumulators = sql.accumulators_of(node, (), types)
    making = _Making(node, types, accumulators, Groups.of(node.by, delta, traces), _gap(node))
    new = making.new_pieces(delta)
    held = new.take(np.empty(0, np.int64))
    if trace.table in traces:
        held = _beside(making.held(trace.table, traces[trace.table], new), new, making.gap)
    changes = _netted(making.changes(held, new))
    append = _netted(changes, with_steps=False)
    return LocalEvaluation(Sifted(making.shown(changes)), {trace.table: making.kept(append)})


def _gap(node: SessionGroups) -> int:
    try:
        gap = interval_microseconds(node.gap)
    except ValueError as error:
        raise Unlike from error  # a month has no fixed length
    if gap > FAR:
        raise Unlike
    return gap


class _Pieces(NamedTuple):
    """Rows of groups put together, as of steps: bounds in microseconds, accumulators, and weights."""

    groups: Integers
    steps: Integers
    first: Integers
    last: Integers
    totals: pa.Table
    weights: Integers

    def take(self, places: Integers) -> _Pieces:
        """Some of them, in this order."""
        totals = self.totals.take(pa.array(places))
        groups, steps, first, last, weights = (
            one[places] for one in (self.groups, self.steps, self.first, self.last, self.weights)
        )
        return _Pieces(groups, steps, first, last, totals, weights)

    def changed(self, weight: int, steps: Integers) -> _Pieces:
        """The same, coming or going at these steps."""
        return self._replace(steps=steps, weights=np.full(len(self.groups), weight, np.int64))

    @staticmethod
    def together(*parts: _Pieces) -> _Pieces:
        """All of them."""
        return _Pieces(
            np.concatenate([one.groups for one in parts]),
            np.concatenate([one.steps for one in parts]),
            np.concatenate([one.first for one in parts]),
            np.concatenate([one.last for one in parts]),
            pa.concat_tables([one.totals for one in parts]),
            np.concatenate([one.weights for one in parts]),
        )


def _netted(pieces: _Pieces, *, with_steps: bool = True) -> _Pieces:
    """One for each that is the same, at a step or at all, with their weights added up, none 0. One is
    known by its group, its bounds and the number of its rows."""
    rows = pieces.totals[sql.ROWS].to_numpy()
    steps = [pieces.steps] if with_steps else []
    columns = [pieces.groups, *steps, pieces.first, pieces.last, rows]
    order = in_order(*columns)
    begins = np.flatnonzero(starts(*(one[order] for one in columns)))
    sums = np.add.reduceat(pieces.weights[order], begins) if len(begins) else pieces.weights
    found = pieces.take(order[begins][sums != 0])
    return found._replace(weights=sums[sums != 0])


def _beside(held: _Pieces, new: _Pieces, gap: int) -> _Pieces:
    """Those that new pieces of their group can touch: no more than the gap before the first of them, or
    behind the last."""
    size = int(max(held.groups.max(initial=-1), new.groups.max(initial=-1))) + 1
    begin, end = np.full(size, np.iinfo(np.int64).max), np.full(size, np.iinfo(np.int64).min)
    np.minimum.at(begin, new.groups, new.first)
    np.maximum.at(end, new.groups, new.last)
    is_near = held.last >= begin[held.groups] - gap
    is_near &= held.first - gap <= end[held.groups]
    return held.take(np.flatnonzero(is_near))


class _Making(NamedTuple):
    """What pieces are made by."""

    node: SessionGroups
    types: Mapping[str, DataType]
    accumulators: Sequence[sql.Accumulator]
    groups: Groups
    gap: int

    def new_pieces(self, delta: Rows) -> _Pieces:
        """The rows of each step put together."""
        time = delta.table[self.node.time]
        at = self._since(time)
        made = increments_of(self.node.aggregates, self.accumulators, delta, self.groups)
        by, first, last, totals = self.put_together(
            made[AT].to_numpy(), at, at, made.select([one.name for one in self.accumulators])
        )
        span = self.groups.span
        return _Pieces(by // span, by % span - 1, first, last, totals, np.ones(len(by), np.int64))

    def put_together(
        self, by: Integers, first: Integers, last: Integers, totals: pa.Table
    ) -> tuple[Integers, Integers, Integers, pa.Table]:
        """Pieces that are within the gap of one another as one, in the order of `by` and bounds."""
        order = in_order(by, first)
        by, first, last = by[order], first[order], last[order]
        is_new = starts(by)
        # How far a group's pieces reach, as numbers of which those of a later group are greater.
        known = np.unique(last)
        of_group = (np.cumsum(is_new) - 1) * max(1, len(known))
        reached = np.maximum.accumulate(np.searchsorted(known, last) + of_group) - of_group
        begins = is_new.copy()
        begins[1:] |= known[reached[:-1]] < first[1:] - self.gap
        at = np.flatnonzero(begins)
        numbers = np.cumsum(begins) - 1
        rows = totals.take(pa.array(order)).append_column(AT, pa.array(numbers))
        found = merged(rows, AT, self.accumulators)
        found = found.select([one.name for one in self.accumulators])
        ends = np.append(at, len(by))[1:] - 1
        return by[at], first[at], known[reached[ends]], found

    def held(self, table: str, trace: Rows, like: _Pieces) -> _Pieces:
        """The sessions of a trace whose keys are among those that change."""
        touched = self.groups.touched(table)
        rows = trace.table.take(pa.array(touched))
        first, last = (self._since(rows[name]) for name in SESSION_BOUNDS)
        totals = pa.table({f.name: rows[f.name].cast(f.type) for f in like.totals.schema})
        steps = np.full(len(touched), FIRST - 1)
        of, weights = self.groups.of_traces[table][touched], rows[WEIGHT].to_numpy()
        return _netted(_Pieces(of, steps, first, last, totals, weights))

    def changes(self, held: _Pieces, new: _Pieces) -> _Pieces:
        """Sessions that come at a position and, at the next one of their group, go: where they stay,
        they come again."""
        pieces = _Pieces.together(held, new)
        pieces = pieces.take(in_order(pieces.groups, pieces.steps))
        begins = np.flatnonzero(starts(pieces.groups, pieces.steps))
        ends = np.append(begins[1:], len(pieces.groups))
        is_position = pieces.steps[begins] >= FIRST
        at = begins[is_position]
        groups, steps = pieces.groups[at], pieces.steps[at]
        first = np.searchsorted(pieces.groups, groups)
        if int((ends[is_position] - first).sum()) > _MOST_LAID_OUT:
            raise Unlike
        position, laid_out = spread(first, ends[is_position])
        position, begin, end, totals = self.put_together(
            position,
            pieces.first[laid_out],
            pieces.last[laid_out],
            pieces.totals.take(pa.array(laid_out)),
        )
        ones = np.ones(len(position), np.int64)
        come = _Pieces(groups[position], steps[position], begin, end, totals, ones)
        following = np.minimum(position + 1, len(groups) - 1)
        goes = (following > position) & (groups[following] == groups[position])
        gone = come.take(np.flatnonzero(goes)).changed(-1, steps[following[goes]])
        earliest = steps[np.searchsorted(groups, held.groups)] if len(groups) else held.steps
        return _Pieces.together(held.changed(-1, earliest), gone, come)

    def kept(self, pieces: _Pieces) -> Rows:
        """Sessions as the trace has them."""
        columns: dict[str, object] = dict(self.groups.key_columns(pieces.groups))
        fields = self.groups.key_fields()
        for name, bound in zip(SESSION_BOUNDS, (pieces.first, pieces.last), strict=True):
            columns[name] = self._times(bound)
            fields.append(StructField(name, self.types[self.node.time]))
        made = Rows.of(pieces.totals)
        (rows, *others), (counts, *totals) = made.schema.fields, made.table.columns
        columns.update({rows.name: counts, WEIGHT: pieces.weights})
        columns.update(zip((one.name for one in others), totals, strict=True))
        schema = StructType([*fields, rows, StructField(WEIGHT, LongType()), *others])
        return Rows.of(pa.table(columns), schema)

    def shown(self, pieces: _Pieces) -> Rows:
        """The groups' rows."""
        node, kind = self.node, self.types[self.node.time]
        keys = self.groups.key_columns(pieces.groups)
        totals = pieces.totals
        for name, key in keys.items():
            totals = totals.append_column(name, key)
        bounds = [self._times(pieces.first), self._times(pieces.last + self.gap)]
        window = StructType([StructField(name, kind) for name in ("start", "end")])
        fields = {field.name: field for field in self.groups.key_fields()}
        fields[node.window] = StructField(node.window, window, nullable=False)
        columns: dict[str, object] = dict(keys)
        columns[node.window] = pa.StructArray.from_arrays(bounds, names=window.names)
        for call in node.aggregates:
            columns[call.name] = found = value(call, node, self.types, totals)
            if found is None:
                raise Unlike
            fields[call.name] = StructField(call.name, type_of(call, self.types))
        columns.update({WEIGHT: pieces.weights, STEP: pieces.steps})
        fields.update({name: StructField(name, LongType()) for name in (WEIGHT, STEP)})
        names = [*node.columns, WEIGHT, STEP]
        schema = StructType([fields[name] for name in names])
        rows = Rows.of(pa.table({name: columns[name] for name in names}), schema)
        if any(call.argument is None for call in node.aggregates):
            return rows
        # Nothing shows by itself that there are more rows.
        return consolidated(rows, node.columns)

    def _since(self, times: pa.ChunkedArray) -> Integers:
        return near_microseconds(times, self.types[self.node.time])

    def _times(self, since: Integers) -> pa.Array:
        return pa.array(since).cast(to_arrow_type(self.types[self.node.time]))
