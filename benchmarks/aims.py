"""The aims of what an interval costs: each measured by a command of its own, with its result checked.

    python benchmarks/aims.py small
    python benchmarks/aims.py --help

Each starts a broker and a Spark server of its own (`dag` an Airflow besides) in a temporary folder, and
ends with an error where a view is not what a batch query makes of the same input. What was found goes to
`results.json`, under `aims`, and the figures behind it to `aims.json`; the aims that were not measured
stay as they are.
"""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import aims_backlog
import aims_dag
import aims_disk
import aims_replay
import aims_report
import aims_small
import aims_state
import aims_steps
import aims_views
import results
from aims_bench import Aim, say

from lockstep.threads import processors


@dataclass(frozen=True)
class Measurement:
    """A command: what it measures, its options, and the aims with their names, as each is found."""

    help: str
    add_options: Callable[[argparse.ArgumentParser], None]
    measure: Callable[[argparse.Namespace], Iterator[tuple[str, Aim]]]


MEASUREMENTS = {
    "small": Measurement(
        "a warm interval of 10,000 records, and other sizes",
        aims_small.add_options,
        aims_small.measure,
    ),
    "dag": Measurement(
        "what a DAG run adds to an interval", aims_dag.add_options, aims_dag.measure
    ),
    "state": Measurement(
        "intervals on small and on large state", aims_state.add_options, aims_state.measure
    ),
    "views": Measurement(
        "intervals that change rows of a large view", aims_views.add_options, aims_views.measure
    ),
    "disk": Measurement(
        "bytes and files of state and outboxes", aims_disk.add_options, aims_disk.measure
    ),
    "replay": Measurement(
        "an hour run again as one job", aims_replay.add_options, aims_replay.measure
    ),
    "backlog": Measurement(
        "a backlog larger than memory", aims_backlog.add_options, aims_backlog.measure
    ),
    "steps": Measurement(
        "the same records as 1 to 1,000 steps", aims_steps.add_options, aims_steps.measure
    ),
}


def save(name: str, aim: Aim, options: argparse.Namespace) -> None:
    """In place of what was found of this aim before."""
    entry = {
        "target": aim.target,
        "measured": aim.measured,
        "holds": aim.holds,
        "scale": aim.scale,
        "at": f"{datetime.now(UTC):%Y-%m-%d}",
        "cpus": processors(),
        # Of the last five minutes: far above what one benchmark makes, others were at work too.
        "load": round(os.getloadavg()[1], 1),
    }
    results.update(f"aims/{name}", entry, options.results)
    results.update(name, {**entry, "series": aim.series}, options.series)
    say(f"{name}: {aim.target}; {aim.measured}; {'holds' if aim.holds else 'DOES NOT HOLD'}")


def main() -> None:
    """Measure what was asked for, save it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=results.PATH)
    parser.add_argument("--series", type=Path, default=aims_report.SERIES)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, measurement in MEASUREMENTS.items():
        command = commands.add_parser(
            name,
            help=measurement.help,
            description=measurement.help,
            formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        )
        measurement.add_options(command)
    options = parser.parse_args()
    # Ended from outside it still ends the servers that it started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    for name, aim in MEASUREMENTS[options.command].measure(options):
        save(name, aim, options)


if __name__ == "__main__":
    main()
