"""Many messages sent by Spark's tasks: those of a shard by one of them, in order, as transactions.

One task a shard, and none knows of the others; or, with `steps_together`, the tasks of a barrier stage.
Spark runs these all at once or not at all, so there are no more of them than it has slots, and where
there are more shards a task has several. To refuse so many shards would be less to write, but a sink
could then not go on where Spark has become smaller, as its number of shards only changes between steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lockstep.errors import WrongUse
from lockstep_engine.coordination import met
from lockstep_engine.deltas import STEP
from lockstep_engine.sinks.kafka_link import SinkAddress, TransactionLink, linked
from lockstep_engine.sinks.kafka_messages import MESSAGE_ORDER
from lockstep_engine.sinks.kafka_plan import FencedError, Message, ShardWork, send_shard
from lockstep_engine.sinks.kafka_rounds import StepRounds, rounds_of, send_together

__all__ = ["send_by_tasks", "send_together_by_tasks"]

_NO_BARRIER = "Barrier execution mode does not"
"""Of the messages with which Spark refuses a barrier stage: too few slots, or hosts that come and go."""


def send_by_tasks(
    address: SinkAddress, works: Mapping[int, ShardWork], written: DataFrame, row_limit: int
) -> int:
    """One task a shard. A failure in one of them ends the others' inputs early: they see that."""
    shards = max(works) + 1
    parted = written.where(F.col("_shard").isin(sorted(works))).repartitionById(
        shards, F.col("_shard")
    )
    try:
        sent = (
            parted.sortWithinPartitions(*MESSAGE_ORDER)
            .mapInArrow(_ShardTask(address, dict(works), row_limit), "shard int, rows bigint")
            .collect()
        )
    except PySparkException as error:
        if FencedError.TEXT in str(error):
            raise FencedError(f"{FencedError.TEXT} from a task of sink {address.sink}") from error
        raise
    return sum(row["rows"] for row in sent)


@dataclass(frozen=True)
class _ShardTask:
    """Runs at a worker: the messages of one shard, in order, as transactions."""

    address: SinkAddress
    works: Mapping[int, ShardWork]
    row_limit: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = _messages(batches)
        first = next(rows, None)
        if first is None:
            return
        shard = first[0]
        work = self.works[shard]
        with linked(self.address, shard, work.shards) as link:
            sent = send_shard(work, _of_shard(shard, first[1], rows), link, self.row_limit)
        yield pa.record_batch({"shard": pa.array([shard], pa.int32()), "rows": pa.array([sent])})


def _of_shard(shard: int, first: Message, rows: Iterable[tuple[int, Message]]) -> Iterator[Message]:
    yield first
    for found, message in rows:
        assert found == shard, f"a task of shard {shard} got a row of shard {found}"
        yield message


# ── step by step, together ──────────────────────────────────────────────────────────────────────


def send_together_by_tasks(
    address: SinkAddress, works: Sequence[ShardWork], written: DataFrame, row_limit: int
) -> int:
    """As many tasks as there are shards, or slots; those whose shards have no rows take part as well.

    A task that is fenced says so in a row: when several tasks fail, Spark may name another's reason.
    Raises FencedError, and WrongUse where Spark does not start such stages.
    """
    shards = sorted(work.shard for work in works)
    tasks = min(len(shards), _slots(written.sparkSession))
    # By place among the shards: of those that are left each task has as many as the others.
    places = f"array_position(array({', '.join(map(str, shards))}), _shard)"
    parted = written.where(F.col("_shard").isin(shards)).repartitionById(
        tasks, F.expr(f"CAST(({places} - 1) % {tasks} AS INT)")
    )
    task = _TogetherTask(address, tuple(works), tasks, row_limit)
    try:
        told = (
            parted.sortWithinPartitions(STEP, "_shard", *MESSAGE_ORDER[1:])
            .mapInArrow(task, "rows bigint, fenced string", barrier=True)
            .collect()
        )
    except PySparkException as error:
        if _NO_BARRIER in str(error):
            raise _no_barrier(address.sink, tasks, error) from error
        raise
    for row in told:
        if row["fenced"] is not None:
            raise FencedError(row["fenced"])
    return sum(row["rows"] for row in told)


@dataclass(frozen=True)
class _TogetherTask:
    """Runs at a worker, which may have several shards: their messages, step by step with the others."""

    address: SinkAddress
    works: Sequence[ShardWork]
    tasks: int
    row_limit: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sent, fenced = 0, None
        with met() as groups, ExitStack() as open_links:
            links: dict[int, TransactionLink] = {}

            def link_of(work: ShardWork) -> TransactionLink:
                if work.shard not in links:
                    link = linked(self.address, work.shard, work.shards)
                    links[work.shard] = open_links.enter_context(link)
                return links[work.shard]

            works = sorted(self.works, key=lambda work: work.shard)
            own = works[int(groups.worker) :: self.tasks]
            rounds = StepRounds(groups.carrier, groups.worker, groups.workers)
            try:
                sent = send_together(
                    own, rounds_of(works), _messages(batches), link_of, rounds, self.row_limit
                )
            except FencedError as error:
                fenced = str(error)
        told = {"rows": pa.array([sent], pa.int64()), "fenced": pa.array([fenced], pa.string())}
        yield pa.record_batch(told)


def _slots(spark: SparkSession) -> int:
    """How many tasks can run at once: into so many parts Spark cuts what says nothing of parts."""
    return spark.range(1 << 16).select(F.spark_partition_id()).distinct().count()


def _no_barrier(sink: str, tasks: int, error: PySparkException) -> WrongUse:
    return WrongUse(
        f"sink {sink}: Spark does not run {tasks} tasks together, as 'steps_together' needs",
        expected=f"{tasks} task slots, and no spark.dynamicAllocation.enabled",
        found=str(error).strip().splitlines()[0],
        next_step="give Spark as many slots, or take 'steps_together' out and deploy again",
    )


# ── rows on their way ───────────────────────────────────────────────────────────────────────────


def _messages(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Message]]:
    """Shard and message of each row."""
    for batch in batches:
        columns = (
            batch.column(name).to_pylist()
            for name in ("_shard", STEP, "_partition", "_key", "_value")
        )
        for shard, step, partition, key, value in zip(*columns, strict=True):
            yield shard, Message(step, partition, _bytes(key), _bytes(value))


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
