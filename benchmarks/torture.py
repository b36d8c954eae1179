"""Torture: real kills of everything, many times, and an independent reader at the end of each.

    make torture RUNS=50 [SEED=7]

A broker, a Spark Connect server and, for a tenth of the runs, an Airflow are started in a temporary
folder. Two pipelines live through all runs (`tests/end_to_end/long_lived.py`). Each run strikes once:
a task, maintenance, the Spark JVM, the broker, Airflow's task or its scheduler; by SIGKILL, or by
SIGSTOP for some seconds; at a named point, each in turn, or at a random moment. What died is started
again, the pipeline is driven until all is published, and everything that it ever published is compared
with what its recorded input should give. One seed decides all that is chosen, and is printed first.

The result stands in torture.json, see README.md. A run that fails ends it all, and keeps the folder.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torture_servers import BROKER, ROOT, SPARK, Servers
from torture_strikes import (
    RANDOM,
    Action,
    Field,
    Outcome,
    Strike,
    TortureError,
    Victim,
)

from lockstep.adapters.settings import Settings
from lockstep.errors import LockstepError
from lockstep.threads import processors

sys.path.insert(0, str(ROOT / "tests" / "end_to_end"))
import reader
from long_lived import LongLived, Stock, Totals
from stopping import POINTS, AnyPoint, KafkaPoint, ViewPoint, Ways, name_of

PIPELINES: tuple[type[LongLived], ...] = (Totals, Stock)
AIRFLOW_SHARE = 10
NORMAL_EVERY = 10
"""After so many runs each, an interval of each pipeline is left undisturbed and measured."""
ONCE = ViewPoint.MADE
"""A view's table is made once in the life of a pipeline: the first run of each strikes there."""

DRIVEN = (
    (Victim.TASK, Action.KILL),
    (Victim.SPARK, Action.KILL),
    (Victim.TASK, Action.STOP),
    (Victim.BROKER, Action.KILL),
    (Victim.SPARK, Action.STOP),
    (Victim.TASK, Action.KILL),
    (Victim.BROKER, Action.STOP),
    (Victim.MAINTENANCE, Action.KILL),
)
BY_AIRFLOW = ((Victim.AIRFLOW_TASK, Action.KILL), (Victim.SCHEDULER, Action.KILL))


# ── what is chosen ──────────────────────────────────────────────────────────────────────────────


