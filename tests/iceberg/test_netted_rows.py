"""A view of few rows is written anew without Spark: what stands there is what Spark would write."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest
from lake_builders import FLAT, FLAT_TYPES, ROWS_OF_ALL_TYPES, comparable
from pyiceberg.table.snapshots import Operation

from lockstep_engine.sinks import iceberg
from lockstep_engine.sinks.iceberg import SMALL_ROWS
from lockstep_engine.tables import table_name

pytestmark = pytest.mark.spark

PAIR = "id bigint, name string"


@pytest.fixture
def small_outbox(new_outbox: Any) -> Any:
    """Outboxes of views that are small enough to be written anew."""
    return lambda columns: new_outbox(columns, SMALL_ROWS)


def test_rows_of_all_types_are_put_in_the_place_of_all_in_one_snapshot(small_outbox: Any) -> None:
    outbox = small_outbox(FLAT_TYPES)
    rows = [row[:FLAT] for row in ROWS_OF_ALL_TYPES]
    expected: Counter[tuple[Any, ...]] = Counter()
    for step in range(4):
        gone = [(*row, -1, step) for row in rows[:3]] if step else []
        outbox.add([*((*row, 2, step) for row in rows), *gone])
        before = outbox.lake.state.view_head(outbox.view)
        outbox.publish(step)
        expected.update([comparable(row) for row in rows] * 2)
        expected.subtract(comparable(row[:FLAT]) for row in gone)
        assert outbox.is_written_without_spark
        assert outbox.rows() == expected
        assert before is None or outbox.newest.parent_snapshot_id == before.snapshot_id
    found = outbox.newest
    assert found.summary is not None
    assert found.summary.operation is Operation.OVERWRITE
    assert found.summary["total-data-files"] == "1"
    # Those that say which files have gone do not pile up.
    assert len(found.manifests(outbox.lake.table(outbox.view).io)) == 2
    assert outbox.rows_by_spark().total() == expected.total()


def test_a_view_may_be_left_without_rows(small_outbox: Any) -> None:
    outbox = small_outbox(PAIR)
    outbox.add([(1, "a", 1, 0)])
    outbox.publish(0)
    outbox.add([(1, "a", -1, 1)])
    assert outbox.publish(1).rows == 1
    assert outbox.is_written_without_spark
    assert not outbox.rows()


def test_rows_that_come_and_go_in_between_have_not_changed(small_outbox: Any) -> None:
    outbox = small_outbox(PAIR)
    outbox.add([(1, "a", 1, 0)])
    outbox.publish(0)
    outbox.add([(2, "b", 1, 1), (1, "a", 2, 1)])
    outbox.add([(2, "b", -1, 2), (3, "c", 1, 2)])
    outbox.add([(9, "z", 1, 3)])
    assert outbox.publish(2).rows == 2
    assert outbox.is_written_without_spark
    assert outbox.rows() == {(1, "a"): 3, (3, "c"): 1}


@pytest.mark.parametrize("is_many", [False, True])
def test_many_changes_of_few_rows(
    new_outbox: Any, monkeypatch: pytest.MonkeyPatch, is_many: bool
) -> None:
    """As many steps have them that change the same rows."""
    if is_many:
        monkeypatch.setattr(iceberg, "NETTED_ROWS", 10)
    outbox = new_outbox(PAIR, small_rows=5)
    outbox.add([(1, "a", 1, 0), (2, "b", 1, 0)])
    outbox.publish(0)
    for step in range(1, 7):
        before = [(1, "a" * step, -1, step)]
        outbox.add([*before, (1, "a" * (step + 1), 1, step)])
    assert outbox.publish(6).rows == 2
    assert outbox.is_written_without_spark is not is_many
    assert outbox.rows() == {(1, "a" * 7): 1, (2, "b"): 1}


def test_files_of_other_steps_are_not_opened(small_outbox: Any) -> None:
    outbox = small_outbox(PAIR)
    outbox.add([(1, "a", 1, 0), (2, "b", 1, 1)])
    outbox.publish(0)
    [task] = outbox.lake.table(outbox.table).scan("_step = 0").plan_files()
    Path(urlparse(task.file.file_path).path).unlink()
    outbox.publish(1)
    assert outbox.is_written_without_spark
    assert outbox.rows() == {(1, "a"): 1, (2, "b"): 1}


def test_columns_that_hold_others_are_left_to_spark(small_outbox: Any) -> None:
    outbox = small_outbox("id bigint, s struct<p: bigint>")
    outbox.add([(1, (5,), 1, 0)])
    outbox.publish(0)
    assert not outbox.is_written_without_spark
    assert outbox.rows_by_spark() == {(1, (5,)): 1}


def test_texts_that_are_not_utf_8_are_left_to_spark(small_outbox: Any) -> None:
    outbox = small_outbox("h string")
    state, settings = outbox.lake.state, outbox.lake.settings
    outbox.spark.sql("SELECT CAST(X'ff' AS STRING) AS h, 1L AS _weight, 0L AS _step").writeTo(
        table_name(settings, outbox.table)
    ).option("snapshot-property.lockstep.step", "0").append()
    outbox.snapshot = state.head(outbox.table, "main")
    outbox.publish(0)
    assert not outbox.is_written_without_spark
    name = table_name(settings, outbox.view)
    assert outbox.spark.sql(f"SELECT hex(h) FROM {name}").collect() == [("FF",)]


def test_a_view_with_partitions_is_left_to_spark(small_outbox: Any) -> None:
    outbox = small_outbox(PAIR)
    outbox.add([(1, "a", 1, 0), (2, "b", 1, 0)])
    outbox.publish(0)
    name = table_name(outbox.lake.settings, outbox.view)
    outbox.spark.sql(f"ALTER TABLE {name} ADD PARTITION FIELD name")
    outbox.add([(3, "c", 1, 2)])
    outbox.publish(2)
    assert not outbox.is_written_without_spark
    assert outbox.rows() == {(1, "a"): 1, (2, "b"): 1, (3, "c"): 1}
