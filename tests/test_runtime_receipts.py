"""Receipts as a producer and a consumer ask for them, in Python and on the command line."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from sql_builders import SPEC

from lockstep import runtime
from lockstep.adapters.settings import Settings
from lockstep.adapters.sql_store import SqlStore
from lockstep.cli.main import main
from lockstep.control import receipts
from lockstep.control.changes import (
    BeginAttempt,
    Change,
    CommitVersion,
    IntendPublish,
    Landed,
    RecordInterval,
    RecordPublished,
)
from lockstep.control.model import Attempt, Division, Interval, OffsetRange, TopicSlice, Version
from lockstep.control.receipts import ReceiptStatus
from lockstep.deploying import deploy
from lockstep.errors import Retry

SQL = """
CREATE TABLE orders (a INT, b INT) USING kafka OPTIONS (
  'kafka.bootstrap.servers' = 'b', subscribe = 'orders');
CREATE MATERIALIZED VIEW w AS SELECT a, b FROM orders;
CREATE SINK k FROM w USING kafka OPTIONS ('kafka.bootstrap.servers' = 'b', topic = 'out');
"""
T0 = datetime(2026, 1, 1, tzinfo=UTC)


def division(step: int) -> Division:
    ranges = tuple(OffsetRange(p, 10 * step, 10 * step + 10) for p in range(2))
    return Division(
        step, T0 + timedelta(seconds=step), (TopicSlice("orders", "orders", "id", ranges),)
    )


PUBLISHED: tuple[Change, ...] = tuple(
    change
    for sink in ("w", "k")
    for change in (IntendPublish(sink, 0, 2), RecordPublished(sink, 2))
)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Steps 0..2 are committed, ten offsets of two partitions each; nothing is published."""
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LOCKSTEP_KAFKA", "b")
    monkeypatch.setattr(receipts, "POLL_SECONDS", 0.02)
    found = Settings.load()
    found.home.mkdir()
    (tmp_path / "transformations").mkdir()
    (tmp_path / "spark-pipeline.yml").write_text(SPEC, "utf-8")
    (tmp_path / "transformations" / "shop.sql").write_text(SQL, "utf-8")
    deploy(str(tmp_path), found)
    change(
        found,
        RecordInterval(Interval(tuple(division(step) for step in range(3)))),
        BeginAttempt(Attempt("a", 0, 2, "")),
        CommitVersion(Version(1, "a", 2, 0, {}), ""),
    )
    return found


def change(settings: Settings, *changes: Change) -> None:
    store = SqlStore(settings.store_url)
    for one in changes:
        assert isinstance(store.apply("shop", one), Landed)


def answer(capsys: pytest.CaptureFixture[str], code: int, *arguments: str) -> Any:
    """What a command prints as JSON, and ends with."""
    with pytest.raises(SystemExit) as ended:
        main((*arguments, "-o", "json"))
    assert ended.value.code == code
    return json.loads(capsys.readouterr().out)


def test_a_producer_waits_until_all_is_out(settings: Settings) -> None:
    sent = {("orders", 1): 29, ("orders", 0): 3}
    with pytest.raises(Retry) as caught:
        runtime.wait_until_published("shop", sent, settings, timeout_seconds=0)
    assert caught.value.message == (
        "offset 3 of orders[0], offset 29 of orders[1] is not published everywhere after 0 seconds"
    )
    publishing = Thread(target=change, args=(settings, *PUBLISHED))
    publishing.start()
    found = runtime.wait_until_published("shop", sent, settings, timeout_seconds=120)
    publishing.join()
    assert [(one.step, one.status, one.published) for one in found] == [
        (0, ReceiptStatus.PUBLISHED, ("w", "k")),
        (2, ReceiptStatus.PUBLISHED, ("w", "k")),
    ]
    assert runtime.wait_until_published("shop", {}) == ()


def test_a_receipt_that_is_waited_for(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("receipt", "shop", "orders", "0", "17", "--wait", "--timeout", "0.05")
    error = answer(capsys, 1, *asked)["error"]
    assert error["message"] == (
        "offset 17 of orders[0] is not published everywhere after 0.05 seconds"
    )
    assert (
        error["found"] == "source orders: in step 1; committed, held by version 1; not yet by w, k"
    )
    change(settings, *PUBLISHED)
    [receipt] = answer(capsys, 0, *asked)
    assert (receipt["step"], receipt["status"]) == (1, "published")


def test_the_input_behind_a_step(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    [shown] = answer(capsys, 0, "steps", "shop", "--step", "1")
    [slice_] = shown["slices"]
    assert (shown["step"], slice_["topic"]) == (1, "orders")
    assert slice_["ranges"] == [
        {"partition": partition, "start": 10, "end": 20} for partition in range(2)
    ]
    assert runtime.step_input("shop", 1, settings) == division(1)
    error = answer(capsys, 2, "steps", "shop", "--step", "3")["error"]
    assert error["message"] == "pipeline shop: step 3 is not recorded yet"
