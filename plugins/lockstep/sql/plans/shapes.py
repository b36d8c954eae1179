"""Shapes: what is known of a nested type before Spark is asked. Names of fields, and no types.

`struct_column.*` and the columns that inline() makes are names that only a type has. They are found in
the types that sources declare, and in the functions that make structs, arrays and maps.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlglot import exp
from sqlglot.errors import SqlglotError

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
    if "<" not in ddl and " " not in ddl:
        return None
    try:
        return _of_type(exp.DataType.build(ddl, dialect="spark"))
    except SqlglotError:
        pass
    try:
        return _of_type(exp.DataType.build(f"STRUCT<{ddl}>", dialect="spark"))
    except SqlglotError:
        return None


def _of_type(node: Any) -> Shape | None:
    if not isinstance(node, exp.DataType):
        return None
    inner = node.expressions
    match node.this:
        case exp.DataType.Type.STRUCT:
            fields = ((one.name, _of_type(one.args.get("kind"))) for one in inner)
            return StructShape(tuple(fields))
        case exp.DataType.Type.ARRAY if inner:
            return ListShape(_of_type(inner[0]))
        case exp.DataType.Type.MAP if len(inner) == 2:
            return MapShape(_of_type(inner[0]), _of_type(inner[1]))
        case _:
            return None
