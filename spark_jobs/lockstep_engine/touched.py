"""What was there before an interval, of what its changes can touch.

Few rows are read by this process, where it knows by which numbers; large state is narrowed to ranges,
for Spark to read; all else Spark reads whole. The law: of the rows that an operator looks up, none is
missing that a change can touch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegralType, LongType

from lockstep.lake.wanted_rows import Numbers
from lockstep.sql.circuit import Circuit, Operator, TraceSpec
from lockstep.sql.plans.nodes import Aggregate, MultiwayJoin, Scan, Values
from lockstep.threads import in_parallel
from lockstep_engine.before import Before
from lockstep_engine.context import Context
from lockstep_engine.deltas import FIRST, STEP, WEIGHT, quoted
from lockstep_engine.local.aggregate import groups_held
from lockstep_engine.local.formulas import written
from lockstep_engine.local.linear import Sifted, rows_through
from lockstep_engine.local.rows import Rows
from lockstep_engine.local.values import Unlike
from lockstep_engine.operators import State, evaluate
from lockstep_engine.operators.aggregate import groups_before
from lockstep_engine.operators.linear import leaf_below, leaves_below, rows_before
from lockstep_engine.ranges import (
    Measures,
    Met,
    Range,
    Ranges,
    around,
    delta_ranges,
    measured_rows,
    state_ranges,
    within,
)

__all__ = ["Touched", "columns_met", "rows_of"]

LARGER = 10
"""So many times as many rows are much more."""
FEW_STATE = 300_000
"""Tables of so few rows are read by this process, whatever is touched: Spark plans for longer."""


class _Met(Mapping[int, Ranges]):
    """`Met` of a join, measured when somebody asks: nobody may."""

    def __init__(self) -> None:
        self._rows: dict[int, Callable[[], Ranges]] = {}
        self._found: dict[int, Ranges] = {}

    def add(self, place: int, measure: Callable[[], Ranges]) -> None:
        """The rows of an input are known."""
        self._rows[place] = measure

    def __getitem__(self, place: int) -> Ranges:
        if place not in self._found:
            self._found[place] = self._rows[place]()
        return self._found[place]

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


@dataclass
class _DeltaRanges:
    """The ranges of the operators' deltas, by those of the sources."""

    operators: Mapping[int, Operator]
    silent: Collection[int]
    of_source: Callable[[str], Ranges | None]
    met: Mapping[int, Met]
    here: Callable[[int], Rows | None]
    _found: dict[int, Ranges | None] = field(default_factory=dict)

    def of(self, ref: int) -> Ranges | None:
        """None where the delta has no row."""
        if ref in self.silent:
            return None
        if ref not in self._found:
            operator = self.operators[ref]
            rows = self.here(ref)
            if rows is not None:
                self._found[ref] = measured_rows(rows.table).ranges
            elif isinstance(operator.node, Scan):
                found, wanted = self.of_source(operator.node.source), operator.node.columns
                self._found[ref] = found and {n: r for n, r in found.items() if n in wanted}
            else:
                met = self.met.get(ref, {})
                self._found[ref] = delta_ranges(operator.node, self.below(operator), met)
        return self._found[ref]

    def below(self, operator: Operator) -> tuple[Ranges | None, ...]:
        """Of the operator's inputs."""
        return tuple(map(self.of, operator.inputs))

    def touched(self, operator: Operator, place: int) -> Ranges:
        """The ranges of what the operator looks up in the rows of an input."""
        met = self.met.get(operator.ref, {})
        return state_ranges(operator.node, place, self.below(operator), met)


