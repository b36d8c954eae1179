"""`lockstep bench`: how many events a second go the whole way, and whether the result is right.

Whole way: JSON records in Kafka are planned, read, decoded and evaluated, traces and outbox are
committed, the view is published. One query is one pipeline, which takes its whole backlog as one
interval of several steps. A fast wrong answer fails: each view is recomputed and compared.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import yaml

from lockstep.adapters.settings import Settings
from lockstep.cli.output import command, progress, show, table
from lockstep.cli.profile import SparkWork, profile_text, spark_work
from lockstep.control.limits import StepLimits
from lockstep.control.ports import Progress
from lockstep.control.reports import Committed
from lockstep.errors import Refused, WrongUse
from lockstep.threads import processors

__all__ = ["QUERIES", "Measured", "Workload", "bench", "measure", "run_nexmark"]

QUERIES: Mapping[str, tuple[str, ...]] = {
    "q0": ("bid",),
    "q1": ("bid",),
    "q2": ("bid",),
    "q3": ("person", "auction"),
    "q4": ("auction", "bid"),
    "q5": ("bid",),
    "q6": ("auction", "bid"),
    "q7": ("bid",),
    "q8": ("person", "auction"),
    "q9": ("auction", "bid"),
    "q10": ("bid",),
    "q11": ("bid",),
    "q12": ("bid",),
    "q13": ("bid",),
    "q14": ("bid",),
    "q15": ("bid",),
    "q16": ("bid",),
    "q17": ("bid",),
    "q18": ("bid",),
    "q19": ("bid",),
    "q20": ("auction", "bid"),
    "q21": ("bid",),
    "q22": ("bid",),
}
"""The queries that there are, and the sources that each reads."""

EXAMPLE = Path(__file__).parents[3] / "examples" / "nexmark"


@dataclass(frozen=True)
class Workload:
    """What is measured: `events` of the generator, cut into `steps`, `warmups` unmeasured runs."""

    events: int
    queries: tuple[str, ...]
    steps: int
    warmups: int
    check: bool
    profile: bool = False


@dataclass(frozen=True)
class Measured:
    """One query. `records` are those of the topics that it reads, `seconds` from the start of plan
    to the end of publish; `parts` are the stages, `inside_run` what run says of itself, in seconds.
    `equal` is None where the result was not checked, `spark` where nobody asked what Spark did, or where
    its server has no UI."""

    query: str
    records: int
    steps: int
    seconds: float
    events_per_second: int
    parts: Mapping[str, float]
    inside_run: Mapping[str, float]
    changes: int
    rows: int | None
    equal: bool | None
    spark: SparkWork | None = None


def load_generator(example: Path) -> ModuleType:
    """The module that writes the streams. Raises WrongUse where the examples are not there."""
    path = example / "generate.py"
    spec = importlib.util.spec_from_file_location("lockstep_nexmark_generate", path)
    if not path.exists() or spec is None or spec.loader is None:
        raise WrongUse(
            "the Nexmark example is not there",
            expected=str(path),
            found="no such file",
            next_step="run it from a source tree, or name the folder with --example",
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def write_project(
    example: Path, folder: Path, name: str, query: str, prefix: str, step_rows: int
) -> None:
    """A project of one query and the sources it reads, in a database of its own."""
    spec = yaml.safe_load((example / "spark-pipeline.yml").read_text())
    spec.update(name=name, catalog="bench", database=name, storage=folder.as_uri())
    spec["configuration"].update(
        {
            "nexmark.prefix": prefix,
            "lockstep.rows_per_step": str(step_rows),
        }
    )
    (folder / "transformations").mkdir(parents=True)
    (folder / "spark-pipeline.yml").write_text(yaml.safe_dump(spec, sort_keys=False))
    for file in (*QUERIES[query], query):
        shutil.copy(example / "transformations" / f"{file}.sql", folder / "transformations")


def advance(
    name: str, settings: Settings, report: Progress, *, catches_up: bool = False
) -> tuple[Any, dict[str, float]]:
    """Plan, run and publish once; what was committed, and the seconds of each stage. With `catches_up`
    intervals follow one another as long as something is left, as in a DAG run, before all of it is
    published."""
    from lockstep.runtime import open_pipeline

    seconds: dict[str, float] = {}
    done = list[Committed]()

    def timed(stage: str, work: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        answer = work()
        seconds[stage] = seconds.get(stage, 0.0) + time.perf_counter() - started
        return answer

    def publish() -> None:
        pipeline.publish(report)
        holding.close()

    with open_pipeline(name, settings) as pipeline, ExitStack() as holding:
        timed("plan", lambda: holding.enter_context(pipeline.held(report)))
        is_left = True
        while is_left:
            is_left = timed("plan", lambda: pipeline.plan(None, report).behind) and catches_up
            committed = timed("run", lambda: pipeline.run(report))
            done += [committed] if committed else []
        timed("publish", publish)
    return Committed.joined(done), seconds


def measure(
    query: str,
    written: Mapping[str, int],
    settings: Settings,
    work: Path,
    load: Workload,
    example: Path,
    prefix: str,
    report: Progress,
) -> Measured:
    """Warm-up runs, each a pipeline of its own over the same records, then the run that counts."""
    from lockstep.adapters.verify import verify
    from lockstep.deploying import deploy

    def silent(_: str) -> None:
        return

    records = sum(written[prefix + source] for source in QUERIES[query])
    step_rows = min(max(-(-records // load.steps), 1), StepLimits().rows_per_step)
    for attempt in range(load.warmups + 1):
        name = f"{query}_{attempt}"
        write_project(example, work / name, name, query, prefix, step_rows)
        deploy(str(work / name), settings)
        report(f"{query}: {'measured run' if attempt == load.warmups else 'warm-up'}")
        began = time.time()
        committed, parts = advance(name, settings, silent, catches_up=True)
    parts = {stage: round(taken, 3) for stage, taken in parts.items()}
    seconds = round(sum(parts.values()), 3)
    spark = _spark_work(settings, began, began + seconds) if load.profile else None
    rows = equal = None
    if load.check:
        (check,) = verify(name, settings, silent)
        rows, equal = check.rows_published, check.equal
        for line in check.sample:
            report(f"{query}: {line}")
    return Measured(
        query,
        records,
        committed.last_step - committed.first_step + 1,
        seconds,
        round(records / seconds),
        parts,
        {part: round(value, 3) for part, value in committed.seconds.items()},
        sum(committed.changes.values()),
        rows,
        equal,
        spark,
    )


def _spark_work(settings: Settings, started: float, ended: float) -> SparkWork | None:
    if not settings.spark_ui:
        return None
    from lockstep.adapters.spark_stages import stages_between

    return spark_work(stages_between(settings.spark_ui, started, ended), started, ended)


@contextmanager
def workplace(settings: Settings, report: Progress) -> Iterator[tuple[Settings, Path]]:
    """Settings whose broker and Spark run, with a control store and a catalog of their own, so that
    a stack that is in use sees nothing of the benchmark. Starts a stack where none runs."""
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as folder:
        work = Path(folder)
        with running_stack(settings, work / "stack", report) as found:
            yield (
                replace(
                    found,
                    home=work,
                    store_url=f"sqlite:///{work}/control.db",
                    catalog_uri=f"sqlite:///{work}/catalog.db",
                    warehouse=f"file://{work}/warehouse",
                ),
                work,
            )


@contextmanager
def running_stack(settings: Settings, home: Path, report: Progress) -> Iterator[Settings]:
    """The stack that runs, or one below `home` for the time being, without Airflow."""
    if settings.kafka and settings.spark_remote:
        yield settings
        return
    from lockstep.adapters.embedded import stack
    from lockstep.adapters.embedded.ports import free_ports

    ports = dict(zip(stack.PORTS, free_ports(len(stack.PORTS)), strict=True))
    try:
        stack.up(home, stack.StackOptions(ports=ports, with_airflow=False), report)
        yield Settings.load({"LOCKSTEP_HOME": str(home)})
    finally:
        stack.down(home, report)


def delete_topics(bootstrap: str, names: Sequence[str]) -> None:
    """Remove the benchmark's topics from a broker that others use too."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    for deleted in admin.delete_topics(list(names)).values():
        deleted.result(timeout=30)


