"""Rows of single data files, and the positions that delete files name, against PyIceberg's own scan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lake_builders import delete_file, local_catalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import LongType, StringType

from lockstep.lake import kept_batches
from lockstep.lake.deleted_positions import deleted_positions
from lockstep.lake.file_batches import are_readable, file_batches
from lockstep.lake.opening import OpenCatalog

ROWS = 1000
COLUMNS = {
    "id": pa.array(range(ROWS), pa.int64()),
    "n": pa.array([i % 7 for i in range(ROWS)], pa.int32()),
    "name": pa.array([f"name {i}" if i % 3 else None for i in range(ROWS)]),
    "price": pa.array([Decimal(i) / 4 for i in range(ROWS)], pa.decimal128(12, 2)),
    "day": pa.array([date(2020, 1, 1 + i % 28) for i in range(ROWS)]),
    "tags": pa.array([[str(i)] if i % 3 else None for i in range(ROWS)]),
    "lines": pa.array(
        [[{"k": i, "v": "v" if i % 2 else None}] * (i % 3) if i % 4 else None for i in range(ROWS)]
    ),
    "counts": pa.array(
        [[("one", i)] if i % 5 else None for i in range(ROWS)], pa.map_(pa.string(), pa.int64())
    ),
    "places": pa.array(
        [[("one", {"x": i})] if i % 5 else None for i in range(ROWS)],
        pa.map_(pa.string(), pa.struct([("x", pa.int64())])),
    ),
    "both": pa.array([{"x": i, "more": [{"y": "z"}]} if i % 6 else None for i in range(ROWS)]),
    "a.b": pa.array([float(i) for i in range(ROWS)]),
}
GROUP = {"write.parquet.row-group-limit": "100"}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """One file of ten row groups."""
    catalog = OpenCatalog(local_catalog(tmp_path)).connected()
    catalog.create_namespace("db")
    made = catalog.create_table("db.t", pa.table(COLUMNS).schema, properties=GROUP)
    made.append(pa.table(COLUMNS))
    return made


def only_file(table: Table) -> DataFile:
    [task] = table.scan().plan_files()
    return task.file


def read(table: Table, columns: tuple[str, ...], wanted: list[int] | None = None) -> dict[int, Any]:
    """By position the rows that came, as tuples."""
    schema = table.schema().select(*columns)
    positions = None if wanted is None else np.array(wanted, np.int64)
    found: dict[int, Any] = {}
    for first, rows in file_batches(table.io, table.metadata, schema, only_file(table), positions):
        assert rows.schema.names == [field.name for field in schema.columns]
        for place, row in enumerate(zip(*(c.to_pylist() for c in rows.columns), strict=True)):
            found[first + place] = row
    return found


def scanned(table: Table, columns: tuple[str, ...]) -> dict[int, Any]:
    """The same by PyIceberg."""
    schema = table.schema().select(*columns)
    scan = ArrowScan(table.metadata, table.io, schema, AlwaysTrue())
    rows = scan.to_table([FileScanTask(only_file(table))])
    assert rows.schema.names == [field.name for field in schema.columns]
    return dict(enumerate(zip(*(c.to_pylist() for c in rows.columns), strict=True)))


PLAIN = ("price", "id", "day", "name", "n")


@pytest.mark.parametrize("columns", [PLAIN, ("id", "tags", "counts"), ("a.b",), ("name",)])
def test_all_rows_come_as_a_scan_has_them(table: Table, columns: tuple[str, ...]) -> None:
    assert read(table, columns) == scanned(table, columns)


def test_lists_of_structs_come_as_they_were_written(table: Table) -> None:
    """PyIceberg makes an empty one of none, also when it writes: here the file has what it should."""
    path = only_file(table).file_path.removeprefix("file://")
    rows = pa.table(COLUMNS).rename_columns([*list(COLUMNS)[:-1], "a_x2Eb"])
    pq.write_table(rows.cast(pq.read_schema(path)), path, row_group_size=100)
    found = read(table, ("id", "lines", "places", "both"))
    kept = pa.table(COLUMNS).select(["id", "lines", "places", "both"]).to_pylist()
    assert found == {n: tuple(row.values()) for n, row in enumerate(kept)}
    assert are_readable(table, ("lines", "places", "both"), [only_file(table)])


@pytest.mark.parametrize("columns", [("lines",), ("places",), ("both",)])
def test_where_a_scan_would_have_to_convert_them_they_are_not_read(
    table: Table, columns: tuple[str, ...]
) -> None:
    with table.update_schema() as update:
        update.add_column(("lines", "element", "w"), StringType())
        update.add_column(("places", "value", "w"), StringType())
        update.add_column(("both", "more", "element", "w"), StringType())
    assert not are_readable(table, columns, [only_file(table)])
    assert are_readable(table, (*PLAIN, "tags"), [only_file(table)])


def test_only_row_groups_that_are_asked_for_are_read(table: Table) -> None:
    everything = scanned(table, PLAIN)
    found = read(table, PLAIN, [205, 207, 399, 700])
    assert {205, 207, 399, 700} <= found.keys()
    assert {position // 100 for position in found} == {2, 3, 7}
    assert all(row == everything[position] for position, row in found.items())
    assert read(table, PLAIN, []) == {}


def test_no_batch_is_read_after_the_last_position(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_batches, "BATCH_ROWS", 10)
    assert sorted(read(table, PLAIN, [205, 217, 403])) == [*range(200, 220), *range(400, 410)]


def test_batches_with_wanted_rows_are_kept(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as these columns are asked for, and in place of those before them in their row groups."""
    monkeypatch.setattr(kept_batches, "BATCH_ROWS", 10)
    everything = read(table, PLAIN)
    read(table, PLAIN, [205, 217, 403])
    Path(only_file(table).file_path.removeprefix("file://")).unlink()
    for wanted in ([201], [210, 219, 400], [217]):
        found = read(table, PLAIN, wanted)
        assert found.keys() == {n // 10 * 10 + m for n in wanted for m in range(10)}
        assert all(row == everything[position] for position, row in found.items())
    for columns, wanted in ((PLAIN, [205, 221]), (("id",), [205])):
        with pytest.raises(FileNotFoundError):
            read(table, columns, wanted)


def test_what_is_read_as_a_whole_is_not_kept(table: Table) -> None:
    read(table, PLAIN)
    Path(only_file(table).file_path.removeprefix("file://")).unlink()
    with pytest.raises(FileNotFoundError):
        read(table, PLAIN, [205])


def test_one_batch_may_not_take_the_place_of_all(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_batches, "KEPT_BYTES", 1000)
    read(table, PLAIN, [205])
    Path(only_file(table).file_path.removeprefix("file://")).unlink()
    with pytest.raises(FileNotFoundError):
        read(table, PLAIN, [205])


def renamed(table: Table) -> None:
    with table.update_schema() as update:
        update.rename_column("name", "title")
        update.delete_column("n")
    with table.update_schema() as update:
        update.add_column("name", StringType())  # another one: null in rows that are there
        update.add_column("n", LongType())


def widened(table: Table) -> None:
    with table.update_schema() as update:
        update.update_column("n", LongType())


@pytest.mark.parametrize(
    ("change", "columns"),
    [(renamed, ("title", "name", "id", "n")), (renamed, ("title", "id")), (widened, ("n", "id"))],
    ids=["other columns", "another name", "another type"],
)
def test_columns_are_those_of_the_schema(
    table: Table, change: Callable[[Table], None], columns: tuple[str, ...]
) -> None:
    change(table)
    found = read(table, columns)
    assert found == scanned(table, columns)
    assert len(found) == ROWS


def test_a_file_that_does_not_number_its_columns_is_left_to_the_scan(table: Table) -> None:
    path = only_file(table).file_path.removeprefix("file://")
    pq.write_table(pa.table(COLUMNS), path, row_group_size=100)
    with table.transaction() as transaction:
        mapping = table.schema().name_mapping.model_dump_json()
        transaction.set_properties({"schema.name-mapping.default": mapping})
    assert read(table, PLAIN) == scanned(table, PLAIN)


OF_ONE = {"lower": "s3://a", "upper": "s3://a"}


@pytest.mark.parametrize(
    "bounds", [{}, {"lower": "s3://a"}, {"lower": "s3://a", "upper": "s3://b"}]
)
def test_of_a_file_about_several_only_the_asked_for_positions_count(
    table: Table, tmp_path: Path, bounds: Mapping[str, str]
) -> None:
    delete = delete_file(tmp_path, [("s3://a", 3), ("s3://a", 9), ("s3://b", 4)], bounds)
    assert deleted_positions(table.io, [delete], "s3://a").tolist() == [3, 9]
    assert deleted_positions(table.io, [delete], "s3://c").tolist() == []


def test_positions_of_several_files_come_in_order_and_once(table: Table, tmp_path: Path) -> None:
    one = delete_file(tmp_path, [("s3://a", 3), ("s3://a", 9)], OF_ONE)
    other = delete_file(tmp_path, [("s3://a", 2), ("s3://a", 9)], OF_ONE)
    assert deleted_positions(table.io, [one, other], "s3://a").tolist() == [2, 3, 9]
    assert deleted_positions(table.io, [], "s3://a").tolist() == []


def test_paths_are_not_read_where_the_manifest_says_that_they_are_one(
    table: Table, tmp_path: Path
) -> None:
    """Which is seen by a file that lies about them."""
    delete = delete_file(tmp_path, [("s3://other", 3)], OF_ONE)
    assert deleted_positions(table.io, [delete], "s3://a").tolist() == [3]


def test_a_delete_file_is_read_once(table: Table, tmp_path: Path) -> None:
    """Which is seen when it is gone. What was found of it for another data file is another answer."""
    rows = [("s3://a", 3), ("s3://b", 4)]
    delete = delete_file(tmp_path, rows, {"lower": "s3://a", "upper": "s3://b"})
    found = [deleted_positions(table.io, [delete], path).tolist() for path in ("s3://a", "s3://b")]
    Path(urlsplit(delete.file_path).path).unlink()
    again = [deleted_positions(table.io, [delete], path).tolist() for path in ("s3://a", "s3://b")]
    assert found == again == [[3], [4]]
