"""Kafka topics as deltas: exactly the recorded offset ranges, decoded, each record in its step.

The law: every committed record of the ranges is either one row of `delta` or one row of `errors`,
and which of the two, and in which step, depends on the record, the source's declaration and the
division alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lockstep.control.model import Interval, TopicSlice
from lockstep.errors import WrongUse
from lockstep.sql.circuit import SourceTable
from lockstep_engine.context import SMALL_RECORDS, Context
from lockstep_engine.deltas import STEP, WEIGHT, quoted
from lockstep_engine.sources.json_values import JsonColumn, JsonDecoder, wanted_numbers
from lockstep_engine.sources.step_ranges import StepRange, step_ranges, with_step

__all__ = ["ERROR_COLUMNS", "Decoded", "kafka_options", "read_kafka"]

ERROR_COLUMNS = (
    "partition int, offset bigint, timestamp timestamp, key binary, value binary, reason string, "
    f"{STEP} bigint"
)

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

    `delta`: the wanted columns under their lower-case names, `_weight bigint` = 1, `_step bigint`.
    `errors`: bad records, columns as in ERROR_COLUMNS. Both are filters of the frames in `kept`,
    which are marked as persisted: the first action that reads one of them to its end reads Kafka,
    and later ones don't. Whoever asked for it calls `unpersist` on each of `kept` when done.
    """

    delta: DataFrame
    errors: DataFrame
    kept: tuple[DataFrame, ...] = field(default=())


def read_kafka(
    spark: SparkSession,
    source: SourceTable,
    columns: tuple[str, ...],
    interval: Interval,
    context: Context,
) -> Decoded:
    """The committed records of the interval's ranges of `source`; `columns` are the wanted ones.

    Lazy, but for the analysis of the declared types. A later action fails where a range is not held
    any more. A record is good where it holds every declared column, wanted or not, so the result
    does not depend on which views exist; option 'missing_columns' = 'null' lets nullable ones be
    absent. The session's time zone must be UTC. Raises WrongUse for a format or a type that cannot
    be decoded.
    """
    declared = _declared(spark, source)
    wanted = wanted_numbers(declared, columns)
    ranges = step_ranges(interval, source.name)
    if not ranges:
        return _nothing(spark, declared, wanted)
    decoder = JsonDecoder(declared, source.absent_is_null)
    # Beyond 8000 bytes the JVM does not compile a method: it is then better cut into several. A third
    # of the decoding time.
    spark.conf.set("spark.sql.codegen.hugeMethodLimit", "8000")
    decoded = _decode(
        _read(spark, source, ranges, _topic(interval, source), context), decoder, wanted
    )
    kept = decoded.persist()
    renamed = [f"_v{number} AS {quoted(name)}" for name, number in wanted.items()]
    delta = kept.where("_good").selectExpr(*renamed, f"1L AS {WEIGHT}", STEP)
    return Decoded(delta, _errors(kept.where("NOT _good"), decoder), (kept,))


def kafka_options(
    source: SourceTable, topic: str, ranges: Sequence[StepRange], partitions: int
) -> Mapping[str, str]:
    """Options of Spark's Kafka source that read from the first start to the last end of each
    partition that has offsets, committed records only. The source's own `kafka.*` settings pass."""
    starts: dict[str, int] = {}
    ends: dict[str, int] = {}
    for range_ in ranges:
        partition = str(range_.partition)
        starts[partition] = min(starts.get(partition, range_.start), range_.start)
        ends[partition] = max(ends.get(partition, range_.end), range_.end)
    settings = {key: value for key, value in source.options.items() if key.startswith("kafka.")}
    options = {
        **CONSUMER_SETTINGS,
        **settings,
        **FIXED_SETTINGS,
        "assign": json.dumps({topic: [int(partition) for partition in starts]}),
        "startingOffsets": json.dumps({topic: starts}),
        "endingOffsets": json.dumps({topic: ends}),
    }
    if len(starts) < partitions:
        options["minPartitions"] = str(partitions)
    return options


def _topic(interval: Interval, source: SourceTable) -> str:
    topics = {
        slice_.topic
        for division in interval.divisions
        for slice_ in division.slices
        if slice_.source == source.name and isinstance(slice_, TopicSlice)
    }
    assert len(topics) == 1, f"source {source.name} is divided over topics {sorted(topics)}"
    return topics.pop()