def run_nexmark(
    load: Workload, settings: Settings, example: Path, report: Progress
) -> dict[str, Any]:
    """Generate, measure each query, and return what is saved as JSON."""
    generator = load_generator(example)
    prefix = f"bench-{uuid.uuid4().hex[:8]}."
    with workplace(settings, report) as (found, work):
        written = generator.generate(found.kafka, load.events, lambda _: None, prefix)
        report(f"{load.events:,} events are in Kafka")
        try:
            results = [
                measure(query, written, found, work, load, example, prefix, report)
                for query in load.queries
            ]
        finally:
            delete_topics(found.kafka, list(written))
    return {
        "benchmark": "nexmark",
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpus": processors(),
        "events": load.events,
        "warmups": load.warmups,
        "events_per_second": {one.query: one.events_per_second for one in results},
        "queries": {one.query: asdict(one) for one in results},
    }


def results_text(result: Mapping[str, Any], profile: bool) -> str:
    """The result for people, with a profile of each query where that is asked for."""
    words = {True: "equal", False: "WRONG", None: "not checked"}
    profiles = [
        profile_text(
            name,
            one["seconds"],
            one["parts"],
            one["inside_run"],
            one["spark"] and SparkWork(**one["spark"]),
        )
        for name, one in result["queries"].items()
        if profile
    ]
    shown = table(
        ("query", "records", "seconds", "events/s", "plan", "run", "publish", "rows", "result"),
        [
            (
                one["query"],
                one["records"],
                f"{one['seconds']:.2f}",
                one["events_per_second"],
                *(f"{one['parts'][stage]:.2f}" for stage in ("plan", "run", "publish")),
                one["rows"],
                words[one["equal"]],
            )
            for one in result["queries"].values()
        ],
    )
    return "\n\n".join([*profiles, shown])


