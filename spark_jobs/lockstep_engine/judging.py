"""Rows that have to be evaluated when they come, as nothing that an interval writes follows from them.

A join that reads an aggregate's rows off its groups remembers none of them. Where it meets nothing,
Spark evaluates none either; so a row whose expression fails would be found out when it is met for the
first time, as one from before, of which it is taken for granted that it has been noted.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from lockstep.sql.circuit import Operator
from lockstep.sql.plans.formula_nodes import Call, parts
from lockstep.sql.plans.formulas import formula
from lockstep.sql.plans.guards import guard
from lockstep.sql.plans.nodes import Expression, Filter, Project

__all__ = ["evaluated_now", "may_fail"]


def may_fail(operators: Mapping[int, Operator], ref: int) -> bool:
    """Whether an expression may fail by which a relation's rows are made of an aggregate's groups."""
    operator = operators[ref]
    match operator.node:
        case Project() as node:
            found = any(_may_fail(output.expression) for output in node.outputs)
        case Filter() as node:
            found = _may_fail(node.predicate)
        case _:
            return False
    return found or may_fail(operators, operator.inputs[0])


def _may_fail(expression: Expression) -> bool:
    """What has no form that does not fail may still fail, unless it is simple: of a function Spark may
    make another type of what it is given first."""
    tree = formula(expression)
    if guard(expression) is not None or tree is None:
        return True
    return any(isinstance(one, Call) for one in parts(tree))


def evaluated_now(frame: DataFrame) -> DataFrame:
    """The frame, all of whose rows are evaluated and kept. Raises what Spark does for a row."""
    kept = frame.persist()
    kept.write.format("noop").mode("overwrite").save()
    return kept
