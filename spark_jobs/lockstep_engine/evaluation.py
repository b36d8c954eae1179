"""The circuit on Spark: from the deltas of the sources to what is appended to every table.

Frames are lazy, but for the deep ones. What is read more than once is marked to be kept, so that Kafka
is read once an interval, and an operator's change is computed once for its consumer, its trace and
its outbox.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegralType

from lockstep.lake.lookups import Numbers
from lockstep.sql.circuit import Circuit, Operator, OutboxSpec, TraceSpec, readers, sources_below
from lockstep.sql.plans.nodes import (
    Aggregate,
    Filter,
    MultiwayJoin,
    Node,
    Recursive,
    Scan,
    SessionGroups,
    Temporal,
    TimeWindow,
    Upsert,
    Values,
    Watermark,
    Window,
)
from lockstep_engine.before import Before
from lockstep_engine.computed import computed
from lockstep_engine.context import Context
from lockstep_engine.deltas import (
    FIRST,
    STEP,
    WEIGHT,
    columns_of,
    consolidate,
    quoted,
)
from lockstep_engine.operators import Evaluation, State, evaluate
from lockstep_engine.operators.linear import net_by_pane, rows_before, scanned_below
from lockstep_engine.operators.recursive import beside_in_tables
from lockstep_engine.operators.temporal import count_due
from lockstep_engine.operators.watermark import Late, Progress, standing, watermark
from lockstep_engine.operators.window import first_before, is_limit
from lockstep_engine.ranges import Measures, Ranges, delta_ranges, state_ranges, within
from lockstep_engine.reading import is_worth_keeping, times_read, unread_times

__all__ = ["Evaluated", "evaluate_circuit"]

LARGEST_PLAN = 60
"""Beyond about so many relations a plan is cut."""
_TIMES_READ: Mapping[type[Node], int] = MappingProxyType(
    {Aggregate: 4, SessionGroups: 4, Window: 4}
)
"""How often an operator's own plan names its input; a join's names each as often as inputs change."""


@dataclass
class Evaluated:
    """What an interval appends: `appends` to traces, `outboxes` by outbox table, `late` rows by source,
    and the frames that were marked to be kept, to be released when all appends are done."""

    appends: dict[str, DataFrame] = field(default_factory=dict)
    outboxes: dict[str, DataFrame] = field(default_factory=dict)
    late: dict[str, Late] = field(default_factory=dict)
    kept: list[DataFrame] = field(default_factory=list)

    def release(self) -> None:
        """Give the memory of kept frames back."""
        for frame in self.kept:
            frame.unpersist()


def evaluate_circuit(
    circuit: Circuit,
    sources: Mapping[str, DataFrame],
    silent: Collection[str],
    before: Before,
    context: Context,
    measures: Measures | None = None,
) -> Evaluated:
    """Build the frames of one interval.

    `sources` maps a source to its decoded delta (at least the columns that any scan wants, `_weight`,
    `_step`), already kept where it is read twice. `silent` names sources whose delta is known to be
    empty: nothing is appended for what follows from such alone, and a join's other side does not
    look for partners. In a pipeline's first interval no source may be silent, as a global aggregate
    has a row from the first interval on. `measures` are those of the same deltas, where somebody has
    begun to measure them.
    """
    by_ref = _by_ref(circuit)
    measures = measures or Measures(sources)
    result = Evaluated()
    by_pane = unread_times(circuit)
    building = _Building(by_ref, sources, readers(circuit), by_pane, before, context, measures)
    reads = times_read(circuit, is_small=context.is_small)
    for operator in circuit.operators:
        due = building.count_due(operator)
        if not due and _is_silent(operator, silent, building.silent, context):
            building.silent[operator.ref] = operator
            continue
        evaluation = building.evaluation(operator)
        delta = evaluation.delta
        result.kept.extend(evaluation.kept)
        building.note_size(operator)
        if reads[operator.ref] > 1 and is_worth_keeping(operator, by_ref):
            delta = building.kept(operator, delta, result)
        building.deltas[operator.ref] = delta
        # Equal traces of two operators hold equal rows: they are written once.
        for table, rows in evaluation.appended(delta).items():
            result.appends.setdefault(table, rows)
    result.late = building.late
    for outbox in circuit.outboxes:
        if outbox.ref not in building.silent:
            result.outboxes[outbox.table] = _outbox_rows(
                outbox, building.deltas[outbox.ref], by_ref
            )
    return result


def _is_silent(
    operator: Operator, silent: Collection[str], below: Mapping[int, Operator], context: Context
) -> bool:
    if isinstance(operator.node, Scan):
        return operator.node.source in silent
    if isinstance(operator.node, Values):
        return not context.is_first
    return all(ref in below for ref in operator.inputs)


@dataclass
class _Building:
    """The deltas made so far by operator, and the operators whose delta is known to be empty."""

    operators: Mapping[int, Operator]
    sources: Mapping[str, DataFrame]
    readers: Mapping[int, tuple[str, ...]]
    by_pane: Collection[int]
    before: Before
    context: Context
    measures: Measures
    deltas: dict[int, DataFrame] = field(default_factory=dict)
    silent: dict[int, Operator] = field(default_factory=dict)
    late: dict[str, Late] = field(default_factory=dict)
    progress: dict[int, Progress] = field(default_factory=dict)
    """How far each watermark is."""
    sizes: dict[int, int] = field(default_factory=dict)
    """About how many relations the plan of each operator's delta names."""
    rows: dict[int, DataFrame] = field(default_factory=dict)
    """Of linear operators over followed tables, what was there before the interval."""
    ranges: dict[int, Ranges | None] = field(default_factory=dict)
    whole: dict[int, frozenset[str]] = field(default_factory=dict)
    """The columns of each operator's large state that are whole numbers."""

    def kept(self, operator: Operator, delta: DataFrame, result: Evaluated) -> DataFrame:
        """The delta, computed once for all who read it.

        A plan is a tree, in which what is read twice stands twice: Spark would analyse a chain of
        joins and aggregates in a time that doubles with each of them. So where the tree has grown it
        is cut: the rows are computed now, and what follows starts from them. The tree of a small change
        is cut at each of them, and the rows are computed when somebody asks: Spark takes longer to
        analyze what they come from than to compute them.
        """
        if self.sizes[operator.ref] <= LARGEST_PLAN and not self.context.is_small:
            kept = delta.persist()
            result.kept.append(kept)
            return kept
        is_large = self.sizes[operator.ref] > LARGEST_PLAN
        self.sizes[operator.ref] = 1
        return computed(delta, at_once=is_large)

    def note_size(self, operator: Operator) -> None:
        """To be called for each operator, inputs first."""
        if isinstance(operator.node, Recursive):
            self.sizes[operator.ref] = 1  # its rows are computed
            return
        sizes = [self.sizes[ref] for ref in operator.inputs if ref in self.sizes]
        is_join = isinstance(operator.node, MultiwayJoin)
        times = len(sizes) if is_join else _TIMES_READ.get(type(operator.node), 1)
        self.sizes[operator.ref] = 1 + times * (sum(sizes) + len(operator.rows))

    def count_due(self, operator: Operator) -> int:
        """How many rows of the operator come or go by time, whatever comes in; the interval has so
        many records more."""
        if not isinstance(operator.node, Temporal):
            return 0
        if operator.node.watermarks and all(ref in self.silent for ref in operator.inputs):
            return 0
        held = self.before.trace(operator.traces[0].table)
        context = self._context_of(operator)
        due = 0 if held is None else count_due(operator.node, held, context)
        self.context = replace(self.context, records=self.context.records + due)
        return due

    def evaluation(self, operator: Operator) -> Evaluation:
        """What the operator emits and appends; a join is told which side is empty, and a temporal
        filter that its input is."""
        if isinstance(operator.node, Scan):
            return Evaluation(_scan(operator.node, self.sources))
        if isinstance(operator.node, Values):
            return Evaluation(_values(operator.node, self.context))
        if isinstance(operator.node, Recursive):
            return self._of_recursion(operator)
        knows_empty = (
            isinstance(operator.node, MultiwayJoin | Temporal) and operator.ref not in self.silent
        )
        inputs = tuple(
            None if knows_empty and ref in self.silent else self._delta(ref)
            for ref in operator.inputs
        )
        if operator.ref in self.by_pane and not self.context.is_small and not self.context.guarding:
            assert isinstance(operator.node, TimeWindow), "it has panes"
            inputs = (net_by_pane(operator.node, self._delta(operator.inputs[0])),)
        rows = tuple(
            self._rows(operator, place) if trace is None else self._trace(operator, place, trace)
            for place, trace in enumerate(operator.rows)
        )
        own = (trace for trace in operator.traces if trace not in operator.rows)
        traces = {trace.table: self._trace(operator, 0, trace) for trace in own}
        if isinstance(operator.node, Window):
            rows = self._first_rows(operator, operator.node, rows)
        state = State(rows, traces)
        if isinstance(operator.node, Watermark):
            return self._watermark(operator, operator.node, state)
        return evaluate(operator, inputs, state, self._context_of(operator))

    def _trace(self, operator: Operator, place: int, trace: TraceSpec) -> DataFrame | None:
        """The rows of a trace that the changes of the inputs can touch, by that of one input."""
        rows = self.before.trace(trace.table)
        if rows is None or self.before.trace_size(trace.table) < self.context.large_state:
            return rows
        found = self._looked_up_in_trace(operator, place, trace, rows)
        return self._narrowed(rows, operator, place, trace.row) if found is None else found

    def _first_rows(
        self, operator: Operator, node: Window, rows: tuple[DataFrame | None, ...]
    ) -> tuple[DataFrame | None, ...]:
        """Of what a LIMIT has to look at, where that is much, what it can give."""
        if operator.inputs_stay or rows[0] is None or not is_limit(node):
            return rows
        [trace], [ref] = operator.rows, operator.inputs
        if trace is not None:
            size = self.before.trace_size(trace.table)
        else:
            size = max(map(self.before.table_size, sources_below(self.operators, ref)), default=0)
        if size < self.context.long_state:
            return rows
        return (first_before(node, rows[0], self._delta(ref), size),)

    def _narrowed(
        self, rows: DataFrame, operator: Operator, place: int, columns: Collection[str]
    ) -> DataFrame:
        """Of large state what the changes of the inputs can touch; the operator is to know what is a
        whole number there."""
        types = {field.name: field.dataType for field in rows.schema}
        whole = {name for name, kind in types.items() if isinstance(kind, IntegralType)}
        self.whole[operator.ref] = self.whole.get(operator.ref, frozenset()) | whole
        return within(rows, types, self._touched(operator, place, columns))

    def _touched(self, operator: Operator, place: int, columns: Collection[str]) -> Ranges:
        inputs = tuple(map(self._ranges, operator.inputs))
        found = state_ranges(operator.node, place, inputs)
        return {name: one for name, one in found.items() if name in columns}

    def _ranges(self, ref: int) -> Ranges | None:
        """The ranges of an operator's delta, None where it has no row."""
        if ref in self.silent:
            return None
        if ref not in self.ranges:
            operator = self.operators[ref]
            if isinstance(operator.node, Scan):
                found = self.measures.of(operator.node.source).ranges
                wanted = operator.node.columns
                self.ranges[ref] = found and {n: r for n, r in found.items() if n in wanted}
            else:
                below = tuple(map(self._ranges, operator.inputs))
                self.ranges[ref] = delta_ranges(operator.node, below)
        return self.ranges[ref]

    def _rows(self, operator: Operator, place: int) -> DataFrame | None:
        """The rows of an input before the interval, from followed tables, of which the changes of the
        inputs can touch; None where it is the first, before which there was nothing."""
        if self.context.is_first:
            return None
        ref = operator.inputs[place]
        found = self._looked_up(operator, place)
        if found is not None:
            return found
        if ref not in self.rows:
            context = self.context.silenced()
            found = rows_before(self.operators, ref, self._leaf, evaluate, context)
            assert found is not None, "each leaf has its rows"
            self.rows[ref] = found
        rows, columns = self.rows[ref], self.operators[ref].node.columns
        sizes = map(self.before.table_size, sources_below(self.operators, ref))
        if max(sizes, default=0) < self.context.large_state:
            return rows
        return self._narrowed(rows, operator, place, columns)

    def _looked_up_in_trace(
        self, operator: Operator, place: int, trace: TraceSpec, rows: DataFrame
    ) -> DataFrame | None:
        """The same of a large trace."""
        if not self.context.is_small:
            return None
        keys = _numbers(self._touched(operator, place, trace.row))
        return self.before.look_up_trace(trace.table, rows.schema, keys) if keys else None

    def _looked_up(self, operator: Operator, place: int) -> DataFrame | None:
        """Of a large table's rows those that the changes can touch, where these are few and it is known
        by which numbers; None where Spark is to read them."""
        ref = operator.inputs[place]
        below = scanned_below(self.operators, ref)
        if below is None or not self.context.is_small:
            return None
        scan, columns = below
        if self.before.table_size(scan.source) < self.context.large_state:
            return None
        found = _numbers(self._touched(operator, place, columns))
        keys = {columns[name]: numbers for name, numbers in found.items()}
        rows = self.before.look_up(scan.source, scan.columns, keys) if keys else None
        if rows is None:
            return None
        context = self.context.silenced()
        return rows_before(self.operators, ref, lambda _: rows, evaluate, context)

    def _leaf(self, leaf: Operator) -> DataFrame:
        """What a followed table had, and what stands in the query."""
        if isinstance(leaf.node, Scan):
            return self.before.table(leaf.node.source, leaf.node.columns)
        assert isinstance(leaf.node, Values), "nothing else is without inputs"
        return _rows_of(leaf.node, self.context)

    def _of_recursion(self, operator: Operator) -> Evaluation:
        """A recursion is told which of the relations beside it have no change, and of those in followed
        tables the rows that were there."""
        anchor = self._delta(operator.inputs[0])
        if operator.ref in self.silent:
            return Evaluation(anchor.where("false"))
        beside = (None if r in self.silent else self._delta(r) for r in operator.inputs[1:])
        wanted = beside_in_tables(operator)
        rows = tuple(
            self._rows(operator, place) if place - 1 in wanted else None
            for place in range(len(operator.inputs))
        )
        traces = {trace.table: self.before.trace(trace.table) for trace in operator.traces}
        state, context = State(rows, traces), self._context_of(operator)
        return evaluate(operator, (anchor, *beside), state, context)

    def _watermark(self, operator: Operator, node: Watermark, state: State) -> Evaluation:
        delta = self._delta(operator.inputs[0])
        evaluation, late, progress = watermark(operator, node, delta, state, self.context)
        self.late[node.source] = late
        self.progress[operator.ref] = progress
        return evaluation

    def _context_of(self, operator: Operator) -> Context:
        """The interval as the operator sees it: for some, watermarks are what time is."""
        node, context = operator.node, self.context
        if operator.ref in self.whole:
            context = replace(context, whole=self.whole[operator.ref])
        if context.guarding is not None:
            guarding = replace(context.guarding, views=self.readers[operator.ref])
            context = replace(context, guarding=guarding)
        if not (isinstance(node, Temporal) and node.watermarks):
            return context
        every = [self._progress(ref) for ref in operator.inputs[1:]]
        after = tuple(map(min, zip(*(one.after for one in every), strict=True)))
        return replace(context, times=after, time_before=min(one.before for one in every))

    def _progress(self, ref: int) -> Progress:
        known = self.progress.get(ref)
        if known is None:
            operator = self.silent[ref]
            assert isinstance(operator.node, Watermark), "what a temporal filter waits for"
            held = self.before.trace(operator.traces[0].table)
            known = self.progress[ref] = standing(operator.node, held, self.context)
        return known

    def _delta(self, ref: int) -> DataFrame:
        """An empty delta, too, where it is one branch of a union: its types count."""
        if ref not in self.deltas:
            self.deltas[ref] = self.evaluation(self.silent[ref]).delta
        return self.deltas[ref]


