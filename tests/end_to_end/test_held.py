"""Stages that are taken in one go: the lease is held from the first to the last."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lockstep.adapters.clock import SystemClock
from lockstep.adapters.lease import held, new_holder
from lockstep.adapters.sql_store import SqlStore
from lockstep.control.changes import Change, Outcome, ReleaseLease, TakeLease
from lockstep.errors import LeaseHeld
from lockstep.runtime import open_pipeline

sys.path.insert(0, str(Path(__file__).parent))
from followed_shop import MERGE_ON_READ, Shop

pytestmark = pytest.mark.spark

QUERIES = {"kinds": "SELECT kind, count(*) AS n FROM @items GROUP BY kind"}


def test_the_lease_is_taken_once(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.make("items", "item STRING, kind STRING", MERGE_ON_READ)
    shop.sql("INSERT INTO @items VALUES ('nut', 'metal'), ('cork', 'wood')")
    shop.deploy(QUERIES, shop.source("items", "item STRING, kind STRING"))
    changes, apply = list[type[Change]](), SqlStore.apply

    def noted(store: SqlStore, pipeline: str, change: Change) -> Outcome:
        changes.append(type(change))
        return apply(store, pipeline, change)

    monkeypatch.setattr(SqlStore, "apply", noted)
    with open_pipeline(shop.database, shop.settings) as pipeline:
        with pipeline.held(print):
            pipeline.plan(None, print)
            pipeline.run(print)
            store = SqlStore(shop.settings.store_url)
            other = held(store, shop.database, new_holder(), SystemClock(), print, wait_seconds=0)
            with pytest.raises(LeaseHeld), other:
                raise AssertionError("two hold it")
            pipeline.publish(print)
        assert changes.count(TakeLease) == 2, "by the pipeline, and in vain by the other"
        assert changes.count(ReleaseLease) == 1
        assert pipeline.state().lease is None
        pipeline.publish(print)
        assert changes.count(TakeLease) == 3, "each stage by itself, as before"
    shop.check(QUERIES)
