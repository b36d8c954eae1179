"""Records with keys and headers, and the two readings of them that the tests of formats compare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer
from kafka_builders import interval, read_every_way

from lockstep.adapters.verify_changes import reading_of
from lockstep.adapters.verify_decode import UndecodableError
from lockstep.adapters.verify_records import RawRecord
from lockstep.sql.circuit import SourceTable
from lockstep_engine.context import Context
from lockstep_engine.sources.decoded import Decoded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MILLISECONDS = 1_767_323_045_678
"""The timestamp of every record: 2026-01-02 03:04:05.678."""


@dataclass(frozen=True)
class Record:
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int = 0


@dataclass
class Topic:
    """A topic with the records that were sent to it, and where each of them lies."""

    bootstrap: str
    name: str
    records: list[RawRecord] = field(default_factory=list)

    def send(self, *records: Record) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        ends = Counter(raw.partition for raw in self.records)
        for record in records:
            producer.produce(
                self.name,
                record.value,
                record.key,
                partition=record.partition,
                timestamp=MILLISECONDS,
                headers=list(record.headers),
            )
            self.records.append(
                RawRecord(
                    record.partition,
                    ends[record.partition],
                    record.value,
                    record.key,
                    MILLISECONDS,
                    record.headers,
                    self.name,
                )
            )
            ends[record.partition] += 1
        assert producer.flush(30) == 0

    @property
    def ends(self) -> Mapping[int, int]:
        return Counter(raw.partition for raw in self.records)


def plain_rows(table: SourceTable, delta: DataFrame) -> Counter[tuple[Any, ...]]:
    """The rows of a delta with their weights, as plain Python values; instants as text of UTC."""
    names = [
        f"CAST(`{c.key}` AS TIMESTAMP_NTZ) AS `{c.key}`" if c.type == "TIMESTAMP" else f"`{c.key}`"
        for c in table.columns
    ]
    found: Counter[tuple[Any, ...]] = Counter()
    for row in delta.selectExpr(*names, "_weight").collect():
        found[tuple(map(_plain, row[:-1]))] += row["_weight"]
    return Counter({row: weight for row, weight in found.items() if weight})


def verified_rows(table: SourceTable, topic: Topic) -> tuple[Counter[tuple[Any, ...]], set[int]]:
    """The rows by verification, and the places of the records that it takes for bad ones."""
    reading = reading_of(table)
    rows: Counter[tuple[Any, ...]] = Counter()
    bad = set()
    for place, record in enumerate(topic.records):
        try:
            found = list(reading.rows(record, 0))
        except UndecodableError:
            bad.add(place)
            continue
        rows.update(tuple(map(_plain, row)) for row in found)
    rows.update(tuple(map(_plain, row)) for row in reading.rest())
    return rows, bad


def decode(
    spark: SparkSession, table: SourceTable, topic: Topic, steps: Sequence[Mapping[int, int]] = ()
) -> Decoded:
    wanted = tuple(column.key for column in table.columns)
    ends = [dict.fromkeys(topic.ends, 0), *(steps or [topic.ends])]
    return read_every_way(table, wanted, interval(topic.name, ends), Context(spark, 1000))


def check_same(spark: SparkSession, table: SourceTable, topic: Topic) -> dict[int, str]:
    """Compare the rows of both readings, and which records are bad; returns the reasons by place."""
    decoded = decode(spark, table, topic)
    places = {(raw.partition, raw.offset): place for place, raw in enumerate(topic.records)}
    errors = decoded.errors.collect()
    reasons = {places[row["partition"], row["offset"]]: row["reason"] for row in errors}
    rows, bad = verified_rows(table, topic)
    assert set(reasons) == bad
    assert plain_rows(table, decoded.delta) == rows
    for row in errors:
        sent = topic.records[places[row["partition"], row["offset"]]]
        assert (_plain(row["key"]), _plain(row["value"])) == (sent.key, sent.value)
    return reasons


def _plain(value: Any) -> Any:
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list):
        return tuple(map(_plain, value))
    if hasattr(value, "asDict"):
        return _plain(value.asDict())
    if isinstance(value, dict):
        return tuple((name, _plain(inner)) for name, inner in value.items())
    if isinstance(value, datetime):
        return value.isoformat()
    return value
