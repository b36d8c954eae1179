"""What workers read of a topic by themselves: the rows that Spark's own source gives, or an error."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest
from format_builders import Record, Topic, decode
from hypothesis import given
from hypothesis import strategies as st
from kafka_builders import (
    delete_before,
    interval,
    is_plain,
    new_topic,
    plain_counts,
    send,
    send_transaction,
    source,
)
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from lockstep_engine.context import Context
from lockstep_engine.sources.kafka import read_kafka
from lockstep_engine.sources.offsets import StepRange, slices_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

kafka = pytest.mark.kafka
spark_server = pytest.mark.spark


def large(spark: SparkSession) -> Context:
    return Context(spark, 1, many_records=0)


@kafka
@spark_server
def test_many_records_of_several_steps(spark: SparkSession, broker: Any) -> None:
    """Chunks that are plain, that are so in part, that have nothing plain, after which some go by
    untried; the last offsets are a transaction's end."""
    topic = new_topic(broker.bootstrap, 2)
    values: list[bytes | None] = [
        b'{"n": %d, "t": "a\xc3\xa9"}' % number if number % 700 else b'{"n": "%d"}' % number
        for number in range(7_000)
    ]
    values += [b' {"n": 1, "t": null}', None, b"{"] * 1_000
    send(broker.bootstrap, topic, values, timestamp=1_700_000_000_123)
    send(broker.bootstrap, topic, [b'{"n": 5, "t": null}'] * 50, partition=1)
    send_transaction(broker.bootstrap, topic, [b'{"n": 6, "t": "x"}'] * 10, True, partition=1)
    table = source(
        broker.bootstrap,
        topic,
        (("n", "BIGINT"), ("t", "STRING"), ("o", "BIGINT"), ("at", "TIMESTAMP"), ("of", "STRING")),
        metadata="offset AS o, timestamp AS at, topic AS of",
    )
    ranges = [StepRange(0, 0, 10_000, 0), StepRange(1, 0, 61, 0)]
    # Some are not tried in chunks after those that have few, so the others are 60 and some thousand.
    for plain in plain_counts(spark, table, topic, *ranges):
        assert 4_000 < plain <= 7_000 - 10 + 60
    steps = interval(topic, [{0: 3}, {0: 4_321, 1: 7}, {0: 10_000, 1: 61}])
    for wanted in (("n", "o", "at", "of"), ("t",)):
        few = Context(spark, 1000)
        expected = read_kafka(spark, table, wanted, steps, few)
        found = read_kafka(spark, table, wanted, steps, large(spark), is_read_once=True)
        assert isinstance(expected.delta, DataFrame)
        assert isinstance(found.delta, DataFrame)
        assert expected.delta.count() == 7_000 - 3 - 9 + 1_000 + 60
        rows = found.delta.collect()
        assert sorted(map(repr, rows)) == sorted(map(repr, expected.delta.collect()))
        assert found.bad_records() == expected.bad_records() == 2_009
        assert sorted(map(repr, found.errors.collect())) == sorted(
            map(repr, expected.errors.collect())
        )


@kafka
@spark_server
@pytest.mark.parametrize("key_format", ["json", "raw"])
def test_many_records_with_keys(spark: SparkSession, broker: Any, key_format: str) -> None:
    """Chunks as above; some have no value, or no key, or a key that is none."""
    topic = Topic(broker.bootstrap, new_topic(broker.bootstrap))

    def key(number: int) -> bytes | None:
        if number % 900 < 2:
            return (None, b"\xff")[number % 900]
        return b'{"k": "%d"}' % number if key_format == "json" else b"%d" % number

    def value(number: int) -> bytes | None:
        if number % 11 == 0:
            return None
        return b'{"n": %d}' % number if number % 700 else b'{"n": "%d"}' % number

    topic.send(*(Record(value(number), key(number)) for number in range(5_000)))
    topic.send(*(Record(b' {"n": 1}', key(number)) for number in range(4_500)))
    topic.send(*(Record(b'{"n": 1}', b"{") for _ in range(500)))
    options = {"format": "upsert", "key": "k", "key.format": key_format, "metadata": "offset AS o"}
    columns = (("k", "STRING"), ("n", "BIGINT"), ("o", "BIGINT"))
    table = source(broker.bootstrap, topic.name, columns, **options)
    for plain in plain_counts(spark, table, topic.name, StepRange(0, 0, 10_000, 0)):
        assert 4_000 < plain < 6_000
    decoded = decode(spark, table, topic, [{0: 4_321}, {0: 10_000}])
    assert isinstance(decoded.delta, DataFrame)
    assert decoded.bad_records() == 12 + 7 + 10 + (500 if key_format == "json" else 0)
    assert decoded.delta.where("_deleted").count() > 400


