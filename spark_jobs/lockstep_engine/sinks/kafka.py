"""The Kafka sink: rows and marker in one transaction per shard and range of steps (design, section 6).

The law: the topic holds the messages of every outbox row up to the marker once, for whoever reads it
with `read_committed`, whatever dies and however often a publish is started. What is published is
found out from the markers, never from an exit code or a time-out; to be fenced means to read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lockstep.control.kafka_options import KafkaConnection
from lockstep.errors import AttemptLost, WrongUse
from lockstep.sql.circuit import SinkTable
from lockstep_engine.deltas import STEP
from lockstep_engine.sinks.kafka_link import (
    SinkAddress,
    TransactionLink,
    partition_count,
    read_markers,
)
from lockstep_engine.sinks.kafka_messages import MESSAGE_ORDER, messages
from lockstep_engine.sinks.kafka_plan import (
    FencedError,
    Marker,
    Message,
    ShardWork,
    SinkPlan,
    plan_shards,
    send_shard,
)
from lockstep_engine.sinks.kafka_tail import tail_markers

__all__ = ["KafkaPublished", "fence", "publish_kafka", "sink_address"]

ROWS_PER_TRANSACTION = 500_000
ROWS_FROM_DRIVER = 20_000
"""Up to so many rows the driver sends by itself: a Spark job and a second fence cost a second."""

TRIES = 3

_Counts = Mapping[int, Mapping[int, int]]


class KafkaPublished(NamedTuple):
    """`marker`: the step up to which every shard is published now; `rows` sent by this call."""

    marker: int
    rows: int


def publish_kafka(
    spark: SparkSession,
    sink: SinkTable,
    incarnation: str,
    changes: DataFrame,
    first_step: int,
    last_step: int,
    step_times: Mapping[int, int] | None = None,
    row_limit: int = ROWS_PER_TRANSACTION,
) -> KafkaPublished:
    """Move a sink to `last_step`. Twice is harmless; so is another publish at the same time.

    `changes`: rows of the committed outbox (the view's columns as written, `_weight`, `_step`), at
    least those of first_step..last_step. Steps before `first_step` are known to be published.
    `step_times`: milliseconds since the epoch by step, for 'debezium'. Raises WrongUse for options,
    a missing topic or a key that is not unique, StateDiverged where the markers contradict the
    store, Unreachable, AttemptLost where others keep taking over.
    """
    del spark  # The frame knows its session.
    address = sink_address(sink, incarnation)
    taken_over = ""
    for _ in range(TRIES):
        try:
            return _publish(
                address, sink, changes, first_step, last_step, step_times or {}, row_limit
            )
        except FencedError as error:
            taken_over = str(error)
    raise AttemptLost(
        f"sink {sink.name}: other publishes took over {TRIES} times",
        found=taken_over,
        next_step="publish again once the other publish of this pipeline has ended",
    )


def sink_address(sink: SinkTable, incarnation: str) -> SinkAddress:
    """Where a sink writes. Raises WrongUse for connection options that do not fit."""
    connection = KafkaConnection.from_options(sink.options, f"sink {sink.name}")
    return SinkAddress(connection.librdkafka(), sink.options["topic"], incarnation, sink.name)


def fence(address: SinkAddress, shards: Iterable[int]) -> dict[int, Marker]:
    """End the transactions of whoever publishes under these shards' ids now; their markers then."""
    found: dict[int, Marker] = {}
    for shard in shards:
        with _link(address, shard, 0) as link:
            marker = link.open()
        if marker is not None:
            found[shard] = marker
    return found


def _publish(
    address: SinkAddress,
    sink: SinkTable,
    changes: DataFrame,
    first_step: int,
    last_step: int,
    step_times: Mapping[int, int],
    row_limit: int,
) -> KafkaPublished:
    partitions = partition_count(address)
    plan = _plan(address, sink, partitions, first_step - 1)
    from_step = min(plan.after.values())
    if from_step >= last_step:
        return KafkaPublished(from_step, 0)
    written = messages(
        changes.where((F.col(STEP) > from_step) & (F.col(STEP) <= last_step)),
        sink,
        address.incarnation,
        plan.shards,
        partitions,
        step_times,
    ).persist()
    try:
        counts = _counts(written, sink)
        works = [
            ShardWork(shard, plan.shards, plan.after[shard], last_step, counts.get(shard, {}))
            for shard in range(plan.shards)
            if plan.after[shard] < last_step
        ]
        rows = _send(address, works, written, row_limit)
    finally:
        written.unpersist()
    markers = read_markers(address, range(plan.shards))
    reached = min(markers[shard].step if shard in markers else -1 for shard in range(plan.shards))
    return KafkaPublished(reached, rows)


def _plan(address: SinkAddress, sink: SinkTable, partitions: int, published: int) -> SinkPlan:
    """Fence every shard that may be at work, read the markers, and stamp a new number of shards.

    The first publish stamps as well, so that whoever comes next knows which shards there were.
    """
    wanted = _wanted_shards(sink, partitions)
    before = read_markers(address, range(partitions))
    ids = set(range(wanted)) | {shard for shard in before if shard < _most_shards(before)}
    recorded = {**before, **fence(address, sorted(ids))}
    # Markers expire after offsets.retention.minutes without a publish: the topic itself then decides.
    expired = not recorded and published >= 0
    markers = tail_markers(address, partitions, published) if expired else recorded
    plan = plan_shards(markers, wanted, published, sink.name)
    for shard, step in plan.stamp.items():
        with _link(address, shard, plan.shards) as link:
            found = link.open()
            if found != recorded.get(shard):
                raise FencedError(f"{FencedError.TEXT} shard {shard}: found {found}")
            link.begin()
            link.commit(Marker(step, plan.shards))
    return plan


def _most_shards(markers: Mapping[int, Marker]) -> int:
    return max((marker.shards for marker in markers.values()), default=0)


def _wanted_shards(sink: SinkTable, partitions: int) -> int:
    text = sink.options.get("shards", "1")
    if text.isdecimal() and 1 <= int(text) <= partitions:
        return int(text)
    raise WrongUse(
        f"sink {sink.name} has an option 'shards' that cannot be used",
        expected=f"a number from 1 to {partitions}, the partitions of topic {sink.options['topic']}",
        found=text,
        next_step=f"correct it at {sink.position} and deploy again",
    )


def _counts(written: DataFrame, sink: SinkTable) -> _Counts:
    """Messages by shard and step, which every transaction is held to."""
    counted = written.groupBy("_shard", STEP).agg(
        F.count("*").alias("rows"), F.max(F.expr("IF(_twice, _key, NULL)")).alias("twice")
    )
    counts: dict[int, dict[int, int]] = {}
    for shard, step, rows, twice in counted.collect():
        if twice is not None:
            raise WrongUse(
                f"sink {sink.name}: 'key' does not tell the rows of view {sink.view} apart",
                expected="at most one row a key",
                found=f"several rows with key {twice} in step {step}",
                next_step="name more columns in 'key', or use 'format' = 'changelog'",
            )
        counts.setdefault(shard, {})[step] = rows
    return counts


def _send(address: SinkAddress, works: list[ShardWork], written: DataFrame, row_limit: int) -> int:
    """Publish all shards; those without rows from here, and all of them where it is little."""
    total = sum(sum(work.rows.values()) for work in works)
    if total <= ROWS_FROM_DRIVER:
        ordered = written.sort("_shard", *MESSAGE_ORDER).toArrow() if total else None
        return sum(_send_from_here(address, work, ordered, row_limit) for work in works)
    idle = sum(_send_from_here(address, w, None, row_limit) for w in works if not w.rows)
    busy = {work.shard: work for work in works if work.rows}
    return idle + _send_by_tasks(address, busy, written, row_limit)


def _send_from_here(
    address: SinkAddress, work: ShardWork, ordered: pa.Table | None, row_limit: int
) -> int:
    batches = [] if ordered is None else ordered.to_batches()
    rows = (message for shard, message in _messages(batches) if shard == work.shard)
    with _link(address, work.shard, work.shards) as link:
        return send_shard(work, rows, link, row_limit)


def _send_by_tasks(
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
        with _link(self.address, shard, work.shards) as link:
            sent = send_shard(work, _of_shard(shard, first[1], rows), link, self.row_limit)
        yield pa.record_batch({"shard": pa.array([shard], pa.int32()), "rows": pa.array([sent])})


def _of_shard(shard: int, first: Message, rows: Iterable[tuple[int, Message]]) -> Iterator[Message]:
    yield first
    for found, message in rows:
        assert found == shard, f"a task of shard {shard} got a row of shard {found}"
        yield message


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


@contextmanager
def _link(address: SinkAddress, shard: int, shards: int) -> Iterator[TransactionLink]:
    link = TransactionLink(address, shard, shards)
    try:
        yield link
    finally:
        link.close()