def _outbox_rows(outbox: OutboxSpec, delta: DataFrame, by_ref: Mapping[int, Operator]) -> DataFrame:
    """A view's change as the outbox has it: netted, under the view's own column names."""
    columns = by_ref[outbox.ref].node.columns
    if not _is_consolidated(by_ref[outbox.ref], by_ref):
        delta = consolidate(delta, columns)
    return delta.select(
        *(
            F.col(quoted(inner)).alias(outer)
            for inner, outer in zip(columns, outbox.columns, strict=True)
        ),
        WEIGHT,
        STEP,
    )


def _numbers(ranges: Ranges) -> Mapping[str, Numbers]:
    """The values of those columns of which they are known."""
    return {name: one.numbers for name, one in ranges.items() if one.numbers is not None}


def _by_ref(circuit: Circuit) -> Mapping[int, Operator]:
    return {operator.ref: operator for operator in circuit.operators}


def _is_consolidated(operator: Operator, by_ref: Mapping[int, Operator]) -> bool:
    """True where nothing in the delta can cancel: append-only rows (equal ones may stand as several
    rows, which is the same Z-set without a shuffle), and the output of an operator that nets it."""
    if operator.append_only or isinstance(
        operator.node, Aggregate | SessionGroups | Window | Upsert
    ):
        return True
    if isinstance(operator.node, Filter):
        return _is_consolidated(by_ref[operator.inputs[0]], by_ref)
    return False


def _scan(node: Scan, sources: Mapping[str, DataFrame]) -> DataFrame:
    return sources[node.source].select(*columns_of((*node.columns, WEIGHT, STEP)))


def _values(node: Values, context: Context) -> DataFrame:
    """The rows that stand in a query: they come with the first step of all."""
    rows = _rows_of(node, context)
    shown = rows if context.is_first else rows.limit(0)
    return shown.select("*", F.lit(FIRST).cast("bigint").alias(STEP))


def _rows_of(node: Values, context: Context) -> DataFrame:
    rows = ", ".join(f"({', '.join(cell.text for cell in row)})" for row in node.rows)
    names = ", ".join(map(quoted, node.columns))
    found = context.spark.sql(f"SELECT * FROM VALUES {rows} AS t ({names})")
    return found.select("*", F.lit(1).cast("bigint").alias(WEIGHT))
