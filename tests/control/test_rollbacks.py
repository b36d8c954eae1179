"""A rollback, its replay, and the way back: what the store records, change by change."""

from __future__ import annotations

from dataclasses import replace

import pytest
from control_builders import FILES, SINKS, attempt, interval, life

from lockstep.adapters.memory_store import MemoryStore
from lockstep.control.changes import (
    AbandonAttempt,
    BeginAttempt,
    BeginReplay,
    Change,
    CommitVersion,
    Deploy,
    ForgetAttempts,
    IntendPublish,
    Landed,
    RecordInterval,
    RecordPublished,
    Rejected,
    RollBack,
    TrimSteps,
    UndoRollBack,
)
from lockstep.control.model import Attempt, AttemptState, PipelineState, Version

LAST = Version(4, "a3", 11, 0, {f"t{i}": 300 + i for i in range(3)})
"""The version that the fourth interval of `life` commits."""


class Recorded:
    """Four intervals of three steps each, or as many, versions 1 to 4 by a0 to a3, all published, none
    trimmed."""

    def __init__(self, *changes: Change, intervals: int = 4) -> None:
        self.store = MemoryStore()
        lived = life(intervals)
        self.land(*(c for c in lived if type(c).__name__ not in ("TrimVersions", "TrimSteps")))
        self.land(*changes)

    @property
    def state(self) -> PipelineState:
        return self.store.read("p")

    def land(self, *changes: Change) -> PipelineState:
        for change in changes:
            outcome = self.store.apply("p", change)
            assert isinstance(outcome, Landed), outcome
        return self.state

    def refusal(self, change: Change) -> str:
        outcome = self.store.apply("p", change)
        assert isinstance(outcome, Rejected), outcome
        return outcome.reason

    def replay(self, name: str) -> PipelineState:
        """Run the pending interval as the attempt `name`."""
        assert self.state.pending is not None
        return self.replay_up_to(self.state.pending.last_step, name)

    def replay_up_to(self, last: int, name: str) -> PipelineState:
        """Run the first steps of the pending interval, the last of them `last`."""
        state = self.state
        assert state.pending is not None
        first, base = state.pending.first_step, state.version
        version = Version(base.number + 1, name, last, 0, {"t0": 1000 + base.number})
        self.land(
            BeginAttempt(attempt(name, first, last, base.attempt)),
            CommitVersion(version, base.attempt),
        )
        return self.state

    def steps(self) -> tuple[int, int] | None:
        pending = self.state.pending
        return None if pending is None else (pending.first_step, pending.last_step)

    def ends(self) -> dict[str, AttemptState]:
        return {a.id: a.state for a in self.state.attempts if not a.id.startswith("dead")}


def test_later_versions_go_and_their_steps_are_pending_again_interval_by_interval() -> None:
    recorded = Recorded(RollBack(2, "a1"))
    state = recorded.state
    assert [v.number for v in state.versions] == [0, 1, 2]
    assert [(v.number, v.last_step) for v in state.dropped] == [(3, 8), (4, 11)]
    assert recorded.steps() == (6, 8)
    assert state.pending == interval(6, 3), "as the steps were recorded, the divisions stand"
    assert (state.next_step, state.output_step) == (12, 11)
    assert recorded.ends() == {
        "a0": AttemptState.COMMITTED,
        "a1": AttemptState.COMMITTED,
        "a2": AttemptState.DROPPED,
        "a3": AttemptState.DROPPED,
    }
    recorded.replay("r2")
    assert recorded.steps() == (9, 11)
    assert len(recorded.state.dropped) == 2, "there is a way back until all is replayed"
    state = recorded.replay("r3")
    assert (recorded.steps(), state.dropped) == (None, ())
    assert [(v.number, v.attempt) for v in state.versions[-2:]] == [(3, "r2"), (4, "r3")]


