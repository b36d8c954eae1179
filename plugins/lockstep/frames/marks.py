"""Places of a project's Python inside the SQL that is made from it.

While SQL is put together, an expression stands between marks that name the line it comes from. At the
end the marks are taken out, and an error at a character of the SQL finds its line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lockstep.errors import Position
from lockstep.sql.reading.syntax import SourceText

__all__ = ["MarkedText", "mark", "without_marks"]

_OPEN, _MIDDLE, _CLOSE = "\x01", "\x02", "\x03"
_MARK = re.compile(rf"{_OPEN}(\d+){_MIDDLE}|{_CLOSE}")


def mark(text: str, line: int) -> str:
    """The text, marked as what stands at a line."""
    return f"{_OPEN}{line}{_MIDDLE}{text}{_CLOSE}"


def without_marks(text: str) -> str:
    """The SQL alone."""
    return _MARK.sub("", text)


@dataclass(frozen=True)
class _Span:
    first: int
    last: int
    line: int


class MarkedText(SourceText):
    """SQL made from a Python file: positions are those of the Python, as near as they are known."""

    def __init__(self, text: str, position: Position) -> None:
        super().__init__(position.file, without_marks(text))
        self._whole = position
        self._spans = _spans(text)

    def position(self, offset: int) -> Position:
        """The line of the innermost expression around a character of the SQL."""
        around = [one for one in self._spans if one.first <= offset <= one.last]
        if not around:
            return self._whole
        return Position(self.file, min(around, key=lambda one: one.last - one.first).line)


def _spans(text: str) -> Sequence[_Span]:
    spans: list[_Span] = []
    opened: list[tuple[int, int]] = []
    removed = 0
    for found in _MARK.finditer(text):
        at = found.start() - removed
        if found.group(1):
            opened.append((at, int(found.group(1))))
        else:
            first, line = opened.pop()
            spans.append(_Span(first, at - 1, line))
        removed += len(found.group(0))
    return spans
