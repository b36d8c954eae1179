"""CSV values as columns: one line a record, one field a column, in the order of the declaration.

`from_csv` splits the line. It takes more than it should: quotes that do not end, several lines, an
empty text for any number of fields; so the line's grammar is checked apart. A field is either
without quotes at its start, or one quoted text as a whole. All fields are read as text first, and
then as their types (see `text_values`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from lockstep.sql.plans.terms import text_literal
from lockstep.sql.sources.source_layout import csv_signs
from lockstep_engine.sources.decoding import (
    FOUND_CHARACTERS,
    DeclaredColumn,
    Decoding,
    null_fault,
    value_name,
)
from lockstep_engine.sources.text_values import value_of_text

__all__ = ["csv_decoding"]

_CORRUPT = "_lockstep_corrupt"


def csv_decoding(
    columns: Sequence[DeclaredColumn], options: Mapping[str, str], of: str, stem: str = ""
) -> Decoding:
    """The columns from one line of CSV in the frame's column `of` (`_value`, `_key`); `stem` keeps
    the frame's columns of several lines apart."""
    text, fields, what = f"_{stem}text", f"_{stem}csv", of.strip("_")
    line = _line_pattern(options)
    checks = [
        f"is_valid_utf8({text})",
        f"rlike({text}, {text_literal(line)})",
        f"{fields}.{_CORRUPT} IS NULL",
    ]
    faults = [
        (f"{text} IS NULL", text_literal(f"the {what} is null, and a CSV record has one")),
        (f"NOT is_valid_utf8({text})", text_literal(f"the {what} is not UTF-8 text")),
        (f"{text} = ''", text_literal(f"the {what} is empty")),
        (f"rlike({text}, '\\\\x00')", text_literal(f"the {what} holds a zero byte")),
        (f"rlike({text}, '[\\\\r\\\\n]')", text_literal(f"the {what} is more than one line")),
        (
            f"NOT rlike({text}, {text_literal(line)})",
            text_literal(f"the {what} is not CSV: a quoted field does not end before the next one"),
        ),
        (f"{fields}.{_CORRUPT} IS NOT NULL", _wrong_number(text, what, len(columns), options)),
    ]
    for place, column in enumerate(columns):
        field, value = f"{fields}._{place}", value_name(column.number)
        wrong = text_literal(f"column {column.name} does not fit {column.type.simpleString()}: ")
        found = f"concat({wrong}, left({field}, {FOUND_CHARACTERS}))"
        if column.nullable:
            checks.append(f"({field} IS NULL OR {value} IS NOT NULL)")
        else:
            checks.append(f"{value} IS NOT NULL")
            faults.append(null_fault(column, field))
        faults.append((f"{field} IS NOT NULL AND {value} IS NULL", found))
    return Decoding(
        (
            (f"CAST({of} AS STRING) AS {text}",),
            (f"{_from_csv(text, len(columns), options)} AS {fields}",),
            tuple(
                f"{value_of_text(f'{fields}._{place}', c.type, options)} AS {value_name(c.number)}"
                for place, c in enumerate(columns)
            ),
        ),
        f"coalesce({' AND '.join(checks)}, false)",
        tuple(faults),
    )


def _from_csv(text: str, count: int, options: Mapping[str, str]) -> str:
    separator, quote, escape = csv_signs(options)
    schema = ", ".join([*(f"_{place} STRING" for place in range(count)), f"{_CORRUPT} STRING"])
    settings = {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": _CORRUPT,
        "sep": separator,
        "quote": quote,
        "escape": escape,
        "nullValue": options.get("nullvalue", ""),
    }
    pairs = ", ".join(
        f"{text_literal(key)}, {text_literal(value)}" for key, value in settings.items()
    )
    return f"from_csv({text}, {text_literal(schema)}, map({pairs}))"


def _quoted_pattern(options: Mapping[str, str]) -> str:
    _, quote, escape = (_in_class(sign) for sign in csv_signs(options))
    inner = f"[^{quote}{escape}\\r\\n]|[{escape}][^\\r\\n]"
    if quote == escape:
        inner = f"[^{quote}\\r\\n]|[{quote}]{{2}}"
    return f"[{quote}](?:{inner})*+[{quote}]"


def _line_pattern(options: Mapping[str, str]) -> str:
    """A line of fields, without zero bytes: Spark's parser takes them for signs of its own."""
    separator, quote, _ = (_in_class(sign) for sign in csv_signs(options))
    plain = f"(?:[^{quote}{separator}\\r\\n][^{separator}\\r\\n]*+)?+"
    field = f"(?:{_quoted_pattern(options)}|{plain})"
    return f"^(?!\\z)(?!.*\\x00){field}(?:[{separator}]{field})*+\\z"


def _wrong_number(text: str, what: str, count: int, options: Mapping[str, str]) -> str:
    separator = _in_class(csv_signs(options)[0])
    quoted = text_literal(f"(?<![^{separator}]){_quoted_pattern(options)}")
    fields = (
        f"size(split(regexp_replace({text}, {quoted}, ''), {text_literal(f'[{separator}]')}, -1))"
    )
    tail = text_literal(f" fields, and the source declares {count}")
    return f"concat({text_literal(f'the {what} has ')}, {fields}, {tail})"


def _in_class(sign: str) -> str:
    """The sign within a class of a regular expression."""
    return re.escape(sign) if sign != "^" else r"\^"
