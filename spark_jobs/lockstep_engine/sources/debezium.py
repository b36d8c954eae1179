"""Change events as Debezium writes them: the row before, the row after, and what was done.

An event is `{"before", "after", "op", ...}`, or that as the `payload` of `{"schema", "payload"}`;
`c`, `r` and `u` have a row after, `u` and `d` one before. A tombstone and a message (`m`) say
nothing about rows; a truncation (`t`) does, without naming them, so it is bad.

Without keys the events are taken at their word: -before +after, which is right as long as each
comes once. With keys a record is the key's row from then on (`after`), or its end (`d`, with the
key columns of `before`), which is right as well where events are repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lockstep.sql.plans.terms import text_literal
from lockstep_engine.sources.decoding import DeclaredColumn, Decoding, value_name
from lockstep_engine.sources.json_types import wire_type
from lockstep_engine.sources.json_values import JsonObject, JsonText, schema_of

__all__ = ["HAS_AFTER", "HAS_BEFORE", "IS_CHANGE", "before_name", "debezium_decoding"]

HAS_AFTER, HAS_BEFORE, IS_CHANGE = "_has_after", "_has_before", "_is_change"
"""Columns of the frame: whether a good record brings a row, takes one away, does one of the two."""

_TEXT = JsonText("_text", "_json", "value")


def before_name(number: int) -> str:
    """The frame's column for a declared column in the row before."""
    return f"_b{number}"


def debezium_decoding(
    columns: Sequence[DeclaredColumn], keys: Sequence[DeclaredColumn], absent_is_null: bool
) -> Decoding:
    """The columns of the row after as `_v<n>`, of the row before as `_b<n>`; with keys, of that row
    only those are read, and where a record deletes they are its `_v<n>`."""
    before = keys or columns
    sides = [
        _Side("after", HAS_AFTER, _object("after", columns, absent_is_null, "_a")),
        _Side("before", HAS_BEFORE, _object("before", before, absent_is_null, "_b")),
    ]
    huge = list(dict.fromkeys(fault for side in sides for fault in side.row.huge_faults()))
    events = [(("op",), "STRING")] + [
        (
            (side.name,),
            f"STRUCT<{schema_of([(c.path, wire_type(c.type)) for c in side.row.columns])}>",
        )
        for side in sides
    ]
    schema = schema_of([*events, *((("payload", *path), kind) for path, kind in events)])
    key_numbers = {key.number for key in keys}
    values = [
        f"IF({HAS_BEFORE}, _b{c.number}, _a{c.number}) AS {value_name(c.number)}"
        if c.number in key_numbers
        else f"_a{c.number} AS {value_name(c.number)}"
        for c in columns
    ]
    takes = "_op IN ('d')" if keys else "_op IN ('u', 'd')"
    return Decoding(
        (
            (f"CAST(_value AS STRING) AS {_TEXT.name}",),
            (_TEXT.parse(schema, huge),),
            tuple(_of_payload(name) for name in ("op", "before", "after")),
            (
                f"coalesce(_op IN ('c', 'r', 'u'), false) AS {HAS_AFTER}",
                f"coalesce({takes}, false) AS {HAS_BEFORE}",
                *(column for side in sides for column in side.row.values()),
            ),
            (*values, f"({HAS_AFTER} OR {HAS_BEFORE}) AS {IS_CHANGE}"),
        ),
        _is_good(sides),
        (*_TEXT.faults(), *huge, *_faults(sides)),
    )


@dataclass(frozen=True)
class _Side:
    """One of the two rows of an event; `condition` says where it counts."""

    name: str
    condition: str
    row: JsonObject

    @property
    def is_there(self) -> str:
        return f"_{self.name} IS NOT NULL"


def _object(
    name: str, columns: Sequence[DeclaredColumn], absent_is_null: bool, stem: str
) -> JsonObject:
    return JsonObject(
        tuple(columns),
        _TEXT.name,
        f"_{name}",
        absent_is_null,
        stem=stem,
        keys=f"_{name}_keys",
        places=((name,), ("payload", name)),
    )


def _of_payload(name: str) -> str:
    parsed = _TEXT.parsed
    return f"IF({parsed}.payload IS NOT NULL, {parsed}.payload.{name}, {parsed}.{name}) AS _{name}"


def _is_good(sides: Sequence[_Side]) -> str:
    rows = [
        f"(NOT {side.condition} OR ({' AND '.join([side.is_there, *side.row.checks()])}))"
        for side in sides
    ]
    known = f"(_op = 'm' OR {HAS_AFTER} OR {HAS_BEFORE})"
    event = " AND ".join([*_TEXT.checks(), known, *rows])
    return f"(_value IS NULL OR coalesce({event}, false))"


def _faults(sides: Sequence[_Side]) -> list[tuple[str, str]]:
    truncates = "op t takes all rows away, and names none: it cannot be followed"
    faults = [
        ("_op IS NULL", text_literal("the value has no op, so it is no change event")),
        ("_op = 't'", text_literal(truncates)),
        (
            f"NOT (_op = 'm' OR {HAS_AFTER} OR {HAS_BEFORE})",
            "concat('op ', _op, ' is not one of c, r, u, d, t, m')",
        ),
    ]
    for side in sides:
        absent = f"concat('op ', _op, ' comes without the row {side.name}')"
        faults.append((f"{side.condition} AND NOT {side.is_there}", absent))
        faults += [(f"{side.condition} AND ({f})", text) for f, text in side.row.faults()]
    return faults
