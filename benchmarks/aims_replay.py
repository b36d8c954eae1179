"""Aim: an hour of one-minute intervals is run again as one job much faster than as sixty.

The records of a topic are stamped over an hour that is past. They are first taken minute by minute, as
sixty intervals of six steps each; all versions are kept. Then that hour is backfilled: its steps run
again from the version before it, and what they give is compared with the outbox. Timed is what `lockstep
backfill` does on a warm server: it opens the version, runs the steps, compares, drops the branches.

As one job: one backfill of the hour, the first large interval of the server, which compiles for it; it
is done once more to see how much that is. As sixty: one of each minute, with the version before it. The
sixty intervals as they ran first, from plan to published, are saved besides. The hour is that after a
first minute, which has made tables and warmed the server up.

Both ways are then timed as a person runs them, too: each job a command that starts, opens the pipeline,
connects to the server and ends.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from aims_bench import Aim, Bench, Driven, median, running, say
from numpy.random import Generator

from lockstep.control.output_log import require_equal

__all__ = ["add_options", "measure"]

TIMES = 20.0
MINUTE = timedelta(minutes=1)
KEYS = 5_000
LOCKSTEP = Path(sys.executable).with_name("lockstep")
SQL = """\
CREATE MATERIALIZED VIEW by_customer AS
SELECT customer, count(*) AS n, sum(amount) AS total, max(amount) AS most FROM orders GROUP BY customer;
CREATE MATERIALIZED VIEW by_country AS
SELECT o.country, count(*) AS n, avg(c.total) AS total
FROM orders o JOIN by_customer c ON o.customer = c.customer
WHERE o.amount >= 990 GROUP BY o.country;
"""
COLUMNS = "customer BIGINT, country STRING, amount BIGINT"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--records", type=int, default=10_000, help="of a minute")


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Aim]]:
    """Run the hour, then run it again both ways."""
    minutes, records = options.minutes, options.records
    scale = f"{minutes} minutes of {records:,} records, six steps each"
    with running() as bench:
        start = datetime.now(UTC).replace(second=0, microsecond=0) - (minutes + 2) * MINUTE
        driven = _sent(bench, start, minutes, records)
        driven.advance(start)
        first = [driven.advance(start + n * MINUTE).seconds for n in range(1, minutes + 1)]
        say(f"{minutes} intervals: {sum(first):.1f} s")
        driven.check()
        ends = [start + minute * MINUTE for minute in range(minutes + 1)]
        series = {
            "intervals_at_first": [round(one, 3) for one in first],
            "interval_median": median(first),
        }
        yield "replay", _compared(driven, _backfilled, ends, scale, series)
        yield "replay, by command", _compared(driven, _by_command, ends, scale, {})


def _sent(bench: Bench, start: datetime, minutes: int, records: int) -> Driven:
    """A pipeline over a topic that holds the minute before `start`, and the hour after it."""
    topic = bench.topic("orders")
    random = np.random.default_rng(1)
    for minute in range(-1, minutes):
        for step in range(6):
            moment = start + minute * MINUTE + timedelta(seconds=10 * step + 5)
            count = records * (step + 1) // 6 - records * step // 6
            topic.send(_orders(random, count), time_ms=round(moment.timestamp() * 1000))
    sql = topic.source("orders", COLUMNS) + SQL
    return bench.deploy("replay", sql, retain_versions=minutes + 2)


def _compared(
    driven: Driven,
    backfill: Callable[[Driven, datetime, datetime], int],
    ends: Sequence[datetime],
    scale: str,
    series: Mapping[str, Any],
) -> Aim:
    """The hour as one job, once more, and as one of each minute; `backfill` says of how many jobs."""

    def seconds(start: datetime, end: datetime) -> float:
        started = time.perf_counter()
        jobs = backfill(driven, start, end)
        taken = time.perf_counter() - started
        assert jobs == 1, "the limits of an interval allow it"
        return taken

    seconds(ends[0], ends[1])
    as_one, again = (seconds(ends[0], ends[-1]) for _ in range(2))
    each = [seconds(*minute) for minute in pairwise(ends)]
    times = sum(each) / as_one
    return Aim(
        target=f"one job at least {TIMES:.0f} x as fast as {len(each)}",
        measured=f"{times:.1f} x: {as_one:.1f} s against {sum(each):.1f} s; {again:.1f} s once more",
        holds=times >= TIMES,
        scale=scale,
        series={
            "as_one": round(as_one, 3),
            "as_one_again": round(again, 3),
            "as_many": [round(one, 3) for one in each],
            **series,
        },
    )


def _orders(random: Generator, count: int) -> Iterator[tuple[int, str]]:
    customers, amounts = (random.integers(0, most, count).tolist() for most in (KEYS, 1000))
    for customer, amount in zip(customers, amounts, strict=True):
        row = {"customer": customer, "country": f"c{customer % 20}", "amount": amount}
        yield customer, json.dumps(row)


def _backfilled(driven: Driven, start: datetime, end: datetime) -> int:
    """In the open pipeline; it has to give what the steps gave."""
    found = driven.pipeline.backfill(start, end, lambda _: None)
    require_equal(driven.name, found.compared)
    return found.jobs


def _by_command(driven: Driven, start: datetime, end: datetime) -> int:
    """The same of the command: a difference would be an exit code."""
    times = ["--from", start.isoformat(), "--to", end.isoformat()]
    env = {**os.environ, "LOCKSTEP_HOME": str(driven.settings.home)}
    # Else each command may compile all that it imports, and many jobs seem slower than they are.
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [LOCKSTEP, "backfill", driven.name, *times, "--output", "json"],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    jobs: int = json.loads(done.stdout)["jobs"]
    return jobs