def choose(runs: int, seed: int) -> list[Strike]:
    """All strikes of one seed: those at drivers, then those at Airflow."""
    chance = random.Random(seed)
    by_airflow = runs // AIRFLOW_SHARE
    points: list[AnyPoint | None] = [point for point in POINTS if point is not ONCE]
    # One in four at a random moment.
    points = _in_turn(chance, [*points, *[None] * (len(points) // 3)], runs)
    strikes = []
    for number in range(runs - by_airflow):
        victim, action = DRIVEN[number % len(DRIVEN)]
        point = None if victim is Victim.MAINTENANCE else points.pop()
        if number < len(PIPELINES):
            victim, action, point = Victim.TASK, Action.KILL, ONCE
        # The kinds are even in number, too: each meets both pipelines.
        turn = number + number // len(DRIVEN)
        strikes.append(_strike(chance, turn, victim, action, point))
    without_large = [point for point in points if point is not ViewPoint.DELETED]
    for number in range(by_airflow):
        victim, action = BY_AIRFLOW[number % len(BY_AIRFLOW)]
        turn = number // len(BY_AIRFLOW)
        strikes.append(_strike(chance, turn, victim, action, without_large[number]))
    return strikes


def _in_turn(
    chance: random.Random, points: list[AnyPoint | None], count: int
) -> list[AnyPoint | None]:
    """All of them in a random order, then all of them in another, at least so many."""
    found: list[AnyPoint | None] = []
    while len(found) < 2 * count:
        found += chance.sample(points, len(points))
    return found


def _strike(
    chance: random.Random, turn: int, victim: Victim, action: Action, point: AnyPoint | None
) -> Strike:
    """The rest of a strike. In the ways of many rows, Spark's tasks send to Kafka, not the driver."""
    may_be_large = not isinstance(point, KafkaPoint) and not victim.is_of_airflow
    ways = Ways.OF_FEW
    if point is ViewPoint.DELETED:
        ways = Ways.BY_SPARK  # Only Spark deletes first, and then appends.
    elif may_be_large and chance.random() < 0.3:
        ways = chance.choice([Ways.OF_MANY, Ways.BY_SPARK])
    can_have_rival = victim not in (Victim.MAINTENANCE, Victim.AIRFLOW_TASK, Victim.SCHEDULER)
    return Strike(
        pipeline=PIPELINES[turn % len(PIPELINES)].name,
        victim=victim,
        action=action,
        point=point,
        share=chance.uniform(0.3, 0.9),
        sleep_seconds=chance.uniform(6, 22),
        ways=ways,
        with_rival=can_have_rival and chance.random() < 0.2,
        with_maintenance=chance.random() if chance.random() < 0.3 else None,
        with_more_input=victim is Victim.BROKER or chance.random() < 0.3,
        scaled_to=chance.randint(1, 4) if chance.random() < 0.4 else None,
        scaled_at_once=chance.random() < 0.4,
    )


# ── what is found ───────────────────────────────────────────────────────────────────────────────


@dataclass
class Results:
    """What torture.json says."""

    seed: int
    normal_seconds: float = 0.0
    points: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    findings: dict[str, reader.Findings] = field(default_factory=dict)
    failed: str = ""

    def add(self, strike: Strike, outcome: Outcome) -> None:
        """Count one run; each reading of a pipeline covers all its runs so far."""
        self.points[strike.moment] += 1
        self.seconds.setdefault(strike.kind, []).append(outcome.seconds)
        self.findings[strike.pipeline] = outcome.findings

    @property
    def clean(self) -> bool:
        return not self.failed and all(found.clean for found in self.findings.values())

    def count(self, kind: str) -> int:
        """Rows of one kind of fault, in all pipelines."""
        return sum(len(getattr(found, kind)) for found in self.findings.values())

    def as_json(self) -> dict[str, Any]:
        order = [*map(name_of, POINTS), RANDOM]
        return {
            "runs": self.points.total(),
            "seed": self.seed,
            "cpus": processors(),
            "points": {name: self.points[name] for name in order},
            "lost": self.count("lost"),
            "duplicated": self.count("duplicated"),
            "unexpected": self.count("unexpected"),
            "out_of_order": self.count("out_of_order"),
            "failed": self.failed,
            "recovery_seconds": self._by_kind(1.0),
            "normal_interval_seconds": round(self.normal_seconds, 1),
            "recovery_intervals": self._by_kind(self.normal_seconds or 1.0),
        }

    def _by_kind(self, unit: float) -> Mapping[str, Mapping[str, float]]:
        return {
            kind: {
                "count": len(found),
                "median": round(statistics.median(found) / unit, 1),
                "max": round(max(found) / unit, 1),
            }
            for kind, found in sorted(self.seconds.items())
        }


# ── all of it ───────────────────────────────────────────────────────────────────────────────────


def say(line: str) -> None:
    """Progress, for people."""
    print(f"{time.strftime('%H:%M:%S', time.gmtime())} {line}", flush=True)


def torture(
    folder: Path,
    strikes: list[Strike],
    results: Results,
    save: Path | None = None,
    with_normal: bool = False,
) -> None:
    """Make the strikes, one after the other, until one fails; results are saved after each.

    `with_normal`: now and then, intervals that nobody disturbs are measured.
    """
    servers = Servers(folder / "home")
    battle: Field | None = None
    try:
        servers.start(BROKER, SPARK)
        settings = Settings.load(servers.variables)
        pipelines = {one.name: one(settings, "", results.seed) for one in PIPELINES}
        for name, pipeline in pipelines.items():
            pipeline.deploy(folder / name)
        battle = Field(folder, servers, pipelines, say)
        for number, strike in enumerate(strikes):
            if with_normal and number % NORMAL_EVERY == len(PIPELINES):
                results.normal_seconds = battle.measure_normal()
                say(f"a normal interval takes {results.normal_seconds:.1f} s")
            if strike.victim.is_of_airflow and not strikes[number - 1].victim.is_of_airflow:
                say("starting Airflow")
                servers.start_airflow()
            outcome = battle.strike(strike)
            results.add(strike, outcome)
            say(_line(number, strikes, outcome, results))
            if save is not None:
                save.write_text(json.dumps(results.as_json(), indent=1) + "\n", "utf-8")
            if not results.clean:
                return
    except (TortureError, LockstepError, AssertionError) as error:
        results.failed = str(error) or type(error).__name__
    finally:
        if battle is not None:
            battle.end()
        servers.stop()


def _line(number: int, strikes: list[Strike], outcome: Outcome, results: Results) -> str:
    strike = strikes[number]
    ratio = outcome.seconds / results.normal_seconds if results.normal_seconds else 0.0
    found = ", ".join(f"{len(rows)} {kind}" for kind, rows in vars(outcome.findings).items())
    more = [
        *([f"the ways {strike.ways.value}"] if strike.ways is not Ways.OF_FEW else []),
        *(["a rival"] if strike.with_rival else []),
        *([f"{strike.scaled_to} workers"] if strike.scaled_to is not None else []),
        *(["maintenance"] if strike.with_maintenance is not None else []),
        *(["more input"] if strike.with_more_input else []),
    ]
    with_ = f" with {', '.join(more)}" if more else ""
    return (
        f"run {number + 1}/{len(strikes)} {strike.pipeline}: {strike.kind} at {strike.moment}{with_}: "
        f"recovered in {outcome.seconds:.1f} s ({ratio:.1f} intervals, {outcome.tries} tries); {found}"
    )


def end(_signal: int, _frame: object) -> None:
    """SIGTERM ends it as Ctrl-C does: with the servers stopped."""
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=None, help="default: another one each time")
    parser.add_argument("--save", type=Path, default=Path(__file__).with_name("torture.json"))
    asked = parser.parse_args()
    seed = random.SystemRandom().randrange(1_000_000) if asked.seed is None else asked.seed
    signal.signal(signal.SIGTERM, end)
    folder = Path(tempfile.mkdtemp(prefix="lockstep-torture-"))
    say(f"seed {seed}; everything is below {folder}")
    results = Results(seed)
    try:
        torture(folder, choose(asked.runs, seed), results, asked.save, with_normal=True)
    except KeyboardInterrupt:
        results.failed = "interrupted"
    if results.clean:
        shutil.rmtree(folder)
        say(f"{asked.runs} runs: nothing lost, duplicated or unexpected; see {asked.save}")
        return 0
    for place, found in results.findings.items():
        for kind, rows in vars(found).items():
            for step, row in rows[:10]:
                say(f"{place}: step {step}: {kind} {row}")
    say(f"FAILED {results.failed}: seed {seed}; everything is kept in {folder}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
