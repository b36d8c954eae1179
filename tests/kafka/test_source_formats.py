"""Formats of records, through a real broker and Spark: the engine's rows and those of verification,
which shares no code with it, are the same, and so are the records that both take for bad ones."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from format_builders import Record, Topic, check_same, decode
from kafka_builders import new_topic, source

from lockstep.errors import WrongUse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

METADATA = "partition AS p, offset AS o, timestamp AS at, key AS k, headers AS h, topic"
METADATA_COLUMNS = (
    ("p", "INT"),
    ("o", "BIGINT"),
    ("at", "TIMESTAMP"),
    ("k", "STRING"),
    ("h", "ARRAY<STRUCT<key: STRING, value: BINARY>>"),
    ("topic", "STRING"),
)


@pytest.fixture(autouse=True)
def _utc(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_metadata_columns_beside_those_of_json(spark: SparkSession, broker: Any) -> None:
    topic = Topic(broker.bootstrap, new_topic(broker.bootstrap, 2))
    topic.send(
        Record(b'{"a": 1, "k": 5}', b"key"),
        Record(b'{"a": 2}', None, (("x", b"\x00\xff"), ("x", b""), ("y", None)), 1),
        Record(b'{"a": "x"}', b"key", (("x", b"1"),)),
        Record(b'{"a": 3}', b"\xff", partition=1),
    )
    table = source(
        broker.bootstrap, topic.name, (("a", "INT"), *METADATA_COLUMNS), metadata=METADATA
    )
    assert check_same(spark, table, topic) == {
        2: "column a does not fit int: x",
        3: "column k: the key is not UTF-8 text",
    }
    rows = decode(spark, table, topic).delta.sort("a").collect()
    assert [(row["p"], row["o"], row["k"], row["topic"]) for row in rows] == [
        (0, 0, "key", topic.name),
        (1, 0, None, topic.name),
    ]
    assert rows[0]["h"] is None


def test_metadata_that_must_not_be_null(spark: SparkSession, broker: Any) -> None:
    topic = Topic(broker.bootstrap, new_topic(broker.bootstrap))
    topic.send(Record(b'{"a": 1}', b"k"), Record(b'{"a": 2}'))
    columns = (("a", "INT"), ("k", "BINARY NOT NULL"))
    table = source(broker.bootstrap, topic.name, columns, metadata="key as K")
    assert check_same(spark, table, topic) == {1: "column k is null, and is declared NOT NULL"}


@pytest.mark.parametrize(
    ("declared", "reasons"),
    [
        ("BINARY", {}),
        ("BINARY NOT NULL", {2: "column v is null, and is declared NOT NULL"}),
        ("STRING", {1: "column v: the value is not UTF-8 text"}),
    ],
)
def test_raw_values(
    spark: SparkSession, broker: Any, declared: str, reasons: dict[int, str]
) -> None:
    topic = Topic(broker.bootstrap, new_topic(broker.bootstrap))
    topic.send(*(Record(value) for value in ("é{".encode(), b"\xff\x00", None, b"")))
    columns = (("v", declared), ("o", "BIGINT"))
    table = source(broker.bootstrap, topic.name, columns, format="raw", metadata="offset AS o")
    assert check_same(spark, table, topic) == reasons


def test_columns_from_other_fields(spark: SparkSession, broker: Any) -> None:
    topic = Topic(broker.bootstrap, new_topic(broker.bootstrap))
    values = [
        {"_id": 1, "meta": {"ts": "2026-01-01", "by": "x"}, "a b": {"c.d": 1.5}},
        {"_id": 2, "meta": {"ts": None, "by": None}, "a b": {"c.d": None}},
        {"_id": 3, "meta": {"ts": "2026-01-01"}, "a b": {"c.d": 1}},
        {"_id": 4, "meta": None, "a b": {"c.d": 1}},
        {"_id": 5, "a b": {"c.d": 1}},
        {"_id": 6, "meta": [], "a b": {"c.d": 1}},
        {"_id": 7, "meta": {"ts": "2026-01-01", "by": 5}, "a b": {"c.d": 1}},
        {"_id": 8, "meta": {"ts": "noon", "by": "5"}, "a b": {"c.d": 1}},
        {"_id": 9, "meta": {"ts": "2026-01-01", "by": "5"}, "a b": {"c.d": "1"}},
        {"id": 10, "meta": {"ts": "2026-01-01", "by": "5"}, "a b": {"c.d": 1}},
    ]
    topic.send(*(Record(json.dumps(value).encode()) for value in values))
    columns = (("id", "BIGINT"), ("at", "DATE"), ("by", "STRING"), ("d", "DECIMAL(5, 2)"))
    fields = "id = _id, at = meta.ts, by = meta.by, d = `a b`.`c.d`"
    table = source(broker.bootstrap, topic.name, columns, fields=fields)
    assert check_same(spark, table, topic) == {
        2: "column by is absent",
        3: "column at is absent",
        4: "column at is absent",
        5: "column at is absent",
        6: "column by does not fit string: 5",
        7: "column at does not fit date: noon",
        8: "column d does not fit decimal(5,2): 1",
        9: "column id is absent",
    }
    relaxed = source(broker.bootstrap, topic.name, columns, fields=fields, missing_columns="null")
    assert sorted(check_same(spark, relaxed, topic)) == [5, 6, 7, 8]


def test_a_format_that_is_not_there(spark: SparkSession, broker: Any) -> None:
    topic = Topic(broker.bootstrap, new_topic(broker.bootstrap))
    topic.send(Record(b""))
    table = source(broker.bootstrap, topic.name, (("a", "INT"),), format="protobuf")
    with pytest.raises(WrongUse, match="a format that cannot be decoded"):
        decode(spark, table, topic)
