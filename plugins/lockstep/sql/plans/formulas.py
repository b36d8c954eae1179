"""Expressions as trees, where they are simple: what a process without Spark can evaluate as Spark does.

Columns and fields of them, constants, `+ - * /`, remainders, times so much later, comparisons, BETWEEN,
IN, LIKE, IS NULL, AND, OR, NOT, CASE, IF, CAST, `||`, and some functions. Which types these are of, and
so what they mean, only rows can tell.
"""

from __future__ import annotations

import calendar
import datetime
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from lockstep.errors import ProjectError
from lockstep.sql.plans.expressions import parsed
from lockstep.sql.plans.formula_nodes import (
    Arithmetic,
    Call,
    Case,
    Column,
    Comparison,
    Constant,
    Field,
    Formula,
    In,
    IsNull,
    Like,
    Logic,
    Negation,
    Prefix,
    Remainder,
    Shift,
)
from lockstep.sql.plans.simple_functions import OF_SEVERAL, is_simple
from lockstep.sql.plans.terms import Expression
from lockstep.sql.reading.comparisons import SIGNS, is_chained
from lockstep.sql.reading.intervals import interval_microseconds
from lockstep.sql.reading.trees import function_name, without_parentheses

__all__ = ["formula"]


class _Other(Exception):
    """It is not so simple."""


@lru_cache(maxsize=4096)
def formula(expression: Expression) -> Formula | None:
    """The expression as a tree; None where it is of another kind."""
    if "\\" in expression.text or not _has_plain_words(expression.text):
        return None  # how Spark reads the first in a text or a pattern depends on its settings
    try:
        source, node = parsed(expression)
        if isinstance(node, exp.Null):
            return Constant(None)
        return None if _has_unary_plus(source.tokens) else _made(node)
    except (_Other, ProjectError, RecursionError):
        return None


_UNITS = "microsecond|millisecond|second|minute|hour|day|month|year"


def _has_plain_words(text: str) -> bool:
    """Whether intervals and tests for null are written in the one way that is understood here."""
    return all(
        len(re.findall(word, text, _WORDS)) == len(re.findall(whole, text, _WORDS))
        for word, whole in (
            (r"\binterval\b", rf"\binterval\s+('[0-9]{{1,4}}'|[0-9]{{1,4}})\s+({_UNITS})s?\b"),
            (r"\bis\b", r"\bis\s+(not\s+)?null\b"),
        )
    )


def _has_unary_plus(tokens: Sequence[Token]) -> bool:
    """Whether a plus is a sign, which the tree does not say: Spark makes numbers of what follows it."""
    types = [None, *(token.token_type for token in tokens)]
    pairs = pairwise(types)
    return any(one is TokenType.PLUS and before not in _ENDS for before, one in pairs)


def _operand(node: Any) -> Formula:
    """What is compared."""
    if is_chained(node):
        raise _Other
    return _made(node)


def _made(node: Any) -> Formula:
    node = without_parentheses(node)
    make = _KINDS.get(type(node))
    if make is None:
        raise _Other
    return make(node)


def _parts(node: Any, *names: str) -> list[Any]:
    """What the node has under these names. Raises _Other where there is more."""
    if any(value for name, value in node.args.items() if name not in names):
        raise _Other
    return [node.args.get(name) for name in names]


def _column(node: Any) -> Formula:
    name, column = _parts(node, "this", "table")
    if not isinstance(name, exp.Identifier) or not (column or name).args.get("quoted"):
        raise _Other
    return Field(column.name, name.name) if column else Column(name.name)


def _literal(node: Any) -> Constant:
    text, is_string = _parts(node, "this", "is_string")
    if is_string:
        return Constant(str(text))
    if re.fullmatch(r"[0-9]{1,9}", text):
        return Constant(int(text))
    if re.fullmatch(r"[0-9]*\.[0-9]+", text) and len(text) <= _DIGITS:
        return Constant(Decimal(text))
    raise _Other


def _boolean(node: Any) -> Formula:
    [value] = _parts(node, "this")
    return Constant(bool(value))


def _date(node: Any) -> Formula:
    """DATE '2026-01-31', which says itself what it is."""
    text, kind = (node.args.get(name) for name in ("this", "to"))
    is_date = isinstance(kind, exp.DataType) and kind.is_type(exp.DataType.Type.DATE)
    if not is_date or not isinstance(text, exp.Literal) or not text.is_string:
        raise _Other
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text.name):
        raise _Other
    try:
        return Constant(datetime.date.fromisoformat(text.name))
    except ValueError as error:
        raise _Other from error


