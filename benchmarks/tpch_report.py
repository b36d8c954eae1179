"""The table and the plot of `tpch.json`.

python benchmarks/tpch_report.py
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import geometric_mean
from typing import Any

__all__ = ["load", "plot", "table"]

Result = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""By scale ('sf1'), by query ('q1'): seconds and ratio."""


def load(path: Path) -> Result:
    """What was measured, without what is said of the machine."""
    saved = json.loads(path.read_text(encoding="utf-8"))
    return {key: value for key, value in saved.items() if key.startswith("sf")}


def table(result: Result) -> str:
    """Each scale's queries in Markdown, with the geometric mean of their ratios; of a larger one also
    what as many changed rows take as at 1."""
    lines = []
    for scale, queries in result.items():
        growth = _growth(queries, result.get("sf1", {}))
        heads = ["query", "first interval (s)", "interval of the change (s)", "full recompute (s)"]
        heads += ["ratio", *(["of as many rows as at 1 (s)", "against 1"] if growth else [])]
        rows = list[list[str]]()
        for name, one in queries.items():
            row = [
                name,
                f"{one['first_interval_seconds']:.1f}",
                f"{one['incremental_seconds']:.2f}",
                f"{one['full_seconds']:.2f}",
                f"{one['ratio']:.1f}{'' if one['equal'] else ' WRONG'}",
            ]
            if growth:
                known = name in growth
                row += (
                    [f"{one['same_rows_seconds']:.2f}", f"{growth[name]:.2f}"]
                    if known
                    else ["", ""]
                )
            rows.append(row)
        ratios = [one["ratio"] for one in queries.values()]
        lines += [f"### Scale factor {scale.removeprefix('sf')}", ""]
        lines += [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
        lines += [f"| {' | '.join(row)} |" for row in rows]
        said = (
            f"Geometric mean of the ratios: {geometric_mean(ratios):.2f}; least {min(ratios):.2f}."
        )
        if growth:
            mean, most = geometric_mean(growth.values()), max(growth.values())
            said += (
                f" As many changed rows take {mean:.2f} times as long as at 1 in the geometric mean, "
                f"{most:.2f} times at most."
            )
        lines += ["", said, ""]
    return "\n".join(lines)


def _growth(
    queries: Mapping[str, Mapping[str, Any]], smallest: Mapping[str, Mapping[str, Any]]
) -> dict[str, float]:
    """By query, how many times as long an interval takes as at scale factor 1 for as many rows."""
    return {
        name: one["same_rows_seconds"] / smallest[name]["incremental_seconds"]
        for name, one in queries.items()
        if "same_rows_seconds" in one and name in smallest
    }


def plot(result: Result, path: Path) -> None:
    """Seconds by query, the interval beside the recompute, one row of bars a scale."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, rows = pyplot.subplots(len(result), 1, figsize=(10, 3 * len(result)), squeeze=False)
    for axes, (scale, queries) in zip(rows[:, 0], result.items(), strict=True):
        places = range(len(queries))
        bars = (("incremental_seconds", "interval of the change"), ("full_seconds", "recompute"))
        for shift, (key, label) in zip((-0.2, 0.2), bars, strict=True):
            axes.bar(
                [place + shift for place in places],
                [one[key] for one in queries.values()],
                width=0.4,
                label=label,
            )
        axes.set_xticks(list(places), list(queries))
        axes.set_ylabel("seconds")
        axes.set_title(f"TPC-H, scale factor {scale.removeprefix('sf')}, change of 0.1 %")
        axes.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Print the table, write the plot."""
    here = Path(__file__).parent
    result = load(here / "tpch.json")
    print(table(result))
    plot(result, here / "tpch.svg")


if __name__ == "__main__":
    main()
