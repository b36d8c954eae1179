"""Shapes: what is known of a nested type before Spark is asked. Names of fields, and no types.

`struct_column.*` and the columns that inline() makes are names that only a type has. They are found in
the types that sources declare, and in the functions that make structs, arrays and maps.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

__all__ = [
    "ListShape",
    "MapShape",
    "Shape",
    "StructShape",
    "element_of",
    "field_of",
    "shape_of_type",
]


@dataclass(frozen=True)
class StructShape:
    """The fields of a struct by name, each with its own shape if it is nested and known."""

    fields: tuple[tuple[str, Shape | None], ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.fields)


@dataclass(frozen=True)
class ListShape:
    """An array of what has that shape."""

    element: Shape | None


@dataclass(frozen=True)
class MapShape:
    """A map between what has these shapes."""

    key: Shape | None
    value: Shape | None


Shape = StructShape | ListShape | MapShape


def field_of(shape: Shape | None, name: str) -> Shape | None:
    """The shape of a struct's field; of an array of structs, that of the array of the field."""
    match shape:
        case StructShape():
            found = (of for known, of in shape.fields if known.lower() == name.lower())
            return next(found, None)
        case ListShape():
            return ListShape(field_of(shape.element, name))
        case MapShape():
            return shape.value
        case _:
            return None


def element_of(shape: Shape | None) -> Shape | None:
    """The shape of what is found in an array by its place, or in a map by its key."""
    match shape:
        case ListShape():
            return shape.element
        case MapShape():
            return shape.value
        case _:
            return None


@lru_cache(maxsize=4096)
def shape_of_type(ddl: str) -> Shape | None:
    """The shape of a type in Spark's DDL, or of a list of columns; None where it is not nested."""
    reader = _Reader(_TOKEN.findall(ddl))
    if _NESTED.match(ddl):
        return reader.type()
    return StructShape(reader.fields("")) if _COLUMNS.match(ddl) else None


_TOKEN = re.compile(r"`(?:[^`]|``)+`|'(?:[^'\\]|\\.)*'|\w+|[<>(),:]")
_NESTED = re.compile(r"\s*(struct|array|map)\s*<", re.IGNORECASE)
_COLUMNS = re.compile(r"\s*(\w+|`[^`]+`)\s*(:\s*|\s)\w")


class _Reader:
    """Reads what is known to be a type, but for the types of what is not nested, which it skips."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = [*tokens, ""]
        self._at = 0

    def _next(self) -> str:
        self._at += self._at < len(self._tokens) - 1
        return self._tokens[self._at - 1]

    def _is(self, sign: str) -> bool:
        found = self._tokens[self._at] == sign
        self._at += found and sign != ""
        return found

    def type(self) -> Shape | None:
        name = self._next().lower()
        if name not in ("struct", "array", "map") or not self._is("<"):
            return None
        if name == "struct":
            return StructShape(self.fields(">"))
        first = self.type()
        self._skip()
        if name == "array":
            self._is(">")
            return ListShape(first)
        self._is(",")
        second = self.type()
        self._skip()
        self._is(">")
        return MapShape(first, second)

    def fields(self, end: str) -> tuple[tuple[str, Shape | None], ...]:
        """Fields up to a sign: `name: type NOT NULL COMMENT 'text'`."""
        found = list[tuple[str, Shape | None]]()
        while not self._is(end) and self._tokens[self._at]:
            word = self._next()
            name = word[1:-1].replace("``", "`") if word.startswith("`") else word
            self._is(":")
            found.append((name, self.type()))
            self._skip()
            self._is(",")
        return tuple(found)

    def _skip(self) -> None:
        """To the sign that ends the field or the type."""
        depth = 0
        while (token := self._tokens[self._at]) and (depth or token not in (",", ">")):
            depth += (token == "(") - (token == ")")
            self._at += 1
