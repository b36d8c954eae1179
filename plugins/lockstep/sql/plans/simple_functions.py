"""The functions that formulas have (`formulas`), and with what written besides they are simple."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from lockstep.sql.reading.intervals import interval_microseconds

__all__ = ["FORMATS", "OF_SEVERAL", "PARTS", "UNITS", "is_simple", "with_named_group"]

UNITS: Mapping[str, int] = MappingProxyType(
    {
        unit: interval_microseconds(f"1 {unit}")
        for unit in ("microsecond", "millisecond", "second", "minute", "hour", "day")
    }
)
"""The units of times that are as long as each other, in microseconds."""

FORMATS: Mapping[str, tuple[str, int]] = MappingProxyType(
    {
        "yyyy": ("%Y", UNITS["day"]),
        "MM": ("%m", UNITS["day"]),
        "dd": ("%d", UNITS["day"]),
        "HH": ("%H", UNITS["hour"]),
        "mm": ("%M", UNITS["minute"]),
        "ss": ("%S", UNITS["second"]),
    }
)
"""Parts of times as Spark names them, as C does, and for how many microseconds they are the same."""

PARTS = re.compile(r"([A-Za-z])\1*")
"""Of a format: letters that are the same."""

OF_SEVERAL: Mapping[str, str] = MappingProxyType(
    {**dict.fromkeys(("coalesce", "nvl", "ifnull"), "coalesce"), "concat": "concat"}
)
"""Functions of as many values as there are, and what they are here."""

_ONE = r"""(?:[A-Za-z0-9 _=/:;,<>@!#%&'"~`-]|\[\^?(?:[a-z]-[a-z]|[A-Z]-[A-Z]|[0-9]-[0-9]|"""
_ONE += r"""[A-Za-z0-9 _=/:;,.<>@!?#%&'"~`+*()|{}$])+\])[+*?]?"""
"""A character, or one of some or but some, once or some times: the same to Java and to RE2
(https://github.com/google/re2/wiki/Syntax)."""

_WITH_GROUP = re.compile(rf"((?:{_ONE})*)\(((?:{_ONE})+)\)((?:{_ONE})*)")


class _Written(NamedTuple):
    """Of what kinds what is written besides is, and whether it is simple."""

    kinds: tuple[type, ...] = ()
    is_plain: Callable[..., bool] = lambda *_: True


def is_simple(name: str, written: Sequence[object]) -> bool:
    """Whether a function of one value is one, with this besides."""
    known = _FUNCTIONS.get(name)
    return (
        known is not None and tuple(map(type, written)) == known.kinds and known.is_plain(*written)
    )


def with_named_group(pattern: str) -> str | None:
    """A pattern whose one group has the name `part`; None for one that may mean something else to Java
    than to RE2."""
    found = None if "&&" in pattern else _WITH_GROUP.fullmatch(pattern)
    return None if found is None else "{}(?P<part>{}){}".format(*found.groups())


def _is_plain_format(text: str) -> bool:
    """Whether each letter is of a part that has so many digits, whatever the time."""
    letters = PARTS.finditer(text)
    return (
        text.isascii()
        and not set(text) & set("'[]{}#")
        and all(one.group() in FORMATS for one in letters)
    )


_FUNCTIONS: Mapping[str, _Written] = MappingProxyType(
    {
        **dict.fromkeys(
            ("abs", "day", "dayofmonth", "hour", "length", "lower", "month", "upper", "year"),
            _Written(),
        ),
        "date_format": _Written((str,), _is_plain_format),
        "date_trunc": _Written((str,), lambda unit: unit.lower() in UNITS),
        "regexp_extract": _Written(
            (str, int), lambda pattern, group: group == 1 and with_named_group(pattern) is not None
        ),
        "replace": _Written((str, str), lambda old, _: bool(old)),
        "split_part": _Written((str, int), lambda between, place: bool(between and place)),
    }
)
