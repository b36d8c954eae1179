"""What a published view is made of, as two readers find it."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

from lake_builders import Outbox, comparable
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from lockstep_engine.tables import table_name


def table_of(outbox: Outbox) -> Table:
    return outbox.lake.table(outbox.view)


def deletes(outbox: Outbox) -> dict[str, list[DataFile]]:
    """The delete files that are the view's, by the data file that a reader uses them for."""
    return {
        task.file.file_path: sorted(task.delete_files, key=lambda file: file.file_path)
        for task in table_of(outbox).scan().plan_files()
    }


def all_deletes(outbox: Outbox) -> list[DataFile]:
    files = {one.file_path: one for found in deletes(outbox).values() for one in found}
    return list(files.values())


def _without_zone(value: Any) -> Any:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def sql(outbox: Outbox, text: str) -> None:
    settings = outbox.lake.settings
    name = table_name(settings, outbox.view)
    whole = f"{settings.database}.{outbox.view}"
    outbox.spark.sql(text.format(name=name, catalog=settings.name, whole=whole))


def check(outbox: Outbox, expected: dict[Any, int]) -> None:
    """By two readers; and what main's snapshots say in their summaries is what is there."""
    assert outbox.rows() == expected
    by_spark = outbox.spark.sql(f"SELECT * FROM {table_name(outbox.lake.settings, outbox.view)}")
    for name, kind in by_spark.dtypes:
        if kind == "timestamp":  # comes out in the zone of whoever asks
            by_spark = by_spark.withColumn(name, by_spark[name].cast("timestamp_ntz"))
    found = Counter(comparable(row) for row in by_spark.collect())
    assert found == Counter({tuple(map(_without_zone, row)): n for row, n in expected.items()})
    said = outbox.newest.summary
    assert said is not None
    there = all_deletes(outbox)
    assert said["total-delete-files"] == str(len(there))
    assert said["total-position-deletes"] == str(sum(one.record_count for one in there))


def rows_in_files(outbox: Outbox) -> list[int]:
    """Of each data file how many it has, the deleted ones, too."""
    return sorted(task.file.record_count for task in table_of(outbox).scan().plan_files())
