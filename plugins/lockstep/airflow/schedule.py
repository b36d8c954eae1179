"""From a project's configuration to a timetable: `lockstep.interval`, or `lockstep.cron`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from lockstep.errors import WrongUse

if TYPE_CHECKING:
    from airflow.sdk import CronDataIntervalTimetable

    from lockstep.airflow.timetable import AlignedIntervalTimetable

__all__ = ["DEFAULT_INTERVAL", "interval_seconds", "timetable"]

DEFAULT_INTERVAL = "1 minute"

_UNIT_SECONDS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400}
_INTERVAL = re.compile(rf"\s*(\d+)\s+({'|'.join(_UNIT_SECONDS)})s?\s*", re.IGNORECASE)


def interval_seconds(text: str) -> int:
    """The length of '30 seconds', '1 minute', '2 hours', '1 day', in seconds. Raises WrongUse."""
    found = _INTERVAL.fullmatch(text)
    seconds = int(found[1]) * _UNIT_SECONDS[found[2].lower()] if found else 0
    if seconds < 1:
        raise WrongUse(
            "lockstep.interval is no length of time",
            expected="a whole number of seconds, minutes, hours or days, as in '30 seconds'",
            found=repr(text),
            next_step="write it so in spark-pipeline.yml and run `lockstep deploy` again",
        )
    return seconds


def timetable(
    configuration: Mapping[str, str],
) -> AlignedIntervalTimetable | CronDataIntervalTimetable:
    """The data intervals of a pipeline; `lockstep.cron` wins over `lockstep.interval`.

    A plain cron string would give runs without a data interval. Raises WrongUse.
    """
    from airflow.sdk import CronDataIntervalTimetable

    from lockstep.airflow.timetable import AlignedIntervalTimetable

    cron = configuration.get("lockstep.cron", "").strip()
    if not cron:
        return AlignedIntervalTimetable(
            interval_seconds(configuration.get("lockstep.interval", DEFAULT_INTERVAL))
        )
    by_cron = CronDataIntervalTimetable(cron, timezone="UTC")
    try:
        by_cron.validate()
    except Exception as error:
        raise WrongUse(
            "lockstep.cron is no cron expression",
            expected="five fields, as in '*/5 * * * *', or six with the seconds last",
            found=f"{cron!r}: {error}",
            next_step="correct it in spark-pipeline.yml and run `lockstep deploy` again",
        ) from error
    return by_cron