def _declared(spark: SparkSession, source: SourceTable) -> tuple[JsonColumn, ...]:
    format_name = source.options.get("format", "json")
    if format_name != "json":
        raise WrongUse(
            f"source {source.name} has a format that cannot be decoded",
            expected="'format' = 'json'",
            found=f"'format' = '{format_name}'",
            next_step=f"correct it at {source.position}",
        )
    for column in source.columns:
        if any(kind in column.type.lower() for kind in ("varchar", "char(")):
            raise WrongUse(
                f"source {source.name}: column {column.name} has a type that cannot be decoded",
                expected="STRING",
                found=column.type,
                next_step=f"correct it at {source.position}",
            )
    ddl = ", ".join(f"{quoted(column.name)} {column.type}" for column in source.columns)
    schema: StructType = spark.createDataFrame([], ddl).schema
    return tuple(
        JsonColumn(column.name, parsed.dataType, column.nullable)
        for column, parsed in zip(source.columns, schema.fields, strict=True)
    )


def _nothing(
    spark: SparkSession, declared: Sequence[JsonColumn], wanted: Mapping[str, int]
) -> Decoded:
    """No offset at all: the broker is not asked."""
    columns = [f"{quoted(name)} {declared[n].type.simpleString()}" for name, n in wanted.items()]
    delta = ", ".join([*columns, f"{WEIGHT} bigint", f"{STEP} bigint"])
    return Decoded(spark.createDataFrame([], delta), spark.createDataFrame([], ERROR_COLUMNS))


def _read(
    spark: SparkSession,
    source: SourceTable,
    ranges: Sequence[StepRange],
    topic: str,
    context: Context,
) -> DataFrame:
    """`_partition`, `_offset`, `_timestamp`, `_key`, `_value` of each record, and its step.

    The names keep clear of declared columns, which are often called key, value or timestamp.
    """
    records = sum(range_.end - range_.start for range_ in ranges)
    tasks = context.partitions if records > SMALL_RECORDS else 1
    raw = (
        spark.read.format("kafka")
        .options(**kafka_options(source, topic, ranges, tasks))
        .load()
        .selectExpr(
            "partition AS _partition",
            "offset AS _offset",
            "timestamp AS _timestamp",
            "key AS _key",
            "value AS _value",
        )
    )
    if records <= SMALL_RECORDS and len({r.partition for r in ranges}) > context.partitions:
        # One task a topic partition would cost more than it reads.
        raw = raw.coalesce(context.partitions)
    return with_step(spark, raw, ranges, "_partition", "_offset", STEP)


def _decode(records: DataFrame, decoder: JsonDecoder, wanted: Mapping[str, int]) -> DataFrame:
    """`_v<n>` of the wanted columns, `_step`, `_good`, and the raw record where it is not good."""
    parsed = _parse(records, decoder)
    judged = parsed.selectExpr("*", f"{decoder.is_good()} AS _good")
    return judged.selectExpr(
        *(f"_v{number}" for number in wanted.values()),
        STEP,
        "_good",
        *(
            f"CASE WHEN NOT _good THEN {raw} END AS {raw}"
            for raw in ("_partition", "_offset", "_timestamp", "_key", "_value")
        ),
    )


def _parse(records: DataFrame, decoder: JsonDecoder) -> DataFrame:
    """Step by step, so that Spark evaluates each of them once."""
    text = records.selectExpr("*", "CAST(_value AS STRING) AS _text")
    return text.selectExpr("*", decoder.parsed()).selectExpr("*", *decoder.values())


def _errors(bad: DataFrame, decoder: JsonDecoder) -> DataFrame:
    """Bad records with a sentence each: they are decoded again, as good ones need no sentence."""
    raw = bad.selectExpr("_partition", "_offset", "_timestamp", "_key", "_value", STEP)
    return _parse(raw, decoder).selectExpr(
        "_partition AS partition",
        "_offset AS offset",
        "_timestamp AS timestamp",
        "_key AS key",
        "_value AS value",
        f"{decoder.reason()} AS reason",
        STEP,
    )
