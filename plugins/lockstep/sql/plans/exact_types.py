"""The types of expressions whose sums are the same in any order, as far as sources declare them: whole
numbers, decimals, and what `+ - *` makes of such."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal

from lockstep.sql.plans.digits import WHOLE, Digits, bounded, exact_result
from lockstep.sql.plans.formula_nodes import Arithmetic, Column, Constant, Formula
from lockstep.sql.plans.formulas import formula
from lockstep.sql.plans.nodes import (
    Aggregate,
    Expression,
    Filter,
    MultiwayJoin,
    Node,
    Project,
    Scan,
    TimeWindow,
    Watermark,
    Weigh,
)

__all__ = ["NARROW", "declares_exact", "exact_type"]

_SPELLINGS = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
} | {name: name for name in WHOLE}
NARROW = ("tinyint", "smallint")
"""In a table of Iceberg's they are INTs, and so may be what was read from a trace."""
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")

Declared = Callable[[Scan, str], str | None]
"""The type that a source declares of a column, in any of Spark's spellings."""


def exact_type(node: Node, expression: Expression, declared: Declared) -> str | None:
    """Spark's name for the type of an expression over a node; None where that is another type, or is
    not known from here."""
    tree = formula(expression)
    found = None if tree is None else _type_of(tree, node, declared)
    return found if found is None or isinstance(found, str) else f"decimal({found[0]},{found[1]})"


_Type = str | Digits
"""The name of whole numbers, or a decimal's digits."""


def _type_of(tree: Formula, node: Node, declared: Declared) -> _Type | None:
    match tree:
        case Column(name):
            return _of_column(name, node, declared)
        case Constant(Decimal() as value):
            _, digits, exponent = value.as_tuple()
            return max(len(digits), -int(exponent)), -int(exponent)
        case Constant(bool()) | Constant(is_long=True):
            return None
        case Constant(int()):
            return "int"
        case Arithmetic("+" | "-" | "*" as sign, left, right):
            types = [_type_of(side, node, declared) for side in (left, right)]
            if None in types:
                return None
            if all(isinstance(one, str) for one in types):
                return max(map(str, types), key=WHOLE.__getitem__)
            ours, theirs = (
                _digits(side, one) for side, one in zip((left, right), types, strict=True)
            )
            return bounded(exact_result(sign, ours, theirs))
        case _:
            return None


def _digits(side: Formula, kind: _Type | None) -> Digits:
    """Beside a decimal a whole number that is written has as many as that."""
    if isinstance(side, Constant) and not side.is_cast and isinstance(side.value, int):
        return len(str(abs(side.value))), 0
    assert kind is not None, "asked for before"
    return (WHOLE[kind], 0) if isinstance(kind, str) else kind


def _of_column(name: str, node: Node, declared: Declared) -> _Type | None:
    match node:
        case Scan():
            return _read(declared(node, name))
        case Project():
            [output] = (one for one in node.outputs if one.name == name)
            tree = formula(output.expression)
            return None if tree is None else _type_of(tree, node.input, declared)
        case Filter() | Weigh() | Watermark():
            return _of_column(name, node.input, declared)
        case TimeWindow() if name != node.name:
            return _of_column(name, node.input, declared)
        case Aggregate() if name in node.keys:
            found = _of_column(name, node.input, declared)
            return None if found in NARROW else found
        case MultiwayJoin():
            [below] = (one for one in node.inputs if name in one.columns)
            return _of_column(name, below, declared)
        case _:
            return None


def declares_exact(text: str | None) -> bool:
    """Whether a declared type, if there is one, is of whole numbers or decimals."""
    return _read(text) is not None


def _read(text: str | None) -> _Type | None:
    """A declared type."""
    text = (text or "").strip().lower()
    if text in _SPELLINGS:
        return _SPELLINGS[text]
    found = _DECIMAL.fullmatch(text)
    if found is None:
        return None
    precision, scale = found.groups()
    return int(precision or 10), int(scale or 0)
