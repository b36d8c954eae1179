"""Functions over columns that this process has, with the values and types that Spark gives them.

The session's time zone is UTC, so every day of a timestamp has 24 hours, whether it has a zone or not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    IntegralType,
    LongType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from lockstep.sql.plans.simple_functions import FORMATS, PARTS, UNITS, with_named_group
from lockstep_engine.kernels.groups import Integers
from lockstep_engine.local.numbers import Value, widest
from lockstep_engine.local.values import Unlike
from lockstep_engine.told import is_well_formed

__all__ = [
    "FAR",
    "FUNCTIONS",
    "cast",
    "may_be_null",
    "microseconds",
    "near_microseconds",
    "remainder",
    "shifted",
]

_EARLIEST, _LATEST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Microseconds of the years 1 to 9999, which have four digits."""

FAR = 1 << 62
"""Microseconds."""

_HOUR, _DAY = UNITS["hour"], UNITS["day"]

_CASTS: Mapping[str, DataType] = MappingProxyType(
    {
        "BIGINT": LongType(),
        "DATE": DateType(),
        "DOUBLE": DoubleType(),
        "INT": IntegerType(),
        "STRING": StringType(),
    }
)


def remainder(whole: pa.ChunkedArray, by: int) -> pa.ChunkedArray:
    """What division leaves, with the sign of what is divided."""
    divisor = pa.scalar(by, whole.type)
    return pc.subtract(whole, pc.multiply(pc.divide(whole, divisor), divisor))


def shifted(time: pa.ChunkedArray, kind: DataType, by: int) -> pa.ChunkedArray:
    """Timestamps so many microseconds later. Raises Unlike for anything else, and ArrowInvalid where
    there is none so late."""
    return pc.add_checked(microseconds(time, kind), by).cast(time.type)


def microseconds(time: pa.ChunkedArray, kind: DataType) -> pa.ChunkedArray:
    """Since the epoch. Raises Unlike for anything but timestamps."""
    if kind not in (TimestampType(), TimestampNTZType()):
        raise Unlike
    return time.cast(pa.int64())


def cast(value: Value, to: str) -> Value:
    """Of a kind that holds all values of its own. Raises Unlike for others."""
    data, kind = value.data, value.kind
    target = _CASTS[to]
    match kind, target:
        case (StringType(), StringType()) if kind == target:
            return value
        case IntegralType(), StringType():
            return replace(value, data=data.cast(pa.string()), kind=target)
        case IntegralType(), IntegralType() if widest([kind, target]) == target:
            return replace(value, data=value.cast(target), kind=target)
        case IntegralType(), DoubleType():
            # The nearest, also of whole numbers that are between two.
            return replace(value, data=data.cast(pa.float64(), safe=False), kind=target)
        case ((TimestampType() | TimestampNTZType()), DateType()):
            days = _days(data, kind).cast(pa.date32())
            may_be = value.nullable or kind == TimestampNTZType()
            return replace(value, data=days, kind=target, nullable=may_be)
        case _ if kind == target and not isinstance(kind, StringType):
            return value
    raise Unlike


