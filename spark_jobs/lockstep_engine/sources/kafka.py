"""Kafka topics as deltas: exactly the recorded offset ranges, decoded, each record in its step.

The law: every committed record of the ranges is either good, and then gives the rows of `delta` that
its format says (most often one), or is one row of `errors`; and which of the two, and in which step,
depends on the record, the source's declaration and the division alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from lockstep.control.model import Interval, TopicSlice
from lockstep.errors import LockstepError, WrongUse
from lockstep.sql.circuit import SMALL_RECORDS, SourceTable
from lockstep.sql.sources.source_layout import layout_of
from lockstep_engine.context import Context
from lockstep_engine.deltas import STEP, WEIGHT, quoted
from lockstep_engine.local.rows import Rows
from lockstep_engine.sessions import set_all
from lockstep_engine.sources.avro_values import schema_number
from lockstep_engine.sources.decoded import ERROR_COLUMNS, Decoded, Decoder, raw_columns, timed
from lockstep_engine.sources.decoding import DeclaredColumn, GivenRow, RecordReader
from lockstep_engine.sources.formats import record_reader, schema_columns
from lockstep_engine.sources.offsets import StepRange, partition_ranges, records_of, step_ranges
from lockstep_engine.sources.plain_records import plain_source
from lockstep_engine.sources.registry import registry_schemas
from lockstep_engine.sources.step_ranges import with_step
from lockstep_engine.told import no_rows, types_of_columns

__all__ = ["kafka_options", "plain_types", "read_kafka"]

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


def read_kafka(
    spark: SparkSession,
    source: SourceTable,
    columns: tuple[str, ...],
    interval: Interval,
    context: Context,
    *,
    is_read_once: bool = False,
    is_wanted_here: bool = False,
) -> Decoded:
    """The committed records of the interval's ranges of `source`; `columns` are the wanted ones.
    `is_read_once` promises that the first action on the delta is the only one, and reads all of it.
    `is_wanted_here`: this process is to have the rows, if it can.

    Lazy, but for that, and for the analysis of the declared types. A later action fails where a range is
    not held any more. A record is good where it holds every declared column, wanted or not, so the
    result does not depend on which views exist; option 'missing_columns' = 'null' lets nullable ones
    be absent. The session's time zone must be UTC. Raises WrongUse for a format or a type that cannot
    be decoded.
    """
    declared = _declared(spark, source)
    by_name = {column.name.lower(): column for column in declared}
    wanted = {by_name[name]: name for name in columns}
    ranges = step_ranges(interval, source.name)
    reader = record_reader(source, declared, {})
    if not ranges:
        return _nothing(spark, reader, list(wanted), is_here=is_wanted_here and context.is_all_here)
    topic = _topic(interval, source)
    # Where rows that fail are taken out, a failure to read is to be Spark's own.
    plain = None
    if context.guarding is None:
        plain = plain_source(source, declared, wanted, topic[0], ranges)
    if plain is not None:
        decoder = Decoder(source, reader, wanted, context)
        found = plain.here() if is_wanted_here else None
        held = None if found is None else decoder.held(found, plain.read)
        if held is not None:
            return held
        if not context.is_small and records_of(ranges) > context.many_records:
            _compile_large_methods(spark)
            decoder = replace(decoder, read=plain.read)
            return decoder.of_frame(timed(source, plain.by_tasks(context), context), is_read_once)
    _compile_large_methods(spark)
    named = schema_columns(source)
    read = _read(spark, source, ranges, topic, context)
    if named:
        # Read twice: for the numbers of schemas, and with them.
        read = read.persist()
        reader = record_reader(source, declared, _schemas(source, read, named))
    decoder = Decoder(source, reader, wanted, context)
    # Many are not handed over: Spark's driver would have them, too.
    decoded = decoder.here(read) if is_wanted_here and context.is_small else None
    decoded = decoded or decoder.of_frame(read, is_read_once and not named)
    return replace(decoded, kept=(*decoded.kept, read)) if named else decoded


def plain_types(spark: SparkSession, source: SourceTable) -> StructType | None:
    """The columns of a source, by their lower-case names, and those that keyed records have beside
    these, where they are read as plain ones."""
    declared = _declared(spark, source)
    if plain_source(source, declared, declared, "", ()) is None:
        return None
    given, *_ = record_reader(source, declared, {}).rows
    return types_of_columns(spark, _columns_of(given, declared))


def _compile_large_methods(spark: SparkSession) -> None:
    """Beyond 8000 bytes the JVM does not compile a method: it is then better cut into several. A third
    of the decoding time."""
    set_all(spark, {"spark.sql.codegen.hugeMethodLimit": "8000"})


def kafka_options(
    source: SourceTable, topic: tuple[str, str], ranges: Sequence[StepRange], partitions: int
) -> Mapping[str, str]:
    """Options of Spark's Kafka source that read from the first start to the last end of each
    partition of `topic`, name and id, that has offsets, committed records only. The source's own
    `kafka.*` settings pass."""
    name, id_ = topic
    read = partition_ranges(ranges)
    starts = {str(range_.partition): range_.start for range_ in read}
    ends = {str(range_.partition): range_.end for range_ in read}
    own = {key: value for key, value in source.options.items() if key.startswith("kafka.")}
    settings = {**CONSUMER_SETTINGS, **own, **FIXED_SETTINGS}
    options = {
        "kafka.group.id": _group(id_, settings),
        **settings,
        "assign": json.dumps({name: [range_.partition for range_ in read]}),
        "startingOffsets": json.dumps({name: starts}),
        "endingOffsets": json.dumps({name: ends}),
    }
    if len(read) < partitions:
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
    spark: SparkSession, reader: RecordReader, wanted: Sequence[DeclaredColumn], *, is_here: bool
) -> Decoded:
    """No offset at all: the broker is not asked."""
    delta = _columns_of(reader.rows[0], wanted, f"{WEIGHT} bigint", f"{STEP} bigint")
    errors, schema = partial(no_rows, spark, ERROR_COLUMNS), types_of_columns(spark, delta)
    if is_here:
        return Decoded(Rows(to_arrow_schema(schema).empty_table(), schema), errors, bad=0)
    return Decoded(no_rows(spark, delta), errors)


def _columns_of(given: GivenRow, wanted: Sequence[DeclaredColumn], *more: str) -> str:
    """What a row has, as a declaration, and `more`."""
    columns = [f"{quoted(one.name.lower())} {one.type.simpleString()}" for one in wanted]
    also = [f"{quoted(name)} {kind}" for name, kind in given.also.values()]
    return ", ".join([*columns, *also, *more])


def _read(
    spark: SparkSession,
    source: SourceTable,
    ranges: Sequence[StepRange],
    topic: tuple[str, str],
    context: Context,
) -> DataFrame:
    """The frame of records that `decoding` describes, of the ranges alone."""
    records = records_of(ranges)
    tasks = context.partitions if records > SMALL_RECORDS else 1
    options = dict(kafka_options(source, topic, ranges, tasks))
    names = raw_columns(source)
    if "_headers" in names:
        options["includeHeaders"] = "true"
    columns = (f"{name[1:]} AS {name}" for name in names)
    raw = spark.read.format("kafka").options(**options).load().selectExpr(*columns)
    if records <= SMALL_RECORDS and len({r.partition for r in ranges}) > context.partitions:
        # One task a topic partition would cost more than it reads.
        raw = raw.coalesce(context.partitions)
    stepped = with_step(spark, raw, ranges, "_partition", "_offset", STEP)
    return timed(source, stepped, context)


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
