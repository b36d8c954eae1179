"""What the translation of one view carries along: names that are taken, places, subqueries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from lockstep.errors import NotSupported, Position, ProjectError
from lockstep.sql.names import fresh_name

__all__ = ["Context", "Table"]


@dataclass(frozen=True)
class Table:
    """A source or view: its qualified name in lower case, and its columns with types if known."""

    name: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]


@dataclass
class Context:
    """The translation of one view, whose function stands at `where`.

    `tables` gives a source or a view by its dotted name, None where there is none, `queries` the
    text of a query in SQL, its variables filled in, and its columns. `lines` are the lines at which
    DataFrames were made, by plan id. To `functions` are added the declarations, by name, of the Python
    functions that the view calls.
    """

    where: Position
    paths: frozenset[str]
    tables: Callable[[Sequence[str]], Table | None]
    known: Sequence[str] = ()
    lines: Mapping[int, int] = field(default_factory=dict)
    queries: Callable[[str, Position], tuple[str, Sequence[str]]] = lambda text, _at: (text, ())
    references: dict[int, Any] = field(default_factory=dict)
    subquery: Callable[[int, Any], str] = lambda _plan_id, _outer: ""
    functions: dict[str, str] = field(default_factory=dict)
    _taken: list[str] = field(default_factory=list)
    _lines: list[int] = field(default_factory=list)

    def alias(self, wanted: str) -> str:
        """A name for a relation of FROM that no other one has."""
        found = fresh_name(wanted.lower(), self._taken)
        self._taken.append(found)
        return found

    # ── places ──────────────────────────────────────────────────────────────────────────────────

    @property
    def position(self) -> Position:
        """Where the part stands that is translated now."""
        return Position(self.where.file, self._lines[-1]) if self._lines else self.where

    def line_of(self, expression: Any) -> int | None:
        """The line of the view's file that made an expression, None if that is not known."""
        path, _, line = expression.common.origin.python_origin.call_site.rpartition(":")
        return int(line) if path in self.paths and line.isdigit() else None

    @contextmanager
    def at(self, line: int | None) -> Iterator[None]:
        """Say of errors inside that they are at this line."""
        if line is None:
            yield
            return
        self._lines.append(line)
        try:
            yield
        finally:
            self._lines.pop()

    # ── errors ──────────────────────────────────────────────────────────────────────────────────

    def error(
        self, message: str, *, expected: str = "", found: str = "", next_step: str = ""
    ) -> ProjectError:
        """What is wrong with the DataFrame."""
        return ProjectError(
            message, position=self.position, expected=expected, found=found, next_step=next_step
        )

    def refuse(self, what: str, instead: str) -> NotSupported:
        """What Spark can do and a view can not."""
        return NotSupported(
            f"{what} is not supported in a view that is kept up to date",
            position=self.position,
            next_step=instead,
        )
