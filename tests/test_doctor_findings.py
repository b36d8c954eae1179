"""What `doctor` looks at between a deploy and its first interval, without a broker or tables."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from shop_project import installed, written

from lockstep import deploying, doctor
from lockstep.adapters.settings import Settings
from lockstep.adapters.sql_store import SqlStore
from lockstep.control.changes import BeginAttempt, CommitVersion, Landed, RecordInterval
from lockstep.control.diagnosis import Finding, Health
from lockstep.control.model import Attempt, Division, Interval, OffsetRange, TopicSlice, Version
from lockstep.control.ports import PartitionBounds, TopicBounds

ORDERS = """
CREATE TABLE orders (a INT, b INT) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = 'b', subscribe = 'orders');
CREATE MATERIALIZED VIEW w AS SELECT a, b FROM orders %s;
"""
SINK = """
CREATE SINK %s FROM %s USING kafka OPTIONS ('kafka.bootstrap.servers' = 'b', topic = '%s');
"""
MORE = "CREATE MATERIALIZED VIEW more AS SELECT b FROM orders;"


class Nowhere:
    """The tables of a version that nobody has published, and a topic that holds what comes next."""

    def tables(self) -> list[str]:
        return []

    def snapshots(self, _: str) -> set[int | None]:
        return {7}

    def refs(self, _: str) -> dict[str, int]:
        return {}

    def view_head(self, _: str) -> None:
        return None

    def bounds(self, source: str) -> TopicBounds:
        return TopicBounds(source, "id", (PartitionBounds(0, 0, 30),))

    def close(self) -> None:
        pass


def deploy(folder: Path, settings: Settings, sql: str) -> None:
    deploying.deploy(written(folder, sql), settings)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """An installation where a version is committed of one view and its sink."""
    settings = installed(tmp_path / "home")
    deploy(tmp_path, settings, ORDERS % "" + SINK % ("out", "w", "out"))
    slice_ = TopicSlice("orders", "orders", "id", (OffsetRange(0, 10, 20),))
    division = Division(0, datetime(2026, 1, 1, tzinfo=UTC), (slice_,))
    for change in (
        RecordInterval(Interval((division,))),
        BeginAttempt(Attempt("a", 0, 0, "")),
        CommitVersion(Version(1, "a", 0, 0, {"w_changes": 7}), ""),
    ):
        assert isinstance(SqlStore(settings.store_url).apply("shop", change), Landed)
    markers: Mapping[str, int] = {}
    monkeypatch.setattr(doctor, "tables_of", lambda *_: (None, Nowhere()))
    monkeypatch.setattr(doctor, "ProjectSources", lambda *_: Nowhere())
    monkeypatch.setattr(doctor, "_kafka_markers", lambda *_: markers)
    return settings


def by_subject(found: tuple[Finding, ...]) -> dict[str, Finding]:
    return {one.subject: one for one in found}


@pytest.mark.parametrize(
    ("changed", "waiting"),
    [
        (ORDERS % "" + MORE + SINK % ("out", "w", "out") + SINK % ("also", "more", "also"), True),
        (ORDERS % "WHERE a > 1" + SINK % ("out", "w", "out") + SINK % ("also", "w", "also"), False),
    ],
    ids=["of a new view", "beside a changed query"],
)
def test_a_sink_that_no_version_has_waits_for_one(
    tmp_path: Path, shop: Settings, changed: str, waiting: bool
) -> None:
    deploy(tmp_path, shop, changed)
    found = by_subject(doctor.diagnose("shop", shop))
    also = found["sink also"]
    assert (also.health, also.what) == (Health.NOTE, "it is new, and waits for version 2")
    assert ("view more" in found) == waiting
    for sound in ("view w", "sink out", "source orders"):
        assert found[sound].health is Health.SOUND, found[sound]
    assert not [one for one in found.values() if one.health is Health.FAULT]


@pytest.mark.usefixtures("shop")
def test_before_the_first_version_all_sinks_are_looked_at(tmp_path: Path) -> None:
    other = installed(tmp_path / "other")
    deploy(tmp_path, other, ORDERS % "" + SINK % ("out", "w", "out"))
    found = by_subject(doctor.diagnose("shop", other))
    assert found["sink out"].what == "nothing is published yet"
    assert found["versions"].what == "none is committed yet"
