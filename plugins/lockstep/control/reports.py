"""What each stage of an interval answers: values that the faces print, as text or as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lockstep.control.model import Interval

__all__ = ["Committed", "Maintained", "Planned", "Published"]


@dataclass(frozen=True)
class Planned:
    """`interval` is the recorded division to run next, None where there is nothing to do.

    `behind`: more input is there than this interval takes, so plan again after it.
    """

    interval: Interval | None
    behind: bool


@dataclass(frozen=True)
class Committed:
    """A version that is recorded. `changes` counts outbox rows by view, `errors` bad records by
    source, `seconds` times by part. `landed` is False where the version had been recorded before."""

    version: int
    attempt: str
    first_step: int
    last_step: int
    records: int
    changes: Mapping[str, int] = field(hash=False)
    errors: Mapping[str, int] = field(hash=False)
    seconds: Mapping[str, float] = field(hash=False)
    landed: bool = True


@dataclass(frozen=True)
class Published:
    """`markers`: the last step that each sink itself says it holds; `rows` sent by this call."""

    markers: Mapping[str, int] = field(hash=False)
    rows: Mapping[str, int] = field(hash=False)
    seconds: Mapping[str, float] = field(hash=False)


@dataclass(frozen=True)
class Maintained:
    """What maintenance did, in counts by kind ('branches dropped', 'versions trimmed', …)."""

    done: Mapping[str, int] = field(hash=False)
