"""Keyed sources and change events, through a real broker and Spark, beside verification's reading.

What is compared is the table after the last step: the engine's upsert over the decoded records, and
the fold of verification over the same ones.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest
from format_builders import Record, Topic, check_same, decode, plain_rows, verified_rows
from kafka_builders import new_topic, source

from lockstep.sql.circuit import Cost, Operator, SourceTable, TraceKind, TraceSpec
from lockstep.sql.plans.nodes import CHANGE_COLUMNS, Scan, Upsert
from lockstep.sql.sources.source_layout import layout_of
from lockstep_engine.context import Context
from lockstep_engine.operators import State, evaluate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


@pytest.fixture(autouse=True)
def _utc(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def text(value: object) -> bytes:
    return json.dumps(value).encode()


def check_table(
    spark: SparkSession, table: SourceTable, topic: Topic
) -> tuple[dict[int, str], Counter[tuple[Any, ...]]]:
    """Compare the table after the one step, and the bad records; returns their reasons and it."""
    columns = tuple(column.key for column in table.columns)
    node = Upsert(Scan("src", (*columns, *CHANGE_COLUMNS)), layout_of(table).keys)
    others = tuple(name for name in columns if name not in node.keys)
    trace = TraceSpec("trace", TraceKind.ROWS, node.keys, others)
    operator = Operator(1, node, (0,), (trace,), False, True, Cost.CHANGE, 1)
    decoded = decode(spark, table, topic)
    assert decoded.delta.columns == [*columns, *CHANGE_COLUMNS, "_weight", "_step"]
    evaluation = evaluate(operator, (decoded.delta,), State(), Context(spark, 100))
    found = plain_rows(table, evaluation.delta)
    places = {(raw.partition, raw.offset): place for place, raw in enumerate(topic.records)}
    errors = decoded.errors.collect()
    reasons = {places[row["partition"], row["offset"]]: row["reason"] for row in errors}
    rows, bad = verified_rows(table, topic)
    assert set(reasons) == bad
    assert found == rows
    return reasons, found


def test_upsert_of_json(spark: SparkSession, broker: Any) -> None:
    topic = Topic(broker.bootstrap, new_topic(broker.bootstrap, 2))

    def key(number: object) -> bytes:
        return text({"Id": number, "at": "2026-01-01"})

    topic.send(
        Record(text({"v": 1}), key(1)),
        Record(text({"v": 2, "Id": 7}), key(1)),
        Record(text({"v": 3}), key(2)),
        Record(None, key(2)),
        Record(text({"v": None}), key(3), partition=1),
        Record(None, key(4)),
        Record(text({"v": 5}), None),
        Record(None, None),
        Record(text({"v": 5}), key(None)),
        Record(text({"v": 5}), b"1"),
        Record(text({"v": "x"}), key(1)),
        Record(text({}), key(1)),
        Record(b"", key(1)),
    )
    columns = (("v", "INT"), ("Id", "BIGINT"), ("at", "DATE"), ("o", "BIGINT"))
    options = {"format": "upsert", "key": "id, AT", "metadata": "offset AS o"}
    reasons, rows = check_table(
        spark, source(broker.bootstrap, topic.name, columns, **options), topic
    )
    assert reasons == {
        6: "the record has no key, by which its row is known",
        7: "the record has no key, by which its row is known",
        8: "column Id is null, and is of the key",
        9: "the key is JSON, and not an object",
        10: "column v does not fit int: x",
        11: "column v is absent",
        12: "the value is not JSON",
    }
    assert {(row[0], row[1], row[3]) for row in rows} == {(2, 1, 1), (None, 3, 0)}


def test_upsert_of_fields_with_other_names(spark: SparkSession, broker: Any) -> None:
    """Of keys and values, which may have one name for two of them."""
    topic = Topic(broker.bootstrap, new_topic(broker.bootstrap))
    topic.send(
        Record(text({"_id": 5, "v": 1}), text({"_id": 1, "id": 7})),
        Record(text({"_id": None}), text({"_id": 2})),
        Record(text({"id": 6}), text({"_id": 2})),
        Record(text({"_id": 6}), text({"id": 3})),
    )
    columns = (("id", "BIGINT"), ("v", "INT"))
    options = {"format": "upsert", "key": "id", "fields": "id = _id, v = _id"}
    reasons, rows = check_table(
        spark, source(broker.bootstrap, topic.name, columns, **options), topic
    )
    assert reasons == {2: "column v is absent", 3: "column id is absent"}
    assert rows == {(1, 5): 1, (2, None): 1}


def test_upsert_of_raw_keys_and_values(spark: SparkSession, broker: Any) -> None:
    topic = Topic(broker.bootstrap, new_topic(broker.bootstrap))
    topic.send(Record(b"1", b"a"), Record(b"", b"b"), Record(None, b"a"), Record(b"\xff", b"\xff"))
    columns = (("k", "STRING"), ("v", "BINARY"))
    options = {"format": "upsert", "value.format": "raw", "key": "k"}
    reasons, rows = check_table(
        spark, source(broker.bootstrap, topic.name, columns, **options), topic
    )
    assert reasons == {3: "column k: the key is not UTF-8 text"}
    assert rows == {("b", b""): 1}


def event(op: object, before: object = None, after: object = None, **more: object) -> object:
    return {"before": before, "after": after, "op": op, "ts_ms": 1, **more}


def row(number: object, value: object = "x", price: object = 1.5) -> dict[str, object]:
    return {"id": number, "v": value, "price": price, "more": [1]}


EVENT_COLUMNS = (("id", "BIGINT"), ("v", "STRING"), ("price", "DECIMAL(38, 20)"))
PRECISE = b"12345678901234567.12345678901234567890"


def events() -> Sequence[bytes | None]:
    """Good ones, of a database that says the whole row before."""
    bare = [
        event("r", None, row(1)),
        event("c", None, row(2)),
        event("u", row(2), row(2, "5")),
        event("d", row(1)),
        event("c", None, row(3, None, None)),
        event("m"),
        event("c", None, row(4, "}")),
    ]
    wrapped = {"schema": {"type": "struct"}, "payload": event("u", row(4, "}"), row(4, "y"))}
    precise = text(event("c", None, row(5, "p", 0))).replace(b'"price": 0', b'"price": ' + PRECISE)
    return [*map(text, bare), None, text(wrapped), precise]


BAD: list[tuple[bytes, str]] = [
    (b"", "the value is not JSON"),
    (b"[]", "the value is JSON, and not an object"),
    (text({"id": 1}), "the value has no op, so it is no change event"),
    (text(event("t")), "op t takes all rows away, and names none: it cannot be followed"),
    (text(event("x")), "op x is not one of c, r, u, d, t, m"),
    (text(event("c")), "op c comes without the row after"),
    (text(event("d")), "op d comes without the row before"),
    (text(event("c", None, row("1"))), "column id does not fit bigint: 1"),
    (text(event("c", None, {"id": 1, "v": "x"})), "column price is absent"),
    (text({"payload": event("c", None, row(1, 5))}), "column v does not fit string: 5"),
    (text(event("c", None, [])), ""),
    (text(event("c", None, row(1, price="1"))), "column price does not fit decimal(38,20): 1"),
]


def check_bad(reasons: dict[int, str], expected: Sequence[tuple[int, str]]) -> None:
    assert reasons.keys() == {place for place, _ in expected}
    assert {p: reasons[p] for p, text_ in expected if text_} == {p: t for p, t in expected if t}


def test_change_events_at_their_word(spark: SparkSession, broker: Any) -> None:
    topic = Topic(broker.bootstrap, new_topic(broker.bootstrap))
    good = events()
    bad = [*BAD, (text(event("u", None, row(1))), "op u comes without the row before")]
    topic.send(*map(Record, good), *(Record(value) for value, _ in bad))
    table = source(broker.bootstrap, topic.name, EVENT_COLUMNS, format="debezium")
    reasons = check_same(spark, table, topic)
    check_bad(reasons, [(len(good) + n, reason) for n, (_, reason) in enumerate(bad)])
    decoded = decode(spark, table, topic)
    assert decoded.delta.columns == ["id", "v", "price", "_weight", "_step"]
    assert sorted(row["id"] for row in decoded.delta.where("_weight < 0").collect()) == [1, 2, 4]


def test_change_events_with_keys(spark: SparkSession, broker: Any) -> None:
    """Repeated events, and deletes that say the key alone, as databases do by default."""
    topic = Topic(broker.bootstrap, new_topic(broker.bootstrap))
    good = [
        *events(),
        *events()[4:],
        text(event("u", None, row(3, "new"))),
        text(event("d", {"id": 2})),
        text(event("u", {"id": 6}, row(6))),
    ]
    bad = [*BAD, (text(event("d", {"v": "x"})), "column id is absent")]
    bad.append((text(event("c", None, row(None))), "column id is null, and is of the key"))
    topic.send(*map(Record, good), *(Record(value) for value, _ in bad))
    table = source(
        broker.bootstrap,
        topic.name,
        (*EVENT_COLUMNS, ("o", "BIGINT")),
        format="debezium",
        key="id",
        metadata="offset AS o",
    )
    reasons, rows = check_table(spark, table, topic)
    check_bad(reasons, [(len(good) + n, reason) for n, (_, reason) in enumerate(bad)])
    assert {(r[0], r[1]) for r in rows} == {(3, "new"), (4, "y"), (5, "p"), (6, "x")}
