"""What being safe costs: the interval of a small and of a large change, with and without protection.

    python benchmarks/protection.py

Two pipelines of the project `totals` read the same topics in turn. One is Lockstep as it is. The other
does the same work (it reads the same slices, runs the same circuit and writes the same traces,
outboxes, views and messages) as a program would that never dies: the control store is in memory,
there is no lease, every append goes to `main`, no branch is made, checked, pinned or dropped, views are
overwritten in place, and messages go out by a plain producer, without transaction, fence or marker,
and without the side topic that says which steps are complete.
After the rounds the views of the two are compared.

Seconds are medians over the rounds; what counts is the ratio of the two, and the parts of each.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from torture_servers import BROKER, ROOT, SPARK, Servers

from lockstep.adapters.iceberg_tables import IcebergTables
from lockstep.adapters.memory_store import MemoryStore
from lockstep.adapters.settings import Settings
from lockstep.cli.bench import advance
from lockstep.control import interval as stages
from lockstep.control.changes import Deploy
from lockstep.control.job import (
    CatalogSettings,
    IntervalJob,
    IntervalResult,
    PublishJob,
    PublishResult,
    TableWrite,
)
from lockstep.control.planning import plan
from lockstep.control.ports import Progress
from lockstep.control.publishing import publish
from lockstep.deploying import deploy
from lockstep.runtime import Pipeline
from lockstep.sql.circuit import SinkTable
from lockstep.threads import processors
from lockstep_engine import publishing
from lockstep_engine.connect import ConnectEngine
from lockstep_engine.deltas import STEP, WEIGHT, merge_steps, quoted
from lockstep_engine.sinks.iceberg import VIEW_PROPERTIES, ViewPublished
from lockstep_engine.sinks.kafka import KafkaPublished, Publishing
from lockstep_engine.sinks.kafka_link import partition_count
from lockstep_engine.sinks.kafka_messages import MESSAGE_ORDER, dealt, messages
from lockstep_engine.sinks.kafka_opening import sink_address
from lockstep_engine.sinks.view_rows import as_copies
from lockstep_engine.tables import columns_of_table, overwrite, read_at, table_name

sys.path.insert(0, str(ROOT / "tests" / "end_to_end"))
import reader
from long_lived import Totals

SIZES: Mapping[str, tuple[int, int]] = {"small": (100, 5), "large": (50_000, 3)}
"""Name -> orders of an interval, measured rounds."""
WARM_UPS = 2
STAGES = ("plan", "run", "publish")
VIEWS = ("customer_totals", "countries")
UNGUARDED = "unguarded"
SIDE_TOPIC = ",\n  'steps_topic' = 'totals_steps'"

PRODUCER_SETTINGS = {"linger.ms": 50, "batch.size": 1 << 20, "compression.type": "zstd"}
"""As the protected producer's."""

Seconds = Mapping[str, float]


class UnguardedState(IcebergTables):
    """Everything stands on `main`, and nobody else is there: nothing is made, checked or pinned."""

    writes: tuple[TableWrite, ...] = ()
    """What the engine wrote last."""

    def open_branch(self, table: str, branch: str, snapshot_id: int | None) -> int:
        return self.head(table, branch) if snapshot_id is None else snapshot_id

    def appended(self, table: str, branch: str, base_snapshot_id: int | None) -> tuple[str, ...]:
        del branch, base_snapshot_id
        return tuple(write.write_id for write in self.writes if write.table == table)

    def settle(
        self,
        table: str,
        snapshot_id: int,
        tag: str,
        drop: Sequence[str] = (),
        replaced: Collection[str] | None = (),
    ) -> None:
        del table, snapshot_id, tag, drop, replaced


class UnguardedEngine(ConnectEngine):
    """The engine on one session that is never asked for, with appends and publishing on `main`."""

    def __init__(self, remote: str, state: UnguardedState) -> None:
        super().__init__(remote, lambda _: state)
        self._state = state
        self._own_session = str(uuid.uuid4())
        self._published: dict[str, int] = {}

    def session(self, recorded: str) -> str:
        return recorded or self._own_session

    def run(self, job: IntervalJob, progress: Progress) -> IntervalResult:
        result = super().run(replace(job, branch="main"), progress)
        self._state.writes = result.writes
        return result

    def publish(self, job: PublishJob, progress: Progress) -> PublishResult:
        plain = {"publish_view": self._publish_view, "publish_kafka": _publish_kafka}
        with patch.multiple(publishing, **plain):
            return super().publish(job, progress)

    def _publish_view(  # noqa: PLR0913, PLR0917 - in place of the engine's
        self,
        spark: SparkSession,
        state: UnguardedState,
        catalog: CatalogSettings,
        view: str,
        columns: tuple[str, ...],
        outbox_table: str,
        outbox_snapshot_id: int,
        last_step: int,
        incarnation: str,
    ) -> ViewPublished:
        """The view and the changes since, netted, in place of the view."""
        del incarnation
        outbox = read_at(spark, catalog, outbox_table, outbox_snapshot_id)
        marker = self._published.get(view, -1)
        wanted = [*map(quoted, columns)]
        if marker < 0:
            columns = columns_of_table(view, outbox.select(*wanted).schema)
            state.make(view, columns, VIEW_PROPERTIES, {})
        delta = outbox.where(f"{STEP} > {marker}").select(*wanted, WEIGHT)
        there = spark.table(table_name(catalog, view))
        copies = there.select(*wanted, F.lit(1).cast("bigint").alias(WEIGHT))
        after = merge_steps(copies.unionByName(delta), columns)
        overwrite(catalog, view, "main", as_copies(after, WEIGHT, None), {})
        self._published[view] = last_step
        return ViewPublished(last_step, 0)


