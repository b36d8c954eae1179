"""A pipeline goes back to an older version: the same bytes out, and no sink hears of a step twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import reader
from driven import own_settings
from long_lived import Totals
from pyiceberg.catalog import load_catalog

from lockstep import rolling_back, runtime
from lockstep.adapters.settings import Settings
from lockstep.adapters.sql_store import SqlStore
from lockstep.control.changes import Landed, SwapSnapshots
from lockstep.control.interval import Point
from lockstep.control.model import AttemptState, PipelineState
from lockstep.control.reports import Backfilled
from lockstep.errors import StateDiverged
from lockstep.runtime import Pipeline

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

OUTBOXES = ("customer_totals_changes", "countries_changes")


class Rolled(Totals):
    """The project `totals` at work in this process; `said` is all that its stages have said."""

    def __init__(self, settings: Settings, prefix: str) -> None:
        super().__init__(settings, prefix, seed=7)
        self.said: list[str] = []

    @property
    def state(self) -> PipelineState:
        return runtime.recorded(self.name, self.settings)

    def interval(self) -> None:
        """Send records, and advance over them."""
        self.change(rows=60)
        self.advance()

    def advance(self, reached: Callable[[Point], None] = lambda _: None) -> None:
        """Intervals until there is nothing more to do, as `lockstep run --once` does it."""
        with Pipeline(self.name, self.settings, reached) as pipeline:
            while pipeline.plan(None, self.said.append).interval is not None:
                pipeline.run(self.said.append)
            pipeline.publish(self.said.append)

    def roll_back(self, number: int | None) -> None:
        plan = rolling_back.plan_rollback(self.name, number, self.settings)
        rolling_back.roll_back(plan, self.settings, self.said.append)

    def rows(self, table: str) -> Counter[Any]:
        """All rows of a table as `main` shows it, `_weight` and `_step` too."""
        return Counter(tuple(row.items()) for row in reader.read_table(self.catalog, table))

    def refs(self, table: str) -> dict[str, int]:
        with Pipeline(self.name, self.settings) as pipeline:
            return dict(pipeline._opened().state.refs(table))

    def messages(self) -> list[tuple[int, Any]]:
        records = reader.read_topic(self.settings.kafka, f"{self._prefix}totals_out")
        return [(record.offset, record.value) for record in records]


@pytest.fixture
def totals(tmp_path: Path, spark_server: Any, broker: Any, database: str) -> Rolled:
    """Two intervals of the project, all published."""
    settings = own_settings(spark_server, broker, tmp_path / "home")
    made = Rolled(settings, f"{database}_")
    made.deploy(tmp_path / "project")
    for _ in range(2):
        made.interval()
    return made


def test_what_is_replayed_comes_out_as_it_was_and_goes_to_no_sink(totals: Rolled) -> None:
    totals.interval()
    before, outboxes = totals.state, {table: totals.rows(table) for table in OUTBOXES}
    views = {view: totals.refs(view)["main"] for view in ("customer_totals", "countries")}
    messages = totals.messages()
    totals.roll_back(1)
    rolled_back = totals.state
    assert [v.number for v in rolled_back.versions] == [0, 1]
    assert (rolled_back.next_step, rolled_back.sinks) == (before.next_step, before.sinks)

    with Pipeline("totals", totals.settings) as pipeline:
        first = pipeline.plan(None, totals.said.append).interval
        assert first is not None
        assert (first.first_step, first.last_step) == (
            before.versions[1].last_step + 1,
            before.versions[2].last_step,
        )
        pipeline.run(totals.said.append)
        pipeline.publish(totals.said.append)
    assert any("sinks stay where they are until that is done" in line for line in totals.said)
    for table, rows in outboxes.items():
        assert totals.rows(table) == rows, "readers of main see no step back"

    totals.said.clear()
    totals.advance()
    assert sum("compared, none of the views differ" in line for line in totals.said) == 1
    after = totals.state
    assert [v.number for v in after.versions] == [0, 1, 2, 3]
    assert after.version.last_step == before.version.last_step
    assert not {v.attempt for v in before.versions[2:]} & {v.attempt for v in after.versions}
    for table, rows in outboxes.items():
        assert totals.refs(table)["main"] == after.version.tables[table]
        assert totals.rows(table) == rows
    assert {view: totals.refs(view)["main"] for view in views} == views
    assert totals.messages() == messages

    with Pipeline("totals", totals.settings) as pipeline:
        pipeline.maintain(totals.said.append)
    replaced = {v.attempt for v in before.versions[2:]}
    for table in OUTBOXES:
        assert not [ref for ref in totals.refs(table) if ref.partition("_")[2] in replaced]
    assert not replaced & {attempt.id for attempt in totals.state.attempts}
    totals.interval()
    findings = totals.check(totals.sent)
    assert findings.clean, findings


def tamper(totals: Rolled, table: str, step: int) -> None:
    """Make a row of the step another one in the newest version's snapshot of an outbox."""
    version = totals.state.version
    with Pipeline("totals", totals.settings) as pipeline:
        parts = pipeline._opened()
        parts.state.open_branch(table, "tampered", version.tables[table])
        catalog = load_catalog(parts.catalog.name, **parts.catalog.pyiceberg)
        loaded = catalog.load_table((parts.catalog.database, table))
    rows = loaded.scan(f"_step = {step}", snapshot_id=version.tables[table]).to_arrow().to_pylist()
    rows[0]["best"] += 1
    loaded.delete(f"_step = {step}", branch="tampered")
    changed = pa.Table.from_pylist(rows, schema=loaded.schema().as_arrow())
    loaded.append(changed, {"lockstep.step": str(step)}, branch="tampered")
    swap = SwapSnapshots(
        version.number,
        version.attempt,
        {table: version.tables[table]},
        {table: totals.refs(table)["tampered"]},
        merged_from=version.attempt,
    )
    store = SqlStore(totals.settings.store_url)
    assert isinstance(store.apply("totals", swap), Landed)


