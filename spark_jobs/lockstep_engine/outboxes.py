"""A view's change as its outbox has it: each row of a step once, and what is taken back as it was given.

Rows that are equal need not have the same bits: -0.0 is 0.0. Traces have one of the two, by which a row
is taken back that was given as the other: to a sink of texts these are two rows. So where rows may be
taken back, all are given with one zero and one NaN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql.types import DoubleType, FloatType, StructType

from lockstep.sql.circuit import Operator
from lockstep.sql.plans.nodes import (
    Aggregate,
    Filter,
    Node,
    Project,
    SessionGroups,
    Upsert,
    Window,
)
from lockstep_engine.deltas import STEP, WEIGHT, consolidate, normalized, quoted
from lockstep_engine.local.changes import consolidated, is_netted
from lockstep_engine.local.rows import Rows
from lockstep_engine.local.values import NOT_HERE, is_exact

__all__ = ["is_consolidated", "settled", "settled_here", "under_names"]

_Operators = Mapping[int, Operator]


def settled_here(operator: Operator, by_ref: _Operators, rows: Rows) -> Rows | None:
    """The change of an operator, as this process has it; None where Spark is to net it."""
    if operator.append_only or is_netted(rows):
        return rows
    if _is_settled(operator, by_ref, rows.schema):
        return rows.normalized()
    try:
        return consolidated(rows, operator.node.columns)
    except NOT_HERE:
        return None


def settled(operator: Operator, by_ref: _Operators, delta: DataFrame) -> DataFrame:
    """The change of an operator."""
    if operator.append_only:
        return delta
    if _is_settled(operator, by_ref, delta.schema):
        return normalized(delta, delta.schema)
    return consolidate(delta, operator.node.columns)


def under_names(
    rows: DataFrame | Rows, columns: Sequence[str], names: Sequence[str]
) -> DataFrame | Rows:
    """The columns under other names, `_weight` and `_step`."""
    if isinstance(rows, Rows):
        return rows.renamed({**dict(zip(names, columns, strict=True)), WEIGHT: WEIGHT, STEP: STEP})
    pairs = zip(columns, names, strict=True)
    renamed = (f"{quoted(column)} AS {quoted(name)}" for column, name in pairs)
    return rows.selectExpr(*renamed, WEIGHT, STEP)


def _is_settled(operator: Operator, by_ref: _Operators, schema: StructType) -> bool:
    """Whether nothing can cancel, and what is equal can be made the same column by column."""
    are_simple = all(
        isinstance(field.dataType, DoubleType | FloatType) or is_exact(field.dataType)
        for field in schema
    )
    return are_simple and is_consolidated(operator, by_ref)


def is_consolidated(operator: Operator, by_ref: Mapping[int, Operator]) -> bool:
    """True where nothing in the delta can cancel: append-only rows (equal ones may stand as several
    rows, which is the same Z-set without a shuffle), and the output of an operator that nets it, also
    under other names and with more columns."""
    if operator.append_only or isinstance(
        operator.node, Aggregate | SessionGroups | Window | Upsert
    ):
        return True
    if isinstance(operator.node, Filter) or _keeps_all(operator.node):
        return is_consolidated(by_ref[operator.inputs[0]], by_ref)
    return False


def _keeps_all(node: Node) -> bool:
    """Whether rows that differ before still do so."""
    if not isinstance(node, Project):
        return False
    kept = (one.expression.references for one in node.outputs if one.expression.is_column)
    return {name for [name] in kept}.issuperset(node.input.columns)
