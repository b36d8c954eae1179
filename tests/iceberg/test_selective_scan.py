"""Rows that DuckDB selects from a file, against those that Arrow reads of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lockstep.lake.selective_scan import Selected, can_select, selected_rows

ROWS = 20_000
NAMES = {
    "key": "Key", "part": "part", "name": 'the "name"', "price": "price", "rest": "rest", "at": "at",
    "there": "there",
}  # fmt: skip
MOST = 1_000_000


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty row groups; the key is in no order."""
    places = np.arange(ROWS)
    # The least and greatest ones are DuckDB's infinities.
    ends = [None, -(2**63), -(2**63) + 1, 2**63 - 1]
    moments = pa.array([ends[i % 7] if i % 7 < 4 else (i - 9000) * 10**12 for i in places])
    rows = pa.table(
        {
            "other": pa.array(places),
            "Key": pa.array(places * 7919 % 5000),
            "part": pa.array(places % 50, pa.int32()),
            'the "name"': pa.array([None if i % 9 == 0 else f"name é {i}" for i in places]),
            "price": pa.array([Decimal(int(i)) / 100 - 50 for i in places], pa.decimal128(38, 2)),
            "rest": pa.array([-0.0 if i % 2 else float("nan") for i in places]),
            "at": moments.cast(pa.timestamp("us", "UTC")),
            "there": moments.cast(pa.timestamp("us")),
            "finer": pa.array(places).cast(pa.timestamp("ns")),
            "gaps": pa.array([None if i == 5 else i for i in places], pa.int64()),
        }
    )
    path = tmp_path_factory.mktemp("files") / "a file.parquet"
    pq.write_table(rows, path, row_group_size=1000)
    return path


def selected(
    path: Path, names: Mapping[str, str], wanted: Mapping[str, Any], most: int = MOST
) -> Selected | None:
    """None where DuckDB is not asked, or does not read it."""
    numbers = {name: np.array(sorted(one), np.int64) for name, one in wanted.items()}
    url, footer = f"file://{path}", pq.read_metadata(path)
    if not can_select(url, footer, names, numbers):
        return None
    return selected_rows(url, footer, names, numbers, most)


@pytest.mark.parametrize(
    "wanted",
    [
        {"key": [3]},
        {"key": [3, 4999, 77, 123456]},
        {"key": range(0, 5000, 3), "part": [1, 2, 3]},
        {"part": [-(1 << 40), 7, 1 << 40]},
        {"part": [1 << 40]},
        {"key": [-(1 << 63), (1 << 63) - 1]},
    ],
)
def test_the_same_rows_in_the_files_order(file: Path, wanted: Mapping[str, Any]) -> None:
    found = selected(file, NAMES, wanted)
    assert found is not None
    everything = pq.read_table(file, columns=list(NAMES.values()))
    held = np.ones(ROWS, bool)
    for name, numbers in wanted.items():
        column = everything.column(NAMES[name]).cast(pa.int64())
        held &= pc.is_in(column, pa.array(list(numbers), pa.int64())).to_numpy()
    assert found.positions.tolist() == np.flatnonzero(held).tolist()
    expected = everything.filter(pa.array(held)).rename_columns(list(NAMES))
    assert found.rows.schema.names == list(NAMES)
    # As text, by which NaN is the same as NaN and -0.0 another than 0.0.
    assert found.rows.schema.types == expected.schema.types
    rows = pa.Table.from_batches([found.rows])
    for name in ("at", "there"):  # of which Python has not all
        rows, expected = (
            one.set_column(one.schema.get_field_index(name), name, one[name].cast(pa.int64()))
            for one in (rows, expected)
        )
    assert str(rows.to_pylist()) == str(expected.to_pylist())


def test_no_more_are_read_than_are_asked_for(file: Path) -> None:
    found = selected(file, NAMES, {"part": range(50)}, most=10)
    assert found is not None
    assert len(found.positions) == len(found.rows) == 11


def test_what_the_readers_might_not_agree_on_is_left_to_arrow(file: Path, tmp_path: Path) -> None:
    assert selected(file, {"at": "finer", "key": "Key"}, {"key": [1]}) is None
    assert selected(file, {"gaps": "gaps"}, {"gaps": [1]}) is None  # a key that may be null
    assert selected(file, {"gaps": "gaps", "key": "Key"}, {"key": [1]}) is not None
    key = pa.array([1, 2, 3])
    for number, columns in enumerate(
        ({"a": key, "A": key}, {"a": key, "File_Row_Number": key}, {"a": [[1], [2], []], "b": key})
    ):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table(columns), path)
        assert (
            selected(path, {name: name for name in columns}, {"b" if number == 2 else "a": [1]})
            is None
        )


def test_a_path_is_no_pattern_and_tells_no_columns(tmp_path: Path) -> None:
    folder = tmp_path / "key=7"
    folder.mkdir()
    for name in ("a.parquet", "[ab].parquet"):
        pq.write_table(pa.table({"key": [1, 2], "day": [date(1, 1, 1), None]}), folder / name)
    found = selected(folder / "a.parquet", {"key": "key", "day": "day"}, {"key": [1]})
    assert found is not None
    assert found.rows.to_pylist() == [{"key": 1, "day": date(1, 1, 1)}]
    assert selected(folder / "[ab].parquet", {"key": "key"}, {"key": [1]}) is None


def test_a_file_that_is_not_of_this_machine_is_left_to_arrow(file: Path) -> None:
    footer, wanted = pq.read_metadata(file), {"key": np.array([1])}
    assert can_select(f"file://{file}", footer, NAMES, wanted)
    assert not can_select("s3://there/a.parquet", footer, NAMES, wanted)
    assert not can_select(f"file://{file}", footer, NAMES, {})


def test_text_that_is_no_utf_8_is_left_to_arrow(tmp_path: Path) -> None:
    bad = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xff\xfe")]
    )
    path = tmp_path / "bad.parquet"
    pq.write_table(pa.table({"key": pa.array([1]), "text": bad}), path)
    assert selected(path, {"key": "key", "text": "text"}, {"key": [1]}) is None
    assert selected(path, {"key": "key"}, {"key": [1]}) is not None


def test_an_encoding_that_duckdb_does_not_read_is_left_to_arrow(tmp_path: Path) -> None:
    path = tmp_path / "split.parquet"
    price = pa.array([Decimal("1.50"), None], pa.decimal128(20, 2))
    encoding = {"column_encoding": {"price": "BYTE_STREAM_SPLIT"}, "use_dictionary": False}
    pq.write_table(pa.table({"key": [1, 2], "price": price}), path, **encoding)
    assert selected(path, {"key": "key", "price": "price"}, {"key": [1]}) is None
    assert selected(path, {"key": "key"}, {"key": [1]}) is not None


def test_a_file_that_is_gone_is_left_to_arrow(file: Path, tmp_path: Path) -> None:
    footer, gone = pq.read_metadata(file), f"file://{tmp_path}/gone.parquet"
    assert selected_rows(gone, footer, NAMES, {"key": np.array([1])}, MOST) is None
