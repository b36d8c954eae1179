"""What is aimed at on Nexmark, and whether the figures reach it.

An aim counts all queries for which both figures are there: an engine that refuses a query is not
beaten on it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

__all__ = ["aims", "geometric_mean"]

Figures = Mapping[str, Mapping[str, int | None]]
"""By query, by engine: events a second, or None."""


def aims(figures: Figures) -> dict[str, dict[str, Any]]:
    """Those of which there are figures: target, measured, and whether it holds."""
    asked = (
        ("above Flink SQL on every query", "lockstep", "flink_sql", 1.0, False),
        ("3 times Flink SQL in the geometric mean", "lockstep", "flink_sql", 3.0, True),
        (
            "above Structured Streaming on every query",
            "lockstep",
            "structured_streaming",
            1.0,
            False,
        ),
        (
            "4 times Structured Streaming in the geometric mean",
            "lockstep",
            "structured_streaming",
            4.0,
            True,
        ),
        (
            "engine alone within 1.25 times the seconds of Spark's batch on every query",
            "lockstep_decoded",
            "spark_batch_decoded",
            1 / 1.25,
            False,
        ),
        ("engine alone at or above DBSP on every query", "lockstep_decoded", "dbsp", 1.0, False),
    )
    found = {}
    for aim, ours, theirs, least, is_mean in asked:
        ratios = _ratios(figures, ours, theirs)
        if ratios:
            found[aim] = _judged(ratios, least, is_mean)
    return found


def geometric_mean(values: list[float]) -> float:
    """Of numbers above 0."""
    return math.exp(sum(map(math.log, values)) / len(values))


def _ratios(figures: Figures, ours: str, theirs: str) -> dict[str, float]:
    found = {}
    for query, by_engine in figures.items():
        one, other = by_engine.get(ours), by_engine.get(theirs)
        if one and other:
            found[query] = one / other
    return found


def _judged(ratios: Mapping[str, float], least: float, is_mean: bool) -> dict[str, Any]:
    mean = geometric_mean(list(ratios.values()))
    worst = min(ratios, key=lambda query: ratios[query])
    reached = sum(ratio >= least for ratio in ratios.values())
    measured = (
        f"{mean:.2f} in the geometric mean of {len(ratios)} queries, {reached} of them at "
        f"{least:.2g} or above, least {ratios[worst]:.2f} ({worst})"
    )
    holds = mean >= least if is_mean else reached == len(ratios)
    return {"target": f"a ratio of {least:.2g}", "measured": measured, "holds": holds}