def test_an_interval_that_was_pending_is_pending_after_the_replay() -> None:
    recorded = Recorded(RecordInterval(interval(12, 2)), RollBack(3, "a2"))
    assert recorded.steps() == (9, 11)
    recorded.replay("r3")
    assert recorded.steps() == (12, 13)
    assert recorded.state.pending == interval(12, 2)


def test_a_second_rollback_goes_further_back_and_keeps_what_was_dropped_first() -> None:
    recorded = Recorded(RollBack(2, "a1"))
    recorded.replay("r2")
    state = recorded.land(RollBack(1, "a0"))
    assert [v.attempt for v in state.dropped] == ["a1", "a2", "a3"]
    assert recorded.ends()["r2"] is AttemptState.DROPPED
    assert recorded.steps() == (3, 5)


def test_a_rollback_can_be_taken_back_until_all_is_replayed() -> None:
    before = Recorded(RecordInterval(interval(12, 2))).state
    recorded = Recorded(RecordInterval(interval(12, 2)), RollBack(2, "a1"))
    recorded.replay("r2")
    recorded.land(BeginAttempt(attempt("r3", 9, 11, "r2")))
    after = recorded.land(UndoRollBack(4, "a3"))
    assert (after.versions, after.pending) == (before.versions, before.pending)
    assert after.dropped == ()
    ends = recorded.ends()
    assert (ends["a2"], ends["a3"]) == (AttemptState.COMMITTED, AttemptState.COMMITTED)
    assert (ends["r2"], ends["r3"]) == (AttemptState.DROPPED, AttemptState.ABANDONED)


def test_twice_is_harmless() -> None:
    recorded = Recorded(RollBack(2, "a1"))
    assert recorded.land(RollBack(2, "a1")) is recorded.state
    state = recorded.land(UndoRollBack(4, "a3"))
    assert recorded.land(UndoRollBack(4, "a3")) is state
    replaying = Attempt("b", 3, 8, "a0", AttemptState.REPLAYING)
    state = recorded.land(BeginReplay(replaying))
    assert recorded.land(BeginReplay(replaying)) is state


def test_a_number_that_comes_again_does_not_fool_an_attempt_of_before() -> None:
    """One attempt is at work on version 4, and a rollback makes another version 4 come."""
    recorded = Recorded(RecordInterval(interval(12, 2)))
    recorded.land(BeginAttempt(attempt("late", 12, 13, "a3")), RollBack(3, "a2"))
    recorded.replay("r3")
    assert recorded.state.version.number == 4
    late = CommitVersion(Version(5, "late", 13, 0, {"t0": 5}), "a3")
    assert recorded.refusal(late) == "only a running attempt commits; attempt late is abandoned"
    # A new attempt that believes in the version of before is refused by its base.
    assert "made by attempt r3, not the one made by attempt a3" in recorded.refusal(
        BeginAttempt(attempt("later", 12, 13, "a3"))
    )
    # Who has committed before, and asks again because no answer came, is not told that it landed.
    again = CommitVersion(LAST, "a2")
    assert recorded.refusal(again) == "only a running attempt commits; attempt a3 is dropped"


def test_sinks_stay_where_they_are_and_nothing_is_published_before_all_is_replayed() -> None:
    recorded = Recorded(RollBack(2, "a1"))
    assert [sink.published_step for sink in recorded.state.sinks] == [11, 11]
    recorded.replay("r2")
    assert "steps up to 11 are replayed after a rollback; sink v stays at step 11" in (
        recorded.refusal(IntendPublish("v", 12, 12))
    )
    recorded.replay("r3")
    assert "so sink v cannot publish up to 12" in recorded.refusal(IntendPublish("v", 12, 12))


