"""How long steps and intervals are, how many rows they hold, and what is kept of them: read from a
project's settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from fractions import Fraction

from lockstep.errors import WrongUse

__all__ = [
    "LEAST_VERSIONS",
    "RETAIN_CHANGES",
    "StepLimits",
    "count_of_key",
    "cron_of",
    "retained_changes",
    "retained_versions",
    "retained_views",
    "run_seconds",
    "wrong_key",
]

RETAIN_CHANGES = timedelta(days=1)
RETAIN_VERSIONS = 10
LEAST_VERSIONS = 2
"""The newest version, and the one that a rollback goes back to."""

_UNIT_MILLISECONDS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")
_COUNT = re.compile(r"\d+(?:_\d+)*")

_FEW_WORKERS, _ROWS_OF_FEW, _ROWS_OF_MORE = 2, 2_000_000, 20_000_000
"""Rows of an interval, where nobody has said how many: with few workers so many as the task works out by
itself, faster than they would; with more workers, as many as they need to be worth their stages."""


@dataclass(frozen=True)
class StepLimits:
    """The limits of one interval; rows are counted as offsets, which is an upper bound. Without
    `rows_per_interval` it follows from the workers: `for_workers`, `most_rows`.

    With `lockstep.cron` intervals have no length of their own: `interval_seconds` is then what
    `lockstep run --follow` waits, and a step may be longer than was said.

    Raises WrongUse where they do not fit together, naming the key of the configuration.
    """

    step_seconds: float = 10.0
    steps_per_interval: int = 1_000
    rows_per_step: int = 1_000_000
    rows_per_interval: int | None = None
    interval_seconds: float = 60.0

    def __post_init__(self) -> None:
        for key, seconds in (
            ("lockstep.step", self.step_seconds),
            ("lockstep.interval", self.interval_seconds),
        ):
            if seconds * 1000 < 1 or round(seconds * 1000) / 1000 != seconds:
                raise wrong_key(
                    key, "a duration of whole milliseconds, at least 1 ms", f"{seconds} s"
                )
        for key, count in (
            ("lockstep.steps_per_interval", self.steps_per_interval),
            ("lockstep.rows_per_step", self.rows_per_step),
            ("lockstep.rows_per_interval", self.rows_per_interval),
        ):
            if count is not None and count < 1:
                raise wrong_key(key, "a whole number of at least 1", str(count))
        if self.step_seconds > self.interval_seconds:
            raise wrong_key(
                "lockstep.step",
                f"at most lockstep.interval, {self.interval_seconds:g} s",
                f"{self.step_seconds:g} s",
            )
        if self.rows_per_interval is not None and self.rows_per_step > self.rows_per_interval:
            raise wrong_key(
                "lockstep.rows_per_step",
                f"at most lockstep.rows_per_interval, {self.rows_per_interval}",
                str(self.rows_per_step),
            )

    @property
    def most_rows(self) -> int:
        """Of an interval, at least those of a step."""
        return self.rows_per_interval or max(_ROWS_OF_FEW, self.rows_per_step)

    def for_workers(self, workers: int) -> StepLimits:
        """The same for intervals that so many workers work on, 0 where no layout names them."""
        return self if workers <= _FEW_WORKERS else self._for_many_workers()

    def _for_many_workers(self) -> StepLimits:
        if self.rows_per_interval is not None:
            return self
        return replace(self, rows_per_interval=max(_ROWS_OF_MORE, self.rows_per_step))

    @property
    def step_milliseconds(self) -> int:
        return round(self.step_seconds * 1000)

    @property
    def interval_milliseconds(self) -> int:
        return round(self.interval_seconds * 1000)

    @staticmethod
    def from_configuration(configuration: Mapping[str, str]) -> StepLimits:
        """Read the `lockstep.*` keys; absent ones have their defaults. Raises WrongUse."""
        default = StepLimits()

        def seconds(key: str, otherwise: float) -> float:
            text = configuration.get(key)
            return otherwise if text is None else _seconds(key, str(text))

        def count(key: str, otherwise: int) -> int:
            text = configuration.get(key)
            return otherwise if text is None else count_of_key(key, str(text))

        key = "lockstep.rows_per_interval"
        rows_per_interval = None if configuration.get(key) is None else count(key, 0)
        interval_seconds = seconds("lockstep.interval", default.interval_seconds)
        # A default gives way to what was written: only two written values can contradict.
        step_seconds = seconds("lockstep.step", min(default.step_seconds, interval_seconds))
        if cron_of(configuration):
            interval_seconds = max(interval_seconds, step_seconds)
        limits = StepLimits(
            step_seconds=step_seconds,
            steps_per_interval=count("lockstep.steps_per_interval", default.steps_per_interval),
            rows_per_step=count(
                "lockstep.rows_per_step",
                min(default.rows_per_step, rows_per_interval or default.rows_per_step),
            ),
            rows_per_interval=rows_per_interval,
            interval_seconds=interval_seconds,
        )
        return limits._for_many_workers() if _is_scaled(configuration) else limits


def _is_scaled(configuration: Mapping[str, str]) -> bool:
    """Whether workers are to come and go by what intervals take: of a minute with much to do there must
    be one then, and not several that take little each."""
    return configuration.get("lockstep.autoscale", "off") != "off"


def run_seconds(configuration: Mapping[str, str]) -> int | None:
    """The time from one DAG run to the next, which Airflow takes in whole seconds; None where
    `lockstep.cron` says when they are. Raises WrongUse."""
    if cron_of(configuration):
        return None
    key = "lockstep.interval"
    seconds = StepLimits.from_configuration(configuration).interval_seconds
    if seconds != int(seconds):
        expected = "whole seconds, minutes, hours or days, such as '30 seconds'"
        raise wrong_key(key, expected, f"'{configuration[key]}'")
    return int(seconds)


def cron_of(configuration: Mapping[str, str]) -> str:
    """What `lockstep.cron` says; '' where it says nothing."""
    return configuration.get("lockstep.cron", "").strip()


def retained_versions(configuration: Mapping[str, str]) -> int:
    """How many versions are kept. Raises WrongUse."""
    key = "lockstep.retain_versions"
    text = configuration.get(key)
    count = RETAIN_VERSIONS if text is None else count_of_key(key, text)
    if count < LEAST_VERSIONS:
        raise wrong_key(key, f"a whole number of at least {LEAST_VERSIONS}", f"'{text}'")
    return count


def retained_changes(configuration: Mapping[str, str]) -> timedelta:
    """For how long tables of changes can be read at an earlier snapshot. Raises WrongUse."""
    return _retained("lockstep.retain_changes", configuration) or RETAIN_CHANGES


def retained_views(configuration: Mapping[str, str]) -> timedelta | None:
    """For how long views can be read at an earlier snapshot; None where that is nobody's business but
    their users'. Raises WrongUse."""
    return _retained("lockstep.retain_views", configuration)


