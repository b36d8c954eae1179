"""Aim: what an interval costs does not follow its steps.

The same records are taken as one step, and as 10, 100 and 1,000. Three pipelines: an aggregate over rows
that only come; a join of two tables by key, both sources of upserts, in which every key changes on both
sides in each of 1,000 steps; the three greatest rows of each group of such a table. Each number of steps
has a pipeline of its own, and they take turns. The first intervals are not counted.

More steps have more output by nature, as each shows its own changes. So what counts is plan and run,
less the time in which the rows that the interval's outbox got are written once more, from memory to a
table of its own, as the interval has written them: by the driver or by Spark. Publishing is output, too.
Both are saved besides.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from aims_bench import CATALOG, Aim, Bench, Driven, Interval, Topic, figures, median, running, say
from numpy.typing import NDArray
from pyspark.sql import functions as F

from lockstep.adapters.iceberg_tables import IcebergTables

__all__ = ["add_options", "measure", "numbered_records"]

RATIO = 1.5
WARM_UPS = 2
VIEW, AGAIN = "result", "written_again"
ROWS_OF_A_GROUP = 10
COLUMNS = "key BIGINT NOT NULL, bunch BIGINT, amount BIGINT"
QUERIES = {
    "aggregate": "SELECT key, count(*) AS n, sum(amount) AS total FROM a GROUP BY key",
    "join": "SELECT a.key, a.amount, b.amount AS other FROM a JOIN b ON a.key = b.key",
    "top-k": "SELECT bunch, key, amount, place FROM (SELECT *, row_number() OVER "
    "(PARTITION BY bunch ORDER BY amount DESC, key) AS place FROM a) WHERE place <= 3",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--records", type=int, default=100_000, help="of an interval")
    parser.add_argument("--steps", default="1,10,100,1000")
    parser.add_argument("--rounds", type=int, default=5, help="intervals that count")
    parser.add_argument("--queries", default=",".join(QUERIES))


@dataclass
class Arm:
    """A pipeline whose intervals have so many steps; `net` and `writing` are in seconds."""

    steps: int
    driven: Driven
    intervals: list[Interval] = field(default_factory=list)
    writing: list[float] = field(default_factory=list)

    @property
    def net(self) -> list[float]:
        return [
            one.stages["plan"] + one.stages["run"] - writing
            for one, writing in zip(self.intervals, self.writing, strict=True)
        ]

    def figures(self) -> dict[str, Any]:
        return {
            **figures(self.intervals),
            "net": median(self.net),
            "writing": median(self.writing),
            "outbox_rows": self.intervals[-1].committed.changes[VIEW],
        }


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Aim]]:
    """One aim a query."""
    steps = [int(one) for one in options.steps.split(",")]
    with running() as bench:
        for query in options.queries.split(","):
            arms = _measured(bench, query, options.records, steps, options.rounds)
            yield f"steps, {query}", _aim(arms, options.records)


def _measured(bench: Bench, query: str, records: int, steps: list[int], rounds: int) -> list[Arm]:
    name = query.replace("-", "")
    sources = ("a", "b") if query == "join" else ("a",)
    topics = {source: bench.topic(f"{name}_{source}") for source in sources}
    each, intervals = records // len(sources), WARM_UPS + rounds
    for number, topic in enumerate(topics.values()):
        # Every key is in each step, however many there are.
        topic.send(numbered_records(each * intervals, each // max(steps), seed=number))
    arms = [
        Arm(count, bench.deploy(f"{name}_{count}", _sql(query, topics), **_limits(records, count)))
        for count in steps
    ]
    for number in range(intervals):
        for arm in arms:
            interval = arm.driven.advance()
            committed = interval.committed
            assert committed.last_step - committed.first_step + 1 == arm.steps, "as many steps"
            if number >= WARM_UPS:
                arm.intervals.append(interval)
                arm.writing.append(_writing_seconds(bench, arm, interval))
    arms[0].driven.check()
    first, *others = (arm.driven.rows(VIEW) for arm in arms)
    if any(rows != first for rows in others):
        raise SystemExit(f"{query}: another number of steps gives other rows")
    say(f"{query}: { ({arm.steps: arm.figures() for arm in arms}) }")
    return arms


def _limits(records: int, steps: int) -> dict[str, int]:
    return {"rows_per_step": records // steps, "rows_per_interval": records}


def _sql(query: str, topics: Mapping[str, Topic]) -> str:
    upserts = {} if query == "aggregate" else {"format": "upsert", "key": "key"}
    sources = [topic.source(name, COLUMNS, **upserts) for name, topic in topics.items()]
    return "".join(sources) + f"CREATE MATERIALIZED VIEW {VIEW} AS {QUERIES[query]};\n"


def numbered_records(count: int, keys: int, seed: int) -> Iterator[tuple[int, str]]:
    """The keys in turn, each with another amount."""
    amounts: NDArray[np.int64] = np.random.default_rng(seed).integers(0, 1_000_000, count)
    for number, amount in enumerate(amounts.tolist()):
        key = number % keys
        row = {"key": key, "bunch": key // ROWS_OF_A_GROUP, "amount": amount}
        yield key, json.dumps(row)


def _writing_seconds(bench: Bench, arm: Arm, interval: Interval) -> float:
    """What it takes to write the interval's output once more, for who wrote it."""
    committed, outbox, database = interval.committed, f"{VIEW}_changes", arm.driven.name
    snapshot = arm.driven.tables()[outbox]
    rows = bench.spark.read.option("versionAsOf", snapshot).table(f"{CATALOG}.{database}.{outbox}")
    rows = rows.where(F.col("_step").between(committed.first_step, committed.last_step))
    table = f"{CATALOG}.{database}.{AGAIN}"
    if not bench.spark.catalog.tableExists(table):
        rows.limit(0).writeTo(table).using("iceberg").create()
    state = IcebergTables(bench.catalog(database))
    if "spark.app.id" in state.summary(outbox, snapshot):
        kept = rows.cache()
        kept.count()
        seconds = _seconds(lambda: kept.writeTo(table).append())
        kept.unpersist()
        return seconds
    fetched = rows.toArrow()
    return _seconds(lambda: state.append_rows(AGAIN, "main", fetched, {}))


def _seconds(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _aim(arms: list[Arm], records: int) -> Aim:
    one = next(arm for arm in arms if arm.steps == min(arm.steps for arm in arms))
    most = max(arms, key=lambda arm: arm.steps)
    ratio = median(most.net) / median(one.net)
    return Aim(
        target=f"{most.steps:,} steps cost at most {RATIO} x {one.steps}, output aside",
        measured=f"{ratio:.2f} x",
        holds=ratio <= RATIO,
        scale=f"{records:,} records an interval, median of {len(one.intervals)}",
        series={str(arm.steps): arm.figures() for arm in arms},
    )
