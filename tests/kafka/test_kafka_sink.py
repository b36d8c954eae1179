"""The Kafka sink against a real broker and Spark, read by a client that it does not use."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from kafka_builders import T0, committed_records, new_topic, sink
from sink_builders import ROWS, DiedError, divided, expected, found, opened, outbox, publish_kafka

from lockstep.adapters.embedded.ports import free_ports
from lockstep.errors import StateDiverged, Unreachable, WrongUse
from lockstep_engine.sinks import kafka as kafka_sink
from lockstep_engine.sinks import kafka_link
from lockstep_engine.sinks.kafka import Publishing
from lockstep_engine.sinks.kafka_link import TransactionLink, read_markers
from lockstep_engine.sinks.kafka_messages import dealt, messages
from lockstep_engine.sinks.kafka_opening import sink_address
from lockstep_engine.sinks.kafka_plan import FencedError, Marker, Message, ShardWork
from lockstep_engine.sinks.kafka_tasks import send_by_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = [pytest.mark.kafka, pytest.mark.spark]

T0_MILLISECONDS = round(T0.timestamp() * 1000)


@pytest.fixture(autouse=True)
def _utc(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.fixture
def by_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows go out from Spark tasks, however few there are."""
    monkeypatch.setattr(kafka_sink, "ROWS_FROM_DRIVER", 0)


def test_published_twice_is_there_once(spark: SparkSession, broker: Any, incarnation: str) -> None:
    topic = new_topic(broker.bootstrap, 3)
    out, changes = sink(broker.bootstrap, topic), outbox(spark, 6)
    assert publish_kafka(spark, out, incarnation, changes, 0, 3) == (3, 1500)
    assert publish_kafka(spark, out, incarnation, changes, 0, 3) == (3, 0)
    assert publish_kafka(spark, out, incarnation, changes, 0, 2) == (3, 0)
    assert publish_kafka(spark, out, incarnation, changes, 4, 5) == (5, 750)
    assert found(broker.bootstrap, topic) == expected(changes, 5)


@pytest.mark.usefixtures("by_tasks")
def test_shards_by_tasks_and_in_several_transactions(
    spark: SparkSession, broker: Any, incarnation: str
) -> None:
    topic = new_topic(broker.bootstrap, 3)
    out, changes = sink(broker.bootstrap, topic, shards="3"), outbox(spark, 6)
    published = publish_kafka(spark, out, incarnation, changes, 0, 5, Publishing(row_limit=70))
    assert published == (5, 2250)
    assert found(broker.bootstrap, topic) == expected(changes, 5)
    markers = read_markers(sink_address(out, incarnation), range(3))
    assert markers == dict.fromkeys(range(3), Marker(5, 3))
    assert publish_kafka(spark, out, incarnation, changes, 0, 5) == (5, 0)


def test_rows_of_a_step_are_in_order(spark: SparkSession, broker: Any, incarnation: str) -> None:
    topic = new_topic(broker.bootstrap)
    publish_kafka(spark, sink(broker.bootstrap, topic), incarnation, outbox(spark, 4), 0, 3)
    records = committed_records(broker.bootstrap, topic)
    places = [
        (int(dict(r.headers)["lockstep-step"]), json.loads(r.value)["_weight"], r.value)
        for r in records
    ]
    assert places == sorted(places)


def test_steps_without_rows_move_the_marker(
    spark: SparkSession, broker: Any, incarnation: str
) -> None:
    topic = new_topic(broker.bootstrap, 2)
    out = sink(broker.bootstrap, topic, shards="2")
    changes = outbox(spark, 1, rows=1)
    assert publish_kafka(spark, out, incarnation, changes, 0, 0) == (0, 1)
    assert publish_kafka(spark, out, incarnation, changes, 1, 7) == (7, 0)
    markers = read_markers(sink_address(out, incarnation), range(2))
    assert markers == {0: Marker(7, 2), 1: Marker(7, 2)}


