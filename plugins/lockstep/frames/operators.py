"""Operators: how the functions that Connect makes of Python's operators are written in SQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum

__all__ = ["NEGATED", "OPERATORS", "PRIMARY", "TEXT", "Level", "auto_name"]


class Level(IntEnum):
    """How tightly an expression binds."""

    TEXT = 0
    OR = 1
    AND = 2
    NOT = 3
    COMPARISON = 4
    BITS = 5
    SUM = 6
    PRODUCT = 7
    UNARY = 8
    PRIMARY = 9


TEXT, PRIMARY = Level.TEXT, Level.PRIMARY
_Argument = tuple[str, Level]
_Written = tuple[str, Level]


def _within(argument: _Argument, level: Level) -> str:
    text, own = argument
    return text if own >= level else f"({text})"


def _above(level: Level) -> Level:
    return Level(level + 1)


def _chain(word: str, level: Level) -> Callable[[Sequence[_Argument]], _Written]:
    """An operator that binds to the left."""

    def write(arguments: Sequence[_Argument]) -> _Written:
        left, right = arguments
        return f"{_within(left, level)} {word} {_within(right, _above(level))}", level

    return write


def _between(word: str, level: Level) -> Callable[[Sequence[_Argument]], _Written]:
    """An operator that needs parentheses around others of its level."""

    def write(arguments: Sequence[_Argument]) -> _Written:
        left, right = (_within(one, _above(level)) for one in arguments)
        return f"{left} {word} {right}", level

    return write


def _like(word: str) -> Callable[[Sequence[_Argument]], _Written]:
    def write(arguments: Sequence[_Argument]) -> _Written:
        text, level = _between(word, Level.COMPARISON)(arguments[:2])
        escape = f" ESCAPE {arguments[2][0]}" if len(arguments) > 2 else ""
        return text + escape, level

    return write


def _behind(words: str) -> Callable[[Sequence[_Argument]], _Written]:
    def write(arguments: Sequence[_Argument]) -> _Written:
        return f"{_within(arguments[0], Level.BITS)} {words}", Level.COMPARISON

    return write


def _not(arguments: Sequence[_Argument]) -> _Written:
    return f"NOT {_within(arguments[0], Level.COMPARISON)}", Level.NOT


def _negative(arguments: Sequence[_Argument]) -> _Written:
    return f"-{_within(arguments[0], PRIMARY)}", Level.UNARY


def _listed(word: str, of_none: str) -> Callable[[Sequence[_Argument]], _Written]:
    def write(arguments: Sequence[_Argument]) -> _Written:
        if len(arguments) == 1:
            return of_none, PRIMARY
        listed = ", ".join(text for text, _ in arguments[1:])
        return f"{_within(arguments[0], Level.BITS)} {word} ({listed})", Level.COMPARISON

    return write


def _case(arguments: Sequence[_Argument]) -> _Written:
    texts = [text for text, _ in arguments]
    pairs = zip(texts[0::2], texts[1::2], strict=False)
    whens = " ".join(f"WHEN {condition} THEN {value}" for condition, value in pairs)
    otherwise = f" ELSE {texts[-1]}" if len(texts) % 2 else ""
    return f"CASE {whens}{otherwise} END", PRIMARY


OPERATORS: Mapping[str, Callable[[Sequence[_Argument]], _Written]] = {
    "or": _chain("OR", Level.OR),
    "and": _chain("AND", Level.AND),
    "not": _not,
    **{sign: _between(sign, Level.COMPARISON) for sign in ("<", ">", "<=", ">=", "<=>")},
    "==": _between("=", Level.COMPARISON),
    "like": _like("LIKE"),
    "ilike": _like("ILIKE"),
    "rlike": _like("RLIKE"),
    "in": _listed("IN", "false"),
    "!=": _between("<>", Level.COMPARISON),
    "not like": _like("NOT LIKE"),
    "not ilike": _like("NOT ILIKE"),
    "not rlike": _like("NOT RLIKE"),
    "not in": _listed("NOT IN", "true"),
    "isNull": _behind("IS NULL"),
    "isNotNull": _behind("IS NOT NULL"),
    **{sign: _between(sign, Level.BITS) for sign in ("&", "|", "^")},
    **{sign: _chain(sign, Level.SUM) for sign in ("+", "-")},
    **{sign: _chain(sign, Level.PRODUCT) for sign in ("*", "/", "%")},
    "negative": _negative,
    "when": _case,
}

NEGATED: Mapping[str, str] = {
    "==": "!=",
    "isNull": "isNotNull",
    **{name: f"not {name}" for name in ("in", "like", "ilike", "rlike")},
}
"""What `~` makes of an operator that has a negative form."""

# Functions whose call Spark writes into a column's name as it stands.
_NAMED = frozenset(
    {
        *("count", "sum", "avg", "min", "max", "first", "last", "collect_list", "collect_set"),
        *("upper", "lower", "length", "coalesce", "abs", "stddev", "variance", "median", "concat"),
    }
)


def auto_name(name: str, arguments: Sequence[str] = ()) -> str:
    """The name that Spark gives to a column without alias; '' where it is not followed here.

    Of a literal that is the literal, of a call over such and over columns the call.
    """
    if not arguments:
        text = name.rstrip("L")
        return name[1:-1] if name.startswith("'") and "\\" not in name else text * text.isdigit()
    function, _, distinct = name.partition(" ")
    if function in ("window", "session_window"):
        return function
    if not all(arguments) or function not in _NAMED:
        return ""
    return f"{function}({distinct + ' ' if distinct else ''}{', '.join(arguments)})"
