"""Types of JSON values: what `from_json` is asked for, what is made of it, and whether that fits.

Dates and timestamps are read as text, must look like ISO 8601 or 'yyyy-MM-dd HH:mm:ss[.SSS]', and
are then cast: `from_json` also takes forms that depend on the day ('12:00'), or mean something else
(2013). Where no zone is said it is the session's, which is UTC. A tinyint is read as a smallint, as
128 to 255 come out as other values. Inside arrays, maps and structs, fields may be absent (they are
null), and STRING takes any value.
"""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    MapType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from lockstep.sql.plans.terms import text_literal
from lockstep_engine.deltas import quoted

__all__ = ["PATTERNS", "fits_type", "holds_decimal", "value_of_wire", "wire_type"]

# Possessive, so that a text that does not match is given up at once.
_DATE = r"[0-9]{4}-[0-9]{1,2}+-[0-9]{1,2}+"
_TIME = r"[T ][0-9]{1,2}+:[0-9]{1,2}+:[0-9]{1,2}+(?:\.[0-9]{1,9}+)?+"
PATTERNS: dict[type[DataType], str] = {
    DateType: f"^{_DATE}$",
    TimestampType: rf"^{_DATE}(?:{_TIME}(?:Z|[+-][0-9]{{2}}:?[0-9]{{2}})?+)?+$",
    TimestampNTZType: f"^{_DATE}(?:{_TIME})?+$",
}
"""How dates and timestamps look."""


def wire_type(declared: DataType) -> str:
    """The type that `from_json` is asked for, as DDL text."""
    match declared:
        case ByteType():
            return "SMALLINT"
        case DateType() | TimestampType() | TimestampNTZType():
            return "STRING"
        case ArrayType():
            return f"ARRAY<{wire_type(declared.elementType)}>"
        case MapType():
            return f"MAP<{declared.keyType.simpleString()}, {wire_type(declared.valueType)}>"
        case StructType():
            fields = (f"{quoted(f.name)}: {wire_type(f.dataType)}" for f in declared.fields)
            return f"STRUCT<{', '.join(fields)}>"
        case _:
            return declared.simpleString()


def holds_decimal(declared: DataType) -> bool:
    match declared:
        case ArrayType():
            return holds_decimal(declared.elementType)
        case MapType():
            return holds_decimal(declared.valueType)
        case StructType():
            return any(holds_decimal(field.dataType) for field in declared.fields)
        case _:
            return isinstance(declared, DecimalType)


def _is_plain(declared: DataType) -> bool:
    """True where `from_json` gives the declared type itself."""
    return wire_type(declared).lower() == _declared_text(declared).lower()


def _declared_text(declared: DataType) -> str:
    match declared:
        case ArrayType():
            return f"ARRAY<{_declared_text(declared.elementType)}>"
        case MapType():
            return f"MAP<{declared.keyType.simpleString()}, {_declared_text(declared.valueType)}>"
        case StructType():
            fields = (f"{quoted(f.name)}: {_declared_text(f.dataType)}" for f in declared.fields)
            return f"STRUCT<{', '.join(fields)}>"
        case _:
            return declared.simpleString()


def value_of_wire(wire: str, declared: DataType, depth: int = 0) -> str:
    """The wire value as the declared type; null where it does not fit (or fits as null)."""
    if _is_plain(declared):
        return wire
    element = f"_x{depth}"
    match declared:
        case ByteType():
            return f"try_cast({wire} AS TINYINT)"
        case DateType() | TimestampType() | TimestampNTZType():
            pattern = text_literal(PATTERNS[type(declared)])
            cast = f"try_cast({wire} AS {declared.simpleString()})"
            return f"CASE WHEN rlike({wire}, {pattern}) THEN {cast} END"
        case ArrayType():
            inner = value_of_wire(element, declared.elementType, depth + 1)
            return f"transform({wire}, {element} -> {inner})"
        case MapType():
            inner = value_of_wire(element, declared.valueType, depth + 1)
            return f"transform_values({wire}, (_k{depth}, {element}) -> {inner})"
        case StructType():
            fields = ", ".join(
                f"{text_literal(f.name)}, {value_of_wire(f'{wire}.{quoted(f.name)}', f.dataType, depth)}"
                for f in declared.fields
            )
            return f"CASE WHEN {wire} IS NOT NULL THEN named_struct({fields}) END"
        case _:
            raise AssertionError(f"{declared.simpleString()} has no form of its own on the wire")


def fits_type(wire: str, value: str, declared: DataType, depth: int = 0) -> str:
    """True where the wire value, which is not null, is one of the declared type."""
    element = f"_y{depth}"
    match declared:
        case ByteType() | DateType() | TimestampType() | TimestampNTZType():
            return f"{value} IS NOT NULL"
        case FloatType() | DoubleType():
            return f"abs({wire}) < double('Infinity')"
        case ArrayType():
            return _all(wire, element, declared.elementType, depth)
        case MapType():
            return _all(f"map_values({wire})", element, declared.valueType, depth)
        case StructType():
            checks = [
                _null_or_fits(f"{wire}.{quoted(f.name)}", f.dataType, depth)
                for f in declared.fields
            ]
            needed = [check for check in checks if check != "true"]
            return f"({' AND '.join(needed)})" if needed else "true"
        case _:
            return "true"


def _all(array: str, element: str, declared: DataType, depth: int) -> str:
    check = _null_or_fits(element, declared, depth + 1)
    return "true" if check == "true" else f"forall({array}, {element} -> {check})"


def _null_or_fits(wire: str, declared: DataType, depth: int) -> str:
    check = fits_type(wire, value_of_wire(wire, declared, depth), declared, depth)
    return "true" if check == "true" else f"({wire} IS NULL OR {check})"
