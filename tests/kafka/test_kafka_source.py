"""Records of exact ranges as deltas and errors, through a real broker and Spark.

The oracle for JSON is verification's own decoder, which shares no code with the engine.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import date, datetime
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from json_records import COLUMNS, RECORDS, record, without
from kafka_builders import (
    delete_before,
    interval,
    new_topic,
    open_transaction,
    read_every_way,
    send,
    send_transaction,
    source,
    wait_until_decided,
)
from placements import placed
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.connect import SparkException
from pyspark.sql import DataFrame

from lockstep.adapters.embedded.ports import free_ports
from lockstep.adapters.verify_decode import UndecodableError, row_decoder
from lockstep.control.model import Interval
from lockstep.errors import WrongUse
from lockstep.sql.circuit import SourceTable
from lockstep_engine.context import Context
from lockstep_engine.local import rows as local_rows
from lockstep_engine.sources.decoded import Decoded
from lockstep_engine.sources.kafka import kafka_options, read_kafka
from lockstep_engine.sources.offsets import StepRange, step_ranges
from lockstep_engine.sources.step_ranges import blocked_rows, with_step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def context(spark: SparkSession, partitions: int = 2) -> Context:
    return Context(spark, 1000, placed(partitions))


@pytest.fixture(autouse=True)
def _utc(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def read(
    spark: SparkSession, table: SourceTable, steps: Interval, columns: tuple[str, ...] = ()
) -> Decoded:
    wanted = columns or tuple(column.key for column in table.columns)
    return read_every_way(table, wanted, steps, context(spark))


def test_every_kind_of_record(spark: SparkSession, broker: Any) -> None:
    topic = new_topic(broker.bootstrap)
    send(broker.bootstrap, topic, [value for value, _ in RECORDS])
    table = source(broker.bootstrap, topic, COLUMNS)
    decoded = read(spark, table, interval(topic, [{0: 0}, {0: 10}, {0: len(RECORDS)}]))
    reasons = {row["offset"]: row for row in decoded.errors.collect()}
    assert {n: reasons[n]["reason"] if n in reasons else "" for n in range(len(RECORDS))} == {
        n: reason if not reason.startswith("the value") else _starting(reasons[n]["reason"], reason)
        for n, (_, reason) in enumerate(RECORDS)
    }
    for number, row in reasons.items():
        assert (row["partition"], row["_step"]) == (0, 0 if number < 10 else 1)
        value = None if row["value"] is None else bytes(row["value"])
        assert value == RECORDS[number][0]
    # The rows, by a decoder of its own; as text, so that no client's time zone matters.
    decode = row_decoder(table.columns)
    expected = Counter(
        (*decode(value), 0 if number < 10 else 1)
        for number, (value, reason) in enumerate(RECORDS)
        if not reason
    )
    names = [f"`{column.key}`" for column in table.columns]
    names[names.index("`at`")] = "CAST(at AS TIMESTAMP_NTZ) AS at"
    assert decoded.delta.where("_weight <> 1").count() == 0
    rows = decoded.delta.selectExpr(*names, "_step").collect()
    assert Counter(tuple(row) for row in rows) == expected
    for value, reason in RECORDS:
        if reason:
            with pytest.raises(UndecodableError):
                decode(value)


def _starting(found: str, start: str) -> str:
    return found if found.startswith(start) else start


def test_what_is_bad_does_not_depend_on_the_wanted_columns(
    spark: SparkSession, broker: Any
) -> None:
    topic = new_topic(broker.bootstrap)
    send(broker.bootstrap, topic, [record(), record(name=5), without("at"), record(ratio="x")])
    table = source(broker.bootstrap, topic, COLUMNS)
    steps = interval(topic, [{0: 0}, {0: 4}])
    for wanted in (("id",), ("id", "name", "at"), ("ratio",)):
        decoded = read(spark, table, steps, wanted)
        assert decoded.delta.columns == [*wanted, "_weight", "_step"]
        assert decoded.delta.count() == 1
        assert sorted(row["offset"] for row in decoded.errors.collect()) == [1, 2, 3]


def test_numbers_that_are_too_large_to_write_down(spark: SparkSession, broker: Any) -> None:
    topic = new_topic(broker.bootstrap)
    values = [
        record(price=0).replace(b'"price": 0', b'"price": 1e99999999'),
        record(ratio=0).replace(b'"ratio": 0', b'"ratio": 1e400'),
        record(name=0).replace(b'"name": 0', b'"name": 1e99999999'),
        record(id=0).replace(b'"id": 0', b'"id": NaN'),
        record(name="a:1e99999"),
    ]
    send(broker.bootstrap, topic, values)
    decoded = read(
        spark, source(broker.bootstrap, topic, COLUMNS), interval(topic, [{0: 0}, {0: 5}])
    )
    reasons = [row["reason"] for row in decoded.errors.sort("offset").collect()]
    assert [reason.split(":")[0] for reason in reasons] == [
        "column price does not fit decimal(6,2)",
        "column ratio does not fit double",
        "column name does not fit string",
        "the value is not JSON",
    ]
    assert [row["name"] for row in decoded.delta.collect()] == ["a:1e99999"]


def test_not_null_and_missing_columns(spark: SparkSession, broker: Any) -> None:
    topic = new_topic(broker.bootstrap)
    send(
        broker.bootstrap,
        topic,
        [b'{"a": null, "b": 1}', b'{"b": 1}', b'{"a": 1}', b'{"a": 1, "b": null}'],
    )
    steps = interval(topic, [{0: 0}, {0: 4}])
    columns = (("a", "INT NOT NULL"), ("b", "INT"))
    strict = read(spark, source(broker.bootstrap, topic, columns), steps)
    assert [row["reason"] for row in strict.errors.sort("offset").collect()] == [
        "column a is null, and is declared NOT NULL",
        "column a is absent",
        "column b is absent",
    ]
    relaxed = read(spark, source(broker.bootstrap, topic, columns, missing_columns="null"), steps)
    assert sorted(row["offset"] for row in relaxed.errors.collect()) == [0, 1]
    assert [(row["a"], row["b"]) for row in relaxed.delta.collect()] == [(1, None)] * 2


def test_nested_types(spark: SparkSession, broker: Any) -> None:
    columns = (
        ("Key", "STRUCT<`a b`: TINYINT, at: TIMESTAMP>"),
        ("value", "ARRAY<DATE>"),
        ("timestamp", "MAP<STRING, DOUBLE>"),
        ("local", "TIMESTAMP_NTZ"),
        ("raw", "BINARY"),
    )
    good = {
        "Key": {"a b": 5, "at": "2026-01-01T01:00:00+01:00"},
        "value": ["2026-01-01", None],
        "timestamp": {"x": 1.5, "y": None},
        "local": "2026-01-01 05:06:07.5",
        "raw": "AAE=",
    }
    bad = [
        {**good, "Key": {"a b": 128, "at": None}},
        {**good, "Key": {"a b": 1, "at": "noon"}},
        {**good, "value": ["2026-01-01", "12:00"]},
        {**good, "timestamp": {"x": "1"}},
        {**good, "local": "2026-01-01 05:06:07Z"},
        {**good, "raw": "!"},
    ]
    topic = new_topic(broker.bootstrap)
    send(broker.bootstrap, topic, [json.dumps(value).encode() for value in [good, *bad]])
    table = source(broker.bootstrap, topic, columns)
    decoded = read(spark, table, interval(topic, [{0: 0}, {0: 7}]))
    (row,) = decoded.delta.selectExpr("*", "CAST(key.at AS STRING) AS moment").collect()
    assert (row["key"]["a b"], row["moment"]) == (5, "2026-01-01 00:00:00")
    assert row["value"] == [date(2026, 1, 1), None]
    assert row["timestamp"] == {"x": 1.5, "y": None}
    assert row["local"] == datetime(2026, 1, 1, 5, 6, 7, 500000)
    assert bytes(row["raw"]) == b"\x00\x01"
    reasons = [row["reason"].split(" ")[1] for row in decoded.errors.sort("offset").collect()]
    assert reasons == ["Key", "Key", "value", "timestamp", "local", "raw"]


def test_exactly_the_ranges_and_only_what_was_committed(spark: SparkSession, broker: Any) -> None:
    topic = new_topic(broker.bootstrap, 2)

    def values(*numbers: int) -> list[bytes]:
        return [b'{"n": %d}' % number for number in numbers]

    send(broker.bootstrap, topic, values(0, 1, 2))
    send_transaction(broker.bootstrap, topic, values(100, 101), commit=False)
    send_transaction(broker.bootstrap, topic, values(6, 7), commit=True)
    send(broker.bootstrap, topic, values(50, 51), partition=1)
    wait_until_decided(broker.bootstrap, topic)
    open_transaction(broker.bootstrap, topic, values(102))
    # Partition 0: 0-2, aborted 3-4, its end 5, committed 6-7, its end 8, open 9.
    table = source(broker.bootstrap, topic, (("n", "BIGINT"),))
    steps = interval(topic, [{0: 1}, {0: 5}, {0: 7, 1: 1}, {0: 9, 1: 2}], first_step=4)
    decoded = read(spark, table, steps)
    assert sorted((row["n"], row["_step"]) for row in decoded.delta.collect()) == [
        (1, 0),
        (2, 0),
        (6, 1),
        (7, 2),
        (50, 1),
        (51, 2),
    ]
    assert decoded.errors.count() == 0


def test_offsets_that_are_gone_fail_the_read(spark: SparkSession, broker: Any) -> None:
    topic = new_topic(broker.bootstrap)
    send(broker.bootstrap, topic, [b'{"n": 1}'] * 5)
    delete_before(broker.bootstrap, topic, 2)
    table = source(broker.bootstrap, topic, (("n", "BIGINT"),))
    with pytest.raises(PySparkException, match="not available in Kafka any more"):
        read(spark, table, interval(topic, [{0: 0}, {0: 5}])).delta.collect()


def test_records_that_are_too_much_for_a_driver_stay_with_spark(
    spark: SparkSession, broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The words are those of Spark 4.1.3, asked for 1.2 GB."""

    def refused(*_: object) -> None:
        raise SparkException(
            "Job aborted due to stage failure: Total size of serialized results of 19 tasks "
            "(1074.0 MiB) is bigger than spark.driver.maxResultSize (1024.0 MiB)"
        )

    topic = new_topic(broker.bootstrap)
    send(broker.bootstrap, topic, [b'{"n": 1}', b'{"n": "x"}'])
    monkeypatch.setattr(local_rows, "fetched_within", refused)
    table = source(broker.bootstrap, topic, (("n", "BIGINT"),))
    steps = interval(topic, [{0: 0}, {0: 2}])
    found = read_kafka(spark, table, ("n",), steps, context(spark), is_wanted_here=True)
    assert isinstance(found.delta, DataFrame)
    assert (found.delta.count(), found.bad_records()) == (1, 1)


