"""Operators whose expressions fail for single rows: these are taken out and noted, the others go on.

An interval runs without any of this, as it costs a second look at every expression, until Spark ends
it with an error of a row. Then it is run again so, and so are all that follow it, as a row that has
failed may be read again from what was there before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lockstep.sql.circuit import Operator
from lockstep.sql.plans.guards import Guard, guard
from lockstep.sql.plans.nodes import Filter, Generate, MultiwayJoin, Node, Project
from lockstep.sql.plans.terms import Expression
from lockstep_engine.context import Context, Guarding
from lockstep_engine.deltas import STEP, WEIGHT, columns_of, row_text
from lockstep_engine.operators.evaluated import Deltas, Evaluate, Evaluation, State

__all__ = ["evaluate_guarded"]

_FAILURE = "_failure"


def evaluate_guarded(
    operator: Operator,
    inputs: Deltas,
    state: State,
    context: Context,
    guarding: Guarding,
    evaluate: Evaluate,
) -> Evaluation:
    """What `evaluate` gives, without the rows for which an expression of a Project, a Filter, a
    Generate or a join's condition fails."""
    node = operator.node
    if isinstance(node, MultiwayJoin):
        return _guarded_join(operator, node, inputs, state, context, guarding, evaluate)
    expressions = _expressions(node)
    if all(one.is_column for one in expressions):
        return evaluate(operator, inputs, state, context)
    [delta], [below] = inputs, node.inputs
    assert delta is not None, "only joins know of empty inputs"
    guards = [found for found in map(guard, expressions) if found is not None]
    if guards:
        delta = _sifted(delta, below.columns, guards, guarding)
        operator = replace(operator, node=_safe(node))
    guarding.look_at(operator, delta, below.columns)
    return evaluate(operator, (delta,), state, context)


def _expressions(node: Node) -> Sequence[Expression]:
    match node:
        case Project():
            return [output.expression for output in node.outputs]
        case Filter():
            return [node.predicate]
        case Generate():
            return [node.generator]
        case _:
            return []


def _safe(node: Node) -> Node:
    """The node with the values of its expressions for rows in which nothing fails."""
    match node:
        case Project():
            outputs = (replace(one, expression=_value(one.expression)) for one in node.outputs)
            return replace(node, outputs=tuple(outputs))
        case Filter():
            return replace(node, predicate=_value(node.predicate))
        case Generate():
            return replace(node, generator=_value(node.generator))
        case _:
            raise ValueError(f"a {type(node).__name__} has no expressions to guard")


def _value(expression: Expression) -> Expression:
    found = guard(expression)
    return expression if found is None else found.safe


def _guarded_join(
    operator: Operator,
    node: MultiwayJoin,
    inputs: Deltas,
    state: State,
    context: Context,
    guarding: Guarding,
    evaluate: Evaluate,
) -> Evaluation:
    """Conditions that can fail are looked at in the combinations that all others leave."""
    guards = [found for found in map(guard, node.conditions) if found is not None]
    if guards:
        sound = tuple(one for one in node.conditions if guard(one) is None)
        operator = replace(operator, node=replace(node, conditions=sound))
    evaluation = evaluate(operator, inputs, state, context)
    if not guards:
        return evaluation
    delta = _sifted(evaluation.delta, node.columns, guards, guarding)
    for one in guards:
        delta = delta.where(one.safe.text)
    return replace(evaluation, delta=delta)


def _sifted(
    delta: DataFrame, columns: Sequence[str], guards: Sequence[Guard], guarding: Guarding
) -> DataFrame:
    """The rows in which nothing fails; of the others, what is to be known is noted."""
    failures = ", ".join(one.failure.text for one in guards)
    marked = delta.withColumn(_FAILURE, F.expr(f"coalesce({failures}, NULL)"))
    if guarding.noted is not None:
        marked = marked.persist()
        guarding.kept.append(marked)
        guarding.noted.append(_noted(marked, columns, guarding))
    return marked.where(f"{_FAILURE} IS NULL").drop(_FAILURE)


def _noted(marked: DataFrame, columns: Sequence[str], guarding: Guarding) -> DataFrame:
    return marked.where(f"{_FAILURE} IS NOT NULL").select(
        F.lit(list(guarding.views)).cast("array<string>").alias("views"),
        F.col(_FAILURE).alias("expression"),
        row_text(columns),
        *columns_of([WEIGHT, STEP]),
    )
