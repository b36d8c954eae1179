"""Plan nodes about time: windows and sessions, and rows that come and go as time goes on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from lockstep.sql.plans.terms import (
    AggregateCall,
    AggregateFunction,
    Expression,
    require_columns,
    require_unique,
)

if TYPE_CHECKING:
    from lockstep.sql.plans.nodes import Node

__all__ = ["SessionGroups", "Temporal", "TimeWindow"]


@dataclass(frozen=True)
class TimeWindow:
    """Adds the column `name`, Spark's struct<start, end> of each window that `timestamp` falls in.

    `size` and `slide` are interval texts as Spark's `window` function takes them ('10 seconds').
    Where they are equal the windows tumble (one row in, one row out); where slide is shorter they
    hop, and a row comes out once a window. A row whose timestamp is null has no window.
    """

    input: Node
    name: str
    timestamp: str
    size: str
    slide: str

    def __post_init__(self) -> None:
        require_columns("TimeWindow", (self.timestamp,), self.input.columns)
        require_unique("TimeWindow", self.columns)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return (*self.input.columns, self.name)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)


@dataclass(frozen=True)
class Temporal:
    """The rows for which `column comparison bound` is true at the time of the step: `bound` is an
    expression over the one column `now`, which never goes back. With `<` and `<=` rows come when
    their time has come, with `>` and `>=` they go; a null never comes.

    `now` is the time of the step or, where there are `watermarks`, the least of them after the step.
    """

    input: Node
    column: str
    comparison: str
    bound: Expression
    watermarks: tuple[Node, ...] = ()

    def __post_init__(self) -> None:
        require_columns("Temporal", (self.column,), self.input.columns)
        require_columns("Temporal (bound)", self.bound.references, ("now",))
        if self.comparison not in ("<", "<=", ">", ">="):
            raise ValueError(f"Temporal compares by <, <=, > or >=, not by {self.comparison!r}")

    @property
    def enters(self) -> bool:
        """True where rows come when their time has come, else they go."""
        return self.comparison.startswith("<")

    @property
    def columns(self) -> tuple[str, ...]:
        return self.input.columns

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input, *self.watermarks)


@dataclass(frozen=True)
class SessionGroups:
    """GROUP BY `keys`, one of which, `window`, is no column of the input but the struct<start, end> of a
    session: rows that are equal in the other keys and follow each other in `time`, none of them more
    than `gap` (an interval text) after the one before. The session ends the gap after its last row.

    Rows of the input stay, and have a time. Aggregates are such as can be put together of those of
    a session's parts.
    """

    input: Node
    keys: tuple[str, ...]
    window: str
    time: str
    gap: str
    aggregates: tuple[AggregateCall, ...]

    def __post_init__(self) -> None:
        if self.window not in self.keys:
            raise ValueError("SessionGroups has the session among its keys")
        require_columns("SessionGroups", (self.time, *self.by), self.input.columns)
        for call in self.aggregates:
            if call.function is AggregateFunction.COLLECTED:
                raise ValueError(f"SessionGroups can't put {call.text} together of parts")
            require_columns("SessionGroups", call.references, self.input.columns)
        require_unique("SessionGroups", self.columns)

    @property
    def by(self) -> tuple[str, ...]:
        """The keys that are columns of the input."""
        return tuple(key for key in self.keys if key != self.window)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return (*self.keys, *(call.name for call in self.aggregates))

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)
