"""CSV records, through a real broker and Spark, beside verification's own reading of each line."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from format_builders import Record, Topic, check_same, decode
from kafka_builders import new_topic, source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

COLUMNS = (
    ("id", "BIGINT NOT NULL"),
    ("small", "TINYINT"),
    ("ratio", "DOUBLE"),
    ("price", "DECIMAL(6, 2)"),
    ("name", "STRING"),
    ("at", "TIMESTAMP"),
    ("day", "DATE"),
    ("ok", "BOOLEAN"),
)
# A line and what its reason says; the good ones say nothing.
LINES: list[tuple[bytes | None, str]] = [
    (b"1,2,0.5,1.25,n,2026-01-02T03:04:05.678Z,2026-01-02,true", ""),
    (b'"1","2","0.5","1.25","n","2026-01-02 03:04:05","2026-1-2","TRUE"', ""),
    (b"+1,-128,.5e-3,9999.994,a b ,,,", ""),
    (b"1,,,,,,,", ""),
    (b'1,,-1.E2,1e3,"a,""b",,,', "the value is not CSV: a quoted field does not end before"),
    (b'1,,,,"a,\\"b\\\\",,,', ""),
    (b'1,,,,"a\\b",,,', ""),
    (b'1,,,,a"b",,,', ""),
    ("1,,,,é😀,,,".encode(), ""),
    (b"1,,,-1.005,,,,", ""),
    (None, "the value is null, and a CSV record has one"),
    (b"", "the value is empty"),
    (b"1,,,,a\n,,,", "the value is more than one line"),
    (b"1,,,,,,,\n", "the value is more than one line"),
    (b"1,,,,\0,,,", "the value holds a zero byte"),
    (b"1,,,,\xff,,,", "the value is not UTF-8 text"),
    (b'1,,,,"a"b,,,', "the value is not CSV: a quoted field does not end before the next one"),
    (b'1,,,,"a,,,', "the value is not CSV: a quoted field does not end before the next one"),
    (b"1,,,,,,", "the value has 7 fields, and the source declares 8"),
    (b'1,,,,"a,b",,,,', "the value has 9 fields, and the source declares 8"),
    (b",,,,,,,", "column id is null, and is declared NOT NULL"),
    (b" 1,,,,,,,", "column id does not fit bigint:  1"),
    (b"1.0,,,,,,,", "column id does not fit bigint: 1.0"),
    (b"9223372036854775808,,,,,,,", "column id does not fit bigint: 9223372036854775808"),
    (b"1,128,,,,,,", "column small does not fit tinyint: 128"),
    (b"1,,NaN,,,,,", "column ratio does not fit double: NaN"),
    (b"1,,1e400,,,,,", "column ratio does not fit double: 1e400"),
    (b"1,,1d,,,,,", "column ratio does not fit double: 1d"),
    (b"1,,,9999.995,,,,", "column price does not fit decimal(6,2): 9999.995"),
    (b"1,,,1e99999,,,,", "column price does not fit decimal(6,2): 1e99999"),
    (b"1,,,1e999,,,,", "column price does not fit decimal(6,2): 1e999"),
    (b"1,,,,,12:00,,", "column at does not fit timestamp: 12:00"),
    (b"1,,,,,2026-02-30 00:00:00,,", "column at does not fit timestamp: 2026-02-30 00:00:00"),
    (b"1,,,,,,2026-01,", "column day does not fit date: 2026-01"),
    (b"1,,,,,,,yes", "column ok does not fit boolean: yes"),
]


@pytest.fixture(autouse=True)
def _utc(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_every_kind_of_line(spark: SparkSession, broker: Any) -> None:
    topic = Topic(broker.bootstrap, new_topic(broker.bootstrap))
    topic.send(*(Record(line) for line, _ in LINES))
    table = source(broker.bootstrap, topic.name, COLUMNS, format="csv")
    reasons = check_same(spark, table, topic)
    expected = {place: reason for place, (_, reason) in enumerate(LINES) if reason}
    assert reasons.keys() == expected.keys()
    for place, reason in expected.items():
        assert reasons[place].startswith(reason)
    names = [row["name"] for row in decode(spark, table, topic).delta.collect()]
    assert names[2:] == ["a b ", None, 'a,"b\\', "a\\b", 'a"b"', "é😀", None]


def test_signs_null_and_formats_of_time(spark: SparkSession, broker: Any) -> None:
    topic = Topic(broker.bootstrap, new_topic(broker.bootstrap))
    lines = [
        "x^02.01.2026^2026-01-02T03.04.05,678+0130",
        "NULL^^NULL",
        "''^'02.01.2026'^2026-01-02T03.04.05,678Z",
        "'a''^b'^30.02.2026^",
        "'a''^b'^^2026-01-02T03.04.05,6Z",
        "'NULL'^^",
    ]
    topic.send(*(Record(line.encode()) for line in lines))
    columns = (("name", "STRING"), ("day", "DATE"), ("at", "TIMESTAMP"))
    options = {
        "format": "csv",
        "delimiter": "^",
        "quote": "'",
        "escape": "'",
        "nullvalue": "NULL",
        "dateformat": "dd.MM.yyyy",
        "timestampformat": "yyyy-MM-dd'T'HH.mm.ss,SSSXX",
    }
    table = source(broker.bootstrap, topic.name, columns, **options)
    assert check_same(spark, table, topic) == {
        3: "column day does not fit date: 30.02.2026",
        4: "column at does not fit timestamp: 2026-01-02T03.04.05,6Z",
    }
    rows = (
        decode(spark, table, topic).delta.selectExpr("name", "CAST(at AS STRING) AS at").collect()
    )
    assert [tuple(row) for row in rows] == [
        ("x", "2026-01-02 01:34:05.678"),
        (None, None),
        ("", "2026-01-02 03:04:05.678"),
        (None, None),
    ]


@pytest.mark.parametrize(
    "options",
    [{}, {"escape": '"', "nullvalue": "a"}, {"sep": "\\t", "quote": "a", "escape": "\\"}],
    ids=["default", "doubled quotes", "odd signs"],
)
def test_random_lines(spark: SparkSession, broker: Any, options: dict[str, str]) -> None:
    chance = random.Random(17)
    signs = ['"', '"', ",", ",", "\\", "\t", "a", "b", " ", "é", "'", "\0", "#"]
    topic = Topic(broker.bootstrap, new_topic(broker.bootstrap))
    lines = ("".join(chance.choices(signs, k=chance.randint(1, 9))) for _ in range(1500))
    topic.send(*(Record(line.encode()) for line in lines))
    columns = (("a", "STRING"), ("b", "STRING"))
    table = source(broker.bootstrap, topic.name, columns, format="csv", **options)
    reasons = check_same(spark, table, topic)
    assert 100 < len(reasons) < 1500


def test_upsert_of_csv_keys_and_values(spark: SparkSession, broker: Any) -> None:
    topic = Topic(broker.bootstrap, new_topic(broker.bootstrap))
    good = (Record(b"x,1.5", b"1,a"), Record(None, b"2,a"))
    topic.send(*good, Record(b"x", b"1,a"), Record(b"x,1", b"1"))
    columns = (("id", "INT"), ("v", "STRING"), ("part", "STRING"), ("d", "DOUBLE"))
    options = {"format": "upsert", "value.format": "csv", "key": "id, part"}
    table = source(broker.bootstrap, topic.name, columns, **options)
    decoded = decode(spark, table, topic)
    rows = decoded.delta.drop("_weight", "_step").collect()
    assert [tuple(row) for row in rows] == [
        (1, "x", "a", 1.5, 0, 0, False),
        (2, None, "a", None, 0, 1, True),
    ]
    reasons = [row["reason"] for row in decoded.errors.sort("offset").collect()]
    assert reasons == [
        "the value has 1 fields, and the source declares 2",
        "the key has 1 fields, and the source declares 2",
    ]
