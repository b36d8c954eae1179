"""Layouts as they are kept: the step from which each holds, and its text for databases and tables.

Owners are written as ranges of the hash space, which say nothing of how many shards there are: that
follows from the sharding and the workers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from lockstep.control.layout.layouts import Layout
from lockstep.control.layout.sharding import BUCKETS, NOBODY, Dynamic, Fixed, Sharding

__all__ = ["FIRST", "HASH", "LayoutRecord", "LoggedLayout", "in_effect", "layout_of", "text_of"]

HASH = "xxhash64"
"""The function of the key's values that a bucket is of: Spark's, its 16 most significant bits."""


@dataclass(frozen=True)
class LayoutRecord:
    """A layout, and the first step that runs under it; None while it waits for the interval under way
    to be committed."""

    layout: Layout
    from_step: int | None

    @property
    def logged(self) -> LoggedLayout:
        """The same as it is written; asked for of one that does not wait."""
        assert self.from_step is not None, "who logs it runs under it, or under a later one"
        return LoggedLayout(self.layout.epoch, self.from_step, text_of(self.layout))


@dataclass(frozen=True)
class LoggedLayout:
    """A layout as a row beside the output that was made under it: `text` is that of `text_of`."""

    epoch: int
    from_step: int
    text: str

    @property
    def record(self) -> LayoutRecord:
        """What it says."""
        return LayoutRecord(layout_of(self.epoch, self.text), self.from_step)


FIRST = LayoutRecord(Layout(), 0)
"""Every pipeline's first: no workers, as many tasks as Spark sees fit."""


def in_effect(records: Iterable[LayoutRecord]) -> Layout:
    """The newest layout that does not wait; `records` are all, by epoch."""
    return [record.layout for record in records if record.from_step is not None][-1]


def text_of(layout: Layout) -> str:
    """A layout without its epoch, as JSON; equal ones give equal text."""
    sharding: Mapping[str, object]
    match layout.sharding:
        case Fixed(shards):
            sharding = {"fixed": shards}
        case Dynamic(inaccuracy):
            sharding = {"dynamic": str(inaccuracy)}
    held = {
        "hash": HASH,
        "sharding": sharding,
        "hosts": {str(worker): host for worker, host in sorted(layout.hosts.items())},
        "ranges": [[one.low, one.high, one.worker] for one in layout.ranges],
    }
    return json.dumps(held, ensure_ascii=False)


def layout_of(epoch: int, text: str) -> Layout:
    """The layout that a text says."""
    held = json.loads(text)
    hosts = {int(worker): host for worker, host in held["hosts"].items()}
    sharding = _sharding(held["sharding"])
    width = BUCKETS // sharding.count(len(hosts))
    owners = [NOBODY] * sharding.count(len(hosts))
    for low, high, worker in held["ranges"]:
        owners[low // width : high // width] = [worker] * ((high - low) // width)
    return Layout(epoch, sharding, hosts, tuple(owners))


def _sharding(held: Mapping[str, Any]) -> Sharding:
    return Fixed(held["fixed"]) if "fixed" in held else Dynamic(Fraction(held["dynamic"]))
