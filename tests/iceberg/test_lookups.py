"""Rows that are looked up by their keys, against all rows of the snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from lake_builders import local_catalog
from pyiceberg.table import Table
from pyiceberg.types import LongType

from lockstep.lake import kept_batches, lookups
from lockstep.lake.lookups import look_up
from lockstep.lake.opening import OpenCatalog
from lockstep.lake.selective_scan import selected_rows

GROUP = {"write.parquet.row-group-limit": "100"}
SCHEMA = pa.schema([("Id", pa.int64()), ("part", pa.int32()), ("name", pa.string())])


def rows(first: int, count: int) -> pa.Table:
    """Ids that grow, with a null at each hundredth; parts that do not."""
    ids = [None if i % 100 == 99 else i for i in range(first, first + count)]
    parts = [i * 7 % 50 for i in range(count)]
    return pa.table([ids, parts, [f"name {i}" for i in ids]], schema=SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Two files of ten and five row groups."""
    catalog = OpenCatalog(local_catalog(tmp_path)).connected()
    catalog.create_namespace("db")
    made = catalog.create_table("db.t", SCHEMA, properties=GROUP)
    made.append(rows(0, 1000))
    made.append(rows(1000, 500))
    return made


def head(table: Table) -> int:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def numbers(*values: int) -> Any:
    return np.array(sorted(values), np.int64)


def found(
    table: Table, columns: tuple[str, ...], keys: Mapping[str, Any], snapshot: int | None = None
) -> list[tuple[Any, ...]] | None:
    made = look_up(table, snapshot or head(table), columns, keys)
    return None if made is None else sorted_rows(made)


