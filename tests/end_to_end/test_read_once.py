"""Views without state: bad records are found, whether few are kept, or many go by in one pass."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from lockstep.adapters.kafka import create_topics
from lockstep.control.kafka_options import KafkaConnection
from lockstep.deploying import deploy
from lockstep.errors import BadRecord
from lockstep.runtime import Pipeline, recorded
from lockstep_engine import attempt

sys.path.insert(0, str(Path(__file__).parent))
import market
from followed_shop import settings_of

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

SPEC = f"""{market.SPEC}configuration:
  lockstep.rows_per_step: "4"
"""
CLICKS = """\
CREATE TABLE clicks (id INT, page STRING) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = '${{lockstep.kafka}}', subscribe = '{name}'{more});
"""
SHOWN = "CREATE MATERIALIZED VIEW shown AS SELECT id, page FROM clicks WHERE {where};"


class Clicks:
    """A topic of clicks of which every fifth cannot be read, and a pipeline over it."""

    def __init__(self, spark: Any, settings: Any, name: str, folder: Path) -> None:
        self.spark, self.settings, self.name, self.folder = spark, settings, name, folder
        self.said: list[str] = []
        self.sent = 0
        create_topics(KafkaConnection(settings.kafka, {}), {name: 1})

    def deploy(self, where: str = "id >= 0", more: str = "") -> None:
        (self.folder / "sql").mkdir(parents=True)
        (self.folder / "spark-pipeline.yml").write_text(SPEC.format(name=self.name), "utf-8")
        text = CLICKS.format(name=self.name, more=more) + SHOWN.format(where=where)
        (self.folder / "sql" / "clicks.sql").write_text(text, "utf-8")
        deploy(str(self.folder), self.settings)

    def send(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.settings.kafka})
        for number in range(self.sent, self.sent + count):
            value = {"id": number if number % 5 else "no", "page": f"p{number}"}
            producer.produce(self.name, json.dumps(value).encode())
        assert producer.flush(30) == 0
        self.sent += count

    def advance(self) -> None:
        with Pipeline(self.name, self.settings) as pipeline:
            while pipeline.plan(None, self.said.append).interval is not None:
                pipeline.run(self.said.append)
                pipeline.publish(self.said.append)

    def errors(self) -> dict[int, tuple[int, str]]:
        """Of each offset in the error table its step, and why."""
        found = self.spark.table(f"lake.{self.name}.clicks_errors").collect()
        assert len({row["offset"] for row in found}) == len(found)
        return {row["offset"]: (row["_step"], row["reason"]) for row in found}


@pytest.fixture(params=[attempt.FEW_ROWS, 0], ids=["few", "many"])
def clicks(
    spark: Any,
    spark_server: Any,
    broker: Any,
    database: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> Clicks:
    """With the path of few records, and with that of many."""
    monkeypatch.setattr(attempt, "FEW_ROWS", request.param)
    settings = replace(settings_of(spark_server, tmp_path / "home"), kafka=broker.bootstrap)
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
    clicks.deploy(where="1 = 0")
    clicks.send(6)
    clicks.advance()
    assert set(clicks.errors()) == {0, 5}


def test_they_stop_an_interval_where_the_source_says_so(clicks: Clicks) -> None:
    clicks.deploy(more=", on_error = 'fail'")
    clicks.send(6)
    with pytest.raises(BadRecord, match="partition 0 offset 0"):
        clicks.advance()
    assert recorded(clicks.name, clicks.settings).version.number == 0
