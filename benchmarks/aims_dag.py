"""Aim: what a DAG run adds to an interval.

The embedded Airflow runs the DAG of the pipeline of `aims_small`. A run is asked for by the REST API, as
`lockstep trigger --once` does; its time is from when it was queued to its end, as Airflow recorded both.
What it adds is that, less the seconds of plan, run and publish of the same change by hand, on the same
pipeline, while Airflow rests. The two take turns.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import httpx
from aims_bench import Aim, Bench, median, medians, running, say
from aims_small import SIZE, Feed, deploy_q4, limits

from lockstep.adapters import airflow_api
from lockstep.adapters.embedded import stack

__all__ = ["add_options", "measure"]

SECONDS = 4.0
WAIT_SECONDS = 180
POLL_SECONDS = 0.5
NAME = "q4_dag"
ENDED = ("success", "failed")
ONCE_A_YEAR = "0 0 1 1 *"
"""Airflow begins by the run for the year before, which finds nothing; no other starts by itself."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=9, help="DAG runs that count")
    parser.add_argument("--warm-ups", type=int, default=3, help="DAG runs before them")


@dataclass(frozen=True)
class DagRun:
    """Seconds from when it was queued to its end, and of each of its tasks from start to end."""

    seconds: float
    tasks: Mapping[str, float]


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Aim]]:
    """In turn an interval by hand and one by a DAG run."""
    by_hand: list[float] = []
    by_dag: list[DagRun] = []
    with running(with_airflow=True) as bench:
        feed = Feed(bench)
        driven = deploy_q4(bench, NAME, cron=ONCE_A_YEAR, **limits(SIZE))
        _wait_for_first_run(bench)
        for number in range(options.warm_ups + options.runs):
            feed.send(SIZE)
            by_hand.append(driven.advance().seconds)
            feed.send(SIZE)
            by_dag.append(_dag_run(bench))
            say(f"{number}: by hand {by_hand[-1]:.2f} s, DAG run {by_dag[-1]}")
        driven.check()
    yield "dag run", _aim(by_hand[options.warm_ups :], by_dag[options.warm_ups :])


def _aim(by_hand: list[float], by_dag: list[DagRun]) -> Aim:
    adds = median(run.seconds - hand for run, hand in zip(by_dag, by_hand, strict=True))
    return Aim(
        target=f"{SECONDS:.0f} s at most, besides plan, run and publish",
        measured=f"{adds:.2f} s, median of {len(by_dag)}",
        holds=adds <= SECONDS,
        scale="full",
        series={
            "by_hand": [round(one, 3) for one in by_hand],
            "by_dag": [round(one.seconds, 3) for one in by_dag],
            "tasks": medians([one.tasks for one in by_dag]),
        },
    )


def _dag_run(bench: Bench) -> DagRun:
    """One run that takes all that is there."""
    started = airflow_api.trigger(bench.settings, NAME, {"once": True})
    while started.state not in ENDED:
        time.sleep(POLL_SECONDS)
        started = airflow_api.run_state(bench.settings, started)
    if started.state != "success":
        raise SystemExit(f"the DAG run failed: {started.url}")
    with _api(bench) as ask:
        run = ask(f"dagRuns/{started.run_id}")
        tasks = ask(f"dagRuns/{started.run_id}/taskInstances")["task_instances"]
    seconds = _seconds(run["queued_at"], run["end_date"])
    return DagRun(seconds, {one["task_id"]: round(one["duration"], 3) for one in tasks})


def _wait_for_first_run(bench: Bench) -> None:
    """Airflow starts one by itself once it has read the DAG."""
    deadline = time.monotonic() + WAIT_SECONDS
    with _api(bench) as ask:
        while not any(run["state"] in ENDED for run in ask("dagRuns").get("dag_runs", ())):
            if time.monotonic() > deadline:
                raise SystemExit(f"no DAG run of {NAME} has ended in {WAIT_SECONDS} s")
            time.sleep(POLL_SECONDS)


@contextmanager
def _api(bench: Bench) -> Iterator[Callable[[str], Any]]:
    """Asks for what is below the DAG in Airflow's REST API."""
    settings = bench.settings
    with httpx.Client(base_url=settings.airflow_url, trust_env=False, timeout=30) as client:
        user = {"username": stack.USER, "password": stack.password(settings.home)}
        token = client.post("/auth/token", json=user).json()["access_token"]
        client.headers["Authorization"] = f"Bearer {token}"
        yield lambda path: client.get(f"/api/v2/dags/{NAME}/{path}").json()


def _seconds(start: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()
