"""What can fail in an expression, and the expression written so that it does not.

In ANSI mode, Spark ends a job for one row that can't be divided, cast or added up. Most of what fails
so has a form that gives null instead: `try_divide(a, b)` for `a / b`. Where that is null and its
arguments are not, the part has failed. From this a guard makes two expressions of one: its value with
all such forms in it, and the words of the part that fails, null for a row in which none does. What
Spark would not evaluate (the other branches of a CASE, what follows a false in an AND, what is added to
a null) does not fail; of a function, all arguments are looked at.

What has no such form is left as it is, and goes on ending the job: `array[i]`, `raise_error`, a text
that is compared with a number, whatever stands inside a lambda.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlglot import exp
from sqlglot.tokens import TokenType

from lockstep.sql.plans.expressions import from_text, parsed
from lockstep.sql.plans.terms import Expression, text_literal
from lockstep.sql.reading.syntax import SourceText
from lockstep.sql.reading.trees import children, span_of, without_parentheses

__all__ = ["Guard", "guard"]


@dataclass(frozen=True)
class Guard:
    """`safe` is the expression's value in a row in which nothing fails; `failure` is the words of the
    first part that fails in a row, null where none does. Neither ends a job."""

    safe: Expression
    failure: Expression


@lru_cache(maxsize=4096)
def guard(expression: Expression) -> Guard | None:
    """The guard of an expression; None where nothing in it has a form that does not fail."""
    source, node = parsed(expression)
    guarding = _Guarding(source)
    failure = guarding.failure(node)
    if failure is None:
        return None
    return Guard(from_text(guarding.safe(node)), from_text(failure))


_OPERATORS: Mapping[type[Any], str] = {
    exp.Add: "try_add",
    exp.Sub: "try_subtract",
    exp.Mul: "try_multiply",
    exp.Div: "try_divide",
    exp.Mod: "try_mod",
}
_DIVISIONS = (exp.Div, exp.Mod, exp.IntDiv)
_IN_ORDER = (
    *(exp.Add, exp.Sub, exp.Mul, *_DIVISIONS),
    *(exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE),
)
_CALLS = {
    name: f"try_{name}"
    for name in (
        *("mod", "to_date", "to_timestamp", "to_time", "to_number", "to_binary"),
        *("make_timestamp", "make_timestamp_ltz", "make_timestamp_ntz", "make_interval"),
        *("parse_json", "url_decode", "validate_utf8", "aes_decrypt"),
    )
}
"""Functions that are null only where an argument is, with a form of the same arguments."""

_CAST_CALLS = frozenset(
    (
        *("tinyint", "smallint", "int", "bigint", "float", "double", "decimal"),
        *("boolean", "date", "timestamp", "binary"),
    )
)
"""Functions that are casts to the type of that name."""

_CONSTANT = re.compile(r"\d+(\.\d+)?|INTERVAL .*", re.DOTALL)
_NOT_GUARDED = (
    *(exp.DataType.Type.ARRAY, exp.DataType.Type.MAP, exp.DataType.Type.STRUCT),
    exp.DataType.Type.TEXT,
)
"""Types of which a cast that fails is null inside, and the one to which none fails."""


class _Guarding:
    """The parts of one expression, by the rules for what they are."""

    def __init__(self, source: SourceText) -> None:
        self._source = source

    def safe(self, node: Any) -> str:
        """The node's text with the forms that do not fail."""
        return self._source.render(node, self._replaced)

    def failure(self, node: Any) -> str | None:
        """Which part fails, as SQL; None where none can."""
        if isinstance(node, exp.Lambda | exp.Interval | exp.DataType):
            return None
        lazy = _LAZY.get(type(node))
        if lazy is not None:
            return lazy(self, node)
        if isinstance(node, exp.Anonymous):
            lazy = _LAZY_CALLS.get(node.name.lower())
            if lazy is not None:
                return lazy(self, node)
        if isinstance(node, _IN_ORDER):
            return _first([*self._in_order(node), self._own_failure(node)])
        below = [self.failure(one) for one in children(node)]
        return _first([*below, self._own_failure(node)])

    def _in_order(self, node: Any) -> tuple[str | None, str | None]:
        """The sides of an operator, of which Spark looks at one where the other is not null."""
        first, second = node.this, node.expression
        if isinstance(node, _DIVISIONS):
            first, second = second, first
        return self.failure(first), _unless(f"({self.safe(first)}) IS NULL", self.failure(second))

    def _own_failure(self, node: Any) -> str | None:
        """What fails in the node itself, its parts being well."""
        form = self._form(node)
        if form is None:
            return None
        text, arguments = form
        if _is_cast(node) or _is_cast_call(node):
            # a variant that is null is no null, and its cast to anything is one
            known = [f"CAST({one} AS STRING) IS NOT NULL" for one in arguments]
        else:
            known = [f"({one}) IS NOT NULL" for one in arguments if not _CONSTANT.fullmatch(one)]
        if isinstance(node, exp.Anonymous) and node.name.lower() == "element_at":
            array, at = arguments
            # of a map's key that is not there the value is null: this is only for arrays
            known.append(
                f"typeof({array}) LIKE 'array<%' AND "
                f"size({array}) < abs(TRY_CAST(CAST({at} AS STRING) AS BIGINT))"
            )
        words = text_literal(self._source.words_of(node))
        return f"CASE WHEN {' AND '.join([f'{text} IS NULL', *known])} THEN {words} END"

    def _replaced(self, node: Any) -> str | None:
        if isinstance(node, exp.Lambda):
            return self._source.render(node, lambda _: None)
        form = self._form(node)
        return None if form is None else form[0]

    def _form(self, node: Any) -> tuple[str, Sequence[str]] | None:
        """The form of a node that does not fail, and its arguments; None where it has none."""
        kind = type(node)
        if kind in _OPERATORS:
            arguments = self._all_safe((node.this, node.expression))
            return f"{_OPERATORS[kind]}({', '.join(arguments)})", arguments
        if kind is exp.IntDiv:
            over, by = arguments = self._all_safe((node.this, node.expression))
            # of the greatest numbers only the least has none that is its negative
            overflows = f"({by}) = -1 AND try_multiply({over}, -1) IS NULL"
            return f"CASE WHEN ({by}) <> 0 AND NOT ({overflows}) THEN ({over}) DIV ({by}) END", (
                arguments
            )
        if _is_cast(node):
            argument = self.safe(node.this)
            return f"TRY_CAST({argument} AS {self._type(node)})", (argument,)
        if kind is exp.Anonymous:
            return self._form_of_call(node)
        return None

    def _type(self, cast: Any) -> str:
        """What `CAST(x AS type)` or `x::type` is a cast to."""
        (_, before), (_, last) = (span_of(one) or (0, 0) for one in (cast.this, cast))
        sign, *words = self._source.tokens_between(before + 1, last)
        if sign.token_type is not TokenType.DCOLON:
            words.pop()  # the parenthesis
        return self._source.text[words[0].start : words[-1].end + 1]

    def _form_of_call(self, node: Any) -> tuple[str, Sequence[str]] | None:
        name = node.name.lower()
        if _is_cast_call(node):
            [argument] = self._all_safe(node.expressions)
            return f"TRY_CAST({argument} AS {name.upper()})", (argument,)
        form = "try_element_at" if name == "element_at" else _CALLS.get(name)
        if form is None:
            return None
        arguments = self._all_safe(node.expressions)
        return f"{form}({', '.join(arguments)})", arguments

    def _all_safe(self, nodes: Iterable[Any]) -> list[str]:
        return [self.safe(one) for one in nodes]

    def of_and(self, node: Any) -> str | None:
        """What follows a false is not looked at."""
        second = _unless(f"NOT ({self.safe(node.this)})", self.failure(node.expression))
        return _first([self.failure(node.this), second])

    def of_or(self, node: Any) -> str | None:
        """What follows a true is not looked at."""
        second = _unless(self.safe(node.this), self.failure(node.expression))
        return _first([self.failure(node.this), second])

    def of_if(self, node: Any) -> str | None:
        """One of two."""
        return self._branches([(node.this, node.args["true"])], node.args.get("false"), None)

    def of_case(self, node: Any) -> str | None:
        """The first condition that holds."""
        branches = [(one.this, one.args["true"]) for one in node.args["ifs"]]
        return self._branches(branches, node.args.get("default"), node.this)

    def _branches(
        self, branches: Sequence[tuple[Any, Any]], otherwise: Any, compared: Any
    ) -> str | None:
        found = None if otherwise is None else self.failure(otherwise)
        for condition, value in reversed(branches):
            holds, failure = self.safe(condition), self.failure(condition)
            if compared is not None:
                of = self.safe(compared)
                holds, failure = f"({of}) = ({holds})", _unless(f"({of}) IS NULL", failure)
            then = self.failure(value)
            if then is not None or found is not None:
                found = f"CASE WHEN {holds} THEN {then or 'NULL'} ELSE {found or 'NULL'} END"
            found = _first([failure, found])
        return _first([None if compared is None else self.failure(compared), found])

    def of_in(self, node: Any) -> str | None:
        """Looked at up to the first that is equal."""
        value, found = self.safe(node.this), None
        for one in reversed(node.expressions):
            later = _unless(f"({value}) = ({self.safe(one)})", found)
            found = _first([self.failure(one), later])
        return _first([self.failure(node.this), _unless(f"({value}) IS NULL", found)])

    def of_between(self, node: Any) -> str | None:
        """The upper bound is not looked at below the lower one."""
        value, low = self.safe(node.this), node.args["low"]
        high = _unless(f"({value}) < ({self.safe(low)})", self.failure(node.args["high"]))
        bounds = _unless(f"({value}) IS NULL", _first([self.failure(low), high]))
        return _first([self.failure(node.this), bounds])

    def of_coalesce(self, node: Any) -> str | None:
        """The next is looked at where the ones before are null."""
        found = None
        for one in reversed(node.expressions):
            later = _unless(f"({self.safe(one)}) IS NOT NULL", found)
            found = _first([self.failure(one), later])
        return found

    def of_if_call(self, node: Any) -> str | None:
        """`iff(condition, value, other)`, as it is called elsewhere, and `if`."""
        condition, value, other = node.expressions
        return self._branches([(condition, value)], other, None)

    def of_nvl2(self, node: Any) -> str | None:
        """`nvl2(a, b, c)`: b where a is not null, else c."""
        looked_at, value, other = node.expressions
        is_there, then = f"({self.safe(looked_at)}) IS NOT NULL", self.failure(value)
        otherwise = self.failure(other)
        found = None
        if then is not None or otherwise is not None:
            found = f"CASE WHEN {is_there} THEN {then or 'NULL'} ELSE {otherwise or 'NULL'} END"
        return _first([self.failure(looked_at), found])


