"""Products in which rows are compared with one value: `a > (SELECT max(b) FROM …)`.

The value goes, another comes, and a row that lies beyond both is combined with either, or with none.
Where nobody reads the value itself, what was taken back and what is added are the same then, and only
the rows between the two are of interest.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from lockstep.sql.plans.formula_nodes import Column, Comparison
from lockstep.sql.plans.formulas import formula
from lockstep.sql.plans.nodes import MultiwayJoin

__all__ = ["Threshold", "threshold"]


@dataclass(frozen=True)
class Threshold:
    """Column `bound` of one input, with which `compared` is compared, of the input `other`."""

    bound: str
    other: int
    compared: str


def threshold(node: MultiwayJoin, place: int, read: Collection[str]) -> Threshold | None:
    """What the rows of an input are to those of the other, where `read` are the columns that somebody
    reads of the join; None where they are more, or something else."""
    own = frozenset(node.inputs[place].columns)
    if len(node.inputs) > 2 or node.equalities or own & set(read):
        return None
    conditions = [one for one in node.conditions if own & set(one.references)]
    tree = formula(conditions[0]) if len(conditions) == 1 else None
    match tree:
        case Comparison(_, Column(left), Column(right)) if (left in own) != (right in own):
            bound, compared = (left, right) if left in own else (right, left)
            return Threshold(bound, 1 - place, compared)
        case _:
            return None
