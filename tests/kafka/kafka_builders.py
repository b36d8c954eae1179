"""Topics, records, sources and intervals for the tests of Kafka; every topic has a name of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from time import sleep
from unittest.mock import patch
from uuid import uuid4

from confluent_kafka import Producer
from confluent_kafka import TopicPartition as DeletedPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from kafka.protocol.consumer import IsolationLevel, OffsetSpec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lockstep.adapters.kafka import create_topics
from lockstep.control.kafka_options import KafkaConnection
from lockstep.control.model import Division, Interval, OffsetRange, TopicSlice
from lockstep.errors import Position
from lockstep.sql.circuit import Project, SinkTable, SourceColumn, SourceTable
from lockstep.sql.sources.source_layout import layout_of
from lockstep_engine.context import Context
from lockstep_engine.kernels.plain_json import PLAIN
from lockstep_engine.local.rows import Rows
from lockstep_engine.sources import readers
from lockstep_engine.sources.decoded import Decoded
from lockstep_engine.sources.kafka import _declared, read_kafka
from lockstep_engine.sources.offsets import StepRange
from lockstep_engine.sources.plain_records import PlainSource, plain_source

T0 = datetime(2025, 1, 1, tzinfo=UTC)


def new_topic(bootstrap: str, partitions: int = 1, **settings: str) -> str:
    topic = f"topic-{uuid4().hex[:10]}"
    named = {key.replace("_", "."): value for key, value in settings.items()}
    assert create_topics(KafkaConnection(bootstrap), {topic: partitions}, named) == (topic,)
    return topic


def send(
    bootstrap: str,
    topic: str,
    values: Iterable[bytes | None],
    partition: int = 0,
    timestamp: int = 0,
    batch: int = 10_000,
) -> None:
    """In batches of at most so many records: of how many follows else from how busy the machine is."""
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": batch})
    failed: list[object] = []
    for value in values:
        producer.produce(
            topic,
            value,
            partition=partition,
            timestamp=timestamp,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(30) == 0
    assert not failed


def delete_before(bootstrap: str, topic: str, offset: int) -> None:
    """The first records of partition 0 are gone."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for gone in admin.delete_records([DeletedPartition(topic, 0, offset)]).values():
        gone.result(timeout=30)


def send_transaction(
    bootstrap: str, topic: str, values: Iterable[bytes], commit: bool, partition: int = 0
) -> None:
    producer = open_transaction(bootstrap, topic, values, partition)
    if commit:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)


def open_transaction(
    bootstrap: str, topic: str, values: Iterable[bytes], partition: int = 0
) -> Producer:
    """Its records are written, and neither committed nor aborted."""
    settings = {"bootstrap.servers": bootstrap, "transactional.id": uuid4().hex}
    producer = Producer(settings)
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=partition)
    producer.flush(30)
    return producer


def source(
    bootstrap: str, topic: str, columns: Sequence[tuple[str, str]] = (), **options: str
) -> SourceTable:
    """Columns are (name, type); a type that ends in NOT NULL makes a column that must not be null."""
    declared = tuple(
        SourceColumn(name, kind.removesuffix(" NOT NULL"), not kind.endswith(" NOT NULL"))
        for name, kind in columns
    )
    return SourceTable(
        "src",
        declared,
        "kafka",
        {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, **options},
        Position("sources.sql"),
    )


def sink(bootstrap: str, topic: str, **options: str) -> SinkTable:
    return SinkTable(
        "out",
        "v",
        "kafka",
        {"kafka.bootstrap.servers": bootstrap, "topic": topic, **options},
        Position("sinks.sql"),
    )


def project(*sources: SourceTable) -> Project:
    return Project("p", "lake", "d", {}, sources, (), ())


def interval(topic: str, ends: Sequence[Mapping[int, int]], first_step: int = 0) -> Interval:
    """The first mapping holds the starts, each further one the ends of a step, by partition."""
    divisions = []
    for number, (start, end) in enumerate(pairwise(ends)):
        ranges = tuple(OffsetRange(p, start.get(p, 0), end[p]) for p in sorted(end))
        divisions.append(
            Division(
                first_step + number,
                T0 + timedelta(seconds=number),
                (TopicSlice("src", topic, "id", ranges),),
            )
        )
    return Interval(tuple(divisions))


