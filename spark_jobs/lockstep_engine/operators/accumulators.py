"""Accumulators: what a trace remembers of a group, per aggregate function.

Each is a commutative semigroup: a row is lifted to an increment, increments are merged by Spark's
sum, min or max in any order, and the aggregate's value is read off the merged ones. That is what
makes a running total over steps, a total over intervals and a partial total in a task the same
thing. Everything here is SQL text over the columns of one frame.

==============  ========================================================  =====================
function        accumulators                                              is a group under sum
==============  ========================================================  =====================
count(*)        `_rows`                                                   yes
count(x)        `_count_i`                                                yes
sum, avg        `_count_i` and, by the type of x, `_sum_i` or             yes
                `_high_i`, `_low_i`, or bins (see `exact_sums`)
comoment        `_count_i`, and bins (see `exact_sums`)                   yes
min, max        `_min_i`, `_max_i`                                        no: append-only input
==============  ========================================================  =====================

`i` numbers the arguments in the order in which the calls first name them. Without the count apart
from the sum, a group whose last value was taken back would show 0 where SQL says null.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
)

from lockstep.errors import WrongUse
from lockstep.sql.circuit import Operator
from lockstep.sql.plans.nodes import (
    Aggregate,
    AggregateCall,
    AggregateFunction,
    SessionGroups,
)
from lockstep_engine.context import Context
from lockstep_engine.deltas import WEIGHT, columns_of, quoted

__all__ = [
    "ROWS",
    "Accumulator",
    "Groups",
    "accumulators_of",
    "collected_name",
    "declared_types",
    "is_exact",
    "places_of",
    "summed",
    "types_of",
    "value_of",
]

ROWS = "_rows"

Groups = Aggregate | SessionGroups

_WHOLE: Mapping[str, DataType] = MappingProxyType(
    {kind.simpleString(): kind for kind in (ByteType(), ShortType(), IntegerType(), LongType())}
)


@dataclass(frozen=True)
class Accumulator:
    """`lift` is an input row's increment, null where it adds nothing; `merge` is sum, min or
    max."""

    name: str
    lift: str
    merge: str


def collected_name(call: AggregateCall) -> str:
    """The column of a collected aggregate's value after a step."""
    return f"_collected_{call.name}"


def places_of(calls: Iterable[AggregateCall]) -> Mapping[str, int]:
    """The number of each argument, which stands in the names of its accumulators."""
    arguments = dict.fromkeys(call.argument for call in calls if call.argument is not None)
    return {argument: place for place, argument in enumerate(arguments)}


def is_exact(kind: DataType) -> bool:
    """True for floating point, whose sums are kept in bins (`exact_sums`) and not here. Spark's sum
    of a string is that of its double."""
    return isinstance(kind, DoubleType | FloatType | StringType)


def summed(node: Groups, *functions: AggregateFunction) -> list[str]:
    """The arguments of sum and avg, or of these functions, whose types decide what is remembered."""
    wanted = functions or (AggregateFunction.SUM, AggregateFunction.AVG)
    return [call.argument for call in node.aggregates if call.argument and call.function in wanted]


def types_of(
    operator: Operator, wanted: Iterable[str], delta: DataFrame, context: Context
) -> Mapping[str, DataType]:
    """The types of these columns of its input. Remembered, as asking Spark costs a round trip."""
    if operator.digest not in context.types:
        names = list(dict.fromkeys(wanted))
        schema = delta.select(*columns_of(names)).schema if names else ()
        context.types[operator.digest] = {field.name: field.dataType for field in schema}
    return context.types[operator.digest]


def declared_types(operator: Operator) -> Mapping[str, DataType]:
    """The types of the arguments that an aggregate adds up, of which sources tell them (`summed`)."""
    assert operator.summed is not None, "its rows are read off its accumulators"
    return {name: _WHOLE.get(kind) or _decimal(kind) for name, kind in operator.summed}


def _decimal(kind: str) -> DecimalType:
    precision, scale = kind.removeprefix("decimal(").removesuffix(")").split(",")
    return DecimalType(int(precision), int(scale))


