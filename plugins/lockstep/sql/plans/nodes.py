"""Plan nodes: what a view computes, as frozen values that refuse bad input when built.

A plan is a tree (shared sub-trees are equal values) of relations. A relation has named columns; the
names are unique within it, lower case, and every expression over it is Spark SQL text in which each
column stands in backticks. Types are Spark's business and appear only where a person declares them:
on sources.

Nothing here knows of steps, weights or state: that is `incremental`. Nothing here parses: that is
`parse`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property

from lockstep.sql.plans.leaves import Scan, Values
from lockstep.sql.plans.loops import BEFORE, LEVEL, Recursive
from lockstep.sql.plans.terms import (
    AggregateCall,
    AggregateFunction,
    Expression,
    SortKey,
    WindowCall,
    require_columns,
    require_unique,
)
from lockstep.sql.plans.time_nodes import SessionGroups, Temporal, TimeWindow

__all__ = [
    "BEFORE",
    "CHANGE_COLUMNS",
    "LEVEL",
    "Aggregate",
    "AggregateCall",
    "AggregateFunction",
    "Equality",
    "Expression",
    "Filter",
    "Generate",
    "Join",
    "JoinKind",
    "MultiwayJoin",
    "Node",
    "Output",
    "Project",
    "Recursive",
    "Scan",
    "SessionGroups",
    "SortKey",
    "Temporal",
    "TimeWindow",
    "UnionAll",
    "Upsert",
    "Values",
    "Watermark",
    "Weigh",
    "Window",
    "WindowCall",
]

CHANGE_COLUMNS = ("_partition", "_offset", "_deleted")
"""What a Scan of keyed records has beside the declared columns: where a record lies, and whether it
deletes its key. No declared column begins with an underscore."""


@dataclass(frozen=True)
class Output:
    """One output column of a projection."""

    name: str
    expression: Expression


@dataclass(frozen=True)
class Project:
    """Each output is an expression over the input: SELECT without anything else."""

    input: Node
    outputs: tuple[Output, ...]

    def __post_init__(self) -> None:
        require_unique("Project", (output.name for output in self.outputs))
        for output in self.outputs:
            require_columns("Project", output.expression.references, self.input.columns)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return tuple(output.name for output in self.outputs)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True)
class Filter:
    """The rows of the input for which the predicate is true (not false, not null)."""

    input: Node
    predicate: Expression

    def __post_init__(self) -> None:
        require_columns("Filter", self.predicate.references, self.input.columns)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.input.columns

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True)
class Generate:
    """A row once for each row that `generator` makes of it (`explode(x)`, `inline(x)`, ...), with the
    columns `names` added. OUTER forms are functions of their own in Spark: `explode_outer`."""

    input: Node
    generator: Expression
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        require_columns("Generate", self.generator.references, self.input.columns)
        require_unique("Generate", self.columns)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return (*self.input.columns, *self.names)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True)
class Weigh:
    """Each row as often as the integer `weight` says, times as often as it is there; at 0 it is gone.

    With the weight -1 it is what another relation is taken from: UNION ALL of a and Weigh(b, -1) is
    a without b, where b's rows are among those of a.
    """

    input: Node
    weight: Expression

    def __post_init__(self) -> None:
        require_columns("Weigh", self.weight.references, self.input.columns)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.input.columns

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True)
class UnionAll:
    """All rows of all inputs; the inputs have the same column names in the same order."""

    branches: tuple[Node, ...]

    def __post_init__(self) -> None:
        if len(self.branches) < 2:
            raise ValueError(f"UnionAll takes two or more inputs, not {len(self.branches)}")
        for branch in self.branches[1:]:
            if branch.columns != self.branches[0].columns:
                raise ValueError(
                    f"UnionAll takes inputs of the same columns: {self.branches[0].columns} "
                    f"and {branch.columns} differ"
                )

    @property
    def columns(self) -> tuple[str, ...]:
        return self.branches[0].columns

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.branches


class JoinKind(Enum):
    """What a join gives: pairs, and what else, or only rows of the left side.

    INNER  every pair that matches
    LEFT   and every left row without a match, with nulls
    FULL   and every right row without a match, with nulls
    SEMI   left rows that have a match, each as often as it is there
    ANTI   left rows that have none
    """

    INNER = "inner"
    LEFT = "left"
    FULL = "full"
    SEMI = "semi"
    ANTI = "anti"

    @property
    def shows_right(self) -> bool:
        """True where the right side's columns are in the output."""
        return self not in (JoinKind.SEMI, JoinKind.ANTI)