@pytest.mark.usefixtures("by_tasks")
def test_a_task_that_fails_leaves_no_part_of_another(
    spark: SparkSession, broker: Any, incarnation: str
) -> None:
    """Spark ends the inputs of the other tasks early and without an error: they must not commit."""
    topic = new_topic(broker.bootstrap, 2)
    out = sink(broker.bootstrap, topic, shards="2")
    address = sink_address(out, incarnation)
    changes = outbox(spark, 2, rows=60_000)
    good = changes.where("_step = 0")
    plan = opened(out, incarnation).plan
    written = dealt(messages(good, out, incarnation, {}), 2, 2)
    counts = kafka_sink._counts(written)
    works = {s: ShardWork(s, 2, plan.after[s], 0, {0: counts[s][0].count}) for s in range(2)}
    # Shard 1 breaks in the middle of its rows, while shard 0 is slow and in the middle of its own.
    broken = written.selectExpr(
        "_shard",
        "_step",
        "_order",
        "_partition",
        "_key",
        "_twice",
        "IF(_shard = 1 AND _value LIKE '%\"n\":5%', raise_error('planted'), _value) AS _value",
    )
    with pytest.raises(Exception, match="planted"):
        send_by_tasks(address, works, broken, 1000)
    done = read_markers(address, range(2))
    assert set(done.values()) <= {Marker(-1, 2), Marker(0, 2)}
    whole = found(broker.bootstrap, topic)
    assert sum(whole.values()) in (0, counts[0][0].count)
    assert publish_kafka(spark, out, incarnation, changes, 0, 0).marker == 0
    assert found(broker.bootstrap, topic) == expected(changes, 0)


@pytest.mark.usefixtures("by_tasks")
def test_inputs_cut_short_commit_nothing(
    spark: SparkSession, broker: Any, incarnation: str
) -> None:
    """The trap itself, made certain: a task sees a part of what the outbox has for its shard."""
    topic = new_topic(broker.bootstrap)
    out = sink(broker.bootstrap, topic)
    address = sink_address(out, incarnation)
    changes = outbox(spark, 1)
    plan = opened(out, incarnation).plan
    written = dealt(messages(changes, out, incarnation, {}), 1, 1)
    works = {0: ShardWork(0, 1, plan.after[0], 0, {0: ROWS})}
    with pytest.raises(Exception, match="expected 300 rows, saw 200 and then the end"):
        send_by_tasks(address, works, written.limit(200), 1000)
    assert found(broker.bootstrap, topic) == Counter()
    assert publish_kafka(spark, out, incarnation, changes, 0, 0) == (0, ROWS)
    assert found(broker.bootstrap, topic) == expected(changes, 0)


def test_a_zombie_is_fenced(spark: SparkSession, broker: Any, incarnation: str) -> None:
    topic = new_topic(broker.bootstrap)
    out, changes = sink(broker.bootstrap, topic), outbox(spark, 2)
    publish_kafka(spark, out, incarnation, changes, 0, 0)
    address = sink_address(out, incarnation)
    zombie = TransactionLink(address, 0, 1)
    assert zombie.open() == Marker(0, 1)
    zombie.begin()
    zombie.send(Message(1, 0, None, b'{"Step": 1, "n": -1, "_weight": 1}'))
    assert publish_kafka(spark, out, incarnation, changes, 1, 1).marker == 1
    with pytest.raises(FencedError, match="another publish has taken over sink out"):
        zombie.commit(Marker(1, 1))
    zombie.close()
    assert found(broker.bootstrap, topic) == expected(changes, 1)
    assert read_markers(address, [0]) == {0: Marker(1, 1)}


