"""Every operator maps a delta with many steps to a delta with many steps.

The law that each is tested by: for any input, any division of it into steps and any division of the
steps into intervals, the sum of the emitted deltas up to step t is the query on the sum of the
inputs up to t. With Δ the delta of an interval and S the state before it, an operator is a pure
function from (S, Δ) to (emitted delta, appends to S); the driver owns steps, versions and tables.

Asked of the caller, and not checked, as checking would cost a pass over the data: weights are not
0, the integral of an input never has a row of negative weight at the end of a step, and the state
is exactly the sum of all appends of the earlier intervals.
"""

from __future__ import annotations

from typing import assert_never

from lockstep.sql.circuit import Operator
from lockstep.sql.plans.nodes import (
    Aggregate,
    Filter,
    Generate,
    Join,
    MultiwayJoin,
    Project,
    Recursive,
    Scan,
    SessionGroups,
    Temporal,
    TimeWindow,
    UnionAll,
    Upsert,
    Values,
    Watermark,
    Weigh,
    Window,
)
from lockstep_engine.context import Context
from lockstep_engine.operators.aggregate import aggregate
from lockstep_engine.operators.evaluated import Deltas, Evaluation, State
from lockstep_engine.operators.guarded import evaluate_guarded
from lockstep_engine.operators.join import join
from lockstep_engine.operators.linear import (
    add_window,
    filter_rows,
    generate,
    project,
    union_all,
    weigh,
)
from lockstep_engine.operators.recursive import recursive
from lockstep_engine.operators.sessions import sessions
from lockstep_engine.operators.temporal import temporal
from lockstep_engine.operators.upsert import upsert
from lockstep_engine.operators.window import window

__all__ = ["Context", "Deltas", "Evaluation", "State", "evaluate"]


def evaluate(operator: Operator, inputs: Deltas, state: State, context: Context) -> Evaluation:
    """The delta of one operator and its appends, as frames that have not run yet (but a recursion's).

    `inputs` are the deltas of `operator.inputs`: columns, `_weight bigint`, `_step bigint`; None is a
    delta that is known to be empty: for a join or a recursion, and not for all of its inputs, or for a
    temporal filter of which rows wait. Raises WrongUse for a type that an aggregate is not defined on,
    or for rows beyond a recursion's limit.
    """
    if context.guarding is not None:
        return evaluate_guarded(operator, inputs, state, context, _evaluate)
    return _evaluate(operator, inputs, state, context)


def _evaluate(operator: Operator, inputs: Deltas, state: State, context: Context) -> Evaluation:
    node = operator.node
    deltas = tuple(delta for delta in inputs if delta is not None)
    knows_empty = isinstance(node, MultiwayJoin | Recursive | Temporal)
    assert knows_empty or len(deltas) == len(inputs), "an empty union has types, too"
    match node:
        case Scan() | Values() | Watermark():
            raise ValueError("the driver reads what has no input, and looks at watermarks itself")
        case Join():
            raise ValueError("joins of two are merged into multiway joins before")
        case Project():
            return Evaluation(project(node, deltas[0]))
        case Filter():
            return Evaluation(filter_rows(node, deltas[0]))
        case TimeWindow():
            return Evaluation(add_window(node, deltas[0]))
        case Generate():
            return Evaluation(generate(node, deltas[0]))
        case Weigh():
            return Evaluation(weigh(node, deltas[0]))
        case UnionAll():
            return Evaluation(union_all(deltas))
        case MultiwayJoin():
            return join(operator, node, inputs, state, context)
        case Temporal():
            return temporal(operator, node, inputs[0], state, context)
        case Aggregate():
            return aggregate(operator, node, deltas[0], state, context)
        case SessionGroups():
            return sessions(operator, node, deltas[0], state, context)
        case Window():
            return window(operator, node, deltas[0], state, context)
        case Upsert():
            return upsert(operator, node, deltas[0], state, context)
        case Recursive():
            return recursive(operator, node, inputs, state, context, evaluate)
        case _:
            assert_never(node)
