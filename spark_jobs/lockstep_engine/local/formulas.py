"""Simple expressions over rows that this process has, with the values and types that Spark gives them.

Spark takes some milliseconds for each request, whatever it is about, and an interval has dozens of
them. What is evaluated here is only what comes out the same by the rules of both: whole numbers,
decimals, doubles but for what is no number, texts without a collation, dates and times, and truth of
three values.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    IntegralType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
)

from lockstep.sql.plans.formula_nodes import (
    Arithmetic,
    Call,
    Case,
    Column,
    Comparison,
    Constant,
    Field,
    Formula,
    In,
    IsNull,
    Like,
    Logic,
    Negation,
    Prefix,
    Remainder,
    Shift,
)
from lockstep.sql.plans.formulas import formula
from lockstep.sql.plans.nodes import Expression, Project, Values, Weigh
from lockstep_engine.deltas import STEP, WEIGHT
from lockstep_engine.local.functions import FUNCTIONS, cast, may_be_null, remainder, shifted
from lockstep_engine.local.numbers import Value, arithmetic, common, compared, of_kind, widest
from lockstep_engine.local.rows import Rows
from lockstep_engine.local.values import NOT_HERE, Unlike, has_order
from lockstep_engine.told import is_well_formed

__all__ = ["projected", "sifted", "weighed", "written"]


def sifted(rows: Rows, conditions: Sequence[Expression]) -> tuple[Rows, Sequence[Expression]]:
    """The rows for which those of the conditions are true that can be evaluated here and before which
    none stands that cannot be; and the conditions that are left."""
    for place, condition in enumerate(conditions):
        found = _evaluated(condition, rows)
        if found is None or not isinstance(found.kind, BooleanType):
            return rows, conditions[place:]
        rows = rows.where(pc.fill_null(found.column(len(rows)), False))
    return rows, ()


def projected(rows: Rows, node: Project) -> Rows | None:
    """The columns that a projection makes, `_weight` and `_step`; None where Spark is to make one."""
    arrays, fields = [], []
    for output in node.outputs:
        found = _evaluated(output.expression, rows)
        if found is None:
            return None
        arrays.append(found.column(len(rows)))
        fields.append(StructField(output.name, found.kind, found.nullable))
    for name in (WEIGHT, STEP):
        arrays.append(rows.table[name])
        fields.append(rows.schema[name])
    schema = StructType(fields)
    return Rows(pa.Table.from_arrays(arrays, schema=to_arrow_schema(schema)), schema)


def weighed(rows: Rows, node: Weigh) -> Rows | None:
    """Each row as often as the node says, with `_weight` and `_step`; where rows say how often, without
    those that say 0. None where Spark is to say it."""
    found = _evaluated(node.weight, rows)
    if found is None or not isinstance(found.kind, IntegralType):
        return None
    times = found.column(len(rows)).cast(pa.int64())
    try:
        weights = pc.multiply_checked(rows.table[WEIGHT], times)
    except pa.ArrowInvalid:
        return None
    made = rows.select([*node.columns, WEIGHT, STEP])
    schema = StructType(
        [
            StructField(WEIGHT, LongType(), one.nullable or found.nullable)
            if one.name == WEIGHT
            else one
            for one in made.schema
        ]
    )
    columns = [weights if name == WEIGHT else made.table[name] for name in schema.names]
    made = Rows(pa.Table.from_arrays(columns, schema=to_arrow_schema(schema)), schema)
    return made.where(pc.not_equal(weights, 0)) if node.weight.references else made


def written(node: Values) -> Rows | None:
    """The rows that stand in a query, with `_weight`; None where Spark is to say what they are."""
    none = Rows(pa.table({}), StructType())
    fields, columns = [], []
    for name, *cells in zip(node.columns, *node.rows, strict=True):
        found = [_evaluated(cell, none) for cell in cells]
        values = [one for one in found if one is not None and isinstance(one.data, pa.Scalar)]
        kinds = {one.kind for one in values} - {NullType()}
        if len(values) < len(cells) or len(kinds) != 1:
            return None  # of several types Spark makes one
        [kind] = kinds
        columns.append(pa.array([one.data.as_py() for one in values], to_arrow_type(kind)))
        fields.append(StructField(name, kind, any(one.nullable for one in values)))
    schema = StructType(fields)
    rows = Rows(pa.Table.from_arrays(columns, schema=to_arrow_schema(schema)), schema)
    return rows.with_number(WEIGHT, 1)


def _evaluated(expression: Expression, rows: Rows) -> Value | None:
    """The expression's values; None where Spark is to say them."""
    if expression.is_column:
        return _of_column(expression.references[0], rows)
    tree = formula(expression)
    if tree is None:
        return None
    try:
        return _value(tree, rows)
    except (*NOT_HERE, RecursionError):
        return None


