"""Where a view only grows, files of its outbox are copied: the rows are those that Spark would write."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest
from lake_builders import FLAT, FLAT_TYPES, ROWS_OF_ALL_TYPES, Outbox, comparable
from pyiceberg.table.metadata import TableMetadata

from lockstep_engine.sinks import iceberg
from lockstep_engine.tables import table_name

pytestmark = pytest.mark.spark

PAIR = "id bigint, name string"
NESTED = "id bigint, s struct<p: bigint>"


def files_of(outbox: Outbox, table: str) -> set[Path]:
    tasks = outbox.lake.table(table).scan().plan_files()
    return {Path(urlparse(task.file.file_path).path) for task in tasks}


def test_a_view_that_grows_has_copies_of_its_outboxs_files(new_outbox: Any) -> None:
    outbox = new_outbox(FLAT_TYPES)
    rows = [row[:FLAT] for row in ROWS_OF_ALL_TYPES]
    expected: Counter[tuple[Any, ...]] = Counter()
    for step in (0, 1, 3):
        outbox.add([(*row, 1, step) for row in rows])
        assert outbox.publish(step).rows == len(rows)
        assert outbox.is_written_without_spark
        expected.update(map(comparable, rows))
        assert outbox.rows() == expected
    # The tables have no file in common, as each is maintained by itself.
    for file in files_of(outbox, outbox.table):
        file.unlink()
    assert sum(outbox.rows_by_spark().values()) == expected.total()
    assert outbox.rows() == expected


def test_files_of_several_publishes_are_taken_at_once(new_outbox: Any) -> None:
    outbox = new_outbox(PAIR)
    for step in range(4):
        outbox.add([(step, "a", 1, step), (step, "b", 1, step)])
    assert outbox.publish(3).rows == 8
    assert outbox.is_written_without_spark
    outbox.add([(4, "a", 1, 4)])
    outbox.add([(5, "a", 1, 5)])
    assert outbox.publish(4).rows == 1
    assert outbox.is_written_without_spark
    assert outbox.publish(5).rows == 1
    assert outbox.rows() == Counter(
        {(step, name): 1 for step in range(6) for name in ("a", "b") if step < 4 or name == "a"}
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([(1, "a", 2, 1)], {(0, "a"): 1, (1, "a"): 2}),
        ([(0, "a", -1, 1), (1, "a", 1, 1)], {(1, "a"): 1}),
        # Spark writes each half of them to a file.
        ([(1, "a", 1, 1), (1, "a", -1, 2)] * 2, {(0, "a"): 1, (1, "a"): 2}),
        ([(1, "a", 1, 1), (1, "b", 1, 2)] * 2, {(0, "a"): 1, (1, "a"): 2}),
    ],
    ids=["rows of several copies", "rows taken back", "taken back later", "rows of a later step"],
)
def test_other_changes_are_left_to_spark(
    new_outbox: Any,
    monkeypatch: pytest.MonkeyPatch,
    changes: list[tuple[Any, ...]],
    expected: dict[tuple[Any, ...], int],
) -> None:
    """Where they are too many to be netted here."""
    monkeypatch.setattr(iceberg, "NETTED_ROWS", 0)
    outbox = new_outbox(PAIR)
    outbox.add([(0, "a", 1, 0)])
    outbox.publish(0)
    outbox.add(changes)
    outbox.publish(1)
    assert not outbox.is_written_without_spark
    assert outbox.rows() == expected


def test_a_later_column_of_the_view_finds_nothing_in_copies(new_outbox: Any) -> None:
    """Steps and weights stand in the copied files, under ids that no column of the view may get."""
    outbox = new_outbox(PAIR)
    outbox.add([(1, "a", 1, 7)])
    outbox.publish(7)
    assert outbox.is_written_without_spark
    name = table_name(outbox.lake.settings, outbox.view)
    outbox.spark.sql(f"ALTER TABLE {name} ADD COLUMNS (one BIGINT, two BIGINT)")
    assert outbox.rows_by_spark() == outbox.rows() == {(1, "a", None, None): 1}


def partition(outbox: Outbox, name: str) -> None:
    outbox.spark.sql(f"ALTER TABLE {name} ADD PARTITION FIELD id")


def sort(outbox: Outbox, name: str) -> None:
    outbox.spark.sql(f"ALTER TABLE {name} WRITE ORDERED BY id")


def write_otherwise(outbox: Outbox, name: str) -> None:
    outbox.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('write.format.default' = 'orc')")


def number_otherwise(outbox: Outbox, name: str) -> None:
    outbox.spark.sql(f"ALTER TABLE {name} DROP COLUMN name")
    outbox.spark.sql(f"ALTER TABLE {name} ADD COLUMN name STRING")


@pytest.mark.parametrize("change", [partition, sort, write_otherwise, number_otherwise])
def test_a_view_with_files_of_its_own_kind_is_left_to_spark(new_outbox: Any, change: Any) -> None:
    outbox = new_outbox(PAIR)
    outbox.publish(-1)
    outbox.add([(7, None, 1, 0)])
    outbox.publish(0)
    change(outbox, table_name(outbox.lake.settings, outbox.view))
    outbox.add([(1, "a", 1, 1)])
    outbox.publish(1)
    assert not outbox.is_written_without_spark
    assert outbox.rows() == {(7, None): 1, (1, "a"): 1}


@pytest.mark.parametrize("change", [None, partition, sort, write_otherwise])
@pytest.mark.parametrize("small_rows", [0, 100], ids=["first", "few"])
def test_files_of_another_kind_are_not_written_here(
    new_outbox: Any, change: Any, small_rows: int
) -> None:
    """Where rows are taken back: of few, or of a view that has none so far."""
    outbox = new_outbox(PAIR, small_rows=small_rows)
    outbox.publish(-1)
    if change is not None:
        change(outbox, table_name(outbox.lake.settings, outbox.view))
    outbox.add([(1, "a", 1, 0), (1, "a", 1, 0), (2, "b", 1, 0), (2, "b", -1, 1)])
    outbox.publish(1)
    assert outbox.is_written_without_spark == (change is None)
    assert outbox.rows() == {(1, "a"): 2}


def test_columns_that_hold_others_are_left_to_spark(new_outbox: Any) -> None:
    """Their ids follow those of all columns, and the outbox has two more."""
    outbox = new_outbox(NESTED)
    outbox.add([(1, (5,), 1, 0)])
    outbox.publish(0)
    assert not outbox.is_written_without_spark
    assert outbox.rows_by_spark() == {(1, (5,)): 1}


def test_copies_are_merged_into_few_manifests(new_outbox: Any) -> None:
    outbox = new_outbox(PAIR)
    outbox.publish(-1)
    outbox.add([(0, "a", 1, 0)])
    outbox.publish(0)
    name = table_name(outbox.lake.settings, outbox.view)
    outbox.spark.sql(
        f"ALTER TABLE {name} SET TBLPROPERTIES ('commit.manifest.min-count-to-merge' = '3')"
    )
    for step in range(1, 9):
        outbox.add([(step, "a", 1, step)])
        outbox.publish(step)
        assert outbox.is_written_without_spark
    metadata: TableMetadata = outbox.lake.table(outbox.view).metadata
    newest = metadata.snapshot_by_name("main")
    assert newest is not None
    assert len(newest.manifests(outbox.lake.table(outbox.view).io)) < 4
    assert outbox.rows() == {(step, "a"): 1 for step in range(9)}
