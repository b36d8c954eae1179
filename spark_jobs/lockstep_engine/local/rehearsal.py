"""Whether this process can work a circuit out, by the types that sources declare: each operator is tried
on a row of nulls.

What is left are values: a sum that overflows, a text that is not UTF-8.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType, StructField, StructType

from lockstep.sql.circuit import Circuit, Operator
from lockstep.sql.plans.nodes import (
    CHANGE_COLUMNS,
    Aggregate,
    MultiwayJoin,
    Scan,
    UnionAll,
    Upsert,
    Values,
)
from lockstep_engine.deltas import STEP, WEIGHT
from lockstep_engine.local.aggregate import aggregated, is_aggregated
from lockstep_engine.local.formulas import written
from lockstep_engine.local.framed import framed, is_framed
from lockstep_engine.local.join import joined
from lockstep_engine.local.linear import Sifted, is_linear, made_here, windows_of
from lockstep_engine.local.rows import Rows, has_lists
from lockstep_engine.local.sessions import are_sessions, sessions
from lockstep_engine.local.union import united
from lockstep_engine.local.upsert import upserted
from lockstep_engine.local.values import NOT_HERE, Unlike, are_exact
from lockstep_engine.local.window import first_rows, is_bounded
from lockstep_engine.reading import unread_times

__all__ = ["can_be_worked_out"]


class _NoSpark:
    """Whoever asks it for anything is left to Spark."""

    def __getattr__(self, name: str) -> object:
        raise Unlike


def can_be_worked_out(circuit: Circuit, declared: Mapping[str, StructType]) -> bool:
    """`declared` are the columns of the sources, by their lower-case names. A process tries each circuit
    once: one of many views takes longer than few rows do."""
    return _can_be(circuit, *declared.items())


@lru_cache(maxsize=64)
def _can_be(circuit: Circuit, *columns: tuple[str, StructType]) -> bool:
    declared = dict(columns)
    schemas, by_pane = dict[int, StructType](), unread_times(circuit)
    try:
        for operator in circuit.operators:
            if isinstance(operator.node, Scan):
                of = declared[operator.node.source]
                schemas[operator.ref] = StructType([of[name] for name in operator.node.columns])
            else:
                inputs = [schemas[ref] for ref in operator.inputs]
                schemas[operator.ref] = _tried(operator, inputs, by_pane)
    except (*NOT_HERE, PySparkException):
        # The last: a type that Arrow has not.
        return False
    return not any(
        has_lists(field.dataType) for one in circuit.outboxes for field in schemas[one.ref]
    )


def _tried(
    operator: Operator, inputs: Sequence[StructType], by_pane: Collection[int]
) -> StructType:
    """The columns that an operator gives. Raises Unlike where Spark has to, or may have to of many rows:
    where each is in several windows, unless they are netted first."""
    rows, node = [_row_of_nulls(one) for one in inputs], operator.node
    if isinstance(node, Values):
        known = written(node)
        return _judged(None if known is None else Sifted(known))
    if is_linear(operator):
        found, above = made_here(Sifted(rows[0]), [operator], by_pane)
        is_netted = operator.ref in by_pane and are_exact([one.dataType for one in inputs[0]])
        if above or (windows_of(operator) > 1 and not is_netted):
            raise Unlike
        return _judged(found)
    if any(has_lists(field.dataType) for one in inputs for field in one):
        raise Unlike
    changes = dict(enumerate(rows))
    if isinstance(node, MultiwayJoin):
        return _judged(joined(node, changes, {}))
    if isinstance(node, UnionAll):
        return united(node, changes, lambda _: {}).schema
    if is_bounded(operator):
        return _judged(first_rows(operator, rows[0]).delta)
    if is_framed(operator):
        return _judged(framed(operator, rows[0]).delta)
    if isinstance(node, Upsert):
        return _judged(upserted(operator, _of_a_record(rows[0]), {}).delta)
    if are_sessions(operator):
        return _judged(sessions(operator, rows[0], {}).delta)
    if isinstance(node, Aggregate) and is_aggregated(operator):
        return _judged(aggregated(_NoSpark(), operator, rows[0], {}).delta)  # type: ignore[arg-type]
    raise Unlike


def _judged(found: Sifted | None) -> StructType:
    rows, left = (None, ()) if found is None else found.without_those_left_out()
    if rows is None or left:
        raise Unlike
    return rows.schema


def _row_of_nulls(schema: StructType) -> Rows:
    """But for `_weight` and `_step`."""
    fields = [
        StructField(one.name, one.dataType) for one in schema if one.name not in (WEIGHT, STEP)
    ]
    table = pa.table([_null(one.dataType) for one in fields], [one.name for one in fields])
    rows = Rows.of(table, StructType(fields))
    return rows.with_number(WEIGHT, 1).with_number(STEP, 0)


def _of_a_record(rows: Rows) -> Rows:
    """What is never null: where records lie, and what becomes of their keys."""
    table = rows.table
    for name in CHANGE_COLUMNS:
        place = table.column_names.index(name)
        zero = pa.scalar(0).cast(table.schema.field(name).type)
        table = table.set_column(place, table.schema.field(name), pc.fill_null(table[name], zero))
    return Rows(table, rows.schema)


def _null(kind: DataType) -> pa.Array:
    """A struct of nulls is none: what has been made of a row is there."""
    if isinstance(kind, StructType):
        names = [one.name for one in kind]
        return pa.StructArray.from_arrays([_null(one.dataType) for one in kind], names)
    return pa.nulls(1, to_arrow_type(kind))
