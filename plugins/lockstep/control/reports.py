"""What each stage of an interval answers: values that the faces print, as text or as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from lockstep.control.job import CompareResult
from lockstep.control.model import Interval

__all__ = ["Backfilled", "Committed", "Maintained", "Planned", "Published"]

_Number = TypeVar("_Number", int, float)


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

    @staticmethod
    def joined(pieces: Sequence[Committed]) -> Committed | None:
        """Of versions that follow each other, as one: the last of them, with what all hold; None for
        none."""
        if not pieces:
            return None

        def summed(counts: Iterable[Mapping[str, _Number]]) -> Mapping[str, _Number]:
            total: dict[str, _Number] = {}
            for count in counts:
                for name, one in count.items():
                    total[name] = total[name] + one if name in total else one
            return total

        return replace(
            pieces[-1],
            first_step=pieces[0].first_step,
            records=sum(piece.records for piece in pieces),
            changes=summed(piece.changes for piece in pieces),
            errors=summed(piece.errors for piece in pieces),
            seconds=summed(piece.seconds for piece in pieces),
        )


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
