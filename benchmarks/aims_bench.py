"""What the benchmarks of aims share: a stack of their own, pipelines driven by hand, and their checks.

A pipeline stays open from interval to interval, as `lockstep run --follow` keeps it. What is timed of an
interval is plan, run and publish; making input, deploying and checking are not.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession

from lockstep.adapters.catalogs import catalog_settings
from lockstep.adapters.embedded import stack
from lockstep.adapters.embedded.ports import free_ports
from lockstep.adapters.embedded.record import Record
from lockstep.adapters.settings import Settings
from lockstep.adapters.verify import verify
from lockstep.control.job import CatalogSettings
from lockstep.control.reports import Committed, Planned
from lockstep.deploying import deploy
from lockstep.lake.opening import OpenCatalog
from lockstep.runtime import Pipeline
from lockstep.sql.circuit import SourceTable
from lockstep_engine.tables import configure_catalog

__all__ = [
    "CATALOG",
    "Aim",
    "Bench",
    "Driven",
    "Interval",
    "Topic",
    "figures",
    "median",
    "medians",
    "running",
    "say",
]

CATALOG = "bench"
TOPIC = """\
CREATE TABLE {name} ({columns}) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = '${{lockstep.kafka}}', 'subscribe' = '{topic}', {options});
"""


@dataclass(frozen=True)
class Aim:
    """What was found of one aim: `target` and `measured` in words, `scale` what it was measured on,
    `series` the figures behind it, for tables and plots."""

    target: str
    measured: str
    holds: bool
    scale: str
    series: Mapping[str, Any]


@dataclass(frozen=True)
class Interval:
    """One interval: seconds of its stages, and `cpu`, those of work of Spark's server, its Python
    workers and this process: on a busy machine they say more than the time does."""

    stages: Mapping[str, float]
    cpu: float
    committed: Committed

    @property
    def seconds(self) -> float:
        return sum(self.stages.values())


def figures(ones: Sequence[Interval]) -> dict[str, Any]:
    """Of some intervals, as they are saved: all seconds, and medians."""
    return {
        "median": median(one.seconds for one in ones),
        "seconds": [round(one.seconds, 3) for one in ones],
        "cpu": median(one.cpu for one in ones),
        "records": ones[-1].committed.records,
        "stages": medians([one.stages for one in ones]),
        "parts": medians([one.committed.seconds for one in ones]),
    }


class Driven:
    """A deployed pipeline, open."""

    def __init__(self, name: str, settings: Settings, server: psutil.Process) -> None:
        self.name, self.settings = name, settings
        self._server = server
        self.is_behind = False
        """Whether the last interval has left something."""
        self.pipeline = Pipeline(name, settings)

    def advance(self, until: datetime | None = None) -> Interval:
        """Plan, run and publish once."""
        stages: dict[str, float] = {}

        def timed(stage: str, work: Callable[[], Any]) -> Any:
            started = time.perf_counter()
            answer = work()
            stages[stage] = time.perf_counter() - started
            return answer

        worked = _cpu_seconds(self._server)
        planned: Planned = timed("plan", lambda: self.pipeline.plan(until, silent))
        self.is_behind = planned.behind
        committed = timed("run", lambda: self.pipeline.run(silent))
        timed("publish", lambda: self.pipeline.publish(silent))
        assert committed is not None, "there is input for an interval"
        return Interval(stages, _cpu_seconds(self._server) - worked, committed)

    def check(self) -> None:
        """Every view is what DuckDB makes of the raw input; ends the benchmark where one is not."""
        for found in verify(self.name, self.settings, silent):
            if not found.equal:
                raise SystemExit(f"{self.name}: {found.view} is not right: {found.sample}")

    def rows(self, view: str) -> Counter[tuple[object, ...]]:
        """What a reader of the view sees."""
        project = self.pipeline.project
        catalog = OpenCatalog(catalog_settings(CATALOG, project.database, {}, self.settings))
        found = catalog.load(project.database, view).scan().to_arrow().to_pylist()
        return Counter(tuple(row.values()) for row in found)

    def tables(self) -> Mapping[str, int]:
        """The snapshots of traces, outboxes and logs in the newest version."""
        return self.pipeline.state().version.tables


def _cpu_seconds(server: psutil.Process) -> float:
    """Of this process, and of the server with what it started that lives, or that it waited for."""
    total = time.process_time()
    for one in (server, *server.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            total += sum(one.cpu_times()[:4])
    return total


@dataclass(frozen=True)
class Topic:
    """A topic with a JSON object a record, which goes to partition key % partitions."""

    bootstrap: str
    name: str
    partitions: int = 2

    def create(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 3})
        admin.create_topics([NewTopic(self.name, self.partitions, 1)])[self.name].result(30)

    def send(self, rows: Iterable[tuple[int, str]], time_ms: int | None = None) -> None:
        """Send records, each a number `key` and its text, and wait until the broker has them; a record's
        key is {"key": number}. `time_ms` is the timestamp of all of them; else it is now."""
        settings = {"bootstrap.servers": self.bootstrap, "log_level": 3, "linger.ms": 50}
        producer = Producer({**settings, "queue.buffering.max.messages": 1_000_000})
        stamp = {} if time_ms is None else {"timestamp": time_ms}
        for number, (key, text) in enumerate(rows, 1):
            place = key % self.partitions
            producer.produce(self.name, text, f'{{"key":{key}}}', partition=place, **stamp)
            if number % 100_000 == 0:
                producer.flush(60)
        assert producer.flush(60) == 0, "the broker takes what is sent"

    def source(self, name: str, columns: str, **options: str) -> str:
        """Its declaration: JSON, unless `options` say otherwise."""
        given = {"format": "json", **{key.replace("_", "."): text for key, text in options.items()}}
        text = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
        return TOPIC.format(name=name, columns=columns, topic=self.name, options=text)


@dataclass
class Bench:
    """A running stack of its own, and the projects on it."""

    settings: Settings
    folder: Path
    driven: list[Driven] = field(default_factory=list)

    def deploy(self, name: str, sql: str, **configuration: str | int) -> Driven:
        """Deploy a project of these statements. Settings are named without `lockstep.`."""
        project = self.folder / "projects" / name
        (project / "transformations").mkdir(parents=True)
        spec = {
            "name": name,
            "catalog": CATALOG,
            "database": name,
            "storage": project.as_uri(),
            "libraries": [{"glob": {"include": "transformations/**"}}],
            "configuration": {
                f"lockstep.{key}": str(value) for key, value in configuration.items()
            },
        }
        (project / "spark-pipeline.yml").write_text(yaml.safe_dump(spec, sort_keys=False), "utf-8")
        (project / "transformations" / "project.sql").write_text(sql, "utf-8")
        deploy(str(project), self.settings)
        self.driven.append(Driven(name, self.settings, psutil.Process(self.spark_process)))
        return self.driven[-1]

    def topic(self, name: str, partitions: int = 2) -> Topic:
        """A new topic."""
        made = Topic(self.settings.kafka, name, partitions)
        made.create()
        return made

    def catalog(self, database: str) -> CatalogSettings:
        return catalog_settings(CATALOG, database, {}, self.settings)

    def opened(self, database: str) -> OpenCatalog:
        """The catalog by PyIceberg."""
        return OpenCatalog(self.catalog(database))

    @cached_property
    def spark(self) -> SparkSession:
        """A session on the server that knows the catalog."""
        session: SparkSession = SparkSession.builder.remote(self.settings.spark_remote).create()
        configure_catalog(session, self.catalog("default"))
        return session

    def check_by_spark(self, driven: Driven) -> None:
        """Every view is what Spark's batch query makes of all that the sources, topics of JSON and
        tables, hold now; ends the benchmark where one is not. For input too large for DuckDB."""
        project = driven.pipeline.project
        for source in project.sources:
            frame = self.spark.table(source.table) if source.is_table else self._from_topic(source)
            frame.createOrReplaceTempView(source.name)
        for view in project.views:
            wanted = self.spark.sql(view.sql).cache()
            shown = self.spark.table(f"{CATALOG}.{project.database}.{view.name}")
            wanted.createOrReplaceTempView(view.name)
            if not (wanted.exceptAll(shown).isEmpty() and shown.exceptAll(wanted).isEmpty()):
                raise SystemExit(f"{driven.name}: {view.name} is not what a batch query gives")

    def _from_topic(self, source: SourceTable) -> DataFrame:
        """All of its records, by Spark's batch reader."""
        schema = ", ".join(f"{column.name} {column.type}" for column in source.columns)
        raw = (
            self.spark.read.format("kafka")
            .option("kafka.bootstrap.servers", self.settings.kafka)
            .option("subscribe", source.topic)
            .load()
        )
        return raw.selectExpr(f"from_json(cast(value AS STRING), '{schema}') AS row").select(
            "row.*"
        )

    def close(self) -> None:
        """Let go of the servers while they run: a session without its server asks for it for minutes."""
        for one in self.driven:
            one.pipeline.close()
        if "spark" in self.__dict__:
            self.spark.stop()

    @property
    def spark_process(self) -> int:
        """The process id of the server's JVM."""
        return Record(self.settings.home).parts["spark"].process.pid


