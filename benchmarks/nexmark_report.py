"""The tables and the plot of Nexmark in `results.json`: Lockstep beside the others.

    python benchmarks/nexmark_report.py
    python benchmarks/nexmark_report.py --results benchmarks/results/nexmark-decoded-10000000.json

The plot is that of `results.json` alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import results
from nexmark_aims import AIMS

__all__ = ["ENGINES", "aims_table", "plot", "table", "tables"]

ENGINES = {
    "lockstep": "Lockstep",
    "flink_sql": "Flink SQL",
    "structured_streaming": "Structured Streaming",
    "spark_batch": "Spark batch",
    "lockstep_decoded": "Lockstep, decoded",
    "spark_batch_decoded": "Spark batch, decoded",
    "lockstep_engine": "Lockstep, engine alone",
    "lockstep_operators": "Lockstep, operators alone",
    "dbsp": "DBSP, in memory",
}
"""Those that read JSON from Kafka, then those that are given rows."""
WHOLE_PATH = 4


def table(saved: Mapping[str, Any]) -> str:
    """Thousands of events a second by query and engine that was measured, in Markdown; '-' where there
    is no figure."""
    rates = saved["events_per_second"]
    measured = [one for one in ENGINES if any(one in figures for figures in rates.values())]
    lines = [
        f"| query | {' | '.join(ENGINES[engine] for engine in measured)} |",
        f"|---|{'---|' * len(measured)}",
    ]
    for query, figures in rates.items():
        cells = [_thousands(figures.get(engine)) for engine in measured]
        lines.append(f"| {query} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _thousands(rate: int | None) -> str:
    return "-" if rate is None else f"{rate / 1000:,.0f}"


def aims_table(saved: Mapping[str, Any]) -> str:
    """Each aim of which there are figures, what was measured, and whether it holds."""
    lines = ["| aim | measured | holds |", "|---|---|---|"]
    for aim in AIMS:
        one = saved["aims"].get(aim.name)
        if one:
            lines.append(f"| {aim.name} | {one['measured']} | {'yes' if one['holds'] else 'no'} |")
    return "\n".join(lines) + "\n"


def tables(saved: Mapping[str, Any]) -> str:
    """Both; no aims where none has figures."""
    return f"{table(saved)}\n{aims_table(saved)}" if "aims" in saved else table(saved)


def plot(saved: Mapping[str, Any], path: Path) -> None:
    """Events a second by query: engines that read Kafka above, those that are given rows below."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figures = saved["events_per_second"]
    names = list(ENGINES)
    parts = (
        ("From JSON in Kafka", names[:WHOLE_PATH]),
        ("From rows that are decoded", names[WHOLE_PATH:]),
    )
    figure, rows = pyplot.subplots(len(parts), 1, figsize=(12, 8))
    for axes, (title, engines) in zip(rows, parts, strict=True):
        width = 0.8 / len(engines)
        for number, engine in enumerate(engines):
            axes.bar(
                [place + (number + 0.5) * width - 0.4 for place in range(len(figures))],
                [(one.get(engine) or 0) / 1000 for one in figures.values()],
                width=width,
                label=ENGINES[engine],
            )
        axes.set_xticks(range(len(figures)), list(figures))
        axes.set_yscale("log")
        axes.set_ylabel("thousand events a second")
        axes.set_title(title)
        axes.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Print the tables, write the plot."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--results", type=Path, default=results.PATH)
    asked = parser.parse_args()
    saved = results.load(asked.results)
    print(tables(saved))
    if asked.results.resolve() == results.PATH.resolve():
        plot(saved, Path(__file__).with_name("nexmark.svg"))


if __name__ == "__main__":
    main()
