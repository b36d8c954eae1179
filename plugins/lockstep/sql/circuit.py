"""The circuit: the plans of all views of a project as one list of operators with their traces.

`incremental.build_circuit` makes it, `explain` prints it, the engine interprets it. Equal sub-plans
are one operator. Operators stand in the order in which they can be evaluated: inputs first.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain

from lockstep.errors import Position
from lockstep.ids import outbox_table
from lockstep.sql.plans.nodes import Node, Scan, Temporal, Upsert, Watermark
from lockstep.sql.plans.nodes import Project as Projection

__all__ = [
    "MADE_SUFFIX",
    "ON_ERROR",
    "PARTITION_GROUPING",
    "PARTITION_MAPPER",
    "PUBLISH",
    "PYTHON_SUFFIX",
    "SMALL_RECORDS",
    "Circuit",
    "Cost",
    "Operator",
    "OutboxSpec",
    "Past",
    "Project",
    "ProjectFiles",
    "SinkTable",
    "SourceColumn",
    "SourceTable",
    "TraceKind",
    "TraceSpec",
    "View",
    "columns_read",
    "operators_above",
    "readers",
    "sources_below",
]


PYTHON_SUFFIX, MADE_SUFFIX = ".py", ".py.sql"

ON_ERROR = "lockstep.on_error"
"""The setting that says what becomes of a row for which an expression fails: `table` or `fail`."""

PUBLISH = "lockstep.publish"
"""The setting that says when the steps of an interval are published: `interval` or `step`."""

PARTITION_MAPPER = "lockstep.partition_mapper"
"""The setting that names the function which says of a new partition where its keys were: `modulo`, or
`package.module:function`."""

PARTITION_GROUPING = "lockstep.partition_grouping"
"""The setting that says which partitions are read together: `partition`, `source-partition`, `all`."""


@dataclass(frozen=True)
class ProjectFiles:
    """A project as text, the form in which a deploy records it: the spec and every library file.

    `files` maps a path relative to the project's folder to its content, sorted by path. The SQL that was
    made from `views.py` is `views.py.sql`.
    """

    spec: str
    files: tuple[tuple[str, str], ...]
    folder: str = ""

    @property
    def written(self) -> tuple[tuple[str, str], ...]:
        """The files that a person wrote."""
        return tuple(one for one in self.files if not one[0].endswith(MADE_SUFFIX))


@dataclass(frozen=True)
class SourceColumn:
    """A declared column of a source: `name` as written, `type` as Spark DDL text."""

    name: str
    type: str
    nullable: bool = True

    @property
    def key(self) -> str:
        """The name inside plans: lower case."""
        return self.name.lower()


@dataclass(frozen=True)
class SourceTable:
    """CREATE TABLE name (columns) USING kafka or iceberg OPTIONS (...); option keys are lower case."""

    name: str
    columns: tuple[SourceColumn, ...]
    provider: str
    options: Mapping[str, str] = field(hash=False)
    position: Position = field(compare=False)

    @property
    def is_table(self) -> bool:
        """Whether it follows the snapshots of an Iceberg table; else it reads a topic."""
        return self.provider == "iceberg"

    @property
    def topic(self) -> str:
        """The topic's name, '' for a table."""
        return self.options.get("subscribe", "")

    @property
    def table(self) -> str:
        """The followed table's full name, '' for a topic."""
        return self.options.get("table", "")

    @property
    def append_only(self) -> bool:
        """Whether rows are never taken away: a topic's cannot be, a table's where the source says so."""
        return not self.is_table or self.options.get("append_only") == "true"

    @property
    def absent_is_null(self) -> bool:
        """Whether a record may lack nullable columns; else it is a bad one."""
        return self.options.get("missing_columns", "error") == "null"


@dataclass(frozen=True)
class View:
    """A view: `columns` are the names as written, one for each of `plan.columns`, in order.

    A temporary view is not published; it only has a name that other views can use. An audit is
    published as its changes alone: while it has rows, no sink moves. One that `says_both`, TEMPORARY and
    MATERIALIZED, is published where it is recorded, and deployed no more. What its table says is no part
    of what it computes: `comment` (None: what is there), and `column_comments` by columns as written.
    """

    name: str
    plan: Node
    columns: tuple[str, ...]
    published: bool
    sql: str = field(compare=False)
    position: Position = field(compare=False)
    audit: bool = False
    says_both: bool = field(default=False, compare=False)
    comment: str | None = field(default=None, compare=False)
    column_comments: Mapping[str, str] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class SinkTable:
    """CREATE SINK name FROM view USING kafka OPTIONS (...)."""

    name: str
    view: str
    provider: str
    options: Mapping[str, str] = field(hash=False)
    position: Position = field(compare=False)

    @property
    def steps_together(self) -> bool:
        """Whether no shard begins a step before all shards have the one before."""
        return self.options.get("steps_together", "false").lower() == "true"


