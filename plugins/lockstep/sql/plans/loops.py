"""The node of WITH RECURSIVE: levels of rows, each made from the one before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lockstep.sql.plans.leaves import Scan

if TYPE_CHECKING:
    from lockstep.sql.plans.nodes import Node

__all__ = [
    "BEFORE",
    "LEVEL",
    "Recursive",
    "leaf_beside",
    "leaf_of_level",
    "reads_level",
    "sources_read",
]

BEFORE, LEVEL = "the level before", "_level"
"""What the step of a Recursive reads of itself: a leaf, and its column that counts from 0."""
_LEAF_OF_LEVEL = "recursion "


def leaf_of_level(number: int) -> str:
    """What a step reads of itself until it is cut: the leaf of the recursion of that number."""
    return f"{_LEAF_OF_LEVEL}{number}"


def reads_level(node: Node) -> bool:
    """Whether a plan reads such a leaf."""
    return any(source.startswith(_LEAF_OF_LEVEL) for source in sources_read(node))


def sources_read(node: Node) -> Iterator[str]:
    """The sources of the leaves of a plan."""
    if isinstance(node, Scan):
        yield node.source
    for below in node.inputs:
        yield from sources_read(below)


def leaf_beside(place: int) -> str:
    """The leaf in a step that stands for the relation of that number beside the recursion."""
    return f"beside {place}"


@dataclass(frozen=True)
class Recursive:
    """WITH RECURSIVE: the rows of `anchor` are level 0, what `step` makes of a level is the next one.

    `step` is a plan of its own, over the leaves BEFORE and `leaf_beside(0)`, `leaf_beside(1)`, …, which
    stand for the rows of one level and for the relations `beside`; it has the columns of `anchor` and
    LEVEL. `plans.recursion` builds it. Rows at level `limit` are an error, which says `name`.
    """

    anchor: Node
    beside: tuple[Node, ...]
    step: Node
    limit: int
    name: str = field(compare=False)

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise ValueError(f"Recursive takes a limit of 1 level or more, not {self.limit}")
        if self.step.columns != (*self.anchor.columns, LEVEL):
            raise ValueError(
                f"Recursive takes a step of the columns {self.anchor.columns} and the level, "
                f"not {self.step.columns}"
            )

    @property
    def columns(self) -> tuple[str, ...]:
        return self.anchor.columns

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.anchor, *self.beside)
