"""Which versions can be opened: each table's answer, intersected."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from control_builders import FILES, attempt, interval

from lockstep.control.interval import append
from lockstep.control.model import PipelineState, Version
from lockstep.control.opening import openable, require, versions_by_table
from lockstep.control.ports import PartitionBounds, TopicBounds
from lockstep.errors import EngineFailed, StateDiverged

ZERO = Version.zero()
ONE = Version(1, "a", 2, 0, {"t": 10, "u": 20})
TWO = Version(2, "b", 5, 0, {"t": 11, "u": 20, "late": 30})
VERSIONS = (ZERO, ONE, TWO)
ALL: dict[str, set[int | None]] = {"t": {None, 9, 10, 11}, "u": {None, 20}, "late": {None, 30}}
STATE = PipelineState("p", "i", 1, FILES, versions=VERSIONS)


def test_each_table_says_which_versions_it_can_open() -> None:
    assert versions_by_table(VERSIONS, {**ALL, "u": {None}, "late": {30}}) == {
        "t": {0, 1, 2},
        "u": {0},
        "late": {2},
    }, "a table that is new after a version is opened at its root"


def test_what_all_can_open_is_the_intersection_and_the_greatest_is_opened() -> None:
    found = openable(VERSIONS, {"t": {0, 1, 2}, "u": {1, 2}, "late": {0, 1}})
    assert (found.versions, found.newest) == ((1,), 1)
    assert found.lacking == {0: ("u",), 2: ("late",)}
    assert openable(VERSIONS, versions_by_table(VERSIONS, ALL)).versions == (0, 1, 2)
    assert openable(VERSIONS, {}).newest == 2


def test_one_that_can_be_opened_is_no_error() -> None:
    require(STATE, 2, openable(VERSIONS, versions_by_table(VERSIONS, ALL)))


def test_where_only_an_older_one_can_be_opened_the_tables_and_the_way_there_are_named() -> None:
    found = openable(
        VERSIONS, versions_by_table(VERSIONS, {**ALL, "t": {None, 10}, "late": {None}})
    )
    with pytest.raises(StateDiverged) as refused:
        require(STATE, 2, found)
    assert str(refused.value).splitlines() == [
        "pipeline p: version 2 cannot be opened",
        "  expected: its snapshot of every table",
        "  found: none of late, t; versions 0, 1 can be opened",
        "  next: lockstep rollback p --to-version 1, which runs the steps after it again",
    ]


def test_an_empty_intersection_is_fatal_and_names_the_tables() -> None:
    found = openable((ONE, TWO), {f"t{i}": {1 + i % 2} for i in range(14)})
    assert found.newest is None
    with pytest.raises(StateDiverged) as refused:
        require(STATE, 2, found)
    assert refused.value.message == "pipeline p: no version can be opened"
    assert (
        refused.value.found == "version 2 without its snapshots of t0, t10, t12, t2, t4 and 2 more"
    )


def test_a_rollback_to_what_is_gone_by_now_can_be_taken_back() -> None:
    rolled_back = replace(STATE, versions=(ZERO,), dropped=(ONE, TWO))
    with pytest.raises(StateDiverged) as refused:
        require(rolled_back, 0, openable((ZERO,), {"t": ()}))
    assert refused.value.next_step == "lockstep rollback p --undo"


def test_an_interval_that_fails_for_want_of_a_snapshot_says_what_is_left() -> None:
    """Nobody asks before: the job finds out, and its error is not the one that is shown."""

    def fails(*_: object) -> None:
        raise EngineFailed("Cannot find snapshot with ID 20")

    held = {**ALL, "u": {None}}
    topic = TopicBounds("topic_s", "id1", tuple(PartitionBounds(p, 0, 99) for p in (0, 1)))
    parts: Any = SimpleNamespace(
        sources=SimpleNamespace(bounds=lambda _: topic),
        engine=SimpleNamespace(run=fails),
        state=SimpleNamespace(snapshots=lambda table: frozenset(held[table])),
        pipeline="p",
        store=SimpleNamespace(read=lambda _: replace(STATE, attempts=(attempt("c", 6, 6, "b"),))),
    )
    job: Any = SimpleNamespace(
        base_version=2, attempt="c", interval=interval(6, 1), rebuilding=None
    )
    with pytest.raises(StateDiverged, match="version 2 cannot be opened"):
        append(parts, STATE, job, lambda _: None)
    held["u"] = {None, 20}
    with pytest.raises(EngineFailed, match="snapshot with ID 20"):
        append(parts, STATE, job, lambda _: None)