@dataclass(frozen=True)
class PythonFunction:
    """CREATE FUNCTION name USING python OPTIONS (...): a deterministic function of a row's values.

    `returns` is a type as Spark's DDL, `kind` Spark's number for how its workers call the function
    (`pyspark.util.PythonEvalType`), `python` the version that pickled it, as 3.11, and `command` what
    it pickled, in base64.
    """

    name: str
    returns: str
    kind: int
    python: str
    command: str = field(repr=False)
    position: Position = field(compare=False)

    @property
    def pickled(self) -> bytes:
        """What the command says."""
        return base64.b64decode(self.command)


@dataclass(frozen=True)
class Project:
    """A project, parsed and checked; names are unique over sources, views and sinks."""

    name: str
    catalog: str
    database: str
    configuration: Mapping[str, str] = field(hash=False)
    sources: tuple[SourceTable, ...]
    views: tuple[View, ...]
    sinks: tuple[SinkTable, ...]
    functions: tuple[PythonFunction, ...] = ()

    @property
    def keeps_failed_rows(self) -> bool:
        """Whether a row for which an expression fails goes to a table; else it stops the interval."""
        return self.configuration.get(ON_ERROR, "table") == "table"

    @property
    def publishes_steps(self) -> bool:
        """Whether the steps of an interval are published one after another; else all at its end."""
        return self.configuration.get(PUBLISH, "interval") == "step"


SMALL_RECORDS = 200_000
"""Of an interval of up to so many source records the change goes to where the state lies; of a larger
one both are exchanged by the operator's keys."""


class Cost(Enum):
    """What the work of an operator in one interval grows with."""

    CHANGE = "change"
    STATE = "state"


class TraceKind(Enum):
    """What the rows of a trace are.

    ROWS          the integral of an input: its columns and `_weight`
    RECENT        of that, the rows that are not past
    FIRST         of that, the rows that the operator's rank puts first, where rows stay
    ACCUMULATORS  per key, sums (or min/max on append-only input) that merge over rows
    VALUES        per key, the distinct values of one argument, with `_weight`
    SESSIONS      per key, sessions with their bounds and accumulators, and `_weight`
    """

    ROWS = "rows"
    RECENT = "recent rows"
    FIRST = "first rows"
    ACCUMULATORS = "accumulators"
    VALUES = "values"
    SESSIONS = "sessions"


@dataclass(frozen=True)
class Past:
    """Which rows of a trace nothing can change any more, nor meet: those of which the least of the
    watermarks has passed all `ends`, timestamps as SQL over its columns; where it `is_exclusive`, those
    of which it has reached them. The watermarks are traces with, each, its delay in microseconds."""

    ends: tuple[str, ...]
    watermarks: tuple[tuple[str, int], ...]
    is_exclusive: bool = True


@dataclass(frozen=True)
class TraceSpec:
    """One trace table: `_trace_` and 16 hex digits of the hash of the plan that it serves.

    `key` are the columns by which it is looked up; `columns` the other columns that it holds
    (for ACCUMULATORS and SESSIONS the engine names them: `columns` is empty). `past` are rows that
    merging may leave out. `is_index`: a followed table has the rows, too, in another order.
    """

    table: str
    kind: TraceKind
    key: tuple[str, ...]
    columns: tuple[str, ...]
    past: Past | None = None
    is_index: bool = False

    @property
    def row(self) -> tuple[str, ...]:
        """All columns but the weight, those of the key first."""
        return (*self.key, *self.columns)


