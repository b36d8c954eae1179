"""The Kafka sink: rows and marker in one transaction per shard and range of steps (design, section 6).

The law: the topic holds the messages of every outbox row up to the marker once, for whoever reads it
with `read_committed`, whatever dies and however often a publish is started. What is published is
found out from the markers, never from an exit code or a time-out; to be fenced means to read again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lockstep.control.model import Division
from lockstep.control.ports import Progress
from lockstep.errors import AttemptLost, WrongUse
from lockstep.sql.circuit import SinkTable
from lockstep_engine.deltas import STEP
from lockstep_engine.sinks.kafka_link import SinkAddress, linked, read_markers
from lockstep_engine.sinks.kafka_messages import MESSAGE_ORDER, messages
from lockstep_engine.sinks.kafka_opening import (
    OpenedSink,
    SinkOpening,
    sink_address,
    steps_address,
)
from lockstep_engine.sinks.kafka_plan import (
    FencedError,
    Message,
    ShardWork,
    check_part,
    send_shard,
)
from lockstep_engine.sinks.kafka_steps import step_messages

__all__ = ["KafkaPublished", "Publishing", "publish_kafka"]

ROWS_PER_TRANSACTION = 500_000
ROWS_FROM_DRIVER = 20_000
"""Up to so many rows the driver sends by itself: a Spark job and a second fence cost a second."""

TRIES = 3


class KafkaPublished(NamedTuple):
    """`marker`: the step up to which every shard is published now; `rows` sent by this call."""

    marker: int
    rows: int


@dataclass(frozen=True)
class StepRows:
    """What a step has in a shard: how many messages, and the sum of their hashes, as hex digits."""

    count: int
    digest: str


_Counts = Mapping[int, Mapping[int, StepRows]]


@dataclass(frozen=True)
class Publishing:
    """What a publish may know beside the rows.

    `divisions` are those of the steps, as far as they are kept. `was_intended`: an earlier publish has
    recorded the intent to publish after what is recorded as published, so some of it may be out.
    """

    divisions: tuple[Division, ...] = ()
    was_intended: bool = False
    row_limit: int = ROWS_PER_TRANSACTION
    progress: Progress = lambda _: None

    @property
    def step_times(self) -> Mapping[int, int]:
        """Milliseconds since the epoch by step."""
        return {one.step: round(one.time.timestamp() * 1000) for one in self.divisions}


def publish_kafka(
    spark: SparkSession,
    sink: SinkTable,
    incarnation: str,
    changes: DataFrame,
    first_step: int,
    last_step: int,
    publishing: Publishing | None = None,
) -> KafkaPublished:
    """Move a sink to `last_step`. Twice is harmless; so is another publish at the same time.

    `changes`: rows of the committed outbox (the view's columns as written, `_weight`, `_step`), at
    least those of first_step..last_step. Steps before `first_step` are known to be published.
    Raises WrongUse for options, a missing topic or a key that is not unique, StateDiverged where the
    markers contradict the store or cannot be found again, Unreachable, AttemptLost where others keep
    taking over.
    """
    del spark  # The frame knows its session.
    about = publishing or Publishing()
    opening = SinkOpening(sink, first_step - 1, last_step, about.was_intended, about.progress)
    taken_over = ""
    for _ in range(TRIES):
        try:
            return _publish(opening, incarnation, changes, about)
        except FencedError as error:
            taken_over = str(error)
    raise AttemptLost(
        f"sink {sink.name}: other publishes took over {TRIES} times",
        found=taken_over,
        next_step="publish again once the other publish of this pipeline has ended",
    )


def _publish(
    opening: SinkOpening, incarnation: str, changes: DataFrame, about: Publishing
) -> KafkaPublished:
    sink, last_step = opening.sink, opening.last_step
    opened = opening.open(sink_address(sink, incarnation))
    side = steps_address(sink, incarnation)
    steps = None if side is None else opening.open(side, shards=1)
    from_step = opened.after if steps is None else min(opened.after, steps.after)
    if from_step >= last_step:
        return KafkaPublished(from_step, 0)
    written = messages(
        changes.where((F.col(STEP) > from_step) & (F.col(STEP) <= last_step)),
        sink,
        incarnation,
        opened.plan.shards,
        opened.partitions,
        about.step_times,
    ).persist()
    try:
        counts = _counts(written, sink)
        works = _works(opened, sink.name, counts, last_step)
        rows = _send(opened.address, works, written, about.row_limit)
    finally:
        written.unpersist()
    shards = range(opened.plan.shards)
    markers = read_markers(opened.address, shards)
    reached = min(markers[shard].step if shard in markers else -1 for shard in shards)
    if steps is not None and reached >= last_step:
        reached = _say_steps(steps, sink, counts, last_step, about)
    return KafkaPublished(reached, rows)


def _works(opened: OpenedSink, sink: str, counts: _Counts, last_step: int) -> list[ShardWork]:
    """What is to be done for each shard that is not there yet. Raises StateDiverged where a part of a
    step is there that has other rows now."""
    works = []
    for shard, after in sorted(opened.plan.after.items()):
        if after < last_step:
            found = counts.get(shard, {})
            rows = {step: one.count for step, one in found.items()}
            digests = {step: one.digest for step, one in found.items()}
            works.append(ShardWork(shard, opened.plan.shards, after, last_step, rows, digests))
            check_part(works[-1], opened.markers[shard], sink)
    return works


def _say_steps(
    steps: OpenedSink, sink: SinkTable, counts: _Counts, last_step: int, about: Publishing
) -> int:
    """Say on the side topic that all steps up to `last_step` are complete; the step said last."""
    rows: Counter[int] = Counter()
    for of_shard in counts.values():
        rows.update({step: found.count for step, found in of_shard.items()})
    after = steps.after
    divisions = {one.step: one for one in about.divisions}
    said = step_messages(steps.address, sink.name, after, last_step, rows, divisions)
    records = dict.fromkeys(range(after + 1, last_step + 1), 1)
    with linked(steps.address, 0, 1) as link:
        send_shard(ShardWork(0, 1, after, last_step, records), said, link, about.row_limit)
    return last_step


def _counts(written: DataFrame, sink: SinkTable) -> _Counts:
    """Messages by shard and step, which every transaction is held to."""
    half = (1 << 32) - 1
    counted = (
        written.withColumn("_hash", F.xxhash64("_key", "_value"))
        .groupBy("_shard", STEP)
        .agg(
            F.count("*").alias("rows"),
            F.max(F.expr("IF(_twice, _key, NULL)")).alias("twice"),
            # Halves, of which 2^31 can be added: a sum of hashes is not within a bigint.
            F.sum(F.expr("shiftrightunsigned(_hash, 32)")).alias("high"),
            F.sum(F.expr(f"_hash & {half}L")).alias("low"),
        )
    )
    counts: dict[int, dict[int, StepRows]] = {}
    for shard, step, rows, twice, high, low in counted.collect():
        if twice is not None:
            raise WrongUse(
                f"sink {sink.name}: 'key' does not tell the rows of view {sink.view} apart",
                expected="at most one row a key",
                found=f"several rows with key {twice} in step {step}",
                next_step="name more columns in 'key', or use 'format' = 'changelog'",
            )
        counts.setdefault(shard, {})[step] = StepRows(rows, f"{(high << 32) + low:x}")
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
    with linked(address, work.shard, work.shards) as link:
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
        with linked(self.address, shard, work.shards) as link:
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
