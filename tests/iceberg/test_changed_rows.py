"""Rows of a large view that change are deleted by their positions without Spark: every reader finds the
view as it should be, and what was deleted before stands in the newest delete files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lake_builders import (
    FLAT,
    FLAT_TYPES,
    ROWS_OF_ALL_TYPES,
    comparable,
    delete_file,
)
from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
from pyiceberg.table.snapshots import Operation
from view_files import all_deletes, check, deletes, sql, table_of

from lockstep.adapters import iceberg_deletes, iceberg_merging, iceberg_netting
from lockstep.adapters.iceberg_deletes import RowFiles, change_on
from lockstep.errors import AttemptLost, StateDiverged
from lockstep.lake import lookups
from lockstep.lake.changed_files import changed_files
from lockstep.lake.deleted_positions import deleted_positions
from lockstep_engine.sinks import iceberg

pytestmark = pytest.mark.spark

PAIR = "id bigint, name string"


@pytest.fixture
def unmerged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files stay."""
    monkeypatch.setattr(iceberg_merging, "FANOUT", 1000)


def test_all_that_was_deleted_of_a_file_stands_in_one_delete_file(new_outbox: Any) -> None:
    outbox = new_outbox(PAIR)
    outbox.add([(n, "a", 1, 0) for n in range(20)])
    outbox.publish(0)
    outbox.add([(n, "b", 1, 1) for n in range(20, 30)])
    outbox.publish(1)
    expected = {(n, "a" if n < 20 else "b"): 1 for n in range(30)}
    for step in range(2, 6):
        before = outbox.newest
        changes = [(step, "a", -1, step), (20 + step, "b", -1, step), (step, "c", 1, step)]
        outbox.add(changes)
        assert outbox.publish(step).rows == 3
        for *row, weight, _ in changes:
            expected[tuple(row)] = expected.get(tuple(row), 0) + weight
        expected = +Counter(expected)
        assert outbox.is_written_without_spark
        # Deletes and rows are one change of the view, of so few files the only one.
        assert outbox.newest.parent_snapshot_id == before.snapshot_id
        assert outbox.newest.summary is not None
        assert outbox.newest.summary.operation is Operation.OVERWRITE
        assert sum(one.record_count for one in all_deletes(outbox)) == 2 * (step - 1)
        assert max(len(files) for files in deletes(outbox).values()) == 1
        check(outbox, expected)


def test_rows_of_all_types_and_copies_of_them(new_outbox: Any) -> None:
    outbox = new_outbox(FLAT_TYPES)
    rows = [row[:FLAT] for row in ROWS_OF_ALL_TYPES]
    outbox.add([(*row, 3, 0) for row in rows])
    outbox.publish(0)
    outbox.add([(*row, -place % 4, 1) for place, row in enumerate(rows) if -place % 4])
    outbox.publish(1)
    expected: Counter[Any] = Counter()
    for place, row in enumerate(rows):
        expected[comparable(row)] += 3 + -place % 4
    outbox.add([(*row, -2, 2) for row in rows])
    assert outbox.publish(2).rows == len(set(expected))
    expected.subtract([comparable(row) for row in rows] * 2)
    assert outbox.is_written_without_spark
    check(outbox, +expected)


@pytest.mark.parametrize("is_large", [False, True])
def test_rows_are_looked_for_where_they_can_be(
    new_outbox: Any, monkeypatch: pytest.MonkeyPatch, is_large: bool
) -> None:
    """Of a large file by another reader; what it finds there again has been deleted before."""
    selections = list[str]()
    if is_large:
        monkeypatch.setattr(lookups, "LARGE_VALUES", 0)
        monkeypatch.setattr(lookups, "MOST_KEPT", 0)
        selected = lookups.selected_rows
        monkeypatch.setattr(
            lookups,
            "selected_rows",
            lambda path, *more: selections.append(path) or selected(path, *more),
        )
    outbox = new_outbox("id bigint, part int, at timestamp, name string")
    moment = ROWS_OF_ALL_TYPES[0][10]
    rows = [(n, n % 3, moment, f"name {n}") for n in range(100)]
    outbox.add([(*row, 1, 0) for row in rows])
    outbox.publish(0)
    for step in (1, 2):
        gone = rows[7 + step : 60 : 10]
        outbox.add([(*row, -1, step) for row in gone] + [(*row, 1, step) for row in gone[:2]])
        outbox.add([(*row, -1, step) for row in gone[:2]])
        outbox.publish(step)
    assert outbox.is_written_without_spark
    assert bool(selections) is is_large
    gone = {*rows[8:60:10], *rows[9:60:10]}
    check(outbox, {comparable(row): 1 for row in rows if row not in gone})