def sorted_rows(made: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(zip(*(c.to_pylist() for c in made.columns), strict=True), key=str)


def expected(table: Table, columns: tuple[str, ...], keys: Mapping[str, Any]) -> list[Any]:
    """By all rows, in plain Python."""
    everything = table.scan().to_arrow()
    wanted = [
        all(row[name] is None or row[name] in list(one) for name, one in keys.items())
        for row in everything.to_pylist()
    ]
    return sorted_rows(everything.select(list(columns)).filter(pa.array(wanted)))


@pytest.mark.parametrize(
    "keys",
    [
        {"Id": numbers(3)},
        {"Id": numbers(3, 250, 1234, 99999)},
        {"part": numbers(1, 3)},
        {"part": numbers(-(1 << 40), 3, 1 << 40)},
        {"Id": numbers(*range(100, 300)), "part": numbers(5, 6, 7)},
        {"Id": numbers(-(1 << 63), (1 << 63) - 1)},
        {},
    ],
)
def test_rows_with_wanted_keys_or_null_are_found(table: Table, keys: Mapping[str, Any]) -> None:
    columns = ("name", "Id", "part")
    assert found(table, columns, keys) == expected(table, columns, keys)


@pytest.mark.parametrize("name", ['a"b', "a.b", "a b", "is null", "é"])
def test_a_key_may_have_any_name(table: Table, name: str) -> None:
    named = table.catalog.create_table("db.named", pa.schema([(name, pa.int64())]))
    for first in (0, 10):
        named.append(pa.table({name: range(first, first + 10)}))
    assert found(named, (name,), {name: numbers(3, 12)}) == [(12,), (3,)]


def noted_groups(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The row groups that are read, as they are."""
    read = list[int]()

    def noted(files: Any, path: str, group: int, *more: Any, **named: Any) -> Any:
        read.append(group)
        return kept_batches.batches_of_group(files, path, group, *more, **named)

    monkeypatch.setattr(lookups, "batches_of_group", noted)
    return read


def test_row_groups_without_wanted_keys_are_not_read(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there are no nulls; and of files without them nothing at all."""
    catalog = table.catalog
    dense = catalog.create_table("db.dense", SCHEMA, properties=GROUP)
    for first in (0, 1000):
        ids = list(range(first, first + 1000))
        dense.append(pa.table([ids, ids, [str(i) for i in ids]], schema=SCHEMA))
    read = noted_groups(monkeypatch)
    assert found(dense, ("Id",), {"Id": numbers(205, 210, 730)}) == [(205,), (210,), (730,)]
    assert sorted(read) == [2, 7]
    assert found(dense, ("Id",), {"Id": numbers(5000)}) == []
    assert sorted(read) == [2, 7]


def test_what_is_too_much_is_not_read_to_the_end(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A column with few values lies in few bytes, whatever its rows."""
    dense = table.catalog.create_table("db.dense", SCHEMA, properties=GROUP)
    dense.append(pa.table([[7] * 5000, range(5000), ["x"] * 5000], schema=SCHEMA))
    read = noted_groups(monkeypatch)
    monkeypatch.setattr(lookups, "MOST_ROWS", 250)
    assert found(dense, ("Id",), {"Id": numbers(7)}) is None
    assert 3 <= len(read) < 50


def remove_data(table: Table) -> None:
    for task in table.scan().plan_files():
        Path(task.file.file_path.removeprefix("file://")).unlink()


def test_what_was_read_is_kept(table: Table) -> None:
    keys = {"Id": numbers(3, 1234)}
    before = found(table, ("Id", "name"), keys)
    remove_data(table)
    assert found(table, ("Id", "name"), keys) == before
    assert found(table, ("Id", "name"), {"Id": numbers(4)}) == [
        (4, "name 4"),
        *[(None, "name None")] * 15,
    ]
    with pytest.raises(FileNotFoundError):
        found(table, ("Id", "part"), keys)


def test_rows_come_in_one_order_whatever_is_kept(table: Table) -> None:
    """What an interval appends does not depend on the process that has worked it out."""
    one = pa.schema([("a", pa.int64())])
    dense = table.catalog.create_table("db.dense", one)
    for first in (0, 100, 200):
        dense.append(pa.table({"a": range(first, first + 100)}))

    def of(*keys: int) -> list[int]:
        made = look_up(dense, head(dense), ("a",), {"a": numbers(*keys)})
        assert made is not None
        return [int(key) for key in made["a"].to_pylist()]

    assert of(150) == [150]
    partly_kept = of(50, 150, 250)
    assert sorted(partly_kept) == [50, 150, 250]
    assert of(50, 150, 250) == partly_kept


def test_much_is_not_kept(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "MOST_KEPT", 1000)
    assert found(table, ("Id",), {"Id": numbers(3)}) is not None
    remove_data(table)
    with pytest.raises(FileNotFoundError):
        found(table, ("Id",), {"Id": numbers(3)})


def test_much_is_kept_that_is_looked_up_again(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what is new beside it, which may be as much as is kept at once."""
    monkeypatch.setattr(lookups, "MOST_KEPT", 65536 * 5)
    keys = {"Id": numbers(*range(0, 1500, 50))}
    for _ in range(2):
        before = found(table, ("Id",), keys)
    table.append(rows(1500, 100))
    after = found(table, ("Id",), keys)
    assert before is not None
    assert after is not None
    assert len(after) == len(before) + 1, "a null"
    remove_data(table)
    assert found(table, ("Id",), keys) == after


def test_more_is_not_kept_however_often_it_is_looked_up(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookups, "MOST_KEPT", 0)
    monkeypatch.setattr(lookups, "MOST_KEPT_AGAIN", 65536)
    keys = {"Id": numbers(*range(0, 1500, 50))}
    for _ in range(4):
        assert found(table, ("Id",), keys) is not None
    remove_data(table)
    with pytest.raises(FileNotFoundError):
        found(table, ("Id",), keys)


@pytest.fixture
def swapped(table: Table, monkeypatch: pytest.MonkeyPatch) -> Table:
    """A table whose two numbers change names, by batches of ten rows."""
    for module in (kept_batches, lookups):
        monkeypatch.setattr(module, "BATCH_ROWS", 10)
    made = table.catalog.create_table(
        "db.swapped", pa.schema([("a", pa.int64()), ("b", pa.int64())])
    )
    made.append(pa.table({"a": range(100), "b": range(1000, 1100)}))
    return made


def test_of_what_was_read_it_is_known_where_keys_are(
    swapped: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def noted(files: Any, path: str, group: int, names: Any, wanted: Any, **named: Any) -> Any:
        asked.append(list(wanted))
        return kept_batches.batches_of_group(files, path, group, names, wanted, **named)

    monkeypatch.setattr(lookups, "batches_of_group", noted)
    for _ in range(2):
        assert found(swapped, ("a", "b"), {"a": numbers(45, 71)}) == [(45, 1045), (71, 1071)]
        assert found(swapped, ("a",), {"a": numbers(99)}) == [(99,)]
    assert asked == [list(range(10)), [9], [4, 7], [9]]


def test_names_that_change_places_do_not_mislead(swapped: Table) -> None:
    assert found(swapped, ("a", "b"), {"a": numbers(45)}) == [(45, 1045)]
    for old, new in (("a", "c"), ("b", "a"), ("c", "b")):
        with swapped.update_schema() as update:
            update.rename_column(old, new)
    assert found(swapped, ("a", "b"), {"a": numbers(1045)}) == [(1045, 45)]
    assert found(swapped, ("a", "b"), {"a": numbers(45)}) == []


def test_an_older_snapshot_has_its_own_rows(table: Table) -> None:
    before = head(table)
    table.append(rows(0, 10))
    assert found(table, ("Id",), {"Id": numbers(3)}, before) == [(3,), *[(None,)] * 15]
    assert found(table, ("Id",), {"Id": numbers(3)}) == [(3,), (3,), *[(None,)] * 15]


def test_a_snapshot_that_is_gone_is_left_to_spark(table: Table) -> None:
    assert found(table, ("Id",), {"Id": numbers(3)}, snapshot=12345) is None


def test_names_are_found_whatever_their_case(table: Table) -> None:
    made = look_up(table, head(table), ("NAME", "id"), {"id": numbers(3)})
    assert made is not None
    assert made.column_names == ["NAME", "id"]
    assert ("name 3", 3) in sorted_rows(made)


def test_much_is_left_to_spark(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"Id": numbers(*range(50))}
    monkeypatch.setattr(lookups, "MOST_ROWS", 64)
    assert found(table, ("Id",), keys) is None  # fifty, and fifteen with null
    monkeypatch.setattr(lookups, "MOST_ROWS", 65)
    assert found(table, ("Id",), keys) == expected(table, ("Id",), keys)
    for limit, too_many in (("MOST_BYTES", 10), ("MOST_OPENED", 1), ("MOST_LISTED", 1)):
        with monkeypatch.context() as patched:
            patched.setattr(lookups, limit, too_many)
            assert found(table, ("Id",), keys) is None


def test_some_times_as_much_may_be_looked_up(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"Id": numbers(*range(50))}

    def made(times: int) -> list[tuple[Any, ...]] | None:
        rows = look_up(table, head(table), ("Id",), keys, times=times)
        return None if rows is None else sorted_rows(rows)

    monkeypatch.setattr(lookups, "MOST_ROWS", 22)
    assert made(2) is None
    assert made(3) == expected(table, ("Id",), keys)
    monkeypatch.setattr(lookups, "MOST_ROWS", 65)
    monkeypatch.setattr(lookups, "MOST_OPENED", 1)
    files = len(list(table.scan().plan_files()))
    assert files > 1
    assert made(files) == expected(table, ("Id",), keys)
    assert made(files - 1) is None
    monkeypatch.setattr(lookups, "MOST_BYTES", 1)
    assert made(100_000) is None


def test_files_of_another_form_are_left_to_spark(table: Table) -> None:
    with table.update_schema() as update:
        update.update_column("part", LongType())
    assert found(table, ("part",), {"part": numbers(3)}) is None
    assert found(table, ("Id",), {"Id": numbers(3)}) is not None


def test_a_key_may_be_renamed(table: Table) -> None:
    with table.update_schema() as update:
        update.rename_column("part", 'p"art')
    keys = {'p"art': numbers(3)}
    assert found(table, ('p"art', "Id"), keys) == expected(table, ('p"art', "Id"), keys)


def test_a_column_without_whole_numbers_says_nothing(table: Table) -> None:
    assert found(table, ("Id", "name"), {"name": numbers(3)}) is None
    both = {"name": numbers(3), "Id": numbers(7)}
    assert found(table, ("Id", "name"), both) == expected(table, ("Id", "name"), {"Id": numbers(7)})


@pytest.fixture
def large(table: Table, monkeypatch: pytest.MonkeyPatch) -> Table:
    """Two files of ten row groups whose keys are never null, one in order and one not; of each some rows
    are deleted. Whatever is looked up is much."""
    monkeypatch.setattr(lookups, "MOST_KEPT", 0)
    monkeypatch.setattr(lookups, "LARGE_VALUES", 0)
    made = table.catalog.create_table("db.large", SCHEMA, properties=GROUP)
    for first in (0, 1000):
        ids = list(range(first, first + 1000))
        parts = [i * 7 % 50 for i in ids]
        made.append(pa.table([ids, parts, [f"name {i}" for i in ids]], schema=SCHEMA))
    made.delete("Id in (3, 205, 1730)")
    return made


def noted_selections(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are read by the reader for large ones."""
    read = list[str]()

    def noted(path: str, *more: Any) -> Any:
        read.append(path)
        return selected_rows(path, *more)

    monkeypatch.setattr(lookups, "selected_rows", noted)
    return read


@pytest.mark.parametrize(
    "keys",
    [
        {"Id": numbers(3, 4, 205, 1730, 1731)},
        {"part": numbers(1, 3)},
        {"Id": numbers(*range(100, 1300)), "part": numbers(5, 6, 7)},
        {"part": numbers(1 << 40)},
    ],
)
def test_much_is_found_by_another_reader(
    large: Table, keys: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    read, columns = noted_selections(monkeypatch), ("name", "Id", "part")
    first = look_up(large, head(large), columns, keys)
    assert first is not None
    assert sorted_rows(first) == expected(large, columns, keys)
    assert bool(read) == bool(first.num_rows)
    # In one order, whoever reads, and whatever is known by then.
    for _ in range(3):
        again = look_up(large, head(large), columns, keys)
        assert again == first
    monkeypatch.setattr(lookups, "LARGE_VALUES", 1 << 40)
    assert look_up(large, head(large), columns, keys) == first


def test_what_is_looked_up_again_is_known_better(
    large: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second time the keys' ends are noted, of all batches; then only batches are read that can hold
    a key, and those that are few are kept."""
    monkeypatch.setattr(kept_batches, "BATCH_ROWS", 25)
    monkeypatch.setattr(lookups, "BATCH_ROWS", 25)
    monkeypatch.setattr(lookups, "MOST_KEPT", 99)
    monkeypatch.setattr(lookups, "LARGE_VALUES", 25)
    selections, groups = noted_selections(monkeypatch), noted_groups(monkeypatch)
    keys = {"Id": numbers(1404)}
    assert found(large, ("Id",), keys) == [(1404,)]
    assert (len(selections), groups) == (1, [])
    assert found(large, ("Id",), keys) == [(1404,)]
    assert (len(selections), groups) == (1, [4, 4])
    assert found(large, ("Id",), {"Id": numbers(1480)}) == [(1480,)]
    assert (len(selections), groups) == (1, [4, 4, 4])


def test_many_rows_of_a_large_file_are_not_for_here(
    large: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are counted without those that are deleted."""
    keys = {"Id": numbers(*range(1000))}
    monkeypatch.setattr(lookups, "MOST_ROWS", 998)
    assert len(found(large, ("Id",), keys) or ()) == 998
    monkeypatch.setattr(lookups, "MOST_ROWS", 997)
    assert found(large, ("Id",), keys) is None
