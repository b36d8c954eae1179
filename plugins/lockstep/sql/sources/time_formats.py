"""Patterns of dates and timestamps, as Spark writes them: those of which each text has one reading.

Letters stand for digits of a fixed number, so that no text depends on a locale or on today; what
is between them is literal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["READABLE", "TimePart", "read_time_format", "time_regex"]

READABLE = "yyyy, MM, dd, HH, mm, ss, S to SSSSSS, X, XX or XXX, and literals such as 'T' in quotes"
_PART = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']")
_LETTERS = {"yyyy": 4, "MM": 2, "dd": 2, "HH": 2, "mm": 2, "ss": 2}
_ZONES = {
    "X": "Z|[+-][0-9]{2}(?:[0-9]{2})?",
    "XX": "Z|[+-][0-9]{4}",
    "XXX": "Z|[+-][0-9]{2}:[0-9]{2}",
}


@dataclass(frozen=True)
class TimePart:
    """A run of letters (`letters`, and the regular expression of what stands for it), or a literal."""

    letters: str
    regex: str


def read_time_format(text: str) -> tuple[TimePart, ...]:
    """The parts of a pattern. Raises ValueError, with the part that can't be read, or that a date
    lacks."""
    parts: list[TimePart] = []
    at = 0
    while at < len(text):
        match = _PART.match(text, at)
        if match is None:
            raise ValueError(text[at:])
        parts.append(_part(match))
        at = match.end()
    letters = [part.letters for part in parts if part.letters]
    for needed in ("yyyy", "MM", "dd"):
        if letters.count(needed) != 1:
            raise ValueError(f"{needed} {letters.count(needed)} times")
    kinds = [letter[0] for letter in letters]
    for kind in kinds:
        if kinds.count(kind) > 1:
            raise ValueError(f"{kind} twice")
    return tuple(parts)


def _part(match: re.Match[str]) -> TimePart:
    text = match[0]
    if match[2] is None:
        literal = "'" if text == "''" else (match[1] or text).replace("''", "'")
        return TimePart("", re.escape(literal))
    if text in _LETTERS:
        return TimePart(text, f"[0-9]{{{_LETTERS[text]}}}")
    if set(text) == {"S"} and len(text) <= 6:
        return TimePart(text, f"[0-9]{{{len(text)}}}")
    if text in _ZONES:
        return TimePart(text, _ZONES[text])
    raise ValueError(text)


def time_regex(parts: tuple[TimePart, ...]) -> str:
    """What texts of the pattern look like."""
    return "".join(f"(?:{part.regex})" for part in parts)
