"""Variances, covariances and regressions by counts, averages and sums of products of deviations.

As aggregates that are computed anew they look at all rows of a group that changed. All of them are a few
operations on numbers that a change adds to: how many pairs there are, the means of x and y, and the sums
of the products of the deviations from these (AggregateFunction.COMOMENT). The formulas are Spark's, with
what they give where there is one pair, or none, or only equal numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

_ANY = "CASE WHEN {n} > 0 THEN %s END"
_SAMPLE = "CASE WHEN {n} > 1 THEN %s END"
_SPREADS: Mapping[str, str] = MappingProxyType(
    {
        "var_pop": _ANY % "{xx} / {n}",
        "var_samp": _SAMPLE % "{xx} / ({n} - 1)",
        "variance": _SAMPLE % "{xx} / ({n} - 1)",
        "stddev_pop": _ANY % "sqrt({xx} / {n})",
        "stddev_samp": _SAMPLE % "sqrt({xx} / ({n} - 1))",
        "stddev": _SAMPLE % "sqrt({xx} / ({n} - 1))",
        "std": _SAMPLE % "sqrt({xx} / ({n} - 1))",
    }
)
_OF_PAIRS: Mapping[str, str] = MappingProxyType(
    {
        "covar_pop": _ANY % "{xy} / {n}",
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
    formulas = {
        call.name: formula for call in node.collected if (formula := _formula(call)) is not None
    }
    if not formulas:
        return None
    reads = dict.fromkeys(read for one in formulas.values() for read in one.reads.values())
    texts = dict.fromkeys(text for _, text in reads)
    columns = dict(zip(texts, fresh_names(["_of"] * len(texts), node.input.columns), strict=True))
    wanted = (f"_{function.value}" for function, _ in reads)
    names = dict(zip(reads, fresh_names(wanted, node.columns), strict=True))
    made = tuple(Output(columns[text], from_text(text)) for text in texts)
    below = tidy(Project(node.input, (*as_they_are(node.input.columns), *made)))
    calls = [call for call in node.aggregates if call.name not in formulas]
    calls += [AggregateCall(name, read[0], columns[read[1]]) for read, name in names.items()]
    values = {name: one.over(names) for name, one in formulas.items()}
    outputs = (Output(name, values.get(name, Expression.column(name))) for name in node.columns)
    return Project(Aggregate(below, node.keys, tuple(calls)), tuple(outputs))


_Read = tuple[AggregateFunction, str]
"""A function, and the text of what it is of."""


@dataclass(frozen=True)
class _Formula:
    """A formula with places for what it reads."""

    text: str
    reads: Mapping[str, _Read]

    def over(self, columns: Mapping[_Read, str]) -> Expression:
        """The formula over the columns that have what it reads."""
        places = {place: f"`{columns[read]}`" for place, read in self.reads.items()}
        return from_text(self.text.format(**places))


def _formula(call: AggregateCall) -> _Formula | None:
    """What a call means, None for one of another function."""
    assert call.expression is not None, "of a collected call"
    name = call.called
    text = _FORMULAS.get(name)
    if text is None:
        return None
    source, node = parsed(call.expression)
    wanted = 1 if name in _SPREADS else 2
    if not isinstance(node, exp.Anonymous) or len(node.expressions) != wanted:
        return None
    # Not a cast, which takes more than these functions do.
    arguments = [f"1D * ({source.render(one, lambda _: None)})" for one in node.expressions]
    of = {"x": arguments[0]} if wanted == 1 else _of_pairs(arguments, name in _REGRESSIONS)
    fields = dict.fromkeys(field for _, field, _, _ in Formatter().parse(text) if field)
    reads = {field: (_READ[field][0], of[_READ[field][1]]) for field in fields}
    return _Formula(text, reads)


def _of_pairs(arguments: Sequence[str], of_regression: bool) -> Mapping[str, str]:
    """The texts of x, y and the pair of both, each null where one of the two is."""
    y, x = arguments if of_regression else reversed(arguments)
    both = f"{x} IS NOT NULL AND {y} IS NOT NULL"
    return {
        "x": f"CASE WHEN {both} THEN {x} END",
        "y": f"CASE WHEN {both} THEN {y} END",
        "xy": f"CASE WHEN {both} THEN named_struct('x', {x}, 'y', {y}) END",
    }
