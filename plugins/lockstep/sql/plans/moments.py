"""Variances, covariances and regressions by counts, averages and sums of products of deviations.

As aggregates that are computed anew they look at all rows of a group that changed. All of them are a few
operations on numbers that a change adds to: how many pairs there are, the means of x and y, and the sums
of the products of the deviations from these (AggregateFunction.COMOMENT). The formulas are Spark's, with
what they give where there is one pair, or none, or only equal numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import Formatter
from types import MappingProxyType

from sqlglot import exp

from lockstep.sql.names import fresh_names
from lockstep.sql.plans.columns import as_they_are
from lockstep.sql.plans.expressions import from_text, parsed
from lockstep.sql.plans.nodes import (
    Aggregate,
    AggregateCall,
    AggregateFunction,
    Expression,
    Node,
    Output,
    Project,
)
from lockstep.sql.plans.rewrites import tidy

__all__ = ["moments"]

_SAMPLE = "CASE WHEN {n} > 1 THEN %s END"
_SPREADS: Mapping[str, str] = MappingProxyType(
    {
        "var_pop": "{xx} / {n}",
        "var_samp": _SAMPLE % "{xx} / ({n} - 1)",
        "variance": _SAMPLE % "{xx} / ({n} - 1)",
        "stddev_pop": "sqrt({xx} / {n})",
        "stddev_samp": _SAMPLE % "sqrt({xx} / ({n} - 1))",
        "stddev": _SAMPLE % "sqrt({xx} / ({n} - 1))",
        "std": _SAMPLE % "sqrt({xx} / ({n} - 1))",
    }
)
_OF_PAIRS: Mapping[str, str] = MappingProxyType(
    {
        "covar_pop": "{xy} / {n}",
        "covar_samp": _SAMPLE % "{xy} / ({n} - 1)",
        "corr": _SAMPLE % "{xy} / sqrt({xx} * {yy})",
    }
)
_REGRESSIONS: Mapping[str, str] = MappingProxyType(
    {
        "regr_count": "{n}",
        "regr_avgx": "{x}",
        "regr_avgy": "{y}",
        "regr_sxx": "{xx}",
        "regr_syy": "{yy}",
        "regr_sxy": "{xy}",
        "regr_slope": "CASE WHEN {xx} <> 0 THEN {xy} / {xx} END",
        "regr_intercept": "CASE WHEN {xx} <> 0 THEN {y} - {xy} / {xx} * {x} END",
        "regr_r2": "CASE WHEN {xx} = 0 THEN NULL WHEN {yy} = 0 THEN 1D "
        "ELSE power({xy} / sqrt({xx} * {yy}), 2) END",
    }
)
"""Their arguments are y and x, in that order."""
_FORMULAS: Mapping[str, str] = MappingProxyType({**_SPREADS, **_OF_PAIRS, **_REGRESSIONS})

_READ: Mapping[str, tuple[AggregateFunction, str]] = MappingProxyType(
    {
        "n": (AggregateFunction.COUNT, "x"),
        "x": (AggregateFunction.AVG, "x"),
        "y": (AggregateFunction.AVG, "y"),
        "xx": (AggregateFunction.COMOMENT, "x"),
        "yy": (AggregateFunction.COMOMENT, "y"),
        "xy": (AggregateFunction.COMOMENT, "xy"),
    }
)
"""What formulas are written in, with the function and the column that it is of."""


def moments(node: Aggregate) -> Node | None:
    """The same groups with what the formulas read, None where there is no such call."""
    found = {
        call.name: columns for call in node.collected if (columns := _columns(call)) is not None
    }
    if not found:
        return None
    texts = dict.fromkeys(text for columns in found.values() for text in columns.values())
    names = dict(zip(texts, fresh_names(["_of"] * len(texts), node.input.columns), strict=True))
    made = tuple(Output(name, from_text(text)) for text, name in names.items())
    below = tidy(Project(node.input, (*as_they_are(node.input.columns), *made)))
    calls = {call.name: call for call in node.aggregates if call.name not in found}
    read: dict[tuple[AggregateFunction, str], str] = {}
    outputs: dict[str, Expression] = {}
    taken = [*node.columns]
    for call in node.aggregates:
        if call.name not in found:
            continue
        formula, values = _FORMULAS[_name(call)], {}
        for piece in _pieces(formula):
            function, column = _READ[piece]
            key = (function, names[found[call.name][column]])
            if key not in read:
                [read[key]] = fresh_names([f"_{function.value}"], taken)
                taken.append(read[key])
                calls[read[key]] = AggregateCall(read[key], *key)
            values[piece] = f"`{read[key]}`"
        outputs[call.name] = from_text(
            _where_there_are_pairs(call, formula.format(**values), values)
        )
    above = tuple(Output(name, outputs.get(name, Expression.column(name))) for name in node.columns)
    return Project(Aggregate(below, node.keys, tuple(calls.values())), above)


def _where_there_are_pairs(call: AggregateCall, text: str, values: Mapping[str, str]) -> str:
    """The value of a formula, which is null where the group has no pair."""
    if "n" not in values or _name(call) == "regr_count":
        return text
    return f"CASE WHEN {values['n']} > 0 THEN {text} END"


def _pieces(formula: str) -> Sequence[str]:
    fields = (field for _, field, _, _ in Formatter().parse(formula) if field)
    return tuple(dict.fromkeys(fields))


def _name(call: AggregateCall) -> str:
    return call.text.partition("(")[0].lower()


def _columns(call: AggregateCall) -> Mapping[str, str] | None:
    """The texts of x, y and the pair of both, as doubles; None for another function."""
    assert call.expression is not None, "of a collected call"
    name = _name(call)
    if name not in _FORMULAS:
        return None
    source, node = parsed(call.expression)
    wanted = 1 if name in _SPREADS else 2
    if not isinstance(node, exp.Anonymous) or len(node.expressions) != wanted:
        return None
    # Not a cast, which takes more than these functions do.
    texts = [f"1D * ({source.render(one, lambda _: None)})" for one in node.expressions]
    if wanted == 1:
        return {"x": texts[0]}
    y, x = texts if name in _REGRESSIONS else reversed(texts)
    both = f"{x} IS NOT NULL AND {y} IS NOT NULL"
    return {
        "x": f"CASE WHEN {both} THEN {x} END",
        "y": f"CASE WHEN {both} THEN {y} END",
        "xy": f"CASE WHEN {both} THEN named_struct('x', {x}, 'y', {y}) END",
    }