_Rule = Callable[[_Guarding, Any], "str | None"]
_LAZY: Mapping[type[Any], _Rule] = {
    exp.And: _Guarding.of_and,
    exp.Or: _Guarding.of_or,
    exp.If: _Guarding.of_if,
    exp.Case: _Guarding.of_case,
    exp.In: _Guarding.of_in,
    exp.Between: _Guarding.of_between,
}
_LAZY_CALLS: Mapping[str, _Rule] = {
    "coalesce": _Guarding.of_coalesce,
    "nvl": _Guarding.of_coalesce,
    "ifnull": _Guarding.of_coalesce,
    "if": _Guarding.of_if_call,
    "nvl2": _Guarding.of_nvl2,
}


def _is_cast(node: Any) -> bool:
    """Whether it is a cast of what a row has, and is null where it fails."""
    # sqlglot has TRY_CAST for both, as other engines' casts are both
    if not isinstance(node, exp.Cast) or node.args.get("safe") or node.to.this in _NOT_GUARDED:
        return False
    return not _is_literal(node.this)


def _is_literal(node: Any) -> bool:
    """Also one with a sign, or with a type: 7L is a cast for sqlglot."""
    node = without_parentheses(node)
    while isinstance(node, exp.Neg | exp.Cast):
        node = without_parentheses(node.this)
    return isinstance(node, exp.Literal)


def _is_cast_call(node: Any) -> bool:
    is_call = isinstance(node, exp.Anonymous) and node.name.lower() in _CAST_CALLS
    return is_call and len(node.expressions) == 1


def _first(failures: Iterable[str | None]) -> str | None:
    """The first failure that is there."""
    found = [one for one in failures if one is not None]
    if len(found) < 2:
        return found[0] if found else None
    return f"coalesce({', '.join(found)})"


def _unless(condition: str, failure: str | None) -> str | None:
    return None if failure is None else f"CASE WHEN {condition} THEN NULL ELSE {failure} END"
