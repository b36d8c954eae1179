"""Autoscaling: what is proposed, that it comes to rest, and that a change is judged before the next."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from control_builders import attempt, deploy, interval
from hypothesis import given
from hypothesis import strategies as st

from lockstep.adapters.memory_store import MemoryStore
from lockstep.control.autoscaler import autoscale
from lockstep.control.changes import (
    BeginAttempt,
    Change,
    ChangeLayout,
    CommitVersion,
    RecordInterval,
)
from lockstep.control.layout.autoscaling import KEPT_LOADS, Autoscaling, Load, Mode, Proposal
from lockstep.control.layout.layouts import Join, Layout, Reshard, after
from lockstep.control.layout.scaling import scaled
from lockstep.control.layout.sharding import Fixed
from lockstep.control.model import Version
from lockstep.errors import WrongUse

POLICY = Autoscaling(Mode.APPLY, target_seconds=60.0, most_workers=32)


def of(workers: int) -> Layout:
    return after(Layout(), *scaled(Layout(), workers, sharding=Fixed(64)))


def took(seconds: float, count: int, epoch: int = 1, lag: float = 0.0) -> list[Load]:
    return [Load(step, epoch, seconds, lag) for step in range(count)]


def workers(proposal: Proposal | None) -> int | None:
    return None if proposal is None else proposal.workers


@pytest.mark.parametrize(
    ("loads", "wanted"),
    [
        (took(50, 3), 7),
        (took(50, 2), None),
        (took(50, 3, epoch=0), None),
        (took(200, 3), 8),
        (took(40, 3), None),
        (took(40, 3, lag=70), 6),
        ([*took(1, 5), *took(70, 1)], None),
        (took(6, 6), 2),
        (took(6, 5), None),
        (took(11, 6), 2),
        (took(6, 6, lag=70), 5),
        ([*took(6, 5), *took(13, 1)], None),
    ],
)
def test_what_is_proposed_for_four_workers(loads: list[Load], wanted: int | None) -> None:
    assert workers(POLICY.proposal(of(4), loads, 0)) == wanted


def test_a_proposal_stays_between_the_limits() -> None:
    assert workers(replace(POLICY, most_workers=5).proposal(of(4), took(200, 3), 0)) == 5
    assert POLICY.proposal(of(32), took(200, 3), 0) is None
    assert workers(replace(POLICY, least_workers=3).proposal(of(4), took(1, 6), 0)) == 3
    assert workers(replace(POLICY, least_workers=6).proposal(of(4), [], 0)) == 6
    assert workers(replace(POLICY, most_workers=3).proposal(of(4), [], 0)) == 3
    assert POLICY.proposal(of(1), took(1, 6), 0) is None


def test_without_named_workers_two_work() -> None:
    assert workers(POLICY.proposal(Layout(), took(50, 3, epoch=0), 1 << 60)) == 4
    assert POLICY.proposal(Layout(), [], 1 << 60) is None


def test_more_state_gets_more_shards() -> None:
    small = replace(POLICY, bytes_per_shard=100)
    assert small.proposal(of(4), [], 6400) is None
    found = small.proposal(of(4), [], 6401)
    assert found == Proposal(4, Fixed(128), "6,401 bytes of state are 100 a shard")


@given(st.floats(0.1, 2000), st.floats(0, 20), st.integers(1, 32))
def test_where_work_is_shared_layouts_come_to_rest(
    work: float, fixed: float, at_first: int
) -> None:
    """Within some changes, and then for good: nothing goes up and down."""
    layout, seen = of(at_first), []
    for _ in range(12):
        seconds = fixed + work / len(layout.hosts)
        loads = took(seconds, KEPT_LOADS, layout.epoch, lag=seconds if seconds < 60 else 1000)
        found = POLICY.proposal(layout, loads, 0)
        if found is None:
            break
        seen.append(found.workers - len(layout.hosts))
        layout = after(layout, *scaled(layout, found.workers))
    else:
        pytest.fail(f"no rest: {seen}")
    assert all(step > 0 for step in seen) or all(step < 0 for step in seen)


@pytest.mark.parametrize(
    ("configuration", "message"),
    [
        ({"lockstep.autoscale.least_workers": "0"}, "a whole number of at least 1"),
        ({"lockstep.autoscale.most_workers": "many"}, "a whole number such as"),
        (
            {"lockstep.autoscale.least_workers": "4", "lockstep.autoscale.most_workers": "3"},
            "at least least_workers, 4",
        ),
    ],
)
def test_limits_that_cannot_be_are_refused(configuration: dict[str, str], message: str) -> None:
    with pytest.raises(WrongUse) as error:
        Autoscaling.from_configuration(configuration)
    assert message in error.value.expected


def test_the_policy_is_read_from_the_project() -> None:
    found = Autoscaling.from_configuration(
        {"lockstep.autoscale": "propose", "lockstep.interval": "5 minutes"}
    )
    assert (found.mode, found.target_seconds, found.most_workers) == (Mode.PROPOSE, 300.0, 64)
    least = Autoscaling.from_configuration({"lockstep.autoscale.least_workers": "100"})
    assert least.most_workers == 100


# ── at work ─────────────────────────────────────────────────────────────────────────────────────


class Tables:
    """The sizes of traces, and of nothing else."""

    def total_bytes(self, table: str, _snapshot: int) -> int:
        return {"_trace_a": 5000, "_trace_b": 1401}[table]


class Living:
    """A pipeline with intervals of two steps, of which each took 55 s under its layout."""

    def __init__(self, mode: Mode) -> None:
        self.store = MemoryStore()
        self.land(deploy(), ChangeLayout(0, (Join({0: "a", 1: "a"}), Reshard(Fixed(64)))))
        self.pipeline, self.state = "p", Tables()
        self.autoscaling = replace(POLICY, mode=mode)
        self.said: list[str] = []

    def land(self, *changes: Change) -> None:
        for change in changes:
            self.store.apply("p", change)

    def interval(self, seconds: float = 55.0, *, in_pieces: bool = False) -> None:
        state = self.store.read("p")
        first, base = state.next_step, state.version
        self.land(RecordInterval(interval(first, 2)))
        for last in (first, first + 1) if in_pieces else (first + 1,):
            base = self.store.read("p").version
            name = f"a{last}"
            self.land(
                BeginAttempt(attempt(name, base.last_step + 1, last, base.attempt)),
                CommitVersion(
                    Version(
                        base.number + 1,
                        name,
                        last,
                        state.layout.epoch,
                        {"_trace_a": 1, "_trace_b": 2, "v_changes": 3},
                    ),
                    base.attempt,
                    Load(first + 1, state.layout.epoch, seconds, 1.0),
                ),
            )

    def autoscale(self) -> int:
        parts: Any = self
        return autoscale(parts, self.said.append)

    @property
    def workers(self) -> int:
        return len(self.store.read("p").layout.hosts)


def test_maintenance_scales_by_what_intervals_took_and_waits_for_what_comes_of_it() -> None:
    living = Living(Mode.APPLY)
    for _ in range(2):
        living.interval()
        assert living.autoscale() == 0
    living.interval()
    assert living.autoscale() == 1
    assert living.workers == 4
    assert "intervals take 92% of the 60 s between two" in living.said[-2]
    assert "lockstep scale p --workers 4" in living.said[-2]
    # Twice as many workers do it in half of the time.
    for _ in range(KEPT_LOADS):
        living.interval(27.5)
        assert living.autoscale() == 0
    assert living.workers == 4


def test_maintenance_makes_more_shards_as_the_state_grows() -> None:
    living = Living(Mode.APPLY)
    living.autoscaling = replace(living.autoscaling, bytes_per_shard=100)
    living.interval()
    assert living.autoscale() == 1
    layout = living.store.read("p").layout
    assert (len(layout.owners), len(layout.hosts)) == (128, 2)
    assert living.said[0].endswith("100 a shard: lockstep scale p --workers 2 --shards 128")
    assert living.autoscale() == 0


def test_what_is_proposed_only_changes_nothing() -> None:
    living = Living(Mode.PROPOSE)
    for _ in range(3):
        living.interval()
    assert living.autoscale() == 0
    assert len(living.said) == 1
    assert living.workers == 2
    quiet = Living(Mode.OFF)
    for _ in range(3):
        quiet.interval()
    assert (quiet.autoscale(), quiet.said) == (0, [])


def test_an_interval_in_pieces_took_what_they_took_together() -> None:
    living = Living(Mode.OFF)
    living.interval(20.0, in_pieces=True)
    [load] = living.store.read("p").loads
    assert (load.last_step, load.seconds) == (1, 40.0)
    for _ in range(KEPT_LOADS + 1):
        living.interval()
    assert len(living.store.read("p").loads) == KEPT_LOADS


def test_nothing_is_proposed_while_another_layout_waits() -> None:
    living = Living(Mode.APPLY)
    for _ in range(3):
        living.interval()
    living.land(RecordInterval(interval(6, 2)), ChangeLayout(1, (Join({2: "b"}),)))
    assert (living.autoscale(), living.said) == (0, [])
