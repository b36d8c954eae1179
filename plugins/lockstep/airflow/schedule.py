"""From a project's configuration to a timetable: `lockstep.interval`, or `lockstep.cron`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lockstep.adapters.cron import check_cron
from lockstep.control.limits import cron_of, run_seconds

if TYPE_CHECKING:
    from airflow.sdk import CronDataIntervalTimetable

    from lockstep.airflow.timetable import AlignedIntervalTimetable

__all__ = ["timetable"]


def timetable(
    configuration: Mapping[str, str],
) -> AlignedIntervalTimetable | CronDataIntervalTimetable:
    """The data intervals of a pipeline; `lockstep.cron` wins over `lockstep.interval`.

    A plain cron string would give runs without a data interval. Raises WrongUse.
    """
    from airflow.sdk import CronDataIntervalTimetable

    from lockstep.airflow.timetable import AlignedIntervalTimetable

    seconds = run_seconds(configuration)
    if seconds is not None:
        return AlignedIntervalTimetable(seconds)
    check_cron(configuration)
    return CronDataIntervalTimetable(cron_of(configuration), timezone="UTC")
