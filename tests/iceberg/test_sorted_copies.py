"""Copies of large files, in the order of a key: the rows of the file, whoever made them."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lake_builders import delete_file, local_catalog
from pyiceberg.table import FileScanTask, Table

from lockstep.control.job import CopySettings
from lockstep.lake import lookups, sorted_copies
from lockstep.lake.lookups import look_up
from lockstep.lake.manifests import planned_files
from lockstep.lake.opening import OpenCatalog
from lockstep.lake.sorted_copies import Copied, SortedCopies

GROUP = {"write.parquet.row-group-limit": "100"}
SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.int32()), ("name", pa.string())])
COLUMNS = ("name", "id", "part")
ROWS = 1000


class Lake(NamedTuple):
    """A table, and where copies of its files are."""

    table: Table
    folder: Path

    def copies(self, most_bytes: int = 1 << 30) -> SortedCopies:
        """As another process has them."""
        return SortedCopies(CopySettings(str(self.folder), most_bytes))

    def look_up(self, keys: Mapping[str, Any], copies: SortedCopies | None) -> list[Any] | None:
        snapshot = self.table.current_snapshot()
        assert snapshot is not None
        found = look_up(self.table, snapshot.snapshot_id, COLUMNS, keys, copies)
        return None if found is None else found.to_pylist()

    def made(self) -> list[Path]:
        return sorted(self.folder.glob("*.arrow"))

    def lose_data(self) -> None:
        """Of files that nobody reads nobody sees that they are gone."""
        for task in self.table.scan().plan_files():
            Path(task.file.file_path.removeprefix("file://")).unlink()


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Two files of ten row groups: ids in order, parts not, each part often, a name that may be null; of
    both some rows are deleted. Whatever is looked up is much, and what a copy has in order is three row
    groups."""
    monkeypatch.setattr(lookups, "MOST_KEPT", 0)
    monkeypatch.setattr(lookups, "LARGE_VALUES", 0)
    monkeypatch.setattr(sorted_copies, "RUN_ROWS", 300)
    catalog = OpenCatalog(local_catalog(tmp_path)).connected()
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", SCHEMA, properties=GROUP)
    for first in (0, ROWS):
        ids = list(range(first, first + ROWS))
        names = [None if i % 3 else f"name {i}" for i in ids]
        table.append(pa.table([ids, [i * 7 % 50 for i in ids], names], schema=SCHEMA))
    table.delete("id in (3, 205, 1730)")
    return Lake(table, tmp_path / "copies")


def numbers(*values: int) -> Any:
    return np.array(sorted(values), np.int64)


KEYS = [
    {"id": numbers(3, 4, 205, 299, 300, 1730, 1731, 99999)},
    {"part": numbers(-(1 << 40), 3, 11, 1 << 40)},
    {"id": numbers(*range(100, 1300)), "part": numbers(5, 6)},
    {"id": numbers(-5, 5000)},
]


@pytest.mark.parametrize("keys", KEYS)
def test_copies_have_the_rows_of_their_files(lake: Lake, keys: Mapping[str, Any]) -> None:
    """In the same order; without those that are deleted."""
    expected = lake.look_up(keys, None)
    for _ in range(3):
        assert lake.look_up(keys, lake.copies()) == expected
    is_there = len(expected or ()) > 0
    assert len(lake.made()) == (2 if is_there else 0)
    if is_there:
        lake.lose_data()
        assert lake.look_up(keys, lake.copies()) == expected


def test_positions_are_those_in_the_file(lake: Lake) -> None:
    """By which rows are left out that delete files name."""
    [path, *_] = (task.file.file_path for task in lake.table.scan().plan_files())
    everything = pq.read_table(path.removeprefix("file://")).select(["id", "part"])
    lake.folder.mkdir()
    copied = Copied(path, 1, ROWS, ("id", "part"), "part")
    copy = lake.copies().make(lake.table.io, copied)
    assert copy is not None
    names = {"number": "id", "place": "part"}
    found = copy.rows({"place": numbers(7, 49)}, names, ROWS)
    assert found is not None
    count = len(found.positions)
    assert count > 10
    assert np.all(np.diff(found.positions) > 0)
    expected = everything.take(pa.array(found.positions)).rename_columns(list(names))
    assert pa.table(found.rows) == expected
    assert set(expected["place"].to_pylist()) == {7, 49}
    both = {"place": numbers(7, 49), "number": numbers(expected["number"][3].as_py())}
    assert copy.rows({"place": numbers(7, 49)}, names, count - 1) is None
    assert copy.rows(both, names, count - 1) is None, "so many are to be looked at"
    one = copy.rows(both, names, count)
    assert one is not None
    assert one.positions.tolist() == [found.positions[3]]


