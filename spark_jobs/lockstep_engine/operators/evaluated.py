"""What evaluating an operator gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

__all__ = ["Deltas", "Evaluation", "State"]

Deltas = tuple["DataFrame | None", ...]
"""The deltas of an operator's inputs, None for one that is known to be empty."""

State = Mapping[str, "DataFrame | None"]
"""By trace table: its rows at the version opened, or None where it has none."""


@dataclass(frozen=True)
class Evaluation:
    """The delta that an operator emits, and what it adds to its traces.

    `delta`: the node's columns, `_weight bigint`, `_step bigint`. `appends`, by trace table: key
    and value columns with `_weight` (ROWS, VALUES), or key columns and accumulators (ACCUMULATORS).
    """

    delta: DataFrame
    appends: Mapping[str, DataFrame] = field(default_factory=dict)
