"""Avro records, by one schema and by those of a registry, through a real broker, Spark and a
registry on loopback, beside verification's own reading of each byte."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from avro_builders import Registry, encoded, framed, number, running_registry
from format_builders import Record, Topic, check_same, decode
from kafka_builders import new_topic, source

from lockstep.adapters.embedded.ports import free_ports
from lockstep.errors import Unreachable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def record_of(*fields: tuple[str, Any], name: str = "shop.Order") -> dict[str, Any]:
    named = [{"name": name_, "type": type_} for name_, type_ in fields]
    return {"type": "record", "name": name, "fields": named}


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
COLOR = {"type": "enum", "name": "Color", "symbols": ["red", "blue"]}
ADDRESS = record_of(("city", ["null", "string"]), ("color", COLOR), name="Address")
SCHEMA = record_of(
    ("id", "long"),
    ("small", ["null", "int"]),
    ("unread", ["int", "string"]),
    ("address", ["null", ADDRESS]),
    ("price", ["null", DECIMAL]),
    ("at", ["null", MILLIS]),
    ("day", ["null", {"type": "int", "logicalType": "date"}]),
    ("ratio", ["null", "float"]),
    ("raw", ["null", {"type": "fixed", "name": "Two", "size": 2}]),
    ("list", {"type": "array", "items": "long"}),
    ("ok", "boolean"),
    ("pairs", {"type": "map", "values": ["null", "double"]}),
)
COLUMNS = (
    ("id", "BIGINT"),
    ("small", "TINYINT"),
    ("city", "STRING"),
    ("color", "STRING"),
    ("price", "DECIMAL(10, 4)"),
    ("at", "TIMESTAMP"),
    ("day", "DATE"),
    ("ratio", "DOUBLE"),
    ("raw", "BINARY"),
    ("ok", "BOOLEAN"),
)
OPTIONS = {"format": "avro", "fields": "city = address.city, color = address.color"}


def order(**changes: Any) -> dict[str, Any]:
    return {
        "id": 1,
        "small": 2,
        "unread": 3,
        "address": {"city": "é", "color": "blue"},
        "price": (-12345).to_bytes(3, "big", signed=True),
        "at": 1_767_323_045_678,
        "day": 20_000,
        "ratio": 0.5,
        "raw": b"\x00\xff",
        "list": [1, 2, 3],
        "ok": True,
        "pairs": {"a": 1.5, "b": None},
        **changes,
    }


def nothing() -> dict[str, Any]:
    nulls = dict.fromkeys(("small", "address", "price", "at", "day", "ratio", "raw"))
    return order(id=2, list=[], pairs={}, **nulls)


@pytest.fixture(autouse=True)
def _utc(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.fixture
def registry() -> Iterator[Registry]:
    with running_registry() as running:
        yield running


def test_records_of_one_schema(spark: SparkSession, broker: Any) -> None:
    topic = Topic(broker.bootstrap, new_topic(broker.bootstrap))
    good = encoded(SCHEMA, order())
    huge = encoded("long", 1) + number(0) + number(0) + number(1) + number(1) + number(1 << 30)
    values = [
        good,
        encoded(SCHEMA, nothing()),
        None,
        b"",
        good + b"\0",
        good[:-1],
        huge,
        encoded(SCHEMA, order(small=128)),
        encoded(SCHEMA, order(address={"city": b"\xff", "color": "red"})),
        b"\xff" * 20,
    ]
    topic.send(*map(Record, values))
    options = {**OPTIONS, "avro.schema": json.dumps(SCHEMA)}
    table = source(broker.bootstrap, topic.name, COLUMNS, **options)
    malformed = "the value is not one Avro record of the schema"
    assert check_same(spark, table, topic) == {
        2: "the value is null, and an Avro record has one",
        **dict.fromkeys((3, 4, 5, 6, 9), malformed),
        7: "column small does not fit tinyint",
        8: "column city is not UTF-8 text",
    }
    row, _ = decode(spark, table, topic).delta.sort("id").collect()
    assert (row["id"], row["small"], row["city"], row["color"]) == (1, 2, "é", "blue")
    assert (row["price"], row["day"], row["ratio"]) == (Decimal("-123.45"), date(2024, 10, 4), 0.5)
    assert (bytes(row["raw"]), row["ok"]) == (b"\x00\xff", True)


def test_lists_maps_and_local_times(spark: SparkSession, broker: Any) -> None:
    topic = Topic(broker.bootstrap, new_topic(broker.bootstrap))
    local = {"type": "long", "logicalType": "local-timestamp-micros"}
    schema = record_of(
        ("list", {"type": "array", "items": ["null", "int"]}),
        ("pairs", {"type": "map", "values": DECIMAL}),
        ("at", local),
    )
    value = {"list": [1, None], "pairs": {"a": b"\x7b"}, "at": 1_500_000}
    topic.send(Record(encoded(schema, value)))
    columns = (
        ("list", "ARRAY<BIGINT>"),
        ("pairs", "MAP<STRING, DECIMAL(6, 2)>"),
        ("at", "TIMESTAMP_NTZ"),
    )
    options = {"format": "avro", "avro.schema": json.dumps(schema)}
    (row,) = decode(
        spark, source(broker.bootstrap, topic.name, columns, **options), topic
    ).delta.collect()
    assert row["list"] == [1, None]
    assert row["pairs"] == {"a": Decimal("1.23")}
    assert row["at"] == datetime(1970, 1, 1, 0, 0, 1, 500000)


def test_random_bytes_are_read_alike(spark: SparkSession, broker: Any) -> None:
    """Records with a byte changed, left out or put in: both readings agree on which are records."""
    chance = random.Random(23)
    topic = Topic(broker.bootstrap, new_topic(broker.bootstrap))
    values = []
    for _ in range(1500):
        value = bytearray(encoded(SCHEMA, order() if chance.random() < 0.7 else nothing()))
        at = chance.randrange(len(value))
        match chance.randrange(3):
            case 0:
                value[at] = chance.choice([0, 1, 2, 0x7F, 0x80, 0xFF, value[at] ^ 4])
            case 1:
                del value[at]
            case _:
                value.insert(at, chance.choice([0, 1, 2, 0x80]))
        values.append(bytes(value))
    topic.send(*map(Record, values))
    options = {**OPTIONS, "avro.schema": json.dumps(SCHEMA)}
    columns = tuple(column for column in COLUMNS if column[0] not in ("at", "day"))
    reasons = check_same(spark, source(broker.bootstrap, topic.name, columns, **options), topic)
    assert 300 < len(reasons) < 1400


def test_each_record_by_its_own_schema(
    spark: SparkSession, broker: Any, registry: Registry
) -> None:
    topic = Topic(broker.bootstrap, new_topic(broker.bootstrap))
    first = record_of(("id", "int"), ("name", "string"))
    second = record_of(("more", "string"), ("name", ["null", "string"]), ("id", "long"))
    other = record_of(("id", "string"), ("name", "string"))
    short = record_of(("id", "long"))
    registry.add(7, first)
    registry.add(70_000, second)
    registry.add(8, other)
    registry.add(9, short)
    registry.add(10, "string")
    registry.add(11, {"syntax": "proto3"}, schemaType="PROTOBUF")
    topic.send(
        Record(framed(7, encoded(first, {"id": 1, "name": "a"}))),
        Record(framed(70_000, encoded(second, {"id": 1 << 40, "name": None, "more": "x"}))),
        Record(framed(7, encoded(first, {"id": 2, "name": "b"}))),
        Record(None),
        Record(encoded(first, {"id": 1, "name": "a"})),
        Record(b"\0\0"),
        Record(framed(99, b"\2\2a")),
        Record(framed(8, encoded(other, {"id": "1", "name": "a"}))),
        Record(framed(9, encoded(short, {"id": 1}))),
        Record(framed(10, encoded("string", "x"))),
        Record(framed(11, b"x")),
        Record(framed(7, b"\2\2")),
    )
    columns = (("id", "BIGINT"), ("name", "STRING"))
    options = {"format": "avro", "schema.registry.url": f"{registry.url}/"}
    table = source(broker.bootstrap, topic.name, columns, **options)
    no_header = "the value does not begin with the header of a schema registry"
    assert check_same(spark, table, topic) == {
        3: "the value is null, and an Avro record has one",
        4: no_header,
        5: no_header,
        6: "schema 99 is not in the registry",
        7: "column id does not fit BIGINT: it is string in schema 8",
        8: "column name is absent in schema 9",
        9: "schema 10 cannot be read: it is no record",
        10: "schema 11 cannot be read: it is no JSON: Expecting value: line 1 column 1 (char 0)",
        11: "the value is not one Avro record of schema 7",
    }
    relaxed = source(broker.bootstrap, topic.name, columns, **options, missing_columns="null")
    assert 8 not in check_same(spark, relaxed, topic)
    assert sorted(set(registry.asked)) == [7, 8, 9, 10, 11, 99, 70_000]
    known = [one for one in registry.asked if one != 99]
    assert len(known) == len(set(known)), "what was answered is not asked again"


def test_upsert_of_avro_keys_and_values(
    spark: SparkSession, broker: Any, registry: Registry
) -> None:
    topic = Topic(broker.bootstrap, new_topic(broker.bootstrap))
    key, value = record_of(("id", "long"), name="Key"), record_of(("v", ["null", "string"]))
    registry.add(1, key)
    registry.add(2, value)
    topic.send(
        Record(framed(2, encoded(value, {"v": "x"})), framed(1, encoded(key, {"id": 5}))),
        Record(None, framed(1, encoded(key, {"id": 6}))),
        Record(framed(2, encoded(value, {"v": "x"})), framed(3, b"")),
    )
    options = {
        "format": "upsert",
        "value.format": "avro",
        "key": "id",
        "schema.registry.url": registry.url,
    }
    columns = (("id", "BIGINT"), ("v", "STRING"))
    decoded = decode(spark, source(broker.bootstrap, topic.name, columns, **options), topic)
    rows = decoded.delta.select("id", "v", "_deleted").sort("id").collect()
    assert [tuple(row) for row in rows] == [(5, "x", False), (6, None, True)]
    assert [row["reason"] for row in decoded.errors.collect()] == [
        "schema 3 is not in the registry"
    ]


def test_a_registry_that_does_not_answer(spark: SparkSession, broker: Any) -> None:
    topic = Topic(broker.bootstrap, new_topic(broker.bootstrap))
    topic.send(Record(framed(5, b"")))
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    table = source(
        broker.bootstrap,
        topic.name,
        (("id", "BIGINT"),),
        **{"format": "avro", "schema.registry.url": url},
    )
    with pytest.raises(Unreachable, match="does not give schema 5"):
        decode(spark, table, topic)