def test_rows_that_delete_files_name_are_left_out(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyIceberg deletes by writing a file anew; other engines do not."""
    (tmp_path / "deletes").mkdir()
    deleted = dict[str, list[int]]()

    def planned(*args: Any) -> list[FileScanTask]:
        found = planned_files(*args)
        for task in found:
            path = task.file.file_path
            deleted[path] = list(range(0, 900, 3))
            ends = {"lower": path, "upper": path}
            rows = [(path, position) for position in deleted[path]]
            task.delete_files = {delete_file(tmp_path / "deletes", rows, ends)}
        return found

    everything = lake.look_up(KEYS[1], None)
    monkeypatch.setattr(lookups, "planned_files", planned)
    expected = lake.look_up(KEYS[1], None)
    assert everything is not None
    assert expected is not None
    assert 10 < len(expected) < len(everything)
    for _ in range(3):
        assert lake.look_up(KEYS[1], lake.copies()) == expected
    assert len(lake.made()) == 2
    lake.lose_data()
    assert lake.look_up(KEYS[1], lake.copies()) == expected
    monkeypatch.setattr(lookups, "MOST_ROWS", len(expected))
    assert lake.look_up(KEYS[1], lake.copies()) == expected


def test_a_file_is_copied_when_it_has_been_asked_for_by_anybody(lake: Lake) -> None:
    for _ in range(2):
        lake.look_up(KEYS[0], lake.copies())
        assert not lake.made()
    lake.look_up({"id": numbers(7)}, lake.copies())
    assert len(lake.made()) == 1, "the first file: no other has that key"
    lake.look_up(KEYS[0], lake.copies())
    assert len(lake.made()) == 2
    assert {path.suffix for path in lake.folder.iterdir() if path.name != "tidied"} == {".arrow"}


def test_what_is_small_is_not_copied(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "LARGE_VALUES", 1 << 20)
    for _ in range(4):
        lake.look_up(KEYS[0], lake.copies())
    assert not lake.folder.exists()


def test_what_takes_long_to_copy_is_not_copied(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "MOST_COPIED", (ROWS - 10) * len(COLUMNS))
    for _ in range(4):
        lake.look_up(KEYS[0], lake.copies())
    assert not lake.folder.exists()


def test_more_than_would_be_read_is_looked_up_in_copies(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = lake.look_up(KEYS[1], None)
    monkeypatch.setattr(lookups, "MOST_BYTES", 10)
    assert [lake.look_up(KEYS[1], lake.copies()) for _ in range(3)] == [None, None, expected]


def test_a_look_up_copies_no_longer_than_it_may(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what an interval looks up, by the same copies."""
    monkeypatch.setattr(sorted_copies, "COPYING_SECONDS", 0.0)
    expected = lake.look_up(KEYS[1], None)
    for intervals in (1, 2):
        copies = lake.copies()
        for _ in range(4):
            assert lake.look_up(KEYS[1], copies) == expected
        assert len(lake.made()) == intervals


def test_too_many_rows_are_left_to_spark(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two keys the one that a copy is in the order of may have many more than both: the file is read
    by whoever else can, and copied by the other key."""
    both = {"part": numbers(1, 2), "id": numbers(*range(0, 2000, 3))}
    some = lake.look_up(both, None)
    for keys in (KEYS[1], {"part": numbers(1, 2)}):
        for _ in range(3):
            lake.look_up(keys, lake.copies())
    assert some
    assert len(lake.made()) == 2
    monkeypatch.setattr(lookups, "MOST_ROWS", len(some))
    for _ in range(3):
        assert lake.look_up(both, lake.copies()) == some
    assert len(lake.made()) == 4
    assert lake.look_up({"part": numbers(1, 2)}, lake.copies()) is None


def test_a_key_that_may_be_null_is_not_copied_by(lake: Lake) -> None:
    nullable = lake.table.catalog.create_table("db.nullable", SCHEMA, properties=GROUP)
    nullable.append(pa.table([[1, None], [1, 2], ["a", "b"]], schema=SCHEMA))
    lake = Lake(nullable, lake.folder)
    for _ in range(4):
        assert len(lake.look_up({"id": numbers(1)}, lake.copies()) or ()) == 2
    assert not lake.made()


def test_a_damaged_copy_is_not_read_but_deleted(lake: Lake) -> None:
    expected = lake.look_up(KEYS[0], None)
    for _ in range(3):
        lake.look_up(KEYS[0], lake.copies())
    for path in lake.made():
        path.write_bytes(path.read_bytes()[:200])
    assert lake.look_up(KEYS[0], lake.copies()) == expected
    assert not lake.made()


def test_who_does_not_survive_it_does_not_begin_again_at_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list[Copied]()

    def killed(_: object, copied: Copied, *__: object) -> bool:
        made.append(copied)
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(sorted_copies, "_write", killed)
        for number in range(1, 7):
            with nullcontext() if number % 3 else pytest.raises(SystemExit):
                lake.look_up({"id": numbers(7)}, lake.copies())
    assert len(made) == 2
    assert not list(lake.folder.glob("*.new"))


def test_a_process_makes_one_copy_at_a_time(lake: Lake) -> None:
    expected = lake.look_up({"id": numbers(7)}, None)
    with sorted_copies._MAKING:
        for _ in range(4):
            assert lake.look_up({"id": numbers(7)}, lake.copies()) == expected
    assert not lake.made()
    assert lake.look_up({"id": numbers(7)}, lake.copies()) == expected
    assert len(lake.made()) == 1


def test_others_of_the_machine_do_not_see_the_rows(lake: Lake) -> None:
    for _ in range(3):
        lake.look_up(KEYS[0], lake.copies())
    assert lake.folder.stat().st_mode & 0o77 == 0
    assert {path.stat().st_mode & 0o77 for path in lake.made()} == {0}


def test_a_copy_that_is_too_large_is_not_made_twice(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = lake.look_up(KEYS[0], None)
    for _ in range(3):
        assert lake.look_up(KEYS[0], lake.copies(most_bytes=1000)) == expected
    assert not lake.made()
    assert len(list(lake.folder.glob("*.not"))) == 2
    assert not list(lake.folder.glob("*.new"))
    monkeypatch.setattr(SortedCopies, "make", lambda *_: pytest.fail("once more"))
    assert lake.look_up(KEYS[0], lake.copies(most_bytes=1000)) == expected


def test_what_is_used_least_makes_room_unless_that_was_of_late(lake: Lake) -> None:
    """There is room for four, and two more are asked for."""
    for _ in range(3):
        lake.look_up({"id": numbers(7, 1007)}, lake.copies())
        lake.look_up({"part": numbers(3)}, lake.copies())
    first = lake.made()
    assert len(first) == 4
    lake.table.append(lake.table.scan().to_arrow().slice(0, ROWS))
    expected = lake.look_up({"part": numbers(3)}, None)
    room = sum(path.stat().st_size for path in first) + 1000
    for _ in range(4):
        assert lake.look_up({"part": numbers(3)}, lake.copies(room)) == expected
    assert lake.made() == first, "all of them were used a moment ago"
    for path in first:
        os.utime(path, (time.time() - 7200, time.time() - 7200))
    for _ in range(4):
        assert lake.look_up({"part": numbers(3)}, lake.copies(room)) == expected
    left = lake.made()
    assert len(left) == 4
    assert len(set(left) & set(first)) == 3


def test_what_is_not_used_for_a_week_goes(lake: Lake) -> None:
    """And what is new and was not brought to an end, after a while."""
    lake.folder.mkdir()
    ages = {"a.arrow": 8 * 24, "b.asked": 8 * 24, "c.arrow": 6 * 24, "d.new": 1, "e.new": 0.1}
    for name, hours in ages.items():
        (lake.folder / name).touch()
        os.utime(lake.folder / name, (time.time() - hours * 3600,) * 2)
    lake.look_up({"id": numbers(7)}, lake.copies())
    names = {path.name for path in lake.folder.iterdir()}
    assert names & ages.keys() == {"c.arrow", "e.new"}
    (lake.folder / "d.new").touch()
    os.utime(lake.folder / "d.new", (time.time() - 3600,) * 2)
    lake.look_up({"id": numbers(7)}, lake.copies())
    assert (lake.folder / "d.new").exists(), "it is looked at now and then"


def test_a_folder_that_cannot_be_written_to_changes_nothing(lake: Lake) -> None:
    lake.folder.write_text("a file")
    expected = lake.look_up(KEYS[0], None)
    for _ in range(4):
        assert lake.look_up(KEYS[0], lake.copies()) == expected
