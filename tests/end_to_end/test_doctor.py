"""`lockstep doctor`: what it finds, and a store that is lost or old recorded again."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from lockstep.adapters.sql_store import SqlStore
from lockstep.control.diagnosis import Finding, Health
from lockstep.doctor import diagnose, rebuild
from lockstep.errors import StateDiverged
from lockstep.runtime import recorded

sys.path.insert(0, str(Path(__file__).parent))
from market import Market, opened

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture
def market(spark: Any, spark_server: Any, broker: Any, database: str, tmp_path: Path) -> Market:
    return opened(spark, spark_server, broker, database, tmp_path)


def faults(found: Iterable[Finding]) -> list[tuple[str, str]]:
    return [(one.subject, one.next_step) for one in found if one.health is Health.FAULT]


def store_file(market: Market) -> Path:
    return Path(market.settings.store_url.removeprefix("sqlite:///"))


def test_a_sound_pipeline_has_no_fault(market: Market) -> None:
    found = diagnose(market.name, market.settings)
    assert {one.health for one in found} == {Health.SOUND}
    subjects = {one.subject for one in found}
    assert {"versions", "tables", "view totals", "sink out", "source sales"} <= subjects


def test_a_store_that_is_lost_is_recorded_again(market: Market) -> None:
    before = recorded(market.name, market.settings)
    for file in store_file(market).parent.glob("control.db*"):
        file.unlink()
    after = rebuild(str(market.folder), market.settings)
    assert after.version == before.version
    assert (after.incarnation, after.next_step) == (before.incarnation, before.next_step)
    assert (after.positions, after.last_time) == (before.positions, before.last_time)
    assert after.sinks == before.sinks
    assert not faults(diagnose(market.name, market.settings))
    market.send([("nut", 3), ("oak", 4)])
    market.advance()
    market.check()


def test_a_store_from_an_old_backup_is_found_out_and_brought_up(market: Market) -> None:
    backup = store_file(market).with_suffix(".backup")
    SqlStore(market.settings.store_url).read(market.name)
    shutil.copy(store_file(market), backup)
    wal = Path(f"{store_file(market)}-wal")
    if wal.exists():
        shutil.copy(wal, Path(f"{backup}-wal"))
    market.send([("nut", 3), ("oak", 4)])
    market.advance()
    newest = recorded(market.name, market.settings)
    for name in ("", "-wal", "-shm"):
        file = Path(f"{store_file(market)}{name}")
        file.unlink(missing_ok=True)
        if Path(f"{backup}{name}").exists():
            shutil.copy(f"{backup}{name}", file)
    assert recorded(market.name, market.settings).version.number < newest.version.number
    found = faults(diagnose(market.name, market.settings))
    assert {subject for subject, _ in found} == {"tables", "view totals", "sink out"}
    assert {step for _, step in found} == {"lockstep doctor DIR --rebuild"}
    market.send([("nut", 1)])
    with pytest.raises(StateDiverged, match="which is an old backup") as refused:
        market.advance()
    assert refused.value.next_step == "lockstep doctor DIR --rebuild"
    after = rebuild(str(market.folder), market.settings)
    assert (after.version, after.positions) == (newest.version, newest.positions)
    market.send([("cork", 1)])
    market.advance()
    market.check()


def test_a_store_that_knows_as_much_is_left_alone(market: Market) -> None:
    before = recorded(market.name, market.settings)
    assert rebuild(str(market.folder), market.settings) == before
    market.send([("cork", 1)])
    market.advance()
    market.spark.sql(f"DROP TABLE lake.{market.name}.totals")
    found = diagnose(market.name, market.settings)
    notes = {one.subject for one in found if one.health is Health.NOTE}
    assert notes == {"view totals"}


def test_a_table_that_is_gone_is_named(market: Market) -> None:
    market.spark.sql(f"DROP TABLE lake.{market.name}.totals_changes")
    found = diagnose(market.name, market.settings)
    [fault] = [one for one in found if one.health is Health.FAULT]
    assert fault.subject == "versions"
    assert "totals_changes" in fault.what
    with pytest.raises(StateDiverged, match="no version is pinned") as lacking:
        rebuild(str(market.folder), market.settings)
    assert lacking.value.found == "no table totals_changes"
