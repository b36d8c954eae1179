"""Maintenance merges the files of every table of a version; what follows sees the same rows."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from lockstep.adapters.kafka import create_topics
from lockstep.control.compaction import FANOUT
from lockstep.control.kafka_options import KafkaConnection
from lockstep.ids import STEPS_TABLE
from lockstep.runtime import Pipeline, recorded

sys.path.insert(0, str(Path(__file__).parent))
from followed_shop import settings_of
from one_pipeline import OnePipeline

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

SQL = """\
CREATE TABLE taps (room STRING, n INT) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = '${{lockstep.kafka}}', subscribe = '{name}');
CREATE MATERIALIZED VIEW rooms AS SELECT room, sum(n) AS n FROM taps GROUP BY room;
"""
OUTBOX, ERRORS = "rooms_changes", "taps_errors"


@dataclass
class Taps(OnePipeline):
    """Rooms in which somebody taps, and now and then a record that nobody can read."""

    taps: int = 0

    def interval(self) -> None:
        producer = Producer({"bootstrap.servers": self.settings.kafka})
        for number in range(self.taps, self.taps + 3):
            value = {"room": f"r{number % 2}", "n": number}
            producer.produce(self.name, json.dumps(value).encode())
        producer.produce(self.name, b"no JSON")
        assert producer.flush(30) == 0
        self.taps += 3
        self.advance()

    def files(self, table: str) -> int:
        """How many the newest version has."""
        held = recorded(self.name, self.settings).version.tables[table]
        with Pipeline(self.name, self.settings) as pipeline:
            return len(pipeline._opened().files.data_files(table, held))

    def rows(self, table: str) -> Counter[tuple[Any, ...]]:
        return Counter(map(tuple, self.spark.table(f"lake.{self.name}.{table}").collect()))

    def needed(self, table: str) -> set[str]:
        """The data files of the versions that are kept."""
        held = [version.tables[table] for version in recorded(self.name, self.settings).versions]
        with Pipeline(self.name, self.settings) as pipeline:
            files = pipeline._opened().files
            return {Path(one.path).name for at in held for one in files.data_files(table, at)}

    def on_disk(self, table: str) -> set[str]:
        described = self.spark.sql(f"DESCRIBE TABLE EXTENDED lake.{self.name}.{table}")
        [row] = described.where("col_name = 'Location'").collect()
        data = Path(row.data_type.removeprefix("file:")) / "data"
        return {path.name for path in data.rglob("*.parquet")}

    def snapshots(self, table: str) -> int:
        """How many are kept."""
        return self.spark.table(f"lake.{self.name}.{table}.snapshots").count()

    def operations(self, table: str) -> list[str]:
        """Of the snapshots that `main` came by, oldest first."""
        found = self.spark.table(f"lake.{self.name}.{table}.snapshots").orderBy("committed_at")
        return [row.operation for row in found.collect()]


@pytest.fixture
def taps(spark: Any, spark_server: Any, broker: Any, database: str, tmp_path: Path) -> Taps:
    create_topics(KafkaConnection(broker.bootstrap), {database: 1})
    made = Taps(
        spark, settings_of(spark_server, tmp_path / "home", broker), database, tmp_path / "p"
    )
    made.deploy_sql(SQL.format(name=database))
    return made


def test_snapshots_that_nothing_holds_go_with_their_files(taps: Taps) -> None:
    settings = {"retain_versions": 2, "retain_changes": "1 ms", "retain_views": "1 ms"}
    taps.deploy_sql(SQL.format(name=taps.name), **settings)
    gone = []
    for intervals in (FANOUT, 4):
        for _ in range(intervals):
            taps.interval()
        with Pipeline(taps.name, taps.settings) as pipeline:
            gone.append(pipeline.maintain(taps.said.append).done["snapshots expired"])
    state = recorded(taps.name, taps.settings)
    assert len(state.versions) == 2
    assert min(gone) > 0
    assert taps.snapshots("rooms") <= 4
    for table in state.version.tables:
        # The root is held, too; and merging has left a snapshot that goes next time.
        assert taps.snapshots(table) <= 4, table
        assert taps.on_disk(table) == taps.needed(table), table
    assert len(taps.rows(ERRORS)) == FANOUT + 4
    taps.interval()
    assert taps.is_right()


def test_files_stay_few_and_rows_the_same(taps: Taps) -> None:
    for _ in range(FANOUT):
        taps.interval()
    tables = (OUTBOX, ERRORS, STEPS_TABLE)
    before = {table: taps.rows(table) for table in tables}
    assert all(taps.files(table) >= FANOUT for table in tables)
    with Pipeline(taps.name, taps.settings) as pipeline:
        assert pipeline.maintain(taps.said.append).done["files merged"] >= 3 * FANOUT
    assert [taps.files(table) for table in tables] == [1, 1, 1]
    assert {table: taps.rows(table) for table in tables} == before
    # Who follows the outbox has nothing to read of it.
    assert taps.operations(OUTBOX)[-1] == "replace"
    assert "overwrite" not in taps.operations(OUTBOX)

    taps.interval()
    assert taps.view("rooms") == Counter(
        (f"r{room}", sum(range(room, taps.taps, 2))) for room in (0, 1)
    )
    assert taps.is_right()
    assert len(taps.rows(ERRORS)) == FANOUT + 1
    with Pipeline(taps.name, taps.settings) as pipeline:
        assert pipeline.maintain(taps.said.append).done["files merged"] == 0
