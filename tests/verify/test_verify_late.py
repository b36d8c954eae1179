"""What verification leaves out: late rows, and windows that are not over; and what now() is to it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import duckdb
import pytest

from lockstep.adapters.verify_changes import reading_of
from lockstep.adapters.verify_late import OnTime, refuse_watermark
from lockstep.adapters.verify_records import RawRecord
from lockstep.errors import WrongUse
from lockstep.sql.circuit import Project, ProjectFiles
from lockstep.sql.duckdb_text import duckdb_statements
from lockstep.sql.project import parse_project

SPEC = """\
name: shop
storage: file:///tmp/shop
catalog: lake
libraries:
  - glob: {include: sql/**}
"""
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


def declared(options: str, *views: str, provider: str = "kafka") -> Project:
    source = (
        f"CREATE TABLE s (id INT, at TIMESTAMP) USING {provider} "
        f"OPTIONS ({options}, watermark = 'at', watermark_delay = '10 seconds');"
    )
    statements = "\n".join([source, *views])
    return parse_project(ProjectFiles(SPEC, (("sql/a.sql", statements),)), {})


TOPIC = "'kafka.bootstrap.servers' = 'b', subscribe = 's'"
ROWS = "CREATE MATERIALIZED VIEW rows AS SELECT id FROM s;"


def on_time(records: Sequence[tuple[int, int, int | None]]) -> tuple[set[object], datetime | None]:
    """Ids of the rows that stay, of (step, id, seconds after noon), and the watermark after all."""
    [source] = declared(TOPIC, ROWS).sources
    reading = OnTime(source, reading_of(source))
    for step, number, second in records:
        at = None if second is None else f"{NOON + timedelta(seconds=second):%Y-%m-%d %H:%M:%S}"
        value = json.dumps({"id": number, "at": at}).encode()
        assert not reading.rows(RawRecord(0, 0, value), step)
    return {row[0] for row in reading.rest()}, reading.watermark


def test_a_row_is_late_by_the_steps_before_its_own() -> None:
    records = [
        # the second partition is read after the first: steps come again
        (0, 1, 50),
        (1, 2, 39),
        (1, 3, 90),
        (2, 4, 79),
        (2, 5, None),
        (0, 6, 0),
        (1, 7, 40),
        (2, 8, 80),
    ]
    assert on_time(records) == ({1, 3, 5, 6, 7, 8}, NOON + timedelta(seconds=80))


def test_without_a_time_nothing_is_late() -> None:
    assert on_time([(0, 1, None), (1, 2, None)]) == ({1, 2}, None)


@pytest.mark.parametrize(
    ("options", "provider"),
    [("'table' = 'other.s'", "iceberg"), (f"{TOPIC}, format = 'debezium'", "kafka")],
)
def test_rows_that_are_taken_back_are_not_verified(options: str, provider: str) -> None:
    [source] = declared(options, ROWS, provider=provider).sources
    refused = refuse_watermark if source.is_table else lambda s: OnTime(s, reading_of(s))
    with pytest.raises(WrongUse, match="has a watermark, and rows that are taken back"):
        refused(source)


@pytest.mark.parametrize(
    ("watermark", "expected"),
    [
        (None, []),
        (NOON + timedelta(seconds=59), []),
        (NOON + timedelta(seconds=60), [(1, 2)]),
        (NOON + timedelta(seconds=180), [(1, 2), (3, 1)]),
    ],
)
def test_windows_are_shown_when_they_are_over(
    watermark: datetime | None, expected: list[tuple[int, int]]
) -> None:
    project = declared(
        TOPIC,
        "CREATE MATERIALIZED VIEW minutes TBLPROPERTIES ('emit' = 'final') AS SELECT "
        "window(at, '1 minute').end AS until, count(*) AS n FROM s GROUP BY window(at, '1 minute');",
        "CREATE MATERIALIZED VIEW shown AS SELECT minute(until) AS m, n FROM minutes;",
        "CREATE MATERIALIZED VIEW young AS SELECT id FROM s WHERE at > now() - INTERVAL 1 MINUTE;",
    )
    with duckdb.connect() as connection:
        connection.execute("SET timezone = 'UTC'")
        connection.execute('CREATE TABLE s (id INT, "at" TIMESTAMPTZ)')
        for number, second in enumerate((0, 59, 120)):
            at = NOON + timedelta(seconds=second)
            connection.execute("INSERT INTO s VALUES (?, ?)", (number, at))
        now = NOON + timedelta(seconds=60)
        for view in duckdb_statements(project, now, {"s": watermark}):
            connection.execute(view.statement)
        assert connection.execute("FROM shown ORDER BY m").fetchall() == expected
        assert connection.execute("FROM young ORDER BY id").fetchall() == [(1,), (2,)]
