"""`lockstep.cron` as the library reads it that Airflow's timetables are made with."""

from __future__ import annotations

from collections.abc import Mapping

from lockstep.control.limits import cron_of
from lockstep.errors import WrongUse

__all__ = ["check_cron"]


def check_cron(configuration: Mapping[str, str]) -> None:
    """Raises WrongUse where `lockstep.cron` is said and is no cron expression."""
    cron = cron_of(configuration)
    if not cron:
        return
    from croniter import croniter  # type: ignore[import-untyped]

    try:
        croniter(cron)
    except (ValueError, KeyError) as error:
        raise WrongUse(
            "lockstep.cron is no cron expression",
            expected="five fields, as in '*/5 * * * *', or six with the seconds last",
            found=f"{cron!r}: {error}",
            next_step="correct it in spark-pipeline.yml and run `lockstep deploy` again",
        ) from error