def test_rows_without_numbers_and_rows_of_nulls(new_outbox: Any) -> None:
    texts, nulls = new_outbox("one string, two string"), new_outbox("id bigint, part int")
    texts.add([("a", None, 2, 0), ("b", "x", 1, 0), (None, None, 1, 0)])
    nulls.add([(1, None, 2, 0), (None, None, 1, 0), (None, 5, 1, 0)])
    for outbox in (texts, nulls):
        outbox.publish(0)
    texts.add([("a", None, -1, 1), (None, None, -1, 1)])
    nulls.add([(1, None, -1, 1), (None, None, -1, 1)])
    for outbox in (texts, nulls):
        outbox.publish(1)
        assert outbox.is_written_without_spark
    check(texts, {("a", None): 1, ("b", "x"): 1})
    check(nulls, {(1, None): 1, (None, 5): 1})


def test_what_spark_has_deleted_is_taken_up(
    new_outbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the other way round: two writers, in turn."""
    outbox = new_outbox(PAIR)
    outbox.add([(n, "a", 1, 0) for n in range(10)])
    outbox.publish(0)
    for step in range(1, 6):
        monkeypatch.setattr(iceberg, "NETTED_ROWS", 0 if step % 2 else 1000)
        outbox.add([(step, "a", -1, step)])
        outbox.publish(step)
        assert outbox.is_written_without_spark is (step % 2 == 0)
        assert sum(one.record_count for one in all_deletes(outbox)) == step
        assert max(len(files) for files in deletes(outbox).values()) == 1
        check(outbox, {(n, "a"): 1 for n in (0, *range(step + 1, 10))})


def test_a_delete_file_of_several_data_files_stays(new_outbox: Any, tmp_path: Path) -> None:
    """As writers make them that are asked for few delete files."""
    outbox = new_outbox(PAIR)
    for step in range(2):
        outbox.add([(step * 10 + n, "a", 1, step) for n in range(5)])
        outbox.publish(step)
    table, rows = table_of(outbox), list[tuple[str, int]]()
    for task in table.scan().plan_files():
        with table.io.new_input(task.file.file_path).open() as opened:
            ids = pq.read_table(opened, columns=["id"])["id"].to_pylist()
        rows += [(task.file.file_path, ids.index(one)) for one in (1, 11) if one in ids]
    assert len({path for path, _ in rows}) == 2
    bounds = {"lower": min(rows)[0], "upper": max(rows)[0]}
    of_both = delete_file(tmp_path, sorted(rows), bounds)
    of_both.spec_id = 0
    outbox.add([(1, "a", -1, 2), (11, "a", -1, 2)])
    marker = {"lockstep.step": "2", "lockstep.incarnation": outbox.incarnation}
    base = outbox.newest.snapshot_id
    change_on(table, "main", base, RowFiles(0, (), [of_both], frozenset()), marker)
    check(outbox, {(n, "a"): 1 for n in (0, 2, 3, 4, 10, 12, 13, 14)})
    outbox.add([(3, "a", -1, 3), (13, "a", -1, 3)])
    outbox.publish(3)
    assert outbox.is_written_without_spark
    assert of_both in all_deletes(outbox)
    assert len(all_deletes(outbox)) == 3
    check(outbox, {(n, "a"): 1 for n in (0, 2, 4, 10, 12, 14)})


@pytest.mark.parametrize(
    "said",
    [
        "'write.merge.mode' = 'copy-on-write', 'write.delete.mode' = 'copy-on-write'",
        "'write.delete.granularity' = 'partition'",
        "'write.delete.format.default' = 'avro'",
    ],
)
def test_who_wants_rows_deleted_in_another_way_has_spark_do_it(new_outbox: Any, said: str) -> None:
    outbox = new_outbox(PAIR)
    outbox.add([(1, "a", 1, 0), (2, "b", 1, 0)])
    outbox.publish(0)
    sql(outbox, f"ALTER TABLE {{name}} SET TBLPROPERTIES ({said})")
    outbox.add([(1, "a", -1, 1)])
    outbox.publish(1)
    assert not outbox.is_written_without_spark
    assert any(deletes(outbox).values()) is ("copy" not in said)
    assert outbox.rows_by_spark() == {(2, "b"): 1}


def test_deletes_that_only_spark_reads_are_left_to_it(new_outbox: Any) -> None:
    outbox = new_outbox(PAIR)
    outbox.add([(n, "a", 1, 0) for n in range(10)])
    outbox.publish(0)
    sql(outbox, "ALTER TABLE {name} SET TBLPROPERTIES ('write.delete.format.default' = 'avro')")
    outbox.add([(n, "a", -1, 1) for n in range(2)])
    outbox.publish(1)
    sql(outbox, "ALTER TABLE {name} UNSET TBLPROPERTIES ('write.delete.format.default')")
    outbox.add([(n, "a", -1, 2) for n in range(2, 4)])
    outbox.publish(2)
    assert not outbox.is_written_without_spark
    assert outbox.rows_by_spark() == {(n, "a"): 1 for n in range(4, 10)}


def test_a_file_that_loses_very_many_rows_is_left_to_spark(
    new_outbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg_deletes, "_MOST_DELETED", 2)
    outbox = new_outbox(PAIR)
    outbox.add([(n, "a", 1, 0) for n in range(10)])
    outbox.publish(0)
    by_spark = 0
    for step in range(1, 7):
        outbox.add([(step, "a", -1, step)])
        outbox.publish(step)
        by_spark += not outbox.is_written_without_spark
    # Of one or two data files, the first two changes each are written here.
    assert 2 <= by_spark <= 4
    check(outbox, {(n, "a"): 1 for n in (0, *range(7, 10))})


def test_rows_that_would_take_much_memory_are_left_to_spark(
    new_outbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox = new_outbox(PAIR)
    outbox.add([(1, "a", 1, 0), (2, "b" * 2000, 1, 0)])
    outbox.publish(0)
    monkeypatch.setattr(iceberg_netting, "_MOST_HELD_BYTES", 1000)
    outbox.add([(1, "a", -1, 1)])
    outbox.publish(1)
    assert outbox.is_written_without_spark
    outbox.add([(2, "b" * 2000, -1, 2)])
    outbox.publish(2)
    assert not outbox.is_written_without_spark
    assert not outbox.rows()


def test_a_branch_that_has_moved_is_not_written_to(new_outbox: Any) -> None:
    outbox = new_outbox(PAIR)
    outbox.add([(1, "a", 1, 0)])
    outbox.publish(0)
    before = outbox.newest.snapshot_id
    outbox.add([(2, "a", 1, 1)])
    outbox.publish(1)
    with pytest.raises(AttemptLost, match="branch main has moved"):
        change_on(table_of(outbox), "main", before, RowFiles(0, (), (), frozenset()), {})


def test_who_follows_the_view_reads_what_has_changed(new_outbox: Any) -> None:
    outbox = new_outbox(PAIR)
    outbox.add([(n, "a", 1, 0) for n in range(10)])
    outbox.publish(0)
    for step in (1, 2):
        before = outbox.newest.snapshot_id
        outbox.add([(step, "a", -1, step), (step, "b", 1, step)])
        outbox.publish(step)
        table = table_of(outbox)
        found = changed_files(table, before, outbox.newest.snapshot_id)
        assert found is not None
        [gone] = [change for change in found if change.weight < 0]
        new = [change.file for change in found if change.weight > 0 and change.unless is None]
        assert sum(file.record_count for file in new) == 1
        positions = set(deleted_positions(table.io, gone.unless or (), gone.file.file_path))
        positions -= set(deleted_positions(table.io, gone.deleted, gone.file.file_path))
        with table.io.new_input(gone.file.file_path).open() as opened:
            rows = pq.read_table(opened, columns=["id"])
        assert rows.take(pa.array(sorted(positions)))["id"].to_pylist() == [step]


@pytest.mark.usefixtures("unmerged")
def test_manifests_do_not_pile_up_and_say_what_has_gone(new_outbox: Any) -> None:
    outbox = new_outbox(PAIR)
    outbox.add([(n, "a", 1, 0) for n in range(20)])
    outbox.publish(0)
    sql(outbox, "ALTER TABLE {name} SET TBLPROPERTIES ('commit.manifest.min-count-to-merge' = '3')")
    times_gone = 0
    for step in range(1, 13):
        outbox.add([(step, "a", -1, step), (step, "b", 1, step)])
        outbox.publish(step)
        assert outbox.is_written_without_spark
        table = table_of(outbox)
        manifests = outbox.newest.manifests(table.io)
        assert len(manifests) <= 6
        of_deletes = [one for one in manifests if one.content == ManifestContent.DELETES]
        gone = [
            entry.snapshot_id
            for one in of_deletes
            for entry in one.fetch_manifest_entry(table.io, discard_deleted=False)
            if entry.status == ManifestEntryStatus.DELETED
        ]
        assert set(gone) <= {outbox.newest.snapshot_id}
        times_gone += len(gone)
    assert times_gone == 12 - len(all_deletes(outbox))
    rest = {(n, "a"): 1 for n in (0, *range(13, 20))}
    check(outbox, rest | {(n, "b"): 1 for n in range(1, 13)})


def test_a_users_maintenance_takes_it_as_its_own(new_outbox: Any) -> None:
    """Expiry deletes the delete files that have gone; a compaction leaves nothing of the others."""
    outbox = new_outbox(PAIR)
    outbox.add([(n, "a", 1, 0) for n in range(10)])
    outbox.publish(0)
    seen = set[str]()
    for step in range(1, 4):
        outbox.add([(step, "a", -1, step)])
        outbox.publish(step)
        seen |= {one.file_path for one in all_deletes(outbox)}
    sql(
        outbox,
        "CALL {catalog}.system.expire_snapshots(table => '{whole}', retain_last => 1, "
        "older_than => TIMESTAMP '2100-01-01 00:00:00')",
    )
    files = table_of(outbox).io
    there = {one.file_path for one in all_deletes(outbox)}
    assert len(seen) > len(there) > 0
    assert {path for path in seen if files.new_input(path).exists()} == there
    rest = {(n, "a"): 1 for n in (0, *range(4, 10))}
    check(outbox, rest)
    sql(
        outbox,
        "CALL {catalog}.system.rewrite_data_files(table => '{whole}', "
        "options => map('rewrite-all', 'true'))",
    )
    assert outbox.rows() == outbox.rows_by_spark() == rest
    assert not any(deletes(outbox).values())


@pytest.mark.parametrize("is_much", [False, True])
def test_much_is_left_to_spark(
    new_outbox: Any, monkeypatch: pytest.MonkeyPatch, is_much: bool
) -> None:
    """Four times as much is looked at as for a small change."""
    monkeypatch.setattr(lookups, "MOST_ROWS", 2)
    outbox = new_outbox(PAIR)
    rows = [(n, "a") for n in range(9 + is_much)]
    outbox.add([(*row, 1, 0) for row in rows])
    outbox.publish(0)
    outbox.add([(*row, -1, 1) for row in rows[1:]])
    outbox.add([(*rows[0], -1, 1), (*rows[0], 1, 1), (7, "new", 1, 1)])
    assert outbox.publish(1).rows == 9 + is_much
    assert outbox.is_written_without_spark is not is_much
    check(outbox, {rows[0]: 1, (7, "new"): 1})


def test_a_row_that_is_lacking_leaves_the_view_as_it_was(new_outbox: Any) -> None:
    outbox = new_outbox(PAIR)
    outbox.add([(1, "a", 1, 0), (2, "b", 1, 0)])
    outbox.publish(0)
    before = outbox.newest
    outbox.add([(1, "a", -1, 1), (2, "c", -1, 1)])
    with pytest.raises(StateDiverged, match=r"too few of .*2.*c"):
        outbox.publish(1)
    assert outbox.newest == before
    assert set(outbox.lake.state.refs(outbox.view)) == {"main", "lockstep"}
