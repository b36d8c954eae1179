"""A view of few rows is written anew without Spark: what stands there is what Spark would write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest
from lake_builders import FLAT, FLAT_TYPES, ROWS_OF_ALL_TYPES, Outbox, comparable
from pyiceberg.table.snapshots import Operation, Snapshot

from lockstep_engine.sinks.iceberg import SMALL_ROWS
from lockstep_engine.tables import configure_catalog, table_name

pytestmark = pytest.mark.spark

PAIR = "id bigint, name string"


@pytest.fixture(scope="module")
def session(spark_server: Any) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote(spark_server.remote).create()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    configure_catalog(spark, spark_server.catalog_settings("netted"))
    yield spark
    spark.stop()


@pytest.fixture(scope="module")
def new_outbox(session: Any, spark_server: Any) -> Any:
    settings = spark_server.catalog_settings("netted")
    return lambda columns: Outbox(session, settings, columns, SMALL_ROWS)


def newest(outbox: Outbox) -> Snapshot:
    found = outbox.lake.table(outbox.view).current_snapshot()
    assert found is not None
    return found


def is_from_here(outbox: Outbox) -> bool:
    """Whether the newest snapshot was written without Spark, which names its application."""
    summary = newest(outbox).summary
    assert summary is not None
    return "spark.app.id" not in summary.additional_properties


def by_spark(outbox: Outbox) -> Counter[tuple[Any, ...]]:
    name = table_name(outbox.lake.settings, outbox.view)
    return Counter(comparable(row) for row in outbox.spark.table(name).collect())


def test_rows_of_all_types_are_put_in_the_place_of_all_in_one_snapshot(new_outbox: Any) -> None:
    outbox = new_outbox(FLAT_TYPES)
    rows = [row[:FLAT] for row in ROWS_OF_ALL_TYPES]
    expected: Counter[tuple[Any, ...]] = Counter()
    for step in range(4):
        gone = [(*row, -1, step) for row in rows[:3]] if step else []
        outbox.add([*((*row, 2, step) for row in rows), *gone])
        before = outbox.lake.state.view_head(outbox.view)
        outbox.publish(step)
        expected.update([comparable(row) for row in rows] * 2)
        expected.subtract(comparable(row) for row, *_ in [(one,) for one in rows[:3]] if step)
        assert is_from_here(outbox)
        assert outbox.rows() == expected
        assert before is None or newest(outbox).parent_snapshot_id == before.snapshot_id
    found = newest(outbox)
    assert found.summary is not None
    assert found.summary.operation is Operation.OVERWRITE
    assert found.summary["total-data-files"] == "1"
    # Those that say which files have gone do not pile up.
    assert len(found.manifests(outbox.lake.table(outbox.view).io)) == 2
    assert by_spark(outbox).total() == expected.total()


def test_a_view_may_be_left_without_rows(new_outbox: Any) -> None:
    outbox = new_outbox(PAIR)
    outbox.add([(1, "a", 1, 0)])
    outbox.publish(0)
    outbox.add([(1, "a", -1, 1)])
    assert outbox.publish(1).rows == 1
    assert is_from_here(outbox)
    assert not outbox.rows()


def test_rows_that_come_and_go_in_between_have_not_changed(new_outbox: Any) -> None:
    outbox = new_outbox(PAIR)
    outbox.add([(1, "a", 1, 0)])
    outbox.publish(0)
    outbox.add([(2, "b", 1, 1), (1, "a", 2, 1)])
    outbox.add([(2, "b", -1, 2), (3, "c", 1, 2)])
    outbox.add([(9, "z", 1, 3)])
    assert outbox.publish(2).rows == 2
    assert is_from_here(outbox)
    assert outbox.rows() == {(1, "a"): 3, (3, "c"): 1}


def test_files_of_other_steps_are_not_opened(new_outbox: Any) -> None:
    outbox = new_outbox(PAIR)
    outbox.add([(1, "a", 1, 0), (2, "b", 1, 1)])
    outbox.publish(0)
    [task] = outbox.lake.table(outbox.table).scan("_step = 0").plan_files()
    Path(urlparse(task.file.file_path).path).unlink()
    outbox.publish(1)
    assert is_from_here(outbox)
    assert outbox.rows() == {(1, "a"): 1, (2, "b"): 1}


def test_columns_that_hold_others_are_left_to_spark(new_outbox: Any) -> None:
    outbox = new_outbox("id bigint, s struct<p: bigint>")
    outbox.add([(1, (5,), 1, 0)])
    outbox.publish(0)
    assert not is_from_here(outbox)
    assert by_spark(outbox) == {(1, (5,)): 1}


def test_texts_that_are_not_utf_8_are_left_to_spark(new_outbox: Any) -> None:
    outbox = new_outbox("h string")
    state, settings = outbox.lake.state, outbox.lake.settings
    outbox.spark.sql("SELECT CAST(X'ff' AS STRING) AS h, 1L AS _weight, 0L AS _step").writeTo(
        table_name(settings, outbox.table)
    ).option("snapshot-property.lockstep.step", "0").append()
    outbox.snapshot = state.head(outbox.table, "main")
    outbox.publish(0)
    assert not is_from_here(outbox)
    name = table_name(settings, outbox.view)
    assert outbox.spark.sql(f"SELECT hex(h) FROM {name}").collect() == [("FF",)]


def test_a_view_with_deletes_or_partitions_is_left_to_spark(new_outbox: Any) -> None:
    deleted, parted = new_outbox(PAIR), new_outbox(PAIR)
    for outbox in (deleted, parted):
        outbox.add([(1, "a", 1, 0), (2, "b", 1, 0)])
        outbox.publish(0)
    deleted.add([(1, "a", -1, 1)])
    deleted.publish(1, small_rows=0)
    name = table_name(parted.lake.settings, parted.view)
    parted.spark.sql(f"ALTER TABLE {name} ADD PARTITION FIELD name")
    for outbox in (deleted, parted):
        outbox.add([(3, "c", 1, 2)])
        outbox.publish(2)
        assert not is_from_here(outbox)
    assert deleted.rows() == {(2, "b"): 1, (3, "c"): 1}
    assert parted.rows() == {(1, "a"): 1, (2, "b"): 1, (3, "c"): 1}
