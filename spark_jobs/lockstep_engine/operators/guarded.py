"""Operators whose expressions fail for single rows: these are taken out and noted, the others go on.

An interval runs without any of this, as it costs a second look at every expression, until Spark ends
it with an error of a row. Then it is run again so, and so are all that follow it, as a row that has
failed may be read again from what was there before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    operator: Operator, inputs: Deltas, state: State, context: Context, evaluate: Evaluate
) -> Evaluation:
    """What `evaluate` gives, without the rows for which an expression of a Project, a Filter, a
    Generate or a join's condition fails; to be called where the context is guarding."""
    node, guarding = operator.node, context.guarding
    assert guarding is not None, "else nothing is to be taken out"
    if isinstance(node, MultiwayJoin):
        # Conditions that can fail are looked at in the combinations that all others leave.
        guards = _guards(node.conditions)
        sound = tuple(one for one in node.conditions if guard(one) is None)
        plain = replace(operator, node=replace(node, conditions=sound)) if guards else operator
        evaluation = evaluate(plain, inputs, state, context)
        delta = _sifted(evaluation.delta, node.columns, guards, guarding)
        for one in guards:
            delta = delta.where(one.safe.text)
        return replace(evaluation, delta=delta)
    found: list[Expression] = []
    safe = _with_values(node, found)
    if all(one.is_column for one in found):
        return evaluate(operator, inputs, state, context)
    [delta_in], [below] = inputs, node.inputs
    assert delta_in is not None, "only joins know of empty inputs"
    sifted = _sifted(delta_in, below.columns, _guards(found), guarding)
    operator = replace(operator, node=safe)
    guarding.look_at(operator, sifted, below.columns)
    return evaluate(operator, (sifted,), state, context)


def _guards(expressions: Iterable[Expression]) -> list[Guard]:
    return [found for found in map(guard, expressions) if found is not None]


def _with_values(node: Node, found: list[Expression]) -> Node:
    """The node with the values of its expressions for rows in which nothing fails; the expressions
    themselves are added to `found`."""

    def value(expression: Expression) -> Expression:
        found.append(expression)
        guarded = guard(expression)
        return expression if guarded is None else guarded.safe

    match node:
        case Project():
            outputs = (replace(one, expression=value(one.expression)) for one in node.outputs)
            return replace(node, outputs=tuple(outputs))
        case Filter():
            return replace(node, predicate=value(node.predicate))
        case Generate():
            return replace(node, generator=value(node.generator))
        case _:
            return node


def _sifted(
    delta: DataFrame, columns: Sequence[str], guards: Sequence[Guard], guarding: Guarding
) -> DataFrame:
    """The rows in which nothing fails; of the others, what is to be known is noted."""
    if not guards:
        return delta
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
