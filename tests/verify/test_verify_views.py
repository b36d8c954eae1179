"""Verification of published views against Kafka's raw records: one row of difference is found.

Nothing of the engine runs here: the views are written by PyIceberg, right or wrong on purpose.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyiceberg.catalog import Catalog, load_catalog

from lockstep.adapters.catalogs import catalog_settings
from lockstep.adapters.settings import Settings
from lockstep.adapters.sql_store import SqlStore
from lockstep.adapters.verify import ViewCheck, verify
from lockstep.control.changes import Deploy, Landed, RecordInterval
from lockstep.control.model import Division, Interval, OffsetRange, TopicSlice
from lockstep.errors import SourceChanged, StateDiverged, WrongUse
from lockstep.sql.circuit import ProjectFiles

pytestmark = pytest.mark.kafka

NAME = "shop"
SPEC = f"""
name: {NAME}
storage: file:///tmp/unused
catalog: lake
database: {NAME}
libraries:
  - glob:
      include: sql/**
"""
SQL = """
CREATE TABLE orders (customer STRING, amount INT)
USING kafka OPTIONS (
  'kafka.bootstrap.servers' = '${{lockstep.kafka}}', 'subscribe' = '{topic}', 'format' = 'json'
);
CREATE MATERIALIZED VIEW totals AS
SELECT customer, count(*) AS orders, sum(amount) AS total, avg(amount) AS mean
FROM orders GROUP BY customer;
CREATE MATERIALIZED VIEW amounts AS SELECT amount FROM orders;
"""
TOTALS = pa.schema(
    [
        ("customer", pa.string()),
        ("orders", pa.int64()),
        ("total", pa.int64()),
        ("mean", pa.float64()),
    ]
)
AMOUNTS = pa.schema([("amount", pa.int32())])

# Two steps: a comes twice in the first, null and the bad ones in the second.
RECORDS = (
    b'{"customer": "a", "amount": 1}',
    b'{"customer": "a", "amount": 2}',
    b'{"customer": "b", "amount": 2}',
    b'{"customer": null, "amount": null}',
    b'{"customer": "b", "amount": 2147483648}',
    b"not json",
    b'{"customer": "b"}',
)
FIRST_STEP_RECORDS = 3
STEP_0 = [("a", 2, 3, 1.5), ("b", 1, 2, 2.0)]
STEP_1 = [*STEP_0, (None, 1, None, None)]


@dataclass
class Shop:
    """A deployed pipeline with two recorded steps; views are published by hand."""

    settings: Settings
    catalog: Catalog
    topic: str
    incarnation: str

    def publish(
        self, view: str, schema: pa.Schema, rows: list[tuple[Any, ...]], step: int | None
    ) -> None:
        """Append rows in one snapshot, with the marker of a step or without any."""
        name = (NAME, view)
        self.catalog.create_namespace_if_not_exists(NAME)
        table = self.catalog.create_table_if_not_exists(name, schema)
        columns = zip(*rows, strict=True)
        arrays = [pa.array(list(c), f.type) for c, f in zip(columns, schema, strict=True)]
        marker = {"lockstep.step": str(step), "lockstep.incarnation": self.incarnation}
        table.append(
            pa.Table.from_arrays(arrays, schema=schema),
            snapshot_properties={} if step is None else marker,
        )

    def publish_all(self) -> None:
        self.publish("totals", TOTALS, STEP_1, 1)
        self.publish("amounts", AMOUNTS, [(1,), (2,), (2,), (None,)], 1)

    def verify(self) -> dict[str, ViewCheck]:
        return {check.view: check for check in verify(NAME, self.settings, lambda _: None)}


def send(bootstrap: str, topic: str) -> str:
    """Make the topic and send the records; returns the topic's id."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(timeout=30)
    producer = Producer({"bootstrap.servers": bootstrap})
    for record in RECORDS:
        producer.produce(topic, record, partition=0)
    assert producer.flush(30) == 0
    described = admin.describe_topics(TopicCollection([topic]))
    standard = str(described[topic].result(timeout=30).topic_id)
    return standard.replace("+", "-").replace("/", "_").rstrip("=")


def division(step: int, topic: str, topic_id: str, start: int, end: int) -> Division:
    time = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=step)
    return Division(
        step, time, (TopicSlice("orders", topic, topic_id, (OffsetRange(0, start, end),)),)
    )


@pytest.fixture
def shop(tmp_path: Path, broker: Any) -> Shop:
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    topic_id = send(broker.bootstrap, topic)
    settings = Settings.load({"LOCKSTEP_HOME": str(tmp_path), "LOCKSTEP_KAFKA": broker.bootstrap})
    store = SqlStore(settings.store_url)
    files = ProjectFiles(SPEC, (("sql/shop.sql", SQL.format(topic=topic)),))
    deployed = store.apply(NAME, Deploy(files, uuid.uuid4().hex, ()))
    assert isinstance(deployed, Landed)
    interval = Interval(
        (
            division(0, topic, topic_id, 0, FIRST_STEP_RECORDS),
            division(1, topic, topic_id, FIRST_STEP_RECORDS, len(RECORDS)),
        )
    )
    assert isinstance(store.apply(NAME, RecordInterval(interval)), Landed)
    wanted = catalog_settings("lake", NAME, {}, settings)
    catalog = load_catalog(wanted.name, **wanted.pyiceberg)
    return Shop(settings, catalog, topic, deployed.state.incarnation)


def test_right_views_are_equal_and_bad_records_are_left_out(shop: Shop) -> None:
    shop.publish_all()
    checks = shop.verify()
    assert [check.equal for check in checks.values()] == [True, True]
    assert list(checks) == ["totals", "amounts"]
    assert checks["totals"].bad_records == {"orders": 3}
    assert (checks["amounts"].rows_published, checks["amounts"].rows_expected) == (4, 4)


def test_one_planted_row_is_found(shop: Shop) -> None:
    shop.publish_all()
    shop.publish("totals", TOTALS, [("c", 1, 1, 1.0)], None)
    check = shop.verify()["totals"]
    assert not check.equal
    assert (check.missing, check.unexpected) == (0, 1)
    assert check.sample == ("unexpected: customer=c, orders=1, total=1, mean=1.0",)


def test_second_copy_of_a_right_row_is_found(shop: Shop) -> None:
    shop.publish_all()
    shop.publish("amounts", AMOUNTS, [(2,)], None)
    checks = shop.verify()
    assert (checks["amounts"].missing, checks["amounts"].unexpected) == (0, 1)
    assert checks["totals"].equal


def test_one_missing_row_of_nulls_is_found(shop: Shop) -> None:
    shop.publish("totals", TOTALS, STEP_0, 1)
    shop.publish("amounts", AMOUNTS, [(1,), (2,), (2,), (None,)], 1)
    check = shop.verify()["totals"]
    assert (check.missing, check.unexpected) == (1, 0)
    assert check.sample == ("missing: customer=None, orders=1, total=None, mean=None",)


def test_each_view_is_compared_at_its_own_step(shop: Shop) -> None:
    shop.publish("totals", TOTALS, STEP_0, 0)
    shop.publish("amounts", AMOUNTS, [(1,), (2,), (2,), (None,)], 1)
    checks = shop.verify()
    assert {name: (check.step, check.equal) for name, check in checks.items()} == {
        "totals": (0, True),
        "amounts": (1, True),
    }


def test_view_that_was_never_published_is_refused_by_name(shop: Shop) -> None:
    shop.publish("totals", TOTALS, STEP_1, 1)
    with pytest.raises(WrongUse, match=r"lake\.shop\.amounts has never been published"):
        shop.verify()


def test_view_of_another_incarnation_is_refused(shop: Shop) -> None:
    replace(shop, incarnation="somebody else").publish_all()
    with pytest.raises(StateDiverged, match="another incarnation"):
        shop.verify()


def test_records_that_retention_removed_are_said(shop: Shop, broker: Any) -> None:
    shop.publish_all()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    gone = TopicPartition(shop.topic, 0, 2)
    admin.delete_records([gone])[gone].result(timeout=30)
    with pytest.raises(SourceChanged, match="records that the views rest on are gone"):
        shop.verify()


def test_records_of_another_topic_of_the_same_name_are_refused(shop: Shop, broker: Any) -> None:
    shop.publish_all()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([shop.topic])[shop.topic].result(timeout=30)
    with pytest.raises(SourceChanged, match="not the one whose offsets are recorded"):
        shop.verify()
