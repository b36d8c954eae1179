"""Sources of every kind in one pipeline, interval by interval: after each, every published view is
what verification makes of the raw records, which it decodes and folds with code of its own."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from lockstep.adapters.verify import verify
from lockstep.deploying import deploy
from lockstep.runtime import Pipeline

sys.path.insert(0, str(Path(__file__).parent.parent / "kafka"))
from avro_builders import Registry, encoded, framed, running_registry
from driven import own_settings

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

SPEC = """
name: mixed
storage: file:///tmp/unused
catalog: lake
database: mixed
libraries:
  - glob: {include: sql/**}
configuration:
  lockstep.rows_per_step: "40"
"""
WITH = "USING kafka OPTIONS ('kafka.bootstrap.servers' = '${lockstep.kafka}', subscribe = '%s_"
SQL = """
CREATE TABLE customers (id BIGINT, name STRING, country STRING, seen BIGINT)
  WITHcustomers', format = 'upsert', key = 'id', metadata = 'offset AS seen');
CREATE TABLE orders (id BIGINT, customer BIGINT, amount DECIMAL(10, 2))
  WITHorders', format = 'debezium', key = 'id', fields = 'customer = customer_id');
CREATE TABLE stock (item STRING, pieces INT) WITHstock', format = 'debezium');
CREATE TABLE clicks (payload STRING, who STRING, at TIMESTAMP)
  WITHclicks', format = 'raw', metadata = 'key AS who, timestamp AS at');
CREATE TABLE prices (item STRING, day DATE, price DECIMAL(8, 2))
  WITHprices', format = 'csv', sep = ';', dateformat = 'dd.MM.yyyy');
CREATE TABLE visits (who STRING, seconds BIGINT, page STRING, lies_at BIGINT)
  WITHvisits', format = 'avro', 'schema.registry.url' = '%s_registry',
  fields = 'seconds = stay.seconds', metadata = 'offset AS lies_at', missing_columns = 'null');
CREATE TABLE again (customer BIGINT, orders BIGINT, spent DECIMAL(20, 2))
  WITHagain', format = 'upsert', key = 'customer');

CREATE MATERIALIZED VIEW spending AS
  SELECT customer, count(*) AS orders, sum(amount) AS spent FROM orders GROUP BY customer;
CREATE MATERIALIZED VIEW by_country AS
  SELECT country, count(*) AS orders, sum(amount) AS spent, max(amount) AS most
  FROM orders JOIN customers ON orders.customer = customers.id GROUP BY country;
CREATE MATERIALIZED VIEW names AS SELECT id, name, seen FROM customers WHERE country <> 'NL';
CREATE MATERIALIZED VIEW left_over AS
  SELECT item, sum(pieces) AS pieces, min(pieces) AS least FROM stock GROUP BY item;
CREATE MATERIALIZED VIEW said AS
  SELECT who, count(*) AS n, max(length(payload)) AS longest, max(at) AS at
  FROM clicks GROUP BY who;
CREATE MATERIALIZED VIEW worth AS
  SELECT stock.item, max(price) AS price, count(*) AS n
  FROM stock JOIN prices ON stock.item = prices.item GROUP BY stock.item;
CREATE MATERIALIZED VIEW visited AS
  SELECT page, count(*) AS n, sum(seconds) AS seconds, max(lies_at) AS lies_at
  FROM visits GROUP BY page;
CREATE MATERIALIZED VIEW round_trip AS SELECT customer, orders, spent FROM again;
CREATE SINK again_out FROM spending USING kafka OPTIONS (
  'kafka.bootstrap.servers' = '${lockstep.kafka}', topic = '%s_again', format = 'upsert',
  key = 'customer');
"""
TOPICS = ("customers", "orders", "stock", "clicks", "prices", "visits", "again")
VIEWS = (
    *("spending", "by_country", "names", "left_over", "said", "worth", "visited", "round_trip"),
)


def stay(seconds: str, *more: dict[str, object]) -> dict[str, object]:
    inner = {"type": "record", "name": "Stay", "fields": [{"name": "seconds", "type": seconds}]}
    fields = [{"name": "who", "type": "string"}, {"name": "stay", "type": ["null", inner]}, *more]
    return {"type": "record", "name": "Visit", "fields": fields}


SCHEMAS = {1: stay("int"), 2: stay("long", {"name": "page", "type": ["null", "string"]})}


class Traffic:
    """What databases and people send, deterministic under its seed; some of it is bad."""

    def __init__(self, bootstrap: str, prefix: str, seed: int) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap})
        self._prefix = prefix
        self._random = random.Random(seed)
        self._orders: dict[int, dict[str, object]] = {}
        self._stock: list[dict[str, object]] = []
        self._next_order = 0

    def send(self, count: int) -> None:
        for _ in range(count):
            self._customer()
            self._order()
            self._pieces()
            self._click()
            self._price()
            self._visit()
        assert self._producer.flush(30) == 0

    def _produce(self, topic: str, key: object, value: object) -> None:
        self._producer.produce(
            f"{self._prefix}_{topic}",
            None if value is None else json.dumps(value).encode(),
            None if key is None else json.dumps(key).encode(),
        )

    def _customer(self) -> None:
        number = self._random.randrange(12)
        country = self._random.choice(["NL", "DE", "FR", None])
        value = {"name": f"c{number}", "country": country, "id": number}
        if self._random.random() < 0.2:
            value["country"] = 7
        is_gone = self._random.random() < 0.2
        self._produce("customers", {"id": number}, None if is_gone else value)

    def _order(self) -> None:
        """At least once: an event in five is sent twice; a delete says the key alone."""
        chance = self._random.random()
        before: object = None
        if self._orders and chance < 0.5:
            number = self._random.choice(list(self._orders))
            if chance < 0.2:
                del self._orders[number]
                event = {"op": "d", "before": {"id": number}, "after": None}
                self._twice("orders", number, event)
                return
            before, op = {"id": number}, "u"
        else:
            number, op = self._next_order, "c"
            self._next_order += 1
        amount = self._random.randrange(10_000) / 100
        row = {"id": number, "customer_id": self._random.randrange(12), "amount": amount}
        self._orders[number] = row
        self._twice("orders", number, {"op": op, "before": before, "after": row})

    def _twice(self, topic: str, key: int, event: object) -> None:
        for _ in range(2 if self._random.random() < 0.2 else 1):
            self._produce(topic, {"id": key}, {"schema": {}, "payload": event})

    def _pieces(self) -> None:
        if self._stock and self._random.random() < 0.4:
            row = self._stock.pop(self._random.randrange(len(self._stock)))
            event = {"op": "d", "before": row, "after": None}
        else:
            row = {"item": self._random.choice("abc"), "pieces": self._random.randrange(9)}
            self._stock.append(row)
            event = {"op": "c", "before": None, "after": row}
        self._produce("stock", None, event)

    def _click(self) -> None:
        value = self._random.choice([b"", b"click", "\u00e9t\u00e9".encode(), b"\xff", None])
        who = self._random.choice([b"ann", b"bob", None])
        self._producer.produce(f"{self._prefix}_clicks", value, who)

    def _price(self) -> None:
        item, day = self._random.choice("abc"), self._random.randint(1, 31)
        line = f"{item};{day:02}.02.2026;{self._random.randrange(999)}.5"
        self._producer.produce(f"{self._prefix}_prices", line.encode())

    def _visit(self) -> None:
        """By an older and a newer schema, and by one that nobody knows."""
        number = self._random.choice([1, 2, 2, 3])
        visit = {"who": "ann", "stay": {"seconds": self._random.randrange(99)}, "page": "home"}
        if self._random.random() < 0.3:
            visit.update(stay=None, page=None)
        content = encoded(SCHEMAS.get(number, "null"), visit)
        self._producer.produce(f"{self._prefix}_visits", framed(number, content))


def create_topics(bootstrap: str, prefix: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(f"{prefix}_{name}", 2 if name != "stock" else 1, 1) for name in TOPICS]
    for future in admin.create_topics(topics).values():
        future.result(timeout=30)


@pytest.fixture
def registry() -> Iterator[Registry]:
    with running_registry() as running:
        yield running


def test_views_over_every_kind_of_source(
    tmp_path: Path, spark_server, broker, database: str, registry: Registry
) -> None:
    project = tmp_path / "mixed"
    (project / "sql").mkdir(parents=True)
    (project / "spark-pipeline.yml").write_text(SPEC)
    for number, schema in SCHEMAS.items():
        registry.add(number, schema)
    with_registry = SQL.replace("%s_registry", registry.url)
    text = with_registry.replace("WITH", WITH.replace("%s", database)).replace("%s", database)
    (project / "sql" / "mixed.sql").write_text(text)
    create_topics(broker.bootstrap, database)
    settings = own_settings(spark_server, broker, tmp_path / "home")
    deploy(str(project), settings)
    traffic = Traffic(broker.bootstrap, database, seed=4711)
    bad: dict[str, int] = {}
    with Pipeline("mixed", settings) as pipeline:
        for count in (60, 25, 0):
            traffic.send(count)
            pipeline.plan(None, print)
            pipeline.run(print)
            pipeline.publish(print)
            checks = {check.view: check for check in verify("mixed", settings, print)}
            assert tuple(checks) == VIEWS
            assert all(check.equal for check in checks.values()), checks
            bad = dict(checks["names"].bad_records)
        assert pipeline.state().next_step > 6, "several steps in an interval"
    assert bad["customers"] > 0
    assert min(bad["clicks"], bad["prices"], bad["visits"]) > 0
    assert (bad["orders"], bad["stock"], bad["again"]) == (0, 0, 0)
    assert checks["round_trip"].rows_published == checks["spending"].rows_published > 5
