"""Simple expressions over rows that this process has, with the values and types that Spark gives them.

Spark takes some milliseconds for each request, whatever it is about, and an interval has dozens of
them. What is evaluated here is only what comes out the same by the rules of both: whole numbers,
decimals, texts without a collation, dates and times, and truth of three values; no floating point.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from functools import reduce
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    IntegralType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from lockstep.sql.plans.digits import LEAST_SCALE, MOST_DIGITS, WHOLE, bounded, exact_result, of_all
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
    Year,
)
from lockstep.sql.plans.formulas import formula
from lockstep.sql.plans.nodes import Expression, Project
from lockstep_engine.deltas import STEP, WEIGHT
from lockstep_engine.local.functions import FUNCTIONS, remainder, shifted
from lockstep_engine.local.rows import Rows
from lockstep_engine.local.values import Unlike, is_exact
from lockstep_engine.told import is_well_formed

__all__ = ["decimal_of_both", "projected", "sifted"]

MOST_DIVIDED = 5_000
"""So many rows are divided here, one by one."""
_DIGITS: Mapping[type[DataType], int] = MappingProxyType(
    {kind: WHOLE[kind().simpleString()] for kind in (ByteType, ShortType, IntegerType, LongType)}
)
"""Of the decimals that Spark makes of whole numbers."""

_EARLIEST, _LATEST = -719_162, 2_932_896
"""Days of the years 1 to 9999: Arrow's calendar has no years of more than two bytes."""

_COMPARED: Mapping[str, Callable[[Any, Any], Any]] = MappingProxyType(
    {
        "=": pc.equal,
        "<>": pc.not_equal,
        "<": pc.less,
        "<=": pc.less_equal,
        ">": pc.greater,
        ">=": pc.greater_equal,
    }
)
_WHOLE: Mapping[str, Callable[[Any, Any], Any]] = MappingProxyType(
    {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked}
)


@dataclass(frozen=True)
class _Value:
    """Of each row, or the same of all: then `data` is a scalar. `is_written`: it is a literal."""

    data: pa.ChunkedArray | pa.Scalar
    kind: DataType
    nullable: bool
    is_written: bool = False

    def column(self, size: int) -> pa.ChunkedArray:
        """One value for each of so many rows."""
        if isinstance(self.data, pa.Scalar):
            return pa.chunked_array([pa.repeat(self.data, size)])
        return self.data

    @property
    def digits(self) -> tuple[int, int]:
        """Precision and scale of the decimal that Spark makes of it."""
        if isinstance(self.kind, DecimalType):
            return self.kind.precision, self.kind.scale
        if not isinstance(self.kind, IntegralType):
            raise Unlike
        if self.is_written:
            return len(str(abs(self.data.as_py()))), 0
        return _DIGITS[type(self.kind)], 0

    @property
    def may_be_null(self) -> bool:
        """As Spark sees it beside a decimal: also of a whole number that is given as few digits as it
        is written with."""
        return self.nullable or (self.is_written and isinstance(self.kind, IntegralType))

    def cast(self, kind: DataType) -> pa.ChunkedArray | pa.Scalar:
        """As a value of a wider type. Raises Unlike where it does not fit."""
        wide = to_arrow_type(kind)
        try:
            if self.is_written and isinstance(kind, DecimalType):
                return pa.scalar(Decimal(self.data.as_py()), wide)
            return self.data.cast(wide)
        except pa.ArrowInvalid as error:
            raise Unlike from error


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


def _evaluated(expression: Expression, rows: Rows) -> _Value | None:
    """The expression's values; None where Spark is to say them."""
    if expression.is_column:
        return _of_column(expression.references[0], rows)
    tree = formula(expression)
    if tree is None:
        return None
    try:
        return _value(tree, rows)
    except (Unlike, pa.ArrowInvalid, pa.ArrowNotImplementedError, RecursionError):
        return None


def _of_column(name: str, rows: Rows) -> _Value:
    field = rows.schema[name]
    return _Value(rows.table[name], field.dataType, field.nullable)


