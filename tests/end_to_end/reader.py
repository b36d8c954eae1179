"""An independent reader: what was published, against what the recorded divisions say it should be.

Shares no code with the engine: Kafka through kafka-python with read_committed, Iceberg through
PyIceberg, the query in plain Python over Z-sets held in counters.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kafka import KafkaConsumer, TopicPartition
from pyiceberg.catalog import load_catalog

from lockstep.control.job import CatalogSettings
from lockstep.control.model import Division

Row = tuple[object, ...]


@dataclass
class Findings:
    """Differences between what a sink holds and what it should hold, step by step."""

    lost: list[tuple[int, Row]] = field(default_factory=list)
    duplicated: list[tuple[int, Row]] = field(default_factory=list)
    unexpected: list[tuple[int, Row]] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not (self.lost or self.duplicated or self.unexpected)


def read_topic(bootstrap: str, topic: str) -> list[object]:
    """All committed records of a topic, in order within each partition."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    try:
        partitions = [TopicPartition(topic, p) for p in consumer.partitions_for_topic(topic) or ()]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends = _decided_ends(consumer, bootstrap, partitions)
        records: list[object] = []
        while any(consumer.position(p) < ends[p] for p in partitions):
            for batch in consumer.poll(timeout_ms=1000).values():
                records.extend(batch)
        return records
    finally:
        consumer.close()


def _decided_ends(
    consumer: KafkaConsumer, bootstrap: str, partitions: list[TopicPartition]
) -> Mapping[TopicPartition, int]:
    """The ends once every transaction is decided: a commit returns before its marker is written, and a
    reader that asks in between sees an earlier end."""
    everything = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    try:
        deadline = time.monotonic() + 30
        while (ends := consumer.end_offsets(partitions)) != everything.end_offsets(partitions):
            assert time.monotonic() < deadline, "a transaction stays undecided"
            time.sleep(0.05)
        return ends
    finally:
        everything.close()


def inputs_by_step(
    records: Iterable[object], divisions: Iterable[Division], source: str
) -> Mapping[int, list[dict[str, object]]]:
    """The JSON objects of a source, by the step that the division gives them."""
    by_place = {(r.partition, r.offset): json.loads(r.value) for r in records}  # type: ignore[attr-defined]
    result: dict[int, list[dict[str, object]]] = {}
    for division in divisions:
        rows = result.setdefault(division.step, [])
        for slice_ in division.slices:
            if slice_.source != source:
                continue
            for span in slice_.ranges:
                rows.extend(
                    by_place[span.partition, offset]
                    for offset in range(span.start, span.end)
                    if (span.partition, offset) in by_place
                )
    return result


def totals(
    orders: Iterable[Mapping[str, object]], customers: Iterable[Mapping[str, object]]
) -> Counter[Row]:
    """The view customer_totals over all input so far."""
    countries: dict[object, list[object]] = {}
    for customer in customers:
        countries.setdefault(customer["customer"], []).append(customer["country"])
    groups: dict[tuple[object, object], list[int]] = {}
    for order in orders:
        for country in countries.get(order["customer"], []):
            groups.setdefault((order["customer"], country), []).append(int(order["amount"]))  # type: ignore[call-overload]
    return Counter(
        (*key, len(amounts), sum(amounts), max(amounts)) for key, amounts in groups.items()
    )


def countries(view: Counter[Row]) -> Counter[Row]:
    """The view countries over the view customer_totals."""
    groups: dict[object, list[int]] = {}
    for customer, country, _, total, _ in view.elements():
        groups.setdefault(country, []).append(int(total))  # type: ignore[call-overload]
        del customer
    return Counter((country, len(t), max(t)) for country, t in groups.items())


def expected_deltas(states: Mapping[int, Counter[Row]]) -> Mapping[int, Counter[Row]]:
    """Per step, what changes: a Z-set as a counter whose values may be negative."""
    deltas: dict[int, Counter[Row]] = {}
    before: Counter[Row] = Counter()
    for step in sorted(states):
        delta: Counter[Row] = Counter(states[step])
        delta.subtract(before)
        deltas[step] = Counter({row: weight for row, weight in delta.items() if weight})
        before = states[step]
    return deltas


def compare(found: Mapping[int, Counter[Row]], expected: Mapping[int, Counter[Row]]) -> Findings:
    """Each step's output, once: nothing lost, nothing twice, nothing else."""
    findings = Findings()
    for step in sorted(set(found) | set(expected)):
        got, want = found.get(step, Counter()), expected.get(step, Counter())
        for row in set(got) | set(want):
            if got[row] == want[row]:
                continue
            if row not in want:
                findings.unexpected.append((step, row))
            elif abs(got[row]) < abs(want[row]):
                findings.lost.append((step, row))
            else:
                findings.duplicated.append((step, row))
    return findings


def read_table(catalog: CatalogSettings, table: str) -> list[dict[str, object]]:
    """All rows of an Iceberg table on main."""
    loaded = load_catalog(catalog.name, **catalog.pyiceberg).load_table((catalog.database, table))
    return loaded.scan().to_arrow().to_pylist()  # type: ignore[no-any-return]