def accumulators_of(
    node: Groups, by_value: Collection[str], types: Mapping[str, DataType]
) -> tuple[Accumulator, ...]:
    """The accumulators of the node's calls, each once, `_rows` first.

    `by_value` are arguments whose extremes are found from their values, so have none. `types` has
    the type of every argument of sum and avg. Raises WrongUse for one without a sum.
    """
    places = places_of(node.aggregates)
    found = [Accumulator(ROWS, f"`{WEIGHT}`", "sum")]
    for call in node.aggregates:
        if call.argument is None:
            continue
        if call.function.is_extreme and (call.argument in by_value or call.argument in node.keys):
            continue
        found.extend(_of_call(call, call.argument, places[call.argument], types))
    return tuple(dict.fromkeys(found))


def _of_call(
    call: AggregateCall, argument: str, place: int, types: Mapping[str, DataType]
) -> Iterator[Accumulator]:
    value = quoted(argument)
    match call.function:
        case AggregateFunction.MIN | AggregateFunction.MAX:
            name = call.function.value
            yield Accumulator(f"_{name}_{place}", value, name)
        case (
            AggregateFunction.COUNT
            | AggregateFunction.SUM
            | AggregateFunction.AVG
            | AggregateFunction.COMOMENT
        ):
            lift = f"CASE WHEN {value} IS NOT NULL THEN `{WEIGHT}` END"
            yield Accumulator(f"_count_{place}", lift, "sum")
            if call.function.is_sum:
                yield from _of_sum(call, value, place, types[argument])
        case AggregateFunction.COLLECTED:
            raise AssertionError("a collected aggregate has no argument of its own")


def _of_sum(call: AggregateCall, value: str, place: int, kind: DataType) -> Iterator[Accumulator]:
    match kind:
        case ByteType() | ShortType() | IntegerType():
            yield Accumulator(f"_sum_{place}", f"{value} * `{WEIGHT}`", "sum")
        case LongType():
            # In halves, as a total may leave bigint within a step, or in an interval's share of it,
            # and come back: only the value at a step's end is judged.
            yield Accumulator(f"_high_{place}", f"shiftright({value}, 32) * `{WEIGHT}`", "sum")
            yield Accumulator(f"_low_{place}", f"({value} & 4294967295L) * `{WEIGHT}`", "sum")
        case DecimalType():
            yield Accumulator(f"_sum_{place}", _weighted_decimal(value, kind), "sum")
        case _ if is_exact(kind):
            return
        case _:
            raise WrongUse(
                f"{call.function.value} of column {call.argument} is not defined on its type",
                expected="an integer, a decimal, a double or a float",
                found=kind.simpleString(),
                next_step=f"cast it: {call.function.value}(CAST(… AS DECIMAL(18, 6)))",
            )


def _weighted_decimal(value: str, kind: DecimalType) -> str:
    """The value times the weight as decimal(38, s), without loss.

    Spark's product of decimals gives up digits where their number passes 38, which a bigint's 20
    soon make it do: a weight other than 1 and -1 then multiplies the digits as a whole number.
    """
    wide = f"decimal(38, {kind.scale})"
    if kind.precision <= 17:
        product = f"CAST({value} * `{WEIGHT}` AS {wide})"
    else:
        digits = f"CAST(replace(CAST({value} AS string), '.', '') AS decimal(38, 0))"
        shifted = f"concat(CAST({digits} * `{WEIGHT}` AS string), 'E-{kind.scale}')"
        product = f"CAST({shifted} AS {wide})"
    return (
        f"CASE WHEN `{WEIGHT}` = 1 THEN CAST({value} AS {wide}) "
        f"WHEN `{WEIGHT}` = -1 THEN CAST(-{value} AS {wide}) ELSE {product} END"
    )


def value_of(call: AggregateCall, node: Groups, types: Mapping[str, DataType]) -> str:
    """The aggregate's value, in Spark's own result type, from the totals of its accumulators."""
    if call.expression is not None:
        value = quoted(collected_name(call))
        return value if call.of_nothing == "NULL" else f"coalesce({value}, {call.of_nothing})"
    if call.argument is None:
        return f"coalesce({ROWS}, 0L)"
    if call.function.is_extreme and call.argument in node.keys:
        return quoted(call.argument)
    place = places_of(node.aggregates)[call.argument]
    count = f"coalesce(_count_{place}, 0L)"
    match call.function:
        case AggregateFunction.COUNT:
            return count
        case AggregateFunction.MIN | AggregateFunction.MAX:
            return f"_{call.function.value}_{place}"
        case AggregateFunction.SUM:
            return f"CASE WHEN {count} > 0 THEN {_sum(place, types[call.argument])} END"
        case AggregateFunction.AVG:
            return f"CASE WHEN {count} > 0 THEN {_average(place, types[call.argument])} END"
        case AggregateFunction.COMOMENT:
            return f"CASE WHEN {count} > 0 THEN _comoment_{place} END"
        case AggregateFunction.COLLECTED:
            raise AssertionError("a collected aggregate has no argument of its own")