class Touched:
    """The state that operators look up, given by `before`. `operators` are those of the circuit by ref,
    `silent` those whose delta is known to be empty, of which more may become known. `here` gives the
    rows of a delta, where this process can have them; `is_local`: operators are evaluated here, too.

    `whole` are, by ref, the columns of an operator's large state that are whole numbers.
    """

    def __init__(
        self,
        operators: Mapping[int, Operator],
        before: Before,
        measures: Measures,
        silent: Collection[int],
        here: Callable[[int], Rows | None] = lambda _: None,
        *,
        is_local: bool = False,
    ) -> None:
        self.whole: dict[int, frozenset[str]] = {}
        self._operators = operators
        self._before = before
        self._rows: dict[int, DataFrame | None] = {}
        self._met: dict[int, _Met] = {}
        self._looked_up: dict[int, Mapping[int, Rows]] = {}
        self._is_local = is_local
        # What has to be measured by a job is so for large state only.
        self._measured = _DeltaRanges(
            operators, silent, lambda name: measures.of(name).ranges, self._met, here
        )
        self._known = _DeltaRanges(operators, silent, measures.known_ranges, self._met, here)

    def state(self, operator: Operator, context: Context) -> State:
        """The rows that the operator looks up, of its inputs and in traces of its own."""
        found = self.looked_up(operator, context)
        rows = tuple(
            found[place].frame(context.spark)
            if place in found
            else self.input(operator, place, context)
            for place in range(len(operator.rows))
        )
        return State(rows, self._own(operator, context))

    def is_new(self, operator: Operator, place: int) -> bool:
        """Whether a trace of an input holds nothing yet."""
        trace = operator.rows[place] or operator.groups[place]
        return trace is not None and self._before.trace(trace.table) is None

    def input(self, operator: Operator, place: int, context: Context) -> DataFrame | None:
        """The rows of an input that the operator looks up, as Spark reads them; None where there were
        none before."""
        trace = operator.rows[place] if operator.rows else None
        if trace is not None:
            return self._trace(operator, place, trace, context)
        if context.is_first:
            return None
        ref = operator.inputs[place]
        if ref not in self._rows:
            silenced = context.silenced()
            self._rows[ref] = rows_before(
                self._operators, ref, lambda leaf: self._leaf(leaf, context), evaluate, silenced
            )
        found = self._rows[ref]
        sizes = map(self._leaf_size, leaves_below(self._operators, ref))
        if found is None or max(sizes, default=0) < context.large_state:
            return found
        return self._narrowed(found, operator, place, self._operators[ref].node.columns)

    def _trace(
        self, operator: Operator, place: int, trace: TraceSpec, context: Context
    ) -> DataFrame | None:
        """The rows of a trace that the changes of the inputs can touch, by that of one input."""
        rows = self._before.trace(trace.table)
        if rows is None or self._before.trace_size(trace.table) < context.large_state:
            return rows
        return self._narrowed(rows, operator, place, trace.row)

    def _narrowed(
        self, rows: DataFrame, operator: Operator, place: int, columns: Collection[str]
    ) -> DataFrame:
        """Of large state what the changes of the inputs can touch; the operator is to know what is a
        whole number there."""
        types = {field.name: field.dataType for field in rows.schema}
        whole = {name for name, kind in types.items() if isinstance(kind, IntegralType)}
        self.whole[operator.ref] = self.whole.get(operator.ref, frozenset()) | whole
        found = self._measured.touched(operator, place)
        return within(rows, types, {n: one for n, one in found.items() if n in columns})

    def _leaf(self, leaf: Operator, context: Context) -> DataFrame | None:
        """What a followed table had, the groups of an aggregate, if it has any, and what stands in the
        query."""
        match leaf.node:
            case Scan():
                return self._before.table(leaf.node.source, leaf.node.columns)
            case Aggregate():
                trace = self._before.trace(leaf.accumulators.table)
                return None if trace is None else groups_before(leaf, trace)
            case Values():
                return rows_of(leaf.node, context)
            case _:
                raise AssertionError("nothing else is without inputs")

    def _leaf_size(self, leaf: Operator) -> int:
        """How many rows it is read from, at most."""
        match leaf.node:
            case Scan():
                return self._before.table_size(leaf.node.source)
            case Aggregate():
                return self._trace_size(leaf.accumulators)
            case _:
                return 0

    def looked_up(self, operator: Operator, context: Context) -> Mapping[int, Rows]:
        """The rows that this process has read, with their `_weight`, by input.

        By what has been read it knows the numbers by which the next input is met: it goes on from lines
        to their orders, and from these to their customers.
        """
        if context.is_first or not context.looks_up_here:
            return {}
        if operator.ref not in self._looked_up:
            self._looked_up[operator.ref] = self._look_all_up(operator, context)
        return self._looked_up[operator.ref]

    def _look_all_up(self, operator: Operator, context: Context) -> Mapping[int, Rows]:
        found: dict[int, Rows] = {}
        met = self._met.setdefault(operator.ref, _Met())
        waiting = set(range(len(operator.rows)))
        while ready := self._ready(operator, waiting):
            looked_up = in_parallel(
                lambda place: self._look_up(operator, place, ready[place], context), ready
            )
            for place, one in zip(ready, looked_up, strict=True):
                if one is not None:
                    found[place] = one
                    met.add(place, partial(self._around, one, operator.inputs[place]))
            waiting -= ready.keys()
        return found

    def _around(self, rows: Rows, ref: int) -> Ranges:
        """The ranges of the rows of an input, those from before and those that have changed."""
        both = (measured_rows(rows.table).ranges, self._known.of(ref))
        return around([ranges for ranges in both if ranges is not None])

    def _ready(
        self, operator: Operator, waiting: Collection[int]
    ) -> Mapping[int, Mapping[str, Numbers]]:
        """The inputs of which it is known by which numbers rows are met, with these; or else those that
        are tiny, with none. Much larger ones are left for later: what smaller ones have may leave fewer
        numbers by which their rows are met."""
        keys = {place: self._keys(operator, place) for place in waiting}
        sizes = {place: self._size(operator, place) for place, one in keys.items() if one}
        if sizes:
            most = LARGER * max(1, min(sizes.values()))
            return {place: keys[place] for place, size in sizes.items() if size <= most}
        return {p: {} for p in waiting if self._is_tiny(operator, p)}

    def _size(self, operator: Operator, place: int) -> int:
        """How many rows an input that can be looked up has at most, in what it is read from."""
        trace = operator.rows[place]
        if trace is not None:
            return self._trace_size(trace)
        below = leaf_below(self._operators, operator.inputs[place])
        assert below is not None, "others have no keys"
        return self._leaf_size(below[0])

    def _keys(self, operator: Operator, place: int) -> Mapping[str, Numbers]:
        """The numbers by which rows of an input are met, by column of what these are read from."""
        columns = _columns_read(self._operators, operator, place)
        touched = _numbers(self._known.touched(operator, place)) if columns else {}
        return {columns[name]: one for name, one in touched.items() if name in columns}

    def _keys_of(self, operator: Operator, place: int, trace: TraceSpec) -> Mapping[str, Numbers]:
        """The same of a trace that is looked up."""
        touched = _numbers(self._known.touched(operator, place))
        return {name: one for name, one in touched.items() if name in trace.row}

    def _is_tiny(self, operator: Operator, place: int) -> bool:
        """Whether an input has few rows, and something that can meet them has changed."""
        trace = operator.rows[place]
        if trace is None:
            below = leaf_below(self._operators, operator.inputs[place])
            if below is None or self._leaf_size(below[0]) > FEW_STATE:
                return False
        elif not self._is_local or not 0 < self._trace_size(trace) <= FEW_STATE:
            return False
        changes = list(self._known.below(operator))
        if isinstance(operator.node, MultiwayJoin):
            del changes[place]
        return any(change is not None for change in changes)

    def _look_up(
        self, operator: Operator, place: int, keys: Mapping[str, Numbers], context: Context
    ) -> Rows | None:
        trace = operator.rows[place]
        if trace is not None:
            return self._in_trace(trace, keys, context)
        ref = operator.inputs[place]
        below = leaf_below(self._operators, ref)
        assert below is not None, "others have no keys, and are not tiny"
        leaf, _ = below
        found = self._look_up_leaf(leaf, keys, context)
        if found is None:
            return None
        before = found.with_number(STEP, FIRST - 1)
        rows = rows_through(
            self._operators,
            ref,
            lambda one: Sifted(before) if one == leaf.ref else None,
            context.silenced(),
        )
        assert rows is not None, "the leaf is below"
        return rows.select([*self._operators[ref].node.columns, WEIGHT])

    def _look_up_leaf(
        self, leaf: Operator, keys: Mapping[str, Numbers], context: Context
    ) -> Rows | None:
        """The rows of a table, of an aggregate by its groups, or those that stand in the query."""
        if isinstance(leaf.node, Scan):
            return self._before.look_up(leaf.node.source, leaf.node.columns, keys)
        if isinstance(leaf.node, Values):
            return written(leaf.node)
        trace = self._in_trace(leaf.accumulators, keys, context)
        try:
            return None if trace is None else groups_held(context.spark, leaf, trace)
        except (Unlike, pa.ArrowNotImplementedError):
            return None

    def own_here(self, operator: Operator) -> Mapping[str, Rows] | None:
        """As far as changes touch them, the rows of traces that are not of the operator's inputs, by
        table, but for those that are new; None where Spark has to read one."""
        found: dict[str, Rows] = {}
        for trace in operator.traces:
            if trace in operator.rows or self._before.trace(trace.table) is None:
                continue
            rows = self._whole_or_by_keys(operator, trace)
            if rows is None:
                return None
            found[trace.table] = rows
        return found

    def of_partitions(self, operator: Operator, context: Context) -> tuple[Rows, ...] | None:
        """The rows of its one input that a window looks up, those of partitions that change, if there
        are any; None where Spark has to read them."""
        [trace] = operator.rows
        if trace is None and context.is_first:
            return ()
        if trace is None:
            found = self.looked_up(operator, context).get(0)
        elif self._before.trace(trace.table) is None:
            return ()
        else:
            found = self._whole_or_by_keys(operator, trace)
        return None if found is None else (found,)

    def _trace_size(self, trace: TraceSpec) -> int:
        """How many rows it has at most; none where it is new."""
        is_new = self._before.trace(trace.table) is None
        return 0 if is_new else self._before.trace_size(trace.table)

    def _whole_or_by_keys(self, operator: Operator, trace: TraceSpec) -> Rows | None:
        """The rows of a trace by the keys of what changes, or all of it, where that is not much."""
        keys = self._keys_of(operator, 0, trace)
        if not keys and self._before.trace_size(trace.table) > self._before.most_rows:
            return None
        return self._before.look_up_trace(trace.table, keys)

    def _own(self, operator: Operator, context: Context) -> Mapping[str, DataFrame | None]:
        """The traces that are not of the operator's inputs, by table."""
        own: dict[str, DataFrame | None] = {}
        for trace in operator.traces:
            if trace not in operator.rows:
                keys = self._keys_of(operator, 0, trace) if context.looks_up_here else {}
                found = self._in_trace(trace, keys, context)
                if found is None:
                    own[trace.table] = self._trace(operator, 0, trace, context)
                else:
                    own[trace.table] = found.frame(context.spark)
        return own

    def _in_trace(
        self, trace: TraceSpec, keys: Mapping[str, Numbers], context: Context
    ) -> Rows | None:
        """Rows of a large trace by their keys, if there are any: each interval adds a file to it, and to
        open those of a small one takes as long here as for Spark's tasks."""
        if self._before.trace(trace.table) is None:
            return None
        if not keys and not (self._is_local and self._trace_size(trace) <= FEW_STATE):
            return None
        if not self._is_local and self._before.trace_size(trace.table) < context.large_state:
            return None
        return self._before.look_up_trace(trace.table, keys)


