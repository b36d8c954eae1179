"""GROUP BY over rows that this process has, as `operators.aggregate` has it.

Increments by group and step, merged; what was there before as the increment of the step before; totals
after each step; and where a group's row has changed, the old one goes and the new one comes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DataType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from lockstep.sql.circuit import Operator
from lockstep.sql.plans.nodes import Aggregate, AggregateCall, AggregateFunction
from lockstep_engine.deltas import FIRST, STEP, WEIGHT
from lockstep_engine.kernels.extremes import running_extremes
from lockstep_engine.kernels.groups import Integers, places_in, ranks, starts
from lockstep_engine.local.accumulators import average_type, lifted, merged, running, value
from lockstep_engine.local.changes import netted, row_changes
from lockstep_engine.local.evaluated import LocalEvaluation
from lockstep_engine.local.exact_sums import Bins, binned
from lockstep_engine.local.linear import Sifted
from lockstep_engine.local.rows import Rows
from lockstep_engine.local.values import Unlike, has_order, is_key, numbered, ranked, together
from lockstep_engine.operators import accumulators as sql
from lockstep_engine.operators.aggregate import (
    exact_sums_of,
    extremes_of,
    value_traces,
)
from lockstep_engine.operators.exact_sums import BIN, PARTS, PLACE, ExactSum
from lockstep_engine.operators.extremes import Extremes
from lockstep_engine.told import fetched

__all__ = [
    "AT",
    "MADE",
    "Groups",
    "aggregated",
    "check_types",
    "groups_held",
    "increments_of",
    "is_aggregated",
    "type_of",
]

_GROUP, AT, _PLACE = "_group", "_at", "_place"

MADE = (
    AggregateFunction.COUNT,
    AggregateFunction.SUM,
    AggregateFunction.AVG,
    AggregateFunction.MIN,
    AggregateFunction.MAX,
)


def is_aggregated(operator: Operator) -> bool:
    """Whether it can be worked out here, as far as that can be told without its input."""
    node = operator.node
    return (
        isinstance(node, Aggregate)
        and all(call.function in MADE for call in node.aggregates)
        and all(trace is None for trace in operator.rows)
    )


def aggregated(
    spark: SparkSession, operator: Operator, delta: Rows, traces: Mapping[str, Rows]
) -> LocalEvaluation:
    """`traces` has, by table, at least the rows of the groups in the delta; it is without those that are
    new. Raises Unlike where Spark is to do it."""
    node = operator.node
    assert isinstance(node, Aggregate), "asked for before"
    types = {field.name: field.dataType for field in delta.schema}
    by_value = value_traces(operator)
    check_types(node, node.keys, by_value, types)
    accumulators = sql.accumulators_of(node, by_value.keys(), types)
    groups = Groups.of(node.keys, delta, traces)
    table = operator.accumulators.table
    increments = increments_of(node.aggregates, accumulators, delta, groups)
    if not node.keys and (table not in traces or not len(traces[table])):
        increments = _with_nothing(increments, groups)
    # What is made of them is made of these, which are often far fewer than rows.
    increments = _per_step(increments, accumulators, groups)
    bins = {
        one: binned(delta.table[one.argument], groups.of_delta, *_weights_and_steps(delta))
        for one in exact_sums_of(node, types)
        if isinstance(one, ExactSum)
    }
    added = _appended(_per_group(increments, accumulators), groups, accumulators)
    appends = {table: _with_bins(added, bins, groups)}
    for argument, spec in by_value.items():
        there = delta.having(argument)
        appends[spec.table] = netted(there, tuple(dict.fromkeys((*node.keys, argument))))
    seeds = None if table not in traces else _seeds(table, traces[table], groups, increments)
    totals = _totals(accumulators, increments, seeds, groups)
    for one in extremes_of(node, by_value, types):
        totals = _with_extremes(totals, one, groups, traces.get(one.table))
    for exact, own in bins.items():
        held = None if table not in traces else _held_bins(exact, table, traces[table], groups)
        totals = _with_sums(totals, exact, own if held is None else own.and_those(held))
    states = _valued(spark, node, types, totals, groups)
    is_there = np.ones(len(states), bool)
    if node.keys:
        is_there = pc.fill_null(pc.greater(totals[sql.ROWS], 0), False).to_numpy()
    names = [call.name for call in node.aggregates]
    changes = row_changes(states, names, node.keys, ranks(totals[_GROUP].to_numpy()), is_there)
    return LocalEvaluation(Sifted(changes), appends)


def groups_held(spark: SparkSession, operator: Operator, trace: Rows) -> Rows:
    """The rows of an aggregate whose groups have these rows in its trace of accumulators, and `_weight`;
    of an aggregate of which `summed` says what it adds up. Raises Unlike where Spark is to do it."""
    node = operator.node
    assert isinstance(node, Aggregate), "of which the trace is"
    types = {**{f.name: f.dataType for f in trace.schema}, **sql.declared_types(operator)}
    check_types(node, node.keys, (), types)
    accumulators = sql.accumulators_of(node, (), types)
    held = trace.with_number(STEP, FIRST - 1)
    groups = Groups.of(node.keys, held, {})
    names = [one.name for one in accumulators]
    rows = held.table.select(names).append_column(_GROUP, pa.chunked_array([groups.of_delta]))
    totals = merged(rows, _GROUP, accumulators)
    of = totals[_GROUP].to_numpy()
    for name, column in groups.key_columns(of).items():
        totals = totals.append_column(name, column)
    totals = totals.append_column(STEP, pa.chunked_array([np.full(len(of), FIRST - 1)]))
    if node.keys:
        totals = totals.filter(pc.fill_null(pc.greater(totals[sql.ROWS], 0), False))
    found = _valued(spark, node, types, totals, groups)
    columns = [*node.keys, *(call.name for call in node.aggregates)]
    return found.select(columns).with_number(WEIGHT, 1)


def check_types(
    node: sql.Groups,
    keys: Collection[str],
    by_value: Collection[str],
    types: Mapping[str, DataType],
) -> None:
    """Raises Unlike where a type is one that is not compared or added up here as in Spark."""
    if any(isinstance(types[name], StringType) for name in sql.summed(node)):
        raise Unlike
    merged_ends = (
        types[call.argument]
        for call in node.aggregates
        if call.argument is not None and call.function.is_extreme and call.argument not in by_value
    )
    if not all(is_key(types[key]) for key in keys) or not all(map(has_order, merged_ends)):
        raise Unlike


@dataclass(frozen=True)
class Groups:
    """The groups of the delta and of what was there before, by number. `first` is a row of the delta for
    each group that it has, by number, else -1."""

    delta: Rows
    keys: tuple[str, ...]
    of_delta: Integers
    of_traces: Mapping[str, Integers]
    first: Integers
    span: int
    """A group's number times it, and the step from -1 on, is the number of the two."""

    @staticmethod
    def of(keys: tuple[str, ...], delta: Rows, traces: Mapping[str, Rows]) -> Groups:
        every = [delta, *traces.values()]
        cuts = np.cumsum([len(one) for one in every])
        columns = [together(*(one.table[key] for one in every)) for key in keys]
        numbers = np.split(numbered(columns, int(cuts[-1])), cuts[:-1])
        first = np.full(int(cuts[-1]), -1, np.int64)
        first[numbers[0][::-1]] = np.arange(len(delta))[::-1]
        span = int(delta.table[STEP].to_numpy().max(initial=FIRST)) + 2
        of_traces = dict(zip(traces, numbers[1:], strict=True))
        return Groups(delta, keys, numbers[0], of_traces, first, span)

    def at(self, groups: Integers, steps: Integers) -> Integers:
        """The numbers of groups at steps."""
        return groups * self.span + steps + 1

    def touched(self, table: str) -> Integers:
        """The places of the trace's rows that are of groups in the delta."""
        return np.flatnonzero(self.first[self.of_traces[table]] >= 0)

    @cached_property
    def _size(self) -> int:
        """How many groups the delta has; their numbers come before those of others."""
        return int(np.count_nonzero(self.first >= 0))

    @cached_property
    def _keys(self) -> Mapping[str, pa.ChunkedArray]:
        """The keys of each group of the delta."""
        rows = pa.array(self.first[: self._size])
        return {key: self.delta.table[key].take(rows) for key in self.keys}

    def key_columns(self, groups: Integers) -> Mapping[str, pa.ChunkedArray]:
        """The keys of these groups, which the delta has."""
        if np.array_equal(groups, np.arange(self._size)):
            return self._keys
        rows = pa.array(groups)
        return {key: column.take(rows) for key, column in self._keys.items()}

    def key_fields(self) -> list[StructField]:
        """The types of the keys."""
        return [self.delta.schema[key] for key in self.keys]


