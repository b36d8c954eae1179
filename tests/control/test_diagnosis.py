"""What a doctor says: one case for every finding."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from control_builders import at, attempt, interval, life

from lockstep.control import diagnosis
from lockstep.control.changes import BeginAttempt, Change, RecordInterval, TakeLease
from lockstep.control.diagnosis import Finding, Health
from lockstep.control.model import PipelineState
from lockstep.control.opening import Opening
from lockstep.control.ports import Marker, ViewHead
from lockstep.control.transitions import apply
from lockstep.errors import Unreachable


def after(*changes: Change) -> PipelineState:
    state = None
    for change in changes:
        state = apply(state, change, name="p")
    assert state is not None
    return state


STATE = after(*life(2))
TABLES = STATE.version.tables
PINS = {table: {f"v2_{STATE.version.attempt}": snapshot} for table, snapshot in TABLES.items()}


def head(step: int | None, incarnation: str = "i1") -> ViewHead:
    marker = None if step is None else Marker(1, step, incarnation, None)
    return ViewHead(1, 7, marker, (), ("a",))


def said(findings: Iterable[Finding]) -> list[tuple[Health, str, str]]:
    return [(one.health, one.what, one.next_step) for one in findings]


def test_versions() -> None:
    assert said(diagnosis.of_versions(STATE, Opening((1, 2), {}))) == [
        (Health.SOUND, "version 2 can be opened, 2 in all", "")
    ]
    assert said(diagnosis.of_versions(STATE, Opening((1,), {2: ("t0", "t1")}))) == [
        (
            Health.FAULT,
            "version 2 cannot be opened: its snapshots of t0, t1 are gone",
            "lockstep rollback p --to-version 1",
        )
    ]
    [(health, _, step)] = said(diagnosis.of_versions(STATE, Opening((), {2: ("t0",)})))
    assert (health, step) == (
        Health.FAULT,
        "restore the tables' metadata, or lockstep reconcile p",
    )
    [(health, what, _)] = said(diagnosis.of_versions(after(*life(0)), Opening((), {})))
    assert (health, what) == (Health.SOUND, "none is committed yet")


def test_tables() -> None:
    assert said(diagnosis.of_tables(STATE, PINS, {"v_changes": head(5)})) == [
        (Health.SOUND, "3 are as the store says", "")
    ]
    [(health, what, _)] = said(diagnosis.of_tables(STATE, {}, {}))
    assert (health, what) == (Health.NOTE, "version 2 is not pinned on 3 tables yet")
    [(health, what, step)] = said(diagnosis.of_tables(STATE, PINS, {"v_changes": head(8)}))
    assert (health, step) == (Health.FAULT, "lockstep doctor DIR --rebuild")
    assert what == "1 tables are at step 8, the store ends at step 5: it is an old backup"
    [(health, what, _)] = said(diagnosis.of_tables(STATE, PINS, {"v_changes": head(5, "other")}))
    assert health is Health.FAULT
    assert "belongs to another pipeline" in what


VIEW = STATE.sinks[0]


@pytest.mark.parametrize(
    ("published", "found", "health", "what"),
    [
        (5, head(5), Health.SOUND, "it is at step 5"),
        (2, head(2), Health.NOTE, "it is 3 steps behind"),
        (5, head(2), Health.FAULT, "somebody moved it back"),
        (5, head(6), Health.FAULT, "it is an old backup"),
        (5, head(None), Health.FAULT, "have no marker"),
        (5, None, Health.NOTE, "its table is gone"),
        (-1, None, Health.SOUND, "nothing is published yet"),
    ],
)
def test_a_view(published: int, found: ViewHead | None, health: Health, what: str) -> None:
    finding = diagnosis.of_view(STATE, replace(VIEW, published_step=published), found)
    assert finding.health is health
    assert what in finding.what
    assert finding.subject == "view v"


def test_the_markers_of_a_topic() -> None:
    topic = STATE.sinks[1]
    assert diagnosis.of_markers(STATE, topic, {"0": 5, "1": 5}).health is Health.SOUND
    behind = diagnosis.of_markers(STATE, replace(topic, published_step=2), {"0": 5, "1": 2})
    assert (behind.health, behind.what) == (Health.NOTE, "it is 3 steps behind")
    lost = diagnosis.of_markers(STATE, topic, {})
    assert (lost.health, lost.what) == (
        Health.NOTE,
        "its markers are gone; the store knows step 5",
    )


def test_what_waits_for_the_next_version() -> None:
    view, topic = (diagnosis.of_waiting(STATE, sink) for sink in STATE.sinks)
    assert (view.subject, topic.subject) == ("view v", "sink k")
    assert said([topic]) == [
        (
            Health.NOTE,
            "it is new, and waits for version 3",
            "nothing: the next run makes it",
        )
    ]


def test_what_is_at_work() -> None:
    begun = (
        *life(1),
        RecordInterval(interval(3, 3)),
        BeginAttempt(attempt("b", 3, 5, "a0")),
    )
    [dead_work, ended] = diagnosis.of_leases(after(*begun), at(100))
    assert dead_work.what == "attempt b was left at work by a process that died"
    assert ended.what == "1 ended without a version"
    held = after(*begun, TakeLease("me", at(90), at(110)))
    assert next(one.what for one in diagnosis.of_leases(held, at(100))) == "me is at work"


def test_what_does_not_answer_is_a_fault() -> None:
    error = Unreachable("the broker does not answer", found="refused", next_step="lockstep up")
    found = diagnosis.of_error("source s", error)
    assert (found.health, found.what) == (Health.FAULT, "the broker does not answer: refused")
    assert found.next_step == "lockstep up"
