"""Aim: an interval that changes rows of a large view takes a second, published.

A topic's first records make a view with a row a key; then intervals take 10,000 records each, in turn on
keys drawn from all there are, and from the newest 100,000. Each takes as many rows of the view back as
it has keys, and adds as many. At the end the view is compared with DuckDB's.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from aims_bench import Aim, Driven, Interval, figures, median, running, say

__all__ = ["add_options", "measure"]

RECORDS = 10_000
NEWEST = 100_000
SECONDS = 1.0
COLUMNS = "customer BIGINT NOT NULL, name STRING, amount BIGINT NOT NULL"
SQL = """\
CREATE MATERIALIZED VIEW by_customer AS
SELECT customer, name, count(*) AS n, sum(amount) AS total, max(amount) AS most
FROM orders GROUP BY customer, name;
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the view")
    parser.add_argument("--intervals", type=int, default=15, help="that count, of either keys")
    parser.add_argument("--warm-ups", type=int, default=5, help="intervals before them")


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Aim]]:
    """An aim for each way to draw keys."""
    random = np.random.default_rng(1)
    ways = {"random": 0, "recent": max(0, options.rows - NEWEST)}
    found: dict[str, list[Interval]] = {way: [] for way in ways}
    with running() as bench:
        topic = bench.topic("orders")
        topic.send(_orders(random.permutation(options.rows), random))
        driven = bench.deploy("views", topic.source("orders", COLUMNS) + SQL)
        _catch_up(driven)
        for _ in range(options.warm_ups + options.intervals):
            for way, first in ways.items():
                topic.send(_orders(random.integers(first, options.rows, RECORDS), random))
                found[way].append(driven.advance())
        driven.check()
    for way, intervals in found.items():
        yield f"large view, {way} keys", _aim(intervals[options.warm_ups :], options.rows)


def _orders(
    customers: npt.NDArray[np.int64], random: np.random.Generator
) -> Iterator[tuple[int, str]]:
    amounts = random.integers(0, 1000, len(customers)).tolist()
    for customer, amount in zip(customers.tolist(), amounts, strict=True):
        row = {"customer": customer, "name": f"customer {customer}", "amount": amount}
        yield customer, json.dumps(row)


def _catch_up(driven: Driven) -> None:
    first = [driven.advance()]
    while driven.is_behind:
        first.append(driven.advance())
    say(f"the view is there: {sum(one.seconds for one in first):.1f} s")


def _aim(intervals: list[Interval], rows: int) -> Aim:
    middle = median(one.seconds for one in intervals)
    publish = median(one.stages["publish"] for one in intervals)
    return Aim(
        target=f"{SECONDS:.1f} s for {RECORDS:,} records",
        measured=f"{middle:.2f} s, median of {len(intervals)}; publish {publish:.2f} s of it",
        holds=middle <= SECONDS,
        scale=f"a view of {rows:,} rows",
        series=figures(intervals),
    )