def _value(tree: Formula, rows: Rows) -> _Value:
    match tree:
        case Column(name):
            return _of_column(name, rows)
        case Constant(value, is_cast):
            kind = _kind_of(value)
            return _Value(
                pa.scalar(value, to_arrow_type(kind)), kind, False, is_written=not is_cast
            )
        case Arithmetic(sign, left, right):
            return _arithmetic(sign, *_sides(left, right, rows))
        case Comparison(sign, left, right):
            return _compared(sign, *_sides(left, right, rows))
        case In(of, listed):
            return _in(_value(of, rows), [_value(one, rows) for one in listed])
        case IsNull(of):
            return _Value(pc.is_null(_value(of, rows).data), BooleanType(), False)
        case Like(of, pattern):
            text = _of_kind(_value(of, rows), StringType())
            if not is_well_formed(text.data):
                raise Unlike
            return _Value(pc.match_like(text.data, pattern), BooleanType(), text.nullable)
        case Logic(sign, left, right):
            sides = [_of_kind(_value(side, rows), BooleanType()) for side in (left, right)]
            both = (pc.and_kleene if sign == "AND" else pc.or_kleene)(*(one.data for one in sides))
            return _Value(both, BooleanType(), any(one.nullable for one in sides))
        case Negation(of):
            negated = _of_kind(_value(of, rows), BooleanType())
            return _Value(pc.invert(negated.data), BooleanType(), negated.nullable)
        case Case():
            return _case(tree, rows)
        case _:
            return _called(tree, rows)


def _called(tree: Year | Call | Shift | Remainder | Field | Prefix, rows: Rows) -> _Value:
    match tree:
        case Year(of):
            return _year(_of_kind(_value(of, rows), DateType()))
        case Call(function, of, given):
            called = _column_of(of, rows)
            return _Value(*FUNCTIONS[function](called.data, called.kind, *given), called.nullable)
        case Shift(of, microseconds):
            time = _column_of(of, rows)
            return _Value(shifted(time.data, time.kind, microseconds), time.kind, time.nullable)
        case Remainder(of, by):
            whole = _column_of(of, rows)
            if not isinstance(whole.kind, IntegralType):
                raise Unlike
            kind = _widest([whole.kind, IntegerType()])
            return _Value(remainder(whole.cast(kind), by), kind, True)
        case Field(column, name):
            return _field(_of_column(column, rows), name)
        case Prefix(of, length):
            text = _of_kind(_value(of, rows), StringType())
            start = pc.utf8_slice_codeunits(text.data, 0, length)
            return _Value(start, StringType(), text.nullable)


def _column_of(of: Formula, rows: Rows) -> _Value:
    """Raises Unlike for what is the same of all rows."""
    value = _value(of, rows)
    if isinstance(value.data, pa.Scalar):
        raise Unlike
    return value


def _field(column: _Value, name: str) -> _Value:
    if not isinstance(column.kind, StructType) or column.data.null_count:
        raise Unlike
    names = [one.lower() for one in column.kind.names]
    if names.count(name.lower()) != 1:
        raise Unlike
    place = names.index(name.lower())
    found = column.kind.fields[place]
    data = pc.struct_field(column.data, place)
    return _Value(data, found.dataType, column.nullable or found.nullable)


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
        case _:
            raise Unlike


def _sides(left: Formula, right: Formula, rows: Rows) -> tuple[_Value, _Value]:
    """Raises Unlike for constants of two types, which Spark computes before it has settled these."""
    sides = _value(left, rows), _value(right, rows)
    are_constants = all(isinstance(side.data, pa.Scalar) for side in sides)
    if are_constants and type(sides[0].kind) is not type(sides[1].kind):
        raise Unlike
    return sides


def _of_kind(value: _Value, kind: DataType) -> _Value:
    if value.kind != kind:
        raise Unlike
    return value


def _widest(kinds: Sequence[DataType]) -> DataType:
    """Of kinds of whole numbers."""
    return max(kinds, key=lambda kind: _DIGITS[type(kind)])


