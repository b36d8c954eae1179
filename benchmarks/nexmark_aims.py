"""What is aimed at on Nexmark, and whether the figures reach it.

An aim counts all queries for which both figures are there: an engine that refuses a query is not
beaten on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any

__all__ = ["AIMS", "Aim", "aims"]

Figures = Mapping[str, Mapping[str, int | None]]
"""By query, by engine: events a second, or None."""


@dataclass(frozen=True)
class Aim:
    """`ours` is to reach `least` times `theirs`: in the geometric mean, or on every query."""

    name: str
    ours: str
    theirs: str
    least: float
    is_mean: bool


AIMS = (
    Aim("above Flink SQL on every query", "lockstep", "flink_sql", 1, is_mean=False),
    Aim("3 times Flink SQL in the mean", "lockstep", "flink_sql", 3, is_mean=True),
    Aim(
        "above Structured Streaming on every query",
        "lockstep",
        "structured_streaming",
        1,
        is_mean=False,
    ),
    Aim(
        "4 times Structured Streaming in the mean",
        "lockstep",
        "structured_streaming",
        4,
        is_mean=True,
    ),
    # Spark's writes nothing.
    Aim(
        "engine alone: 1.25 times the seconds of Spark's batch query, or fewer, on every query",
        "lockstep_engine",
        "spark_batch_decoded",
        0.8,
        is_mean=False,
    ),
    Aim(
        "with its writes: 1.25 times the seconds of Spark's batch query, or fewer, on every query",
        "lockstep_decoded",
        "spark_batch_decoded",
        0.8,
        is_mean=False,
    ),
    Aim(
        "operators alone: DBSP's rate on every query",
        "lockstep_operators",
        "dbsp",
        1,
        is_mean=False,
    ),
)


def aims(figures: Figures) -> dict[str, dict[str, Any]]:
    """Those of which there are figures: target, measured, and whether it holds."""
    found = {}
    for aim in AIMS:
        ratios = _ratios(figures, aim)
        if ratios:
            found[aim.name] = _judged(ratios, aim)
    return found


def _ratios(figures: Figures, aim: Aim) -> dict[str, float]:
    found = {}
    for query, by_engine in figures.items():
        ours, theirs = by_engine.get(aim.ours), by_engine.get(aim.theirs)
        if ours and theirs:
            found[query] = ours / theirs
    return found


def _judged(ratios: Mapping[str, float], aim: Aim) -> dict[str, Any]:
    mean = geometric_mean(ratios.values())
    worst = min(ratios, key=lambda query: ratios[query])
    reached = sum(ratio >= aim.least for ratio in ratios.values())
    measured = (
        f"{mean:.2f} in the geometric mean of {len(ratios)} queries, {reached} of them at "
        f"{aim.least:g} or above, least {ratios[worst]:.2f} ({worst})"
    )
    holds = mean >= aim.least if aim.is_mean else reached == len(ratios)
    return {"target": f"a ratio of {aim.least:g}", "measured": measured, "holds": holds}