def test_a_sink_that_moved_while_the_rollback_landed_says_so() -> None:
    changes = [c for c in life(4) if type(c).__name__ not in ("TrimVersions", "TrimSteps")]
    recorded = Recorded()
    recorded.store = MemoryStore()
    recorded.land(*changes[: -len(SINKS)], RollBack(3, "a2"))
    state = recorded.land(RecordPublished("v", 11))
    assert [(s.published_step, s.intent is None) for s in state.sinks] == [(11, True), (8, False)]
    assert "it is ahead of the record" in recorded.refusal(RecordPublished("v", 12))
    recorded.replay("r3")
    # The intent that was open goes on.
    recorded.land(IntendPublish("k", 9, 11), RecordPublished("k", 11))


@pytest.mark.parametrize(
    ("changes", "refused", "reason"),
    [
        (
            (),
            RollBack(2, "a9"),
            "version 2 by a9 is not kept; those kept are: 0 by no attempt, 1 by",
        ),
        ((), RollBack(7, "a2"), "version 7 by a2 is not kept"),
        (
            (),
            UndoRollBack(3, "a2"),
            "no rollback is under way: all that was dropped has been replayed",
        ),
        (
            (RollBack(2, "a1"),),
            UndoRollBack(3, "a2"),
            "the last version dropped is 4 by a3, not 3 by a2",
        ),
        (
            (RollBack(2, "a1"),),
            Deploy(replace(FILES, spec="other"), "i1", SINKS),
            "steps up to 11 are replayed after a rollback",
        ),
        ((RollBack(2, "a1"),), ForgetAttempts(("a3",)), "version 4 by attempt a3 is dropped"),
        ((RollBack(2, "a1"),), TrimSteps(10), "steps from 0 on are kept, because version 0"),
        (
            (RollBack(2, "a1"),),
            BeginAttempt(attempt("a3", 6, 8, "a1")),
            "an attempt's id is used once; a3 is dropped already",
        ),
        (
            (RollBack(2, "a1"),),
            BeginAttempt(attempt("r2", 6, 7, "a1")),
            "steps 6 to 8 are replayed after a rollback, whole as they were; attempt r2 ends at 7",
        ),
        (
            (RollBack(2, "a1"),),
            RecordInterval(interval(12, 1)),
            "steps 6 to 8 are pending with a division of their own",
        ),
        (
            (),
            BeginReplay(Attempt("b", 4, 8, "a0", AttemptState.REPLAYING)),
            "replay b begins at step 4, and no version kept, made by a0, ends at the step before",
        ),
        (
            (),
            BeginReplay(Attempt("b", 3, 12, "a0", AttemptState.REPLAYING)),
            "version 4 ends at step 11, so steps 3 to 12 cannot be replayed",
        ),
        (
            (),
            BeginReplay(Attempt("b", 3, 8, "a0")),
            "a replay begins replaying, not running",
        ),
        (
            (BeginReplay(Attempt("b", 3, 8, "a0", AttemptState.REPLAYING)),),
            ForgetAttempts(("b",)),
            "attempt b is replaying; only an ended one is forgotten",
        ),
    ],
)
def test_refusal_says_why(changes: tuple[Change, ...], refused: Change, reason: str) -> None:
    assert reason in Recorded(*changes).refusal(refused)


def test_versions_of_other_queries_are_not_gone_back_to() -> None:
    """Their steps ran through queries that are deployed no more, and one step made the state anew."""
    other = Deploy(replace(FILES, spec="other"), "i1", SINKS, rebuilds=True)
    recorded = Recorded(other)
    reason = recorded.refusal(RollBack(3, "a2"))
    assert "other queries are deployed, and no version holds their state yet" in reason
    replaying = Attempt("b", 3, 8, "a0", AttemptState.REPLAYING)
    assert "queries have changed since" in recorded.refusal(BeginReplay(replaying))
    recorded.land(RecordInterval(interval(12, 2)))
    recorded.replay("new")
    assert recorded.state.rebuilt_step == 13
    assert "have changed up to step 13" in recorded.refusal(RollBack(4, "a3"))
    assert "queries have changed since" in recorded.refusal(BeginReplay(replaying))
    recorded.land(RecordInterval(interval(14, 1)))
    recorded.replay("newer")
    recorded.land(RollBack(5, "new"))
    assert recorded.steps() == (14, 14)


