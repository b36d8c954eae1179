"""Operations on expressions as text: put expressions in for columns, split at AND, find equalities.

Every column stands in backticks and is not preceded by a dot (that would be a struct's field), so
columns are found by a scan that knows string literals; only splitting needs the parser.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlglot import exp

from lockstep.sql.plans.nodes import Expression
from lockstep.sql.reading.clocks import bounds_of, clock_text, has_months
from lockstep.sql.reading.comparisons import MIRRORED, SIGNS, is_chained
from lockstep.sql.reading.syntax import SourceText
from lockstep.sql.reading.trees import children, without_parentheses

__all__ = [
    "all_of",
    "any_of",
    "as_operand",
    "clock_bounds",
    "common_part",
    "compares_columns",
    "comparison",
    "conjuncts",
    "disjuncts",
    "equality",
    "from_text",
    "implied_for",
    "is_null",
    "is_trivial",
    "moved_column",
    "occurrences",
    "ordered",
    "parsed",
    "reads_clock",
    "rejects_nulls",
    "substitute",
    "upper_bound",
]

_WORDS = re.compile(
    r"""[rR]'[^']*' | [rR]"[^"]*" | '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*"
    | (?P<dot>\.\s*)?`(?P<name>(?:[^`]|``)*)`""",
    re.VERBOSE | re.DOTALL,
)
_ENDS_OF_WHOLE = {"INT": 1 << 31, "BIGINT": 1 << 63}
_WHOLE_NUMBER = re.compile(r"\(*(?P<digits>-?\d+)(?P<suffix>[LSY]?)\)*", re.IGNORECASE)
_LITERAL = re.compile(r"\d+(\.\d+)?[A-Za-z]*|'[^'\\]*'|NULL|TRUE|FALSE", re.IGNORECASE)


def is_trivial(expression: Expression) -> bool:
    """True for a column or a literal: repeating it costs nothing."""
    return expression.is_column or _LITERAL.fullmatch(expression.text) is not None


def occurrences(expression: Expression) -> dict[str, int]:
    """How many times each column stands in the text."""
    counts: dict[str, int] = {}
    for match in _WORDS.finditer(expression.text):
        if match.group("name") is not None and match.group("dot") is None:
            name = match.group("name").replace("``", "`")
            counts[name] = counts.get(name, 0) + 1
    return counts


def substitute(expression: Expression, values: Mapping[str, Expression]) -> Expression | None:
    """The expression with `values[c]` in place of each column c.

    None where that would change the meaning: a lambda's parameter would capture a new column.
    """
    new = {name for column in expression.references for name in values[column].references}
    if "->" in expression.text and _bare_words(expression.text) & new:
        return None
    references: list[str] = []

    def put(match: re.Match[str]) -> str:
        if match.group("name") is None or match.group("dot") is not None:
            return match.group(0)
        value = values[match.group("name").replace("``", "`")]
        references.extend(value.references)
        alone = match.span() == (0, len(expression.text))
        return value.text if alone else as_operand(value)

    text = _WORDS.sub(put, expression.text)
    return Expression(text, tuple(dict.fromkeys(references)))


def as_operand(value: Expression) -> str:
    """The text that stands for a column that has the value, in a larger expression."""
    if kind := _type_of_whole(value.text):
        return f"CAST({value.text} AS {kind})"
    return value.text if is_trivial(value) else f"({value.text})"


def _type_of_whole(text: str) -> str | None:
    """The type of a literal that is a whole number. A column has it; beside a decimal the literal itself
    would have as many digits as it is written with."""
    found = _WHOLE_NUMBER.fullmatch(text)
    if found is None:
        return None
    if found["suffix"]:
        return {"L": "BIGINT", "S": "SMALLINT", "Y": "TINYINT"}[found["suffix"].upper()]
    number = int(found["digits"])
    fitting = (kind for kind, end in _ENDS_OF_WHOLE.items() if -end <= number < end)
    return next(fitting, None)


def compares_columns(predicate: Expression) -> bool:
    """Whether nothing is done with columns but to compare them, and to move times: it then means the
    same of values of a narrower type."""
    pending = [parsed(predicate)[1]]
    while pending:
        node = without_parentheses(pending.pop())
        if isinstance(node, exp.Column) or node.find(exp.Column) is None:
            continue
        moves = isinstance(node, exp.Add | exp.Sub) and isinstance(node.expression, exp.Interval)
        if not moves and not isinstance(node, _COMPARING):
            return False
        pending += children(node)
    return True


def _bare_words(text: str) -> set[str]:
    return set(re.findall(r"\w+", _WORDS.sub(" ", text)))


def from_text(text: str) -> Expression:
    """The expression of that text, in which each column stands in backticks."""
    found = Expression(text)
    return Expression(text, tuple(occurrences(found)))


