"""UNION ALL of rows that this process has."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql.types import DataType, NullType, StructField, StructType

from lockstep.sql.plans.nodes import UnionAll
from lockstep_engine.deltas import STEP, WEIGHT
from lockstep_engine.local.rows import Rows
from lockstep_engine.local.values import Unlike

__all__ = ["united"]


def united(
    node: UnionAll, changes: Mapping[int, Rows], types_of: Callable[[int], Mapping[str, DataType]]
) -> Rows:
    """The rows of those inputs that have any. `types_of` gives the types of the columns of another, as
    far as they are known, for they count as well. Raises Unlike where Spark would have to widen one."""
    silent = [types_of(place) for place in range(len(node.branches)) if place not in changes]
    schemas = [rows.schema for rows in changes.values()]
    fields = []
    for name in (*node.columns, WEIGHT, STEP):
        kinds = {schema[name].dataType for schema in schemas}
        if name in node.columns:
            kinds.update(_known(one, name) for one in silent)
        # A null without a type has that of the others.
        kinds = {kind for kind in kinds if kind != NullType()} or {NullType()}
        if len(kinds) > 1:
            raise Unlike
        is_nullable = any(schema[name].nullable for schema in schemas)
        fields.append(StructField(name, kinds.pop(), is_nullable))
    schema = StructType(fields)
    return Rows.together(
        [Rows.of(one.select(schema.names).table, schema) for one in changes.values()]
    )


def _known(types: Mapping[str, DataType], name: str) -> DataType:
    if name not in types:
        raise Unlike
    return types[name]