def _retained(key: str, configuration: Mapping[str, str]) -> timedelta | None:
    text = configuration.get(key)
    return None if text is None else timedelta(seconds=_seconds(key, str(text)))


def _seconds(key: str, text: str) -> float:
    expected = "a duration such as '10 seconds', '1 minute', '500 ms', or a number of seconds"
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or match[2] not in _UNIT_MILLISECONDS:
        raise wrong_key(key, expected, f"'{text}'")
    milliseconds = Fraction(match[1]) * _UNIT_MILLISECONDS[match[2]]
    if milliseconds.denominator != 1 or milliseconds < 1:
        raise wrong_key(key, "a duration of whole milliseconds, at least 1 ms", f"'{text}'")
    return int(milliseconds) / 1000


def count_of_key(key: str, text: str) -> int:
    """The whole number that a configuration key holds. Raises WrongUse."""
    if _COUNT.fullmatch(text.strip()) is None:
        raise wrong_key(key, "a whole number such as 1000000", f"'{text}'")
    return int(text.strip().replace("_", ""))


def wrong_key(key: str, expected: str, found: str) -> WrongUse:
    """That a configuration key holds what it cannot mean."""
    return WrongUse(
        f"configuration key {key} has a value that cannot be used",
        expected=expected,
        found=found,
        next_step=f"correct {key} under `configuration:` in spark-pipeline.yml",
    )
