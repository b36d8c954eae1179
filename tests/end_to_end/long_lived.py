"""Pipelines that live through kills: how their input is made, and whether their output is right.

`Totals` joins two topics and sends a changelog. `Stock` joins a topic with a followed Iceberg table
that is merged into, and sends upserts from two shards. Both have a view on a view that retracts.
"""

from __future__ import annotations

import json
import random
import re
import shutil
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar, cast

import reader
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from lockstep.adapters.catalogs import catalog_settings
from lockstep.adapters.settings import Settings
from lockstep.control.model import Division, TableSlice, TopicSlice
from lockstep.deploying import deploy
from lockstep.runtime import Pipeline, recorded

__all__ = ["LongLived", "Stock", "Totals"]

HERE = Path(__file__).parent
TOPIC_OPTION = re.compile(r"('(?:subscribe|topic|steps_topic)' = ')(\w+)'")

States = Mapping[int, Counter[reader.Row]]


class LongLived(ABC):
    """A deployed project with its own topics, and all that its steps are known to have read.

    What is sent is deterministic under the seed. `prefix` makes the topics' names its own.
    """

    name: ClassVar[str]
    topics: ClassVar[Mapping[str, int]]
    """Topic -> partitions."""

    def __init__(self, settings: Settings, prefix: str, seed: int) -> None:
        self.settings = settings
        self._prefix = prefix
        self._random = random.Random(seed)
        self._producer = Producer(
            {"bootstrap.servers": settings.kafka, "enable.idempotence": True, "log_level": 0}
        )
        self.catalog = catalog_settings("lake", self.name, {}, settings)
        self.sent = 0
        """How many records were handed over to be sent."""
        self._divisions: dict[int, Division] = {}
        self._states: list[dict[str, Counter[reader.Row]]] = []

    def deploy(self, folder: Path, rows_per_step: int = 40, **configuration: str) -> None:
        """Make topics and tables, and deploy a copy of the project on these topics, with settings of
        its own: `publish="step"` is `lockstep.publish: step`."""
        shutil.copytree(HERE / self.name, folder)
        spec = folder / "spark-pipeline.yml"
        text = spec.read_text("utf-8").replace('"40"', f'"{rows_per_step}"')
        own = [f"  lockstep.{key}: {value}\n" for key, value in configuration.items()]
        spec.write_text(text + "".join(own), "utf-8")
        for file in folder.rglob("*.sql"):
            text, found = TOPIC_OPTION.subn(rf"\g<1>{self._prefix}\g<2>'", file.read_text("utf-8"))
            assert found == len(self.topics), "each source and sink of the project names its topic"
            file.write_text(text, "utf-8")
        admin = AdminClient({"bootstrap.servers": self.settings.kafka})
        new = [NewTopic(self._prefix + name, count, 1) for name, count in self.topics.items()]
        for future in admin.create_topics(new).values():
            future.result(timeout=30)
        deploy(str(folder), self.settings)

    # ── input ───────────────────────────────────────────────────────────────────────────────────

    def change(self, rows: int) -> None:
        """Change what the project reads; servers have to run."""
        self.send(rows)
        self.flush()

    @abstractmethod
    def send(self, rows: int) -> None:
        """Send about so many new records, once the broker is there; `flush` waits for it."""

    def flush(self) -> None:
        """Wait until the broker has all that was sent."""
        assert self._producer.flush(60) == 0, "the broker takes what is sent"

    def _send(self, topic: str, value: Mapping[str, object]) -> None:
        self._producer.produce(self._prefix + topic, json.dumps(value).encode())
        self.sent += 1

    # ── output ──────────────────────────────────────────────────────────────────────────────────

    @property
    def is_settled(self) -> bool:
        """Whether all that is recorded is published."""
        state = recorded(self.name, self.settings)
        at_end = all(sink.published_step == state.version.last_step for sink in state.sinks)
        return state.pending is None and at_end

    def check(self, sent: int) -> reader.Findings:
        """Everything that was ever published, against what the recorded divisions give each step.

        `sent` is how many records the steps have to hold at least. The pipeline has to be settled.
        Call it often enough: maintenance trims old divisions.
        """
        with Pipeline(self.name, self.settings) as pipeline:
            last = pipeline.state().version.last_step
            self._remember(pipeline.divisions(pipeline.state().oldest_step, last))
        divisions = [self._divisions[step] for step in sorted(self._divisions)]
        reader.check_positions(divisions)
        assert len(divisions) == last + 1, "each step is recorded"
        self._states += self._states_after(divisions, len(self._states))
        findings = reader.Findings()
        read = sum(s.records for d in divisions for s in d.slices if isinstance(s, TopicSlice))
        findings.lost += [(last, ("input",))] * max(0, sent - read)
        for view in self._states[last]:
            states = {step: views[view] for step, views in enumerate(self._states)}
            deltas = reader.expected_deltas(states)
            outbox = reader.outbox_by_step(reader.read_table(self.catalog, f"{view}_changes"))
            findings.add(reader.compare(outbox, deltas), f"{view}_changes")
            rows = Counter(tuple(r.values()) for r in reader.read_table(self.catalog, view))
            findings.add(reader.compare({last: rows}, {last: states[last]}), view)
            self._check_topic(view, deltas, findings)
        return findings

    def _remember(self, divisions: Iterable[Division]) -> None:
        """A step's input never changes once it is recorded."""
        for division in divisions:
            known = self._divisions.setdefault(division.step, division)
            assert known == division, f"step {division.step} was {known}, now it is {division}"

    def _inputs(
        self, topic: str, divisions: Iterable[Division]
    ) -> Mapping[int, list[dict[str, object]]]:
        records = reader.read_topic(self.settings.kafka, self._prefix + topic)
        return reader.inputs_by_step(records, divisions, topic)

    @abstractmethod
    def _states_after(
        self, divisions: list[Division], known: int
    ) -> list[dict[str, Counter[reader.Row]]]:
        """The rows of each view after each step but the first `known` ones."""

    def _check_steps(self, topic: str, sent: list[object], findings: reader.Findings) -> None:
        """The side topic says each step once, in order, with its messages and its input."""
        said = reader.read_topic(self.settings.kafka, self._prefix + topic)
        wanted = reader.expected_steps(sent, self._divisions.values())
        findings.add(reader.compare(reader.steps_said(said), wanted), topic)
        findings.add(reader.disorder(said), topic)

    @abstractmethod
    def _check_topic(self, view: str, deltas: States, findings: reader.Findings) -> None:
        """Compare the sink's topic, where the view has one."""


