"""A view that calls a Python function, in a pipeline: on the server, verified, and changed."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.connect.session import SparkSession as ClientSession

from lockstep.adapters.kafka import create_topics
from lockstep.control.kafka_options import KafkaConnection
from lockstep.errors import FailedRow
from lockstep.runtime import recorded

sys.path.insert(0, str(Path(__file__).parent))
from followed_shop import settings_of
from one_pipeline import OnePipeline

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

SQL = """\
CREATE TABLE taps (room STRING, n INT) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = '${{lockstep.kafka}}', subscribe = '{name}');
"""
HELPER = """\
def louder(text):
    return None if text is None else text.upper() + "{mark}"
"""
VIEWS = """\
import pandas as pd
from helper import louder
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()


@F.udf("string")
def loud(text: str) -> str:
    return louder(text)


@dp.materialized_view
def rooms() -> DataFrame:
    taps = spark.read.table("taps")
    return taps.groupBy(loud("room").alias("room")).agg(F.sum("n").alias("n"))


@F.pandas_udf("int")
def between(n: pd.Series) -> int:
    return n.max() - n.min()


@dp.materialized_view
def widths() -> DataFrame:
    taps = spark.read.table("taps")
    return taps.groupBy("room").agg(between("n").alias("width"), F.count("*").alias("n"))
"""


@dataclass
class Taps(OnePipeline):
    def deploy_python(self, mark: str, views: str = VIEWS) -> None:
        folder = self.folder / "sql"
        folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "helper.py").write_text(HELPER.format(mark=mark), "utf-8")
        (folder / "views.py").write_text(views, "utf-8")
        self.deploy_sql(SQL.format(name=self.name))

    def send(self, *rows: tuple[str | None, int]) -> None:
        self.produce({"room": room, "n": n} for room, n in rows)
        self.advance()


@pytest.fixture
def taps(spark: Any, spark_server: Any, broker: Any, database: str, tmp_path: Path) -> Taps:
    create_topics(KafkaConnection(broker.bootstrap), {database: 1})
    return Taps(
        spark, settings_of(spark_server, tmp_path / "home", broker), database, tmp_path / "p"
    )


def test_a_python_function_is_kept_up_to_date_and_can_change(taps: Taps) -> None:
    taps.deploy_python("!")
    taps.send(("hall", 1), (None, 2))
    taps.send(("Hall", 3), ("bath", 4))
    assert taps.view("rooms") == Counter([("HALL!", 4), (None, 2), ("BATH!", 4)])
    assert taps.is_right()

    traces = recorded(taps.name, taps.settings).version.tables.keys()
    taps.deploy_python("!", "# other lines\n\n" + VIEWS)
    taps.send(("hall", 1))
    assert recorded(taps.name, taps.settings).version.tables.keys() == traces

    taps.deploy_python("?")
    taps.send(("bath", 1))
    assert taps.view("rooms") == Counter([("HALL?", 5), (None, 2), ("BATH?", 5)])
    assert taps.view("widths") == Counter(
        [("hall", 0, 2), (None, 0, 1), ("Hall", 0, 1), ("bath", 3, 2)]
    )
    assert taps.is_right()


def test_functions_are_made_known_where_no_session_is_that_of_the_process(
    taps: Taps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a process of its own, of which this one has the shared session."""
    monkeypatch.setattr(ClientSession, "_default_session", None)
    monkeypatch.setattr(ClientSession, "_active_session", threading.local())
    taps.deploy_python("!")
    taps.send(("hall", 1), (None, 2))
    assert taps.view("rooms") == Counter([("HALL!", 1), (None, 2)])


def test_the_row_for_which_a_python_function_raises_is_named(taps: Taps) -> None:
    lines = '    if text == "cellar":\n        raise ValueError("no such room")\n'
    taps.deploy_python("!", VIEWS.replace("    return louder", lines + "    return louder"))
    taps.send(("hall", 1))
    with pytest.raises(FailedRow) as caught:
        taps.send(("bath", 1), ("cellar", 2), ("hall", 3), (None, 4))
    assert "step 1: an expression of rooms fails for a row" in caught.value.message
    assert "ValueError: no such room" in caught.value.found
    assert '{"room":"cellar"' in caught.value.found
