"""Schemas that a person writes as text (`"id INT, name STRING"`), which a server would read."""

from __future__ import annotations

import re

from pyspark.sql import types

__all__ = ["parsed_schema"]

_TYPES: dict[str, types.DataType] = {
    **dict.fromkeys(("BOOLEAN",), types.BooleanType()),
    **dict.fromkeys(("TINYINT", "BYTE"), types.ByteType()),
    **dict.fromkeys(("SMALLINT", "SHORT"), types.ShortType()),
    **dict.fromkeys(("INT", "INTEGER"), types.IntegerType()),
    **dict.fromkeys(("BIGINT", "LONG"), types.LongType()),
    **dict.fromkeys(("FLOAT", "REAL"), types.FloatType()),
    "DOUBLE": types.DoubleType(),
    "STRING": types.StringType(),
    "BINARY": types.BinaryType(),
    "DATE": types.DateType(),
    "TIMESTAMP": types.TimestampType(),
    "TIMESTAMP_NTZ": types.TimestampNTZType(),
}
_FIELD = re.compile(
    r"\s*(?:`([^`]+)`|(\w+))\s*(?::|\s)\s*(\w+)\s*(?:\(\s*(\d+)\s*,\s*(\d+)\s*\))?\s*(?:,|$)"
)


def parsed_schema(text: str) -> types.DataType:
    """The type, or the schema of `name TYPE, ...`. Raises ValueError with what it can't read."""
    alone = _TYPES.get(text.strip().upper())
    if alone is not None:
        return alone
    schema, at = types.StructType(), 0
    while at < len(text):
        field = _FIELD.match(text, at)
        if field is None:
            raise ValueError(text[at:].strip())
        quoted, plain, name, precision, scale = field.groups()
        if precision:
            known: types.DataType | None = types.DecimalType(int(precision), int(scale))
        else:
            known = _TYPES.get(name.upper())
        if known is None:
            raise ValueError(field.group(0).strip())
        schema.add(quoted or plain, known)
        at = field.end()
    return schema