def parsed(expression: Expression) -> tuple[SourceText, Any]:
    """An expression's text and syntax, without parentheses around it."""
    source = SourceText("", expression.text)
    return source, without_parentheses(source.parse(source.tokens, "an expression"))


def _part(source: SourceText, node: Any) -> Expression:
    """A part of an expression in its own words."""
    return from_text(source.render(node, lambda _: None))


@lru_cache(maxsize=4096)
def conjuncts(expression: Expression) -> tuple[Expression, ...]:
    """The parts of an AND at the top, from left to right; the expression itself if it is none."""
    source, node = parsed(expression)
    parts: list[Expression] = []
    pending = [node]
    while pending:
        node = pending.pop()
        if isinstance(node, exp.And):
            pending += [node.expression, node.this]
        elif isinstance(node, exp.Paren):
            pending.append(node.this)
        else:
            parts.append(_part(source, node))
    return tuple(parts) if len(parts) > 1 else (expression,)


@lru_cache(maxsize=4096)
def equality(expression: Expression) -> tuple[Expression, Expression, bool] | None:
    """The two sides of `a = b` or `a <=> b`, and whether null equals null; None for anything else."""
    source, node = parsed(expression)
    if type(node) not in (exp.EQ, exp.NullSafeEQ) or is_chained(node.this, node.expression):
        return None
    left, right = (
        _part(source, without_parentheses(side)) for side in (node.this, node.expression)
    )
    return left, right, type(node) is exp.NullSafeEQ


@lru_cache(maxsize=4096)
def comparison(expression: Expression) -> tuple[Expression, str, Expression] | None:
    """The sides and the sign of `a < b`, `a <= b`, `a > b`, `a >= b`; None for anything else."""
    source, node = parsed(expression)
    sign = SIGNS.get(type(node))
    if sign is None or is_chained(node.this, node.expression):
        return None
    left, right = (
        _part(source, without_parentheses(side)) for side in (node.this, node.expression)
    )
    return left, sign, right


def ordered(condition: Expression) -> tuple[tuple[Expression, Expression], ...]:
    """What a comparison or a BETWEEN says of the order of values: in each pair the first is not greater
    than the second."""
    source, node = parsed(condition)
    if isinstance(node, exp.Between):
        parts = (node.this, node.args["low"], node.args["high"])
        if is_chained(*parts):
            return ()
        value, low, high = (_part(source, without_parentheses(part)) for part in parts)
        return (low, value), (value, high)
    found = comparison(condition)
    if found is None:
        return ()
    left, sign, right = found
    return ((left, right),) if sign.startswith("<") else ((right, left),)


@dataclass(frozen=True)
class Moved:
    """A column and the intervals, of a fixed length, that are added to it, or taken from it."""

    column: str
    added: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()

    def less(self, other: Moved) -> Expression:
        """This one without what is done to the other's column; null where that is no time any more."""
        text = Expression.column(self.column).text
        for interval in (*self.added, *other.taken):
            text = f"try_add({text}, {interval})"
        for interval in (*self.taken, *other.added):
            text = f"try_subtract({text}, {interval})"
        return Expression(text, (self.column,))


@lru_cache(maxsize=4096)
def moved_column(expression: Expression) -> Moved | None:
    """`at`, `at - INTERVAL 1 HOUR`, `INTERVAL 5 SECONDS + at`; None for anything else."""
    source, node = parsed(expression)
    added: list[str] = []
    taken: list[str] = []
    while isinstance(node, exp.Add | exp.Sub):
        done = added if isinstance(node, exp.Add) else taken
        node, interval = without_parentheses(node.this), without_parentheses(node.expression)
        if done is added and isinstance(node, exp.Interval):
            node, interval = interval, node
        if not isinstance(interval, exp.Interval) or has_months(interval):
            return None
        if any(interval.find_all(exp.Column)):
            return None
        done.append(_part(source, interval).text)
    column = _part(source, node)
    return Moved(column.references[0], tuple(added), tuple(taken)) if column.is_column else None


_WHOLE = re.compile(r"(?P<bare>\d{1,9})|CAST\((?P<cast>\d{1,9}) AS INT\)")


def upper_bound(condition: Expression, whole: Expression) -> int | None:
    """The greatest value that a whole number has where the condition `whole <= 3` holds, also said with
    another sign or the other way round; None where it says nothing of the kind."""
    source, node = parsed(condition)
    equated = equality(condition)
    found = (equated[0], "=", equated[1]) if equated else comparison(condition)
    if isinstance(node, exp.Between) and not is_chained(node.this, node.args["high"]):
        found = _part(source, node.this), "<=", _part(source, node.args["high"])
    if found is None:
        return None
    left, sign, right = found
    if right == whole:
        left, sign, right = right, MIRRORED.get(sign, sign), left
    number = _WHOLE.fullmatch(right.text)
    if left != whole or number is None or sign not in ("=", "<", "<="):
        return None
    return int(number["bare"] or number["cast"]) - (sign == "<")


