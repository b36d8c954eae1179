"""A pipeline that is scaled: between intervals, and under one that fails; then its store is lost."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import reader
from driven import own_settings
from long_lived import Totals

from lockstep import scaling
from lockstep.adapters.iceberg import IcebergState
from lockstep.adapters.sql_store import SqlStore
from lockstep.control.interval import Point
from lockstep.control.layout.layouts import ReplaceHost
from lockstep.control.layout.scaling import scaled
from lockstep.control.layout.sharding import Fixed
from lockstep.control.model import AttemptState, PipelineState
from lockstep.doctor import rebuild
from lockstep.runtime import Pipeline, recorded

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


class Died(Exception):
    """Stands for the death of the process: nothing of the stage's own code catches it."""


class Scaled(Totals):
    """`said` is what the stages said."""

    def scale(self, workers: int, hosts: int | None = None, *, at_once: bool = False) -> None:
        def changes(newest: Any) -> Any:
            return scaled(newest, workers, hosts, Fixed(16))

        plan = scaling.plan_change("totals", changes, self.settings, at_once=at_once)
        scaling.change(plan, self.settings)

    def interval(self) -> PipelineState:
        self.change(rows=80)
        with Pipeline("totals", self.settings) as pipeline:
            pipeline.plan(None, print)
            pipeline.run(print)
            pipeline.publish(print)
        return recorded("totals", self.settings)

    def logged(self) -> list[tuple[int, int]]:
        """Epoch and first step of the layouts that the tables know of."""
        rows = reader.read_table(self.catalog, "_layouts")
        return sorted((int(str(row["epoch"])), int(str(row["from_step"]))) for row in rows)


def test_rows_are_right_under_every_layout_and_the_tables_know_them_all(
    tmp_path: Path, spark_server: Any, broker: Any, database: str
) -> None:
    settings = own_settings(spark_server, broker, tmp_path / "home")
    totals = Scaled(settings, f"{database}_", seed=11)
    totals.deploy(tmp_path / "project")
    first = totals.interval()
    assert first.version.layout_epoch == 0
    totals.scale(3, hosts=2)
    second = totals.interval()
    assert (second.version.layout_epoch, second.layout.epoch) == (1, 1)

    # An interval that does not get through: the next attempt runs under another layout.
    totals.change(rows=80)

    def reached(point: Point) -> None:
        if point is Point.RUN_APPENDED:
            raise Died

    with Pipeline("totals", settings, reached) as pipeline:
        pipeline.plan(None, print)
        with pytest.raises(Died):
            pipeline.run(print)
        totals.scale(5)
        assert recorded("totals", settings).layout.epoch == 1, "it waits for the interval"
        totals.scale(5, at_once=True)
    state = recorded("totals", settings)
    assert state.layout.epoch == 2
    assert state.attempts[-1].state is AttemptState.ABANDONED
    third = totals.interval()
    assert third.version.layout_epoch == 2

    plan = scaling.plan_change(
        "totals", lambda _: (ReplaceHost("host-0", "new"),), settings, at_once=False
    )
    scaling.change(plan, settings)
    totals.scale(1)
    totals.interval()
    last = totals.interval()
    assert last.version.layout_epoch == 4
    steps = {one.layout.epoch: one.from_step for one in last.layouts}
    assert totals.logged() == [(epoch, steps[epoch]) for epoch in (1, 2, 3, 4)]
    findings = totals.check(totals.sent)
    assert findings.clean, findings

    lost = Path(SqlStore(settings.store_url)._engine.url.database or "")
    for file in lost.parent.glob(f"{lost.name}*"):
        file.unlink()
    again = rebuild(str(tmp_path / "project"), settings)
    assert again.layouts == last.layouts
    assert (again.version.layout_epoch, again.first_counts) == (4, last.first_counts)
    totals.scale(2)
    assert totals.interval().version.layout_epoch == 5
    findings = totals.check(totals.sent)
    assert findings.clean, findings
    assert refs_of(totals)["_layouts"]


def refs_of(totals: Totals) -> Mapping[str, Mapping[str, int]]:
    """By table; the root of each is pinned."""
    state = IcebergState(totals.catalog)
    found = {table: state.refs(table) for table in state.tables()}
    assert all("root" in refs for table, refs in found.items() if table.startswith("_"))
    return found
