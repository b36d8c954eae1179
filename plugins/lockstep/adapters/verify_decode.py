"""Reads JSON records as verification understands them: on its own, not as the engine does it.

A record is a row where its value is one JSON object that holds every declared column, each null or
a value of the declared type; where the source says so, nullable columns may be absent, which is
null. Anything else is a bad record, which no view may show.

The types and what stands for them: BOOLEAN true or false; the integers a whole number in range;
FLOAT and DOUBLE a number in range; DECIMAL(p, s) a number, rounded half up to s digits, that then
fits p; STRING a string; DATE and TIMESTAMP (an instant; UTC where no zone is said) ISO text.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import lru_cache, partial

import pyarrow as pa

from lockstep.errors import WrongUse
from lockstep.sql.circuit import SourceColumn

__all__ = [
    "Row",
    "UndecodableError",
    "arrow_type",
    "json_parser",
    "object_decoder",
    "row_decoder",
    "value_decoder",
]

Row = tuple[object, ...]
_Decode = Callable[[object], object]

_INTEGER_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_SYNONYMS = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
    "timestamp_ltz": "timestamp",
}
_TYPE = re.compile(r"\s*([a-z_]+)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?\s*\Z")
_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})\Z")
_TIMESTAMP = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})"
    r"(?:[T ](\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{1,9}))?"
    r"(Z|[+-]\d{2}:?\d{2})?)?\Z"
)


class UndecodableError(ValueError):
    """A record, or a value in it, that is not what the source declares."""


def _spark_type(text: str) -> tuple[str, tuple[int, ...]]:
    """A Spark DDL type as name and parameters: 'Decimal(10, 2)' is ('decimal', (10, 2))."""
    match = _TYPE.match(text.lower())
    if match is None:
        return text.lower(), ()
    name = _SYNONYMS.get(match[1], match[1])
    parameters = tuple(int(part) for part in match.groups()[1:] if part is not None)
    if name == "decimal":
        return name, (*parameters, *(10, 0)[len(parameters) :])
    return name, parameters


def arrow_type(text: str) -> pa.DataType:
    """The Arrow type of a declared column; instants are plain timestamps, in UTC.

    Raises WrongUse for types that verification lacks.
    """
    name, parameters = _spark_type(text)
    plain = {
        "boolean": pa.bool_(),
        "tinyint": pa.int8(),
        "smallint": pa.int16(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us"),
        "binary": pa.binary(),
        # The one nested type: the headers of records.
        "array<struct<key: string, value: binary>>": pa.list_(
            pa.struct([("key", pa.string()), ("value", pa.binary())])
        ),
    }
    if name == "decimal":
        return pa.decimal128(*parameters)
    if name not in plain:
        raise WrongUse(
            f"verify cannot decode a column of type {text}",
            expected=f"one of {', '.join(sorted([*(n for n in plain if n.isalpha()), 'decimal']))}",
            found=text,
            next_step="verify a pipeline whose sources declare only these types",
        )
    return plain[name]


def _no_constant(text: str) -> object:
    raise UndecodableError(f"{text} is no JSON number")


def _boolean(value: object) -> object:
    if isinstance(value, bool):
        return value
    raise UndecodableError(f"{value!r} is no boolean")


def _integer(bound: int, value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool) and -bound <= value < bound:
        return value
    raise UndecodableError(f"{value!r} is no whole number below {bound}")


def _double(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise UndecodableError(f"{value!r} is no number")
    number = float(value)
    if not math.isfinite(number):
        raise UndecodableError(f"{value!r} is beyond the range of a double")
    return number


def _float(value: object) -> object:
    number = pa.scalar(_double(value), pa.float32()).as_py()
    if not math.isfinite(number):
        raise UndecodableError(f"{value!r} is beyond the range of a float")
    return number


def _decimal(precision: int, scale: int, value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise UndecodableError(f"{value!r} is no number")
    context = Context(prec=1000)
    rounded = Decimal(value).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, context)
    if rounded.copy_abs() >= Decimal(10) ** (precision - scale):
        raise UndecodableError(f"{value!r} does not fit decimal({precision}, {scale})")
    return rounded


def _string(value: object) -> object:
    if isinstance(value, str):
        value.encode()
        return value
    raise UndecodableError(f"{value!r} is no string")


def _date(value: object) -> object:
    match = _DATE.match(value) if isinstance(value, str) else None
    if match is None:
        raise UndecodableError(f"{value!r} is no date")
    return date(*(int(part) for part in match.groups()))


@lru_cache(maxsize=1 << 16)
def _instant(text: str) -> datetime:
    match = _TIMESTAMP.match(text)
    if match is None:
        raise UndecodableError(f"{text!r} is no timestamp")
    year, month, day, hour, minute, second = (int(part) for part in match.groups("0")[:6])
    microsecond = int((match[7] or "0").ljust(6, "0")[:6])
    there = datetime(year, month, day, hour, minute, second, microsecond, _zone(match[8]))
    return there.astimezone(UTC).replace(tzinfo=None)


def _zone(text: str | None) -> timezone:
    if text is None or text == "Z":
        return UTC
    minutes = int(text[1:3]) * 60 + int(text[-2:])
    return timezone(timedelta(minutes=-minutes if text[0] == "-" else minutes))


def _timestamp(value: object) -> object:
    if isinstance(value, str):
        return _instant(value)
    raise UndecodableError(f"{value!r} is no timestamp")


def _binary(value: object) -> object:
    if isinstance(value, str):
        return base64.b64decode(value, validate=True)
    raise UndecodableError(f"{value!r} is no text of base64")


def value_decoder(text: str) -> _Decode:
    """What reads a JSON value as the type. Raises WrongUse for types that verification lacks."""
    name, parameters = _spark_type(text)
    arrow_type(text)
    if name in _INTEGER_BITS:
        return partial(_integer, 1 << (_INTEGER_BITS[name] - 1))
    if name == "decimal":
        return partial(_decimal, *parameters)
    by_name: dict[str, _Decode] = {
        "boolean": _boolean,
        "float": _float,
        "double": _double,
        "string": _string,
        "date": _date,
        "timestamp": _timestamp,
        "binary": _binary,
    }
    if name not in by_name:
        raise WrongUse(
            f"verify cannot decode JSON into {text}", expected="a plain type", found=text
        )
    return by_name[name]


def row_decoder(
    columns: Sequence[SourceColumn],
    absent_is_null: bool = False,
    paths: Sequence[tuple[str, ...]] | None = None,
) -> Callable[[bytes | None], Row]:
    """A function from a record's value to the row it holds, in the order of `columns`.

    `absent_is_null` lets nullable columns be absent; `paths` are the places of the columns' fields,
    their own names if not said. The function raises UndecodableError for a bad record. Types are
    those of `arrow_type`.
    """
    decode_object = object_decoder(columns, absent_is_null, paths)
    parse = json_parser(columns)
    return lambda value: decode_object(parse(value))


def json_parser(columns: Sequence[SourceColumn]) -> Callable[[bytes | None], dict[str, object]]:
    """A function from a record's value to the JSON object in it; raises UndecodableError."""
    has_decimals = any(_spark_type(column.type)[0] == "decimal" for column in columns)
    load = partial(
        json.loads, parse_constant=_no_constant, parse_float=Decimal if has_decimals else None
    )

    def parse(value: bytes | None) -> dict[str, object]:
        try:
            # An unfinished, a non-UTF-8 and a too deeply nested text each raise their own error.
            found = load(value.decode("utf-8")) if value is not None else None
        except (ValueError, RecursionError) as error:
            raise UndecodableError(f"not JSON: {error}") from error
        if not isinstance(found, dict):
            raise UndecodableError("not a JSON object")
        return found

    return parse