def _days(time: pa.ChunkedArray, kind: DataType) -> pa.ChunkedArray:
    """Since the epoch, of dates and timestamps of the years 1 to 9999: Arrow's calendar has no years of
    more than two bytes. Raises Unlike for others."""
    if kind == DateType():
        days = time.cast(pa.int32())
    else:
        since = microseconds(time, kind)
        floored = pa.chunked_array([_floored(since, _DAY) // _DAY]).cast(pa.int32())
        days = _with_nulls_of(floored, since)
    ends = pc.min_max(days)
    least, greatest = ends["min"].as_py(), ends["max"].as_py()
    if least is not None and (least < _EARLIEST // _DAY or greatest > _LATEST // _DAY):
        raise Unlike
    return days


def _part(
    of: Callable[[pa.ChunkedArray], pa.ChunkedArray], time: pa.ChunkedArray, kind: DataType
) -> tuple[pa.ChunkedArray, DataType]:
    """The year, the month or the day of a date or a timestamp."""
    return of(_days(time, kind).cast(pa.date32())).cast(pa.int32()), IntegerType()


def _truncated(
    time: pa.ChunkedArray, kind: DataType, unit: str
) -> tuple[pa.ChunkedArray, DataType]:
    if kind != TimestampType():
        raise Unlike
    since = microseconds(time, kind)
    if (pc.min(since).as_py() or 0) < _EARLIEST:
        raise Unlike
    floored = pa.chunked_array([_floored(since, UNITS[unit.lower()])])
    return _with_nulls_of(floored, since).cast(time.type), kind


def _absolute(number: pa.ChunkedArray, kind: DataType) -> tuple[pa.ChunkedArray, DataType]:
    if not isinstance(kind, IntegralType | DoubleType):
        raise Unlike
    return pc.abs_checked(number), kind


def _in_ascii(
    changed: Callable[[pa.ChunkedArray], pa.ChunkedArray], text: pa.ChunkedArray, kind: DataType
) -> tuple[pa.ChunkedArray, DataType]:
    """Of other letters Java and Arrow have ideas of their own."""
    if kind != StringType() or not pc.all(pc.string_is_ascii(text), min_count=0).as_py():
        raise Unlike
    return changed(text), StringType()


def near_microseconds(times: pa.ChunkedArray, kind: DataType) -> Integers:
    """Since the epoch, of those that are there. Raises Unlike for anything but timestamps, and for such
    that a window, or a session, that they are in may begin or end where no timestamp is."""
    since: Integers = microseconds(times.drop_null(), kind).to_numpy()
    if since.min(initial=0) < -FAR or since.max(initial=0) > FAR:
        raise Unlike
    return since


def _hour(time: pa.ChunkedArray, kind: DataType) -> tuple[pa.ChunkedArray, DataType]:
    since = microseconds(time, kind)
    # A day has room: the least of all times may have no hour below it.
    whole: Integers = pc.fill_null(since, 0).to_numpy()
    hours = pa.chunked_array([np.mod(whole, _DAY) // _HOUR]).cast(pa.int32())
    return _with_nulls_of(hours, since), IntegerType()


def _date_format(
    time: pa.ChunkedArray, kind: DataType, form: str
) -> tuple[pa.ChunkedArray, DataType]:
    """Each different text is made once."""
    since = microseconds(time, kind)
    ends = pc.min_max(since)
    least, greatest = ends["min"].as_py(), ends["max"].as_py()
    if least is not None and (least < _EARLIEST or greatest > _LATEST):
        raise Unlike
    unit = min((FORMATS[one.group()][1] for one in PARTS.finditer(form)), default=_HOUR)
    times = pa.array(_floored(since, unit)).dictionary_encode()
    form = PARTS.sub(lambda one: FORMATS[one.group()][0], form.replace("%", "%%"))
    # With nothing after the second, which C would show.
    texts = pc.strftime(times.dictionary.cast(pa.timestamp("us")).cast(pa.timestamp("s")), form)
    return _with_nulls_of(pa.chunked_array([texts.take(times.indices)]), since), StringType()


def _floored(since: pa.ChunkedArray, unit: int) -> Integers:
    """The greatest multiple of the unit that is not more, of each; of a null any."""
    whole: Integers = pc.fill_null(since, 0).to_numpy()
    # To divide takes ten times as long as to compare, and many records are of one day.
    if len(whole) and whole.min() // unit == whole.max() // unit:
        return np.full(len(whole), whole[0] - whole[0] % unit)
    floored: Integers = whole - np.mod(whole, unit)
    return floored


def _with_nulls_of(found: pa.ChunkedArray, of: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.if_else(of.is_valid(), found, pa.scalar(None, found.type)) if of.null_count else found


def _length(text: pa.ChunkedArray, kind: DataType) -> tuple[pa.ChunkedArray, DataType]:
    return pc.utf8_length(_text(text, kind)), IntegerType()


_LOOKS, _LOOK = 100, 100
"""So often so many rows are looked at, to judge whether texts recur."""


def _recur(texts: pa.ChunkedArray) -> bool:
    """Whether there are many, and a quarter of them at least have been there before."""
    between = len(texts) // _LOOKS
    if between < _LOOK:
        return False
    looks = (texts.slice(number * between, _LOOK) for number in range(_LOOKS))
    seen = pa.chunked_array([chunk for look in looks for chunk in look.chunks])
    return len(seen.unique()) <= len(seen) * 3 // 4


def _once_each(
    function: Callable[..., tuple[pa.ChunkedArray, DataType]],
) -> Callable[..., tuple[pa.ChunkedArray, DataType]]:
    """The same of texts, found once for each different one where they recur: a table of them takes a
    third of what a pattern does, or less."""

    def found(
        text: pa.ChunkedArray, kind: DataType, *given: object
    ) -> tuple[pa.ChunkedArray, DataType]:
        if not _recur(text):
            return function(text, kind, *given)
        encoded = text.dictionary_encode().unify_dictionaries()
        different = pa.chunked_array([encoded.chunk(0).dictionary])
        made, kind = function(different, kind, *given)
        values = made.combine_chunks()
        return pa.chunked_array([values.take(one.indices) for one in encoded.chunks]), kind

    return found


@_once_each
def _replace(
    text: pa.ChunkedArray, kind: DataType, old: str, new: str
) -> tuple[pa.ChunkedArray, DataType]:
    return pc.replace_substring(_text(text, kind), old, new), StringType()


@_once_each
def _split_part(
    text: pa.ChunkedArray, kind: DataType, between: str, place: int
) -> tuple[pa.ChunkedArray, DataType]:
    """The part at the place, from 1 on; none is an empty text."""
    made = []
    for chunk in pc.split_pattern(_text(text, kind), between).chunks:
        begins = chunk.offsets.to_numpy()
        at = begins[:-1] + place - 1
        parts = chunk.values.take(pa.array(at, mask=at >= begins[1:]))
        parts = pc.fill_null(parts, "")
        made.append(pc.if_else(chunk.is_valid(), parts, pa.scalar(None, pa.string())))
    return pa.chunked_array(made, pa.string()), StringType()


@_once_each
def _extracted(
    text: pa.ChunkedArray, kind: DataType, pattern: str, _: int
) -> tuple[pa.ChunkedArray, DataType]:
    """What stands for the group where the pattern is found first; an empty text where it is not."""
    found = pc.extract_regex(_text(text, kind), with_named_group(pattern))
    parts = pa.chunked_array(
        [pc.struct_field(chunk, "part") for chunk in found.chunks], pa.string()
    )
    return _with_nulls_of(pc.fill_null(parts, ""), text), StringType()


def _text(text: pa.ChunkedArray, kind: DataType) -> pa.ChunkedArray:
    if kind != StringType() or not is_well_formed(text):
        raise Unlike
    return text


FUNCTIONS: Mapping[str, Callable[..., tuple[pa.ChunkedArray, DataType]]] = MappingProxyType(
    {
        "abs": _absolute,
        "date_format": _date_format,
        "date_trunc": _truncated,
        **dict.fromkeys(("day", "dayofmonth"), partial(_part, pc.day)),
        "hour": _hour,
        "length": _length,
        "lower": partial(_in_ascii, pc.ascii_lower),
        "month": partial(_part, pc.month),
        "regexp_extract": _extracted,
        "replace": _replace,
        "split_part": _split_part,
        "trim": lambda text, kind: (pc.utf8_trim(_text(text, kind), " "), StringType()),
        "upper": partial(_in_ascii, pc.ascii_upper),
        "year": partial(_part, pc.year),
    }
)
"""By the names that formulas have: of a column and its type, and what is written besides."""

_DATE_PARTS = ("day", "dayofmonth", "month", "year")


def may_be_null(function: str, kind: DataType) -> bool:
    """Whether Spark says so of what a function gives whatever it is given, of this type."""
    is_made_a_date = function in _DATE_PARTS and kind == TimestampNTZType()
    return is_made_a_date or function in ("date_trunc", "split_part")
