"""Intervals with more records than a small one has: worked out by the driver, or by Spark, with the same
views; and what is left to Spark only when it is seen."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Producer

from lockstep.adapters.kafka import create_topics
from lockstep.control.kafka_options import KafkaConnection
from lockstep.lake import lookups
from lockstep_engine import attempt
from lockstep_engine.context import Context
from lockstep_engine.local import linear
from lockstep_engine.sources import reading_here

sys.path.insert(0, str(Path(__file__).parent))
from followed_shop import settings_of
from one_pipeline import OnePipeline

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

SQL = """\
CREATE TABLE bids (item INT, bidder STRING, price BIGINT, at TIMESTAMP) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = '${{lockstep.kafka}}', subscribe = '{name}');
CREATE TABLE items (id INT, kind STRING, closes TIMESTAMP) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = '${{lockstep.kafka}}', subscribe = '{name}_items');
"""
ALL = """\
CREATE MATERIALIZED VIEW dear AS SELECT count(*) AS n, max(price) AS most FROM bids WHERE price > 1000;
"""
VIEWS = """\
CREATE MATERIALIZED VIEW shown AS
SELECT item, price * 2 AS twice, date_format(at, 'yyyy-MM-dd HH') AS hour FROM bids WHERE price % 3 = 0;
CREATE MATERIALIZED VIEW best AS
SELECT kind, count(*) AS n, avg(most) AS mean, min(least) AS least
FROM (SELECT i.id, i.kind, max(b.price) AS most, min(b.price) AS least
      FROM bids b JOIN items i ON b.item = i.id
      WHERE b.at BETWEEN i.closes - INTERVAL 1 DAY AND i.closes
      GROUP BY i.id, i.kind)
GROUP BY kind;
CREATE MATERIALIZED VIEW first AS
SELECT item, bidder, price, place
FROM (SELECT *, row_number() OVER (PARTITION BY item ORDER BY price DESC, bidder) AS place FROM bids)
WHERE place <= 2;
CREATE MATERIALIZED VIEW bidders AS
SELECT bidder, count(DISTINCT item) AS items, sum(price) AS paid FROM bids GROUP BY bidder;
CREATE MATERIALIZED VIEW days AS
SELECT item, window(at, '1 day') AS day, count(*) AS n, max(price) AS most
FROM bids GROUP BY item, window(at, '1 day');
CREATE MATERIALIZED VIEW named AS
SELECT b.item, b.bidder, name
FROM bids b JOIN (VALUES (0, 'none'), (1, 'one')) AS s (n, name) ON b.price % 5 = s.n;
CREATE MATERIALIZED VIEW unsold AS
SELECT i.id, i.kind, b.bidder FROM items i LEFT JOIN bids b ON i.id = b.item AND b.price > 40;
CREATE MATERIALIZED VIEW stays AS
SELECT bidder, session_window(at, '1 hour').start AS since, count(*) AS n, sum(price) AS paid
FROM bids GROUP BY bidder, session_window(at, '1 hour');
CREATE MATERIALIZED VIEW moving AS
SELECT item, at, price, avg(price) OVER latest AS mean, lag(price) OVER ordered AS before
FROM (SELECT DISTINCT item, at, price FROM bids)
WINDOW ordered AS (PARTITION BY item ORDER BY at, price),
       latest AS (PARTITION BY item ORDER BY at, price ROWS BETWEEN 4 PRECEDING AND CURRENT ROW);