def _of_column(name: str, rows: Rows) -> Value:
    field = rows.schema[name]
    return Value(rows.table[name], field.dataType, field.nullable)


def _value(tree: Formula, rows: Rows) -> Value:
    match tree:
        case Column(name):
            return _of_column(name, rows)
        case Constant(value, is_cast, is_long):
            kind = LongType() if is_long else _kind_of(value)
            written = not is_cast and not is_long
            return Value(pa.scalar(value, to_arrow_type(kind)), kind, value is None, written)
        case Arithmetic(sign, left, right):
            return arithmetic(sign, *_sides(left, right, rows))
        case Comparison(sign, left, right):
            return compared(sign, *_sides(left, right, rows))
        case In(of, listed):
            return _in(_value(of, rows), [_value(one, rows) for one in listed])
        case IsNull(of):
            return Value(pc.is_null(_value(of, rows).data), BooleanType(), False)
        case Like(of, pattern):
            text = of_kind(_value(of, rows), StringType())
            if not is_well_formed(text.data):
                raise Unlike
            return Value(pc.match_like(text.data, pattern), BooleanType(), text.nullable)
        case Logic(sign, left, right):
            sides = [of_kind(_value(side, rows), BooleanType()) for side in (left, right)]
            both = (pc.and_kleene if sign == "AND" else pc.or_kleene)(*(one.data for one in sides))
            return Value(both, BooleanType(), any(one.nullable for one in sides))
        case Negation(of):
            negated = of_kind(_value(of, rows), BooleanType())
            return Value(pc.invert(negated.data), BooleanType(), negated.nullable)
        case Case():
            return _case(tree, rows)
        case _:
            return _called(tree, rows)


def _called(tree: Call | Shift | Remainder | Field | Prefix, rows: Rows) -> Value:
    match tree:
        case Call("cast", of, (to,)):
            return cast(_column_of(of, rows), str(to))
        case Call("coalesce", of, _, others):
            return _coalesced([_value(one, rows) for one in (of, *others)])
        case Call("concat", of, _, others):
            return _concatenated([_value(one, rows) for one in (of, *others)])
        case Call(function, of, given):
            called = _column_of(of, rows)
            made, kind = FUNCTIONS[function](called.data, called.kind, *given)
            return Value(made, kind, called.nullable or may_be_null(function, called.kind))
        case Shift(of, microseconds):
            time = _column_of(of, rows)
            return Value(shifted(time.data, time.kind, microseconds), time.kind, time.nullable)
        case Remainder(of, by):
            whole = _column_of(of, rows)
            if not isinstance(whole.kind, IntegralType):
                raise Unlike
            kind = widest([whole.kind, IntegerType()])
            return Value(remainder(whole.cast(kind), by), kind, True)
        case Field(column, name):
            return _field(_of_column(column, rows), name)
        case Prefix(of, length):
            text = of_kind(_value(of, rows), StringType())
            if not is_well_formed(text.data):
                raise Unlike
            start = pc.utf8_slice_codeunits(text.data, 0, length)
            return Value(start, StringType(), text.nullable)


