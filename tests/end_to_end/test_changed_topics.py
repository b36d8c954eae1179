"""Other queries over topics: with a Kafka sink, a kill at each point, and records that are gone."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from lockstep.adapters.kafka import create_topics
from lockstep.control.interval import Point
from lockstep.control.kafka_options import KafkaConnection
from lockstep.deploying import reconcile
from lockstep.errors import SourceChanged
from lockstep.runtime import Pipeline, recorded

sys.path.insert(0, str(Path(__file__).parent))
import reader
from driven import kill_at, run_again
from followed_shop import rows, settings_of
from market import FIRST, LATER, LEAST, SALES, TOP, Market, opened
from one_pipeline import OnePipeline

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture
def market(spark: Any, spark_server: Any, broker: Any, database: str, tmp_path: Path) -> Market:
    return opened(spark, spark_server, broker, database, tmp_path)


def test_a_sink_gets_the_difference_alone(market: Market) -> None:
    before = len(reader.read_topic(market.bootstrap, f"{market.name}_out"))
    market.deploy(LATER)
    market.advance()
    messages = reader.read_topic(market.bootstrap, f"{market.name}_out")[before:]
    values = [json.loads(message.value) for message in messages]  # type: ignore[attr-defined]
    changes = {(v["item"], v["total"], v["_weight"]) for v in values}
    assert changes == {("bolt", 4, -1), ("bolt", 3, 1), ("nut", 10, -1), ("nut", 9, 1)}
    market.send([("nut", 1), ("cork", 2)])
    market.advance()
    market.check()


def test_a_new_sink_waits_for_the_version_that_has_it(market: Market) -> None:
    """A version is committed and not published when another query comes, and a sink of a view that is
    there: the old files, with which it is published, know of none."""
    market.send([("nut", 1)])
    with Pipeline(market.name, market.settings) as pipeline:
        assert pipeline.plan(None, print).interval is not None
        pipeline.run(print)
    topic = f"{market.name}_more"
    create_topics(KafkaConnection(market.bootstrap), {topic: 1})
    [_, out, _] = SALES.format(name=market.name, more="").split(";")
    more = out.replace("SINK out", "SINK more").replace(f"{market.name}_out", topic)
    market.deploy(f"{LATER}{more};")
    with Pipeline(market.name, market.settings) as pipeline:
        pipeline.publish(print)
    sinks = {sink.name: sink for sink in recorded(market.name, market.settings).sinks}
    assert sinks["out"].published_step > sinks["more"].published_step == -1
    assert sinks["more"].intent is None
    market.check()
    market.advance()
    market.check()
    assert market.sent("more") == market.sent()


DEADLY = [point for point in Point if point is not Point.PLAN_LOOKED_UP]


def test_a_kill_at_any_point_of_the_change(market: Market) -> None:
    """Each time the queries change, and the process that makes the new state is killed."""
    for number, point in enumerate(DEADLY):
        market.deploy(LATER if number % 2 == 0 else FIRST)
        if number % 3 == 0:
            market.send([("nut", number), ("bolt", 1)])
        kill_at(point, market.name, market.settings)
        run_again(market.name, market.settings)
        assert recorded(market.name, market.settings).replaced is None
        assert market.sent() == market.view("totals"), point
    market.advance()
    market.check()


def test_records_that_are_gone_are_asked_for_only_where_nothing_else_has_them(
    market: Market,
) -> None:
    end = market_end(market)
    admin = AdminClient({"bootstrap.servers": market.bootstrap})
    for future in admin.delete_records(end).values():
        future.result(timeout=30)
    total = max(total for _, total in market.view("totals"))
    market.deploy(FIRST + TOP)
    market.advance()
    assert market.view("top") == Counter([(total,)])

    market.deploy(FIRST + TOP + LEAST)
    with pytest.raises(SourceChanged, match="no longer holds records") as gone:
        market.advance()
    assert f"lockstep reconcile {market.name} --forget SOURCE" in gone.value.next_step
    assert recorded(market.name, market.settings).replaced is not None
    market.deploy(FIRST + TOP)
    market.send([("nut", 90)])
    market.advance()
    assert market.view("top") == Counter([(100,)])
    assert market.sent() == market.view("totals")


@pytest.mark.parametrize("divided", [False, True])
def test_a_topic_that_was_made_anew_is_read_from_what_it_holds(
    market: Market, divided: bool
) -> None:
    if divided:
        market.send([("nut", 1)])
        with Pipeline(market.name, market.settings) as pipeline:
            assert pipeline.plan(None, print).interval is not None
    made_anew(market)
    # more than before, so that the offsets that were divided are there again
    market.send([("nut", 1), ("cork", 3)] * 20)
    with pytest.raises(SourceChanged, match="was deleted and made anew") as changed:
        market.advance()
    assert "--forget sales" in changed.value.next_step
    reconcile(market.name, market.settings, ("sales",))
    market.advance()
    assert market.view("totals") == Counter([("nut", 20), ("cork", 60)])
    market.send([("nut", 1)])
    market.advance()
    assert market.view("totals") == Counter([("nut", 21), ("cork", 60)])
    market.check()


def test_a_topic_that_was_made_anew_before_the_first_version(
    spark: Any, spark_server: Any, broker: Any, database: str, tmp_path: Path
) -> None:
    settings = settings_of(spark_server, tmp_path / "home", broker)
    market = Market(spark, settings, database, tmp_path / "project")
    create_topics(KafkaConnection(broker.bootstrap), {database: 2, f"{database}_out": 1})
    market.send([("nut", 5), ("bolt", 1)])
    market.deploy(FIRST)
    with Pipeline(market.name, market.settings) as pipeline:
        assert pipeline.plan(None, print).interval is not None
    made_anew(market)
    market.send([("nut", 1), ("cork", 3)])
    with pytest.raises(SourceChanged, match="was deleted and made anew"):
        market.advance()
    reconcile(market.name, market.settings, ("sales",))
    market.advance()
    assert market.view("totals") == Counter([("nut", 1), ("cork", 3)])
    market.send([("nut", 1)])
    market.advance()
    market.check()


def made_anew(market: Market) -> None:
    """The topic with the same name, and another id."""
    admin = AdminClient({"bootstrap.servers": market.bootstrap})
    for future in admin.delete_topics([market.name]).values():
        future.result(timeout=30)
    wait_until_gone(admin, market.name)
    create_topics(KafkaConnection(market.bootstrap), {market.name: 2})


def test_a_recorded_step_whose_records_are_gone_is_freed_by_forgetting_its_source(
    market: Market,
) -> None:
    """They were there when the step was recorded."""
    market.send([("nut", 9), ("bolt", 9)])
    with Pipeline(market.name, market.settings) as pipeline:
        assert pipeline.plan(None, print).interval is not None
    admin = AdminClient({"bootstrap.servers": market.bootstrap})
    for future in admin.delete_records(market_end(market)).values():
        future.result(timeout=30)
    with pytest.raises(SourceChanged, match="removed before they were read") as gone:
        market.advance()
    assert "lockstep reconcile DIR --forget sales" in gone.value.next_step
    reconcile(market.name, market.settings, ("sales",))
    market.send([("nut", 2)])
    market.advance()
    assert market.view("totals") == Counter([("nut", 2)])
    market.check()


def wait_until_gone(admin: AdminClient, topic: str) -> None:
    deadline = time.monotonic() + 30
    while topic in admin.list_topics(timeout=10).topics:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def market_end(market: Market) -> list[TopicPartition]:
    positions = recorded(market.name, market.settings).positions
    return [
        TopicPartition(market.name, range_.partition, range_.end)
        for position in positions
        for range_ in position.ranges  # type: ignore[union-attr]
    ]


SEEN = (
    "CREATE TABLE seen (ts TIMESTAMP, n INT) USING kafka OPTIONS ("
    "'kafka.bootstrap.servers' = '${lockstep.kafka}', "
    "subscribe = '%s', 'watermark' = 'ts', 'watermark_delay' = '1 minute');\n"
)
COUNTED = "CREATE MATERIALIZED VIEW counted AS SELECT count(*) AS n FROM seen;\n"
SUMMED = "CREATE MATERIALIZED VIEW summed AS SELECT sum(n) AS n FROM seen;\n"
OF_NOTHING = "CREATE MATERIALIZED VIEW one AS SELECT 1 AS n;\n"


@pytest.mark.parametrize("before", [COUNTED, OF_NOTHING], ids=["read before", "not read before"])
def test_records_below_a_watermark_stay_late_in_a_query_that_comes_later(
    spark: Any, spark_server: Any, broker: Any, database: str, tmp_path: Path, before: str
) -> None:
    """Which are late depends on their steps, whoever has opened the pipeline when it did not matter."""
    settings = settings_of(spark_server, tmp_path / "home", broker)
    create_topics(KafkaConnection(broker.bootstrap), {database: 1})
    pipeline = OnePipeline(spark, settings, database, tmp_path / "project")
    pipeline.deploy_sql(SEEN % database + before)

    def advance(views: str, *records: tuple[str, int]) -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for minute, n in records:
            value = {"ts": f"2026-01-01T00:{minute}:00Z", "n": n}
            producer.produce(database, json.dumps(value).encode())
        assert producer.flush(30) == 0
        pipeline.deploy_sql(SEEN % database + views)
        pipeline.advance(opened)

    with Pipeline(database, settings) as opened:
        advance(before, ("10", 1), ("05", 2))
        advance(before, ("20", 4), ("08", 8))  # eight minutes is late by now
        if before == COUNTED:
            assert rows(spark.table(f"lake.{database}.seen_late").select("n")) == Counter([(8,)])
        advance(before + SUMMED)
        assert pipeline.view("summed") == Counter([(7,)])
        advance(before + SUMMED, ("21", 16), ("15", 32))
        assert pipeline.view("summed") == Counter([(23,)])
    assert pipeline.view(before.split()[3]) == Counter([(4 if before == COUNTED else 1,)])
