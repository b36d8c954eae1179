"""What evaluating an operator takes and gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from lockstep.sql.circuit import Operator
from lockstep_engine.context import Context
from lockstep_engine.deltas import merge_steps

__all__ = ["Deltas", "Evaluate", "Evaluation", "State"]

Deltas = tuple["DataFrame | None", ...]
"""The deltas of an operator's inputs, None for one that is known to be empty."""


@dataclass(frozen=True)
class State:
    """What was there before an interval.

    `rows`, by input, for operators that look rows of their inputs up: the input's columns and
    `_weight bigint` (rows may cancel), or None where there are none. `traces`, by table: its rows at
    the version opened (a key may have several), or None where it has none.
    """

    rows: tuple[DataFrame | None, ...] = ()
    traces: Mapping[str, DataFrame | None] = field(default_factory=dict)

    def input(self, place: int) -> DataFrame | None:
        """The rows of an input."""
        return self.rows[place] if self.rows else None


@dataclass(frozen=True)
class Evaluation:
    """The delta that an operator emits, what it adds to its traces, and frames that are to be kept until
    both are written.

    `delta`: the node's columns, `_weight bigint`, `_step bigint`. `appends`, by trace table: key
    and value columns with `_weight` (ROWS, VALUES), or key columns and accumulators (ACCUMULATORS).
    `integrals`, by trace table: the columns of one that is the integral of the delta itself.
    """

    delta: DataFrame
    appends: Mapping[str, DataFrame] = field(default_factory=dict)
    kept: tuple[DataFrame, ...] = ()
    integrals: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def appended(self, delta: DataFrame) -> Mapping[str, DataFrame]:
        """All that is added to traces, given the delta as it is kept."""
        own = {table: merge_steps(delta, row) for table, row in self.integrals.items()}
        return {**self.appends, **own}


Evaluate = Callable[[Operator, Deltas, State, Context], Evaluation]
"""`operators.evaluate`, for operators that have others in them."""
