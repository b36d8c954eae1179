"""Metadata columns: what Kafka knows of a record, under the names that the source declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql.types import StringType

from lockstep.sql.plans.terms import text_literal
from lockstep_engine.sources.decoding import (
    DeclaredColumn,
    Decoding,
    null_fault,
    value_name,
)

__all__ = ["metadata_decoding"]


def metadata_decoding(columns: Sequence[DeclaredColumn], metadata: Mapping[str, str]) -> Decoding:
    """The columns that `metadata` names, by lower-case name and what they show of the record.

    All of it fits, but for a key that is shown as text and is none, and what is null and must not
    be: a key, or headers where there are none.
    """
    values: list[str] = []
    checks: list[str] = []
    faults: list[tuple[str, str]] = []
    for column in columns:
        kind = metadata[column.name.lower()]
        shown = f"_{kind}"
        if kind == "key" and isinstance(column.type, StringType):
            text = "CAST(_key AS STRING)"
            checks.append(f"coalesce(is_valid_utf8({text}), true)")
            faults.append(
                (
                    f"NOT coalesce(is_valid_utf8({text}), true)",
                    text_literal(f"column {column.name}: the key is not UTF-8 text"),
                )
            )
            shown = text
        values.append(f"{shown} AS {value_name(column.number)}")
        if not column.nullable:
            checks.append(f"{shown} IS NOT NULL")
            faults.append(null_fault(column, shown))
    return Decoding(
        (tuple(values),) if values else (), " AND ".join(checks) or "true", tuple(faults)
    )
