"""What both faces do alike: wait for a pipeline that is at work, and read times that people write."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from lockstep.adapters.clock import read_time
from lockstep.adapters.lease import in_turn
from lockstep.errors import LeaseHeld, WrongUse


def test_a_stage_is_tried_until_the_pipeline_is_free() -> None:
    held = iter([True, True, False])
    said: list[str] = []

    def stage() -> str:
        if next(held):
            raise LeaseHeld("another run is at work")
        return "done"

    assert in_turn(stage, said.append) == "done"
    assert said == ["still waiting: another run is at work"] * 2


@pytest.mark.parametrize(
    "text", ["2026-01-31T12:00:00Z", "2026-01-31T12:00", "2026-01-31 13:00+01:00"]
)
def test_a_time_without_a_zone_is_utc(text: str) -> None:
    found = read_time(text, "--until")
    assert found == datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert found.tzinfo is UTC


def test_what_is_no_time_is_named() -> None:
    with pytest.raises(WrongUse, match="--until cannot be read") as refused:
        read_time("tomorrow", "--until")
    assert "ISO 8601" in refused.value.expected
