"""Raw values: the bytes of a record, or its text, as one column."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.types import StringType

from lockstep.sql.plans.terms import text_literal
from lockstep_engine.sources.decoding import (
    DeclaredColumn,
    Decoding,
    null_fault,
    value_name,
)

__all__ = ["raw_decoding"]


def raw_decoding(columns: Sequence[DeclaredColumn], of: str) -> Decoding:
    """The one column, from the frame's column `of` (`_value`, `_key`): null where that is null, and
    text only where it is UTF-8."""
    (column,) = columns
    value = value_name(column.number)
    checks: list[str] = []
    faults: list[tuple[str, str]] = []
    if isinstance(column.type, StringType):
        checks.append(f"coalesce(is_valid_utf8({value}), true)")
        text = text_literal(f"column {column.name}: the {of.strip('_')} is not UTF-8 text")
        faults.append((f"NOT coalesce(is_valid_utf8({value}), true)", text))
    if not column.nullable:
        checks.append(f"{value} IS NOT NULL")
        faults.append(null_fault(column, value))
    stage = f"CAST({of} AS {column.type.simpleString()}) AS {value}"
    return Decoding(((stage,),), " AND ".join(checks) or "true", tuple(faults))
