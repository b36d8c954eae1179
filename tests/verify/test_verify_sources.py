"""Sources as verification loads them: what a source's options say about absent columns is kept."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import duckdb
import pytest
from sql_builders import SPEC

from lockstep.adapters import verify
from lockstep.adapters.verify_records import RawRecord
from lockstep.control.job import CatalogSettings
from lockstep.control.model import Division, OffsetRange, TopicSlice
from lockstep.lake.opening import OpenCatalog
from lockstep.sql.circuit import ProjectFiles
from lockstep.sql.project import parse_project

SQL = """
CREATE TABLE orders (a INT NOT NULL, b INT) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = 'b', subscribe = 'orders'%s);
CREATE MATERIALIZED VIEW w AS SELECT a, b FROM orders;
"""
RECORDS = (b'{"a": 1, "b": 2}', b'{"a": 3}', b'{"b": 4}', b"{}")


@pytest.fixture(autouse=True)
def _topic(monkeypatch: pytest.MonkeyPatch) -> None:
    def read_ranges(*_: object) -> Iterator[RawRecord]:
        return (RawRecord(0, offset, value) for offset, value in enumerate(RECORDS))

    monkeypatch.setattr(verify, "read_ranges", read_ranges)


@pytest.mark.parametrize(
    ("option", "rows", "bad"),
    [
        ("", [(1, 2)], 3),
        (", missing_columns = 'error'", [(1, 2)], 3),
        (", missing_columns = 'null'", [(1, 2), (3, None)], 2),
    ],
)
def test_absent_columns(option: str, rows: list[tuple[object, ...]], bad: int) -> None:
    project = parse_project(ProjectFiles(SPEC, (("sql/shop.sql", SQL % option),)), {})
    slice_ = TopicSlice("orders", "orders", "id", (OffsetRange(0, 0, len(RECORDS)),))
    divisions = (Division(0, datetime(2026, 1, 1, tzinfo=UTC), (slice_,)),)
    with duckdb.connect() as connection:
        catalog = OpenCatalog(CatalogSettings("lake", "shop", {}, {}))
        found = verify._load_sources(connection, project, divisions, 0, catalog, lambda _: None)
        assert found["orders"].bad_records == bad
        assert connection.execute("SELECT * FROM orders").fetchall() == rows
