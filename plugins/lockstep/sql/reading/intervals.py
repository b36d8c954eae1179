"""Interval texts as Spark's `window` takes them, in one spelling."""

from __future__ import annotations

import re

__all__ = ["interval_microseconds", "interval_text"]

_UNITS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_PART = re.compile(r"\s*(-?\d+)\s*([a-z]+?)s?(?=\s|\d|$)")


def interval_microseconds(text: str) -> int:
    """The length of '10 seconds' or 'interval 1 hour 30 minutes'.

    Raises ValueError on anything else; months and years have no fixed length.
    """
    rest = re.sub(r"^\s*interval\b", "", text.strip().lower())
    total, at = 0, 0
    while at < len(rest.rstrip()):
        match = _PART.match(rest, at)
        if match is None or match.group(2) not in _UNITS:
            raise ValueError(text)
        total += int(match.group(1)) * _UNITS[match.group(2)]
        at = match.end()
    if at == 0:
        raise ValueError(text)
    return total


def interval_text(microseconds: int) -> str:
    """The same length in the largest unit that divides it: '90 seconds', '1 hour'."""
    name, size = next(
        (name, size) for name, size in reversed(_UNITS.items()) if microseconds % size == 0
    )
    count = microseconds // size
    return f"{count} {name}" if count == 1 else f"{count} {name}s"
