"""A large view's small files are merged when it is published: the same rows, in few files."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from lake_builders import FLAT, FLAT_TYPES, ROWS_OF_ALL_TYPES, Outbox, comparable
from pyiceberg.table.snapshots import Operation
from view_files import check, deletes, rows_in_files, sql, table_of

from lockstep.adapters import iceberg_merging
from lockstep.adapters.iceberg_deletes import RowFiles, _delete_file, change_on
from lockstep.adapters.iceberg_merging import files_to_rewrite
from lockstep.control.compaction import DataFileInfo
from lockstep_engine.sinks import iceberg
from lockstep_engine.tables import table_name

PAIR = "id bigint, name string"


def operations(outbox: Outbox) -> list[Operation]:
    """Of the snapshots that main has come by, oldest first."""
    return [one.summary.operation for one in table_of(outbox).snapshots() if one.summary]


@pytest.mark.spark
@pytest.mark.parametrize("kind", [FLAT_TYPES, PAIR], ids=["all types", "pairs"])
def test_eight_small_files_become_one(new_outbox: Any, kind: str) -> None:
    """However many changes there have been, with what was deleted of them."""
    outbox = new_outbox(kind)
    rest = ROWS_OF_ALL_TYPES[0][1:FLAT] if kind == FLAT_TYPES else ("a",)
    rows = [(n, *rest) for n in range(100)]
    outbox.add([(*row, 2, 0) for row in rows])
    outbox.publish(0)
    expected = Counter({comparable(row): 2 for row in rows})
    most = 0
    for step in range(1, 25):
        gone, back = rows[step * 3], rows[step]
        outbox.add([(*gone, -1, step), (*back, 1, step)])
        assert outbox.publish(step).rows == 2
        assert outbox.is_written_without_spark
        expected.update([comparable(back)])
        expected.subtract([comparable(gone)])
        most = max(most, len(rows_in_files(outbox)))
    assert 6 <= most <= 9
    check(outbox, +expected)
    assert sum(rows_in_files(outbox)) < 200 + 24
    assert set(operations(outbox)) == {Operation.APPEND, Operation.OVERWRITE, Operation.REPLACE}


@pytest.mark.spark
def test_a_view_that_only_grows_is_read_by_what_was_appended(new_outbox: Any) -> None:
    outbox = new_outbox(PAIR)
    for step in range(20):
        outbox.add([(step, "a", 1, step)])
        outbox.publish(step)
        assert outbox.is_written_without_spark
        if step == 5:
            before = outbox.newest.snapshot_id
    assert len(rows_in_files(outbox)) <= 8
    check(outbox, {(step, "a"): 1 for step in range(20)})
    assert set(operations(outbox)) == {Operation.APPEND, Operation.REPLACE}
    scan = table_of(outbox).incremental_append_scan(
        from_snapshot_id_exclusive=before, to_snapshot_id_inclusive=outbox.newest.snapshot_id
    )
    assert sorted(scan.to_arrow()["id"].to_pylist()) == list(range(6, 20))


@pytest.mark.spark
def test_what_spark_publishes_is_merged_too(
    new_outbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg, "NETTED_ROWS", 0)
    outbox = new_outbox(PAIR)
    outbox.add([(n, "a", 2, 0) for n in range(10)])
    outbox.publish(0)
    step = 0
    while step < 9 and Operation.REPLACE not in operations(outbox):
        step += 1
        outbox.add([(step, "a", -1, step), (step, "b", 1, step)])
        assert outbox.publish(step).rows == 2
        assert not outbox.is_written_without_spark
    # At the latest with one file of each of eight publishes.
    assert Operation.REPLACE in operations(outbox)
    expected = {(n, "a"): 2 - (0 < n <= step) for n in range(10)}
    assert outbox.rows() == expected | {(n, "b"): 1 for n in range(1, step + 1)}


@pytest.mark.spark
@pytest.mark.parametrize(
    ("columns", "value"),
    [
        ("id bigint, tags array<struct<p: string>>", "CAST(NULL AS array<struct<p: string>>)"),
        ("id bigint, name string", "CAST(X'ff' AS STRING)"),
    ],
    ids=["structs", "text that is not UTF-8"],
)
def test_what_cannot_be_merged_here_is_published_as_it_is(
    new_outbox: Any, columns: str, value: str
) -> None:
    outbox = new_outbox(columns)
    settings, state = outbox.lake.settings, outbox.lake.state
    name = columns.split()[2]
    for step in range(10):
        rows = f"SELECT {step}L AS id, {value} AS {name}, 1L AS _weight, {step}L AS _step"
        outbox.spark.sql(rows).writeTo(table_name(settings, outbox.table)).option(
            "snapshot-property.lockstep.step", str(step)
        ).append()
        outbox.snapshot = state.head(outbox.table, "main")
        assert outbox.publish(step).marker == step
    assert Operation.REPLACE not in operations(outbox)
    found = outbox.spark.table(table_name(settings, outbox.view)).select(name)
    assert (found.count(), found.distinct().count()) == (10, 1)
    assert found.where(f"{name} <=> {value}").count() == 10


@pytest.mark.spark
def test_rows_that_would_take_much_memory_are_not_merged(
    new_outbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg_merging, "_MOST_HELD_BYTES", 10)
    outbox = new_outbox(PAIR)
    for step in range(10):
        outbox.add([(step, "a", 1, step)])
        outbox.publish(step)
    assert Operation.REPLACE not in operations(outbox)
    check(outbox, {(step, "a"): 1 for step in range(10)})


@pytest.mark.spark
def test_a_small_view_with_deletes_has_its_files_merged_too(new_outbox: Any) -> None:
    outbox = new_outbox(PAIR)
    outbox.add([(n, "a", 1, 0) for n in range(20)])
    outbox.publish(0)
    for step in range(1, 20):
        outbox.add([(step, "a", -1, step), (step, "b", 1, step)])
        outbox.publish(step, small_rows=0 if step == 1 else 1000)
    assert len(rows_in_files(outbox)) < 10
    assert outbox.rows() == {(0, "a"): 1} | {(n, "b"): 1 for n in range(1, 20)}


@pytest.mark.spark
def test_a_publish_that_dies_once_it_has_merged_is_repeated(
    new_outbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox = new_outbox(PAIR)
    for step in range(8):
        outbox.add([(step, "a", 1, step)])
        outbox.publish(step)
    before, state = outbox.newest, outbox.lake.state
    merge = state.merge_small_files

    def merge_and_die(*arguments: Any) -> None:
        assert merge(*arguments) != before.snapshot_id
        raise RuntimeError("it dies")

    outbox.add([(0, "a", -1, 8), (8, "b", 1, 8)])
    with monkeypatch.context() as patched:
        patched.setattr(state, "merge_small_files", merge_and_die)
        with pytest.raises(RuntimeError, match="it dies"):
            outbox.publish(8)
    assert outbox.newest == before
    assert outbox.publish(8).rows == 2
    check(outbox, {(step, "a"): 1 for step in range(1, 8)} | {(8, "b"): 1})
    assert set(state.refs(outbox.view)) == {"main", "lockstep"}


@pytest.mark.spark
def test_delete_files_of_what_has_gone_go(new_outbox: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's compaction may leave them."""
    outbox = new_outbox(PAIR)
    outbox.add([(n, "a", 1, 0) for n in range(10)])
    outbox.publish(0)
    table, base = table_of(outbox), outbox.newest.snapshot_id
    nowhere = _delete_file(table, f"{table.location()}/data/nowhere.parquet", np.arange(3))
    marker = {"lockstep.step": "1", "lockstep.incarnation": outbox.incarnation}
    change_on(table, "main", base, RowFiles(0, (), [nowhere], frozenset()), marker)
    outbox.add([(1, "a", -1, 2)])
    outbox.publish(2)
    summary = outbox.newest.summary
    assert summary is not None
    assert summary["total-position-deletes"] == "4"
    monkeypatch.setattr(iceberg_merging, "FANOUT", 1)
    outbox.add([(2, "a", -1, 3)])
    outbox.publish(3)
    # Which counts those that are there, of files that are.
    check(outbox, {(n, "a"): 1 for n in (0, *range(3, 10))})


