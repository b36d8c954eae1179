"""What each change does, and how its refusal reads: one case for every precondition."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta, timezone

import pytest
from control_builders import FILES, SINKS, T0, at, attempt, deploy, interval, life, slice_of

from lockstep.control.changes import (
    AbandonAttempt,
    BeginAttempt,
    Change,
    CommitVersion,
    Deploy,
    ForgetAttempts,
    IntendPublish,
    RecordInterval,
    RecordPublished,
    RefuseAttempt,
    ReleaseLease,
    SetDesired,
    SwapSnapshots,
    TakeLease,
    TrimSteps,
    TrimVersions,
)
from lockstep.control.model import (
    AttemptState,
    Division,
    Intent,
    Interval,
    PipelineState,
    Replaced,
    RunState,
    RunStatus,
    SinkState,
    TopicSlice,
    Version,
)
from lockstep.control.transitions import Precondition, apply


def after(*changes: Change) -> PipelineState:
    state = None
    for change in changes:
        state = apply(state, change, name="p")
    assert state is not None
    return state


RECORDED = (deploy(), RecordInterval(interval(0, 3)))
BEGUN = (*RECORDED, BeginAttempt(attempt("a", 0, 2)))
VERSION = Version(1, "a", 2, 0, {"t": 7})
COMMITTED = (*BEGUN, CommitVersion(VERSION, ""))
INTENDED = (*COMMITTED, IntendPublish("v", 0, 2))
ABANDONED = (*BEGUN, AbandonAttempt("a"))


OTHER = Deploy(replace(FILES, spec="other"), "i1", SINKS, rebuilds=True, distrusted=("s",))
MORE = (*COMMITTED, RecordInterval(interval(3, 2)))


def step_three(*slices: TopicSlice, time: float = 3) -> RecordInterval:
    return RecordInterval(Interval((Division(3, at(time), slices),)))


CONTINUED = slice_of("s", (0, 30, 31), (1, 30, 30))

REFUSALS: list[tuple[str, tuple[Change, ...], Change, str]] = [
    ("none", (), SetDesired(RunState.PAUSE), "no pipeline p is deployed"),
    (
        "step that is recorded",
        RECORDED,
        SetDesired(RunState.STOP, 2),
        "steps up to 2 are recorded, so the pipeline cannot stop before step 2",
    ),
    ("pause at a step", RECORDED, SetDesired(RunState.PAUSE, 7), "to pause names no step, not 7"),
    ("past a stop", (*COMMITTED, SetDesired(RunState.STOP)), MORE[-1], "stops before step 3"),
    ("incarnation", (), deploy(""), "the first deploy of p needs an incarnation"),
    ("two sinks", (), Deploy(FILES, "i", (SINKS[0], SINKS[0])), "sink v is there twice"),
    (
        "sink ahead",
        (deploy(),),
        Deploy(FILES, "i", (SinkState("n", "v", "kafka", 0),)),
        "new sink n enters between step -1 and the last committed step -1, without an intent, "
        "not at step 0",
    ),
    (
        "sink turned",
        (deploy(),),
        Deploy(FILES, "i", (SinkState("k", "w", "kafka"),)),
        "sink k publishes view v to kafka by the record, the deploy says view w to kafka",
    ),
    ("no holder", (deploy(),), TakeLease("", at(0), at(1)), "a lease needs a holder"),
    ("lease ends", (deploy(),), TakeLease("x", at(1), at(1)), "a lease ends after 2026-01-01"),
    (
        "lease held",
        (deploy(), TakeLease("x", at(0), at(10))),
        TakeLease("y", at(9), at(20)),
        "the lease is held by x until 2026-01-01 00:00:10+00:00, now is 2026-01-01 00:00:09",
    ),
    (
        "fine time",
        (deploy(),),
        TakeLease("x", at(0), at(0.0001)),
        "the end of the lease must be UTC and cut to milliseconds, not 2026-01-01T00:00:00.000100",
    ),
    (
        "other zone",
        (deploy(),),
        TakeLease("x", T0.astimezone(timezone(timedelta(hours=1))), at(1)),
        "the time of the lease must be UTC",
    ),
    (
        "another pending",
        RECORDED,
        RecordInterval(interval(0, 2)),
        "steps 0 to 2 are pending with a division of their own, so 0 to 1 cannot be recorded",
    ),
    (
        "gap in steps",
        (deploy(),),
        RecordInterval(interval(1, 1)),
        "the next step is 0, the interval starts at 1",
    ),
    (
        "recorded before",
        COMMITTED,
        RecordInterval(interval(0, 3)),
        "the next step is 3, the interval starts at 0",
    ),
    (
        "divided before a source was forgotten",
        (*COMMITTED, Deploy(FILES, "i1", SINKS, sources=(), rebuilds=True)),
        RecordInterval(interval(3, 2), after(*COMMITTED).positions),
        "a source was forgotten or dropped meanwhile",
    ),
    (
        "time back",
        COMMITTED,
        step_three(CONTINUED, time=1),
        "the last recorded step is of 2026-01-01 00:00:02+00:00, step 3 cannot be of",
    ),
    ("no source", COMMITTED, step_three(), "step 3 has no slice of source s"),
    (
        "gap in offsets",
        COMMITTED,
        step_three(slice_of("s", (0, 31, 32), (1, 30, 30))),
        "step 3, source s, partition 0: the next offset is 30, the range starts at 31",
    ),
    (
        "overlap",
        COMMITTED,
        step_three(slice_of("s", (0, 30, 30), (1, 29, 32))),
        "step 3, source s, partition 1: the next offset is 30, the range starts at 29",
    ),
    (
        "partition gone",
        COMMITTED,
        step_three(slice_of("s", (0, 30, 31))),
        "step 3, source s: partition 1 is recorded and has vanished from the division",
    ),
    (
        "topic anew",
        COMMITTED,
        step_three(slice_of("s", (0, 30, 31), (1, 30, 30), topic_id="id2")),
        "recorded for topic topic_s with id id1, the division is of topic_s with id id2",
    ),
    (
        "no partition",
        COMMITTED,
        step_three(CONTINUED, slice_of("z")),
        "step 3, source z: a topic has at least one partition",
    ),
    (
        "sources unsorted",
        COMMITTED,
        step_three(CONTINUED, slice_of("a", (0, 0, 1))),
        "the sources of step 3 must be sorted, each once, not s, a",
    ),
    (
        "partitions twice",
        COMMITTED,
        step_three(CONTINUED, slice_of("z", (0, 0, 1), (0, 1, 2))),
        "the partitions of step 3, source z must be sorted, each once, not 0, 0",
    ),
    (
        "not pending",
        (deploy(),),
        BeginAttempt(attempt("a", 0, 2)),
        "no interval is pending, attempt a is at steps 0 to 2",
    ),
    (
        "other steps",
        RECORDED,
        BeginAttempt(attempt("a", 0, 3)),
        "steps 0 to 2 are pending, attempt a is at 0 to 3",
    ),
    (
        "begun otherwise",
        RECORDED,
        BeginAttempt(replace(attempt("a", 0, 2), state=AttemptState.REFUSED)),
        "an attempt begins running, not 'a' refused",
    ),
    (
        "id used",
        ABANDONED,
        BeginAttempt(attempt("a", 0, 2)),
        "an attempt's id is used once; a is abandoned already",
    ),
    (
        "id of a version",
        (*COMMITTED, ForgetAttempts(("a",)), step_three(CONTINUED)),
        BeginAttempt(attempt("a", 3, 3, "a")),
        "an attempt's id is used once; a has made version 1",
    ),
    (
        "wrong base",
        RECORDED,
        BeginAttempt(attempt("a", 0, 2, "z")),
        "the newest version is 0, made by no attempt (it is empty), not the one made by attempt z",
    ),
    (
        "commit unknown",
        RECORDED,
        CommitVersion(VERSION, ""),
        "only a running attempt commits; attempt a is not on record",
    ),
    (
        "commit of an abandoned one",
        (*BEGUN, BeginAttempt(attempt("b", 0, 2))),
        CommitVersion(VERSION, ""),
        "only a running attempt commits; attempt a is abandoned",
    ),
    (
        "other base",
        BEGUN,
        CommitVersion(VERSION, "z"),
        "attempt a opened the version made by no attempt (it is empty), the commit says attempt z",
    ),
    (
        "number",
        BEGUN,
        CommitVersion(replace(VERSION, number=2), ""),
        "the next version is 1, the commit says 2",
    ),
    (
        "epoch",
        BEGUN,
        CommitVersion(replace(VERSION, layout_epoch=-1), ""),
        "layout 0 is in effect, the commit says -1",
    ),
    (
        "last step",
        BEGUN,
        CommitVersion(replace(VERSION, last_step=1), ""),
        "attempt a ends at step 2, the commit says 1",
    ),
    (
        "other content",
        COMMITTED,
        CommitVersion(replace(VERSION, tables={"t": 8}), ""),
        "attempt a has committed version 1 already, up to step 2, and not with the content",
    ),
    (
        "abandon a committed one",
        COMMITTED,
        AbandonAttempt("a"),
        "only a running attempt becomes abandoned; attempt a is committed",
    ),
    (
        "refuse an abandoned one",
        ABANDONED,
        RefuseAttempt("a"),
        "only a running attempt becomes refused; attempt a is abandoned",
    ),
    ("forget a running one", BEGUN, ForgetAttempts(("a",)), "attempt a is running; only an ended"),
    (
        "no sink",
        COMMITTED,
        IntendPublish("x", 0, 2),
        "pipeline p has no sink x; its sinks are: k, v",
    ),
    (
        "not next",
        COMMITTED,
        IntendPublish("v", 1, 2),
        "sink v is at step -1, so steps 1 to 2 are not the next to publish",
    ),
    ("empty intent", COMMITTED, IntendPublish("v", 0, -1), "steps 0 to -1 are not the next"),
    (
        "not committed",
        COMMITTED,
        IntendPublish("v", 0, 3),
        "version 1 ends at step 2, so sink v cannot publish up to 3",
    ),
    (
        "shrunk",
        INTENDED,
        IntendPublish("v", 0, 1),
        "sink v has an open intent up to step 2, rows of which may be out; it cannot shrink to 1",
    ),
    (
        "intended by another",
        INTENDED,
        IntendPublish("v", 0, 2, is_resumed=False),
        "sink v has an open intent by now, which the publish has not seen",
    ),
    (
        "resumed by another",
        COMMITTED,
        IntendPublish("v", 0, 2, is_resumed=True),
        "sink v has no open intent by now, which the publish has not seen",
    ),
    (
        "sink ahead of the record",
        COMMITTED,
        RecordPublished("v", 3),
        "version 1 ends at step 2, but sink v says that it holds step 3: it is ahead",
    ),
    (
        "swap of another version",
        COMMITTED,
        SwapSnapshots(1, "z", {"t": 7}, {"t": 8}, "a"),
        "the newest version is 1, made by attempt a; the swap is for 1, made by attempt z",
    ),
    (
        "swap of other snapshots",
        COMMITTED,
        SwapSnapshots(1, "a", {"t": 6}, {"t": 8}, "a"),
        "version 1 holds snapshot 7 of t, the swap expects 6",
    ),
    (
        "swap of other tables",
        COMMITTED,
        SwapSnapshots(1, "a", {"t": 7}, {"u": 8}, "a"),
        "it expects t, and replaces u",
    ),
    (
        "swap under an attempt",
        (*COMMITTED, RecordInterval(interval(3, 3)), BeginAttempt(attempt("b", 3, 5, "a"))),
        SwapSnapshots(1, "a", {"t": 7}, {"t": 8}, "a"),
        "attempt b is running and has opened version 1 with the snapshots that the swap would replace",
    ),
    ("retain", COMMITTED, TrimVersions(1), "at least 2 versions are kept, not 1"),
    (
        "trim what a version needs",
        COMMITTED,
        TrimSteps(1),
        "steps from 0 on are kept, because version 0 can still be opened",
    ),
    (
        "trim what a sink needs",
        (*life(3), TrimVersions(2))[:-7],
        TrimSteps(3),
        "steps from 0 on are kept",
    ),
]


@pytest.mark.parametrize(
    ("before", "change", "reason"), [case[1:] for case in REFUSALS], ids=[c[0] for c in REFUSALS]
)
def test_refusal_says_why(before: tuple[Change, ...], change: Change, reason: str) -> None:
    state = after(*before) if before else None
    with pytest.raises(Precondition) as refused:
        apply(state, change, name="p")
    assert reason in refused.value.reason


def test_trimming_waits_for_the_slowest_sink() -> None:
    changes = [c for c in life(3) if not (isinstance(c, RecordPublished) and c.sink == "k")]
    changes = [c for c in changes if not (isinstance(c, IntendPublish) and c.sink == "k")]
    state = after(*(c for c in changes if not isinstance(c, TrimSteps)))
    with pytest.raises(Precondition, match="steps from 0 on are kept for sink k, which has not"):
        apply(state, TrimSteps(1))


@pytest.mark.parametrize(
    ("before", "change"),
    [
        ((deploy(),), deploy("another")),
        ((deploy(),), SetDesired(RunState.RUN)),
        ((deploy(), SetDesired(RunState.STOP, 4)), SetDesired(RunState.STOP)),
        ((*COMMITTED, OTHER), OTHER),
        ((deploy(),), ReleaseLease("x")),
        ((deploy(), TakeLease("x", at(0), at(10))), TakeLease("x", at(5), at(8))),
        ((deploy(), TakeLease("x", at(0), at(10))), ReleaseLease("y")),
        (RECORDED, RecordInterval(interval(0, 3))),
        (BEGUN, BeginAttempt(attempt("a", 0, 2))),
        (COMMITTED, CommitVersion(VERSION, "")),
        ((*COMMITTED, ForgetAttempts(("a",))), CommitVersion(VERSION, "")),
        (ABANDONED, AbandonAttempt("a")),
        ((*BEGUN, RefuseAttempt("a")), RefuseAttempt("a")),
        (ABANDONED, ForgetAttempts(("never",))),
        (INTENDED, IntendPublish("v", 0, 2)),
        ((*INTENDED, RecordPublished("v", 2)), RecordPublished("v", 1)),
        (
            (*COMMITTED, SwapSnapshots(1, "a", {"t": 7}, {"t": 8}, "a")),
            SwapSnapshots(1, "a", {"t": 7}, {"t": 8}, "a"),
        ),
        (COMMITTED, TrimVersions(2)),
        (COMMITTED, TrimSteps(0)),
    ],
)
def test_twice_is_harmless(before: tuple[Change, ...], change: Change) -> None:
    state = after(*before)
    assert apply(state, change) is state


def test_each_change_raises_the_revision_by_one() -> None:
    changes = life(4)
    assert after(*changes).revision == len(changes)


def test_the_newest_starter_wins() -> None:
    state = after(*BEGUN, BeginAttempt(attempt("b", 0, 2)))
    assert [a.state for a in state.attempts] == [AttemptState.ABANDONED, AttemptState.RUNNING]


def test_deploy_keeps_incarnation_and_progress() -> None:
    before = after(*INTENDED, RecordPublished("v", 1))
    new = SinkState("n", "v", "kafka", 2)
    state = apply(before, Deploy(replace(FILES, spec="x"), "i2", (new, SINKS[0]), sources=()))
    assert state.incarnation == "i1"
    assert state.sinks == (new, SinkState("v", "v", "iceberg", 1, Intent(2, 2)))
    assert state.positions == ()
    assert state.files.spec == "x"


def test_other_queries_are_remembered_until_a_version_has_them() -> None:
    begun = (*MORE, BeginAttempt(attempt("b", 3, 4, "a")))
    state = after(*begun, OTHER)
    assert state.files == OTHER.files
    assert state.version_files == FILES
    assert state.replaced == Replaced(FILES, ("s",), (("v", "v"), ("k", "v")))
    assert state.attempts[-1].state is AttemptState.ABANDONED
    third = replace(OTHER, files=replace(FILES, spec="third"), sinks=SINKS[:1], distrusted=("t",))
    again = apply(state, third)
    assert again.replaced == replace(state.replaced, distrusted=("s", "t"))
    version = Version(2, "c", 4, 0, {"t": 9})
    begun_again = apply(again, BeginAttempt(attempt("c", 3, 4, "a")))
    committed = apply(begun_again, CommitVersion(version, "a"))
    assert committed.replaced is None
    assert committed.version_files.spec == "third"


def test_an_attempt_with_the_old_files_cannot_commit_after_a_deploy() -> None:
    state = after(*MORE, BeginAttempt(attempt("b", 3, 4, "a")), OTHER)
    with pytest.raises(Precondition, match="attempt b is abandoned"):
        apply(state, CommitVersion(Version(2, "b", 4, 0, {"t": 9}), "a"))


def test_before_the_first_version_nothing_is_to_be_rebuilt() -> None:
    state = after(*BEGUN, OTHER)
    assert state.replaced is None
    assert state.attempts[-1].state is AttemptState.ABANDONED


def test_where_a_pipeline_is_on_the_way_to_pause_and_stop() -> None:
    assert after(*RECORDED).status is RunStatus.RUN
    assert after(*RECORDED, SetDesired(RunState.PAUSE)).status is RunStatus.PAUSE
    assert after(*COMMITTED, SetDesired(RunState.PAUSE)).status is RunStatus.PAUSED
    stopping = after(*RECORDED, SetDesired(RunState.STOP))
    assert (stopping.status, stopping.stop_at) == (RunStatus.STOP, 3)
    assert after(*COMMITTED, SetDesired(RunState.STOP)).status is RunStatus.STOPPED
    later = after(*COMMITTED, SetDesired(RunState.STOP, 5))
    assert later.status is RunStatus.STOP
    resumed = apply(later, SetDesired(RunState.RUN))
    assert (resumed.status, resumed.stop_at) == (RunStatus.RUN, None)


def test_an_expired_lease_is_taken_and_a_renewal_lasts_longer() -> None:
    before = after(deploy(), TakeLease("x", at(0), at(10)))
    taken = apply(before, TakeLease("y", at(10), at(20)))
    assert taken.lease is not None
    assert taken.lease.holder == "y"
    renewed = apply(taken, TakeLease("y", at(12), at(30)))
    assert renewed.lease is not None
    assert renewed.lease.expires == at(30)
    assert apply(renewed, ReleaseLease("y")).lease is None


def test_positions_keep_the_first_offset_ever() -> None:
    entering = slice_of("s", (0, 30, 33), (1, 30, 30), (2, 5, 6))
    state = after(*COMMITTED, step_three(slice_of("a", (0, 9, 9)), entering))
    assert state.positions == (
        slice_of("a", (0, 9, 9)),
        slice_of("s", (0, 0, 33), (1, 0, 30), (2, 5, 6)),
    )


def test_versions_do_not_share_the_callers_mapping() -> None:
    tables = {"t": 7}
    state = after(*BEGUN, CommitVersion(replace(VERSION, tables=tables), ""))
    tables["t"] = 8
    assert state.version.tables == {"t": 7}
