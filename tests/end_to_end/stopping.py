"""Processes that stop themselves at a named point: somebody else then decides what becomes of them.

A file in LOCKSTEP_HOME names a pipeline and a point. The first process that gets there takes the
file, leaves its process id in its place, and stops by SIGSTOP with all its threads. It can then be
killed, be left to sleep until another has done its work, or go on after a server was killed.

The points are those of the stages, of the publishing of a view, and of a Kafka transaction. The last
two are reached in the driving process too, which is Spark's client and a small change's producer.
"""

from __future__ import annotations

import os
import signal
import time
from enum import Enum
from functools import partial
from pathlib import Path

import psutil

from lockstep.adapters.settings import Settings
from lockstep.control.interval import Point
from lockstep.control.ports import Engine
from lockstep.runtime import Pipeline
from lockstep_engine import publishing
from lockstep_engine.sinks import iceberg, kafka
from lockstep_engine.sinks.iceberg import ViewPoint
from lockstep_engine.sinks.kafka_link import TransactionLink
from lockstep_engine.sinks.kafka_plan import Marker

__all__ = [
    "AS_IF_LARGE",
    "POINTS",
    "AnyPoint",
    "KafkaPoint",
    "Ways",
    "name_of",
    "open_pipeline",
    "stop_at",
    "stopped",
]

AS_IF_LARGE = "LOCKSTEP_TEST_AS_IF_LARGE"
"""In the environment: few rows take the ways of many, in the views and in the Kafka sinks; those of
`Ways`."""

ORDER, ANSWER = "stop_at", "stopped"
POLL_SECONDS = 0.01


class Ways(Enum):
    """How rows are written."""

    OF_FEW = "of few"
    OF_MANY = "of many"
    BY_SPARK = "of many, views by Spark"


class KafkaPoint(Enum):
    """Places in a transaction of a Kafka sink."""

    SENT = "rows are sent, the transaction is open"
    COMMITTED = "rows and marker are committed"


AnyPoint = Point | ViewPoint | KafkaPoint
POINTS: tuple[AnyPoint, ...] = (*Point, *ViewPoint, *KafkaPoint)


def name_of(point: AnyPoint) -> str:
    """As it stands in results: those of views and Kafka sinks say so."""
    prefix = {ViewPoint: "VIEW_", KafkaPoint: "KAFKA_"}.get(type(point), "")
    return prefix + point.name


# ── who stops ───────────────────────────────────────────────────────────────────────────────────


def open_pipeline(name: str, settings: Settings, engine: Engine | None = None) -> Pipeline:
    """In place of `runtime.open_pipeline`: a pipeline whose process stops where it is told to."""
    reached = partial(_reached, settings.home, name)
    _watch_sinks(reached)
    return Pipeline(name, settings, reached, engine)


def _reached(home: Path, pipeline: str, point: AnyPoint) -> None:
    order = home / ORDER
    try:
        if order.read_text("utf-8") != f"{pipeline} {name_of(point)}":
            return
        # Of several processes that get here, one moves the file.
        mine = home / f"{ANSWER}.{os.getpid()}"
        order.rename(mine)
    except FileNotFoundError:
        return
    mine.write_text(str(os.getpid()), "utf-8")
    mine.rename(home / ANSWER)
    os.kill(os.getpid(), signal.SIGSTOP)


def _watch_sinks(reached: partial[None]) -> None:
    """The sinks are told no points by the stages: theirs are put in place from here."""
    ways = Ways(os.environ.get(AS_IF_LARGE, Ways.OF_FEW.value))
    large = {} if ways is Ways.OF_FEW else {"small_rows": 0}
    publishing.publish_view = partial(  # type: ignore[attr-defined]
        _PUBLISH_VIEW, reached=reached, **large
    )
    if large:
        kafka.ROWS_FROM_DRIVER = 0
    if ways is Ways.BY_SPARK:
        iceberg.NETTED_ROWS = 0

    def commit(link: TransactionLink, marker: Marker) -> None:
        reached(KafkaPoint.SENT)
        _COMMIT(link, marker)
        reached(KafkaPoint.COMMITTED)

    TransactionLink.commit = commit  # type: ignore[method-assign]


_PUBLISH_VIEW = publishing.publish_view
_COMMIT = TransactionLink.commit


# ── who tells them to ───────────────────────────────────────────────────────────────────────────


def stop_at(home: Path, pipeline: str, point: AnyPoint | None) -> None:
    """From now on, one process stops where that pipeline gets to the point; None: none does."""
    (home / ANSWER).unlink(missing_ok=True)
    order = home / ORDER
    if point is None:
        order.unlink(missing_ok=True)
        return
    draft = order.with_suffix(".draft")
    draft.write_text(f"{pipeline} {name_of(point)}", "utf-8")
    draft.replace(order)


def stopped(home: Path) -> int | None:
    """The process that stopped, once it has; None where none got there yet."""
    try:
        process_id = int((home / ANSWER).read_text("utf-8"))
    except FileNotFoundError:
        return None
    while psutil.Process(process_id).status() != psutil.STATUS_STOPPED:
        time.sleep(POLL_SECONDS)
    return process_id
