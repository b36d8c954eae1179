"""What evaluating an operator here gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lockstep_engine.local.linear import Sifted
from lockstep_engine.local.rows import Rows

__all__ = ["LocalEvaluation"]


@dataclass(frozen=True)
class LocalEvaluation:
    """The delta that an operator emits, and what it adds to its traces."""

    delta: Sifted
    appends: Mapping[str, Rows]
