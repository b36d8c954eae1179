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
from lockstep.control.model import Division, TableSlice, TopicSlice

Row = tuple[object, ...]


@dataclass
class Findings:
    """Differences between what a sink holds and what it should hold, step by step."""

    lost: list[tuple[int, Row]] = field(default_factory=list)
    duplicated: list[tuple[int, Row]] = field(default_factory=list)
    unexpected: list[tuple[int, Row]] = field(default_factory=list)
    out_of_order: list[tuple[int, Row]] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not (self.lost or self.duplicated or self.unexpected or self.out_of_order)

    def add(self, other: Findings, where: str) -> None:
        """Take over what was found elsewhere, each row with the name of the place."""
        for kind, found in vars(other).items():
            getattr(self, kind).extend((step, (where, *row)) for step, row in found)


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
            assert isinstance(slice_, TopicSlice), f"{source} is a topic"
            for span in slice_.ranges:
                rows.extend(
                    by_place[span.partition, offset]
                    for offset in range(span.start, span.end)
                    if (span.partition, offset) in by_place
                )
    return result


def check_positions(divisions: Iterable[Division]) -> None:
    """Steps have no gaps, and each source is read from its beginning, and on from exactly where the
    step before has left it."""
    reached: dict[tuple[object, ...], object] = {}
    for number, division in enumerate(divisions):
        assert division.step == number, f"step {number} is missing"
        for slice_ in division.slices:
            if isinstance(slice_, TableSlice):
                first, spans = None, {(slice_.source,): (slice_.start, slice_.end)}
            else:
                first = 0
                spans = {(slice_.source, r.partition): (r.start, r.end) for r in slice_.ranges}
            for place, (start, end) in spans.items():
                before = reached.setdefault(place, first)
                assert start == before, f"step {number}: {place} from {start}, not from {before}"
                reached[place] = end


def outbox_by_step(rows: Iterable[Mapping[str, object]]) -> dict[int, Counter[Row]]:
    """The changes that an outbox holds, as Z-sets."""
    result: dict[int, Counter[Row]] = {}
    for row in rows:
        values = tuple(v for k, v in row.items() if k not in ("_weight", "_step"))
        result.setdefault(int(row["_step"]), Counter())[values] += int(row["_weight"])  # type: ignore[call-overload]
    return result


def changelog_by_step(records: Iterable[object]) -> dict[int, Counter[Row]]:
    """The changes that the records of a sink of format changelog hold, as Z-sets."""
    result: dict[int, Counter[Row]] = {}
    for record in records:
        value = json.loads(record.value)  # type: ignore[attr-defined]
        weight = value.pop("_weight")
        result.setdefault(_step(record), Counter())[tuple(value.values())] += weight
    return result


def upserts_by_step(records: Iterable[object]) -> dict[int, Counter[Row]]:
    """The records of a sink of format upsert: key and row, a key alone where the row is gone."""
    result: dict[int, Counter[Row]] = {}
    for record in records:
        key = tuple(json.loads(record.key).values())  # type: ignore[attr-defined]
        value = record.value  # type: ignore[attr-defined]
        row = (*key, *json.loads(value).values()) if value is not None else key
        result.setdefault(_step(record), Counter())[row] += 1
    return result


def expected_upserts(deltas: Mapping[int, Counter[Row]]) -> Mapping[int, Counter[Row]]:
    """What a sink of format upsert sends for these changes; the key is the first column."""
    result: dict[int, Counter[Row]] = {}
    for step, delta in deltas.items():
        after = {row[0]: row for row, weight in delta.items() if weight > 0}
        result[step] = Counter(
            (key, *after[key]) if key in after else (key,) for key in {row[0] for row in delta}
        )
    return result


def disorder(records: Iterable[object]) -> Findings:
    """Records of a step after those of a later one, of the same shard in the same partition."""
    reached: dict[tuple[int, bytes], int] = {}
    findings = Findings()
    for record in records:
        place = (record.partition, dict(record.headers)["lockstep-sink"])  # type: ignore[attr-defined]
        step = _step(record)
        if step < reached.get(place, step):
            findings.out_of_order.append((step, (record.partition, record.offset)))  # type: ignore[attr-defined]
        reached[place] = max(step, reached.get(place, step))
    return findings


def steps_said(records: Iterable[object]) -> dict[int, Counter[Row]]:
    """What a sink's side topic says of each step: how many messages it has, and its input."""
    result: dict[int, Counter[Row]] = {}
    for record in records:
        said = json.loads(record.value)  # type: ignore[attr-defined]
        inputs = json.dumps(said["inputs"], sort_keys=True)
        result.setdefault(said["step"], Counter())[said["rows"], inputs] += 1
    return result


def expected_steps(
    sent: Iterable[object], divisions: Iterable[Division]
) -> Mapping[int, Counter[Row]]:
    """What it should say, of what the sink has sent."""
    messages = Counter(map(_step, sent))
    return {
        division.step: Counter({(messages[division.step], _inputs_text(division)): 1})
        for division in divisions
    }


def _inputs_text(division: Division) -> str:
    inputs: dict[str, object] = {}
    for slice_ in division.slices:
        if isinstance(slice_, TopicSlice):
            spans = {str(r.partition): [r.start, r.end] for r in slice_.ranges}
            inputs[slice_.source] = {
                "topic": slice_.topic,
                "topic_id": slice_.topic_id,
                "partitions": spans,
            }
        else:
            inputs[slice_.source] = {
                "table": slice_.table,
                "table_id": slice_.table_id,
                "start": slice_.start,
                "end": slice_.end,
            }
    return json.dumps(inputs, sort_keys=True)


def _step(record: object) -> int:
    return int(dict(record.headers)["lockstep-step"])  # type: ignore[attr-defined]


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
    return _best((country, total) for _, country, _, total, _ in view.elements())


def item_sales(
    sales: Iterable[Mapping[str, object]], items: Iterable[Mapping[str, object]]
) -> Counter[Row]:
    """The view item_sales over all sales so far and the items as they are."""
    known = {item["item"]: item for item in items}
    groups: dict[tuple[object, object], list[int]] = {}
    for sale in sales:
        if item := known.get(sale["item"]):
            revenue = int(sale["pieces"]) * int(item["price"])  # type: ignore[call-overload]
            groups.setdefault((item["item"], item["category"]), []).append(revenue)
    return Counter((*key, len(revenues), sum(revenues)) for key, revenues in groups.items())


def categories(view: Counter[Row]) -> Counter[Row]:
    """The view categories over the view item_sales."""
    return _best((category, revenue) for _, category, _, revenue in view.elements())


def _best(rows: Iterable[tuple[object, object]]) -> Counter[Row]:
    """Per group how many rows there are, and the largest value."""
    groups: dict[object, list[int]] = {}
    for group, value in rows:
        groups.setdefault(group, []).append(int(value))  # type: ignore[call-overload]
    return Counter((group, len(values), max(values)) for group, values in groups.items())


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


def read_table(
    catalog: CatalogSettings, table: str, snapshot_id: int | None = None
) -> list[dict[str, object]]:
    """All rows of an Iceberg table on main, or at a snapshot."""
    loaded = load_catalog(catalog.name, **catalog.pyiceberg).load_table((catalog.database, table))
    return loaded.scan(snapshot_id=snapshot_id).to_arrow().to_pylist()  # type: ignore[no-any-return]