def test_without_offsets_the_broker_is_not_asked(spark: SparkSession) -> None:
    table = source(f"127.0.0.1:{free_ports(1)[0]}", "nowhere", COLUMNS)
    decoded = read(spark, table, interval("nowhere", [{0: 3}, {0: 3}, {0: 3}]), ("id", "price"))
    assert decoded.kept == ()
    assert decoded.delta.columns == ["id", "price", "_weight", "_step"]
    assert decoded.delta.dtypes[1] == ("price", "decimal(6,2)")
    assert (decoded.delta.count(), decoded.errors.count()) == (0, 0)


def test_types_and_formats_that_cannot_be_decoded(spark: SparkSession) -> None:
    steps = interval("t", [{0: 0}, {0: 1}])
    with pytest.raises(WrongUse, match="column c has a type") as caught:
        read(spark, source("h:1", "t", (("c", "VARCHAR(3)"),)), steps)
    assert (caught.value.expected, caught.value.found) == ("STRING", "VARCHAR(3)")
    with pytest.raises(WrongUse, match="has a format that cannot be decoded"):
        read(spark, source("h:1", "t", (("c", "INT"),), format="protobuf"), steps)


def test_options_of_the_read() -> None:
    options = {
        "kafka.fetch.max.bytes": "1",
        "kafka.isolation.level": "read_uncommitted",
        "on_error": "fail",
    }
    table = source("h:1", "t", (), **options)
    ranges = [StepRange(0, 5, 7, 3), StepRange(0, 7, 9, 4), StepRange(2, 0, 1, 4)]
    made = kafka_options(table, ("t", "id"), ranges, 8)
    assert made["assign"] == '{"t": [0, 2]}'
    assert made["startingOffsets"] == '{"t": {"0": 5, "2": 0}}'
    assert made["endingOffsets"] == '{"t": {"0": 9, "2": 1}}'
    assert made["kafka.fetch.max.bytes"] == "1"
    assert made["kafka.isolation.level"] == "read_committed"
    assert made["minPartitions"] == "8"
    assert "on_error" not in made
    assert "minPartitions" not in kafka_options(table, ("t", "id"), ranges, 1)


