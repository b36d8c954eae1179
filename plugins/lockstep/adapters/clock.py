"""Time, as this machine's clock has it."""

from __future__ import annotations

import time
from datetime import UTC, datetime

__all__ = ["SystemClock"]


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
