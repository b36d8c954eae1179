"""Aim: a backlog larger than memory is caught up with.

All events of Nexmark are in Kafka before the pipeline, q4, is deployed with the limits that Lockstep has
by default: 1,000,000 rows a step, 2,000,000 an interval. Intervals follow each other until nothing is
left. Peaks are of resident memory, as the kernel counts it: of the server, the JVM without its Python
workers, and of this process, which drives it and does what it need not do. At the end the view is
compared with Spark's batch query over all of the two topics.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

from aims_bench import Aim, Bench, Interval, figures, running, say
from aims_small import deploy_q4, generate

__all__ = ["add_options", "measure"]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--events", type=int, default=50_000_000)
    parser.add_argument("--memory", default="4g", help="heap of the Spark server")


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Aim]]:
    """All of it, by as many intervals as the limits make."""
    with running(memory=options.memory) as bench:
        generate(bench, options.events)
        yield "backlog", _caught_up(bench, options)


def _caught_up(bench: Bench, options: argparse.Namespace) -> Aim:
    driven = deploy_q4(bench, "backlog")
    # What it took to generate the events counts for nothing.
    Path("/proc/self/clear_refs").write_text("5", "utf-8")
    found: list[Interval] = []
    is_behind = True
    while is_behind:
        found.append(driven.advance())
        is_behind = driven.is_behind
        say(f"{found[-1].committed.records:,} records in {found[-1].seconds:.1f} s")
    peak, ours = map(_peak_bytes, (bench.spark_process, os.getpid()))
    bench.check_by_spark(driven)
    seconds = sum(one.seconds for one in found)
    records = sum(one.committed.records for one in found)
    return Aim(
        target="completes, whatever the backlog",
        measured=f"{records:,} records in {seconds:.0f} s by {len(found)} intervals; the server had "
        f"{peak / 2**30:.1f} GiB at most, and the process that drove it {ours / 2**30:.1f}",
        holds=True,
        scale=f"{options.events:,} events, a heap of {options.memory}",
        series={**figures(found), "peak_bytes": peak, "peak_bytes_of_driver": ours},
    )


def _peak_bytes(process: int) -> int:
    """The most memory that a process has ever had resident."""
    for line in Path(f"/proc/{process}/status").read_text("utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise SystemExit("the kernel does not say how much memory the server had")
