"""The tables of what `scaling.py` has saved.

python benchmarks/scaling_report.py
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["measured_table", "pause_table", "simulated_table", "tables"]

RESULT = Path(__file__).with_name("scaling.json")


def pause_table(result: Mapping[str, Any]) -> str:
    """The figures of `measure_pauses`."""
    lines = [
        "| change | rounds | gap, median (s) | gap, longest (s) | interval after, median (s) "
        "| interval after, longest (s) | the change itself, median (s) |",
        "|---|---|---|---|---|---|---|",
    ]
    for way in ("no change", "hot", "cold"):
        one = result[way]
        names = ("gap_median", "gap_max", "interval_median", "interval_max", "change_median")
        shown = " | ".join(f"{one[name]:.2f}" if name in one else "–" for name in names)
        lines.append(f"| {way} | {len(one['gaps'])} | {shown} |")
    return "\n".join(lines) + "\n"


def measured_table(result: Mapping[str, Any]) -> str:
    """The measured figures of `measure_growth`."""
    lines = [
        "| cores | workers | best (s) | median (s) | plan (s) | run (s) | publish (s) |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in result["measured"]:
        seconds = (one["best"], one["median"], *one["stages"].values())
        shown = " | ".join(f"{value:.2f}" for value in seconds)
        lines.append(f"| {one['cores']} | {one['workers']} | {shown} |")
    return "\n".join(lines) + "\n"


def simulated_table(result: Mapping[str, Any]) -> str:
    """The simulated figures of `measure_growth`, beside what was measured."""
    measured = {(one["cores"], one["workers"]): one["median"] for one in result["measured"]}
    logged, simulated = result["logged"], result["simulated"]
    most = max(map(int, logged))
    lines = [
        "| cores and workers | tasks | seconds of tasks | simulated (s) | times as fast "
        f"| measured (s) | under {most} workers: simulated (s) | measured (s) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for text, one in simulated.items():
        cores, log = int(text), logged[text]
        times = simulated["1"]["as_many"] / one["as_many"]
        lines.append(
            f"| {cores} | {log['tasks']} | {log['task_seconds']:.2f} | {one['as_many']:.2f} "
            f"| {times:.2f} | {_shown(measured.get((cores, cores)))} "
            f"| {one['most']:.2f} | {_shown(measured.get((cores, most)))} |"
        )
    return "\n".join(lines) + "\n"


def _shown(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds:.2f}"


def tables(result: Mapping[str, Any]) -> str:
    """All that there are figures for."""
    found = [pause_table(result["pause"])] if "pause" in result else []
    if "growth" in result:
        found += [measured_table(result["growth"]), simulated_table(result["growth"])]
    return "\n".join(found)


if __name__ == "__main__":
    print(tables(json.loads(RESULT.read_text("utf-8"))))