@dataclass(frozen=True)
class Join:
    """Rows of left and right match where their keys are equal and `condition`, over the columns of
    both, is true. Without keys every pair is tried.

    The column names of left and right are disjoint; `left_keys[i]` is equated with `right_keys[i]`,
    by `<=>` where `null_safe[i]`, else by `=`, for which null never matches. The circuit has multiway
    joins instead: `expansion` writes other kinds than INNER out, `multiway` merges what is left.
    """

    left: Node
    right: Node
    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    condition: Expression | None = None
    kind: JoinKind = JoinKind.INNER
    null_safe: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        if not self.null_safe:
            object.__setattr__(self, "null_safe", (False,) * len(self.left_keys))
        if not len(self.left_keys) == len(self.right_keys) == len(self.null_safe):
            raise ValueError(
                f"Join equates keys pairwise: {len(self.left_keys)} on the left, "
                f"{len(self.right_keys)} on the right, {len(self.null_safe)} ways to equate"
            )
        require_columns("Join (left)", self.left_keys, self.left.columns)
        require_columns("Join (right)", self.right_keys, self.right.columns)
        require_unique("Join", self.both)
        if self.condition is not None:
            require_columns("Join", self.condition.references, self.both)

    @cached_property
    def both(self) -> tuple[str, ...]:
        """The columns that `condition` can read."""
        return (*self.left.columns, *self.right.columns)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.both if self.kind.shows_right else self.left.columns

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    @property
    def keys(self) -> tuple[tuple[str, str, bool], ...]:
        """Left column, right column, and whether null equals null."""
        return tuple(zip(self.left_keys, self.right_keys, self.null_safe, strict=True))

    def mirrored(self, kind: JoinKind) -> Join:
        """The sides in each other's place."""
        return replace(
            self,
            left=self.right,
            right=self.left,
            left_keys=self.right_keys,
            right_keys=self.left_keys,
            kind=kind,
        )


@dataclass(frozen=True)
class Equality:
    """`left = right`, columns of two inputs of a join; by `<=>` where `null_safe`."""

    left: str
    right: str
    null_safe: bool = False

    @property
    def mirrored(self) -> Equality:
        """The same with the columns in each other's place."""
        return Equality(self.right, self.left, self.null_safe)

    @property
    def text(self) -> str:
        """The equality as Spark SQL."""
        return f"`{self.left}` {'<=>' if self.null_safe else '='} `{self.right}`"


@dataclass(frozen=True)
class MultiwayJoin:
    """Every combination of a row of each input in which all equalities and conditions are true.

    The inputs' column names are disjoint. Conditions read any columns.
    """

    inputs: tuple[Node, ...]
    equalities: tuple[Equality, ...] = ()
    conditions: tuple[Expression, ...] = ()

    def __post_init__(self) -> None:
        if len(self.inputs) < 2:
            raise ValueError(f"MultiwayJoin takes two or more inputs, not {len(self.inputs)}")
        require_unique("MultiwayJoin", self.columns)
        of = {name: place for place, one in enumerate(self.inputs) for name in one.columns}
        for equality in self.equalities:
            require_columns("MultiwayJoin", (equality.left, equality.right), self.columns)
            if of[equality.left] == of[equality.right]:
                raise ValueError(f"{equality.text} is within one input: it is a filter of it")
        for condition in self.conditions:
            require_columns("MultiwayJoin", condition.references, self.columns)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return tuple(name for one in self.inputs for name in one.columns)