def _arithmetic(sign: str, left: _Value, right: _Value) -> _Value:
    if sign == "/":
        return _divided(left, right)
    if isinstance(left.kind, IntegralType) and isinstance(right.kind, IntegralType):
        kind = _widest([left.kind, right.kind])
        made = _WHOLE[sign](left.cast(kind), right.cast(kind))
        return _Value(made, kind, left.nullable or right.nullable)
    precision, scale = exact_result(sign, left.digits, right.digits)
    decimal = DecimalType(*bounded((precision, scale)))
    may_be_null = left.may_be_null or right.may_be_null
    ours_as, theirs_as = DecimalType(*left.digits), DecimalType(*right.digits)
    if precision <= MOST_DIGITS:
        exact = _WHOLE[sign](left.cast(ours_as), right.cast(theirs_as))
    else:
        wide = [
            side.cast(kind).cast(pa.decimal256(kind.precision, kind.scale))
            for side, kind in ((left, ours_as), (right, theirs_as))
        ]
        # Of more digits than this Spark would leave some out before it rounds.
        exact = _WHOLE[sign](*wide).cast(pa.decimal128(MOST_DIGITS, scale))
    found = _Value(exact, DecimalType(min(precision, MOST_DIGITS), scale), may_be_null)
    return _Value(_rounded(found, decimal), decimal, may_be_null)


def _divided(left: _Value, right: _Value) -> _Value:
    """Decimals, rounded half up."""
    if all(isinstance(side.kind, IntegralType) for side in (left, right)):
        raise Unlike
    data = left.data, right.data
    if max(1 if isinstance(one, pa.Scalar) else len(one) for one in data) > MOST_DIVIDED:
        raise Unlike
    (ours, our_scale), (theirs, their_scale) = left.digits, right.digits
    scale = max(LEAST_SCALE, our_scale + theirs + 1)
    kind = DecimalType(*bounded((ours - our_scale + their_scale + scale, scale)))
    sizes = [len(one) for one in data if not isinstance(one, pa.Scalar)]
    columns = [_unscaled(one, sizes[0] if sizes else 1) for one in (left, right)]
    shift = kind.scale + their_scale - our_scale
    above_by, below_by = 10 ** max(shift, 0), 10 ** max(-shift, 0)
    made = list[int | None]()
    for above, below in zip(*columns, strict=True):
        if below == 0:
            raise Unlike
        if above is None or below is None:
            made.append(None)
            continue
        made.append(_half_up(above * above_by, below * below_by))
    if any(one is not None and abs(one) >= 10**kind.precision for one in made):
        raise Unlike
    exact = Context(prec=MOST_DIGITS)
    decimals = [None if one is None else Decimal(one).scaleb(-kind.scale, exact) for one in made]
    column = pa.chunked_array([pa.array(decimals, to_arrow_type(kind))])
    return _Value(column if sizes else column[0], kind, True)


def _unscaled(value: _Value, size: int) -> list[int | None]:
    """Its decimals as whole numbers, without the point."""
    precision, scale = value.digits
    one = replace(value, data=value.cast(DecimalType(precision, scale)))
    exact = Context(prec=MOST_DIGITS)
    return [
        None if found is None else int(found.scaleb(scale, exact))
        for found in one.column(size).to_pylist()
    ]


def _half_up(above: int, below: int) -> int:
    """The quotient, rounded to the nearest, and away from 0 where two are."""
    negative = (above < 0) != (below < 0)
    rounded = (2 * abs(above) + abs(below)) // (2 * abs(below))
    return -rounded if negative else rounded


def _common(values: Sequence[_Value]) -> DataType:
    """The type in which Spark has several numbers; literals are as wide as their type."""
    kinds = [value.kind for value in values]
    if all(isinstance(kind, IntegralType) for kind in kinds):
        return _widest(kinds)
    return _decimal([replace(value, is_written=False).digits for value in values])


