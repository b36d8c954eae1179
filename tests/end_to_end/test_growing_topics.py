"""A keyed topic that grows while a producer goes on: the last record of a key stays the last."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from lockstep.adapters.kafka import create_topics
from lockstep.control.kafka_options import KafkaConnection
from lockstep.doctor import diagnose
from lockstep.errors import SourceChanged
from lockstep.runtime import Pipeline, receipt, recorded

sys.path.insert(0, str(Path(__file__).parent))
from followed_shop import settings_of
from one_pipeline import OnePipeline

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

PRICES = """\
CREATE TABLE prices (item INT, price INT) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = '${{lockstep.kafka}}', subscribe = '{name}',
  'format' = 'upsert', 'key' = 'item');
CREATE MATERIALIZED VIEW listed AS SELECT item, price FROM prices;
"""
# Each is in partition 2 or 3 of 4, and was in 0 or 1 of 2.
QUIET, BUSY = (2, 3, 6, 7), (10, 11)


@dataclass
class Prices(OnePipeline):
    """A topic of prices, sent to partition item % count, and a pipeline over it."""

    count: int = 2
    price: int = 0
    last: dict[int, int] = field(default_factory=dict)
    ends: Counter[int] = field(default_factory=Counter)
    lock: Any = field(default_factory=Lock)

    def send(self, *items: int) -> None:
        """A new price of each, by the count that there is."""
        with self.lock:
            producer = Producer({"bootstrap.servers": self.settings.kafka})
            for item in items:
                self.price += 1
                key, value = json.dumps({"item": item}), json.dumps({"price": self.price})
                partition = item % self.count
                producer.produce(self.name, value.encode(), key.encode(), partition)
                self.last[item] = self.price
                self.ends[partition] += 1
            assert producer.flush(30) == 0

    def grow(self, count: int) -> None:
        """Producers send by the new count once it is there."""
        with self.lock:
            admin = AdminClient({"bootstrap.servers": self.settings.kafka})
            for future in admin.create_partitions([NewPartitions(self.name, count)]).values():
                future.result(timeout=30)
            deadline = time.monotonic() + 30
            while (
                len(admin.list_topics(self.name, timeout=10).topics[self.name].partitions) < count
            ):
                assert time.monotonic() < deadline
                time.sleep(0.1)
            self.count = count

    @contextmanager
    def goes_on(self) -> Iterator[None]:
        """A producer sends the busy items' prices meanwhile."""
        is_over = Event()

        def send() -> None:
            while not is_over.wait(0.2):
                self.send(*BUSY)

        producer = Thread(target=send)
        producer.start()
        try:
            yield
        finally:
            is_over.set()
            producer.join()

    def advance(self) -> None:
        """What there is now, and what follows at once: a producer may go on."""
        behind = True
        with Pipeline(self.name, self.settings) as pipeline:
            while behind:
                behind = pipeline.plan(None, self.said.append).behind
                pipeline.run(self.said.append)
                pipeline.publish(self.said.append)

    def step(self, partition: int, offset: int) -> int:
        """In which step a record is."""
        [found] = receipt(self.name, self.name, partition, offset, self.settings)
        assert found.step is not None
        return found.step

    def check(self) -> None:
        expected = Counter((item, price) for item, price in self.last.items())
        assert self.view("listed") == expected
        assert self.is_right()


@pytest.fixture
def prices(spark: Any, spark_server: Any, broker: Any, database: str, tmp_path: Path) -> Prices:
    settings = settings_of(spark_server, tmp_path / "home", broker)
    create_topics(KafkaConnection(broker.bootstrap), {database: 2})
    made = Prices(spark, settings, database, tmp_path / "project")
    made.deploy_sql(PRICES.format(name=database), rows_per_step=8)
    return made


def test_the_last_price_stays_the_last_while_the_topic_grows(prices: Prices) -> None:
    """The quiet items' last records are the first of the new partitions, and the records that these
    replace the last of the old ones: read side by side, the older would come later."""
    prices.send(*QUIET, *BUSY)
    prices.advance()
    prices.check()
    with prices.goes_on():
        prices.send(*BUSY * 10, *QUIET)
        prices.grow(4)
        before = dict(prices.ends)
        prices.send(*QUIET)
        prices.send(*BUSY * 10)
        prices.advance()
    prices.advance()
    prices.check()
    told = [line for line in prices.said if "has grown from 2 to 4 partitions" in line]
    assert told
    assert prices.step(0, before[0] - 1) < prices.step(2, 0)
    assert prices.step(1, before[1] - 1) < prices.step(3, 0)
    assert recorded(prices.name, prices.settings).first_counts == {"prices": 2}

    prices.grow(6)
    steps = recorded(prices.name, prices.settings).next_step
    with pytest.raises(
        SourceChanged, match="from 4 to 6 partitions, which is no multiple"
    ) as refused:
        prices.advance()
    assert "make it 8 partitions" in refused.value.next_step
    assert recorded(prices.name, prices.settings).next_step == steps
    doctored = [str(finding) for finding in diagnose(prices.name, prices.settings)]
    assert any("from 4 to 6 partitions, which is no multiple" in one for one in doctored), doctored
    prices.grow(8)
    prices.send(*QUIET)
    prices.advance()
    prices.check()
