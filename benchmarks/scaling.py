"""What workers are worth: the pause of a change of layout, and an interval's time as they grow.

    python benchmarks/scaling.py

The pause is measured as `scaling_pause` says. For the time of an interval, each arm (so many cores of a
Connect server, and so many workers) has a pipeline of its own over the same Nexmark records, and takes
them as the same large intervals; arms go in turn, all servers stay warm. At the end their views have to
be equal, and to be what DuckDB makes of Kafka's raw records. What more cores than the machine has
would do is not measured, but simulated: the event log of the intervals on one core, under 1 to 16
workers, is scheduled on 1 to 16 cores as `scaling_model` says. What is measured on one core and on two
stands beside it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import yaml
from scaling_model import Recorded, recorded
from scaling_pause import measure_pauses
from scaling_report import tables
from scaling_stack import SparkServer, running_broker, settings_of

from lockstep import scaling
from lockstep.adapters.catalogs import catalog_settings
from lockstep.adapters.settings import Settings
from lockstep.adapters.sql_store import SqlStore
from lockstep.adapters.verify import verify
from lockstep.cli.bench import EXAMPLE, QUERIES, advance, load_generator, write_project
from lockstep.control.layout.scaling import scaled
from lockstep.deploying import deploy
from lockstep.lake.opening import OpenCatalog
from lockstep.threads import processors

QUERY = "q4"
PREFIX = "scaling."
STEPS = 10
"""Of an interval."""
CORES = (1, 2)
SIMULATED = (1, 2, 4, 8, 16)
ARMS = tuple(product(CORES, SIMULATED))
"""Cores and workers: as many arms on each server, so that both get as warm."""
MEMORY = "3g"
RESULT = Path(__file__).with_name("scaling.json")


@dataclass(frozen=True)
class Run:
    """One interval: its seconds, those of its stages, those of parts of run, when it was (epoch ms)."""

    seconds: float
    stages: Mapping[str, float]
    parts: Mapping[str, float]
    started: int
    ended: int


@dataclass(frozen=True)
class Arm:
    """A pipeline on a server of so many cores, under a layout of so many workers, and its intervals."""

    cores: int
    workers: int
    settings: Settings
    runs: list[Run] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{QUERY}_{self.cores}_{self.workers}"

    def deploy(self, folder: Path, rows_per_step: int) -> None:
        """Deploy the query, whose intervals have so many rows a step, and set its layout."""
        write_project(EXAMPLE, folder, self.name, QUERY, PREFIX, rows_per_step)
        file = folder / "spark-pipeline.yml"
        spec = yaml.safe_load(file.read_text("utf-8"))
        spec["configuration"]["lockstep.rows_per_interval"] = str(rows_per_step * STEPS)
        file.write_text(yaml.safe_dump(spec, sort_keys=False), "utf-8")
        deploy(str(folder), self.settings)
        plan = scaling.plan_change(
            self.name, lambda newest: scaled(newest, self.workers), self.settings, at_once=False
        )
        scaling.change(plan, self.settings)

    def advance(self) -> Run:
        """One interval."""
        started = time.time_ns() // 1_000_000
        committed, stages = advance(self.name, self.settings, _silent)
        parts = _parts(committed.seconds)
        ended = time.time_ns() // 1_000_000
        return Run(sum(stages.values()), stages, parts, started, ended)

    def view(self) -> tuple[object, Counter[str]]:
        """What is read so far, and the view as it is published."""
        positions = SqlStore(self.settings.store_url).read(self.name).positions
        catalog = OpenCatalog(catalog_settings("bench", self.name, {}, self.settings))
        rows = catalog.load(self.name, QUERY).scan().to_arrow().to_pylist()
        return positions, Counter(map(repr, rows))

    def figures(self) -> dict[str, Any]:
        """Seconds of the intervals, in order; their parts in the median."""
        seconds = [run.seconds for run in self.runs]
        return {
            "cores": self.cores,
            "workers": self.workers,
            "best": round(min(seconds), 2),
            "median": round(statistics.median(seconds), 2),
            "seconds": [round(one, 3) for one in seconds],
            "stages": _medians([run.stages for run in self.runs]),
            "parts_of_run": _medians([run.parts for run in self.runs]),
        }


def _silent(_: str) -> None:
    """Progress that nobody reads."""


def _parts(seconds: Mapping[str, float]) -> dict[str, float]:
    """What run says of itself, without what it says of each table."""
    return {part: value for part, value in seconds.items() if not part.startswith("append ")}


def _medians(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of each part that is in all of them."""
    return {
        part: round(statistics.median(one[part] for one in found), 3)
        for part in found[0]
        if all(part in one for one in found)
    }


# ── measuring ───────────────────────────────────────────────────────────────────────────────────