CREATE MATERIALIZED VIEW busy AS
SELECT window(at, '12 hours', '4 hours').start AS starts, count(*) AS n, max(price) AS most
FROM bids GROUP BY window(at, '12 hours', '4 hours');
"""


class Bids(OnePipeline):
    """Two topics, and records of them that are drawn."""

    def send(self, seed: int, bids: int, items: range) -> None:
        random = np.random.default_rng(seed)
        producer = Producer({"bootstrap.servers": self.settings.kafka})
        for item in items:
            row = {
                "id": item,
                "kind": f"k{item % 3}",
                "closes": f"2026-01-0{1 + item % 5}T12:00:00",
            }
            producer.produce(f"{self.name}_items", json.dumps(row).encode())
        drawn = random.integers(0, [20, 7, 50, 24 * 7], (bids, 4)).tolist()
        for number, (item, bidder, price, hour) in enumerate(drawn):
            at = f"2026-01-0{1 + hour // 24}T{hour % 24:02}:30:00"
            row = {"item": item, "bidder": f"é{bidder}", "price": price, "at": at}
            # Some that nobody can read, and one that only Spark does.
            text = (
                json.dumps(row) if number % 50 else ["{", f" {json.dumps(row)}"][number // 50 % 2]
            )
            producer.produce(self.name, text.encode())
        assert producer.flush(30) == 0


@pytest.fixture
def bids(
    spark: Any,
    spark_server: Any,
    broker: Any,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Bids:
    """Every interval is a large one."""
    monkeypatch.setattr(attempt, "FEW_RECORDS", 0)
    monkeypatch.setattr(attempt, "Context", partial(Context, many_records=0))
    settings = settings_of(spark_server, tmp_path / "home", broker)
    create_topics(
        KafkaConnection(broker.bootstrap),
        {database: 3, f"{database}_items": 1, f"{database}_changes": 1},
    )
    return Bids(spark, settings, database, tmp_path / "project")


@pytest.fixture(params=["here", "here, read by others", "Spark"])
def who(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who reads, and works on it."""
    found: str = request.param
    if found == "here, read by others":
        monkeypatch.setattr(reading_here, "MANY_RECORDS", 0)
    if found == "Spark":
        monkeypatch.setattr(attempt, "can_be_worked_out", lambda *_: False)
    return found


