"""Tables that know more than the store: nothing is run, and nothing is committed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from control_builders import FILES

from lockstep.control.model import Attempt, AttemptState, PipelineState, Version
from lockstep.control.ports import Marker, ViewHead
from lockstep.control.unrecorded import require_recorded
from lockstep.errors import StateDiverged
from lockstep.ids import STEPS_TABLE

OUTBOXES = ("a_changes", "v_changes")
ENDS_AT_5 = PipelineState(
    "p", "i1", 1, FILES, versions=(Version(2, "a1", 5, 0, {STEPS_TABLE: 1, "v_changes": 2}),)
)
NEW = PipelineState("p", "i1", 1, FILES)


class Told:
    """A catalog and a store: tables by (incarnation, step), and the state that is recorded by now."""

    def __init__(self, state: PipelineState, **tables: tuple[str, int]) -> None:
        self.state, self.tables, self.asked = state, tables, list[str]()

    def view_head(self, table: str) -> ViewHead | None:
        self.asked.append(table)
        if table not in self.tables:
            return None
        incarnation, step = self.tables[table]
        if step < 0:
            raise StateDiverged("somebody has changed rows")
        return ViewHead(7, 1, Marker(7, step, incarnation, None), (), ())

    def summary(self, _: str, snapshot_id: int) -> dict[str, str]:
        assert snapshot_id == 7
        return {"lockstep.attempt": "a2"}

    def read(self, _: str) -> PipelineState:
        self.asked.append("the store")
        return self.state


def look(told: Told, recorded: PipelineState = ENDS_AT_5) -> None:
    double: Any = told
    require_recorded(recorded, double, double, OUTBOXES)


def test_one_look_at_the_step_log_is_enough() -> None:
    told = Told(ENDS_AT_5, _steps=("i1", 5))
    look(told)
    assert told.asked == [STEPS_TABLE]
    behind = Told(ENDS_AT_5, _steps=("i1", 2))
    look(behind)
    # A pipeline without sources has none.
    unlogged = replace(ENDS_AT_5, versions=(Version(2, "a1", 5, 0, {"v_changes": 2}),))
    other = Told(unlogged)
    look(other, unlogged)
    assert other.asked == []
    every = replace(unlogged, versions=(Version(2, "a1", 5, 0, {"a_changes": 2}),))
    look(told := Told(every, a_changes=("i1", 5)), every)
    assert told.asked == ["a_changes"]


def test_steps_that_are_not_recorded_are_an_old_backup() -> None:
    with pytest.raises(StateDiverged, match="which is an old backup") as refused:
        look(Told(ENDS_AT_5, _steps=("i1", 8)))
    assert refused.value.expected == "tables up to step 5, where version 2 ends"
    assert refused.value.found == "step 8 in _steps"
    assert refused.value.next_step == "lockstep doctor DIR --rebuild"


def test_a_run_that_was_overtaken_reads_again() -> None:
    told = Told(replace(ENDS_AT_5, versions=(Version(3, "a2", 8, 0, {}),)), _steps=("i1", 8))
    look(told)
    assert told.asked == [STEPS_TABLE, "the store"]


def test_what_a_rollback_has_dropped_is_recorded() -> None:
    look(Told(NEW, _steps=("i1", 8)), replace(ENDS_AT_5, dropped=(Version(3, "a2", 8, 0, {}),)))
    dropped = Attempt("a2", 6, 8, "a1", AttemptState.DROPPED)
    look(Told(replace(ENDS_AT_5, attempts=(dropped,)), _steps=("i1", 8)))


def test_a_new_life_does_not_begin_on_the_tables_of_another() -> None:
    look(told := Told(NEW), NEW)
    assert told.asked == ["_steps", "_table_steps", "a_changes", "v_changes"]
    for table in told.asked:
        with pytest.raises(StateDiverged, match=f"table {table} belongs to another") as refused:
            look(Told(NEW, **{table: ("i0", 8)}), NEW)
        assert refused.value.found == "incarnation i0, at step 8"
        assert "lockstep doctor DIR --rebuild" in refused.value.next_step


def test_what_somebody_has_done_to_main_is_found_out_elsewhere() -> None:
    look(Told(ENDS_AT_5, _steps=("i1", -1)))