def measure_growth(folder: Path, events: int, rounds: int, warm_ups: int) -> dict[str, Any]:
    """Every arm takes `warm_ups` intervals of so many events, then the `rounds` that count."""
    logs = {cores: folder / f"log-{cores}" for cores in CORES}
    with running_broker(folder) as kafka, _servers(folder, logs) as remotes:
        generator = load_generator(EXAMPLE)
        intervals = warm_ups + rounds
        written = generator.generate(kafka, events * intervals, _silent, PREFIX)
        records = sum(written[PREFIX + source] for source in QUERIES[QUERY])
        arms = [
            Arm(cores, workers, settings_of(folder / "home", kafka, remotes[cores]))
            for cores, workers in ARMS
        ]
        for arm in arms:
            arm.deploy(folder / arm.name, -(-records // (intervals * STEPS)))
        for number in range(intervals):
            for arm in arms:
                run = arm.advance()
                print(number, arm.name, f"{run.seconds:.2f}", run.stages, run.parts, flush=True)
                if number >= warm_ups:
                    arm.runs.append(run)
        check_right(arms)
    on_one = {arm.workers: _recorded(logs[1], arm.runs) for arm in arms if arm.cores == 1}
    return {
        "query": QUERY,
        "events": events,
        "rounds": rounds,
        "warm_ups": warm_ups,
        "measured": [arm.figures() for arm in arms],
        "logged": {str(workers): logged(found) for workers, found in on_one.items()},
        "simulated": simulated(on_one),
    }


def check_right(arms: Sequence[Arm]) -> None:
    """The first view is what DuckDB makes of the raw records, and the others equal it."""
    (check,) = verify(arms[0].name, arms[0].settings, _silent)
    if not check.equal:
        raise SystemExit(f"{arms[0].name} is not right: {check.sample}")
    first, *others = (arm.view() for arm in arms)
    if wrong := [view for view in others if view != first]:
        raise SystemExit(f"arms differ: {first} and {wrong}")


@contextmanager
def _servers(folder: Path, logs: Mapping[int, Path]) -> Iterator[Mapping[int, str]]:
    """The address of a server by its cores; each logs what its tasks take, to its folder."""
    servers = {}
    for cores, log in logs.items():
        log.mkdir()
        conf = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": log.as_uri(),
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.compress": "false",
        }
        servers[cores] = SparkServer(folder / f"spark-{cores}", MEMORY, conf)
    try:
        yield {cores: server.start(cores) for cores, server in servers.items()}
    finally:
        for server in servers.values():
            server.stop()


def _recorded(log: Path, runs: Sequence[Run]) -> list[Recorded]:
    """What the log has of each of the intervals."""
    (file,) = log.iterdir()
    with file.open(encoding="utf-8") as lines:
        wanted = [line for line in lines if "SparkListenerStage" in line or "TaskEnd" in line]
    return [recorded(wanted, run.started, run.ended) for run in runs]


def logged(found: Sequence[Recorded]) -> dict[str, float]:
    """What one core did in an interval: medians, and the most stages and tasks."""
    return {
        "seconds": _median(one.seconds for one in found),
        "task_seconds": _median(one.task_seconds for one in found),
        "stages": max(len(one.stages) for one in found),
        "tasks": max(sum(len(stage.tasks) for stage in one.stages) for one in found),
    }


def simulated(found: Mapping[int, Sequence[Recorded]]) -> dict[str, Any]:
    """Medians over the intervals, by cores: under as many workers as these, and under the most."""
    return {
        str(cores): {
            "as_many": _median(one.on(cores) for one in found[cores]),
            "most": _median(one.on(cores) for one in found[max(found)]),
        }
        for cores in found
    }


def _median(values: Iterable[float]) -> float:
    return round(statistics.median(values), 2)


def main() -> None:
    """Measure both parts, or one, save, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=("pause", "growth"), help="only this; the other is kept")
    parser.add_argument("--changes", type=int, default=8, help="of layout, hot, and cold")
    parser.add_argument("--events", type=int, default=500_000, help="of a large interval")
    parser.add_argument("--rounds", type=int, default=3, help="large intervals that count")
    parser.add_argument("--warm-ups", type=int, default=3, help="large intervals before them")
    parser.add_argument("--save", type=Path, default=RESULT)
    asked = parser.parse_args()
    kept = asked.part and asked.save.exists()
    result = json.loads(asked.save.read_text("utf-8")) if kept else {}
    result["cpus"] = processors()
    with tempfile.TemporaryDirectory(prefix="lockstep-scaling-") as name:
        folder = Path(name)
        if asked.part != "growth":
            (folder / "pause").mkdir()
            result["pause"] = measure_pauses(folder / "pause", asked.changes)
        if asked.part != "pause":
            (folder / "growth").mkdir()
            result["growth"] = measure_growth(
                folder / "growth", asked.events, asked.rounds, asked.warm_ups
            )
    asked.save.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print(tables(result))


if __name__ == "__main__":
    main()
