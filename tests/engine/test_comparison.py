"""Outboxes compared: equal as Z-sets at every step, or the first step that differs with its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql import functions as F

from lockstep.adapters.iceberg_tables import IcebergTables
from lockstep.control.job import (
    CatalogSettings,
    ComparedTable,
    CompareJob,
    CompareResult,
    Difference,
)
from lockstep_engine import comparison
from lockstep_engine.comparison import compare_outboxes
from lockstep_engine.tables import configure_catalog

pytestmark = pytest.mark.spark

VALUES = "name string, amount double, tags map<string, int>, parts array<string>"
COLUMNS = f"{VALUES}, _weight bigint, _step bigint"
FLAT = "name string, amount double, _weight bigint, _step bigint"
ROWS = [
    ("a", 0.0, {"x": 1}, ["p"], 2, 3),
    ("b", float("nan"), None, [None], 1, 3),
    ("a", 0.0, {"x": 1}, ["p"], -1, 4),
    (None, None, {}, None, 1, 4),
    ("z", 1.5, None, [], 1, 9),
]


@pytest.fixture
def catalog(spark: Any, spark_server: Any, database: str) -> CatalogSettings:
    settings: CatalogSettings = spark_server.catalog_settings(database)
    configure_catalog(spark, settings)
    spark.sql(f"CREATE NAMESPACE lake.{database}")
    return settings


def snapshots(
    spark: Any,
    catalog: CatalogSettings,
    table: str,
    *states: Sequence[tuple[Any, ...]],
    columns: str = COLUMNS,
) -> list[int]:
    """A table that had these rows, one state after the other; their snapshots."""
    name = f"lake.{catalog.database}.{table}"
    spark.sql(f"CREATE TABLE {name} ({columns}) USING iceberg")
    for rows in states:
        spark.createDataFrame(list(rows), columns).writeTo(name).overwrite(F.lit(True))
    found = spark.sql(f"SELECT snapshot_id FROM {name}.snapshots ORDER BY committed_at")
    return [row[0] for row in found.collect()]


def compared(
    spark: Any, catalog: CatalogSettings, replayed: Sequence[tuple[Any, ...]]
) -> CompareResult:
    """The steps 3 to 8 of `ROWS` against others."""
    logged, found = snapshots(spark, catalog, "v_changes", ROWS, replayed)
    job = CompareJob("p", (ComparedTable("v", "v_changes", logged, found),), 3, 8, catalog)
    return compare_outboxes(spark, job, IcebergTables(catalog), lambda _: None)


def test_equal_rows_in_any_order_are_equal_and_steps_beyond_are_not_looked_at(
    spark: Any, catalog: CatalogSettings
) -> None:
    others = [("a", -0.0, {"x": 1}, ["p"], 2, 3), *reversed(ROWS[1:4]), ("y", 7.0, None, [], 1, 9)]
    found = compared(spark, catalog, others)
    assert found == CompareResult({"v": 4}), "0.0 and -0.0 are one value"


def test_spark_is_asked_only_of_views_that_differ_or_have_maps(
    spark: Any, catalog: CatalogSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, by_digest = [], comparison._by_digest

    def by_spark(*args: Any) -> Any:
        asked.append(args[-1].view)
        return by_digest(*args)

    monkeypatch.setattr(comparison, "_by_digest", by_spark)
    flat = [(name, amount, weight, step) for name, amount, _, _, weight, step in ROWS]
    tables = []
    for view, columns, logged, replayed in (
        ("same", FLAT, flat, flat[::-1]),
        ("other", FLAT, flat, flat[1:]),
        ("maps", COLUMNS, ROWS, ROWS[::-1]),
    ):
        table = f"{view}_changes"
        found = snapshots(spark, catalog, table, logged, replayed, columns=columns)
        tables.append(ComparedTable(view, table, *found))
    job = CompareJob("p", tuple(tables), 3, 8, catalog)
    found = compare_outboxes(spark, job, IcebergTables(catalog), lambda _: None)
    assert found.rows == {"same": 4, "other": 4, "maps": 4}
    (difference,) = found.differences
    assert (difference.view, difference.step, difference.missing) == ("other", 3, 2)
    assert sorted(asked) == ["maps", "other"]


@pytest.mark.parametrize(
    ("place", "changed", "expected"),
    [
        (
            3,
            (None, None, {"y": 2}, None, 1, 4),
            Difference(
                "v",
                4,
                1,
                1,
                (
                    '+1 {"name":null,"amount":null,"tags":"{\\"y\\":2}","parts":null}',
                    '-1 {"name":null,"amount":null,"tags":"{}","parts":null}',
                ),
            ),
        ),
        (
            0,
            ("a", 0.0, {"x": 1}, ["p"], 5, 3),
            Difference(
                "v", 3, 0, 3, ('+3 {"name":"a","amount":0.0,"tags":"{\\"x\\":1}","parts":["p"]}',)
            ),
        ),
        (
            0,
            None,
            Difference(
                "v", 3, 2, 0, ('-2 {"name":"a","amount":0.0,"tags":"{\\"x\\":1}","parts":["p"]}',)
            ),
        ),
    ],
    ids=["another row", "another weight", "no row"],
)
def test_the_first_step_that_differs_is_named_with_its_rows(
    spark: Any, catalog: CatalogSettings, place: int, changed: Any, expected: Difference
) -> None:
    others = [row for row in (*ROWS[:place], changed, *ROWS[place + 1 :]) if row is not None]
    found = compared(spark, catalog, others)
    (difference,) = found.differences
    assert sorted(difference.rows) == sorted(expected.rows)
    assert (difference.step, difference.missing, difference.unexpected) == (
        expected.step,
        expected.missing,
        expected.unexpected,
    )
