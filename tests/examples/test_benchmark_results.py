"""The file that all benchmarks write to: each its own part."""

from __future__ import annotations

from pathlib import Path

import pytest
import results


def test_a_part_is_replaced_and_the_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    results.update("events_per_second/q10/lockstep", 5, path)
    results.update("events_per_second/q2/flink_sql", 1, path)
    results.update(
        "aims/small interval", {"target": "1 s", "measured": "3 s", "holds": False}, path
    )
    results.update("aims/small interval", {"target": "1 s", "measured": "1 s", "holds": True}, path)
    results.update("events_per_second/q2/flink_sql", 2, path)
    assert results.load(path) == {
        "aims": {"small interval": {"target": "1 s", "measured": "1 s", "holds": True}},
        "events_per_second": {"q2": {"flink_sql": 2}, "q10": {"lockstep": 5}},
    }
    assert list(results.load(path)["events_per_second"]) == ["q2", "q10"]


def test_a_part_of_a_number_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    results.update("events_per_second/q2", 1, path)
    with pytest.raises(ValueError, match="expected an object at 'q2', found 1"):
        results.update("events_per_second/q2/flink_sql", 2, path)
    assert results.load(path) == {"events_per_second": {"q2": 1}}
