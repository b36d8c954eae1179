"""The recorded state from what tables and sinks say, and when it may be recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from control_builders import FILES, SINKS, at, interval, life, slice_of, store_url

from lockstep.adapters.memory_store import MemoryStore
from lockstep.adapters.sql_store import SqlStore
from lockstep.control.changes import Landed, RecordInterval, Rejected, Restore
from lockstep.control.model import (
    Attempt,
    AttemptState,
    Intent,
    Interval,
    TableSlice,
)
from lockstep.control.ports import Store
from lockstep.control.positions import positions_logged
from lockstep.control.restoring import Pinned, newest_pinned, restored
from lockstep.errors import StateDiverged

NEEDED = {"_trace_a", "v_changes"}
SUMMARY = {"lockstep.step": "5", "lockstep.incarnation": "i1", "lockstep.layout": "0"}
PINNED = Pinned(2, "a1", {"_trace_a": 20, "v_changes": 21})
DIVISIONS = interval(0, 6).divisions
MADE = Attempt("a1", 5, 5, "", AttemptState.COMMITTED)


def restore(*steps: int, shown: Iterable[Mapping[str, str]] = ()) -> Restore:
    """From sinks at these steps."""
    sinks = tuple(replace(s, published_step=n) for s, n in zip(SINKS, steps, strict=True))
    summaries = {"_trace_a": {**SUMMARY, "lockstep.step": "4"}, "v_changes": SUMMARY}
    return restored("p", FILES, PINNED, summaries, DIVISIONS, sinks, shown)


def test_the_newest_version_that_all_needed_tables_pin() -> None:
    refs = {
        "_trace_a": {"v1_a0": 10, "v2_a1": 20, "v3_a2": 30, "main": 30},
        "v_changes": {"v1_a0": 11, "v2_a1": 21, "attempt_a2": 31},
        "v": {"lockstep": 5},
    }
    assert newest_pinned(refs, NEEDED, "p") == PINNED
    with pytest.raises(StateDiverged) as lacking:
        newest_pinned({"_trace_a": refs["_trace_a"]}, NEEDED, "p")
    assert lacking.value.found == "no table v_changes"
    with pytest.raises(StateDiverged) as partly:
        newest_pinned({"_trace_a": {"v1_a0": 1}, "v_changes": {"v2_a1": 2}}, NEEDED, "p")
    assert partly.value.found == "2 versions in part"


def test_a_version_that_a_run_has_pinned_on_some_tables_is_passed_over() -> None:
    """Any tables: those of errors, too, of which the next version would begin with nothing."""
    refs = {
        "_trace_a": {"v1_a0": 10, "v2_a1": 20, "v3_a2": 30},
        "v_changes": {"v1_a0": 11, "v2_a1": 21, "v3_a2": 31},
        "s_errors": {"v2_a1": 22},
        "gone_errors": {"v1_a0": 13},
    }
    found = newest_pinned(refs, NEEDED, "p", {"s_errors", "s_late"})
    assert (found.number, found.attempt) == (2, "a1")
    assert found.tables == {"_trace_a": 20, "v_changes": 21, "s_errors": 22}
    assert newest_pinned(refs, NEEDED, "p").number == 3


def test_what_such_a_version_shows_on_main_may_be_left() -> None:
    """Else whatever is divided anew could never be shown."""
    shown = [
        {"lockstep.attempt": "a2", "lockstep.step": "8"},
        {"lockstep.merge": "swap_a1_m", "lockstep.step": "5"},
        {"lockstep.attempt": "a1", "lockstep.step": "5"},
        {"lockstep.attempt": "a0", "lockstep.step": "2"},
        {"lockstep.attempt": "b1", "lockstep.step": "5"},
    ]
    assert restore(5, 5, shown=shown).state.attempts == (
        Attempt("a0", 2, 2, "a1", AttemptState.DROPPED),
        MADE,
        Attempt("a2", 6, 8, "a1", AttemptState.DROPPED),
        Attempt("b1", 5, 5, "a1", AttemptState.DROPPED),
    )
    assert restore(5, 5).state.attempts == (MADE,)


def test_rows_that_a_topic_may_hold_beyond_its_markers_are_intended() -> None:
    """So that where a marker is forgotten the topic itself is asked: of the intent only the store knew,
    which is lost."""
    view, topic = restore(3, 3).state.sinks
    assert (view.intent, topic.intent) == (None, Intent(4, 5))
    assert restore(5, 5).state.sinks[1].intent is None
    assert restore(5, -1).state.sinks[1].intent == Intent(0, 5)


def test_what_is_restored() -> None:
    change = restore(5, 3)
    state = change.state
    assert (state.incarnation, state.next_step, state.last_time) == ("i1", 6, at(5))
    assert (state.version.number, state.version.attempt, state.version.last_step) == (2, "a1", 5)
    assert state.positions == (slice_of("s", (0, 0, 60), (1, 0, 60)),)
    assert state.oldest_step == 3
    assert [division.step for division in change.divisions] == [3, 4, 5]
    assert state.pending is None


def test_a_sink_that_is_further_than_any_pinned_version_is_refused() -> None:
    with pytest.raises(StateDiverged, match="sink k of pipeline p is beyond"):
        restore(5, 6)


def test_a_log_without_the_last_step_is_refused() -> None:
    with pytest.raises(StateDiverged, match="the step log lacks step 5"):
        restored("p", FILES, PINNED, {"t": SUMMARY}, DIVISIONS[:5], SINKS)


@pytest.fixture(params=["memory", "sql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else SqlStore(store_url(tmp_path))


def test_a_store_that_has_lost_the_pipeline_has_it_again(store: Store) -> None:
    change = restore(5, 3)
    assert isinstance(store.apply("p", change), Landed)
    assert store.read("p") == change.state
    assert store.divisions("p", 0, 9) == change.divisions
    assert isinstance(store.apply("p", change), Landed)
    assert store.read("p").revision == change.state.revision


def test_an_old_backup_is_brought_up(store: Store) -> None:
    for change in life(1):
        assert isinstance(store.apply("p", change), Landed)
    newer = restore(5, 5)
    assert isinstance(store.apply("p", newer), Landed)
    found = store.read("p")
    assert replace(found, revision=1) == newer.state
    assert [division.step for division in store.divisions("p", 0, 9)] == [5]


def test_steps_that_a_backup_has_beyond_the_version_restored_are_divided_anew(store: Store) -> None:
    """It was taken within an interval that runs in pieces, of which the first is pinned."""
    for change in (*life(1), RecordInterval(with_a_table(interval(3, 6)))):
        assert isinstance(store.apply("p", change), Landed)
    assert isinstance(store.apply("p", restore(5, 5)), Landed)
    assert [division.step for division in store.divisions("p", 0, 9)] == [5]
    anew = with_a_table(interval(6, 2))
    outcome = store.apply("p", RecordInterval(anew))
    assert isinstance(outcome, Landed)
    assert store.read("p").pending == anew
    assert store.divisions("p", 6, 9) == anew.divisions


def with_a_table(divided: Interval) -> Interval:
    """One that is followed, too, from the interval's first step on: a snapshot a step."""
    starts = [None, *range(divided.first_step, divided.last_step)]
    return Interval(
        tuple(
            replace(one, slices=(*one.slices, TableSlice("t", "shop.t", "id", start, one.step, 1)))
            for one, start in zip(divided.divisions, starts, strict=True)
        )
    )


