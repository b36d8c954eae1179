#!/usr/bin/env python3
"""Writes the Nexmark auction streams into Kafka, the same ones every time.

    python generate.py --events 2000000 --bootstrap 127.0.0.1:9092

Of every 50 events the first is a person, the next three are auctions, the other 46 bids. Event i
happens at START + i / rate. What an event says is drawn as the benchmark defines it:

- three sellers in four, and three bidders in four, are "hot": one id for each hundred people;
- half of the bids go to the hot auction, one for each hundred auctions, the others to any of the
  last hundred auctions, now and then to one that is not open yet;
- a price is 100 x 10^u for u even in [0, 6); five categories from 10; an auction lasts up to
  twice the time in which a hundred auctions open;
- half of the bids come through one of four channels, the others through one of ten thousand.

Draws are made for whole blocks of events at once, from a generator seeded with (seed, block): a
longer run begins with the shorter one, and a block can be made without the ones before it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from numpy.random import Generator
from numpy.typing import NDArray

Report = Callable[[str], None]
Numbers = NDArray[np.int64]

START = np.datetime64("2025-07-01T00:00:00.000", "ms")
CYCLE = 50
AUCTIONS_IN_CYCLE = 3
CYCLES_IN_BLOCK = 1000

FIRST_ID = 1000
FIRST_CATEGORY = 10
CATEGORIES = 5
HOT_EVERY = 100
OPEN_AUCTIONS = 100
ACTIVE_PEOPLE = 1000
AHEAD = 10
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
CHANNELS = 10_000

STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
FIRST_NAMES = (
    "Peter",
    "Paul",
    "Luke",
    "John",
    "Saul",
    "Vicky",
    "Kate",
    "Julie",
    "Sarah",
    "Deiter",
    "Walter",
)
LAST_NAMES = (
    "Shultz",
    "Abrams",
    "Spencer",
    "White",
    "Bartels",
    "Walton",
    "Smith",
    "Jones",
    "Noris",
)
TEXT_LENGTH = 1 << 16

PERSON = (
    '{"id":%d,"name":"%s","emailAddress":"%s","creditCard":"%s","city":"%s","state":"%s",'
    '"dateTime":"%s","extra":"%s"}'
)
AUCTION = (
    '{"id":%d,"itemName":"%s","description":"%s","initialBid":%d,"reserve":%d,"dateTime":"%s",'
    '"expires":"%s","seller":%d,"category":%d,"extra":"%s"}'
)
BID = '{"auction":%d,"bidder":%d,"price":%d,"channel":"%s","url":"%s","dateTime":"%s","extra":"%s"}'


@dataclass(frozen=True)
class Block:
    """The records of up to 50,000 consecutive events: JSON texts by kind, in event order."""

    person: list[str]
    auction: list[str]
    bid: list[str]


def random_text() -> str:
    """Lower-case letters to cut names and padding from; the same in every run."""
    letters = np.random.default_rng(7).integers(97, 123, TEXT_LENGTH, dtype=np.uint8)
    return letters.tobytes().decode()


TEXT = random_text()


def times(milliseconds: Numbers) -> list[str]:
    """Milliseconds since START as ISO text in UTC."""
    stamps = START + milliseconds.astype("timedelta64[ms]")
    return [f"{stamp}Z" for stamp in np.datetime_as_string(stamps, unit="ms").tolist()]


def texts(draw: Generator, lengths: Numbers) -> list[str]:
    """One piece of random text of each length."""
    starts = draw.integers(0, TEXT_LENGTH // 2, len(lengths)).tolist()
    return [
        TEXT[start : start + size] for start, size in zip(starts, lengths.tolist(), strict=True)
    ]


def words(draw: Generator, count: int, shortest: int, longest: int) -> list[str]:
    return texts(draw, draw.integers(shortest, longest, count))


def padding(draw: Generator, count: int, room: int) -> list[str]:
    """The `extra` field: about `room` letters, give or take a fifth."""
    return texts(draw, draw.integers(room * 8 // 10, room * 12 // 10 + 1, count))


def choices(draw: Generator, count: int, options: tuple[str, ...]) -> list[str]:
    return [options[place] for place in draw.integers(0, len(options), count).tolist()]


def prices(draw: Generator, count: int) -> Numbers:
    return np.rint(100 * 10 ** (6 * draw.random(count))).astype(np.int64)


def some_person(draw: Generator, newest: Numbers) -> Numbers:
    """Ids of active people: one of the newest thousand, or of the ten to come next."""
    known = newest + 1
    active = np.minimum(known, ACTIVE_PEOPLE)
    person: Numbers = (
        known - active + (draw.random(len(newest)) * (active + AHEAD)).astype(np.int64)
    )
    return person


def hot_or(draw: Generator, hot_chances: int, hot: Numbers, other: Numbers) -> Numbers:
    """`hot` in all but one of `hot_chances` draws, else `other`."""
    chosen: Numbers = np.where(draw.integers(0, hot_chances, len(hot)) > 0, hot, other)
    return chosen


def make_people(draw: Generator, cycles: Numbers, rate: int) -> list[str]:
    count = len(cycles)
    when = times(cycles * CYCLE * 1000 // rate)
    digits = draw.integers(0, 10_000, (count, 4)).tolist()
    names = zip(choices(draw, count, FIRST_NAMES), choices(draw, count, LAST_NAMES), strict=True)
    mails = zip(words(draw, count, 3, 8), words(draw, count, 3, 6), strict=True)
    rows = zip(
        (cycles + FIRST_ID).tolist(),
        [f"{first} {last}" for first, last in names],
        [f"{user}@{host}.com" for user, host in mails],
        [" ".join(f"{part:04d}" for part in card) for card in digits],
        choices(draw, count, CITIES),
        choices(draw, count, STATES),
        when,
        padding(draw, count, 130),
        strict=True,
    )
    return [PERSON % row for row in rows]


def make_auctions(draw: Generator, cycles: Numbers, rate: int) -> list[str]:
    newest_person = np.repeat(cycles, AUCTIONS_IN_CYCLE)
    place = np.tile(np.arange(AUCTIONS_IN_CYCLE), len(cycles))
    count = len(newest_person)
    happens = (newest_person * CYCLE + 1 + place) * 1000 // rate
    hot_seller = newest_person // HOT_EVERY * HOT_EVERY
    seller = hot_or(draw, 4, hot_seller, some_person(draw, newest_person))
    first_bid = prices(draw, count)
    longest = max(2 * OPEN_AUCTIONS * CYCLE // AUCTIONS_IN_CYCLE * 1000 // rate, 1)
    rows = zip(
        (newest_person * AUCTIONS_IN_CYCLE + place + FIRST_ID).tolist(),
        words(draw, count, 3, 20),
        words(draw, count, 3, 100),
        first_bid.tolist(),
        (first_bid + prices(draw, count)).tolist(),
        times(happens),
        times(happens + 1 + draw.integers(0, longest, count)),
        (seller + FIRST_ID).tolist(),
        (FIRST_CATEGORY + draw.integers(0, CATEGORIES, count)).tolist(),
        padding(draw, count, 390),
        strict=True,
    )
    return [AUCTION % row for row in rows]


def channel_urls() -> tuple[tuple[str, str], ...]:
    """Name and address of every channel: the four hot ones, then ten thousand; nine in ten of the
    latter carry a channel id."""
    draw = np.random.default_rng(11)
    total = len(HOT_CHANNELS) + CHANNELS
    parts = [words(draw, total, 4, 5) for _ in range(3)]
    ids = draw.integers(0, 1 << 31, total).tolist()
    with_id = (draw.integers(0, 10, total) > 0).tolist()
    channels = []
    for number, folders in enumerate(zip(*parts, strict=True)):
        url = f"https://www.nexmark.com/{'/'.join(folders)}/item.htm?query=1"
        if number < len(HOT_CHANNELS):
            channels.append((HOT_CHANNELS[number], url))
        else:
            suffix = f"&channel_id={ids[number]}" if with_id[number] else ""
            channels.append((f"channel-{number - len(HOT_CHANNELS)}", url + suffix))
    return tuple(channels)


CHANNEL_URLS = channel_urls()


def make_bids(draw: Generator, cycles: Numbers, rate: int) -> list[str]:
    in_cycle = CYCLE - 1 - AUCTIONS_IN_CYCLE
    newest_person = np.repeat(cycles, in_cycle)
    place = np.tile(np.arange(in_cycle), len(cycles))
    count = len(newest_person)
    happens = (newest_person * CYCLE + 1 + AUCTIONS_IN_CYCLE + place) * 1000 // rate
    newest = newest_person * AUCTIONS_IN_CYCLE + AUCTIONS_IN_CYCLE - 1
    oldest = np.maximum(newest - OPEN_AUCTIONS, 0)
    span = newest - oldest + 1 + AHEAD
    any_auction = oldest + (draw.random(count) * span).astype(np.int64)
    auction = hot_or(draw, 2, newest // HOT_EVERY * HOT_EVERY, any_auction)
    hot_bidder = newest_person // HOT_EVERY * HOT_EVERY + 1
    bidder = hot_or(draw, 4, hot_bidder, some_person(draw, newest_person))
    channel = hot_or(
        draw,
        2,
        draw.integers(0, len(HOT_CHANNELS), count),
        len(HOT_CHANNELS) + draw.integers(0, CHANNELS, count),
    )
    chosen = [CHANNEL_URLS[number] for number in channel.tolist()]
    rows = zip(
        (auction + FIRST_ID).tolist(),
        (bidder + FIRST_ID).tolist(),
        prices(draw, count).tolist(),
        [name for name, _ in chosen],
        [url for _, url in chosen],
        times(happens),
        padding(draw, count, 68),
        strict=True,
    )
    return [BID % row for row in rows]


def make_block(number: int, seed: int, rate: int) -> Block:
    """All events of block `number`; `rate` is in events per second of event time."""
    draw = np.random.default_rng([seed, number])
    cycles = np.arange(CYCLES_IN_BLOCK, dtype=np.int64) + number * CYCLES_IN_BLOCK
    return Block(
        make_people(draw, cycles, rate),
        make_auctions(draw, cycles, rate),
        make_bids(draw, cycles, rate),
    )


def cut(block: Block, events: int) -> Block:
    """The first `events` events of a block."""
    cycles, rest = divmod(events, CYCLE)
    auctions = min(max(rest - 1, 0), AUCTIONS_IN_CYCLE)
    bids = max(rest - 1 - AUCTIONS_IN_CYCLE, 0)
    return Block(
        block.person[: cycles + min(rest, 1)],
        block.auction[: cycles * AUCTIONS_IN_CYCLE + auctions],
        block.bid[: cycles * (CYCLE - 1 - AUCTIONS_IN_CYCLE) + bids],
    )


def blocks(events: int, seed: int = 1, rate: int = 10_000) -> Iterator[Block]:
    """The first `events` events of the benchmark, block by block."""
    in_block = CYCLE * CYCLES_IN_BLOCK
    for number, start in enumerate(range(0, events, in_block)):
        yield cut(make_block(number, seed, rate), events - start)


def create_topics(bootstrap: str, names: list[str], partitions: int) -> None:
    """Create topics that are not there yet."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    for created in admin.create_topics([NewTopic(name, partitions, 1) for name in names]).values():
        try:
            created.result(timeout=30)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def generate(
    bootstrap: str,
    events: int,
    report: Report,
    prefix: str = "nexmark.",
    partitions: int = 4,
    seed: int = 1,
) -> dict[str, int]:
    """Write the events, each kind round robin over the partitions of its topic, so that every
    partition is in the order of time. Returns the records written, by topic."""
    kinds = ("person", "auction", "bid")
    create_topics(bootstrap, [prefix + kind for kind in kinds], partitions)
    written = {prefix + kind: 0 for kind in kinds}
    failures: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "log_level": 3,
            "linger.ms": 50,
            "batch.size": 1 << 20,
            "queue.buffering.max.messages": 200_000,
            "delivery.report.only.error": True,
        }
    )

    def delivered(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            failures.append(error)

    started = time.monotonic()
    for block in blocks(events, seed):
        for kind, rows in zip(kinds, (block.person, block.auction, block.bid), strict=True):
            topic = prefix + kind
            for number, row in enumerate(rows, written[topic]):
                while True:
                    try:
                        producer.produce(
                            topic, row, partition=number % partitions, on_delivery=delivered
                        )
                        break
                    except BufferError:
                        producer.poll(0.1)
            written[topic] += len(rows)
        producer.poll(0)
        report(f"nexmark: {sum(written.values()):,} of {events:,} events")
    left = producer.flush(60)
    if failures or left:
        raise KafkaException(failures[0] if failures else KafkaError(KafkaError._TIMED_OUT))
    report(f"nexmark: {events:,} events in {time.monotonic() - started:.1f} s")
    return written


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bootstrap", default="127.0.0.1:9092", help="the Kafka broker")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--prefix", default="nexmark.", help="what topic names begin with")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    generate(
        options.bootstrap,
        options.events,
        lambda line: print(line, flush=True),
        options.prefix,
        options.partitions,
        options.seed,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
