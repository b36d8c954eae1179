"""The types of a relation's columns, as far as they can be told without a plan of all that is below."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from lockstep.sql.circuit import Operator
from lockstep.sql.plans.nodes import (
    Aggregate,
    Filter,
    MultiwayJoin,
    Project,
    TimeWindow,
    UnionAll,
    Weigh,
    Window,
)
from lockstep_engine.local.rows import Rows

__all__ = ["column_types"]

Types = Mapping[str, DataType]


def column_types(
    spark: SparkSession,
    operators: Mapping[int, Operator],
    ref: int,
    known: Callable[[int], StructType | None],
) -> Types:
    """Of those columns of a relation of which it can be told from what is `known` of some below it."""
    schema = known(ref)
    if schema is not None:
        return {field.name: field.dataType for field in schema}
    operator = operators[ref]
    below = [column_types(spark, operators, one, known) for one in operator.inputs]
    match operator.node:
        case Filter() | Weigh() | TimeWindow() | Window():
            return below[0]
        case Aggregate() as node:
            return {name: kind for name, kind in below[0].items() if name in node.keys}
        case MultiwayJoin():
            return {name: kind for one in below for name, kind in one.items()}
        case UnionAll():
            first, *others = below
            return {n: kind for n, kind in first.items() if all(o.get(n) == kind for o in others)}
        case Project() as node:
            return _projected(spark, node, below[0])
        case _:
            return {}


def _projected(spark: SparkSession, node: Project, below: Types) -> Types:
    """Columns have the type that they had; of what is computed Spark says it, which takes no job."""
    told = [one for one in node.outputs if all(name in below for name in one.expression.references)]
    found = {
        one.name: below[one.expression.references[0]] for one in told if one.expression.is_column
    }
    computed = [one for one in told if not one.expression.is_column]
    if computed:
        fields = [StructField(name, kind) for name, kind in below.items()]
        nothing = Rows.of(pa.table({name: [] for name in below}), StructType(fields))
        texts = (F.expr(one.expression.text).alias(one.name) for one in computed)
        schema = nothing.along(spark).select(*texts).schema
        found.update({field.name: field.dataType for field in schema})
    return found