def test_a_publish_that_is_taken_over_reads_again(
    spark: SparkSession, broker: Any, incarnation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(broker.bootstrap)
    out, changes = sink(broker.bootstrap, topic), outbox(spark, 2)
    check, others = kafka_sink._check_keys, iter([True])

    def check_while_another_publishes(*arguments: Any) -> None:
        if next(others, False):
            publish_kafka(spark, out, incarnation, changes, 0, 1)
        check(*arguments)

    monkeypatch.setattr(kafka_sink, "_check_keys", check_while_another_publishes)
    assert publish_kafka(spark, out, incarnation, changes, 0, 1) == (1, 0)
    assert found(broker.bootstrap, topic) == expected(changes, 1)


def test_another_number_of_shards(spark: SparkSession, broker: Any, incarnation: str) -> None:
    topic = new_topic(broker.bootstrap, 4)
    changes = outbox(spark, 6)
    for step, shards in enumerate("142313"):
        out = sink(broker.bootstrap, topic, shards=shards)
        assert publish_kafka(spark, out, incarnation, changes, step, step).marker == step
    assert found(broker.bootstrap, topic) == expected(changes, 5)
    old = TransactionLink(sink_address(out, incarnation), 0, 1)
    assert old.open() == Marker(5, 3)
    old.close()


def test_a_marker_behind_the_store_is_refused(
    spark: SparkSession, broker: Any, incarnation: str
) -> None:
    topic = new_topic(broker.bootstrap)
    out, changes = sink(broker.bootstrap, topic), outbox(spark, 6)
    publish_kafka(spark, out, incarnation, changes, 0, 1)
    with pytest.raises(StateDiverged, match="sink out: its markers in Kafka"):
        publish_kafka(spark, out, incarnation, changes, 5, 5)


KEYED = """SELECT * FROM VALUES
    (1, 'x', 1L, 0L), (2, CAST(NULL AS STRING), 1L, 0L),
    (1, 'x', -1L, 1L), (1, 'y', 1L, 1L), (2, NULL, -1L, 3L) AS t(Id, b, _weight, _step)"""


def test_upsert_writes_rows_and_tombstones(
    spark: SparkSession, broker: Any, incarnation: str
) -> None:
    topic = new_topic(broker.bootstrap)
    out = sink(broker.bootstrap, topic, format="upsert", key="id")
    publish_kafka(spark, out, incarnation, spark.sql(KEYED), 0, 3)
    records = [(r.key, r.value) for r in committed_records(broker.bootstrap, topic)]
    assert records == [
        (b'{"Id":1}', b'{"Id":1,"b":"x"}'),
        (b'{"Id":2}', b'{"Id":2,"b":null}'),
        (b'{"Id":1}', b'{"Id":1,"b":"y"}'),
        (b'{"Id":2}', None),
    ]


def test_debezium_says_before_and_after(spark: SparkSession, broker: Any, incarnation: str) -> None:
    topic = new_topic(broker.bootstrap)
    out = sink(broker.bootstrap, topic, format="debezium", key="Id")
    publish_kafka(spark, out, incarnation, spark.sql(KEYED), 0, 3, Publishing(divided(2)))
    values = [json.loads(r.value) for r in committed_records(broker.bootstrap, topic)]
    assert [(v["op"], v["before"], v["after"], v["ts_ms"]) for v in values] == [
        ("c", None, {"Id": 1, "b": "x"}, T0_MILLISECONDS),
        ("c", None, {"Id": 2, "b": None}, T0_MILLISECONDS),
        ("u", {"Id": 1, "b": "x"}, {"Id": 1, "b": "y"}, T0_MILLISECONDS + 1000),
        ("d", {"Id": 2, "b": None}, None, None),
    ]
    assert values[2]["source"] == {
        "connector": "lockstep",
        "incarnation": incarnation,
        "sink": "out",
        "step": 1,
    }


def test_debezium_without_a_key_has_a_message_a_copy(
    spark: SparkSession, broker: Any, incarnation: str
) -> None:
    topic = new_topic(broker.bootstrap, 3)
    out = sink(broker.bootstrap, topic, format="debezium")
    changes = spark.sql(
        "SELECT * FROM VALUES ('a', 3L, 0L), ('a', -2L, 1L) AS t(x, _weight, _step)"
    )
    assert publish_kafka(spark, out, incarnation, changes, 0, 1) == (1, 5)
    records = committed_records(broker.bootstrap, topic)
    assert [json.loads(r.value)["op"] for r in records] == ["c", "c", "c", "d", "d"]
    assert len({r.partition for r in records}) == 1


def test_a_row_that_is_too_many_messages_is_not_fetched(
    spark: SparkSession, broker: Any, incarnation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_sink, "ROWS_FROM_DRIVER", 4)
    monkeypatch.delattr(kafka_sink, "FetchedRows")
    topic = new_topic(broker.bootstrap, 3)
    out = sink(broker.bootstrap, topic, format="debezium")
    changes = spark.sql("SELECT 'a' AS x, 5L AS _weight, 0L AS _step")
    assert publish_kafka(spark, out, incarnation, changes, 0, 0) == (0, 5)
    assert len(committed_records(broker.bootstrap, topic)) == 5


def test_values_keep_nulls_digits_and_microseconds(
    spark: SparkSession, broker: Any, incarnation: str
) -> None:
    topic = new_topic(broker.bootstrap)
    changes = spark.sql(
        "SELECT timestamp'2024-01-01 00:00:00.123456' AS t, 1.10BD AS d, CAST(NULL AS INT) AS i, "
        "X'0001' AS b, date'2024-01-01' AS day, 1L AS _weight, 0L AS _step"
    )
    publish_kafka(spark, sink(broker.bootstrap, topic), incarnation, changes, 0, 0)
    (record,) = committed_records(broker.bootstrap, topic)
    assert record.value == (
        b'{"t":"2024-01-01T00:00:00.123456Z","d":1.10,"i":null,"b":"AAE=","day":"2024-01-01",'
        b'"_weight":1}'
    )
    assert dict(record.headers) == {
        "lockstep-step": b"0",
        "lockstep-incarnation": incarnation.encode(),
        "lockstep-sink": b"out/0/1",
    }


def test_a_key_that_does_not_tell_rows_apart(
    spark: SparkSession, broker: Any, incarnation: str
) -> None:
    topic = new_topic(broker.bootstrap)
    out = sink(broker.bootstrap, topic, format="upsert", key="a")
    changes = spark.sql(
        "SELECT * FROM VALUES (1, 2, 1L, 0L), (1, 3, 1L, 0L) AS t(a, b, _weight, _step)"
    )
    with pytest.raises(WrongUse, match="'key' does not tell the rows of view v apart") as caught:
        publish_kafka(spark, out, incarnation, changes, 0, 0)
    assert caught.value.found == 'several rows with key {"a":1} in step 0'
    assert committed_records(broker.bootstrap, topic) == []


def test_options_that_do_not_fit(spark: SparkSession, broker: Any, incarnation: str) -> None:
    topic = new_topic(broker.bootstrap, 2)
    changes = outbox(spark, 1)

    def refused(match: str, where: str = topic, **options: str) -> WrongUse:
        with pytest.raises(WrongUse, match=match) as caught:
            publish_kafka(
                spark, sink(broker.bootstrap, where, **options), incarnation, changes, 0, 0
            )
        return caught.value

    assert refused("an option 'shards'", shards="3").expected.startswith("a number from 1 to 2")
    assert refused("an option 'key'", format="upsert").found == "no key"
    assert refused("an option 'key'", key="n, m").found == "m"
    changes = changes.where("false")
    assert refused("an option 'key'", key="n, m").found == "m", "though there is nothing to send"
    assert "--create --topic nowhere" in refused("topic nowhere", "nowhere").next_step


def test_a_compacted_topic_wants_keys(spark: SparkSession, broker: Any, incarnation: str) -> None:
    topic = new_topic(broker.bootstrap, cleanup_policy="compact")
    out, changes = sink(broker.bootstrap, topic), outbox(spark, 1, rows=2)
    with pytest.raises(WrongUse, match=f"sink out: topic {topic} does not take its messages"):
        publish_kafka(spark, out, incarnation, changes, 0, 0)
    keyed = sink(broker.bootstrap, topic, key="n")
    assert publish_kafka(spark, keyed, incarnation, changes, 0, 0) == (0, 2)


def test_a_long_step_is_cut_and_goes_on(
    spark: SparkSession, broker: Any, incarnation: str, deaths: list[tuple[str, int]]
) -> None:
    """A stamp, then parts of 70: the publish dies after the second part of step 1."""
    topic = new_topic(broker.bootstrap, 2)
    out, changes = sink(broker.bootstrap, topic), outbox(spark, 3)
    about = Publishing(row_limit=70)
    deaths.append(("out", 7))
    with pytest.raises(DiedError):
        publish_kafka(spark, out, incarnation, changes, 0, 2, about)
    address = sink_address(out, incarnation)
    marker = read_markers(address, [0])[0]
    assert (marker.step, marker.rows) == (0, 140)
    there = found(broker.bootstrap, topic)
    assert sum(there.values()) == ROWS + 140
    # Rows of one of its steps that are not those of which a part is out.
    other = changes.selectExpr("Step", "IF(_step = 1, n + 1, n) AS n", "_weight", "_step")
    with pytest.raises(StateDiverged) as caught:
        publish_kafka(spark, out, incarnation, other, 0, 2, about)
    assert caught.value.expected.startswith("step 1, of which 140 rows of shard 0 are in the topic")
    assert found(broker.bootstrap, topic) == there
    # Another limit does no harm: the marker counts rows.
    again = publish_kafka(spark, out, incarnation, changes, 0, 2, Publishing(row_limit=1000))
    assert again == (2, 1050 - ROWS - 140)
    assert found(broker.bootstrap, topic) == expected(changes, 2)
    places = [
        (
            r.partition,
            int(dict(r.headers)["lockstep-step"]),
            json.loads(r.value)["_weight"],
            r.value,
        )
        for r in sorted(committed_records(broker.bootstrap, topic), key=lambda r: r.partition)
    ]
    assert places == sorted(places)


def test_a_transaction_that_lasts_is_ended(
    spark: SparkSession, broker: Any, incarnation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_link, "TRANSACTION_SECONDS", -1.0)
    marked: list[Marker] = []
    commit = TransactionLink.commit

    def note_and_commit(link: TransactionLink, marker: Marker) -> None:
        marked.append(replace(marker, digest=""))
        commit(link, marker)

    monkeypatch.setattr(TransactionLink, "commit", note_and_commit)
    topic = new_topic(broker.bootstrap)
    out, changes = sink(broker.bootstrap, topic), outbox(spark, 2, rows=2)
    assert publish_kafka(spark, out, incarnation, changes, 0, 3) == (3, 5)
    assert marked == [
        *(Marker(-1, 1), Marker(-1, 1, 1), Marker(0, 1), Marker(0, 1, 1), Marker(0, 1, 2)),
        Marker(3, 1),
    ]
    assert found(broker.bootstrap, topic) == expected(changes, 1)


def test_no_broker(spark: SparkSession, incarnation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockstep_engine.sinks.kafka_link.ANSWER_SECONDS", 1.0)
    out = sink(f"127.0.0.1:{free_ports(1)[0]}", "t")
    with pytest.raises(Unreachable, match="sink out: the Kafka broker at"):
        publish_kafka(spark, out, incarnation, outbox(spark, 1), 0, 0)


@pytest.fixture
def noise(broker: Any) -> Iterator[Producer]:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    yield producer
    producer.flush(30)


def test_others_on_the_topic_are_left_alone(
    spark: SparkSession, broker: Any, incarnation: str, noise: Producer
) -> None:
    topic = new_topic(broker.bootstrap)
    noise.produce(topic, b"somebody else")
    noise.flush(30)
    changes = outbox(spark, 1, rows=3)
    for name in (incarnation, f"{incarnation}2"):
        assert publish_kafka(spark, sink(broker.bootstrap, topic), name, changes, 0, 0) == (0, 3)
    records = committed_records(broker.bootstrap, topic)
    assert [dict(r.headers).get("lockstep-incarnation", b"").decode() for r in records] == [
        "",
        *[incarnation] * 3,
        *[f"{incarnation}2"] * 3,
    ]