def test_consumers_are_kept_for_a_topic_and_for_one_way_to_read_it() -> None:
    """Spark keeps them by group, and refuses one that was made with other settings."""

    def group(id_: str, start: int, **options: str) -> str:
        ranges = [StepRange(0, start, start + 1, 3)]
        return kafka_options(source("h:1", "t", (), **options), ("t", id_), ranges, 8)[
            "kafka.group.id"
        ]

    secret = {"kafka.sasl.jaas.config": "secret"}
    assert group("x", 5, on_error="fail") == group("x", 6)
    assert len({group("x", 5), group("y", 5), group("x", 5, **secret)}) == 3
    assert "secret" not in group("x", 5, **secret)
    assert group("x", 5, **{"kafka.group.id": "own"}) == "own"


def test_ranges_with_a_gap_are_no_division() -> None:
    with pytest.raises(ValueError, match="step 1 starts at offset 3, and step 0 ends at 2"):
        step_ranges(
            Interval(
                (
                    *interval("t", [{0: 0}, {0: 2}]).divisions,
                    *interval("t", [{0: 3}, {0: 5}], first_step=1).divisions,
                )
            ),
            "src",
        )


@given(st.lists(st.integers(1, 20_000), min_size=1, max_size=30), st.integers(0, 100_000))
def test_blocks_cover_each_range(lengths: list[int], start: int) -> None:
    ranges = []
    for step, length in enumerate(lengths):
        ranges.append(StepRange(0, start, start + length, step))
        start += length
    for bits in (12, 14):
        rows = blocked_rows(ranges, bits)
        for r in ranges:
            blocks = [row[1] for row in rows if row[4] == r.step]
            assert blocks == list(range(r.start >> bits, (r.end - 1 >> bits) + 1))