def test_views_are_right_whoever_works_on_them(bids: Bids, by_spark: list[str], who: str) -> None:
    bids.deploy_sql(SQL.format(name=bids.name) + VIEWS, rows_per_step=150)
    for seed, items in enumerate((range(12), range(12, 20), range(0))):
        bids.send(seed, 400, items)
        bids.advance()
        assert bids.is_right()
    assert bool(by_spark) is (who == "Spark")
    errors = bids.spark.table(f"lake.{bids.name}.bids_errors").count()
    assert errors == sum(1 for number in range(0, 400, 50) if number // 50 % 2 == 0) * 3


KEYED = """\
CREATE TABLE prices (item INT, size STRING, price BIGINT, rate DOUBLE) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = '${{lockstep.kafka}}', subscribe = '{name}',
  format = 'upsert', key = 'item, size');
CREATE TABLE stock (id STRING, left INT) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = '${{lockstep.kafka}}', subscribe = '{name}_items',
  format = 'upsert', key = 'id', 'key.format' = 'raw');
CREATE TABLE owners (id INT NOT NULL, name STRING, since TIMESTAMP) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = '${{lockstep.kafka}}', subscribe = '{name}_changes', format = 'debezium');
CREATE MATERIALIZED VIEW owned AS
SELECT o.name, count(*) AS n, sum(p.price) AS worth
FROM owners o JOIN prices p ON o.id = p.item GROUP BY o.name;
CREATE MATERIALIZED VIEW dearest AS
SELECT size, max(price) AS most, count(*) AS n FROM prices GROUP BY size;
CREATE MATERIALIZED VIEW sold AS
SELECT p.item, p.size, p.price, s.left FROM prices p LEFT JOIN stock s ON p.size = s.id;
CREATE MATERIALIZED VIEW firsts AS
SELECT size, item, price
FROM (SELECT *, row_number() OVER (PARTITION BY size ORDER BY price, item) AS place FROM prices)
WHERE place <= 3;
"""


def send_keyed(bids: Bids, seed: int) -> None:
    """Prices that replace each other, some of which go; and keys and values that nobody can read."""
    random, producer = (
        np.random.default_rng(seed),
        Producer({"bootstrap.servers": bids.settings.kafka}),
    )
    for number, (item, size, price) in enumerate(
        random.integers(0, [30, 4, 90], (400, 3)).tolist()
    ):
        key = json.dumps({"item": item, "size": f"é{size}"}).encode()
        value = json.dumps({"price": price, "rate": price / 7}).encode()
        if number % 40 == 0:
            key, value = ((b"{", value), (key, b"{"), (b'{"item": null}', None))[number // 40 % 3]
        producer.produce(bids.name, None if number % 9 == 5 else value, key, partition=item % 3)
    for size in range(seed % 2, 4):
        gone = size == 2 and seed > 1
        producer.produce(
            f"{bids.name}_items",
            None if gone else b'{"left": %d}' % (seed + size),
            f"é{size}".encode(),
        )
    producer.produce(f"{bids.name}_items", b'{"left": 1}', b"\xff")
    for event in changes_of_owners(seed):
        producer.produce(f"{bids.name}_changes", json.dumps(event).encode(), partition=0)
    assert producer.flush(30) == 0


def changes_of_owners(seed: int) -> Iterator[Mapping[str, object]]:
    """Each of thirty comes, then every third has another name, and at last some go."""

    def row(number: int, of: int) -> Mapping[str, object]:
        name = None if number % 5 == 0 else f"o{(number + of * (number % 3 == 0)) % 7}"
        return {"id": number, "name": name, "since": "2026-01-01T00:00:00Z"}

    for number in range(30):
        if seed == 0:
            yield {"op": "c", "before": None, "after": row(number, 0)}
        elif number % 3 == 0:
            yield {"op": "u", "before": row(number, seed - 1), "after": row(number, seed)}
        elif seed == 2 and number % 4 == 0:
            yield {"op": "d", "before": row(number, seed), "after": None}
    yield {"op": "c", "before": None, "after": None}


def test_tables_of_keys_are_right_whoever_reads_them(
    bids: Bids, by_spark: list[str], who: str
) -> None:
    bids.deploy_sql(KEYED.format(name=bids.name), rows_per_step=70)
    for seed in range(3):
        send_keyed(bids, seed)
        bids.advance()
        assert bids.is_right()
    assert bool(by_spark) is (who == "Spark")
    assert len(bids.view("sold")) > 50
    assert len(bids.view("owned")) > 3
    names = [f"lake.{bids.name}.{of}_errors" for of in ("prices", "stock", "owners")]
    errors = [bids.spark.table(name).count() for name in names]
    assert errors == [3 * sum(map(is_bad, range(400))), 3, 3]


def is_bad(number: int) -> bool:
    """Of those that `send_keyed` draws; without a value the key is enough."""
    of_value = number // 40 % 3 == 1 and number % 9 == 5
    return number % 40 == 0 and not of_value


NOTHING = """\
CREATE MATERIALIZED VIEW never AS SELECT item, price FROM bids WHERE price > 1000;
CREATE MATERIALIZED VIEW dear AS
SELECT item, max(price) AS most FROM bids WHERE price > 1000 GROUP BY item;
CREATE MATERIALIZED VIEW kinds AS SELECT kind, most FROM dear JOIN items ON item = id;
CREATE MATERIALIZED VIEW met AS SELECT b.item, i.kind FROM bids b JOIN items i ON b.item = i.id;
CREATE MATERIALIZED VIEW last AS SELECT kind, id FROM (
  SELECT *, row_number() OVER (PARTITION BY kind ORDER BY id DESC) AS place FROM items) WHERE place = 1;
CREATE MATERIALIZED VIEW seen AS SELECT bidder, count(*) AS n FROM bids GROUP BY bidder;
"""


@pytest.mark.parametrize("is_large", [True, False], ids=["many", "few"])
@pytest.mark.parametrize("first", [range(0), range(30, 40)], ids=["no items", "none that is met"])
def test_views_of_nothing_are_there_from_the_first_interval_on(
    bids: Bids, first: range, is_large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_large:
        monkeypatch.setattr(attempt, "Context", Context)
        monkeypatch.setattr(attempt, "FEW_RECORDS", 100_000)
    bids.deploy_sql(SQL.format(name=bids.name) + NOTHING, rows_per_step=50)
    bids.send(1, 100, first)
    bids.advance()
    assert {
        name: len(bids.view(name)) for name in ("never", "dear", "kinds", "met")
    } == dict.fromkeys(("never", "dear", "kinds", "met"), 0)
    assert bids.is_right()
    bids.send(2, 100, range(20))
    bids.advance()
    assert len(bids.view("met")) > 0
    assert bids.is_right()


DOUBLES = """\
CREATE TABLE tries (item INT, share DOUBLE, price BIGINT) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = '${{lockstep.kafka}}', subscribe = '{name}');
CREATE MATERIALIZED VIEW halves AS SELECT item, price FROM tries WHERE sqrt(share) > 0.7;
CREATE MATERIALIZED VIEW most AS SELECT item % 5 AS of, max(price) AS price FROM tries GROUP BY item % 5;
"""


def test_what_turns_out_to_be_of_another_kind_is_left_to_spark(
    bids: Bids, by_spark: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bids.deploy_sql(DOUBLES.format(name=bids.name), rows_per_step=50)
    asked: list[bool] = []

    def tried(*_: object) -> bool:
        asked.append(True)
        return True

    # As if only values told.
    monkeypatch.setattr(attempt, "can_be_worked_out", tried)
    # Up to so many rows are sent to Spark to be evaluated, and come back.
    monkeypatch.setattr(linear, "MOST_ROWS", 10)
    for start in (0, 100):
        producer = Producer({"bootstrap.servers": bids.settings.kafka})
        for number in range(start, start + 100):
            row = {"item": number, "share": number % 7 / 7, "price": number * 3 % 101}
            producer.produce(bids.name, json.dumps(row).encode())
        assert producer.flush(30) == 0
        bids.advance()
        assert bids.is_right()
        assert {"Filter", "Aggregate"} <= set(by_spark)
    told = [line for line in bids.said if "cannot be worked out here" in line]
    assert len(told) == len(asked) == 1


MET = """\
CREATE MATERIALIZED VIEW met AS SELECT b.item, i.kind FROM bids b JOIN items i ON b.item = i.id;
"""


def look_up_at_most(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a large interval, and ten in a small one."""
    for module in (attempt, lookups):
        monkeypatch.setattr(module, "MOST_ROWS", 10)
    monkeypatch.setattr(attempt, "_MOST_LOOKED_UP", rows)


PLACES = """\
CREATE MATERIALIZED VIEW places AS SELECT item, price, place FROM
(SELECT *, row_number() OVER (PARTITION BY {kept} ORDER BY price DESC, bidder, item, at) AS place
 FROM bids)
WHERE place <= 2;
"""


@pytest.mark.parametrize(("most", "is_here"), [(1_000, True), (300, True), (100, False)])
def test_how_much_is_looked_up_does_not_follow_how_much_comes(
    bids: Bids, by_spark: list[str], monkeypatch: pytest.MonkeyPatch, most: int, is_here: bool
) -> None:
    """Nor how much there is: of four hundred bids some two hundred are met, by the numbers of items."""
    look_up_at_most(most, monkeypatch)
    bids.deploy_sql(SQL.format(name=bids.name) + MET, rows_per_step=150)
    bids.send(1, 400, range(10))
    bids.advance()
    assert not by_spark, "there was nothing before"
    bids.send(2, 10, range(10, 20))
    bids.advance()
    assert bids.is_right()
    assert bool(by_spark) is not is_here
    assert any("cannot be worked out here" in line for line in bids.said) is not is_here


@pytest.mark.parametrize(("kept", "is_here"), [("bidder, item", True), ("bidder, at", False)])
def test_state_that_may_have_to_be_read_whole_is_left_to_spark_before_anything_is_read(
    bids: Bids, by_spark: list[str], monkeypatch: pytest.MonkeyPatch, kept: str, is_here: bool
) -> None:
    look_up_at_most(20, monkeypatch)
    bids.deploy_sql(SQL.format(name=bids.name) + PLACES.format(kept=kept))
    bids.send(1, 100, range(0))
    bids.advance()
    by_spark.clear()
    bids.send(2, 1, range(0))
    bids.advance()
    assert bids.is_right()
    assert bool(by_spark) is not is_here
    assert not any("cannot be worked out here" in line for line in bids.said)


def test_fewer_records_are_tried_again(
    bids: Bids, by_spark: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    look_up_at_most(100, monkeypatch)
    bids.deploy_sql(SQL.format(name=bids.name) + MET, rows_per_step=150)
    bids.send(1, 400, range(1))
    bids.advance()
    ways = list[bool]()
    for seed, items in enumerate([range(1, 10), range(10, 16), range(16, 20), range(20, 22)], 2):
        by_spark.clear()
        bids.send(seed, 0, items)
        bids.advance()
        assert bids.is_right()
        ways.append("MultiwayJoin" in by_spark)
    # Of nine items some two hundred bids were wanted, of four some eighty.
    assert ways == [True, True, False, False]
    assert sum("cannot be worked out here" in line for line in bids.said) == 1


def test_a_group_of_all_rows_is_there_before_any_row(bids: Bids, by_spark: list[str]) -> None:
    bids.deploy_sql(SQL.format(name=bids.name) + ALL)
    bids.send(1, 10, range(1))
    bids.advance()
    assert bids.view("dear") == {(0, None): 1}
    bid = {"item": 1, "bidder": "a", "at": "2026-01-01T12:00:00"}
    bids.produce([{**bid, "price": price} for price in (1001, 7, 1003)])
    bids.advance()
    assert bids.view("dear") == {(2, 1003): 1}
    assert bids.is_right()
    assert not by_spark