@contextmanager
def running(*, with_airflow: bool = False, memory: str = "4g") -> Iterator[Bench]:
    """Broker and Spark (and Airflow) for the time being, in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="lockstep-aims-") as name:
        home = Path(name)
        ports = dict(zip(stack.PORTS, free_ports(len(stack.PORTS)), strict=True))
        options = stack.StackOptions(ports, with_airflow, memory)
        bench = Bench(Settings.load({"LOCKSTEP_HOME": str(home)}), home)
        try:
            stack.up(home, options, silent)
            bench.settings = Settings.load({"LOCKSTEP_HOME": str(home)})
            yield bench
        finally:
            bench.close()
            stack.down(home, silent)


def median(values: Iterable[float]) -> float:
    """The middle one, or the lower of the two; to the millisecond."""
    ordered = sorted(values)
    return round(ordered[(len(ordered) - 1) // 2], 3)


def medians(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of each name that all of them have."""
    names = [name for name in found[0] if all(name in one for one in found)]
    return {name: median(one[name] for one in found) for name in names}


def say(line: str) -> None:
    """Progress, for people."""
    print(f"{datetime.now(UTC):%H:%M:%S} {line}", file=sys.stderr, flush=True)


def silent(_: str) -> None:
    """Progress that nobody reads."""
