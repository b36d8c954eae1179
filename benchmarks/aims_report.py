"""The table and the plots of what `aims.py` has saved.

python benchmarks/aims_report.py
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import results

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["SERIES", "plot", "table"]

HERE = Path(__file__).parent
SERIES = HERE / "aims.json"
FILES = {
    "on_disk": "all on the disk",
    "metadata": "metadata of tables",
    "traces": "traces, newest version",
    "outboxes": "outboxes, newest version",
}


def table(found: Mapping[str, Any]) -> str:
    """The aims in Markdown."""
    lines = ["| aim | target | measured | holds | on | load |", "|---|---|---|---|---|---|"]
    for name, one in found.items():
        holds = "yes" if one["holds"] else "no"
        lines.append(
            f"| {name} | {one['target']} | {one['measured']} | {holds} | {one['scale']} "
            f"| {one['load']} |"
        )
    return "\n".join(lines) + "\n"


def plot(found: Mapping[str, Any], path: Path) -> None:
    """What an interval takes by the size of the change, by the state, by steps; files by intervals."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 2, figsize=(11, 8))
    drawn: tuple[Callable[[Mapping[str, Any], Axes], None], ...] = (
        _by_change,
        _by_state,
        _by_steps,
        _files,
    )
    for draw, place in zip(drawn, axes.flat, strict=True):
        draw(found, place)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def _by_change(found: Mapping[str, Any], axes: Axes) -> None:
    _lines(found, axes, "small interval", "median")
    axes.set(xlabel="records of the change", title="q4, by the size of the change")


def _by_state(found: Mapping[str, Any], axes: Axes) -> None:
    _lines(found, axes, "state, ", "median")
    axes.set(xlabel="rows of state", title="10,000 records, by the size of the state")


def _by_steps(found: Mapping[str, Any], axes: Axes) -> None:
    _lines(found, axes, "steps, ", "net")
    axes.set(xlabel="steps", title="The same records, by steps (output aside)")


def _lines(found: Mapping[str, Any], axes: Axes, beginning: str, figure: str) -> None:
    """A line for each aim whose name begins so: seconds over what its series are named by."""
    for name, one in found.items():
        if name.startswith(beginning):
            series = {int(size): values[figure] for size, values in one["series"].items()}
            sizes = sorted(series)
            label = name.removeprefix(beginning) or name
            axes.plot(sizes, [series[size] for size in sizes], marker="o", label=label)
    axes.set(xscale="log", ylabel="seconds", ylim=(0, None))
    if axes.lines:
        axes.legend()


def _files(found: Mapping[str, Any], axes: Axes) -> None:
    counted = found["files"]["series"]["intervals"] if "files" in found else []
    for kind, label in FILES.items():
        axes.plot(range(1, len(counted) + 1), [one[kind] for one in counted], label=label)
    axes.set(xlabel="intervals", ylabel="files", title="Files, with maintenance beside")
    axes.set_ylim(bottom=0)
    axes.legend()


def main() -> None:
    """Print the table, draw the plots."""
    found = results.load(SERIES)
    print(table(found))
    plot(found, HERE / "aims.svg")


if __name__ == "__main__":
    main()
