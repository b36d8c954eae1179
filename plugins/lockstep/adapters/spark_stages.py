"""What Spark says of the stages that it ran: the REST API of a server whose UI is on
(https://spark.apache.org/docs/latest/monitoring.html#rest-api)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from operator import add
from typing import Any

from lockstep.errors import Unreachable

__all__ = ["Stage", "TaskTimes", "stages_between"]

ANSWER_SECONDS = 60.0
_MILLI, _NANO = 1e-3, 1e-9


@dataclass(frozen=True)
class TaskTimes:
    """What tasks took together, in seconds: `run` is all, of which the others are parts."""

    run: float = 0.0
    cpu: float = 0.0
    garbage: float = 0.0
    shuffle_write: float = 0.0
    shuffle_wait: float = 0.0

    def __add__(self, other: TaskTimes) -> TaskTimes:
        return TaskTimes(*map(add, astuple(self), astuple(other)))


@dataclass(frozen=True)
class Stage:
    """A stage that has ended: when (seconds since the epoch), and of how many tasks."""

    started: float
    ended: float
    tasks: int
    times: TaskTimes


def stages_between(ui: str, started: float, ended: float) -> tuple[Stage, ...]:
    """The stages that began in that time, in order, as far as the server still knows them. Raises
    Unreachable."""
    import httpx

    try:
        with httpx.Client(base_url=ui, trust_env=False, timeout=ANSWER_SECONDS) as client:
            applications = client.get("/api/v1/applications").raise_for_status().json()
            of_all = f"/api/v1/applications/{applications[0]['id']}/stages"
            told = client.get(of_all, params={"status": "complete"}).raise_for_status().json()
    except (httpx.HTTPError, ValueError, LookupError) as error:
        raise Unreachable(
            f"Spark's UI at {ui} does not say what ran",
            expected="an answer of its REST API",
            found=str(error) or type(error).__name__,
            next_step="see that the server runs with spark.ui.enabled (`lockstep status`)",
        ) from error
    found = (_stage(one) for one in told if "completionTime" in one)
    wanted = (one for one in found if started <= one.started <= ended)
    return tuple(sorted(wanted, key=lambda one: one.started))


def _stage(told: Mapping[str, Any]) -> Stage:
    return Stage(
        _seconds(told["submissionTime"]),
        _seconds(told["completionTime"]),
        told["numCompleteTasks"],
        TaskTimes(
            told["executorRunTime"] * _MILLI,
            told["executorCpuTime"] * _NANO,
            told["jvmGcTime"] * _MILLI,
            told["shuffleWriteTime"] * _NANO,
            told["shuffleFetchWaitTime"] * _MILLI,
        ),
    )


def _seconds(text: str) -> float:
    """`2026-11-22T18:00:00.123GMT`"""
    parsed = datetime.strptime(text.removesuffix("GMT"), "%Y-%m-%dT%H:%M:%S.%f")
    return parsed.replace(tzinfo=UTC).timestamp()
