"""Time, as this machine's clock has it, and as people write it."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from lockstep.errors import WrongUse

__all__ = ["SystemClock", "read_time"]


class SystemClock:
    """The `Clock` of `control.ports` outside of tests."""

    def now(self) -> datetime:
        """UTC, cut to milliseconds: Kafka's records carry no more."""
        now = datetime.now(UTC)
        return now.replace(microsecond=now.microsecond // 1000 * 1000)

    def sleep(self, seconds: float) -> None:
        """Wait; 0 or less returns at once."""
        if seconds > 0:
            time.sleep(seconds)


def read_time(text: str, what: str) -> datetime:
    """A time as people write it; without a zone it is UTC. Raises WrongUse, which calls it `what`."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise WrongUse(
            f"{what} cannot be read",
            expected="ISO 8601, such as 2026-01-31T12:00:00Z",
            found=text,
            next_step="run the command, or trigger the run, again with such a time",
        ) from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
