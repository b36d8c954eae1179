"""Whether a pipeline should have more workers, or fewer, by what its last intervals took.

Three things are looked at: how long intervals take against the time between two of them, how far what
is committed lags behind the clock, and how many bytes of state a shard has. Only intervals under the
layout in effect count, so that a change is judged by what came of it before the next one.

The law: where what an interval takes falls with the workers and nothing else changes, layouts come to
rest. More are asked for above 80 % of the target, so many that 50 % is taken; fewer below 20 %, and at
most half of them go, so that 40 % is taken: nothing is asked for then.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import median

from lockstep.control.layout.layouts import Layout
from lockstep.control.layout.sharding import BUCKETS, Fixed, Sharding, power_of_two
from lockstep.control.limits import StepLimits, count_of_key, wrong_key

__all__ = ["DEFAULT_WORKERS", "KEPT_LOADS", "Autoscaling", "Load", "Mode", "Proposal"]

TOO_BUSY, TOO_IDLE, WANTED = 0.8, 0.2, 0.5
"""Shares of the time between two intervals that one takes."""

BEFORE_MORE, BEFORE_FEWER = 3, 6
"""Intervals under a layout that have to say so."""

KEPT_LOADS = 8

DEFAULT_WORKERS = 2
"""Of a layout that names none: what its intervals run with."""


@dataclass(frozen=True)
class Load:
    """What the interval up to `last_step` took under layout `epoch`: seconds at work, and the seconds
    from the time of its last step until it was committed."""

    last_step: int
    epoch: int
    seconds: float
    lag_seconds: float

    def joined(self, later: Load) -> Load:
        """This with another piece of the same interval."""
        return Load(self.last_step, later.epoch, self.seconds + later.seconds, later.lag_seconds)


class Mode(Enum):
    """What becomes of a proposal: nothing is looked at, maintenance says it, or does it."""

    OFF = "off"
    PROPOSE = "propose"
    APPLY = "apply"


@dataclass(frozen=True)
class Proposal:
    """Another number of workers, or of shards (None: as it is), and why."""

    workers: int
    sharding: Sharding | None
    reason: str


@dataclass(frozen=True)
class Autoscaling:
    """The policy of a project. `target_seconds` is the time between two intervals."""

    mode: Mode = Mode.OFF
    target_seconds: float = 60.0
    least_workers: int = 1
    most_workers: int = 64
    bytes_per_shard: int = 1 << 30

    @staticmethod
    def from_configuration(configuration: Mapping[str, str]) -> Autoscaling:
        """Read the `lockstep.autoscale*` keys. Raises WrongUse."""
        default = Autoscaling()

        def count(key: str, otherwise: int) -> int:
            text = configuration.get(key)
            found = otherwise if text is None else count_of_key(key, text)
            if found < 1:
                raise wrong_key(key, "a whole number of at least 1", str(found))
            return found

        least = count("lockstep.autoscale.least_workers", default.least_workers)
        most = count("lockstep.autoscale.most_workers", max(least, default.most_workers))
        if most < least:
            key = "lockstep.autoscale.most_workers"
            raise wrong_key(key, f"at least least_workers, {least}", str(most))
        return Autoscaling(
            Mode(configuration.get("lockstep.autoscale", default.mode.value)),
            StepLimits.from_configuration(configuration).interval_seconds,
            least,
            most,
            count("lockstep.autoscale.bytes_per_shard", default.bytes_per_shard),
        )

    def proposal(self, layout: Layout, loads: Sequence[Load], state_bytes: int) -> Proposal | None:
        """What to change about a layout, None for nothing. `loads` are the last intervals', oldest
        first, `state_bytes` is what the traces have in files."""
        own = [load for load in loads if load.epoch == layout.epoch]
        workers = len(layout.hosts) or DEFAULT_WORKERS
        wanted, reason = self._workers(workers, own)
        if wanted != workers:
            return Proposal(wanted, None, reason)
        return self._shards(layout, workers, state_bytes) if layout.hosts else None

    def _workers(self, workers: int, own: Sequence[Load]) -> tuple[int, str]:
        if workers < self.least_workers or workers > self.most_workers:
            bounded = min(max(workers, self.least_workers), self.most_workers)
            return bounded, f"{self.least_workers} to {self.most_workers} workers are asked for"
        last = own[-BEFORE_MORE:]
        if len(last) == BEFORE_MORE:
            busy = median(load.seconds for load in last) / self.target_seconds
            lag = min(load.lag_seconds for load in last)
            if busy > TOO_BUSY or lag > self.target_seconds:
                wanted = min(2 * workers, max(workers + 1, math.ceil(workers * busy / WANTED)))
                return min(wanted, self.most_workers), self._said(busy, lag, "at least")
        last = own[-BEFORE_FEWER:]
        if len(last) == BEFORE_FEWER:
            busy = max(load.seconds for load in last) / self.target_seconds
            lag = max(load.lag_seconds for load in last)
            if busy < TOO_IDLE and lag <= self.target_seconds:
                wanted = max(-(-workers // 2), math.ceil(workers * busy / WANTED))
                return max(wanted, self.least_workers), self._said(busy, lag, "at most")
        return workers, ""

    def _said(self, busy: float, lag: float, bound: str) -> str:
        return (
            f"intervals take {busy:.0%} of the {self.target_seconds:g} s between two, and what is "
            f"committed lags {bound} {lag:.0f} s"
        )

    def _shards(self, layout: Layout, workers: int, state_bytes: int) -> Proposal | None:
        shards = len(layout.owners)
        if state_bytes <= shards * self.bytes_per_shard or shards == BUCKETS:
            return None
        more = power_of_two(-(-state_bytes // self.bytes_per_shard))
        reason = f"{state_bytes:,} bytes of state are {state_bytes // shards:,} a shard"
        return Proposal(workers, Fixed(more), reason)