def _sum(place: int, kind: DataType) -> str:
    match kind:
        case LongType():
            # The halves are brought to form first, so that this overflows only if the sum does.
            high, low = _halves(place)
            return f"({high} * 4294967296L + {low})"
        case DecimalType():
            return f"CAST(_sum_{place} AS decimal({min(38, kind.precision + 10)}, {kind.scale}))"
        case _ if is_exact(kind):
            # A group of zeros has no bins.
            return f"coalesce(_exact_{place}, 0D)"
        case _:
            return f"_sum_{place}"


def _halves(place: int) -> tuple[str, str]:
    return (
        f"(_high_{place} + shiftright(_low_{place}, 32))",
        f"(_low_{place} & 4294967295L)",
    )


def _average(place: int, kind: DataType) -> str:
    match kind:
        case LongType():
            high, low = _halves(place)
            return f"(({high} * 4294967296D + {low}) / _count_{place})"
        case DecimalType():
            return _decimal_average(place, kind)
        case _ if is_exact(kind):
            return f"({_sum(place, kind)} / _count_{place})"
        case _:
            return f"(CAST(_sum_{place} AS double) / _count_{place})"


def _decimal_average(place: int, kind: DecimalType) -> str:
    """Spark's avg of decimal(p, s): decimal(p + 4, s + 4), rounded half up, once.

    Spark's division of decimals gives up scale where whole digits are many, so whole part and
    remainder are divided apart: the remainder is smaller than the count, of 13 digits at most.
    """
    size = f"_count_{place}"
    total = f"CAST(_sum_{place} AS decimal({min(38, kind.precision + 10)}, {kind.scale}))"
    count = f"CAST({size} AS decimal(13, 0))"
    precision, scale = min(38, kind.precision + 4), min(38, kind.scale + 4)
    result = f"decimal({precision}, {scale})"
    rest = f"CAST({total} % {count} AS decimal({min(38, kind.scale + 13)}, {kind.scale}))"
    whole = f"(({total} - {total} % {count}) / {count})"
    near = f"CAST(CAST({whole} AS {result}) + CAST({rest} / {count} AS {result}) AS {result})"
    # Of the remainder's share Spark keeps 25 digits: where fewer follow those of the result than the
    # count has, one just below a half may be rounded to it, and then again. And a sum of two
    # decimals of 38 digits loses the last, but for six after the point. Of averages that have more
    # digits than there is place for these are still lost, and so are those of more than 28 after
    # the point, which nobody has.
    digits = min(13, 31 - kind.scale)
    if digits < 3 or kind.scale <= (8 if precision < 38 else 2):
        return near
    narrow = f"CAST({whole} AS decimal({min(37, precision)}, {scale}))"
    exact = f"CAST({narrow} + {_share(total, size, kind.scale, digits)} AS {result})"
    is_narrow = f"{size} < {10**digits} AND abs(CAST({whole} AS {result})) < {10 ** (37 - scale)}BD"
    return f"CASE WHEN {is_narrow} THEN {exact} ELSE {near} END"


def _share(total: str, size: str, scale: int, digits: int) -> str:
    """What the remainder of a total adds to its average, for a size of so many digits: first as Spark
    divides, which is off by one at most, then put right by what is left over."""
    count = f"CAST({size} AS decimal({digits}, 0))"
    rest = f"CAST(abs({total} % {count}) AS decimal({scale + digits}, {scale}))"
    first = f"CAST({rest} / {count} AS decimal({scale + 5}, {scale + 4}))"
    places = scale + 4 + max(2, digits - scale - 3)
    over = f"CAST({rest} - {first} * {count} AS decimal({places}, {scale + 4}))"
    unit, half = f"1E-{scale + 4}BD", f"{count} * 5E-{scale + 5}BD"
    right = (
        f"CASE WHEN {over} >= {half} THEN {unit} WHEN {over} < -({half}) THEN -{unit} ELSE 0BD END"
    )
    signed = f"CASE WHEN {total} < 0 THEN -1BD ELSE 1BD END * ({first} + {right})"
    return f"CAST({signed} AS decimal({scale + 5}, {scale + 4}))"
