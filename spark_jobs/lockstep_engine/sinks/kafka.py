"""The Kafka sink: rows and marker in one transaction per shard and range of steps (design, section 6).

The law: the topic holds the messages of every outbox row up to the marker once, for whoever reads it
with `read_committed`, whatever dies and however often a publish is started. What is published is
found out from the markers, never from an exit code or a time-out; to be fenced means to read again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lockstep.control.model import Division
from lockstep.control.ports import Progress
from lockstep.errors import AttemptLost, WrongUse
from lockstep.sql.circuit import SinkTable
from lockstep_engine.deltas import STEP
from lockstep_engine.sinks.kafka_link import SinkAddress, SinkClient, linked
from lockstep_engine.sinks.kafka_messages import MESSAGE_ORDER, dealt, messages
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
    StepRows,
    check_part,
    send_shard,
)
from lockstep_engine.sinks.kafka_rows import NO_ROWS, FetchedRows
from lockstep_engine.sinks.kafka_steps import step_messages

__all__ = ["KafkaPublished", "Publishing", "publish_kafka"]

ROWS_PER_TRANSACTION = 500_000
ROWS_FROM_DRIVER = 20_000
"""Up to so many messages the driver fetches and sends itself: tasks cost two more Spark jobs, and fences
of their own."""

TRIES = 3


class KafkaPublished(NamedTuple):
    """`marker`: the step up to which every shard is published now; `rows` sent by this call."""

    marker: int
    rows: int


_Counts = Mapping[int, Mapping[int, StepRows]]


@dataclass(frozen=True)
class Publishing:
    """What a publish may know beside the rows.

    `divisions` are those of the steps, as far as they are kept. `was_intended`: an earlier publish has
    recorded the intent to publish after what is recorded as published, so some of it may be out.
    `pending` is how many rows of the outbox there are to publish at most, if that is known.
    """

    divisions: tuple[Division, ...] = ()
    was_intended: bool = False
    row_limit: int = ROWS_PER_TRANSACTION
    pending: int | None = None
    progress: Progress = lambda _: None

    @property
    def is_small(self) -> bool:
        """Whether the driver takes all rows."""
        return self.pending is not None and self.pending <= ROWS_FROM_DRIVER

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
    side = steps_address(sink, incarnation)
    with ExitStack() as clients:
        client = clients.enter_context(SinkClient(sink_address(sink, incarnation)))
        said = None if side is None else clients.enter_context(SinkClient(side))

        def placed(after: int) -> DataFrame:
            new = changes.where((F.col(STEP) > after) & (F.col(STEP) <= last_step))
            return messages(new, sink, incarnation, about.step_times)

        def fetched() -> pa.Table | None:
            if not about.is_small:
                return None
            # A row of the outbox may be many messages; one too many tells.
            few = placed(opening.published).limit(ROWS_FROM_DRIVER + 1)
            table = few.toArrow() if about.pending else NO_ROWS
            return table if table.num_rows <= ROWS_FROM_DRIVER else None

        # A small change is fetched while the topics are opened: Spark and Kafka wait for each other
        # no longer than they have to.
        with ThreadPoolExecutor(2) as others:
            table = others.submit(fetched)
            opened_side = others.submit(
                lambda: None if said is None else opening.open(said, shards=1)
            )
            opened = opening.open(client)
        steps = opened_side.result()
        from_step = opened.after if steps is None else min(opened.after, steps.after)
        if from_step >= last_step:
            return KafkaPublished(from_step, 0)
        small = table.result()
        rows: _Rows
        if small is not None and from_step >= opening.published:
            rows = _Fetched(FetchedRows(small, opened.partitions).after(from_step), opened)
        else:
            rows = _Written(placed(from_step), opened)
        with rows:
            counts = rows.counts()
            _check_keys(counts, sink)
            works = _works(opened, sink.name, counts, last_step)
            sent = rows.send(works, about.row_limit)
        reached = _reached(opened)
        if steps is not None and reached >= last_step:
            reached = _say_steps(steps, sink, counts, last_step, about)
        return KafkaPublished(reached, sent)


def _reached(opened: OpenedSink) -> int:
    """The step that every shard has by its own marker."""
    shards = range(opened.plan.shards)
    markers = opened.client.markers(shards)
    return min(markers[shard].step if shard in markers else -1 for shard in shards)


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
    said = step_messages(steps.client.address, sink.name, after, last_step, rows, divisions)
    records = dict.fromkeys(range(after + 1, last_step + 1), 1)
    link = steps.client.link(0, 1)
    send_shard(ShardWork(0, 1, after, last_step, records), said, link, about.row_limit)
    return last_step


def _check_keys(counts: _Counts, sink: SinkTable) -> None:
    for of_shard in counts.values():
        for step, found in of_shard.items():
            if found.twice is not None:
                raise WrongUse(
                    f"sink {sink.name}: 'key' does not tell the rows of view {sink.view} apart",
                    expected="at most one row a key",
                    found=f"several rows with key {found.twice} in step {step}",
                    next_step="name more columns in 'key', or use 'format' = 'changelog'",
                )


# ── rows on their way ───────────────────────────────────────────────────────────────────────────


class _Rows(Protocol):
    """The messages of a publish, wherever they are. Entered while they are used."""

    def __enter__(self) -> object: ...

    def __exit__(self, *_: object) -> None: ...

    def counts(self) -> _Counts:
        """Messages by shard and step, which every transaction is held to."""
        ...

    def send(self, works: list[ShardWork], row_limit: int) -> int:
        """Publish all shards; how many messages were sent."""
        ...


class _Fetched(nullcontext[None]):
    """Few, and here."""

    def __init__(self, rows: FetchedRows, opened: OpenedSink) -> None:
        super().__init__()
        self._rows, self._client = rows, opened.client
        self._shards = opened.plan.shards

    def counts(self) -> _Counts:
        return self._rows.counts(self._shards)

    def send(self, works: list[ShardWork], row_limit: int) -> int:
        return sum(
            send_shard(
                work,
                self._rows.of_shard(work.shard, work.shards),
                self._client.link(work.shard, work.shards),
                row_limit,
            )
            for work in works
        )


class _Written:
    """Many, or not known to be few: kept by Spark, and sent by its tasks."""

    def __init__(self, placed: DataFrame, opened: OpenedSink) -> None:
        self._client = opened.client
        self._rows = dealt(placed, opened.plan.shards, opened.partitions)

    def __enter__(self) -> None:
        self._rows.persist()

    def __exit__(self, *_: object) -> None:
        self._rows.unpersist()

    def counts(self) -> _Counts:
        return _counts(self._rows)

    def send(self, works: list[ShardWork], row_limit: int) -> int:
        """Those without rows are sent from here."""
        for work in works:
            if not work.rows:
                link = self._client.link(work.shard, work.shards)
                send_shard(work, iter(()), link, row_limit)
        busy = {work.shard: work for work in works if work.rows}
        return _send_by_tasks(self._client.address, busy, self._rows, row_limit) if busy else 0


def _counts(written: DataFrame) -> _Counts:
    half = (1 << 32) - 1
    counted = written.groupBy("_shard", STEP).agg(
        F.count("*").alias("rows"),
        F.max(F.expr("IF(_twice, _key, NULL)")).alias("twice"),
        # Halves, of which 2^31 can be added: a sum of hashes is not within a bigint.
        F.sum(F.expr("shiftrightunsigned(_hash, 32)")).alias("high"),
        F.sum(F.expr(f"_hash & {half}L")).alias("low"),
    )
    counts: dict[int, dict[int, StepRows]] = {}
    for shard, step, rows, twice, high, low in counted.collect():
        digest = f"{(high << 32) + low:x}"
        counts.setdefault(shard, {})[step] = StepRows(rows, digest, twice)
    return counts


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