def object_decoder(
    columns: Sequence[SourceColumn],
    absent_is_null: bool = False,
    paths: Sequence[tuple[str, ...]] | None = None,
) -> Callable[[Mapping[str, object]], Row]:
    """A function from a JSON object to the row it holds; else as `row_decoder`."""
    decoders = [
        (column.name, path, column.nullable, value_decoder(column.type))
        for column, path in zip(columns, paths or [(c.name,) for c in columns], strict=True)
    ]

    def decode(fields: Mapping[str, object]) -> Row:
        row = []
        for name, path, nullable, decode_value in decoders:
            holder = _holder(fields, path)
            if path[-1] not in holder and not (nullable and absent_is_null):
                raise UndecodableError(f"column {name} is absent")
            found = holder.get(path[-1])
            if found is None and not nullable:
                raise UndecodableError(f"column {name} is null")
            try:
                row.append(None if found is None else decode_value(found))
            except (ValueError, ArithmeticError) as error:
                raise UndecodableError(f"column {name}: {error}") from error
        return tuple(row)

    return decode


def _holder(fields: Mapping[str, object], path: tuple[str, ...]) -> Mapping[str, object]:
    """The object that the path's last name is a field of; an empty one where it is not there."""
    for name in path[:-1]:
        inner = fields.get(name)
        if inner is not None and not isinstance(inner, dict):
            raise UndecodableError(f"field {name} is no JSON object")
        fields = inner or {}
    return fields
