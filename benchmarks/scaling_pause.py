"""The pause of a change of layout: hot, as Lockstep makes it, and cold, with Spark started anew.

One pipeline, `totals`, runs small intervals one after another, each with new input. Intervals are
taken two by two. Counted are the greater of the two gaps from one publishing to the next, and the time
of the second. No change: nothing happens. Hot: another layout is asked for while the first of the two is
under way, and the second runs under it; the server keeps its two cores. Cold: a pause is asked for while
the first is under way; it is published, the server is ended, the layout is changed, a server with as
many cores as workers starts, and the second runs. The workers are one, two, one, and so on.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scaling_stack import SparkServer, running_broker, settings_of

from lockstep import scaling
from lockstep.control.interval import Point
from lockstep.control.layout.records import LayoutRecord
from lockstep.control.layout.scaling import scaled
from lockstep.control.model import RunState
from lockstep.runtime import Pipeline, desire, recorded

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "end_to_end"))
from long_lived import Totals

__all__ = ["measure_pauses"]

ORDERS = 100
WARM_UPS = 4
"""Rounds that are not counted."""
SIZES = (1, 2)
MEMORY = "2g"


@dataclass(frozen=True)
class Timed:
    """An interval: its plan, run and publish, and what is from the publishing of the one before."""

    seconds: float
    gap: float


class Driven:
    """The pipeline, driven by one thread; what happens while an interval is under way, by another.

    `change_seconds` are those that changes of layout took, `restart_seconds` those from the last
    publishing of a server's to where the next one is ready.
    """

    def __init__(self, totals: Totals, server: SparkServer) -> None:
        self._totals, self._server = totals, server
        self._published = time.perf_counter()
        self._changes = 0
        self.change_seconds: list[float] = []
        self.restart_seconds: list[float] = []

    def interval(self, meanwhile: Callable[[], object] | None = None) -> Timed:
        """New input, and one interval of it. `meanwhile` is called once its attempt has begun."""
        settings, asked = self._totals.settings, list[Future[object]]()
        self._totals.change(ORDERS)
        with ThreadPoolExecutor(1) as pool:

            def reached(point: Point) -> None:
                if meanwhile is not None and point is Point.RUN_BEGUN:
                    asked.append(pool.submit(meanwhile))

            started, before = time.perf_counter(), self._published
            with Pipeline(self._totals.name, settings, reached) as pipeline:
                pipeline.plan(None, _silent)
                pipeline.run(_silent)
                pipeline.publish(_silent)
            self._published = time.perf_counter()
            for one in asked:
                one.result()
        return Timed(self._published - started, self._published - before)

    def unchanged(self) -> Sequence[Timed]:
        """Two intervals of which neither sees a change."""
        return [self.interval(), self.interval()]

    def hot(self) -> Sequence[Timed]:
        """The interval that a change lands under, and the first one under the new layout."""
        before = self.interval(lambda: self._scale(is_under_way=True))
        after = self.interval()
        state = recorded(self._totals.name, self._totals.settings)
        newest = state.layouts[-1]
        if newest.from_step is None or state.version.layout_epoch != newest.layout.epoch:
            raise SystemExit(f"layout {newest.layout.epoch} is not that of the last interval")
        return [before, after]

    def cold(self) -> Sequence[Timed]:
        """The interval that a pause is asked for under, and the first one on a new server."""
        name, settings = self._totals.name, self._totals.settings
        before = self.interval(lambda: desire(name, RunState.PAUSE, settings))
        stopped = time.perf_counter()
        self._server.stop()
        workers = self._scale(is_under_way=False)
        self._totals.settings = replace(settings, spark_remote=self._server.start(workers))
        desire(name, RunState.RUN, settings)
        self.restart_seconds.append(time.perf_counter() - stopped)
        return [before, self.interval()]

    def _scale(self, *, is_under_way: bool) -> int:
        """Another number of workers than before."""
        workers = SIZES[self._changes % len(SIZES)]
        self._changes += 1
        started = time.perf_counter()
        record = scale(self._totals, workers)
        self.change_seconds.append(time.perf_counter() - started)
        if is_under_way != (record.from_step is None):
            raise SystemExit(f"the change to {workers} workers did not land where it should")
        return workers


def scale(totals: Totals, workers: int) -> LayoutRecord:
    """As `lockstep scale` does it."""
    plan = scaling.plan_change(
        totals.name, lambda newest: scaled(newest, workers), totals.settings, at_once=False
    )
    return scaling.change(plan, totals.settings)


def _silent(_: str) -> None:
    """Progress that nobody reads."""


def figures(rounds: Sequence[Sequence[Timed]]) -> dict[str, Any]:
    """Of each round its greatest gap, and its last interval."""
    gaps = [max(one.gap for one in each) for each in rounds]
    intervals = [each[-1].seconds for each in rounds]
    return {
        "gap_median": median(gaps),
        "gap_max": round(max(gaps), 3),
        "interval_median": median(intervals),
        "interval_max": round(max(intervals), 3),
        "gaps": [round(gap, 3) for gap in gaps],
    }


def median(seconds: Sequence[float]) -> float:
    """To the millisecond."""
    return round(statistics.median(seconds), 3)


def measure_pauses(folder: Path, rounds: int) -> dict[str, Any]:
    """No change and hot in turn, then cold; at the end all that was ever published has to be right."""
    server = SparkServer(folder / "spark", MEMORY)
    with running_broker(folder) as kafka:
        try:
            settings = settings_of(folder / "home", kafka, server.start(max(SIZES)))
            totals = Totals(settings, "", seed=1)
            totals.deploy(folder / "totals", rows_per_step=1_000_000)
            scale(totals, max(SIZES))
            driven = Driven(totals, server)
            unchanged, hot = [], []
            for number in range(WARM_UPS + rounds):
                unchanged.append(driven.unchanged())
                hot.append(driven.hot())
                print(number, unchanged[-1], hot[-1], flush=True)
            changes = driven.change_seconds[WARM_UPS:]
            cold = []
            for number in range(rounds):
                cold.append(driven.cold())
                print(number, cold[-1], flush=True)
            if not totals.check(totals.sent).clean:
                raise SystemExit("what was published is not right")
        finally:
            server.stop()
    return {
        "orders": ORDERS,
        "no change": figures(unchanged[WARM_UPS:]),
        "hot": {**figures(hot[WARM_UPS:]), "change_median": median(changes)},
        "cold": {**figures(cold), "change_median": median(driven.restart_seconds)},
    }