@dataclass(frozen=True)
class Operator:
    """One node of the circuit: `node.inputs` are stood for by the refs in `inputs`.

    `append_only`: its output never has a negative weight; `inputs_stay`: nor has any of its inputs.
    `uses`: how many operators and outboxes read its output, so that the engine knows what is worth
    keeping. `rows`, where the operator looks up rows of its inputs that were there before an interval:
    by input their trace, which is among `traces`, or None where followed tables have them, at the
    snapshots that the interval starts from, or an aggregate's own trace, which is then in `groups`, from
    which they are made group by group. `summed`,
    of an aggregate whose rows can be read off its accumulators: the arguments that it adds up, with
    their types; else None. `body`: the step of a Recursive as operators of their own,
    which refer to one another. `digest` names what it computes from which sources, the same in every
    process and release.
    """

    ref: int
    node: Node
    inputs: tuple[int, ...]
    traces: tuple[TraceSpec, ...]
    append_only: bool
    inputs_stay: bool
    cost: Cost
    uses: int
    rows: tuple[TraceSpec | None, ...] = ()
    groups: tuple[TraceSpec | None, ...] = ()
    summed: tuple[tuple[str, str], ...] | None = None
    body: tuple[Operator, ...] = ()
    digest: str = ""

    @property
    def accumulators(self) -> TraceSpec:
        """The one trace of them that an aggregate has."""
        [found] = (one for one in self.traces if one.kind is TraceKind.ACCUMULATORS)
        return found


def sources_below(
    operators: Mapping[int, Operator] | Sequence[Operator], ref: int
) -> Iterator[str]:
    """The sources that an operator's rows come from, one as often as it is read."""
    node = operators[ref].node
    if isinstance(node, Scan):
        yield node.source
    for below in operators[ref].inputs:
        yield from sources_below(operators, below)


def columns_read(operators: Mapping[int, Operator], operator: Operator) -> frozenset[str]:
    """The columns of an operator's rows that somebody reads: where others than projections do, all."""
    readers = [one for one in operators.values() if operator.ref in one.inputs]
    projections = [one.node for one in readers if isinstance(one.node, Projection)]
    if len(projections) < operator.uses:
        return frozenset(operator.node.columns)
    read = (out.expression.references for one in projections for out in one.outputs)
    return frozenset(chain.from_iterable(read))


@dataclass(frozen=True)
class OutboxSpec:
    """The changes of a published view: Iceberg table `<view>_changes`, view table `<view>`, which an
    audit has not."""

    view: str
    ref: int
    columns: tuple[str, ...]
    audit: bool = False

    @property
    def table(self) -> str:
        return outbox_table(self.view)


@dataclass(frozen=True)
class Circuit:
    """All operators of a project, inputs first, and what is published."""

    operators: tuple[Operator, ...]
    outboxes: tuple[OutboxSpec, ...]

    @property
    def traces(self) -> tuple[TraceSpec, ...]:
        """Every trace once, in the order of the operators."""
        return tuple(
            dict.fromkeys(trace for operator in self.operators for trace in operator.traces)
        )

    @property
    def indexes(self) -> frozenset[str]:
        """The traces whose rows followed tables have in another order."""
        return frozenset(trace.table for trace in self.traces if trace.is_index)

    @property
    def reads_time(self) -> bool:
        """Whether a view changes as time goes on, without any input."""
        return any(
            isinstance(operator.node, Temporal) and not operator.node.watermarks
            for operator in self.operators
        )

    @property
    def needs_divisions(self) -> bool:
        """Whether the rows of a view depend on which step a record was in: a row below a watermark is
        late, and of a key in several partitions the last step wins. Else all records can be one step."""
        return any(isinstance(operator.node, Watermark | Upsert) for operator in self.operators)


def operators_above(circuit: Circuit, sources: Collection[str]) -> set[int]:
    """The refs of the operators whose rows come from these sources."""
    found: set[int] = set()
    for operator in circuit.operators:
        is_read = isinstance(operator.node, Scan) and operator.node.source in sources
        if is_read or found & set(operator.inputs):
            found.add(operator.ref)
    return found


def readers(circuit: Circuit) -> Mapping[int, tuple[str, ...]]:
    """By operator, the published views that its rows are for, sorted."""
    found: dict[int, set[str]] = {operator.ref: set() for operator in circuit.operators}
    for outbox in circuit.outboxes:
        found[outbox.ref].add(outbox.view)
    for operator in reversed(circuit.operators):
        for below in operator.inputs:
            found[below] |= found[operator.ref]
    return {ref: tuple(sorted(views)) for ref, views in found.items()}