def _column_of(of: Formula, rows: Rows) -> Value:
    """Raises Unlike for what is the same of all rows."""
    value = _value(of, rows)
    if isinstance(value.data, pa.Scalar):
        raise Unlike
    return value


def _field(column: Value, name: str) -> Value:
    if not isinstance(column.kind, StructType) or column.data.null_count:
        raise Unlike
    names = [one.lower() for one in column.kind.names]
    if names.count(name.lower()) != 1:
        raise Unlike
    place = names.index(name.lower())
    found = column.kind.fields[place]
    data = pc.struct_field(column.data, place)
    return Value(data, found.dataType, column.nullable or found.nullable)


def _kind_of(value: object) -> DataType:
    """The type of a literal."""
    match value:
        case bool():
            return BooleanType()
        case int():
            return IntegerType()
        case Decimal():
            _, digits, exponent = value.as_tuple()
            scale = -int(exponent)
            return DecimalType(max(len(digits), scale), scale)
        case str():
            return StringType()
        case datetime.date():
            return DateType()
        case None:
            return NullType()
        case _:
            raise Unlike


def _sides(left: Formula, right: Formula, rows: Rows) -> tuple[Value, Value]:
    """Raises Unlike for constants of two types, which Spark computes before it has settled these."""
    sides = _value(left, rows), _value(right, rows)
    are_constants = all(isinstance(side.data, pa.Scalar) for side in sides)
    if are_constants and type(sides[0].kind) is not type(sides[1].kind):
        raise Unlike
    return sides


def _in(value: Value, listed: Sequence[Value]) -> Value:
    every = [value, *listed]
    if DoubleType() in [one.kind for one in listed] and value.kind != DoubleType():
        raise Unlike  # as which Spark then compares it with the others, too
    if any(isinstance(one.kind, DecimalType) for one in every):
        common(every)  # by which all are compared: that it has digits enough
    found = reduce(pc.or_kleene, (compared("=", value, one).data for one in listed))
    return Value(found, BooleanType(), any(one.nullable for one in every))


def _case(tree: Case, rows: Rows) -> Value:
    values = [_value(value, rows) for _, value in tree.branches]
    if tree.default is not None:
        values.append(_value(tree.default, rows))
    kinds = [value.kind for value in values]
    kind = kinds[0] if all(one == kinds[0] for one in kinds) else common(values)
    if not has_order(kind):
        raise Unlike
    nullable = tree.default is None or any(value.nullable for value in values)
    found: Any = pa.scalar(None, to_arrow_type(kind))
    if tree.default is not None:
        found = values.pop().cast(kind)
    for (condition, _), value in zip(tree.branches[::-1], values[::-1], strict=True):
        is_true = pc.fill_null(of_kind(_value(condition, rows), BooleanType()).data, False)
        found = pc.if_else(is_true, value.cast(kind), found)
    return Value(found, kind, nullable)


def _coalesced(values: Sequence[Value]) -> Value:
    """The first that is there."""
    kinds = [value.kind for value in values]
    kind = kinds[0] if all(one == kinds[0] for one in kinds) else common(values)
    _check_not_all_constants(values)
    if not has_order(kind):
        raise Unlike
    found = pc.coalesce(*(value.cast(kind) for value in values))
    return Value(found, kind, all(value.nullable for value in values))


def _concatenated(values: Sequence[Value]) -> Value:
    """Texts, one after the other; null where one is."""
    _check_not_all_constants(values)
    texts = [of_kind(value, StringType()).data for value in values]
    found = pc.binary_join_element_wise(*texts, "", null_handling="emit_null")
    return Value(found, StringType(), any(value.nullable for value in values))


def _check_not_all_constants(values: Sequence[Value]) -> None:
    """Raises Unlike where nothing is of a row, which Spark computes once."""
    if all(isinstance(value.data, pa.Scalar) for value in values):
        raise Unlike
