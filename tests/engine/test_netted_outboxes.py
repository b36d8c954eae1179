"""Which views' changes are netted once more before they are written, and which come so."""

from __future__ import annotations

import pytest
from intervals import circuit_of
from pyspark.sql.types import DoubleType, LongType, StructType

from lockstep.sql.plans.nodes import (
    Aggregate,
    AggregateCall,
    AggregateFunction,
    Expression,
    Filter,
    Node,
    Output,
    Project,
    Scan,
)
from lockstep_engine.evaluation import _by_ref
from lockstep_engine.outboxes import _is_settled, is_consolidated

GROUPS = Aggregate(
    Scan("t", ("k", "v")), ("k",), (AggregateCall("n", AggregateFunction.COUNT, None),)
)
K, N = Expression.column("k"), Expression.column("n")
TWICE = Expression("`n` * 2", ("n",))


def outputs(**expressions: Expression) -> tuple[Output, ...]:
    return tuple(Output(name, one) for name, one in expressions.items())


@pytest.mark.parametrize(
    ("plan", "is_netted"),
    [
        (GROUPS, True),
        (Filter(GROUPS, Expression("`n` > 1", ("n",))), True),
        (Project(GROUPS, outputs(a=N, b=K)), True),
        (Project(GROUPS, outputs(a=N, b=K, c=TWICE, d=K)), True),
        (Project(GROUPS, outputs(a=K, c=TWICE)), False),
        (Project(GROUPS, outputs(n=N)), False),
        (Project(Scan("t", ("k", "v")), outputs(k=K)), False),
    ],
    ids=["groups", "some", "renamed", "more", "computed", "fewer", "rows"],
)
def test_what_tells_rows_apart_as_before_is_netted_as_before(plan: Node, is_netted: bool) -> None:
    circuit = circuit_of(plan, frozenset())
    [outbox] = circuit.outboxes
    by_ref = _by_ref(circuit)
    assert is_consolidated(by_ref[outbox.ref], by_ref) is is_netted


def test_numbers_of_floating_point_within_others_are_netted_once_more() -> None:
    """Else one zero is made of both column by column."""
    doubles, longs = StructType().add("a", DoubleType()), StructType().add("a", LongType())
    windows = StructType().add("w", doubles)
    circuit = circuit_of(Project(GROUPS, outputs(a=N, b=K)), frozenset())
    [outbox] = circuit.outboxes
    by_ref = _by_ref(circuit)
    settled = [_is_settled(by_ref[outbox.ref], by_ref, one) for one in (doubles, windows, longs)]
    assert settled == [True, False, True]