class Totals(LongLived):
    """Orders and customers, both topics; a sink of format changelog."""

    name = "totals"
    topics: ClassVar[Mapping[str, int]] = {
        "orders": 2,
        "customers": 1,
        "totals_out": 1,
        "totals_steps": 1,
    }
    countries = ("NL", "DE", "FR")

    def __init__(self, settings: Settings, prefix: str, seed: int) -> None:
        super().__init__(settings, prefix, seed)
        self._orders = self._customers = 0

    def send(self, rows: int) -> None:
        for _ in range(1 + rows // 20):
            country = self._random.choice(self.countries)
            self._send("customers", {"customer": f"c{self._customers}", "country": country})
            self._customers += 1
        for _ in range(rows):
            customer = f"c{self._random.randrange(self._customers + 2)}"
            amount = self._random.randrange(1000)
            self._send("orders", {"id": self._orders, "customer": customer, "amount": amount})
            self._orders += 1

    def _states_after(
        self, divisions: list[Division], known: int
    ) -> list[dict[str, Counter[reader.Row]]]:
        orders = self._inputs("orders", divisions)
        customers = self._inputs("customers", divisions)
        states = []
        for step in range(known, len(divisions)):
            totals = reader.totals(_until(orders, step), _until(customers, step))
            states.append({"customer_totals": totals, "countries": reader.countries(totals)})
        return states

    def _check_topic(self, view: str, deltas: States, findings: reader.Findings) -> None:
        if view == "customer_totals":
            sent = reader.read_topic(self.settings.kafka, self._prefix + "totals_out")
            findings.add(reader.compare(reader.changelog_by_step(sent), deltas), "totals_out")
            findings.add(reader.disorder(sent), "totals_out")
            self._check_steps("totals_steps", sent, findings)


class Stock(LongLived):
    """Sales, a topic, and items, an Iceberg table; a sink of format upsert with two shards."""

    name = "stock"
    topics: ClassVar[Mapping[str, int]] = {"sales": 2, "stock_out": 3, "stock_steps": 1}
    ITEMS = 30
    MERGE = """
        MERGE INTO lake.shop.items t
        USING (SELECT concat('i', id) AS item, concat('k', id % {groups}) AS category,
               id % {prices} AS price FROM range({first}, {last})) s
        ON t.item = s.item
        WHEN MATCHED AND s.price = 1 THEN DELETE
        WHEN MATCHED THEN UPDATE SET category = s.category, price = s.price
        WHEN NOT MATCHED THEN INSERT *"""

    def __init__(self, settings: Settings, prefix: str, seed: int) -> None:
        super().__init__(settings, prefix, seed)
        self._sales = 0
        self._items: dict[int | None, list[dict[str, object]]] = {None: []}

    def deploy(self, folder: Path, rows_per_step: int = 40, **configuration: str) -> None:
        self._sql(
            "CREATE NAMESPACE IF NOT EXISTS lake.shop",
            "CREATE TABLE lake.shop.items (item STRING, category STRING, price BIGINT) USING iceberg "
            "TBLPROPERTIES ('format-version' = '2', 'write.merge.mode' = 'merge-on-read')",
        )
        super().deploy(folder, rows_per_step, **configuration)

    def change(self, rows: int) -> None:
        first = self._random.randrange(self.ITEMS)
        self._sql(
            self.MERGE.format(
                groups=self._random.randrange(3, 6),
                prices=self._random.randrange(5, 50),
                first=first,
                last=first + 8,
            )
        )
        super().change(rows)

    def send(self, rows: int) -> None:
        for _ in range(rows):
            item, pieces = f"i{self._random.randrange(self.ITEMS)}", self._random.randrange(9)
            self._send("sales", {"id": self._sales, "item": item, "pieces": pieces})
            self._sales += 1

    def _sql(self, *statements: str) -> None:
        from pyspark.sql import SparkSession

        from lockstep_engine.tables import configure_catalog

        spark = SparkSession.builder.remote(self.settings.spark_remote).create()
        try:
            configure_catalog(spark, self.catalog)
            for statement in statements:
                spark.sql(statement)
        finally:
            spark.stop()

    def _states_after(
        self, divisions: list[Division], known: int
    ) -> list[dict[str, Counter[reader.Row]]]:
        sales = self._inputs("sales", divisions)
        states = []
        for step in range(known, len(divisions)):
            view = reader.item_sales(_until(sales, step), self._items_at(divisions[step]))
            states.append({"item_sales": view, "categories": reader.categories(view)})
        return states

    def _items_at(self, division: Division) -> list[dict[str, object]]:
        slices = {slice_.source: slice_ for slice_ in division.slices}
        end = cast(TableSlice, slices["items"]).end
        if end not in self._items:
            shop = catalog_settings("lake", "shop", {}, self.settings)
            self._items[end] = reader.read_table(shop, "items", end)
        return self._items[end]

    def _check_topic(self, view: str, deltas: States, findings: reader.Findings) -> None:
        if view == "item_sales":
            sent = reader.read_topic(self.settings.kafka, self._prefix + "stock_out")
            expected = reader.expected_upserts(deltas)
            findings.add(reader.compare(reader.upserts_by_step(sent), expected), "stock_out")
            findings.add(reader.disorder(sent), "stock_out")
            self._check_steps("stock_steps", sent, findings)


def _until(rows: Mapping[int, list[dict[str, object]]], step: int) -> list[dict[str, object]]:
    return [row for before in range(step + 1) for row in rows[before]]