@dataclass(frozen=True)
class Aggregate:
    """GROUP BY `keys`, which are columns of the input; null keys form a group, as in SQL.

    Without aggregates it is SELECT DISTINCT. Without keys there is exactly one output row, also
    over empty input. DISTINCT inside an aggregate is rewritten before this node is built.
    """

    input: Node
    keys: tuple[str, ...]
    aggregates: tuple[AggregateCall, ...]

    def __post_init__(self) -> None:
        if not self.keys and not self.aggregates:
            raise ValueError("Aggregate takes at least one key or one aggregate")
        require_columns("Aggregate", self.keys, self.input.columns)
        for call in self.aggregates:
            require_columns("Aggregate", call.references, self.input.columns)
        require_unique("Aggregate", self.columns)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return (*self.keys, *(call.name for call in self.aggregates))

    @cached_property
    def collected(self) -> tuple[AggregateCall, ...]:
        """The calls that are computed anew for groups that changed."""
        return tuple(call for call in self.aggregates if call.expression is not None)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True)
class Window:
    """Each row with the value of each call over the rows that are equal in `partition` (null equals
    null), which are columns of the input. Where a call's order leaves ties, the order of all columns
    decides. A call can read the columns of calls before it.

    With `first` there is one call, a rank, and only the rows ranked as far as that are given."""

    input: Node
    partition: tuple[str, ...]
    calls: tuple[WindowCall, ...]
    first: int | None = None

    def __post_init__(self) -> None:
        if not self.calls:
            raise ValueError("Window takes at least one call")
        if self.first is not None and not (len(self.calls) == 1 and self.calls[0].is_rank):
            raise ValueError("Window gives the first rows of one rank only")
        require_columns("Window", self.partition, self.input.columns)
        for place, call in enumerate(self.calls):
            earlier = (one.name for one in self.calls[:place])
            require_columns("Window", call.references, (*self.input.columns, *earlier))
        require_unique("Window", self.columns)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return (*self.input.columns, *(call.name for call in self.calls))

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True)
class Watermark:
    """The rows of a source that are on time: whose `column` is not below the watermark, the greatest
    value of the steps before less `delay` microseconds. The others go to the source's late table.

    Every view of the source reads this one node, over all columns, and nothing is pruned or filtered
    below it: late is said of a row, whatever a view makes of it.
    """

    input: Node
    column: str
    delay: int

    def __post_init__(self) -> None:
        require_columns("Watermark", (self.column,), self.input.columns)

    @property
    def source(self) -> str:
        """The source whose rows are looked at."""
        if not isinstance(self.input, Scan):
            raise ValueError(f"Watermark takes a Scan, not a {type(self.input).__name__}")
        return self.input.source

    @property
    def columns(self) -> tuple[str, ...]:
        return self.input.columns

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True)
class Upsert:
    """The table that keyed records describe: of each key the row of its last record, or none where
    that deletes it. The last is the one of the latest step and, in it, of the greatest partition
    and offset: records of a key lie in one partition, in their order.

    The input has the columns of the table, `keys` among them, and then CHANGE_COLUMNS. Every view
    of the source reads this one node: nothing is pruned or filtered below it, as each view would
    then have a state of its own, and a filter on other columns than keys would show older rows.
    """

    input: Node
    keys: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.keys:
            raise ValueError("Upsert takes at least one key")
        if self.input.columns[-len(CHANGE_COLUMNS) :] != CHANGE_COLUMNS:
            raise ValueError(f"Upsert takes an input that ends in {', '.join(CHANGE_COLUMNS)}")
        require_unique("Upsert", self.keys)
        require_columns("Upsert", self.keys, self.columns)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return self.input.columns[: -len(CHANGE_COLUMNS)]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


Node = (
    Scan
    | Values
    | Project
    | Filter
    | Generate
    | TimeWindow
    | Temporal
    | Weigh
    | UnionAll
    | Join
    | MultiwayJoin
    | Aggregate
    | Window
    | Upsert
    | Recursive
    | Watermark
    | SessionGroups
)
