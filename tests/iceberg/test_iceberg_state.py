"""Refs of tables: what an attempt opens, what a commit checks, what a version pins; without Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lake_builders import Lake, local_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitStateUnknownException

from lockstep.adapters.iceberg import IcebergState
from lockstep.errors import StateDiverged, Unreachable
from lockstep.ids import swap_branch


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(local_catalog(tmp_path))


def refs(lake: Lake) -> Mapping[str, int]:
    """Those of table `t`, but for the one that pins the root once a branch was opened there."""
    return {name: at for name, at in lake.state.refs("t").items() if name != "root"}


def test_a_database_that_is_not_there_has_no_tables(lake: Lake) -> None:
    assert lake.state.tables() == ()
    lake.make("b")
    lake.make("a")
    assert lake.state.tables() == ("a", "b")


def test_a_table_that_is_not_there_is_named(lake: Lake) -> None:
    lake.make("t")
    with pytest.raises(StateDiverged, match=r"table db\.orders is not in catalog lake"):
        lake.state.head("orders", "main")


def test_open_branch_twice_is_harmless_until_it_moves(lake: Lake) -> None:
    root = lake.make("t")
    assert lake.state.open_branch("t", "attempt_a", None) == root
    assert lake.state.open_branch("t", "attempt_a", root) == root
    lake.append("t", [1], "attempt_a", "w")
    with pytest.raises(StateDiverged, match="branch attempt_a is there already"):
        lake.state.open_branch("t", "attempt_a", None)


def test_the_root_is_found_after_main_has_moved(lake: Lake) -> None:
    root = lake.make("t")
    lake.append("t", [1], "main", "w")
    assert lake.state.open_branch("t", "attempt_a", None) == root
    assert lake.rows("t", lake.state.head("t", "attempt_a")) == {}


def test_a_root_that_was_opened_does_not_expire(lake: Lake) -> None:
    """A table can be new after a version to which one goes back later, and is opened at its root."""
    root = lake.make("t")
    lake.state.open_branch("t", "attempt_a", None)
    head = lake.append("t", [1], "attempt_a", "w")
    lake.state.settle("t", head, "v1_a", ["attempt_a"])
    late = datetime.now() + timedelta(days=1)
    lake.table("t").maintenance.expire_snapshots().older_than(late).commit()
    assert lake.state.snapshots("t") == {root, head, None}
    assert lake.state.open_branch("t", "attempt_b", None) == root


def test_ages_tell_what_no_ref_holds(lake: Lake) -> None:
    root = lake.make("t")
    heads = [root, *(lake.append("t", [n], "main", f"w{n}") for n in range(3))]
    lake.state.settle("t", heads[1], "v1_a")
    late, early = datetime.now(UTC) + timedelta(days=1), datetime.now(UTC) - timedelta(days=1)
    assert lake.state.ages("t", late) == (2, 2)
    assert lake.state.ages("t", early) == (0, 4)


def test_a_branch_at_a_snapshot_that_is_gone_is_refused(lake: Lake) -> None:
    lake.make("t")
    with pytest.raises(StateDiverged, match="has no snapshot 12345"):
        lake.state.open_branch("t", "attempt_a", 12345)


def test_appended_lists_write_ids_oldest_first(lake: Lake) -> None:
    root = lake.make("t")
    lake.state.open_branch("t", "attempt_a", None)
    assert lake.state.appended("t", "attempt_a", None) == ()
    first = lake.append("t", [1, 2], "attempt_a", "one")
    second = lake.append("t", [3], "attempt_a", "two")
    assert lake.state.appended("t", "attempt_a", root) == ("one", "two")
    assert lake.state.appended("t", "attempt_a", first) == ("two",)
    assert lake.state.added_records("t", first) == 2
    assert lake.state.added_records("t", second) == 1
    assert lake.state.added_records("t", root) == 0
    sizes = [
        file.file.file_size_in_bytes
        for file in lake.table("t").scan(snapshot_id=second).plan_files()
    ]
    assert len(sizes) == 2
    assert lake.state.total_bytes("t", second) == sum(sizes)
    assert lake.state.total_bytes("t", root) == 0


def test_rows_are_appended_in_one_snapshot_that_says_whose_it_is(lake: Lake) -> None:
    root = lake.make("t")
    lake.state.open_branch("t", "attempt_a", None)
    lake.state.append_rows("t", "attempt_a", [{"id": 1}, {"id": 2}], {"lockstep.write": "one"})
    lake.state.append_rows("t", "attempt_a", [], {"lockstep.write": "two"})
    assert lake.state.appended("t", "attempt_a", root) == ("one", "two")
    head = lake.state.head("t", "attempt_a")
    assert lake.rows("t", head) == {(1,): 1, (2,): 1}
    assert lake.state.total_records("t", head) == 2
    assert lake.state.head("t", "main") == root


def test_appends_to_one_table_at_once_all_land(lake: Lake) -> None:
    lake.make("t")

    def work(number: int) -> None:
        branch = f"attempt_{number}"
        lake.state.open_branch("t", branch, None)
        lake.state.append_rows("t", branch, [{"id": number}], {"lockstep.write": "w"})

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    for number in range(6):
        head = lake.state.head("t", f"attempt_{number}")
        assert lake.rows("t", head) == {(number,): 1}


def test_an_append_without_an_answer_is_given_up(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.make("t")
    lake.state.open_branch("t", "attempt_a", None)
    monkeypatch.setattr(SqlCatalog, "commit_table", unsure([True]))
    with pytest.raises(Unreachable, match="does not say whether a write to attempt_a has landed"):
        lake.state.append_rows("t", "attempt_a", [{"id": 1}], {"lockstep.write": "w"})


def test_an_append_that_was_executed_twice_shows(lake: Lake) -> None:
    lake.make("t")
    lake.state.open_branch("t", "attempt_a", None)
    lake.append("t", [1], "attempt_a", "one")
    lake.append("t", [1], "attempt_a", "one")
    assert lake.state.appended("t", "attempt_a", None) == ("one", "one")


def test_records_after_a_step_are_those_of_later_appends(lake: Lake) -> None:
    lake.make("t")
    lake.append("t", [1, 2], "main", "w", step="3")
    lake.append("t", [3], "main", "w", step="5")
    head = lake.append("t", [], "main", "w", step="8")
    found = [lake.state.records_after("t", head, step) for step in (-1, 2, 3, 4, 5, 8)]
    assert found == [3, 3, 1, 1, 0, 0]


def test_where_appends_have_expired_all_records_may_be_later(lake: Lake) -> None:
    """Their rows are still there: to say that there are none would lose them."""
    lake.make("t")
    first = lake.append("t", [1, 2], "main", "w", step="3")
    second = lake.append("t", [3], "main", "w", step="5")
    head = lake.append("t", [], "main", "w", step="8")
    lake.table("t").maintenance.expire_snapshots().by_ids([first, second]).commit()
    assert [lake.state.records_after("t", head, step) for step in (3, 8)] == [3, 0]


def test_appended_refuses_what_no_attempt_wrote(lake: Lake) -> None:
    lake.make("t")
    lake.state.open_branch("t", "nameless", None)
    lake.append("t", [1], "nameless")
    with pytest.raises(StateDiverged, match=r"lockstep\.write None"):
        lake.state.appended("t", "nameless", None)
    lake.state.open_branch("t", "deleted", None)
    head = lake.append("t", [1, 2], "deleted", "w")
    lake.table("t").delete("id = 1", branch="deleted")
    with pytest.raises(StateDiverged, match="which no attempt has appended"):
        lake.state.appended("t", "deleted", head)


def test_appended_refuses_a_branch_that_began_elsewhere(lake: Lake) -> None:
    lake.make("t")
    version = lake.append("t", [1], "main", "w")
    lake.state.open_branch("t", "attempt_a", None)
    lake.append("t", [2], "attempt_a", "x")
    with pytest.raises(StateDiverged, match="does not descend from the snapshot"):
        lake.state.appended("t", "attempt_a", version)


def test_settle_is_one_commit_and_can_be_repeated(lake: Lake) -> None:
    lake.make("t")
    lake.state.open_branch("t", "attempt_a", None)
    head = lake.append("t", [1], "attempt_a", "w")
    before = len(lake.table("t").metadata.metadata_log)
    lake.state.settle("t", head, "v1_a", drop=("attempt_a", "never_was"))
    assert len(lake.table("t").metadata.metadata_log) == before + 1
    assert refs(lake) == {"main": head, "v1_a": head}
    lake.state.settle("t", head, "v1_a", drop=("attempt_a",))
    assert len(lake.table("t").metadata.metadata_log) == before + 1


def test_a_versions_tag_moves_to_later_snapshots_of_its_content_and_nowhere_else(
    lake: Lake,
) -> None:
    root = lake.make("t")
    head = lake.append("t", [1], "main", "w")
    lake.state.settle("t", root, "v1_a")
    lake.state.settle("t", head, "v1_a")
    assert lake.state.refs("t")["v1_a"] == head
    with pytest.raises(StateDiverged, match="tag v1_a pins another snapshot"):
        lake.state.settle("t", root, "v1_a")


def test_main_moves_forward_along_ancestry_only(lake: Lake) -> None:
    root = lake.make("t")
    lake.state.open_branch("t", "attempt_a", None)
    ours = lake.append("t", [1], "attempt_a", "w")
    theirs = lake.append("t", [2], "main")
    with pytest.raises(StateDiverged, match="main holds snapshots that are not in any version"):
        lake.state.settle("t", ours, "v1_a")
    assert refs(lake) == {"attempt_a": ours, "main": theirs}
    lake.state.settle("t", root, "v0")
    assert lake.state.refs("t")["main"] == theirs, "an ancestor of main moves nothing back"


def after_a_rollback(lake: Lake) -> tuple[int, int, int]:
    """The root, what attempt b made of it and `main` shows, and what attempt c made in its place."""
    root = lake.make("t")
    made = []
    for attempt in "bc":
        branch = f"attempt_{attempt}"
        lake.state.open_branch("t", branch, None)
        written = {"lockstep.write": "w", "lockstep.attempt": attempt}
        lake.state.append_rows("t", branch, [{"id": 1}], written)
        made.append(lake.state.head("t", branch))
    lake.state.settle("t", made[0], "v1_b", drop=("attempt_b",))
    return root, made[0], made[1]


def test_main_leaves_what_a_rollback_dropped_for_what_was_made_in_its_place(lake: Lake) -> None:
    _, dropped, replayed = after_a_rollback(lake)
    with pytest.raises(StateDiverged, match="main holds snapshots that are not in any version"):
        lake.state.settle("t", replayed, "v1_c", replaced=("a",))
    lake.state.settle("t", replayed, "v1_c", replaced=None)
    assert lake.state.refs("t")["main"] == dropped, "it stays while steps are replayed"
    for _ in range(2):
        lake.state.settle("t", replayed, "v1_c", replaced=("a", "b"))
        assert lake.state.refs("t")["main"] == replayed


def test_main_leaves_merged_files_of_what_was_dropped(lake: Lake) -> None:
    """Of the snapshots below them nothing may be left."""
    _, dropped, replayed = after_a_rollback(lake)
    swap = {"lockstep.merge": swap_branch("b", "1")}
    lake.state.append_rows("t", "main", [], swap)
    lake.state.drop_refs("t", ["v1_b"])
    lake.table("t").maintenance.expire_snapshots().by_id(dropped).commit()
    with pytest.raises(StateDiverged, match="main holds snapshots that are not in any version"):
        lake.state.settle("t", replayed, "v1_c", replaced=("a",))
    lake.state.settle("t", replayed, "v1_c", replaced=("b",))
    assert lake.state.refs("t")["main"] == replayed


def test_main_goes_back_where_nothing_was_made_in_place_of_what_was_dropped(lake: Lake) -> None:
    root, _, _ = after_a_rollback(lake)
    lake.state.settle("t", root, "v1_d", replaced=("b",))
    assert lake.state.refs("t")["main"] == root


def test_main_stays_with_rows_of_others_that_stand_on_what_was_dropped(lake: Lake) -> None:
    _, _, replayed = after_a_rollback(lake)
    lake.append("t", [7], "main")
    with pytest.raises(StateDiverged, match="main holds snapshots that are not in any version"):
        lake.state.settle("t", replayed, "v1_c", replaced=("b",))


def test_snapshots_are_those_still_there_and_the_root_is_one_of_its_own(lake: Lake) -> None:
    root, dropped, replayed = after_a_rollback(lake)
    assert lake.state.snapshots("t") == {None, root, dropped, replayed}
    lake.state.drop_refs("t", ["root"])
    lake.table("t").maintenance.expire_snapshots().by_id(root).commit()
    assert lake.state.snapshots("t") == {dropped, replayed}
    assert lake.state.snapshots("never made") == {None}


@settings(max_examples=25)
@given(
    names=st.sets(st.sampled_from(["attempt_a", "attempt_ab", "attempt_b", "v1_a", "x"])),
    dropped=st.lists(st.sampled_from(["attempt_a", "attempt_b", "v1_a", "main", "gone"])),
)
def test_drop_refs_removes_what_is_named_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, names: set[str], dropped: list[str]
) -> None:
    lake = Lake(local_catalog(tmp_path_factory.mktemp("lake")))
    root = lake.make("t")
    for name in sorted(names):
        if name.startswith("v"):
            lake.state.settle("t", root, name)
        else:
            lake.state.open_branch("t", name, None)
    lake.state.drop_refs("t", dropped)
    assert set(refs(lake)) == {"main"} | (names - set(dropped))


def test_many_writers_of_one_table_all_land(lake: Lake) -> None:
    lake.make("t")
    states = [IcebergState(lake.settings) for _ in range(6)]

    def work(number: int) -> None:
        state = states[number]
        state.open_branch("t", f"attempt_{number}", None)
        state.settle("t", state.head("t", f"attempt_{number}"), f"v{number}")
        state.drop_refs("t", [f"attempt_{number}"])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert set(refs(lake)) == {"main", *(f"v{number}" for number in range(6))}


def unsure(lands: list[bool]) -> Callable[..., object]:
    """Commits that land, or do not, and say in both cases that they do not know."""
    commit = SqlCatalog.commit_table

    def answer(catalog: SqlCatalog, *arguments: Any) -> object:
        if not lands:
            return commit(catalog, *arguments)
        if lands.pop(0):
            commit(catalog, *arguments)
        raise CommitStateUnknownException("no answer")

    return answer


@pytest.mark.parametrize("lands", [[True], [False], [False, True], [False, False]])
def test_an_unknown_outcome_is_found_out_by_reading(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, lands: list[bool]
) -> None:
    lake.make("t")
    lake.state.open_branch("t", "attempt_a", None)
    head = lake.append("t", [1], "attempt_a", "w")
    before = len(lake.table("t").metadata.metadata_log)
    left = list(lands)
    monkeypatch.setattr(SqlCatalog, "commit_table", unsure(left))
    lake.state.settle("t", head, "v1_a", drop=("attempt_a",))
    assert left == []
    assert refs(lake) == {"main": head, "v1_a": head}
    assert len(lake.table("t").metadata.metadata_log) == before + 1


def test_outcomes_that_stay_unknown_end_in_an_error(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.make("t")
    monkeypatch.setattr("time.sleep", lambda _: None)
    monkeypatch.setattr(SqlCatalog, "commit_table", unsure([False] * 100))
    with pytest.raises(Unreachable, match="nothing could be committed to it in 12 tries"):
        lake.state.open_branch("t", "attempt_a", None)


def test_the_marker_is_that_of_the_newest_marked_ancestor(lake: Lake) -> None:
    lake.make("v")
    assert lake.state.view_head("missing") is None
    head = lake.state.view_head("v")
    assert head is not None
    assert (head.marker, head.records) == (None, 0)
    marked = lake.append("v", [1, 2], "main", step="4", incarnation="abc")
    head = lake.state.view_head("v")
    assert head is not None
    assert head.marker is not None
    assert (head.marker.snapshot_id, head.marker.step, head.marker.incarnation) == (
        marked,
        4,
        "abc",
    )
    assert head.records == 2
    lake.append("v", [3], "main")
    with pytest.raises(StateDiverged, match="Lockstep has not written it"):
        lake.state.view_head("v")


def test_show_marked_moves_main_only_from_where_it_was_read(lake: Lake) -> None:
    root = lake.make("v")
    for branch in ("one", "two"):
        lake.state.open_branch("v", branch, root)
    one = lake.append("v", [1], "one", step="1", incarnation="i")
    two = lake.append("v", [2], "two", step="1", incarnation="i")
    assert lake.state.show_marked("v", root, one, drop=("one",))
    assert lake.state.show_marked("v", root, one, drop=("one",))
    assert not lake.state.show_marked("v", root, two, drop=("two",))
    assert lake.state.refs("v") == {"lockstep": one, "main": one, "two": two}
