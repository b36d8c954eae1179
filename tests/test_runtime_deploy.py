"""Deploying again over recorded steps: what changes the rows of a source or a view is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lockstep import deploying, runtime
from lockstep.adapters.settings import Settings
from lockstep.adapters.sql_store import SqlStore
from lockstep.control.changes import Landed, RecordInterval
from lockstep.control.model import Division, Interval, OffsetRange, TopicSlice
from lockstep.errors import WrongUse

SPEC = """
name: shop
storage: file:///tmp/unused
catalog: lake
database: shop
libraries:
  - glob: {include: sql/**}
"""
SQL = """
CREATE TABLE orders (a INT, b INT) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = 'b', subscribe = 'orders'%s);
CREATE MATERIALIZED VIEW w AS SELECT a, b FROM orders;
"""


def write(folder: Path, option: str) -> str:
    (folder / "sql").mkdir(exist_ok=True)
    (folder / "spark-pipeline.yml").write_text(SPEC, encoding="utf-8")
    (folder / "sql" / "shop.sql").write_text(SQL % option, encoding="utf-8")
    return str(folder)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """An installation where the project is deployed."""
    found = Settings.load({"LOCKSTEP_HOME": str(tmp_path / "home"), "LOCKSTEP_KAFKA": "b"})
    found.home.mkdir()
    deploying.deploy(write(tmp_path, ""), found)
    return found


def record_a_step(settings: Settings) -> None:
    slice_ = TopicSlice("orders", "orders", "id", (OffsetRange(0, 10, 20),))
    division = Division(0, datetime(2026, 1, 1, tzinfo=UTC), (slice_,))
    store = SqlStore(settings.store_url)
    assert isinstance(store.apply("shop", RecordInterval(Interval((division,)))), Landed)


def test_missing_columns_stay_as_they_are_once_a_step_is_recorded(
    tmp_path: Path, settings: Settings
) -> None:
    """Which records are rows depends on it, those of the steps before too."""
    deploying.deploy(write(tmp_path, ", missing_columns = 'null'"), settings)
    deploying.deploy(write(tmp_path, ""), settings)
    record_a_step(settings)
    with pytest.raises(WrongUse) as caught:
        deploying.deploy(write(tmp_path, ", missing_columns = 'null'"), settings)
    assert caught.value.found == "changes in orders"
    deploying.deploy(write(tmp_path, ", missing_columns = 'error', on_error = 'fail'"), settings)


def test_a_stage_refuses_where_no_broker_is_known(tmp_path: Path, settings: Settings) -> None:
    """Airflow's tasks come this way, without the command line."""
    sql = tmp_path / "sql" / "shop.sql"
    sql.write_text(sql.read_text().replace("= 'b'", "= '${ lockstep.kafka }'"), encoding="utf-8")
    deploying.deploy(str(tmp_path), settings)
    with (
        runtime.open_pipeline("shop", replace(settings, kafka="")) as pipeline,
        pytest.raises(WrongUse, match="no broker is known"),
    ):
        pipeline.plan(None, print)


def test_a_project_that_names_its_broker_needs_no_setting(
    tmp_path: Path, settings: Settings
) -> None:
    assert deploying.deploy(str(tmp_path), replace(settings, kafka="")).name == "shop"
