"""The circuit on Spark: from the deltas of the sources to what is appended to every table.

Frames are lazy, but for the deep ones. What is read more than once is marked to be kept, so that Kafka
is read once an interval, and an operator's change is computed once for its consumer, its trace and
its outbox. The server takes its time to plan what is to be kept of a small change: the circuit is
built further meanwhile, until something stands on it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from types import MappingProxyType

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lockstep.sql.circuit import Circuit, Operator, OutboxSpec, readers, sources_below
from lockstep.sql.plans.nodes import (
    Aggregate,
    MultiwayJoin,
    Node,
    Recursive,
    Scan,
    SessionGroups,
    Temporal,
    TimeWindow,
    Values,
    Watermark,
    Window,
)
from lockstep.threads import MAX_THREADS, processors
from lockstep_engine.before import Before
from lockstep_engine.computed import computed
from lockstep_engine.context import Context
from lockstep_engine.deltas import (
    FIRST,
    STEP,
    WEIGHT,
    columns_of,
)
from lockstep_engine.judging import evaluated_now, may_fail
from lockstep_engine.local.evaluation import LocalOperators
from lockstep_engine.local.relations import LocalRows
from lockstep_engine.local.room import has_room
from lockstep_engine.local.rows import Rows
from lockstep_engine.operators import Evaluation, State, evaluate
from lockstep_engine.operators.linear import net_by_pane
from lockstep_engine.operators.recursive import beside_in_tables
from lockstep_engine.operators.temporal import count_due
from lockstep_engine.operators.watermark import Late, Progress, standing, watermark
from lockstep_engine.operators.window import first_before, is_limit
from lockstep_engine.outboxes import settled, settled_here, under_names
from lockstep_engine.ranges import Measures
from lockstep_engine.reading import is_worth_keeping, times_read, unread_times
from lockstep_engine.touched import Touched, rows_of
from lockstep_engine.turns import in_turns

__all__ = ["Evaluated", "LeftToSpark", "evaluate_circuit"]

_AT_ONCE = 4
"""So many operators of a large interval may be worked out at the same time: the rows of each are in
memory a few times then."""
_TIMES_A_SMALL_CHANGE = 10
"""Of fewer records threads cost more than they save (decision 0071)."""
LARGEST_PLAN = 60
"""Beyond about so many relations a plan is cut."""
_TIMES_READ: Mapping[type[Node], int] = MappingProxyType(
    {Aggregate: 4, SessionGroups: 4, Window: 4}
)
"""How often an operator's own plan names its input; a join's names each as often as inputs change."""


class LeftToSpark(Exception):
    """Of many rows, which this process has, it turns out that Spark has to work on some: it had better
    read them, too."""


@dataclass
class Evaluated:
    """What an interval appends: `appends` to traces, `outboxes` by outbox table, `late` rows by source,
    and the frames that were marked to be kept, to be released when all appends are done."""

    appends: dict[str, DataFrame | Rows] = field(default_factory=dict)
    outboxes: dict[str, DataFrame | Rows] = field(default_factory=dict)
    late: dict[str, Late] = field(default_factory=dict)
    kept: list[DataFrame] = field(default_factory=list)

    def release(self) -> None:
        """Give the memory of kept frames back."""
        for frame in self.kept:
            frame.unpersist()


def evaluate_circuit(
    circuit: Circuit,
    sources: Mapping[str, DataFrame | Rows],
    silent: Collection[str],
    before: Before,
    context: Context,
    measures: Measures | None = None,
    on_append: Callable[[str, DataFrame | Rows], None] | None = None,
) -> Evaluated:
    """Build the frames of one interval.

    `sources` maps a source to its decoded delta (at least the columns that any scan wants, `_weight`,
    `_step`), already kept where it is read twice, or its rows, where this process has them. `silent`
    names sources whose delta is known to be empty: nothing is appended for what follows from such alone,
    and a join's other side does not look for partners. In a pipeline's first interval no source may be
    silent, as a global aggregate has a row from the first interval on. `measures` are those of the same
    deltas, where somebody has begun to measure them. `on_append` is told of the rows of each trace as
    soon as there is a frame of them, or they are here; where operators are worked out at the same time,
    at the end. Raises LeftToSpark.
    """
    by_ref = _by_ref(circuit)
    result = Evaluated()
    by_pane = unread_times(circuit)
    empty: dict[int, Operator] = {}
    local = LocalRows(by_ref, sources, context, by_pane)
    touched = Touched(
        by_ref, before, measures or Measures(sources), empty, local.of, is_local=local.is_on
    )
    reads = times_read(circuit, is_small=context.is_small)
    shared = {r for r, n in reads.items() if n > 1 and is_worth_keeping(by_ref[r], by_ref)}
    with ThreadPoolExecutor(MAX_THREADS) as pool:
        building = _Building(
            by_ref,
            sources,
            readers(circuit),
            by_pane,
            shared,
            before,
            context,
            touched,
            local,
            empty,
            pool,
        )
        is_worth_it = context.records >= _TIMES_A_SMALL_CHANGE * context.many_records
        at_once = min(_AT_ONCE, processors()) if building.is_large and is_worth_it else 1
        evaluated = partial(building.evaluated, silent=silent, result=result)
        for _, appends in in_turns(circuit.operators, evaluated, at_once):
            # Equal traces of two operators hold equal rows: they are written once.
            for table, rows in appends.items():
                if table not in result.appends:
                    result.appends[table] = rows
                    if on_append is not None:
                        on_append(table, rows)
        result.late = building.late
        for outbox in circuit.outboxes:
            if outbox.ref not in building.silent:
                result.outboxes[outbox.table] = building.outbox_rows(outbox)
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
    sources: Mapping[str, DataFrame | Rows]
    readers: Mapping[int, tuple[str, ...]]
    by_pane: Collection[int]
    shared: Collection[int]
    """The operators whose delta is worth keeping for all who read it."""
    before: Before
    context: Context
    touched: Touched
    local: LocalRows
    silent: dict[int, Operator]
    pool: ThreadPoolExecutor
    deltas: dict[int, DataFrame | Future[DataFrame]] = field(default_factory=dict)
    late: dict[str, Late] = field(default_factory=dict)
    progress: dict[int, Progress] = field(default_factory=dict)
    """How far each watermark is."""
    of_nothing: set[int] = field(default_factory=set)
    """The operators of which it is known that nothing comes in."""
    lock: Lock = field(default_factory=Lock)
    """Held by who looks at what has been made so far, or adds to it."""
    sizes: dict[int, int] = field(default_factory=dict)
    """About how many relations the plan of each operator's delta names."""

    @property
    def is_large(self) -> bool:
        """Whether there are many rows, and all of them are worked on here."""
        return self.context.is_all_here and not self.context.is_small

    def evaluated(
        self, operator: Operator, silent: Collection[str], result: Evaluated
    ) -> Mapping[str, DataFrame | Rows]:
        """What an operator appends, whose delta is there now, or known to be empty. May be called in
        several threads; what takes long where rows are many is done at the same time. Raises LeftToSpark
        where these have become too many."""
        with self.lock:
            due = self.count_due(operator)
            if not due and _is_silent(operator, silent, self.silent, self.context):
                self.silent[operator.ref] = operator
                return {}
            here = LocalOperators(self.operators, self.silent, self.local, self.touched)
            begun = here.begin(operator, self.context)
        made = None
        if callable(begun):
            if self.is_large and not has_room():
                raise LeftToSpark
            made = begun()
        with self.lock:
            found = here.end(operator, made, self.context) if callable(begun) else begun
            if found is not None:
                return found
            self.check_few(operator)
            return self.evaluated_by_spark(operator, result)

    def evaluated_by_spark(self, operator: Operator, result: Evaluated) -> Mapping[str, DataFrame]:
        """What an operator appends, whose delta is now a frame."""
        evaluation = self.evaluation(operator)
        result.kept.extend(evaluation.kept)
        self.note_size(operator)
        if operator.ref in self.shared:
            self.deltas[operator.ref] = self.kept(operator, evaluation.delta, result)
        else:
            self.deltas[operator.ref] = evaluation.delta
        delta = self.delta(operator.ref) if evaluation.integrals else evaluation.delta
        return evaluation.appended(delta)

    def kept(
        self, operator: Operator, delta: DataFrame, result: Evaluated
    ) -> DataFrame | Future[DataFrame]:
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
        return self.pool.submit(computed, delta, is_large)

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
            return Evaluation(_scan(operator.node, self.sources, self.context))
        if isinstance(operator.node, Values):
            return Evaluation(_values(operator.node, self.context))
        if isinstance(operator.node, Recursive):
            return self._of_recursion(operator)
        judged = self._judged(operator)
        knows_empty = (
            isinstance(operator.node, MultiwayJoin | Temporal) and operator.ref not in self.silent
        )
        # Before the inputs are waited for: it needs none of them.
        state = self.touched.state(operator, self.context)
        inputs = tuple(
            None if knows_empty and ref in self.silent else self.delta(ref)
            for ref in operator.inputs
        )
        if operator.ref in self.by_pane and not self.context.is_small and not self.context.guarding:
            assert isinstance(operator.node, TimeWindow), "it has panes"
            inputs = (net_by_pane(operator.node, self.delta(operator.inputs[0])),)
        if isinstance(operator.node, Window):
            state = self._first_rows(operator, operator.node, state)
        if isinstance(operator.node, Watermark):
            return self._watermark(operator, operator.node, state)
        evaluation = evaluate(operator, inputs, state, self._context_of(operator))
        return replace(evaluation, kept=(*evaluation.kept, *judged)) if judged else evaluation

    def _judged(self, operator: Operator) -> list[DataFrame]:
        """The deltas, now evaluated, of those inputs of which nothing is written that would be; of rows
        that are here that is done."""
        judged = list[DataFrame]()
        for ref, trace in zip(operator.inputs, operator.groups, strict=False):
            is_asked = trace is not None and ref not in self.silent
            if not is_asked or self.context.guarding or not may_fail(self.operators, ref):
                continue
            if not self.local.is_on or self.local.of(ref) is None:
                self.deltas[ref] = made = evaluated_now(self.delta(ref))
                judged.append(made)
        return judged

    def _first_rows(self, operator: Operator, node: Window, state: State) -> State:
        """Of what a LIMIT has to look at, where that is much, what it can give."""
        rows = state.input(0)
        if operator.inputs_stay or rows is None or not is_limit(node):
            return state
        [trace], [ref] = operator.rows, operator.inputs
        if trace is not None:
            size = self.before.trace_size(trace.table)
        else:
            size = max(map(self.before.table_size, sources_below(self.operators, ref)), default=0)
        if size < self.context.long_state:
            return state
        return replace(state, rows=(first_before(node, rows, self.delta(ref), size),))

    def _of_recursion(self, operator: Operator) -> Evaluation:
        """A recursion is told which of the relations beside it have no change, and of those in followed
        tables the rows that were there."""
        anchor = self.delta(operator.inputs[0])
        if operator.ref in self.silent:
            return Evaluation(anchor.where("false"))
        beside = (None if r in self.silent else self.delta(r) for r in operator.inputs[1:])
        wanted = beside_in_tables(operator)
        rows = tuple(
            self.touched.input(operator, place, self.context) if place - 1 in wanted else None
            for place in range(len(operator.inputs))
        )
        traces = {trace.table: self.before.trace(trace.table) for trace in operator.traces}
        state, context = State(rows, traces), self._context_of(operator)
        return evaluate(operator, (anchor, *beside), state, context)

    def _watermark(self, operator: Operator, node: Watermark, state: State) -> Evaluation:
        delta = self.delta(operator.inputs[0])
        evaluation, late, progress = watermark(operator, node, delta, state, self.context)
        self.late[node.source] = late
        self.progress[operator.ref] = progress
        return evaluation

    def _context_of(self, operator: Operator) -> Context:
        """The interval as the operator sees it: for some, watermarks are what time is."""
        node, context = operator.node, self.context
        if operator.ref in self.touched.whole:
            context = replace(context, whole=self.touched.whole[operator.ref])
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

    def delta(self, ref: int) -> DataFrame:
        """An empty delta, too, where it is one branch of a union: its types count. Waits for one that is
        being kept."""
        found = self.deltas.get(ref)
        if found is None:
            found = self._made(ref)
        elif isinstance(found, Future):
            found = found.result()
        self.deltas[ref] = found
        return found

    def check_few(self, operator: Operator) -> None:
        """Before Spark evaluates it. Raises LeftToSpark where it would be sent too many rows."""
        if not self.is_large:
            return
        if not all(ref in self.of_nothing or self._is_empty(ref) for ref in operator.inputs):
            raise LeftToSpark
        self.of_nothing.add(operator.ref)

    def _is_empty(self, ref: int) -> bool:
        rows = self.local.of(ref)
        return rows is not None and not len(rows)

    def outbox_rows(self, outbox: OutboxSpec) -> DataFrame | Rows:
        """A view's change as the outbox has it: netted, under the view's own column names."""
        operator = self.operators[outbox.ref]
        rows = self.local.of(outbox.ref) if self.local.is_on else None
        here = None if rows is None else settled_here(operator, self.operators, rows)
        if here is not None:
            return under_names(here, operator.node.columns, outbox.columns)
        self.check_few(operator)
        delta = settled(operator, self.operators, self.delta(outbox.ref))
        return under_names(delta, operator.node.columns, outbox.columns)

    def _made(self, ref: int) -> DataFrame:
        """Of rows that are here, if only one reads it, and nobody has asked for them, Spark makes it."""
        operator = self.operators[ref]
        if ref in self.silent or isinstance(operator.node, Scan):
            return self.evaluation(operator).delta
        is_wanted = ref in self.shared or self.local.has(ref)
        rows = self.local.of(ref) if is_wanted else None
        return self.evaluation(operator).delta if rows is None else rows.frame(self.context.spark)


def _by_ref(circuit: Circuit) -> Mapping[int, Operator]:
    return {operator.ref: operator for operator in circuit.operators}


def _scan(node: Scan, sources: Mapping[str, DataFrame | Rows], context: Context) -> DataFrame:
    source = sources[node.source]
    delta = source.frame(context.spark) if isinstance(source, Rows) else source
    return delta.select(*columns_of((*node.columns, WEIGHT, STEP)))


def _values(node: Values, context: Context) -> DataFrame:
    """The rows that stand in a query: they come with the first step of all."""
    rows = rows_of(node, context)
    shown = rows if context.is_first else rows.limit(0)
    return shown.select("*", F.lit(FIRST).cast("bigint").alias(STEP))
