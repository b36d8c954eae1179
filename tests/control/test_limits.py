"""What a project's settings say of the length of steps and intervals, and of what is kept."""

from __future__ import annotations

import pytest

from lockstep.control.limits import StepLimits, retained_versions, run_seconds
from lockstep.errors import WrongUse


def test_limits_are_read_from_the_configuration() -> None:
    assert StepLimits.from_configuration({}) == StepLimits()
    written = {
        "lockstep.step": "500 ms",
        "lockstep.interval": "1.5 minutes",
        "lockstep.steps_per_interval": "7",
        "lockstep.rows_per_step": "1_000",
        "lockstep.rows_per_interval": "2000",
        "something.else": "x",
    }
    assert StepLimits.from_configuration(written) == StepLimits(0.5, 7, 1000, 2000, 90.0)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10 seconds", 10),
        ("1 minute", 60),
        ("2h", 7200),
        ("0.25", 0.25),
        ("3", 3),
        ("1 Day", 86400),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    limits = StepLimits.from_configuration({"lockstep.interval": text})
    assert limits.interval_seconds == seconds
    assert limits.step_seconds == min(10, seconds)


def test_beside_cron_no_interval_bounds_a_step() -> None:
    daily = {"lockstep.cron": "0 3 * * *", "lockstep.step": "1 hour"}
    assert StepLimits.from_configuration(daily).step_seconds == 3600


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30 seconds", 30),
        ("30s", 30),
        ("1 min", 60),
        ("60", 60),
        ("90 Seconds", 90),
        ("1.5 minutes", 90),
        ("2 hours", 7200),
        (" 1 day ", 86400),
    ],
)
def test_time_between_two_runs(text: str, seconds: int) -> None:
    assert run_seconds({"lockstep.interval": text}) == seconds


def test_time_between_two_runs_is_the_limits_default_and_none_with_cron() -> None:
    assert run_seconds({}) == StepLimits().interval_seconds
    assert run_seconds({"lockstep.cron": "0 3 * * *"}) is None


@pytest.mark.parametrize("text", ["500 ms", "1.5 seconds", "1 month", "0 seconds", "-1 minute", ""])
def test_a_run_has_whole_seconds(text: str) -> None:
    with pytest.raises(WrongUse, match=r"key lockstep\.interval has a value") as refused:
        run_seconds({"lockstep.interval": text})
    assert repr(text) in refused.value.found


def test_versions_that_are_kept() -> None:
    assert retained_versions({}) == 10
    assert retained_versions({"lockstep.retain_versions": "2"}) == 2
    with pytest.raises(WrongUse) as refused:
        retained_versions({"lockstep.retain_versions": "1"})
    assert refused.value.expected == "a whole number of at least 2"
    with pytest.raises(WrongUse, match=r"lockstep\.retain_versions"):
        retained_versions({"lockstep.retain_versions": "ten"})


@pytest.mark.parametrize(
    ("workers", "most"), [(0, 2_000_000), (2, 2_000_000), (3, 20_000_000), (64, 20_000_000)]
)
def test_rows_of_an_interval_follow_the_workers_where_nobody_has_said_how_many(
    workers: int, most: int
) -> None:
    assert StepLimits().for_workers(workers).most_rows == most
    assert StepLimits(rows_per_step=1 << 30).for_workers(workers).most_rows == 1 << 30
    said = StepLimits(rows_per_interval=3_000_000)
    assert said.for_workers(workers).most_rows == 3_000_000


@pytest.mark.parametrize("mode", ["propose", "apply"])
def test_an_interval_by_which_workers_come_and_go_is_a_whole_one(mode: str) -> None:
    scaled = {"lockstep.autoscale": mode}
    assert StepLimits.from_configuration(scaled).most_rows == 20_000_000
    assert StepLimits.from_configuration({"lockstep.autoscale": "off"}).most_rows == 2_000_000
    said = {**scaled, "lockstep.rows_per_interval": "3000000"}
    assert StepLimits.from_configuration(said).most_rows == 3_000_000


def test_a_step_is_not_larger_than_an_interval_of_which_both_are_said() -> None:
    said = {"lockstep.rows_per_step": "300", "lockstep.rows_per_interval": "200"}
    with pytest.raises(WrongUse) as refused:
        StepLimits.from_configuration(said)
    assert "lockstep.rows_per_step has a value" in refused.value.message
    assert refused.value.expected == "at most lockstep.rows_per_interval, 200"
    assert refused.value.found == "300"
    with pytest.raises(WrongUse, match=r"lockstep\.rows_per_interval"):
        StepLimits.from_configuration({"lockstep.rows_per_interval": "0"})


@pytest.mark.parametrize(
    ("key", "text", "expected", "found"),
    [
        ("lockstep.step", "5 parsecs", "a duration such as '10 seconds'", "'5 parsecs'"),
        ("lockstep.step", "-1 s", "a duration such as '10 seconds'", "'-1 s'"),
        ("lockstep.interval", "0.5 ms", "whole milliseconds, at least 1 ms", "'0.5 ms'"),
        ("lockstep.interval", "0", "whole milliseconds, at least 1 ms", "'0'"),
        ("lockstep.rows_per_step", "many", "a whole number such as 1000000", "'many'"),
        ("lockstep.rows_per_step", "0", "a whole number of at least 1", "0"),
        ("lockstep.step", "2 minutes", "at most lockstep.interval, 60 s", "120 s"),
    ],
)
def test_a_limit_that_cannot_be_used_names_its_key(
    key: str, text: str, expected: str, found: str
) -> None:
    with pytest.raises(WrongUse) as refused:
        StepLimits.from_configuration({key: text})
    assert refused.value.message == f"configuration key {key} has a value that cannot be used"
    assert expected in refused.value.expected
    assert refused.value.found == found
    assert "spark-pipeline.yml" in refused.value.next_step