def test_a_store_that_knows_more_is_left_as_it_is(store: Store) -> None:
    for change in life(3):
        assert isinstance(store.apply("p", change), Landed)
    outcome = store.apply("p", restore(5, 5))
    assert isinstance(outcome, Rejected)
    assert outcome.reason == (
        "the store has version 3, up to step 8; the tables say 2, up to step 5"
    )


def test_another_life_of_the_pipeline_is_left_as_it_is(store: Store) -> None:
    for change in life(1):
        store.apply("p", change)
    other = restore(5, 5)
    other = replace(other, state=replace(other.state, incarnation="i9"))
    outcome = store.apply("p", other)
    assert isinstance(outcome, Rejected)
    assert "another life of p" in outcome.reason


def test_positions_begin_where_a_source_came_back() -> None:
    first, gone, again = (
        replace(DIVISIONS[0], slices=(slice_of("s", (0, 0, 4)),)),
        replace(DIVISIONS[1], slices=()),
        replace(DIVISIONS[2], slices=(slice_of("s", (0, 1, 9), topic_id="id2"),)),
    )
    assert positions_logged((first, gone, again)) == (again.slices, {"s": 1})
    forgotten = replace(DIVISIONS[1], slices=(slice_of("s", (0, 7, 9)),))
    assert positions_logged((first, forgotten)) == (forgotten.slices, {"s": 1})
