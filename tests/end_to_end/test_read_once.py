"""Views without state: bad records are found, whether few are kept, or many go by in one pass."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lockstep.adapters.kafka import create_topics
from lockstep.control.kafka_options import KafkaConnection
from lockstep.errors import BadRecord
from lockstep.runtime import recorded
from lockstep_engine import attempt
from lockstep_engine.context import Context

sys.path.insert(0, str(Path(__file__).parent))
from followed_shop import settings_of
from one_pipeline import OnePipeline

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

CLICKS = """\
CREATE TABLE clicks (id INT, page STRING) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = '${{lockstep.kafka}}', subscribe = '{name}'{more});
"""
SHOWN = "CREATE MATERIALIZED VIEW shown AS SELECT id, page FROM clicks WHERE id >= 0;"
NEVER = SHOWN.replace("id >= 0", "1 = 0")
SEEN = """\
CREATE MATERIALIZED VIEW seen AS
SELECT id % 2 AS odd, count(*) AS n, max(id) AS last FROM clicks GROUP BY id % 2;
"""


@dataclass
class Clicks(OnePipeline):
    """A topic of clicks of which every fifth cannot be read, and a pipeline over it."""

    sent: int = 0

    def deploy(self, view: str = SHOWN, more: str = "") -> None:
        self.deploy_sql(CLICKS.format(name=self.name, more=more) + view, rows_per_step=4)

    def send(self, count: int) -> None:
        self.produce(
            {"id": number if number % 5 else "no", "page": f"p{number}"}
            for number in range(self.sent, self.sent + count)
        )
        self.sent += count

    def errors(self) -> dict[int, tuple[int, str]]:
        """Of each offset in the error table its step, and why."""
        found = self.spark.table(f"lake.{self.name}.clicks_errors").collect()
        assert len({row["offset"] for row in found}) == len(found)
        return {row["offset"]: (row["_step"], row["reason"]) for row in found}


@pytest.fixture(params=["few", "many", "many here"])
def clicks(
    spark: Any,
    spark_server: Any,
    broker: Any,
    database: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> Clicks:
    """With the path of few records, and with those of many, by Spark and by this process."""
    if request.param != "few":
        monkeypatch.setattr(attempt, "FEW_RECORDS", 0)
    if request.param == "many":
        monkeypatch.setattr(attempt, "can_be_worked_out", lambda *_: False)
    if request.param == "many here":
        monkeypatch.setattr(attempt, "Context", partial(Context, many_records=0))
    settings = settings_of(spark_server, tmp_path / "home", broker)
    create_topics(KafkaConnection(broker.bootstrap), {database: 1})
    return Clicks(spark, settings, database, tmp_path / "project")


def test_bad_records_are_found_on_the_way(clicks: Clicks) -> None:
    clicks.deploy()
    clicks.send(12)
    clicks.advance()
    clicks.send(4)
    clicks.advance()
    shown = {row["id"] for row in clicks.spark.table(f"lake.{clicks.name}.shown").collect()}
    assert shown == {number for number in range(16) if number % 5}
    why = "column id does not fit int: no"
    assert clicks.errors() == {0: (0, why), 5: (1, why), 10: (2, why), 15: (3, why)}
    read = [line for line in clicks.said if "of them bad" in line]
    assert [line.split("sources, ")[1] for line in read] == ["3 of them bad", "1 of them bad"]


def test_they_are_found_where_spark_need_not_read_the_rows(clicks: Clicks) -> None:
    clicks.deploy(NEVER)
    clicks.send(6)
    clicks.advance()
    assert set(clicks.errors()) == {0, 5}


def test_they_are_found_where_an_aggregate_keeps_what_it_has_merged(
    clicks: Clicks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "Context", partial(Context, many_records=0))
    clicks.deploy(SEEN)
    clicks.send(12)
    clicks.advance()
    clicks.send(4)
    clicks.advance()
    assert clicks.view("seen") == Counter(
        (number % 2, len(seen), max(seen))
        for number in (0, 1)
        for seen in [[n for n in range(number, 16, 2) if n % 5]]
    )
    assert clicks.is_right()
    assert {at: step for at, (step, _) in clicks.errors().items()} == {0: 0, 5: 1, 10: 2, 15: 3}


def test_they_stop_an_interval_where_the_source_says_so(clicks: Clicks) -> None:
    clicks.deploy(more=", on_error = 'fail'")
    clicks.send(6)
    with pytest.raises(BadRecord, match="partition 0 offset 0"):
        clicks.advance()
    assert recorded(clicks.name, clicks.settings).version.number == 0