def backfill(totals: Rolled, start: datetime, end: datetime) -> Backfilled:
    with Pipeline("totals", totals.settings) as pipeline:
        return pipeline.backfill(start, end, totals.said.append)


def test_a_backfill_compares_and_changes_nothing(totals: Rolled) -> None:
    before = totals.state
    refs = {table: totals.refs(table) for table in before.version.tables}
    with Pipeline("totals", totals.settings) as pipeline:
        divisions = pipeline.divisions(0, before.version.last_step)
        assert pipeline.is_published(divisions[-1].time)
        assert not pipeline.is_published(divisions[-1].time + timedelta(seconds=1))
    first, last = divisions[0].time, divisions[-1].time
    second = before.versions[1].last_step + 1

    found = backfill(totals, first, last)
    assert (found.first_step, found.last_step, found.jobs) == (second, before.version.last_step, 1)
    assert found.compared.differences == ()
    changed = [row for row, _ in rows_from(totals, "customer_totals_changes", second)]
    assert found.compared.rows["customer_totals"] == len(changed) > 0
    all_steps = backfill(totals, first - timedelta(seconds=1), last)
    assert (all_steps.first_step, all_steps.compared.differences) == (0, ())

    tamper(totals, "countries_changes", before.version.last_step)
    (difference,) = backfill(totals, first, last).compared.differences
    assert (difference.view, difference.step) == ("countries", before.version.last_step)
    assert (difference.missing, difference.unexpected) == (1, 1)

    after = totals.state
    assert replace(after.version, tables={}) == replace(before.version, tables={})
    assert (after.sinks, after.pending) == (before.sinks, before.pending)
    replays = after.attempts[len(before.attempts) :]
    assert [attempt.state for attempt in replays] == [AttemptState.ABANDONED] * 3
    for table, expected in refs.items():
        assert {n: s for n, s in totals.refs(table).items() if n != "tampered"} == expected


def rows_from(totals: Rolled, table: str, step: int) -> list[tuple[Any, int]]:
    return [(row, n) for row, n in totals.rows(table).items() if dict(row)["_step"] >= step]


def test_a_replay_that_gives_other_rows_is_refused_and_can_be_taken_back(totals: Rolled) -> None:
    """A row of the old output is changed: the replay is right, and what is published is not."""
    step = totals.state.version.last_step
    tamper(totals, "countries_changes", step)
    before = totals.state
    totals.roll_back(1)
    with pytest.raises(StateDiverged) as refused:
        totals.advance()
    assert f"step {step} of view countries was replayed, and gives other rows" in str(refused.value)
    assert '"best":' in refused.value.found
    assert "customer_totals" not in refused.value.found
    assert "lockstep rollback totals --undo" in refused.value.next_step
    after = totals.state
    assert after.version.number == 1
    assert after.attempts[-1].state is AttemptState.ABANDONED

    totals.roll_back(None)
    assert totals.state.versions == before.versions
    totals.interval()
    assert totals.state.version.number == 3


def test_a_replay_that_dies_right_after_its_commit_is_shown_by_the_next_run(totals: Rolled) -> None:
    """`main` still shows what the rollback dropped, and nothing says so but the attempts on record."""

    class Died(BaseException):
        pass

    def reached(at: Point) -> None:
        if at is Point.COMMIT_LANDED:
            raise Died

    outboxes = {table: totals.rows(table) for table in OUTBOXES}
    totals.roll_back(1)
    with pytest.raises(Died):
        totals.advance(reached)
    totals.interval()
    after = totals.state
    assert (after.version.number, after.dropped) == (3, ())
    for table, rows in outboxes.items():
        assert totals.refs(table)["main"] == after.version.tables[table]
        assert rows <= totals.rows(table)
    findings = totals.check(totals.sent)
    assert findings.clean, findings