@pytest.mark.spark
def test_files_of_former_partitions_stay(new_outbox: Any) -> None:
    outbox = new_outbox(PAIR)
    outbox.publish(-1)
    sql(outbox, "ALTER TABLE {name} ADD PARTITION FIELD name")
    outbox.add([(n, "a", 1, 0) for n in range(10)])
    outbox.publish(0)
    sql(outbox, "ALTER TABLE {name} DROP PARTITION FIELD name")
    for step in range(1, 12):
        outbox.add([(step, "b", 1, step), *([(step - 1, "b", -1, step)] if step > 1 else [])])
        outbox.publish(step)
        assert outbox.is_written_without_spark
    assert Operation.REPLACE in operations(outbox)
    # Which has to be said of each delete file; Spark says it.
    outbox.add([(3, "a", -1, 12)])
    outbox.publish(12)
    assert not outbox.is_written_without_spark
    assert outbox.rows() == {(n, "a"): 1 for n in range(10) if n != 3} | {(11, "b"): 1}


@pytest.mark.spark
def test_who_wants_other_files_has_them_left_alone(new_outbox: Any) -> None:
    outbox = new_outbox(PAIR)
    outbox.publish(-1)
    sql(outbox, "ALTER TABLE {name} WRITE ORDERED BY id")
    for step in range(10):
        outbox.add([(step, "a", 1, step)])
        outbox.publish(step)
    assert Operation.REPLACE not in operations(outbox)
    assert not any(deletes(outbox).values())
    assert outbox.rows() == {(step, "a"): 1 for step in range(10)}


