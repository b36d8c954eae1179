"""What each stage of an interval answers: values that the faces print, as text or as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lockstep.control.job import CompareResult
from lockstep.control.model import Interval

__all__ = ["Backfilled", "Committed", "Maintained", "Planned", "Published"]


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


@dataclass(frozen=True)
class Backfilled:
    """Steps that were run again and compared; `jobs` is by how many jobs."""

    pipeline: str
    first_step: int
    last_step: int
    jobs: int
    compared: CompareResult

    @property
    def text(self) -> str:
        """One line for people, and one for each view that differs."""
        rows = ", ".join(f"{view} {count:,}" for view, count in sorted(self.compared.rows.items()))
        found = "DIFFERENT" if self.compared.differences else "equal"
        lines = [
            f"steps {self.first_step}..{self.last_step} run again: {found}; rows compared: "
            f"{rows or 'none'}",
            *map(str, self.compared.differences),
        ]
        return "\n".join(lines)
