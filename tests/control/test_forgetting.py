"""A source that is forgotten before there is a version: deployed, planned and run, with an engine and
topics that only keep a record of what they are asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from recording import Recording, opened, silent
from shop_project import installed, written

from lockstep import deploying
from lockstep.adapters.settings import Settings
from lockstep.adapters.sql_store import SqlStore
from lockstep.control import interval as stages
from lockstep.control.job import IntervalJob, IntervalResult
from lockstep.control.model import OffsetRange, TopicSlice
from lockstep.control.planning import plan
from lockstep.control.ports import PartitionBounds, Progress, TopicBounds
from lockstep.errors import SourceChanged

SQL = """
CREATE TABLE orders (a INT) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = 'b', subscribe = 'orders');
CREATE TABLE items (b INT) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = 'b', subscribe = 'items');
CREATE MATERIALIZED VIEW w AS SELECT a, b FROM orders JOIN items ON a = b;
"""


class Topics(Recording):
    """An engine that remembers what it read, over topics of one partition that can be made anew."""

    start_at_latest = frozenset[str]()

    def __init__(self) -> None:
        super().__init__()
        self.held = {"orders": 30, "items": 20}
        self.ids = {"orders": "id1", "items": "id1"}
        self.read: list[Mapping[str, tuple[str, OffsetRange]]] = []

    def bounds(self, source: str) -> TopicBounds:
        return TopicBounds(source, self.ids[source], (PartitionBounds(0, 0, self.held[source]),))

    def offsets_at(self, _: str, times: Sequence[datetime]) -> tuple[Mapping[int, int | None], ...]:
        return tuple({0: None} for _ in times)

    def run(self, job: IntervalJob, progress: Progress) -> IntervalResult:
        [division] = job.interval.divisions
        slices = [one for one in division.slices if isinstance(one, TopicSlice)]
        self.read.append({one.source: (one.topic_id, one.ranges[0]) for one in slices})
        return super().run(job, progress)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    found = installed(tmp_path / "home")
    deploying.deploy(written(tmp_path, SQL), found)
    return found


def test_a_topic_that_is_made_anew_before_the_first_version(
    tmp_path: Path, settings: Settings
) -> None:
    """Its interval is recorded, and was to read what is gone: it reads the other source alone."""
    engine = Topics()
    parts = replace(
        opened(tmp_path, engine),
        pipeline="shop",
        store=SqlStore(settings.store_url),
        source_names=("items", "orders"),
        outboxes={"w": "w_changes"},
    )
    assert plan(parts, None, silent).interval is not None
    engine.ids["orders"], engine.held["orders"] = "id2", 50
    with pytest.raises(SourceChanged, match="was deleted and made anew") as changed:
        stages.run(parts, silent)
    assert "lockstep reconcile DIR --forget orders" in changed.value.next_step

    deploying.reconcile("shop", settings, ("orders",))
    for _ in range(2):
        assert plan(parts, None, silent).interval is not None
        assert stages.run(parts, silent) is not None
    assert engine.read == [
        {"items": ("id1", OffsetRange(0, 0, 20))},
        {"items": ("id1", OffsetRange(0, 20, 20)), "orders": ("id2", OffsetRange(0, 0, 50))},
    ]
    state = parts.store.read("shop")
    assert state.version.number == 2
    assert {one.source for one in state.positions} == {"items", "orders"}
    assert plan(parts, None, silent).interval is None
