"""Values written as text: SQL that reads one as its declared type, or gives null where it does not
fit. Only plain forms are taken: a cast alone would take 'yes', ' 1 ' and '12:00', too."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from lockstep.sql.plans.terms import text_literal
from lockstep.sql.sources.time_formats import read_time_format, time_regex
from lockstep_engine.sources.json_types import PATTERNS

__all__ = ["value_of_text"]

_INTEGER = r"^[+-]?[0-9]++\z"
# A long exponent would be written out in digits.
_NUMBER = r"^[+-]?(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?[0-9]{1,4})?\z"


def value_of_text(text: str, declared: DataType, options: Mapping[str, str]) -> str:
    """The text column as the type; `options` may hold `dateformat` and `timestampformat`."""
    kind = declared.simpleString()
    match declared:
        case StringType():
            return text
        case BinaryType():
            return f"CAST({text} AS BINARY)"
        case BooleanType():
            return f"CASE lower({text}) WHEN 'true' THEN true WHEN 'false' THEN false END"
        case ByteType() | ShortType() | IntegerType() | LongType():
            return _where(text, _INTEGER, f"try_cast({text} AS {kind})")
        case DecimalType():
            return _where(text, _NUMBER, f"try_cast({text} AS {kind})")
        case FloatType() | DoubleType():
            number = _where(text, _NUMBER, f"try_cast({text} AS {kind})")
            return f"nullif(nullif({number}, {kind}('Infinity')), {kind}('-Infinity'))"
        case DateType():
            return _time(text, declared, options.get("dateformat", ""))
        case TimestampType() | TimestampNTZType():
            return _time(text, declared, options.get("timestampformat", ""))
        case _:
            raise AssertionError(f"{kind} has no form as text")


def _where(text: str, pattern: str, value: str) -> str:
    return f"CASE WHEN rlike({text}, {text_literal(pattern)}) THEN {value} END"


def _time(text: str, declared: DataType, pattern: str) -> str:
    kind = declared.simpleString()
    if not pattern:
        return _where(text, PATTERNS[type(declared)], f"try_cast({text} AS {kind})")
    looks = rf"^{time_regex(read_time_format(pattern))}\z"
    instant = f"try_to_timestamp({text}, {text_literal(pattern)})"
    return _where(text, looks, f"CAST({instant} AS {kind})")