# ── what is merged, when ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("bytes_a_row", [2, 4, 10, 40, 400])
def test_a_row_is_rewritten_a_few_times_whatever_its_size(bytes_a_row: int) -> None:
    """As publishes of 20,000 rows come and nothing goes."""
    files, rewritten, publishes, merges = [], 0, 1500, 0
    for publish in range(publishes):
        files.append(DataFileInfo(f"{publish}", 20_000 * bytes_a_row, 20_000))
        merged = set(files_to_rewrite([(one, one) for one in files]))
        gone = [one for one in files if one.path in merged]
        if gone:
            rows = sum(one.records for one in gone)
            assert rows <= 2_000_000
            rewritten += rows
            merges += 1
            files = [one for one in files if one.path not in merged]
            files.append(DataFileInfo(f"m{publish}", rows * bytes_a_row, rows))
    assert rewritten < 4 * 20_000 * publishes
    assert merges <= publishes // 7
    assert len([one for one in files if one.records < 250_000 and one.bytes < 8 << 20]) <= 24


def info(path: str, rows: int, size: int = 100) -> DataFileInfo:
    return DataFileInfo(path, rows * size, rows)


def test_a_large_file_is_rewritten_when_half_of_it_is_gone() -> None:
    large, left = info("large", 500_000), info("large", 260_000)
    assert files_to_rewrite([(large, left)]) == []
    assert files_to_rewrite([(large, info("large", 250_000))]) == ["large"]
    small = info("small", 1000)
    assert files_to_rewrite([(small, info("small", 1)), (large, left)]) == []
    too_large = info("too large", 2_500_000, 1)
    assert files_to_rewrite([(too_large, info("too large", 1, 1))]) == []
    # Nor does it keep others from it; and where all is gone, nothing is read of it.
    small = [info(f"{n}", 100) for n in range(8)]
    others = [(one, one) for one in small]
    paths = [one.path for one in small]
    assert files_to_rewrite([(too_large, info("too large", 1, 1)), *others]) == paths
    gone = (too_large, info("too large", 0))
    assert files_to_rewrite([gone]) == ["too large"]
    assert files_to_rewrite([gone, *others]) == ["too large", *paths]


def test_no_more_are_read_than_fit_the_smaller_ones_first() -> None:
    whole = [info(f"{n}", 400_000 + n, 20) for n in range(8)]
    left = [info(f"{n}", 100_000 + n, 20) for n in range(8)]
    assert files_to_rewrite(list(zip(whole, left, strict=True))) == ["0", "1", "2", "3"]