def _cast(node: Any) -> Formula:
    """CAST(7 AS INT): of a whole number, to what it is; and of what a row has, to some types."""
    of, kind, is_safe = (node.args.get(name) for name in ("this", "to", "safe"))
    to = None if is_safe or not isinstance(kind, exp.DataType) else _CASTS.get(kind.this)
    if to is None or any(v for name, v in kind.args.items() if name not in ("this", "nested")):
        raise _Other
    of = without_parentheses(of)
    is_negative = isinstance(of, exp.Neg)
    digits = of.this if is_negative else of
    if not isinstance(digits, exp.Literal):
        made = _made(of)
        if not isinstance(made, Constant):
            return Call("cast", made, (to,))
        if type(made.value) is not int or to != "BIGINT":
            raise _Other
        return Constant(made.value, is_long=True)
    value = _literal(digits).value
    if type(value) is not int or to not in ("INT", "BIGINT"):
        raise _Other
    return Constant(-value if is_negative else value, is_cast=to == "INT", is_long=to == "BIGINT")


def _arithmetic(node: Any) -> Formula:
    left, right = _parts(node, "this", "expression")
    sign = _SIGNS[type(node)]
    if isinstance(without_parentheses(right), exp.Interval) and sign != "*":
        moved, interval = _made(left), without_parentheses(right)
        if isinstance(moved, Constant):
            return _moved(moved, sign, interval)
        return _shifted(moved, sign, interval)
    return Arithmetic(sign, _made(left), _made(right))


def _division(node: Any) -> Formula:
    """The parser also says how other systems divide."""
    return Arithmetic("/", _made(node.this), _made(node.expression))


def _remainder(node: Any) -> Formula:
    left, right = _parts(node, "this", "expression")
    by = _literal(right).value if isinstance(right, exp.Literal) else None
    if type(by) is not int or not by:
        raise _Other
    return Remainder(_made(left), by)


def _shifted(moved: Formula, sign: str, interval: Any) -> Formula:
    """A time, so many seconds or days later, or earlier: days have 24 hours, as the time zone is UTC."""
    number, unit = _parts(interval, "this", "unit")
    if not isinstance(number, exp.Literal):
        raise _Other
    try:
        size = interval_microseconds(f"{number.name} {unit}")
    except ValueError as error:
        raise _Other from error  # a month has no fixed length
    return Shift(moved, size if sign == "+" else -size)


def _moved(moved: Formula, sign: str, interval: Any) -> Formula:
    """A date, so many days or months or years later, or earlier."""
    number, unit = _parts(interval, "this", "unit")
    name = str(unit).upper().rstrip("S")
    date = moved.value if isinstance(moved, Constant) else None
    if not isinstance(date, datetime.date) or not isinstance(number, exp.Literal):
        raise _Other
    if name != "DAY" and name not in _MONTHS:
        raise _Other
    count = int(number.name) * (1 if sign == "+" else -1)
    try:
        if name == "DAY":
            return Constant(date + datetime.timedelta(days=count))
        return Constant(_months_later(date, count * _MONTHS[name]))
    except (OverflowError, ValueError) as error:
        raise _Other from error


def _months_later(date: datetime.date, months: int) -> datetime.date:
    """The same day, or the last one of a month that is shorter."""
    year, month = divmod(date.year * 12 + date.month - 1 + months, 12)
    day = min(date.day, calendar.monthrange(year, month + 1)[1])
    return datetime.date(year, month + 1, day)


def _negative(node: Any) -> Formula:
    """A number that is less than 0; of anything else the negative has a type of its own."""
    [literal] = _parts(node, "this")
    if isinstance(literal, exp.TryCast):
        negated = literal.copy()
        negated.set("this", exp.Neg(this=literal.this.copy()))
        return _cast(negated)
    value = _literal(literal).value if isinstance(literal, exp.Literal) else None
    if isinstance(value, Decimal):
        return Constant(value.copy_negate())
    if not isinstance(value, int):
        raise _Other
    return Constant(-value)


def _comparison(node: Any) -> Formula:
    left, right = _parts(node, "this", "expression")
    return Comparison(_SIGNS[type(node)], _operand(left), _operand(right))


def _between(node: Any) -> Formula:
    value, low, high = map(_operand, _parts(node, "this", "low", "high"))
    if isinstance(value, Constant):
        raise _Other  # it has another type than where it is compared with each
    return Logic("AND", Comparison(">=", value, low), Comparison("<=", value, high))


def _in(node: Any) -> Formula:
    value, listed = _parts(node, "this", "expressions")
    if not listed:
        raise _Other
    return In(_operand(value), tuple(map(_operand, listed)))


def _is(node: Any) -> Formula:
    value, what = _parts(node, "this", "expression")
    if not isinstance(what, exp.Null):
        raise _Other
    return IsNull(_operand(value))


def _like(node: Any) -> Formula:
    text, pattern, is_negated = _parts(node, "this", "expression", "negate")
    if not isinstance(pattern, exp.Literal) or not pattern.is_string:
        raise _Other
    if any(ord(character) > _WIDEST for character in pattern.name):
        raise _Other  # they count twice for Spark, where it compares lengths
    found = Like(_operand(text), pattern.name)
    return Negation(found) if is_negated else found


