"""How a change says that it cannot happen, and the checks that many changes share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

__all__ = ["Precondition", "check_moment", "check_sorted", "check_unique", "is_moment", "require"]


class Precondition(Exception):
    """A precondition does not hold. Private to control and the stores, which answer `Rejected`.

    `reason` is a sentence for people: what was expected, and what was found.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


def require(holds: bool, reason: Callable[[], str]) -> None:
    """`reason` is called only where it is needed: most checks hold, and sentences cost time."""
    if not holds:
        raise Precondition(reason())


def is_moment(moment: datetime) -> bool:
    """Stores keep UTC milliseconds: anything finer would be read back as another value."""
    return moment.utcoffset() == timedelta(0) and moment.microsecond % 1000 == 0


def check_moment(what: str, moment: datetime) -> None:
    """Raises where it is none; see `is_moment`."""
    require(
        is_moment(moment),
        lambda: f"{what} must be UTC and cut to milliseconds, not {moment.isoformat()}",
    )


def check_unique(what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise Precondition(f"{what} {name} is there twice")
        seen.add(name)


def check_sorted(what: str, keys: Sequence[str] | Sequence[int]) -> None:
    """One order for equal content, so that a division compares equal however it was made."""
    require(
        all(a < b for a, b in pairwise(keys)),  # type: ignore[operator]
        lambda: f"{what} must be sorted, each once, not {', '.join(map(str, keys))}",
    )
