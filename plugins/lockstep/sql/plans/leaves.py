"""Plan nodes without inputs: the rows of sources, and rows that stand in the query itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lockstep.sql.plans.shapes import Shape
from lockstep.sql.plans.terms import Expression, require_columns, require_unique

if TYPE_CHECKING:
    from lockstep.sql.plans.nodes import Node

__all__ = ["Scan", "Values"]


@dataclass(frozen=True)
class Scan:
    """The rows of a source, decoded; `columns` are those that the plan needs, in declared order.

    `shapes` are what is known of those that are nested, for names that are read of them.
    """

    source: str
    columns: tuple[str, ...]
    shapes: Mapping[str, Shape] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        require_unique(f"Scan of {self.source}", self.columns)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()


@dataclass(frozen=True)
class Values:
    """Rows that stand in the query itself: VALUES, or SELECT without FROM. Expressions read nothing."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Expression, ...], ...]

    def __post_init__(self) -> None:
        require_unique("Values", self.columns)
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"Values has {len(self.columns)} columns and a row of {len(row)}")
            for expression in row:
                require_columns("Values", expression.references, ())

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()
