"""The project `totals`, traffic for it, and what the independent reader says of its outputs."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import sys
from collections import Counter
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from lockstep.adapters.settings import Settings
from lockstep.runtime import Pipeline

sys.path.insert(0, str(Path(__file__).parent))
import reader

HERE = Path(__file__).parent
COUNTRIES = ("NL", "DE", "FR")
TOPIC_OPTION = re.compile(r"('(?:subscribe|topic|steps_topic)' = ')(\w+)'")


def copy_project(target: Path, prefix: str) -> None:
    """The project `totals`, on topics whose names nothing else on the shared broker has."""
    shutil.copytree(HERE / "totals", target)
    for file in target.rglob("*.sql"):
        text, found = TOPIC_OPTION.subn(rf"\1{prefix}_\2'", file.read_text("utf-8"))
        assert found == 4, "each source and sink of the project names its topic"
        file.write_text(text, "utf-8")


def environment(home: Path, remote: str, bootstrap: str) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONFAULTHANDLER": "1",
        "LOCKSTEP_HOME": str(home),
        "LOCKSTEP_SPARK_REMOTE": remote,
        "LOCKSTEP_KAFKA": bootstrap,
        "LOCKSTEP_STORE_URL": f"sqlite:///{home}/control.db",
        "LOCKSTEP_CATALOG_URI": f"sqlite:///{home}/catalog.db",
        "LOCKSTEP_WAREHOUSE": f"file://{home}/warehouse",
    }


def create_topics(bootstrap: str, prefix: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    partitions = {"orders": 2, "customers": 1, "totals_out": 1, "totals_steps": 1}
    topics = [NewTopic(f"{prefix}_{name}", count, 1) for name, count in partitions.items()]
    for future in admin.create_topics(topics).values():
        future.result(timeout=30)


class Traffic:
    """Sends orders and customers; deterministic under its seed."""

    def __init__(self, bootstrap: str, prefix: str, seed: int) -> None:
        self._prefix = prefix
        self._producer = Producer({"bootstrap.servers": bootstrap})
        self._random = random.Random(seed)
        self._next_order = 0
        self._next_customer = 0

    def send(self, orders: int, customers: int) -> None:
        for _ in range(customers):
            value = {
                "customer": f"c{self._next_customer}",
                "country": self._random.choice(COUNTRIES),
            }
            self._next_customer += 1
            self._producer.produce(f"{self._prefix}_customers", json.dumps(value).encode())
        for _ in range(orders):
            value = {
                "id": self._next_order,
                "customer": f"c{self._random.randrange(self._next_customer + 2)}",
                "amount": self._random.randrange(1000),
            }
            self._next_order += 1
            self._producer.produce(f"{self._prefix}_orders", json.dumps(value).encode())
        self._producer.flush(30)


def outbox_by_step(rows: list[dict[str, object]]) -> dict[int, Counter[reader.Row]]:
    result: dict[int, Counter[reader.Row]] = {}
    for row in rows:
        values = tuple(v for k, v in row.items() if k not in ("_weight", "_step"))
        result.setdefault(int(row["_step"]), Counter())[values] += int(row["_weight"])  # type: ignore[call-overload]
    return result


def topic_by_step(records: list[object]) -> dict[int, Counter[reader.Row]]:
    result: dict[int, Counter[reader.Row]] = {}
    for record in records:
        headers = dict(record.headers)  # type: ignore[attr-defined]
        value = json.loads(record.value)  # type: ignore[attr-defined]
        weight = value.pop("_weight")
        value.pop("_step", None)
        step = int(headers["lockstep-step"])
        result.setdefault(step, Counter())[tuple(value.values())] += weight
    return result


def check(settings: Settings, bootstrap: str, prefix: str, sent_orders: int) -> None:
    """Everything that was published, against the input that the recorded divisions give each step."""
    with Pipeline("totals", settings) as pipeline:
        state = pipeline.state()
        divisions = pipeline.divisions(0, state.version.last_step)
        catalog = pipeline._opened().catalog
    assert [d.step for d in divisions] == list(range(state.next_step)), "steps have no gaps"
    orders = reader.inputs_by_step(
        reader.read_topic(bootstrap, f"{prefix}_orders"), divisions, "orders"
    )
    customers = reader.inputs_by_step(
        reader.read_topic(bootstrap, f"{prefix}_customers"), divisions, "customers"
    )
    assert sum(map(len, orders.values())) == sent_orders, "each order is in exactly one step"
    totals, countries = {}, {}
    seen_orders: list[dict[str, object]] = []
    seen_customers: list[dict[str, object]] = []
    for step in range(state.next_step):
        seen_orders += orders[step]
        seen_customers += customers[step]
        totals[step] = reader.totals(seen_orders, seen_customers)
        countries[step] = reader.countries(totals[step])
    last = state.version.last_step
    for view, states in (("customer_totals", totals), ("countries", countries)):
        expected = reader.expected_deltas(states)
        changes = outbox_by_step(reader.read_table(catalog, f"{view}_changes"))
        assert reader.compare(changes, expected).clean, reader.compare(changes, expected)
        rows = Counter(tuple(row.values()) for row in reader.read_table(catalog, view))
        assert rows == states[last], f"{view} is not what its input gives"
    sent = topic_by_step(reader.read_topic(bootstrap, f"{prefix}_totals_out"))
    findings = reader.compare(sent, reader.expected_deltas(totals))
    assert findings.clean, findings
