"""Kafka topics as deltas: exactly the recorded offset ranges, decoded, each record in its step.

The law: every committed record of the ranges is either good, and then gives the rows of `delta` that
its format says (most often one), or is one row of `errors`; and which of the two, and in which step,
depends on the record, the source's declaration and the division alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from hashlib import blake2b

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from lockstep.control.model import Interval, TopicSlice
from lockstep.errors import LockstepError, WrongUse
from lockstep.sql.circuit import SMALL_RECORDS, SourceTable
from lockstep.sql.sources.source_layout import layout_of
from lockstep_engine.context import Context
from lockstep_engine.deltas import STEP, WEIGHT, by_step, quoted
from lockstep_engine.sources.avro_values import schema_number
from lockstep_engine.sources.decoding import DeclaredColumn, RecordReader, Rows
from lockstep_engine.sources.formats import record_reader, schema_columns
from lockstep_engine.sources.registry import registry_schemas
from lockstep_engine.sources.step_ranges import StepRange, step_ranges, with_step
from lockstep_engine.told import counted_in_passing, no_rows, types_of_columns

__all__ = ["ERROR_COLUMNS", "Decoded", "kafka_options", "read_kafka"]

ERROR_COLUMNS = (
    "partition int, offset bigint, timestamp timestamp, key binary, value binary, reason string, "
    f"{STEP} bigint"
)

RAW_COLUMNS = ("_partition", "_offset", "_timestamp", "_key", "_value")

_TIME = "_step_time"
_BAD = "bad"

CONSUMER_SETTINGS = {
    # Fetches of moderate size: 2.5 times faster than the defaults, and than very large ones.
    "kafka.max.poll.records": "2000",
    "kafka.max.partition.fetch.bytes": str(4 << 20),
    "kafka.fetch.max.bytes": str(16 << 20),
    "kafka.receive.buffer.bytes": str(4 << 20),
    "kafka.fetch.max.wait.ms": "5",
}
FIXED_SETTINGS = {
    "kafka.isolation.level": "read_committed",
    "failOnDataLoss": "true",
}


@dataclass(frozen=True)
class Decoded:
    """The records of one source in one interval.

    `delta`: the wanted columns under their lower-case names, `_weight bigint`, `_step bigint`; for a
    keyed source also CHANGE_COLUMNS, for the upsert that reads them.
    `errors`: bad records, columns as in ERROR_COLUMNS. Both are filters of the frames in `kept`,
    which are marked as persisted: the first action that reads one of them to its end reads Kafka,
    and later ones don't. Whoever asked for it calls `unpersist` on each of `kept` when done.

    Of a source that is read once nothing is kept: `delta` counts the bad records that it passes by,
    in `passed`, and `errors` reads Kafka again.
    """

    delta: DataFrame
    errors: DataFrame
    kept: tuple[DataFrame, ...] = field(default=())
    passed: Observation | None = None

    def bad_records(self) -> int:
        """How many there are; of a source that is read once, once an action has read `delta`."""
        passed = None if self.passed is None else counted_in_passing(self.passed, _BAD)
        return self.errors.count() if passed is None else passed


def read_kafka(
    spark: SparkSession,
    source: SourceTable,
    columns: tuple[str, ...],
    interval: Interval,
    context: Context,
    *,
    is_read_once: bool = False,
) -> Decoded:
    """The committed records of the interval's ranges of `source`; `columns` are the wanted ones.
    `is_read_once` promises that the first action on the delta is the only one, and reads all of it.

    Lazy, but for the analysis of the declared types. A later action fails where a range is not held
    any more. A record is good where it holds every declared column, wanted or not, so the result
    does not depend on which views exist; option 'missing_columns' = 'null' lets nullable ones be
    absent. The session's time zone must be UTC. Raises WrongUse for a format or a type that cannot
    be decoded.
    """
    declared = _declared(spark, source)
    numbers = {column.name.lower(): column.number for column in declared}
    wanted = [numbers[name] for name in columns]
    ranges = step_ranges(interval, source.name)
    if not ranges:
        return _nothing(
            spark, record_reader(source, declared, {}), [declared[number] for number in wanted]
        )
    # Beyond 8000 bytes the JVM does not compile a method: it is then better cut into several. A third
    # of the decoding time.
    spark.conf.set("spark.sql.codegen.hugeMethodLimit", "8000")
    records = _read(spark, source, ranges, _topic(interval, source), context)
    named = schema_columns(source)
    if named:
        # Read twice: for the numbers of schemas, and with them.
        records = records.persist()
    reader = record_reader(source, declared, _schemas(source, records, named))
    raw = _raw_columns(source)
    decoded, passed = _decode(records, reader, wanted, raw), None
    if is_read_once and not named:
        passed = Observation()
        kept = decoded.observe(passed, F.count_if(~F.col("_good")).alias(_BAD))
    else:
        kept = decoded.persist()
    delta = reduce(
        DataFrame.unionByName,
        (
            _rows(kept, rows, {number: columns[place] for place, number in enumerate(wanted)})
            for rows in reader.rows
        ),
    )
    bad = (kept if passed is None else decoded).where("NOT _good")
    errors = _errors(_timed(source, bad, context), reader, [*raw, *_times(source)])
    if passed is not None:
        return Decoded(delta, errors, (), passed)
    return Decoded(delta, errors, (kept, records) if named else (kept,))


def kafka_options(
    source: SourceTable, topic: tuple[str, str], ranges: Sequence[StepRange], partitions: int
) -> Mapping[str, str]:
    """Options of Spark's Kafka source that read from the first start to the last end of each
    partition of `topic`, name and id, that has offsets, committed records only. The source's own
    `kafka.*` settings pass."""
    name, id_ = topic
    starts: dict[str, int] = {}
    ends: dict[str, int] = {}
    for range_ in ranges:
        partition = str(range_.partition)
        starts[partition] = min(starts.get(partition, range_.start), range_.start)
        ends[partition] = max(ends.get(partition, range_.end), range_.end)
    own = {key: value for key, value in source.options.items() if key.startswith("kafka.")}
    settings = {**CONSUMER_SETTINGS, **own, **FIXED_SETTINGS}
    options = {
        "kafka.group.id": _group(id_, settings),
        **settings,
        "assign": json.dumps({name: [int(partition) for partition in starts]}),
        "startingOffsets": json.dumps({name: starts}),
        "endingOffsets": json.dumps({name: ends}),
    }
    if len(starts) < partitions:
        options["minPartitions"] = str(partitions)
    return options


def _group(topic_id: str, settings: Mapping[str, str]) -> str:
    """A group that nobody joins: by it and the partition Spark keeps consumers, with what they have
    fetched ahead, for minutes after their last use, and the next interval need not connect anew.

    A topic that is made anew has another one, and so has one that is read in another way: Spark refuses
    a consumer that was made with other settings. The digest is short, as there may be a password among
    these, and brokers show groups.
    """
    told = json.dumps(sorted(settings.items())).encode()
    return f"lockstep-{topic_id}-{blake2b(told, digest_size=4).hexdigest()}"


def _topic(interval: Interval, source: SourceTable) -> tuple[str, str]:
    """Name and id."""
    topics = {
        (slice_.topic, slice_.topic_id)
        for division in interval.divisions
        for slice_ in division.slices
        if slice_.source == source.name and isinstance(slice_, TopicSlice)
    }
    assert len(topics) == 1, f"source {source.name} is divided over topics {sorted(topics)}"
    return topics.pop()


def _declared(spark: SparkSession, source: SourceTable) -> tuple[DeclaredColumn, ...]:
    for column in source.columns:
        if any(kind in column.type.lower() for kind in ("varchar", "char(")):
            raise WrongUse(
                f"source {source.name}: column {column.name} has a type that cannot be decoded",
                expected="STRING",
                found=column.type,
                next_step=f"correct it at {source.position}",
            )
    ddl = ", ".join(f"{quoted(column.name)} {column.type}" for column in source.columns)
    schema = types_of_columns(spark, ddl)
    layout = layout_of(source)
    return tuple(
        DeclaredColumn(number, column.name, parsed.dataType, column.nullable, layout.path(column))
        for number, (column, parsed) in enumerate(zip(source.columns, schema.fields, strict=True))
    )


def _nothing(
    spark: SparkSession, reader: RecordReader, wanted: Sequence[DeclaredColumn]
) -> Decoded:
    """No offset at all: the broker is not asked."""
    also = [f"{quoted(name)} {kind}" for name, kind in reader.rows[0].also.values()]
    columns = [f"{quoted(one.name.lower())} {one.type.simpleString()}" for one in wanted]
    delta = ", ".join([*columns, *also, f"{WEIGHT} bigint", f"{STEP} bigint"])
    return Decoded(no_rows(spark, delta), no_rows(spark, ERROR_COLUMNS))


def _read(
    spark: SparkSession,
    source: SourceTable,
    ranges: Sequence[StepRange],
    topic: tuple[str, str],
    context: Context,
) -> DataFrame:
    """The frame of records that `decoding` describes, of the ranges alone."""
    records = sum(range_.end - range_.start for range_ in ranges)
    tasks = context.partitions if records > SMALL_RECORDS else 1
    options = dict(kafka_options(source, topic, ranges, tasks))
    names = _raw_columns(source)
    if "_headers" in names:
        options["includeHeaders"] = "true"
    columns = (f"{name[1:]} AS {name}" for name in names)
    raw = spark.read.format("kafka").options(**options).load().selectExpr(*columns)
    if records <= SMALL_RECORDS and len({r.partition for r in ranges}) > context.partitions:
        # One task a topic partition would cost more than it reads.
        raw = raw.coalesce(context.partitions)
    stepped = with_step(spark, raw, ranges, "_partition", "_offset", STEP)
    return _timed(source, stepped, context)


def _timed(source: SourceTable, records: DataFrame, context: Context) -> DataFrame:
    """The records with the times of their steps, where a column shows them."""
    if not _times(source):
        return records
    return records.withColumn(_TIME, F.timestamp_micros(by_step(context.times)))


def _times(source: SourceTable) -> list[str]:
    """The column of the times of steps, where a column of the source shows them."""
    return [_TIME] if "step_time" in layout_of(source).metadata.values() else []


def _raw_columns(source: SourceTable) -> list[str]:
    """What is read of a record, and kept of a bad one."""
    shown = layout_of(source).metadata.values()
    return [*RAW_COLUMNS, *(f"_{kind}" for kind in ("topic", "headers") if kind in shown)]


def _schemas(source: SourceTable, records: DataFrame, named: Sequence[str]) -> Mapping[int, str]:
    """The registry's schemas that the records name in the columns `named`. Raises Unreachable."""
    if not named:
        return {}
    try:
        numbers = {
            row[0]
            for of in named
            for row in records.selectExpr(f"{schema_number(of)} AS number").distinct().collect()
        }
        return registry_schemas(source.options["schema.registry.url"], numbers - {None})
    except LockstepError:
        records.unpersist()
        raise


