"""What maintenance leaves behind where it dies on its way, and who takes it away."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from control_builders import T0, attempt, interval
from recording import PIPELINE, Recording, opened, silent

from lockstep.control.changes import (
    BeginAttempt,
    CommitVersion,
    Landed,
    RecordInterval,
    Rejected,
    SwapSnapshots,
)
from lockstep.control.compaction import FANOUT, DataFileInfo
from lockstep.control.interval import Parts
from lockstep.control.job import MergeJob
from lockstep.control.maintenance import maintain
from lockstep.control.model import Version
from lockstep.control.ports import Progress
from lockstep.errors import Unreachable
from lockstep.ids import merge_branch, version_tag

TABLES = ("_trace_a", "v_changes")


class DiedError(BaseException):
    """The process is gone: no `finally` does anything any more."""


class Tables(Recording):
    """Refs of tables, whose files are many where `is_full`."""

    def __init__(self) -> None:
        super().__init__()
        self.refs_of: dict[str, dict[str, int]] = {table: {"main": 0} for table in TABLES}
        self.is_full = self.is_dead = False
        self.unreachable: set[str] = set()
        self.during_merge: Callable[[], None] = lambda: None

    def tables(self) -> tuple[str, ...]:
        return TABLES

    def refs(self, table: str) -> Mapping[str, int]:
        return dict(self.refs_of[table])

    def settle(self, table: str, snapshot_id: int, tag: str, *_: object) -> None:
        self.refs_of[table][tag] = snapshot_id

    def drop_refs(self, table: str, names: Sequence[str]) -> None:
        if self.is_dead:
            raise DiedError
        if table in self.unreachable:
            raise Unreachable("the catalog is away", next_step="again")
        for name in names:
            self.refs_of[table].pop(name, None)

    def ages(self, *_: object) -> tuple[int, int]:
        return 0, 1

    def data_files(self, table: str, _: int) -> tuple[DataFileInfo, ...]:
        count = FANOUT if self.is_full else 1
        return tuple(DataFileInfo(f"{table}/{number}", 100, 1) for number in range(count))

    def narrow(self, table: str, branch: str, snapshot_id: int, _: Collection[str]) -> int:
        self.refs_of[table][branch] = snapshot_id
        return snapshot_id

    def swap(self, table: str, branch: str, snapshot_id: int, *_: object) -> int:
        self.refs_of[table][branch] = snapshot_id + 1
        return snapshot_id + 1

    def merge(self, job: MergeJob, _: Progress) -> Mapping[str, int]:
        self.during_merge()
        if self.is_dead:
            raise DiedError
        return {one.table: one.snapshot_id for one in job.tables}


def after_versions(folder: Path, count: int) -> tuple[Parts, Tables]:
    tables: Any = Tables()
    clock: Any = SimpleNamespace(now=lambda: T0, sleep=lambda _: None)
    parts = replace(opened(folder, tables), files=tables, clock=clock)
    commit(parts, count)
    return parts, tables


def commit(parts: Parts, count: int) -> None:
    """So many versions more, of a step each."""
    for _ in range(count):
        state = parts.store.read(PIPELINE)
        number, step = state.version.number + 1, state.next_step
        base, name = state.version.attempt, f"a{number}"
        for change in (
            RecordInterval(interval(step, 1)),
            BeginAttempt(attempt(name, step, step, base)),
            CommitVersion(Version(number, name, step, 0, dict.fromkeys(TABLES, 10 * number)), base),
        ):
            outcome = parts.store.apply(PIPELINE, change)
            assert isinstance(outcome, Landed), outcome


def kept_refs(parts: Parts) -> set[str]:
    versions = parts.store.read(PIPELINE).versions
    return {"main", *(version_tag(one.number, one.attempt) for one in versions if one.number)}


def test_what_a_trimmed_version_held_goes_though_whoever_trimmed_it_has_died(
    tmp_path: Path,
) -> None:
    parts, tables = after_versions(tmp_path, 3)
    maintain(parts, silent)
    commit(parts, 2)
    tables.unreachable = {"v_changes"}
    with pytest.raises(Unreachable):
        maintain(parts, silent)
    assert "v2_a2" in tables.refs_of["v_changes"]
    tables.unreachable.clear()
    maintain(parts, silent)
    assert [set(refs) for refs in tables.refs_of.values()] == [kept_refs(parts)] * 2
    assert [one.id for one in parts.store.read(PIPELINE).attempts] == ["a4", "a5"]


def test_what_a_merge_held_that_never_came_back_goes_with_the_version_it_began_from(
    tmp_path: Path,
) -> None:
    """Not before: it may be at work still."""
    parts, tables = after_versions(tmp_path, 1)
    tables.is_full = True
    tables.during_merge = lambda: setattr(tables, "is_dead", True)
    with pytest.raises(DiedError):
        maintain(parts, silent)
    tables.is_full = tables.is_dead = False
    [left] = tables.refs_of["v_changes"].keys() - {"main"}
    assert left == merge_branch("a1", "b0")
    for _ in range(2):
        maintain(parts, silent)
        assert all(left in refs for refs in tables.refs_of.values())
        commit(parts, 1)
    maintain(parts, silent)
    assert [set(refs) for refs in tables.refs_of.values()] == [kept_refs(parts)] * 2


def test_a_merge_whose_version_is_trimmed_meanwhile_does_not_land(tmp_path: Path) -> None:
    """Its branch is swept by then: what it wrote may expire at any time."""
    parts, tables = after_versions(tmp_path, 1)
    tables.is_full = True

    def others() -> None:
        tables.is_full = False
        commit(parts, 2)
        maintain(parts, silent)
        assert [set(refs) for refs in tables.refs_of.values()] == [kept_refs(parts)] * 2

    tables.during_merge = others
    said: list[str] = []
    assert maintain(parts, said.append).done["files merged"] == 0
    assert (
        "the version whose files were merged is trimmed by now; files are merged next time" in said
    )
    version = parts.store.read(PIPELINE).version
    assert version.tables == dict.fromkeys(TABLES, 30)
    swap = SwapSnapshots(3, "a3", version.tables, dict.fromkeys(TABLES, 31), merged_from="a1")
    outcome = parts.store.apply(PIPELINE, swap)
    assert isinstance(outcome, Rejected)
    assert (
        outcome.reason
        == "the files merged were read in the version by attempt a1, which is not kept"
    )
    landed = parts.store.apply(PIPELINE, replace(swap, merged_from="a2"))
    assert isinstance(landed, Landed)