def increments_of(
    aggregates: Sequence[AggregateCall],
    accumulators: Sequence[sql.Accumulator],
    delta: Rows,
    groups: Groups,
) -> pa.Table:
    """Each row's group, the number of that at the step, and what it adds to the accumulators."""
    arguments = {str(place): name for name, place in sql.places_of(aggregates).items()}
    weights, steps = delta.table[WEIGHT], delta.table[STEP].to_numpy()
    columns = {_GROUP: groups.of_delta, AT: groups.at(groups.of_delta, steps)}
    for one in accumulators:
        argument = arguments.get(one.name.rpartition("_")[2])
        values = None if argument is None else delta.table[argument]
        columns[one.name] = lifted(one.name, values, weights)
    return pa.table(columns)


def _with_nothing(increments: pa.Table, groups: Groups) -> pa.Table:
    """With an increment of nothing, by which the row of a group of all rows, that has never been told,
    appears at the first step."""
    columns = {name: pa.nulls(1, increments[name].type) for name in increments.column_names}
    zero = np.zeros(1, np.int64)
    nothing = pa.table({**columns, _GROUP: zero, AT: groups.at(zero, zero + FIRST), sql.ROWS: zero})
    return pa.concat_tables([nothing, increments])


def _per_step(
    increments: pa.Table, accumulators: Sequence[sql.Accumulator], groups: Groups
) -> pa.Table:
    """The same, one for each group and step."""
    found = merged(increments, AT, accumulators)
    of = pa.chunked_array([found[AT].to_numpy() // groups.span])
    return pa.table({_GROUP: of, **{name: found[name] for name in increments.column_names[1:]}})


def _per_group(increments: pa.Table, accumulators: Sequence[sql.Accumulator]) -> pa.Table:
    """The same, one for each group, of such as are one for each group and step, in order."""
    is_each = starts(increments[_GROUP].to_numpy()).all()
    return increments if is_each else merged(increments, _GROUP, accumulators)


def _appended(
    increments: pa.Table, groups: Groups, accumulators: Sequence[sql.Accumulator]
) -> Rows:
    """What is added to the trace of accumulators: one row a group."""
    made = Rows.of(increments.select([one.name for one in accumulators]))
    keys = groups.key_columns(increments[_GROUP].to_numpy())
    columns = {**keys, **dict(zip(made.schema.names, made.table.columns, strict=True))}
    return Rows.of(pa.table(columns), StructType([*groups.key_fields(), *made.schema.fields]))


def _seeds(table: str, trace: Rows, groups: Groups, increments: pa.Table) -> pa.Table:
    """What was there before of the groups in the delta, as increments of the step before."""
    touched = groups.touched(table)
    if PLACE in trace.table.column_names:
        touched = touched[trace.table[PLACE].is_null().to_numpy()[touched]]
    of = groups.of_traces[table][touched]
    columns = {_GROUP: of, AT: groups.at(of, np.full(len(of), FIRST - 1))}
    for name in increments.column_names[2:]:
        held = trace.table[name].take(pa.array(touched))
        columns[name] = held.cast(increments[name].type)
    return pa.table(columns)


def _totals(
    accumulators: Sequence[sql.Accumulator],
    increments: pa.Table,
    seeds: pa.Table | None,
    groups: Groups,
) -> pa.Table:
    """The accumulators after each step of each group, in this order, with keys, group and step."""
    per_step = increments
    if seeds is not None:
        per_step = merged(pa.concat_tables([seeds, increments]), AT, accumulators)
    at = per_step[AT].to_numpy()
    of = at // groups.span
    totals = running(per_step, ranks(of), accumulators)
    columns = {AT: per_step[AT], _GROUP: pa.chunked_array([of])}
    columns[STEP] = pa.chunked_array([at % groups.span - 1])
    columns.update(groups.key_columns(of))
    return pa.table({**columns, **{one.name: totals[one.name] for one in accumulators}})


def _with_extremes(totals: pa.Table, one: Extremes, groups: Groups, trace: Rows | None) -> pa.Table:
    """With the least and the greatest value of the argument after each step."""
    name, delta = one.argument.name, groups.delta.table
    if not has_order(one.argument.dataType):
        raise Unlike
    of, steps = groups.of_delta, delta[STEP].to_numpy()
    values, weights = delta[name], delta[WEIGHT].to_numpy()
    if trace is not None:
        touched = groups.touched(one.table)
        held = trace.table.take(pa.array(touched))
        of = np.append(of, groups.of_traces[one.table][touched])
        steps = np.append(steps, np.full(len(touched), FIRST - 1))
        values = together(values, held[name].cast(values.type))
        weights = np.append(weights, held[WEIGHT].to_numpy())
    if not len(values):
        nothing = pa.nulls(len(totals), values.type)
        return reduce(lambda made, new: made.append_column(new, nothing), one.names, totals)
    by_value = ranked(values)
    # A number belongs to one group.
    numbers = np.where(by_value < 0, -1, of * (by_value.max(initial=0) + 1) + by_value)
    found = running_extremes(of, numbers, steps, weights)
    known = groups.at(of[found.at], steps[found.at])
    places, is_known = places_in(known, totals[AT].to_numpy())
    for column, rows in ((one.least, found.least), (one.greatest, found.greatest)):
        if column is not None:
            at = rows[places]
            taken = values.take(pa.array(at, mask=~is_known | (at < 0)))
            totals = totals.append_column(column, taken)
    return totals


def _weights_and_steps(rows: Rows) -> tuple[Integers, Integers]:
    return rows.table[WEIGHT].to_numpy(), rows.table[STEP].to_numpy()


def _with_bins(appended: Rows, bins: Mapping[ExactSum, Bins], groups: Groups) -> Rows:
    """With the bins of sums, in rows of their own beside the other accumulators."""
    if not bins:
        return appended
    parts = [appended.table]
    for exact, own in bins.items():
        of, table = own.appended(exact.place)
        names = (*groups.keys, *table.column_names)
        columns = (*groups.key_columns(of).values(), *table.columns)
        parts.append(pa.table(dict(zip(names, columns, strict=True))))
    numbers = [StructField(name, IntegerType()) for name in (PLACE, BIN)]
    sums = [StructField(name, LongType()) for name in PARTS]
    schema = StructType([*appended.schema.fields, *numbers, *sums])
    nullable = StructType([StructField(one.name, one.dataType) for one in schema])
    rows = pa.concat_tables(parts, promote_options="default")
    return Rows.of(rows.select(nullable.names), nullable)


def _held_bins(exact: ExactSum, table: str, trace: Rows, groups: Groups) -> Bins:
    """What was there before of a sum, for the groups in the delta, as changes of the step before."""
    touched = groups.touched(table)
    is_own = pc.fill_null(pc.equal(trace.table[PLACE], exact.place), False).to_numpy()
    rows = touched[is_own[touched]]
    own = trace.table.take(pa.array(rows))
    parts = np.stack([own[part].to_numpy() for part in PARTS], axis=1)
    steps = np.full(len(rows), FIRST - 1)
    return Bins(groups.of_traces[table][rows], steps, own[BIN].to_numpy().astype(np.int64), parts)


def _with_sums(totals: pa.Table, exact: ExactSum, bins: Bins) -> pa.Table:
    """With the sum after each step."""
    sums = bins.after(totals[_GROUP].to_numpy(), totals[STEP].to_numpy())
    return totals.append_column(exact.name, pa.array(sums))


def _valued(
    spark: SparkSession,
    node: Aggregate,
    types: Mapping[str, DataType],
    totals: pa.Table,
    groups: Groups,
) -> Rows:
    """Keys, step, and the aggregates' values after it."""
    values = {call.name: value(call, node, types, totals) for call in node.aggregates}
    fields = {c.name: StructField(c.name, type_of(c, types)) for c in node.aggregates}
    left = [call for call in node.aggregates if values[call.name] is None]
    if left:
        names = [name for name in totals.column_names if name not in (AT, _GROUP, STEP)]
        computed = _computed(spark, node, left, types, totals.select(names))
        values.update({name: computed.table[name] for name in computed.schema.names})
        fields.update({field.name: field for field in computed.schema})
    keys = {key: totals[key] for key in node.keys}
    schema = [*groups.key_fields(), StructField(STEP, LongType()), *fields.values()]
    return Rows.of(pa.table({**keys, STEP: totals[STEP], **values}), StructType(schema))


def type_of(call: AggregateCall, types: Mapping[str, DataType]) -> DataType:
    """The type of a value that is read off here."""
    if call.argument is None or call.function is AggregateFunction.COUNT:
        return LongType()
    kind = types[call.argument]
    if call.function is AggregateFunction.AVG:
        return average_type(kind)
    if call.function is not AggregateFunction.SUM:
        return kind
    if sql.is_exact(kind):
        return DoubleType()
    if isinstance(kind, DecimalType):
        return DecimalType(min(38, kind.precision + 10), kind.scale)
    return LongType()


def _computed(
    spark: SparkSession,
    node: Aggregate,
    calls: Sequence[AggregateCall],
    types: Mapping[str, DataType],
    totals: pa.Table,
) -> Rows:
    """The values of some calls, by Spark, in the order of the totals."""
    places = pa.chunked_array([np.arange(totals.num_rows)])
    frame = Rows.of(totals.append_column(_PLACE, places)).along(spark)
    values = (F.expr(sql.value_of(call, node, types)).alias(call.name) for call in calls)
    table, schema = fetched(frame.select(*values, _PLACE))
    return Rows(table.sort_by(_PLACE), schema).select([call.name for call in calls])
