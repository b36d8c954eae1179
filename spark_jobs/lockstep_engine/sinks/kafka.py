"""The Kafka sink: rows and marker in one transaction per shard and range of steps.

The law: the topic holds the messages of every outbox row up to the marker once, for whoever reads it
with `read_committed`, whatever dies and however often a publish is started. What is published is
found out from the markers, never from an exit code or a time-out; to be fenced means to read again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lockstep.control.model import Division
from lockstep.control.ports import Progress
from lockstep.errors import AttemptLost, WrongUse
from lockstep.sql.circuit import SinkTable
from lockstep_engine.deltas import STEP
from lockstep_engine.sinks.kafka_link import SinkClient
from lockstep_engine.sinks.kafka_messages import dealt, messages
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
from lockstep_engine.sinks.kafka_rounds import send_by_threads
from lockstep_engine.sinks.kafka_rows import NO_ROWS, FetchedRows
from lockstep_engine.sinks.kafka_steps import step_messages
from lockstep_engine.sinks.kafka_tasks import send_by_tasks, send_together_by_tasks
from lockstep_engine.told import few_rows

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
            new = placed(opening.published)
            return few_rows(new, ROWS_FROM_DRIVER) if about.pending else NO_ROWS

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
            fetched_rows = FetchedRows(small, opened.partitions).after(from_step)
            rows = _Fetched(fetched_rows, opened, sink.steps_together)
        else:
            rows = _Written(placed(from_step), opened, sink.steps_together)
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

    def __init__(self, rows: FetchedRows, opened: OpenedSink, steps_together: bool) -> None:
        super().__init__()
        self._rows, self._client = rows, opened.client
        self._shards = opened.plan.shards
        self._steps_together = steps_together

    def counts(self) -> _Counts:
        return self._rows.counts(self._shards)

    def send(self, works: list[ShardWork], row_limit: int) -> int:
        if self._steps_together:
            return send_by_threads(works, self._of_shard, self._client.link_of, row_limit)
        return sum(
            send_shard(work, self._of_shard(work), self._client.link_of(work), row_limit)
            for work in works
        )

    def _of_shard(self, work: ShardWork) -> Iterator[Message]:
        return self._rows.of_shard(work.shard, work.shards)


class _Written:
    """Many, or not known to be few: kept by Spark, and sent by its tasks."""

    def __init__(self, placed: DataFrame, opened: OpenedSink, steps_together: bool) -> None:
        self._client = opened.client
        self._rows = dealt(placed, opened.plan.shards, opened.partitions)
        self._steps_together = steps_together

    def __enter__(self) -> None:
        self._rows.persist()

    def __exit__(self, *_: object) -> None:
        self._rows.unpersist()

    def counts(self) -> _Counts:
        return _counts(self._rows)

    def send(self, works: list[ShardWork], row_limit: int) -> int:
        """Those without rows are sent from here, together only where none has any."""
        client = self._client
        busy = {work.shard: work for work in works if work.rows}
        if self._steps_together:
            if not busy:
                return send_by_threads(works, lambda _: iter(()), client.link_of, row_limit)
            return send_together_by_tasks(client.address, works, self._rows, row_limit)
        for work in works:
            if not work.rows:
                send_shard(work, iter(()), client.link_of(work), row_limit)
        return send_by_tasks(client.address, busy, self._rows, row_limit) if busy else 0


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