def chosen(text: str | None) -> tuple[str, ...]:
    """'q0,q4' as names. Raises WrongUse where one of them is not there."""
    names = tuple(name.strip() for name in text.split(",")) if text else tuple(QUERIES)
    unknown = [name for name in names if name not in QUERIES]
    if unknown:
        raise WrongUse(
            f"there is no Nexmark query {', '.join(unknown)}",
            expected=f"some of {', '.join(QUERIES)}",
            found=text or "",
            next_step="lockstep bench nexmark --help",
        )
    return names


@click.group()
def bench() -> None:
    """Benchmarks over the whole path, each result checked."""


@command(bench, "nexmark", "lockstep bench nexmark --events 1000000 --queries q0,q4")
@click.option("--events", default=1_000_000, show_default=True, help="Events to generate.")
@click.option("--queries", help="Some of them, as in q0,q4; else all.")
@click.option("--steps", default=10, show_default=True, help="Steps at least.")
@click.option("--warmups", default=1, show_default=True, help="Runs before the one that counts.")
@click.option("--check/--no-check", default=True, help="Recompute and compare each result.")
@click.option("--profile", is_flag=True, help="Show where the time of each run went.")
@click.option(
    "--save",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("nexmark.json"),
    show_default=True,
    help="Where the figures go, as JSON.",
)
@click.option("--example", type=click.Path(path_type=Path), default=EXAMPLE, hidden=True)
def nexmark(
    events: int,
    queries: str | None,
    steps: int,
    warmups: int,
    check: bool,
    profile: bool,
    save: Path,
    example: Path,
) -> None:
    """Events a second of the Nexmark queries: JSON in Kafka to published views."""
    load = Workload(events, chosen(queries), steps, warmups, check, profile)
    result = run_nexmark(load, Settings.load(), example, progress)
    save.write_text(json.dumps(result, indent=2) + "\n")
    show(result, lambda: f"{results_text(result, profile)}\nsaved in {save}")
    wrong = [name for name, one in result["queries"].items() if one["equal"] is False]
    if wrong:
        raise Refused(
            f"the result of {', '.join(wrong)} is not that of the batch query",
            expected="equal rows",
            found="other rows, listed above",
            next_step="this is a bug: report it with the number of events",
        )
