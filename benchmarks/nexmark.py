"""Lockstep beside what people use today: the Nexmark queries, one engine after the other, on one broker.

    python benchmarks/nexmark.py --events 2000000
    python benchmarks/nexmark.py --events 200000 --queries q0,q4 --engines lockstep,flink_sql
    python benchmarks/nexmark.py --engines spark_batch_decoded,lockstep_decoded --in-turn

Every engine reads the same backlog from its first record to its last. Each query is run three times with
no state: the first run is the cold one, of the other two the better counts. The peers write their result
to nothing; Lockstep plans, commits its state and publishes. Then each result is compared row by row:
Lockstep's with what DuckDB makes of the raw records, a peer's with that of Spark's batch query.

What was found goes to `results.json` as it comes, or to another file (`--results`): figures of other
sizes, or of other days, do not stand beside one another. What was not asked for stays there as it is.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import nexmark_aims
import nexmark_lockstep
import nexmark_peers
import nexmark_report
import results
from nexmark_data import write_events
from nexmark_rows import compared, read_rows
from peers.task import Answer, Task, first_line

from lockstep.adapters.jars import locked_jars
from lockstep.adapters.settings import Settings
from lockstep.cli.bench import (
    EXAMPLE,
    QUERIES,
    delete_topics,
    load_generator,
    workplace,
)
from lockstep.errors import LockstepError
from lockstep.threads import processors

REFERENCE = "spark_batch"
"""Its rows are those that the peers' are compared with, so it comes first."""
ENGINES = (
    REFERENCE,
    "structured_streaming",
    "flink_sql",
    "dbsp",
    "spark_batch_decoded",
    "lockstep_decoded",
    "lockstep",
)
ENGINE = "lockstep_engine"
OPERATORS = "lockstep_operators"
"""The names of what `lockstep_decoded` takes for its runs without writing, and its operators alone."""
SHORTEST = 0.001
"""The seconds that a stopwatch tells apart."""
OTHER_EACH_TIME = frozenset({"q12"})
"""Its rows depend on when a bid was processed: engines agree on how many there are in all."""


