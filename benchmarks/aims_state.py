"""Aim: what an interval costs follows the change, not the size of the state.

A followed Iceberg table fills the traces in the first interval, one row a key; then intervals take
10,000 records of a Kafka topic each, in turn on keys drawn from all there are, and from the newest
100,000. Two pipelines: an aggregate by key, and a join with the rows of a key; both then count by
category, so that their views are small. Each size of state has pipelines of its own, and they take
turns. Maintenance runs once after the first interval. At the end the views are compared with Spark's
batch query over the same table and topic.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from aims_bench import CATALOG, Aim, Bench, Driven, Interval, Topic, figures, median, running, say
from aims_files import data_files
from numpy.random import Generator

__all__ = ["add_options", "measure"]

RECORDS = 10_000
NEWEST = 100_000
CATEGORIES = 10
VIEW = "result"
DATABASE = "history"
RATIOS = {"random": 2.0, "recent": 1.2}
"""The most that an interval of the largest state may take, in those of the smallest, by which keys."""
HISTORY = """\
CREATE TABLE history (key BIGINT, category BIGINT, amount BIGINT) USING iceberg
OPTIONS ('table' = '{table}');
"""
CHANGES = "key BIGINT NOT NULL, amount BIGINT NOT NULL"
QUERIES = {
    "aggregate": """
        SELECT key % 10 AS category, count(*) AS keys, sum(total) AS total, sum(n) AS n
        FROM (SELECT key, sum(amount) AS total, count(*) AS n
              FROM (SELECT key, amount FROM history UNION ALL SELECT key, amount FROM changes)
              GROUP BY key)
        GROUP BY key % 10""",
    "join": """
        SELECT h.category, count(*) AS n, sum(c.amount) AS total, sum(h.amount) AS before
        FROM changes c
        JOIN (SELECT key, category, amount FROM history
              UNION ALL SELECT key, key % 10, amount FROM arrivals) h ON c.key = h.key
        GROUP BY h.category""",
}
"""The second source of the join's right side makes it keep a trace: rows of a followed table alone are
read where they are."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", default="1000000,100000000", help="of the state, by size")
    parser.add_argument("--intervals", type=int, default=9, help="that count, of either keys")
    parser.add_argument("--warm-ups", type=int, default=4, help="intervals before them")
    parser.add_argument("--queries", default=",".join(QUERIES))
    parser.add_argument("--memory", default="4g", help="heap of the Spark server")


@dataclass
class Arm:
    """A pipeline with so many rows of state, and its intervals by which keys changed."""

    query: str
    rows: int
    driven: Driven
    changes: Topic
    random: Generator
    filled: Interval | None = None
    intervals: dict[str, list[Interval]] = field(default_factory=dict)

    def change(self, keys: str) -> None:
        """Send records on random, or on recent keys."""
        first = self.rows - min(NEWEST, self.rows) if keys == "recent" else 0
        self.changes.send(self._records(first))

    def _records(self, first: int) -> Iterator[tuple[int, str]]:
        keys = self.random.integers(first, self.rows, RECORDS).tolist()
        amounts = self.random.integers(0, 1000, RECORDS).tolist()
        for key, amount in zip(keys, amounts, strict=True):
            yield key, json.dumps({"key": key, "amount": amount})


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Aim]]:
    """An aim for each query and each way to draw keys."""
    sizes = sorted(map(int, options.rows.split(",")))
    queries = options.queries.split(",")
    with running(memory=options.memory) as bench:
        bench.spark.sql(f"CREATE NAMESPACE {CATALOG}.{DATABASE}")
        for rows in sizes:
            _make_history(bench, rows)
        arms = [_filled(bench, query, rows) for query, rows in product(queries, sizes)]
        for number in range(options.warm_ups + options.intervals):
            for arm, keys in product(arms, RATIOS):
                arm.change(keys)
                interval = arm.driven.advance()
                if number >= options.warm_ups:
                    arm.intervals.setdefault(keys, []).append(interval)
        for arm in arms:
            bench.check_by_spark(arm.driven)
            say(f"{arm.driven.name}: {_size(bench, arm)}, equal")
        for query, keys in product(queries, RATIOS):
            of_query = [arm for arm in arms if arm.query == query]
            yield f"state, {query}, {keys} keys", _aim(of_query, keys)


def _table(rows: int) -> str:
    return f"{CATALOG}.{DATABASE}.of_{rows}"


def _make_history(bench: Bench, rows: int) -> None:
    """A row a key, in the order of keys, as they came over time."""
    made = bench.spark.range(rows).selectExpr(
        "id AS key", f"id % {CATEGORIES} AS category", "pmod(xxhash64(id), 1000000) AS amount"
    )
    made.writeTo(_table(rows)).using("iceberg").create()


def _filled(bench: Bench, query: str, rows: int) -> Arm:
    """A pipeline that has read the table."""
    name = f"{query}_{rows}"
    changes, arrivals = bench.topic(f"changes_{name}"), bench.topic(f"arrivals_{name}")
    sources = [HISTORY.format(table=_table(rows)), changes.source("changes", CHANGES)]
    if query == "join":
        sources.append(arrivals.source("arrivals", CHANGES))
    sql = "".join(sources) + f"CREATE MATERIALIZED VIEW {VIEW} AS {QUERIES[query]};\n"
    driven = bench.deploy(name, sql)
    arm = Arm(query, rows, driven, changes, np.random.default_rng(rows))
    arm.filled = driven.advance()
    driven.pipeline.maintain(lambda _: None)
    say(f"{name}: filled in {arm.filled.seconds:.1f} s, {_size(bench, arm)}")
    return arm


def _size(bench: Bench, arm: Arm) -> Mapping[str, int]:
    """Files, bytes and rows of its traces."""
    files = [file for found in data_files(bench, arm.driven).traces.values() for file in found]
    return {
        "files": len(files),
        "bytes": sum(file.bytes for file in files),
        "rows": sum(file.records for file in files),
    }


def _aim(arms: list[Arm], keys: str) -> Aim:
    least, most = arms[0], arms[-1]
    seconds = {arm.rows: median(one.seconds for one in arm.intervals[keys]) for arm in arms}
    cpu = {arm.rows: median(one.cpu for one in arm.intervals[keys]) for arm in arms}
    ratio = seconds[most.rows] / seconds[least.rows]
    work = cpu[most.rows] / cpu[least.rows]
    return Aim(
        target=f"{RECORDS:,} records on {keys} keys cost at most {RATIOS[keys]} x as state grows",
        measured=f"{ratio:.2f} x ({work:.2f} x the work)",
        holds=ratio <= RATIOS[keys],
        scale=f"{least.rows:,} to {most.rows:,} rows, median of {len(most.intervals[keys])}",
        series={str(arm.rows): _figures(arm, keys) for arm in arms},
    )


def _figures(arm: Arm, keys: str) -> dict[str, Any]:
    assert arm.filled is not None, "it is filled first"
    return {**figures(arm.intervals[keys]), "fill": round(arm.filled.seconds, 3)}
