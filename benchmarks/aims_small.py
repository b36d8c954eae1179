"""Aim: a warm interval of a small change takes a second.

The pipeline is q4 of Nexmark over Kafka: a join, the greatest price of each auction, an average by
category. All events are there before the first interval; each takes as many records, of both topics in
proportion, in six steps. Each size of a change has a pipeline of its own over the same records.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice, tee
from operator import attrgetter

from aims_bench import Aim, Bench, Driven, Interval, figures, median, running, say

from lockstep.cli.bench import EXAMPLE, QUERIES, load_generator

__all__ = ["SIZE", "Feed", "add_options", "deploy_q4", "generate", "limits", "measure"]

QUERY = "q4"
PREFIX = "aims."
STEPS = 6
"""Of an interval: those of ten seconds in a minute."""
SIZE = 10_000
SECONDS = 1.0
IN_CYCLE = {"auction": 3, "bid": 46}
"""Of fifty events; the fiftieth is a person, which q4 does not read."""
EVENTS_OF_FIFTY = sum(IN_CYCLE.values())


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", default="100,1000,100000,300000", help="others, for the plot")
    parser.add_argument("--intervals", type=int, default=15, help=f"of {SIZE:,} records")
    parser.add_argument("--sized", type=int, default=5, help="intervals of each other size")
    parser.add_argument("--warm-ups", type=int, default=15, help="intervals before them")


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Aim]]:
    """The size that counts first, then the others."""
    counts = {SIZE: options.intervals}
    counts |= dict.fromkeys(map(int, filter(None, options.sizes.split(","))), options.sized)
    warm_ups = {size: options.warm_ups if size <= SIZE else 2 for size in counts}
    with running() as bench:
        records = max(size * (counts[size] + warm_ups[size]) for size in counts)
        generate(bench, records * 50 // EVENTS_OF_FIFTY + 1000)
        found = {
            size: _intervals(bench, size, warm_ups[size], count) for size, count in counts.items()
        }
    yield "small interval", _aim(found)


def generate(bench: Bench, events: int) -> None:
    """Have the first events in Kafka."""
    load_generator(EXAMPLE).generate(bench.settings.kafka, events, lambda _: None, PREFIX)
    say(f"{events:,} events are in Kafka")


class Feed:
    """Topics for q4, and their records, so many at a time, in the order of events."""

    def __init__(self, bench: Bench) -> None:
        self._topics = {kind: bench.topic(PREFIX + kind, 4) for kind in QUERIES[QUERY]}
        blocks = tee(load_generator(EXAMPLE).blocks(1 << 40), len(self._topics))
        # Not a generator of expressions: it would look up its kind when it is asked for rows.
        self._rows = {
            kind: enumerate(chain.from_iterable(map(attrgetter(kind), one)))
            for kind, one in zip(self._topics, blocks, strict=True)
        }

    def send(self, records: int) -> None:
        """Auctions and bids of as many events."""
        cycles = records // EVENTS_OF_FIFTY
        for kind, topic in self._topics.items():
            topic.send(islice(self._rows[kind], cycles * IN_CYCLE[kind]))


def deploy_q4(bench: Bench, name: str, **configuration: str | int) -> Driven:
    """q4 as the example has it."""
    folder = EXAMPLE / "transformations"
    texts = [(folder / f"{one}.sql").read_text("utf-8") for one in (*QUERIES[QUERY], QUERY)]
    sql = "\n".join(texts).replace("${nexmark.prefix}", PREFIX)
    return bench.deploy(name, sql, **configuration)


def limits(size: int) -> Mapping[str, int]:
    """So many records an interval, in six steps."""
    step = -(-size // STEPS)
    return {"rows_per_step": step, "rows_per_interval": step * STEPS}


def _intervals(bench: Bench, size: int, warm_ups: int, count: int) -> Sequence[Interval]:
    """Those that count, and the view checked after them."""
    driven = deploy_q4(bench, f"q4_{size}", **limits(size))
    found = [driven.advance() for _ in range(warm_ups + count)][warm_ups:]
    driven.check()
    say(f"{size:,} records: {median(one.seconds for one in found):.2f} s, equal")
    return found


def _aim(found: Mapping[int, Sequence[Interval]]) -> Aim:
    middle = median(one.seconds for one in found[SIZE])
    return Aim(
        target=f"{SECONDS:.1f} s for {SIZE:,} records",
        measured=f"{middle:.2f} s, median of {len(found[SIZE])}",
        holds=middle <= SECONDS,
        scale="full",
        series={str(size): figures(ones) for size, ones in sorted(found.items())},
    )