@kafka
@spark_server
@pytest.mark.parametrize("is_wrapped", [False, True], ids=["flat", "wrapped"])
@pytest.mark.parametrize("key", [{}, {"key": "k"}], ids=["at their word", "keyed"])
def test_many_change_events(
    spark: SparkSession, broker: Any, key: Mapping[str, str], is_wrapped: bool
) -> None:
    topic = Topic(broker.bootstrap, new_topic(broker.bootstrap))

    def row(number: int) -> dict[str, object]:
        return {"k": number, "n": None if number % 6 == 0 else number // 2}

    def event(number: int) -> bytes | None:
        op, odd = "curdm"[number % 5], number % 500 == 499
        event = {
            "op": "?" if odd else op,
            "before": row(number) if op in "ud" else None,
            "after": None if op in "dm" else row(number + 1),
        }
        text = json.dumps({"payload": event} if is_wrapped else event).encode()
        return None if number % 100 == 3 else text

    topic.send(*(Record(event(number)) for number in range(5_000)))
    columns = (("k", "BIGINT NOT NULL"), ("n", "BIGINT"), ("o", "BIGINT"))
    options = {"format": "debezium", "metadata": "offset AS o", **key}
    table = source(broker.bootstrap, topic.name, columns, **options)
    counts = plain_counts(spark, table, topic.name, StepRange(0, 0, 5_000, 0))
    assert counts == (4_990, 4_990)
    decoded = decode(spark, table, topic, [{0: 1_234}, {0: 5_000}])
    assert isinstance(decoded.delta, DataFrame)
    assert decoded.bad_records() == 10
    # Of each five three bring rows, and two take some; or each but one says what a key has.
    rows = 3_990 - 40 if key else 4_990
    assert rows - 60 < decoded.delta.count() <= rows


@kafka
@spark_server
def test_offsets_that_are_gone_or_not_there_yet_fail_the_read(
    spark: SparkSession, broker: Any
) -> None:
    topic = new_topic(broker.bootstrap)
    send(broker.bootstrap, topic, [b'{"n": 1}'] * 5)
    delete_before(broker.bootstrap, topic, 2)
    table = source(broker.bootstrap, topic, (("n", "BIGINT"),))

    def count(start: int, end: int) -> int:
        steps = interval(topic, [{0: start}, {0: end}])
        decoded = read_kafka(spark, table, ("n",), steps, large(spark), is_read_once=True)
        assert isinstance(decoded.delta, DataFrame)
        return decoded.delta.count()

    assert count(2, 5) == 3
    with pytest.raises(PySparkException, match=r"OFFSET_OUT_OF_RANGE|out of range"):
        count(0, 5)
    with pytest.raises(PySparkException, match=rf"topic {topic}, partition 0 ends early"):
        count(2, 6)


LOGIN = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": 'x required username="u" password="p";',
}


KEYED = {"format": "upsert", "key": "k"}


@spark_server
@pytest.mark.parametrize(
    ("kind", "options", "is_read"),
    [
        ("BIGINT", {}, True),
        ("DECIMAL(6,2)", {"missing_columns": "null"}, True),
        ("BIGINT", LOGIN, True),
        ("BIGINT", {**LOGIN, "kafka.sasl.jaas.config": "x required;"}, False),
        ("BIGINT", {**LOGIN, "kafka.sasl.mechanism": "OAUTHBEARER"}, False),
        ("BIGINT", {"kafka.security.protocol": "SASL_SSL"}, False),
        ("BIGINT", {"kafka.fetch.max.bytes": "1000"}, False),
        ("BIGINT", {"kafka.ssl.truststore.location": "x.jks"}, False),
        ("BIGINT", {"format": "csv"}, False),
        ("ARRAY<BIGINT>", {}, False),
        ("FLOAT", {}, False),
        ("BIGINT", {"metadata": "key AS k"}, False),
        ("BIGINT", {"fields": "c = a.b"}, False),
        ("BIGINT", {"fields": "c = _c"}, True),
        ("BIGINT", KEYED, True),
        ("BIGINT", {**KEYED, "key": "c"}, True),
        ("BIGINT", {**KEYED, "key.format": "raw"}, True),
        ("BIGINT", {**KEYED, "key.format": "csv"}, False),
        ("BIGINT", {**KEYED, "value.format": "csv", "key.format": "json"}, False),
        ("BIGINT", {**KEYED, "key": "k, c"}, False),
        ("FLOAT", {**KEYED, "key": "c"}, False),
        ("BIGINT", {"format": "debezium"}, True),
        ("BIGINT", {"format": "debezium", "key": "k"}, True),
        ("BIGINT", {"format": "debezium", "metadata": "offset AS k", "key": "c"}, True),
        ("FLOAT", {"format": "debezium"}, False),
        ("BIGINT", {"format": "debezium", "fields": "c = a.b"}, False),
    ],
)
def test_what_is_plain(
    spark: SparkSession, kind: str, options: Mapping[str, str], is_read: bool
) -> None:
    shown = "BIGINT" if "offset" in options.get("metadata", "") else "BINARY"
    of_key = {"metadata": shown} if "metadata" in options else {"key": "STRING"}
    columns = (("c", kind), *(("k", of_key[name]) for name in of_key if name in options))
    table = source("h:1", "t", columns, **options)
    assert is_plain(spark, table) == is_read


@spark_server
def test_names_that_spark_does_not_find_in_a_text(spark: SparkSession) -> None:
    names = {"a b": True, "it's": False, "a?": False, ":": False, "a,": False}
    for name, is_read in names.items():
        assert is_plain(spark, source("h:1", "t", ((name, "STRING"),))) == is_read


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 500)), min_size=1, max_size=5),
    st.integers(1, 20),
)
def test_slices_are_the_ranges(sizes: list[tuple[int, int]], tasks: int) -> None:
    ranges = []
    for partition, (start, size) in enumerate(sizes):
        cut = start + size // 2
        ranges += [
            StepRange(partition, *pair, step)
            for step, pair in enumerate(((start, cut), (cut, start + size)))
        ]
    found = slices_of([one for one in ranges if one.end > one.start], tasks)
    offsets = [(one.partition, offset) for one in found for offset in range(one.start, one.end)]
    assert offsets == [
        (partition, offset)
        for partition, (start, size) in enumerate(sizes)
        for offset in range(start, start + size)
    ]
    assert len(found) <= tasks + len(sizes)