@lru_cache(maxsize=4096)
def disjuncts(expression: Expression) -> tuple[tuple[Expression, ...], ...]:
    """The parts of an OR at the top, each as the parts of an AND; one part where it is no OR."""
    source, node = parsed(expression)
    parts: list[tuple[Expression, ...]] = []
    pending = [node]
    while pending:
        node = without_parentheses(pending.pop())
        if isinstance(node, exp.Or):
            pending += [node.expression, node.this]
        else:
            parts.append(conjuncts(_part(source, node)))
    return tuple(parts)


def common_part(expression: Expression) -> tuple[Expression, ...]:
    """(a AND b) OR (a AND c) → a, (b) OR (c): what is in every part is a condition of its own."""
    parts = disjuncts(expression)
    common = [one for one in dict.fromkeys(parts[0]) if all(one in part for part in parts)]
    if len(parts) < 2 or not common:
        return (expression,)
    rest = [tuple(one for one in part if one not in common) for part in parts]
    if not all(rest):
        return tuple(common)
    return (*common, any_of(all_of(part) for part in rest))


def implied_for(expression: Expression, columns: Collection[str]) -> Expression | None:
    """What an OR says of these columns alone: (a1 AND b1) OR (a2 AND b2) → (a1) OR (a2).

    None where a part says nothing of them, or the OR reads nothing else.
    """
    parts = disjuncts(expression)
    if len(parts) < 2 or set(expression.references) <= set(columns):
        return None
    kept = [
        tuple(one for one in part if one.references and set(one.references) <= set(columns))
        for part in parts
    ]
    return any_of(map(all_of, kept)) if all(kept) else None


_STRICT = (
    *(exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.Paren, exp.Cast),
    *(exp.Column, exp.Identifier, exp.Literal, exp.DataType, exp.DataTypeParam, exp.Boolean),
    exp.Null,
)
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Like, exp.Between)
_COMPARING = (*_COMPARISONS, exp.NullSafeEQ, exp.In, exp.Is, exp.And, exp.Or, exp.Not)


def _is_strict(node: Any) -> bool:
    """True for an expression that is null as soon as one part of it is."""
    return all(isinstance(part, _STRICT) for part in node.walk())


@lru_cache(maxsize=4096)
def is_null(expression: Expression) -> bool:
    """True for an expression that reads nothing and is null: `0.2 * NULL`."""
    _, node = parsed(expression)
    return _is_strict(node) and node.find(exp.Null) is not None


@lru_cache(maxsize=4096)
def rejects_nulls(expression: Expression) -> frozenset[str]:
    """Columns that are not null in any row for which the condition is true."""
    source, node = parsed(expression)
    if isinstance(node, exp.Not) and isinstance(without_parentheses(node.this), exp.Is):
        parts = [without_parentheses(node.this).this]
    elif isinstance(node, _COMPARISONS):
        parts = [part for part in node.args.values() if isinstance(part, exp.Expr)]
    elif isinstance(node, exp.Column):
        parts = [node]
    else:
        return frozenset()
    read = (_part(source, part) for part in parts if _is_strict(part))
    return frozenset(name for one in read for name in one.references)


_CLOCK = re.compile(r"\b(now|current_date)\(\)")
_CLOCK_COLUMNS = {"now()": "`now`", "current_date()": "CAST(`now` AS DATE)"}


def reads_clock(expression: Expression) -> bool:
    """True where the text calls now() or current_date()."""
    return _CLOCK.search(_WORDS.sub(" ", expression.text)) is not None


@lru_cache(maxsize=4096)
def clock_bounds(expression: Expression) -> tuple[tuple[Expression, str, Expression], ...]:
    """A comparison with the clock as comparisons of a row's expression with a bound, which is an
    expression over the one column `now`."""
    source, node = parsed(expression)
    found = bounds_of(node)
    assert found is not None, f"not admitted by queries: {expression.text}"
    return tuple(
        (
            _part(source, without_parentheses(value)),
            sign,
            from_text(source.render(bound, lambda part: _CLOCK_COLUMNS.get(clock_text(part)))),
        )
        for value, sign, bound in found
    )


def all_of(predicates: Iterable[Expression]) -> Expression:
    """The predicates joined by AND, in order."""
    found = tuple(predicates)
    if len(found) == 1:
        return found[0]
    references = dict.fromkeys(name for one in found for name in one.references)
    return Expression(" AND ".join(f"({one.text})" for one in found), tuple(references))


def any_of(parts: Iterable[Expression]) -> Expression:
    """The parts joined by OR, in order, each once."""
    found = tuple(dict.fromkeys(parts))
    if len(found) == 1:
        return found[0]
    references = dict.fromkeys(name for one in found for name in one.references)
    return Expression(" OR ".join(f"({one.text})" for one in found), tuple(references))
