"""Which tables' snapshots are expired, and what is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from recording import silent

from lockstep.control.expiry import RETAIN_TRACES, expire
from lockstep.control.job import ExpireJob
from lockstep.control.limits import RETAIN_CHANGES, retained_changes, retained_views
from lockstep.control.model import SinkState
from lockstep.control.ports import Marker, ViewHead
from lockstep.errors import StateDiverged, WrongUse

NOW = datetime(2026, 1, 2, tzinfo=UTC)
VIEWS = frozenset({"v", "changed", "new", "of_others", "foreign"})
"""Of which the first is the pipeline's, as it has published it."""


class Tables:
    """Counts what can go and what stays; an engine that is told."""

    def __init__(self, ages: Mapping[str, tuple[int, int]]) -> None:
        self._ages = ages
        self.asked: dict[str, datetime] = {}
        self.jobs: list[ExpireJob] = []

    def ages(self, table: str, older_than: datetime) -> tuple[int, int]:
        self.asked[table] = older_than
        return self._ages[table]

    def view_head(self, view: str) -> ViewHead | None:
        if view == "changed":
            raise StateDiverged("somebody has deleted rows")
        if view == "new":
            return None
        marker = Marker(1, 7, "theirs" if view == "of_others" else "i", None)
        return ViewHead(2, 3, None if view == "foreign" else marker, (), ())

    def expire(self, job: ExpireJob, _: Any) -> int:
        self.jobs.append(job)
        return 12


def expired(
    tables: Tables,
    retain_changes: timedelta = RETAIN_CHANGES,
    retain_views: timedelta | None = None,
) -> int:
    parts: Any = SimpleNamespace(
        pipeline="p",
        state=tables,
        engine=tables,
        clock=SimpleNamespace(now=lambda: NOW),
        retain_changes=retain_changes,
        retain_views=retain_views,
        catalog=None,
    )
    version = SimpleNamespace(tables=dict.fromkeys(tables._ages.keys() - VIEWS, 1))
    sinks = [SinkState(view, view, "iceberg") for view in sorted(VIEWS)]
    sinks.append(SinkState("queue", "in_kafka", "kafka"))
    recorded: Any = SimpleNamespace(version=version, session="s", incarnation="i", sinks=sinks)
    return expire(parts, recorded, silent)


def test_a_table_is_looked_at_once_half_of_its_snapshots_can_go() -> None:
    tables = Tables({"_trace_a": (4, 4), "_trace_b": (3, 4), "v_changes": (9, 2)})
    assert expired(tables) == 4 + 9
    [job] = tables.jobs
    assert job.tables == {"_trace_a": NOW - RETAIN_TRACES, "v_changes": NOW - RETAIN_CHANGES}
    assert job.session == "s"


def test_traces_stay_no_longer_than_changes() -> None:
    tables = Tables({"_trace_a": (0, 1), "v_changes": (0, 1)})
    assert expired(tables, timedelta(minutes=1)) == 0
    assert set(tables.asked.values()) == {NOW - timedelta(minutes=1)}
    assert tables.jobs == []


def test_views_have_a_past_for_as_long_as_is_said_and_for_ever_where_nothing_is() -> None:
    tables = Tables(dict.fromkeys(VIEWS, (3, 1)) | {"v_changes": (0, 1)})
    assert expired(tables) == 0
    assert set(tables.asked) == {"v_changes"}
    assert expired(tables, retain_views=timedelta(hours=2)) == 3
    [job] = tables.jobs
    assert job.tables == {"v": NOW - timedelta(hours=2)}, (
        "those of others stay, and what they wrote"
    )


@pytest.mark.parametrize(
    ("text", "wanted"),
    [(None, timedelta(days=1)), ("2 hours", timedelta(hours=2)), ("90", timedelta(seconds=90))],
)
def test_how_long_changes_stay_is_configured(text: str | None, wanted: timedelta) -> None:
    configuration = {} if text is None else {"lockstep.retain_changes": text}
    assert retained_changes(configuration) == wanted


def test_a_wrong_time_is_refused() -> None:
    with pytest.raises(WrongUse, match="retain_changes"):
        retained_changes({"lockstep.retain_changes": "for ever"})
    with pytest.raises(WrongUse, match="retain_views"):
        retained_views({"lockstep.retain_views": "for ever"})


def test_of_views_nothing_is_said_by_itself() -> None:
    assert retained_views({}) is None
    assert retained_views({"lockstep.retain_views": "7 days"}) == timedelta(days=7)
