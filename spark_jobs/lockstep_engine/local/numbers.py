"""Values of rows that this process has: what numbers come to, and how values compare, as in Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    IntegerType,
    IntegralType,
    LongType,
    ShortType,
)

from lockstep.sql.plans.digits import LEAST_SCALE, MOST_DIGITS, WHOLE, bounded, exact_result, of_all
from lockstep_engine.local.values import Unlike, is_exact

__all__ = ["Value", "arithmetic", "common", "compared", "decimal_of_both", "of_kind", "widest"]

MOST_DIVIDED = 5_000
"""So many rows are divided here, one by one."""
_DIGITS: Mapping[type[DataType], int] = MappingProxyType(
    {kind: WHOLE[kind().simpleString()] for kind in (ByteType, ShortType, IntegerType, LongType)}
)
"""Of the decimals that Spark makes of whole numbers."""

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
_DOUBLES: Mapping[str, Callable[[Any, Any], Any]] = MappingProxyType(
    {"+": pc.add, "-": pc.subtract, "*": pc.multiply, "/": pc.divide}
)


@dataclass(frozen=True)
class Value:
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
        if isinstance(self.data, pa.Scalar) and isinstance(self.kind, LongType):
            raise Unlike  # 7L has another number of them than CAST(7 AS BIGINT)
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


def of_kind(value: Value, kind: DataType) -> Value:
    if value.kind != kind:
        raise Unlike
    return value


def widest(kinds: Sequence[DataType]) -> DataType:
    """Of kinds of whole numbers."""
    return max(kinds, key=lambda kind: _DIGITS[type(kind)])


def arithmetic(sign: str, left: Value, right: Value) -> Value:
    kinds = left.kind, right.kind
    are_whole = all(isinstance(kind, IntegralType) for kind in kinds)
    if DoubleType() in kinds or (sign == "/" and are_whole):
        return _of_doubles(sign, left, right)
    if sign == "/":
        return _divided(left, right)
    if are_whole:
        kind = widest(kinds)
        made = _WHOLE[sign](left.cast(kind), right.cast(kind))
        return Value(made, kind, left.nullable or right.nullable)
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
    found = Value(exact, DecimalType(min(precision, MOST_DIGITS), scale), may_be_null)
    return Value(_rounded(found, decimal), decimal, may_be_null)


def _of_doubles(sign: str, left: Value, right: Value) -> Value:
    """As processors have them, whoever asks. Raises Unlike for a division by 0, which Spark refuses."""
    ours, theirs = _as_double(left), _as_double(right)
    if sign == "/" and pc.any(pc.equal(theirs, 0.0)).as_py():
        raise Unlike
    made = _DOUBLES[sign](ours, theirs)
    return Value(made, DoubleType(), sign == "/" or left.nullable or right.nullable)


def _as_double(value: Value) -> pa.ChunkedArray | pa.Scalar:
    if isinstance(value.kind, DoubleType):
        return value.data
    if isinstance(value.kind, DecimalType) and value.is_written:
        return pa.scalar(float(value.data.as_py()), pa.float64())
    if not isinstance(value.kind, IntegralType):
        raise Unlike
    # The nearest, also of whole numbers that are between two.
    return value.data.cast(pa.float64(), safe=False)


def _divided(left: Value, right: Value) -> Value:
    """Decimals, rounded half up."""
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
    return Value(column if sizes else column[0], kind, True)


def _unscaled(value: Value, size: int) -> list[int | None]:
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


def common(values: Sequence[Value]) -> DataType:
    """The type in which Spark has several numbers; literals are as wide as their type."""
    kinds = [value.kind for value in values]
    if all(isinstance(kind, IntegralType) for kind in kinds):
        return widest(kinds)
    return _decimal([replace(value, is_written=False).digits for value in values])


def _decimal(digits: Sequence[tuple[int, int]]) -> DataType:
    """The decimal that holds all values of decimals with these digits."""
    precision, scale = of_all(digits)
    if precision > MOST_DIGITS:
        raise Unlike
    return DecimalType(precision, scale)


def compared(sign: str, left: Value, right: Value) -> Value:
    kinds = left.kind, right.kind
    nullable = left.nullable or right.nullable
    if all(isinstance(kind, IntegralType) for kind in kinds):
        wide: DataType = LongType()
    elif all(isinstance(kind, IntegralType | DecimalType) for kind in kinds):
        wide = decimal_of_both(left.digits, right.digits)
        if any(isinstance(kind, IntegralType) for kind in kinds):
            _check_is_near((left, right), wide)
        nullable = left.may_be_null or right.may_be_null
    elif DoubleType() in kinds:
        return Value(_compared_doubles(sign, left, right), BooleanType(), nullable)
    elif kinds[0] == kinds[1] and is_exact(kinds[0]):
        wide = kinds[0]
    else:
        raise Unlike
    found = _COMPARED[sign](_rounded(left, wide), _rounded(right, wide))
    return Value(found, BooleanType(), nullable)


def _compared_doubles(sign: str, left: Value, right: Value) -> pa.ChunkedArray | pa.Scalar:
    """Raises Unlike where one is no number, which Spark takes for the greatest, and equal to itself."""
    sides = [_as_double(side) for side in (left, right)]
    if any(pc.any(pc.is_nan(side)).as_py() for side in sides):
        raise Unlike
    return _COMPARED[sign](*sides)


def _check_is_near(sides: Sequence[Value], common: DecimalType) -> None:
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


def _rounded(value: Value, kind: DataType) -> pa.ChunkedArray | pa.Scalar:
    """As a value of another type, which may have fewer digits after the point."""
    if isinstance(kind, DecimalType) and value.digits[1] > kind.scale:
        # Of one that has no digit to spare Arrow (26) makes 0 where it has to round it up.
        precision, scale = value.digits
        spare = value.data.cast(pa.decimal256(precision + 1, scale))
        data = pc.round(spare, kind.scale, round_mode="half_towards_infinity")
        value = replace(value, data=data)
    return value.cast(kind)