def _publish_kafka(
    spark: SparkSession,
    sink: SinkTable,
    incarnation: str,
    changes: DataFrame,
    first_step: int,
    last_step: int,
    about: Publishing,
) -> KafkaPublished:
    """The same messages in the same order, by a producer that promises nothing."""
    del spark
    address = sink_address(sink, incarnation)
    partitions = partition_count(address)
    new = changes.where(f"{STEP} >= {first_step} AND {STEP} <= {last_step}")
    placed = messages(new, sink, incarnation, about.step_times)
    written = dealt(placed, 1, partitions)
    rows = written.sort(*MESSAGE_ORDER).toArrow().to_pylist()
    producer = Producer({**address.connection, **PRODUCER_SETTINGS})
    for row in rows:
        while True:
            try:
                producer.produce(
                    address.topic,
                    key=row["_key"],
                    value=row["_value"],
                    partition=row["_partition"],
                    headers=[("lockstep-step", str(row[STEP]).encode())],
                )
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()
    return KafkaPublished(last_step, len(rows))


# ── the two of them ─────────────────────────────────────────────────────────────────────────────


def silent(_: str) -> None:
    """Progress that nobody reads."""


def deploy_unguarded(totals: Totals, guarded: Path, folder: Path) -> stages.Parts:
    """The same project beside the first: the same topics, another database, another output topic."""
    shutil.copytree(guarded, folder)
    spec, sql = folder / "spark-pipeline.yml", folder / "transformations" / "totals.sql"
    spec.write_text(spec.read_text("utf-8").replace(": totals", f": {UNGUARDED}"), "utf-8")
    text = sql.read_text("utf-8").replace("'topic' = 'totals_out'", f"'topic' = '{UNGUARDED}_out'")
    # Which steps are complete, nobody can say without markers.
    sql.write_text(text.replace(SIDE_TOPIC, ""), "utf-8")
    admin = AdminClient({"bootstrap.servers": totals.settings.kafka})
    topic = f"{UNGUARDED}_out"
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(timeout=30)
    state = deploy(str(folder), totals.settings)
    parts = Pipeline(UNGUARDED, totals.settings)._opened()
    memory = MemoryStore()
    memory.apply(UNGUARDED, Deploy(state.files, state.incarnation, state.sinks, parts.source_names))
    unguarded = UnguardedState(parts.catalog)
    engine = UnguardedEngine(totals.settings.spark_remote, unguarded)
    return replace(parts, store=memory, state=unguarded, engine=engine)


def advance_unguarded(parts: stages.Parts) -> Seconds:
    """The three stages without a lease; the seconds of each."""
    work: Mapping[str, Callable[[], object]] = {
        "plan": lambda: plan(parts, None, silent),
        "run": lambda: stages.run(parts, silent),
        "publish": lambda: publish(parts, silent),
    }
    seconds = {}
    for stage in STAGES:
        started = time.perf_counter()
        work[stage]()
        seconds[stage] = time.perf_counter() - started
    return seconds


def measure(totals: Totals, parts: stages.Parts, orders: int, rounds: int) -> dict[str, Any]:
    """Rounds of new orders, each an interval of both; who goes first changes."""
    ways: dict[str, Callable[[], Seconds]] = {
        "with": lambda: advance(totals.name, totals.settings, silent)[1],
        "without": lambda: advance_unguarded(parts),
    }
    found: dict[str, list[Seconds]] = {way: [] for way in ways}
    for number in range(WARM_UPS + rounds):
        totals.change(orders)
        for way in sorted(ways, reverse=bool(number % 2)):
            seconds = ways[way]()
            if number >= WARM_UPS:
                found[way].append(seconds)
    medians = {
        way: {
            "interval": statistics.median(sum(one.values()) for one in each),
            **{stage: statistics.median(one[stage] for one in each) for stage in STAGES},
        }
        for way, each in found.items()
    }
    return {
        "orders": orders,
        "rounds": rounds,
        "ratio": {
            part: round(medians["with"][part] / medians["without"][part], 2)
            for part in medians["with"]
        },
        **{
            f"{way}_seconds": {part: round(value, 3) for part, value in each.items()}
            for way, each in medians.items()
        },
    }


def check_equal(totals: Totals, parts: stages.Parts) -> None:
    """Both did the same work: the views are equal, row by row."""
    for view in VIEWS:
        rows = [
            Counter(tuple(row.values()) for row in reader.read_table(catalog, view))
            for catalog in (totals.catalog, parts.catalog)
        ]
        if rows[0] != rows[1]:
            raise SystemExit(f"view {view} differs: {(rows[0] - rows[1]) + (rows[1] - rows[0])}")


def main() -> None:
    """Measure both sizes, print, save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", type=Path, default=Path(__file__).with_name("protection.json"))
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lockstep-protection-") as name:
        folder = Path(name)
        servers = Servers(folder / "home")
        try:
            servers.start(BROKER, SPARK)
            totals = Totals(Settings.load(servers.variables), "", seed=1)
            totals.deploy(folder / "totals", rows_per_step=1_000_000)
            parts = deploy_unguarded(totals, folder / "totals", folder / UNGUARDED)
            sizes: dict[str, Any] = {"cpus": processors()}
            for size, (orders, rounds) in SIZES.items():
                sizes[size] = measure(totals, parts, orders, rounds)
                print(size, json.dumps(sizes[size]), flush=True)
                check_equal(totals, parts)
                asked.save.write_text(json.dumps(sizes, indent=1) + "\n", "utf-8")
        finally:
            servers.stop()


if __name__ == "__main__":
    main()