def _decode(
    records: DataFrame, reader: RecordReader, wanted: Sequence[int], raw: Sequence[str]
) -> DataFrame:
    """What rows need of the wanted columns, `_step`, `_good`, and the raw record where it is not
    good."""
    judged = _parse(records, reader).selectExpr("*", f"{reader.decoding.is_good} AS _good")
    needed = dict.fromkeys(name for rows in reader.rows for name in rows.columns(wanted))
    return judged.selectExpr(
        *needed,
        STEP,
        "_good",
        *(f"CASE WHEN NOT _good THEN {name} END AS {name}" for name in raw),
    )


def _parse(records: DataFrame, reader: RecordReader) -> DataFrame:
    """Stage by stage, so that Spark evaluates each of them once."""
    for stage in reader.decoding.stages:
        records = records.selectExpr("*", *stage)
    return records


def _rows(kept: DataFrame, rows: Rows, wanted: Mapping[int, str]) -> DataFrame:
    """The rows of one kind that good records give: the wanted columns by number and name, those
    beside them, `_weight`, `_step`."""
    renamed = [f"{rows.values[number]} AS {quoted(name)}" for number, name in wanted.items()]
    also = [f"{made} AS {name}" for made, (name, _) in rows.also.items()]
    good = kept.where(f"_good AND {rows.when}" if rows.when else "_good")
    return good.selectExpr(*renamed, *also, f"{rows.weight}L AS {WEIGHT}", STEP)


def _errors(bad: DataFrame, reader: RecordReader, raw: Sequence[str]) -> DataFrame:
    """Bad records with a sentence each: they are decoded again, as good ones need no sentence."""
    return _parse(bad.selectExpr(*raw, STEP), reader).selectExpr(
        *(f"{name} AS {name[1:]}" for name in RAW_COLUMNS),
        f"{reader.decoding.reason()} AS reason",
        STEP,
    )
