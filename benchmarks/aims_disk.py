"""Aim: what a pipeline has on the disk follows what it knows, and its files stay few.

A table of upserts with two views: one of its larger rows, and one that sums amounts by customer.

Bytes: intervals of 10,000 records, without maintenance; then maintenance until nothing is left to merge.
The data files of traces and outboxes in the newest version, before and after, in those of the same rows
as one plain Parquet table each: one file with the same codec and in the same order, traces with their
rows summed up as a merge does it. What the whole folder has is saved besides.

Files: many intervals of few records, one right after another, whose tables can be read at snapshots of
the last minute. Every so many of them maintenance starts beside the intervals, in a thread. Counted are
the data files of the newest version, and all that lies in the pipeline's folder. They are bounded where
there are not more than half as many again in the last quarter as in the second; maintenance does not
hold up intervals where those that began beside it take, in the median, at most half as long again as
the others: on this machine both want the same processors.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from aims_bench import CATALOG, Aim, Bench, Driven, Topic, median, running, say
from aims_files import LiveFiles, data_files, files_on_disk
from numpy.random import Generator
from pyspark.sql import DataFrame

from lockstep.runtime import Pipeline
from lockstep_engine.operators.merging import merge_trace

__all__ = ["GROWTH", "add_options", "growth", "measure"]

BYTES_BEFORE, BYTES_AFTER = 3.0, 1.5
GROWTH = 1.5
HELD_UP = 1.5
SQL = """\
CREATE MATERIALIZED VIEW large AS SELECT key, customer, amount, note FROM orders WHERE amount >= 500;
CREATE MATERIALIZED VIEW totals AS
SELECT customer, count(*) AS n, sum(amount) AS total FROM orders GROUP BY customer;
"""
COLUMNS = "key BIGINT NOT NULL, customer BIGINT, amount BIGINT, note STRING"
CODEC = {"compression": "zstd", "parquet.compression.codec.zstd.level": "1"}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--large", type=int, default=60, help="intervals of 10,000 records")
    parser.add_argument("--intervals", type=int, default=1000, help="of few records")
    parser.add_argument("--records", type=int, default=100, help="of each of those")
    parser.add_argument("--every", type=int, default=10, help="intervals from one maintenance on")
    parser.add_argument("--keys", type=int, default=200_000)


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Aim]]:
    """Bytes, then files, each by a pipeline of its own."""
    with running() as bench:
        yield "disk", _bytes(bench, options.large, options.keys)
        tiny = (options.intervals, options.records, options.every)
        yield "files", _files(bench, *tiny, options.keys)


def _deployed(bench: Bench, name: str, **configuration: str) -> tuple[Driven, Topic]:
    topic = bench.topic(name)
    source = topic.source("orders", COLUMNS, format="upsert", key="key")
    return bench.deploy(name, source + SQL, **configuration), topic


def _orders(random: Generator, count: int, keys: int) -> Iterator[tuple[int, str]]:
    for key, amount in zip(
        random.integers(0, keys, count).tolist(),
        random.integers(0, 1000, count).tolist(),
        strict=True,
    ):
        row = {"key": key, "customer": key % 1000, "amount": amount, "note": f"order {key}"}
        yield key, json.dumps(row)


# ── bytes ───────────────────────────────────────────────────────────────────────────────────────


def _bytes(bench: Bench, intervals: int, keys: int) -> Aim:
    driven, topic = _deployed(bench, "bytes")
    random = np.random.default_rng(1)
    for _ in range(intervals):
        topic.send(_orders(random, 10_000, keys))
        driven.advance()
    before, folder = data_files(bench, driven), [_folder_bytes(bench, driven)]
    while driven.pipeline.maintain(lambda _: None).done["files merged"]:
        pass
    after = data_files(bench, driven)
    folder.append(_folder_bytes(bench, driven))
    driven.check()
    plain = _plain_bytes(bench, driven)
    most, least = (sum(one.bytes for one in found.all) for found in (before, after))
    total = sum(plain.values())
    return Aim(
        target=f"{BYTES_BEFORE:.1f} x plain Parquet before maintenance, {BYTES_AFTER} x after",
        measured=f"{most / total:.2f} x before, {least / total:.2f} x after",
        holds=most <= BYTES_BEFORE * total and least <= BYTES_AFTER * total,
        scale=f"{intervals} intervals of 10,000 upserts of {keys:,} keys",
        series={
            "before": _by_table(before),
            "after": _by_table(after),
            "plain": plain,
            "folder_bytes": dict(zip(("before", "after"), folder, strict=True)),
        },
    )


def _folder_bytes(bench: Bench, driven: Driven) -> int:
    """Of all that there is: views, older versions, logs of steps, and metadata of all tables too."""
    return sum(path.stat().st_size for path in files_on_disk(bench, driven))


def _by_table(found: LiveFiles) -> dict[str, Any]:
    return {
        table: {"files": len(files), "bytes": sum(file.bytes for file in files)}
        for table, files in (*found.traces.items(), *found.outboxes.items())
    }


def _plain_bytes(bench: Bench, driven: Driven) -> Mapping[str, int]:
    """The bytes of a plain Parquet table for each trace and outbox."""
    circuit, tables = driven.pipeline.circuit, driven.tables()

    def rows(table: str) -> DataFrame:
        at = bench.spark.read.option("versionAsOf", tables[table])
        return at.table(f"{CATALOG}.{driven.name}.{table}")

    found = {}
    for trace in circuit.traces:
        merged = merge_trace(trace, rows(trace.table)).coalesce(1)
        found[trace.table] = _written(bench, merged, trace.key or merged.columns[:1])
    for outbox in circuit.outboxes:
        found[outbox.table] = _written(bench, rows(outbox.table).coalesce(1), ["_step"])
    return found


def _written(bench: Bench, rows: DataFrame, order: Sequence[str]) -> int:
    folder = bench.folder / "plain" / uuid.uuid4().hex
    writer = rows.sortWithinPartitions(*(f"`{name}`" for name in order)).write
    writer.options(**CODEC).parquet(folder.as_uri())
    (file,) = folder.glob("*.parquet")
    return file.stat().st_size


# ── files ───────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Counted:
    """After an interval: its seconds, whether maintenance was at work when it began, files."""

    seconds: float
    beside: bool
    traces: int
    outboxes: int
    on_disk: int
    metadata: int


def _files(bench: Bench, intervals: int, records: int, every: int, keys: int) -> Aim:
    kept = {"retain_changes": "1 minute", "retain_views": "1 minute"}
    driven, topic = _deployed(bench, "files", **kept)
    random = np.random.default_rng(2)
    found: list[Counted] = []
    spent: list[float] = []
    with ThreadPoolExecutor(1) as pool:
        maintenance: Future[None] | None = None
        for number in range(intervals):
            topic.send(_orders(random, records, keys))
            if number % every == every - 1 and (maintenance is None or maintenance.done()):
                maintenance = pool.submit(_maintain, driven, spent)
            found.append(_counted(bench, driven, maintenance))
            if number % 50 == 49:
                say(f"{number + 1} intervals: {found[-1]}")
        if maintenance is not None:
            maintenance.result()
    driven.check()
    return _files_aim(found, spent, records, every)


def _maintain(driven: Driven, spent: list[float]) -> None:
    """As the maintenance DAG does, with a pipeline of its own."""
    started = time.perf_counter()
    with Pipeline(driven.name, driven.settings) as pipeline:
        pipeline.maintain(lambda _: None)
    spent.append(time.perf_counter() - started)


def _counted(bench: Bench, driven: Driven, maintenance: Future[None] | None) -> Counted:
    """One interval, and the files after it."""
    beside = maintenance is not None and not maintenance.done()
    seconds = driven.advance().seconds
    live, there = data_files(bench, driven), files_on_disk(bench, driven)
    return Counted(
        round(seconds, 3),
        beside,
        sum(map(len, live.traces.values())),
        sum(map(len, live.outboxes.values())),
        len(there),
        sum(path.parent.name == "metadata" for path in there),
    )


def _files_aim(found: list[Counted], spent: list[float], records: int, every: int) -> Aim:
    kinds = ("traces", "outboxes", "on_disk")
    grown = {kind: growth([getattr(one, kind) for one in found]) for kind in kinds}
    times = {
        beside: [one.seconds for one in found[every:] if one.beside is beside]
        for beside in (True, False)
    }
    if not all(times.values()):
        raise SystemExit("too few intervals to have some with and some without maintenance")
    slower = median(times[True]) / median(times[False])
    measured = ", ".join(f"{kind} {ratio:.2f} x" for kind, ratio in grown.items())
    return Aim(
        target=f"files of the last quarter at most {GROWTH} x those of the second; intervals beside "
        f"maintenance at most {HELD_UP} x the others",
        measured=f"{measured.replace('_', ' ')}; {slower:.2f} x",
        holds=max(grown.values()) <= GROWTH and slower <= HELD_UP,
        scale=f"{len(found):,} intervals of {records} records, maintenance every {every}",
        series={
            "intervals": [asdict(one) for one in found],
            "maintenance_seconds": [round(one, 3) for one in spent],
        },
    )


def growth(counts: Sequence[int]) -> float:
    """The mean of the last quarter in that of the second."""
    quarter = len(counts) // 4
    second, last = counts[quarter : 2 * quarter], counts[-quarter:]
    return statistics.mean(last) / statistics.mean(second)