def _decimal(digits: Sequence[tuple[int, int]]) -> DataType:
    """The decimal that holds all values of decimals with these digits."""
    precision, scale = of_all(digits)
    if precision > MOST_DIGITS:
        raise Unlike
    return DecimalType(precision, scale)


def _compared(sign: str, left: _Value, right: _Value) -> _Value:
    kinds = left.kind, right.kind
    nullable = left.nullable or right.nullable
    if all(isinstance(kind, IntegralType) for kind in kinds):
        common: DataType = LongType()
    elif all(isinstance(kind, IntegralType | DecimalType) for kind in kinds):
        common = decimal_of_both(left.digits, right.digits)
        if any(isinstance(kind, IntegralType) for kind in kinds):
            _check_is_near((left, right), common)
        nullable = left.may_be_null or right.may_be_null
    elif kinds[0] == kinds[1] and is_exact(kinds[0]):
        common = kinds[0]
    else:
        raise Unlike
    found = _COMPARED[sign](_rounded(left, common), _rounded(right, common))
    return _Value(found, BooleanType(), nullable)


def _check_is_near(sides: Sequence[_Value], common: DecimalType) -> None:
    """Spark compares whole numbers with the whole one next to a decimal that is written, which is the
    same where no digit of it is lost, and if there is such a bigint. Raises Unlike otherwise."""
    for side in sides:
        kind = side.kind
        if side.is_written and isinstance(kind, DecimalType):
            is_far = abs(side.data.as_py()) >= 1 << 63
            if is_far or kind.scale > common.scale:
                raise Unlike


def decimal_of_both(*digits: tuple[int, int]) -> DecimalType:
    """The decimal as which Spark compares two: where it had too many digits, without the last ones."""
    precision, scale = of_all(digits)
    over = max(0, precision - MOST_DIGITS)
    return DecimalType(precision - over, max(0, scale - over))


def _rounded(value: _Value, kind: DataType) -> pa.ChunkedArray | pa.Scalar:
    """As a value of another type, which may have fewer digits after the point."""
    if isinstance(kind, DecimalType) and value.digits[1] > kind.scale:
        # Of one that has no digit to spare Arrow (26) makes 0 where it has to round it up.
        precision, scale = value.digits
        spare = value.data.cast(pa.decimal256(precision + 1, scale))
        data = pc.round(spare, kind.scale, round_mode="half_towards_infinity")
        value = replace(value, data=data)
    return value.cast(kind)


def _in(value: _Value, listed: Sequence[_Value]) -> _Value:
    every = [value, *listed]
    if any(isinstance(one.kind, DecimalType) for one in every):
        _common(every)  # by which all are compared: that it has digits enough
    found = reduce(pc.or_kleene, (_compared("=", value, one).data for one in listed))
    return _Value(found, BooleanType(), any(one.nullable for one in every))


def _case(tree: Case, rows: Rows) -> _Value:
    values = [_value(value, rows) for _, value in tree.branches]
    if tree.default is not None:
        values.append(_value(tree.default, rows))
    kinds = [value.kind for value in values]
    kind = kinds[0] if all(one == kinds[0] for one in kinds) else _common(values)
    if not is_exact(kind):
        raise Unlike
    nullable = tree.default is None or any(value.nullable for value in values)
    found: Any = pa.scalar(None, to_arrow_type(kind))
    if tree.default is not None:
        found = values.pop().cast(kind)
    for (condition, _), value in zip(tree.branches[::-1], values[::-1], strict=True):
        is_true = pc.fill_null(_of_kind(_value(condition, rows), BooleanType()).data, False)
        found = pc.if_else(is_true, value.cast(kind), found)
    return _Value(found, kind, nullable)


def _year(date: _Value) -> _Value:
    if isinstance(date.data, pa.Scalar):
        raise Unlike
    days = pc.min_max(date.data.cast(pa.int32()))
    low, high = days["min"].as_py(), days["max"].as_py()
    if low is not None and (low < _EARLIEST or high > _LATEST):
        raise Unlike
    return _Value(pc.year(date.data).cast(pa.int32()), IntegerType(), date.nullable)
