"""Literals and types of Connect's protobuf as Spark SQL."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from pyspark.sql.connect.types import proto_schema_to_pyspark_data_type

from lockstep.frames.frame import quoted

__all__ = ["ddl_text", "literal_text", "string_text", "type_text", "value_text"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ESCAPES = str.maketrans({"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def string_text(value: str) -> str:
    """A text in quotes. `${` is written so that it names no variable."""
    if "${" in value:
        first, *rest = value.split("${")
        parts = [first + "$", *("{" + part + "$" for part in rest[:-1]), "{" + rest[-1]]
        return f"concat({', '.join(map(string_text, parts))})"
    return f"'{value.translate(_ESCAPES)}'"


def type_text(type_: Any) -> str:
    """A type of the protobuf as DDL."""
    return ddl_text(proto_schema_to_pyspark_data_type(type_))


def ddl_text(type_: Any) -> str:
    """A type of pyspark as DDL."""
    return str(type_.simpleString()).upper() if _is_plain(type_) else _nested_text(type_)


def _is_plain(type_: Any) -> bool:
    return type_.typeName() not in ("struct", "array", "map")


def _nested_text(type_: Any) -> str:
    match type_.typeName():
        case "array":
            return f"ARRAY<{ddl_text(type_.elementType)}>"
        case "map":
            return f"MAP<{ddl_text(type_.keyType)}, {ddl_text(type_.valueType)}>"
        case _:
            fields = (f"{quoted(one.name)}: {ddl_text(one.dataType)}" for one in type_.fields)
            return f"STRUCT<{', '.join(fields)}>"


def literal_text(literal: Any) -> str:
    """A literal of the protobuf. Raises KeyError with the kind where it has no SQL here."""
    kind = literal.WhichOneof("literal_type")
    if kind == "null":
        return _null_text(literal.null)
    if kind in _PLAIN:
        return _PLAIN[kind](getattr(literal, kind))
    if kind == "array":
        return _call("array", map(literal_text, literal.array.elements))
    if kind == "specialized_array":
        values = literal.specialized_array
        one = values.WhichOneof("value_type")
        return _call("array", map(_PLAIN[_SPECIALIZED[one]], getattr(values, one).values))
    if kind == "map":
        pairs = zip(literal.map.keys, literal.map.values, strict=True)
        return _call("map", (literal_text(part) for pair in pairs for part in pair))
    if kind == "struct":
        return _call("named_struct", _struct_parts(literal.struct))
    raise KeyError(kind)


def _struct_parts(struct: Any) -> Iterator[str]:
    for field, value in zip(struct.struct_type.struct.fields, struct.elements, strict=True):
        yield string_text(field.name)
        yield literal_text(value)


def _null_text(type_: Any) -> str:
    kind = type_.WhichOneof("kind")
    return "NULL" if kind in (None, "null") else f"CAST(NULL AS {type_text(type_)})"


def _call(name: str, arguments: Iterator[str] | map[str]) -> str:
    return f"{name}({', '.join(arguments)})"


def _floating(suffix: str, type_: str) -> Callable[[float], str]:
    def text(value: float) -> str:
        if math.isnan(value) or math.isinf(value):
            name = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
            return f"CAST('{name}' AS {type_})"
        return f"{value!r}{suffix}"

    return text


def _timestamp(zone: str, name: str) -> Callable[[int], str]:
    def text(microseconds: int) -> str:
        moment = _EPOCH + timedelta(microseconds=microseconds)
        return f"{name}'{moment.replace(tzinfo=None).isoformat(sep=' ')}{zone}'"

    return text


def _decimal(value: Any) -> str:
    """As Spark: at least as wide as the value is."""
    _, digits, exponent = Decimal(value.value).as_tuple()
    scale = max(0, -int(exponent))
    width = max(len(digits), scale)
    if value.HasField("precision"):
        width, scale = max(width, value.precision), max(scale, value.scale)
    return f"CAST({value.value}BD AS DECIMAL({width},{scale}))"


def _interval(microseconds: int) -> str:
    sign = "-" if microseconds < 0 else ""
    seconds, rest = divmod(abs(microseconds), 1_000_000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    text = f"{sign}{days} {hours:02d}:{minutes:02d}:{seconds:02d}.{rest:06d}"
    return f"INTERVAL '{text}' DAY TO SECOND"


_PLAIN: Mapping[str, Callable[[Any], str]] = {
    "binary": lambda value: f"X'{value.hex()}'",
    "boolean": lambda value: "true" if value else "false",
    "byte": lambda value: f"{value}Y",
    "short": lambda value: f"{value}S",
    "integer": str,
    "long": lambda value: f"{value}L",
    "float": _floating("F", "FLOAT"),
    "double": _floating("D", "DOUBLE"),
    "decimal": _decimal,
    "string": string_text,
    "date": lambda days: f"DATE'{date(1970, 1, 1) + timedelta(days=days)}'",
    "timestamp": _timestamp("Z", "TIMESTAMP"),
    "timestamp_ntz": _timestamp("", "TIMESTAMP_NTZ"),
    "year_month_interval": lambda months: f"INTERVAL '{months}' MONTH",
    "day_time_interval": _interval,
}
_SPECIALIZED = {
    "bools": "boolean",
    "ints": "integer",
    "longs": "long",
    "floats": "float",
    "doubles": "double",
    "strings": "string",
}


def value_text(value: Any, type_: Any) -> str:
    """A Python value of a local relation, of a type of pyspark. Raises KeyError as `literal_text`."""
    from pyspark.sql.connect.expressions import LiteralExpression

    if value is None:
        return f"CAST(NULL AS {ddl_text(type_)})"
    if type_.typeName() == "decimal":
        return f"CAST({value}BD AS {ddl_text(type_)})"
    return literal_text(LiteralExpression(value, type_).to_plan(None).literal)  # type: ignore[arg-type]