def _logic(node: Any) -> Formula:
    left, right = _parts(node, "this", "expression")
    return Logic(_SIGNS[type(node)], _made(left), _made(right))


def _not(node: Any) -> Formula:
    return Negation(_made(*_parts(node, "this")))


def _case(node: Any) -> Formula:
    of, branches, default = _parts(node, "this", "ifs", "default")
    made = []
    for one in branches:
        condition, value = _parts(one, "this", "true")
        if of is None:
            condition = _made(condition)
        else:
            condition = Comparison("=", _operand(of), _operand(condition))
        value = _made(value)
        if isinstance(condition, Constant):
            raise _Other  # Spark looks at no branch behind it
        made.append((condition, value))
    has_default = default is not None and not isinstance(default, exp.Null)
    return Case(tuple(made), _made(default) if has_default else None)


def _if(node: Any) -> Formula:
    condition, value, default = _parts(node, "this", "true", "false")
    if default is None:
        raise _Other
    return _case(exp.Case(ifs=[exp.If(this=condition, true=value)], default=default))


def _trim(node: Any) -> Formula:
    return Call("trim", _made(*_parts(node, "this")))


def _joined(node: Any) -> Formula:
    """The parser also says how other systems take a null. It reads `a || b + c` from the right, Spark
    from the left; there is none in which both are texts."""
    return Call("concat", _made(node.this), (), (_made(node.expression),))


def _call(node: Any) -> Formula:
    name, [of, *given] = function_name(node), node.expressions or [None]
    if of is None:
        raise _Other
    if name in OF_SEVERAL and (name in ("coalesce", "concat") or len(given) == 1):
        return Call(OF_SEVERAL[name], _made(of), (), tuple(map(_made, given)))
    if name == "date_trunc":
        # What is written stands first.
        of, given = (given or [None])[0], [of, *given[1:]]
    if of is None or not all(isinstance(one, exp.Literal) for one in given):
        raise _Other
    values = tuple(_literal(one).value for one in given)
    if not is_simple(name, values):
        raise _Other
    return Call(name, _made(of), values)  # type: ignore[arg-type]


def _prefix(node: Any) -> Formula:
    text, start, length = _parts(node, "this", "start", "length")
    first, size = (isinstance(one, exp.Literal) and _literal(one).value for one in (start, length))
    if type(first) is not int or first != 1 or type(size) is not int:
        raise _Other
    return Prefix(_made(text), size)


_CASTS: Mapping[Any, str] = MappingProxyType(
    {
        exp.DataType.Type.BIGINT: "BIGINT",
        exp.DataType.Type.DATE: "DATE",
        exp.DataType.Type.DOUBLE: "DOUBLE",
        exp.DataType.Type.INT: "INT",
        exp.DataType.Type.TEXT: "STRING",
    }
)
"""Types to which values are cast."""

_WORDS = re.IGNORECASE | re.ASCII

_WIDEST = 0xFFFF
"""The last character that is one unit of Java's texts."""

_ENDS = (
    TokenType.BIGINT,
    TokenType.IDENTIFIER,
    TokenType.NUMBER,
    TokenType.R_PAREN,
    TokenType.STRING,
    TokenType.VAR,
)
"""What stands before a sign that adds; the first of them is the L of 7L."""

_DIGITS = 30
"""Of constants, with the point."""

_MONTHS: Mapping[str, int] = MappingProxyType({"MONTH": 1, "YEAR": 12})

_SIGNS: Mapping[type[Any], str] = MappingProxyType(
    {
        exp.Add: "+",
        exp.Sub: "-",
        exp.Mul: "*",
        exp.EQ: "=",
        exp.NEQ: "<>",
        **SIGNS,
        exp.And: "AND",
        exp.Or: "OR",
    }
)

_KINDS: Mapping[type[Any], Callable[[Any], Formula]] = MappingProxyType(
    {
        exp.Column: _column,
        exp.Div: _division,
        exp.Literal: _literal,
        exp.Boolean: _boolean,
        exp.Cast: _date,
        exp.TryCast: _cast,  # as the parser has Spark's CAST
        **dict.fromkeys((exp.Add, exp.Sub, exp.Mul), _arithmetic),
        exp.Mod: _remainder,
        exp.Neg: _negative,
        **dict.fromkeys((exp.EQ, exp.NEQ, *SIGNS), _comparison),
        exp.Between: _between,
        exp.In: _in,
        exp.Is: _is,
        exp.Like: _like,
        exp.And: _logic,
        exp.Or: _logic,
        exp.Not: _not,
        exp.Case: _case,
        exp.If: _if,
        exp.DPipe: _joined,
        exp.Trim: _trim,
        exp.Anonymous: _call,
        exp.Substring: _prefix,
    }
)