@hypothesis_settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.lists(st.integers(0, 10_000), min_size=1, max_size=90, unique=True).map(sorted),
        min_size=1,
        max_size=3,
    )
)
def test_each_offset_is_in_its_step(spark: SparkSession, bounds: list[list[int]]) -> None:
    """By a join, and by an expression where there are few ranges; some offsets are in none."""
    ranges = [
        StepRange(partition, low, high, step)
        for partition, found in enumerate(bounds)
        for step, (low, high) in enumerate(pairwise(found))
    ]
    if not ranges:
        return
    partitions = sorted({r.partition for r in ranges})
    lists = ", ".join(f"({p}, {bounds[p][0]}, {bounds[p][-1] - 1})" for p in partitions)
    offsets = spark.sql(
        f"SELECT p, explode(sequence(CAST(low AS BIGINT), CAST(high AS BIGINT))) AS o "
        f"FROM VALUES {lists} AS t(p, low, high)"
    )
    for most_joined in (0, 1 << 40):
        stepped = with_step(spark, offsets, ranges, "p", "o", "step", most_joined)
        found = {
            (p, step): (low, high, count)
            for p, step, low, high, count in stepped.groupBy("p", "step")
            .agg({"o": "min"})
            .join(stepped.groupBy("p", "step").agg({"o": "max", "*": "count"}), ["p", "step"])
            .collect()
        }
        expected = {(r.partition, r.step): (r.start, r.end - 1, r.end - r.start) for r in ranges}
        assert found == expected


def test_decimals_keep_their_digits(spark: SparkSession, broker: Any) -> None:
    topic = new_topic(broker.bootstrap)
    send(broker.bootstrap, topic, [b'{"d": 12345678901234567890123456.123456789012}'])
    table = source(broker.bootstrap, topic, (("d", "DECIMAL(38,12)"),))
    (row,) = read(spark, table, interval(topic, [{0: 0}, {0: 1}])).delta.collect()
    assert row["d"] == Decimal("12345678901234567890123456.123456789012")