def say(line: str) -> None:
    """Progress, for people."""
    print(f"{datetime.now(UTC):%H:%M:%S} {line}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Place:
    """Where everything is: the data, and folders for what is made of it."""

    settings: Settings
    work: Path
    prefix: str
    records: Mapping[str, int]
    events: Path
    runs: int
    check: bool

    def records_of(self, query: str) -> int:
        """Of the topics that it reads."""
        return sum(self.records[self.prefix + table] for table in QUERIES[query])

    def rows(self, engine: str, query: str) -> Path:
        """The file for the rows of a result."""
        return self.work / f"{query}-{engine}.jsonl"

    def task(self, engine: str, query: str, namespace: str = "") -> Task:
        """What an engine is asked."""
        return Task(
            query,
            QUERIES[query],
            self.settings.kafka,
            self.prefix,
            namespace,
            self.runs,
            str(self.work / "runs" / engine / query),
            str(self.rows(engine, query)) if self.check else "",
        )


Found = tuple[Answer, str]
"""An answer, and how its rows were found to be; empty where nobody looked."""


@contextmanager
def opened(engine: str, place: Place, namespace: str) -> Iterator[Callable[[str], Found]]:
    """An engine that is asked for one query after the other; `namespace` has the decoded tables."""
    folder = place.work / "engines" / engine
    at = namespace if engine.endswith("_decoded") else ""
    if engine.startswith("lockstep"):
        yield lambda query: nexmark_lockstep.measure(
            place.task(engine, query, at), place.settings, place.work
        )
        return
    with ExitStack() as stack:
        match engine:
            case "structured_streaming":
                ask = stack.enter_context(nexmark_peers.structured_streaming(folder))
            case "flink_sql":
                ask = stack.enter_context(nexmark_peers.flink_sql(folder))
            case "dbsp":
                ask = stack.enter_context(nexmark_peers.dbsp(folder, place.events))
            case _:
                catalog = nexmark_lockstep.spark_catalog(place.settings)
                ask = stack.enter_context(nexmark_peers.spark_batch(folder, catalog))

        def found(query: str) -> Found:
            task = place.task(engine, query, at)
            answer = ask(task)
            shutil.rmtree(task.work, ignore_errors=True)
            return answer, verdict(place, engine, query) if answer.seconds else ""

        yield found


class Engine:
    """An engine that starts with its first query, and anew with the next after its process ended."""

    def __init__(self, name: str, place: Place, namespace: str) -> None:
        self.name = name
        self._place, self._namespace = place, namespace
        self._ask: Callable[[str], Found] | None = None
        self._stack = ExitStack()

    def ask(self, query: str) -> Found:
        """An answer, whatever happens to the engine meanwhile. Raises what keeps it from beginning."""
        if self._ask is None:
            there = opened(self.name, self._place, self._namespace)
            self._ask = self._stack.enter_context(there)
        try:
            return self._ask(query)
        except RuntimeError as error:
            say(str(error))
            self.close()
            return Answer(failed=first_line(error)), ""

    def close(self) -> None:
        """End its process."""
        self._ask = None
        self._stack.close()


def asked_of(
    engines: Sequence[Engine], queries: Sequence[str], is_in_turn: bool
) -> Iterator[tuple[Engine, str, Found]]:
    """What each engine finds of each query: one engine after the other, or, in turn, each query by all
    of them before the next query, so that the figures of a query are of the same minutes."""
    with ExitStack() as stack:
        for engine in engines:
            stack.callback(engine.close)
        if is_in_turn:
            for query in queries:
                for engine in engines:
                    yield engine, query, engine.ask(query)
            return
        for engine in engines:
            for query in queries:
                yield engine, query, engine.ask(query)
            engine.close()


def verdict(place: Place, engine: str, query: str) -> str:
    """How a peer's rows compare with those of the reference."""
    if not place.check:
        return ""
    if engine == REFERENCE:
        return "the reference"
    expected = place.rows(REFERENCE, query)
    found = place.rows(engine, query)
    if query in OTHER_EACH_TIME:
        same = bids_of(expected) == bids_of(found)
        return "equal sums" if same else "WRONG: another number of bids in all"
    answer = compared(read_rows(expected), read_rows(found))
    found.unlink()
    return answer


def bids_of(path: Path) -> int:
    """The sum of the second column."""
    with path.open(encoding="utf-8") as file:
        return sum(int(line.split(",")[1]) for line in file)


def reference_rows(place: Place, queries: Sequence[str]) -> None:
    """The rows that peers are compared with, where the reference itself is not asked for."""
    with nexmark_peers.spark_batch(place.work / "engines" / "reference", {}) as ask:
        for query in queries:
            ask(replace(place.task(REFERENCE, query), runs=0))


def record(engine: str, query: str, found: Found, counts: tuple[int, int], path: Path) -> None:
    """Into the results: events a second, or null, and beside them what is known of the runs. `counts`
    are those of the query's records and of all events."""
    answer, checked = found
    rate = _write(engine, query, found, counts, path)
    if engine == "lockstep_decoded":
        for part, seconds in ((ENGINE, answer.engine), (OPERATORS, answer.operators)):
            alone = replace(answer, seconds=seconds)
            if not seconds:
                alone = replace(alone, failed=answer.failed or "Spark has worked on it")
            _write(part, query, (alone, checked), counts, path)
    said = answer.refused or answer.failed or checked or "not checked"
    say(f"{query} {engine}: {'-' if rate is None else f'{rate:,} events/s'} ({said})")


def _write(
    engine: str, query: str, found: Found, counts: tuple[int, int], path: Path
) -> int | None:
    """Events a second, which are null where there is no good run."""
    answer, checked = found
    records, events = counts
    warm = min(answer.seconds[1:] or answer.seconds, default=None)
    is_good = warm is not None and not answer.failed and not checked.startswith("WRONG")
    rate = round(records / max(warm, SHORTEST)) if warm is not None and is_good else None
    entry = {
        "events": events,
        "records": records,
        "seconds": warm,
        "cold_seconds": answer.seconds[0] if answer.seconds else None,
        "checked": checked,
        "refused": answer.refused,
        "failed": answer.failed,
    }
    results.update(f"events_per_second/{query}/{engine}", rate, path)
    results.update(f"nexmark/queries/{query}/{engine}", entry, path)
    return rate


def versions() -> dict[str, str]:
    """Of all that is measured."""
    folder = Path(__file__).parent / "peers"
    flink = re.search(r"==(\S+)", (folder / "flink_sql" / "requirements.txt").read_text("utf-8"))
    crate = re.search(r'dbsp = "=(\S+)"', (folder / "dbsp" / "Cargo.toml").read_text("utf-8"))
    assert flink is not None, "the package of Flink is pinned"
    assert crate is not None, "the crate is pinned"
    (kafka,) = {jar.version for jar in locked_jars("broker") if jar.artifact == "kafka-server"}
    return {
        "lockstep": version("lockstep"),
        "spark": version("pyspark"),
        "flink": flink.group(1),
        "dbsp": crate.group(1),
        "kafka": kafka,
    }


def run(asked: argparse.Namespace, engines: Sequence[str], queries: Sequence[str]) -> list[str]:
    """Measure; what failed, or gave wrong rows, as 'engine query'."""
    events, check = asked.events, asked.check
    generator = load_generator(EXAMPLE)
    prefix = f"bench-{uuid.uuid4().hex[:8]}."
    wrong = []
    with workplace(Settings.load(), say) as (settings, work):
        records = generator.generate(settings.kafka, events, lambda _: None, prefix)
        place = Place(settings, work, prefix, records, work / "events.tsv", asked.runs, check)
        if "dbsp" in engines:
            write_events(generator, events, place.events)
        decoded = any(engine.endswith("_decoded") for engine in engines)
        namespace = nexmark_lockstep.decode(settings, prefix) if decoded else ""
        say(f"{events:,} events are there")
        if (
            check
            and REFERENCE not in engines
            and any(not e.startswith("lockstep") for e in engines)
        ):
            reference_rows(place, queries)
        try:
            there = [Engine(name, place, namespace) for name in engines]
            for engine, query, found in asked_of(there, queries, asked.in_turn):
                counts = place.records_of(query), events
                record(engine.name, query, found, counts, asked.results)
                if found[0].failed or found[1].startswith("WRONG"):
                    wrong.append(f"{engine.name} {query}")
        finally:
            delete_topics(settings.kafka, list(records))
    return wrong


def names(text: str, known: Sequence[str], parser: argparse.ArgumentParser) -> list[str]:
    """'q0,q4' in the order in which they are run."""
    asked = [name.strip() for name in text.split(",")]
    unknown = [name for name in asked if name not in known]
    if unknown:
        parser.error(f"expected some of {', '.join(known)}; found {', '.join(unknown)}")
    return [name for name in known if name in asked]


def main() -> int:
    """Measure, save, print. 1 where a result is wrong or an engine failed, 2 where it cannot be run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--queries", default=",".join(QUERIES))
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument(
        "--runs", type=int, default=3, help="of each query; the first is the cold one"
    )
    parser.add_argument("--no-check", dest="check", action="store_false")
    parser.add_argument(
        "--in-turn", action="store_true", help="each query by all engines before the next query"
    )
    parser.add_argument("--results", type=Path, default=results.PATH, help="where figures go")
    asked = parser.parse_args()
    engines = names(asked.engines, ENGINES, parser)
    queries = names(asked.queries, tuple(QUERIES), parser)
    about: Mapping[str, Any] = {
        "at": f"{datetime.now(UTC):%Y-%m-%d}",
        "cpus": processors(),
        "runs": asked.runs,
        "versions": versions(),
    }
    for key, value in about.items():
        results.update(f"nexmark/{key}", value, asked.results)
    try:
        wrong = run(asked, engines, queries)
    except LockstepError as error:
        say(str(error))
        return 2
    saved = results.load(asked.results)
    for aim, value in nexmark_aims.aims(saved["events_per_second"]).items():
        results.update(f"aims/{aim}", value, asked.results)
    print(nexmark_report.tables(results.load(asked.results)))
    if wrong:
        say(f"wrong or failed: {', '.join(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