def test_an_interval_that_made_state_anew_in_pieces_is_gone_back_to_as_a_whole() -> None:
    """Its later pieces ran without a source that was forgotten. They are recorded with its records, and
    the source has a position again by the time when they would be run once more."""
    recorded = Recorded(RecordInterval(interval(12, 4)))
    recorded.replay_up_to(12, "before")
    recorded.land(Deploy(FILES, "i1", SINKS, rebuilds=True, distrusted=("s",), sources=()))
    recorded.replay_up_to(13, "anew")
    recorded.replay_up_to(15, "rest")
    assert recorded.state.pending is None
    for piece, name in ((5, "before"), (6, "anew")):
        assert "have changed up to step 15" in recorded.refusal(RollBack(piece, name))
    replaying = Attempt("b", 14, 15, "anew", AttemptState.REPLAYING)
    assert "queries have changed since" in recorded.refusal(BeginReplay(replaying))
    recorded.land(RecordInterval(interval(16, 1)))
    recorded.replay("newer")
    recorded.land(RollBack(7, "rest"))
    assert recorded.steps() == (16, 16)


@pytest.mark.parametrize("intervals", [0, 4])
def test_an_interval_that_was_read_without_a_source_is_gone_back_to_as_a_whole(
    intervals: int,
) -> None:
    """Nothing is made anew where there is no version yet, or no view reads the source."""
    first = 3 * intervals
    recorded = Recorded(RecordInterval(interval(first, 4)), intervals=intervals)
    before = recorded.state.version
    recorded.land(Deploy(FILES, "i1", SINKS, sources=(), rebuilds=not intervals))
    assert recorded.state.replaced is None
    recorded.replay_up_to(first, "piece")
    whole = recorded.replay_up_to(first + 3, "rest").version
    recorded.land(RecordInterval(interval(first + 4, 1)))
    recorded.replay("newer")
    for number, name in ((before.number, before.attempt), (before.number + 1, "piece")):
        refusal = recorded.refusal(RollBack(number, name))
        assert f"have changed up to step {first + 3}" in refusal
    recorded.land(RollBack(whole.number, "rest"))
    assert recorded.steps() == (first + 4, first + 4)


def test_a_source_that_no_view_read_and_is_gone_limits_no_rollback_to_what_was_before() -> None:
    """Its slices are in none of the dropped versions' rows, whoever runs them again."""
    recorded = Recorded(Deploy(FILES, "i1", SINKS, sources=()), RollBack(3, "a2"))
    recorded.replay("again")
    assert recorded.state.rebuilt_step == -1
    recorded.land(RollBack(2, "a1"))
    assert recorded.steps() == (6, 8)


def test_a_rollback_whose_divisions_are_gone_is_refused() -> None:
    recorded = Recorded()
    log = recorded.store._divisions["p"]
    del log[7]
    assert "the divisions of steps 6 to 8 are needed to run them again, and 2 of them are kept" in (
        recorded.refusal(RollBack(2, "a1"))
    )


def test_a_replay_for_comparison_is_ended_and_given_up_by_whoever_comes_next() -> None:
    recorded = Recorded(BeginReplay(Attempt("b", 3, 8, "a0", AttemptState.REPLAYING)))
    recorded.land(AbandonAttempt("b"))
    assert recorded.ends()["b"] is AttemptState.ABANDONED
    recorded.land(
        BeginReplay(Attempt("c", 3, 8, "a0", AttemptState.REPLAYING)),
        BeginReplay(Attempt("d", 0, 2, "", AttemptState.REPLAYING)),
    )
    assert recorded.ends()["c"] is AttemptState.ABANDONED
    after = recorded.land(
        RecordInterval(interval(12, 1)), BeginAttempt(attempt("next", 12, 12, "a3"))
    )
    assert recorded.ends()["d"] is AttemptState.ABANDONED
    assert after.version.number == 4
