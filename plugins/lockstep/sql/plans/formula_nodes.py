"""What expressions consist of, as trees (`formulas`)."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from decimal import Decimal

__all__ = [
    "Arithmetic",
    "Call",
    "Case",
    "Column",
    "Comparison",
    "Constant",
    "Field",
    "Formula",
    "In",
    "IsNull",
    "Like",
    "Logic",
    "Negation",
    "Prefix",
    "Remainder",
    "Shift",
    "parts",
]


@dataclass(frozen=True)
class Column:
    """The value of a column."""

    name: str


@dataclass(frozen=True)
class Constant:
    """A whole number is an INT, or `is_long`; with a point it is a DECIMAL of as many digits as are
    written. Beside a decimal a whole number has as many as are written, too, but where a cast says that
    it is an INT. None is a null of no type, and stands alone."""

    value: bool | int | Decimal | str | datetime.date | None
    is_cast: bool = False
    is_long: bool = False


@dataclass(frozen=True)
class Arithmetic:
    """`sign` is one of `+ - * /`."""

    sign: str
    left: Formula
    right: Formula


@dataclass(frozen=True)
class Comparison:
    """`sign` is one of `= <> < <= > >=`."""

    sign: str
    left: Formula
    right: Formula


@dataclass(frozen=True)
class In:
    """Whether it is one of those values: true, false, or null."""

    of: Formula
    listed: tuple[Formula, ...]


@dataclass(frozen=True)
class IsNull:
    """Whether there is no value; never null itself."""

    of: Formula


@dataclass(frozen=True)
class Like:
    """Whether a text is as the pattern says: `%` stands for any text, and `_` for one character."""

    text: Formula
    pattern: str


@dataclass(frozen=True)
class Logic:
    """`sign` is AND or OR, of three values."""

    sign: str
    left: Formula
    right: Formula


@dataclass(frozen=True)
class Negation:
    """NOT, of three values."""

    of: Formula


@dataclass(frozen=True)
class Case:
    """The value behind the first condition that is true; else `default`, or null without one."""

    branches: tuple[tuple[Formula, Formula], ...]
    default: Formula | None


@dataclass(frozen=True)
class Prefix:
    """The first so many characters of a text."""

    of: Formula
    length: int


@dataclass(frozen=True)
class Field:
    """A field of a column."""

    column: str
    name: str


@dataclass(frozen=True)
class Remainder:
    """Of a whole number, by one that is greater than 0."""

    of: Formula
    by: int


@dataclass(frozen=True)
class Shift:
    """A time so much later, or earlier."""

    of: Formula
    microseconds: int


@dataclass(frozen=True)
class Call:
    """A function of a value, with what is written besides, or of several: its name in lower case."""

    function: str
    of: Formula
    given: tuple[str | int, ...] = ()
    others: tuple[Formula, ...] = ()


Formula = (
    Column
    | Field
    | Remainder
    | Shift
    | Call
    | Constant
    | Arithmetic
    | Comparison
    | In
    | IsNull
    | Like
    | Logic
    | Negation
    | Case
    | Prefix
)


def parts(tree: Formula) -> Iterator[Formula]:
    """The tree, and all trees in it."""
    yield tree
    below = [getattr(tree, field.name) for field in fields(tree)]
    while below:
        one = below.pop()
        if isinstance(one, tuple):
            below.extend(one)
        elif is_dataclass(one):
            yield from parts(one)  # type: ignore[arg-type]