@lru_cache(maxsize=64)
def columns_met(
    circuit: Circuit, changing: frozenset[str]
) -> Mapping[str, Sequence[frozenset[str]]]:
    """By trace, of each operator that looks it up, the columns by which its rows are met, where these
    sources change, and all of their values are known, and those of what is met."""
    operators = {one.ref: one for one in circuit.operators}
    silent = set[int]()
    known = Range(LongType, 0, 0, np.zeros(1, np.int64))
    leaves: dict[str, dict[str, Range]] = {}
    for one in circuit.operators:
        if isinstance(one.node, Scan):
            leaves.setdefault(one.node.source, {}).update(dict.fromkeys(one.node.columns, known))
    met: dict[int, dict[int, Ranges]] = {}
    ranges = _DeltaRanges(operators, silent, leaves.get, met, lambda _: None)
    found: dict[str, list[frozenset[str]]] = {}
    for operator in circuit.operators:
        is_source = isinstance(operator.node, Scan) and operator.node.source in changing
        if not is_source and silent.issuperset(operator.inputs):
            silent.add(operator.ref)
            continue
        of_inputs, waiting = met.setdefault(operator.ref, {}), set(range(len(operator.rows)))
        if isinstance(operator.node, MultiwayJoin):
            changed = {n for n, ref in enumerate(operator.inputs) if ref not in silent}
            waiting = {n for n in waiting if changed - {n}}
        by_place: dict[int, Collection[str]] = dict.fromkeys(waiting, ())
        while ready := {n: by for n in waiting if (by := ranges.touched(operator, n))}:
            by_place.update(ready)
            waiting -= ready.keys()
            names = {n: operators[operator.inputs[n]].node.columns for n in ready}
            of_inputs.update({n: dict.fromkeys(names[n], known) for n in ready})
        for place, names_met in by_place.items():
            trace = operator.rows[place] or (operator.groups[place] if operator.groups else None)
            if trace is not None:
                columns = _columns_read(operators, operator, place)
                of_input = frozenset(columns[name] for name in names_met if name in columns)
                found.setdefault(trace.table, []).append(of_input)
        for trace in operator.traces:
            if trace not in operator.rows:
                of_own = frozenset(ranges.touched(operator, 0)) & {*trace.row}
                found.setdefault(trace.table, []).append(of_own)
    return found


def _columns_read(
    operators: Mapping[int, Operator], operator: Operator, place: int
) -> Mapping[str, str]:
    """By the columns of an input those of what its rows are read from, as far as they stand there."""
    trace = operator.rows[place]
    if trace is not None:
        return {name: name for name in trace.row}
    below = leaf_below(operators, operator.inputs[place])
    if below is None:
        return {}
    leaf, columns = below
    if isinstance(leaf.node, Aggregate):
        # What it comes to stands in no row of its trace.
        return {name: one for name, one in columns.items() if one in leaf.node.keys}
    return columns


def rows_of(node: Values, context: Context) -> DataFrame:
    """The rows that stand in a query, with their `_weight`."""
    rows = ", ".join(f"({', '.join(cell.text for cell in row)})" for row in node.rows)
    names = ", ".join(map(quoted, node.columns))
    found = context.spark.sql(f"SELECT * FROM VALUES {rows} AS t ({names})")
    return found.select("*", F.lit(1).cast("bigint").alias(WEIGHT))


def _numbers(ranges: Ranges) -> Mapping[str, Numbers]:
    """The values of those columns of which they are known."""
    return {name: one.numbers for name, one in ranges.items() if one.numbers is not None}