def wait_until_decided(bootstrap: str, topic: str) -> None:
    """A commit is decided before its markers are written: until then the end is not stable."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        (described,) = admin.describe_topics([topic])
        places = [TopicPartition(topic, p["partition_index"]) for p in described["partitions"]]
        latest = dict.fromkeys(places, OffsetSpec.LATEST)
        while admin.list_partition_offsets(
            latest, IsolationLevel.READ_COMMITTED
        ) != admin.list_partition_offsets(latest, IsolationLevel.READ_UNCOMMITTED):
            sleep(0.02)
    finally:
        admin.close()


def committed_records(bootstrap: str, topic: str) -> list[ConsumerRecord]:
    """All committed records, in order within each partition, by a client that the sink doesn't use."""
    wait_until_decided(bootstrap, topic)
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    try:
        places = [TopicPartition(topic, p) for p in consumer.partitions_for_topic(topic) or ()]
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        ends = consumer.end_offsets(places)
        records: list[ConsumerRecord] = []
        while any(consumer.position(place) < ends[place] for place in places):
            for batch in consumer.poll(timeout_ms=500).values():
                records.extend(batch)
        return records
    finally:
        consumer.close()


def read_every_way(
    source: SourceTable, columns: Sequence[str], interval: Interval, context: Context
) -> Decoded:
    """The records as Spark has them, which are those that Spark's tasks read where they are plain, those
    that this process fetches of Spark, where it can, and those that it reads by itself."""
    spark, wanted = context.spark, tuple(columns)
    kept = read_kafka(spark, source, wanted, interval, context)
    assert isinstance(kept.delta, DataFrame)
    may_be_plain = is_plain(spark, source)
    if may_be_plain or layout_of(source).format == "json":
        large = replace(context, many_records=0)
        _assert_equal(kept, read_kafka(spark, source, wanted, interval, large))
    if may_be_plain and not interval.is_empty:
        _assert_here(kept, read_by_itself(source, wanted, interval, context))
    with patch("lockstep_engine.sources.kafka.plain_source", return_value=None):
        fetched = read_kafka(spark, source, wanted, interval, context, is_wanted_here=True)
    if not isinstance(fetched.delta, Rows):
        formats = {value for key, value in source.options.items() if key.endswith("format")}
        # Their texts may be any bytes.
        is_trusted = formats & {"raw", "avro"} and "string" in str(kept.delta.dtypes)
        assert interval.is_empty or is_trusted or "variant" in str(kept.delta.dtypes)
        return kept
    _assert_here(kept, fetched)
    return kept


def is_plain(spark: SparkSession, source: SourceTable) -> bool:
    """Whether it is of those whose records may be plain ones."""
    return plain_source_of(spark, source, "t", StepRange(0, 0, 9, 0)) is not None


def plain_source_of(
    spark: SparkSession, source: SourceTable, topic: str, *ranges: StepRange
) -> PlainSource | None:
    """What reads all of its columns of plain records."""
    declared = _declared(spark, source)
    return plain_source(source, declared, declared, topic, ranges)


def plain_counts(
    spark: SparkSession, source: SourceTable, topic: str, *ranges: StepRange
) -> tuple[int, int]:
    """How many records are plain, as this process reads them, and as Spark's tasks do."""
    plain = plain_source_of(spark, source, topic, *ranges)
    assert plain is not None
    here = plain.here()
    assert here is not None
    by_tasks = plain.by_tasks(Context(spark, 1, many_records=0)).where(PLAIN).count()
    return here.table[PLAIN].combine_chunks().true_count, by_tasks


def read_by_itself(
    source: SourceTable, columns: Sequence[str], interval: Interval, context: Context
) -> Decoded:
    """The records as this process reads them; Spark's source of Kafka is not to be asked."""
    asked = AssertionError("Spark is asked")
    with patch("lockstep_engine.sources.kafka._read", side_effect=asked):
        return read_kafka(
            context.spark, source, tuple(columns), interval, context, is_wanted_here=True
        )


def _assert_here(kept: Decoded, here: Decoded) -> None:
    assert isinstance(here.delta, Rows)
    assert here.bad == kept.bad_records()
    _assert_equal(kept, here)


def _assert_equal(kept: Decoded, other: Decoded) -> None:
    """The same rows, and the same bad records with the same sentences."""
    assert kept.bad_records() == other.bad_records()
    spark = kept.errors.sparkSession
    delta = other.delta.frame(spark) if isinstance(other.delta, Rows) else other.delta
    assert isinstance(kept.delta, DataFrame)
    assert delta.dtypes == kept.delta.dtypes
    for pair in ((delta, kept.delta), (other.errors, kept.errors)):
        # Maps have no order, and texts have.
        one, another = (rows.select(F.to_json(F.struct("*"))) for rows in pair)
        assert one.exceptAll(another).isEmpty()
        assert another.exceptAll(one).isEmpty()
    for frame in other.kept:
        frame.unpersist()


def idle_processes() -> list[subprocess.Popen[bytes]]:
    """Those that read for this one, and now do nothing."""
    return [one._process for one in readers._READERS.idle]
