"""Rows that stand in the query itself: VALUES, range(), and the one row of SELECT without FROM."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from lockstep.errors import ProjectError
from lockstep.sql.plans.columns import only
from lockstep.sql.plans.nodes import Expression, Generate, Values
from lockstep.sql.queries.lowering import ExpressionLowering
from lockstep.sql.queries.scope import Lowered, Scope
from lockstep.sql.reading.syntax import SourceText
from lockstep.sql.reading.trees import without_parentheses

__all__ = ["ONE_ROW", "range_rows", "values_rows"]

ONE_ROW = Values(("_one",), ((Expression("1"),),))
"""What SELECT without FROM reads."""


def values_rows(source: SourceText, node: Any) -> Lowered:
    """VALUES (...), (...): rows of expressions that read nothing."""
    lowering = ExpressionLowering(source, Scope(ONE_ROW, ()))
    rows = []
    for row in node.expressions:
        cells = row.expressions if isinstance(row, exp.Tuple) else [without_parentheses(row)]
        rows.append(tuple(lowering.lower(cell) for cell in cells))
        if len(rows[-1]) != len(rows[0]):
            raise ProjectError(
                "the rows of VALUES differ in their number of columns",
                position=source.position_of(row),
                expected=f"{len(rows[0])} values",
                found=f"{len(rows[-1])}",
            )
    names = tuple(f"col{place}" for place in range(1, len(rows[0]) + 1))
    return Lowered(Values(names, tuple(rows)), names)


def range_rows(source: SourceText, node: Any) -> Lowered:
    """range([start,] end[, step[, partitions]]): numbers from the start to before the end."""
    arguments = node.this.expressions
    if not 1 <= len(arguments) <= 4:
        raise ProjectError(
            "range() takes an end, or a start, an end and perhaps a step",
            position=source.position_of(node),
            expected="range(10), range(1, 11) or range(1, 11, 2)",
            found=source.words_of(node),
        )
    lowering = ExpressionLowering(source, Scope(ONE_ROW, ()))
    texts = [lowering.lower(one).text for one in arguments[:3]]
    texts = ["0", *texts] if len(texts) == 1 else texts
    start, end, step = (f"CAST({one} AS BIGINT)" for one in (*texts, "1")[:3])
    # a sequence contains its end, and has none where it would have to turn
    last = f"{end} - CAST(sign({step}) AS BIGINT)"
    rows = f"IF(({end} - {start}) * sign({step}) > 0, sequence({start}, {last}, {step}), array())"
    numbers = Generate(ONE_ROW, Expression(f"explode({rows})"), ("id",))
    return Lowered(only(numbers, ("id",)), ("id",))
