"""Plan nodes about time: windows of timestamps, and rows that come and go as time goes on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from lockstep.sql.plans.terms import Expression, require_columns, require_unique

if TYPE_CHECKING:
    from lockstep.sql.plans.nodes import Node

__all__ = ["Temporal", "TimeWindow"]


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
