"""How a Kafka source's records are laid out: where each declared column is read from.

Declared columns come from the record's value, from its key, or from what Kafka knows of it. Which
is which is said by options alone, so that a declaration stays one that Spark can read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from lockstep.sql.circuit import SourceColumn, SourceTable

__all__ = [
    "METADATA_TYPES",
    "Layout",
    "avro_schema_option",
    "csv_signs",
    "decoding_options",
    "formats_of",
    "layout_of",
    "read_fields",
    "read_metadata",
    "read_names",
]

METADATA_TYPES: Mapping[str, tuple[str, ...]] = {
    "topic": ("STRING",),
    "partition": ("INT",),
    "offset": ("BIGINT",),
    "timestamp": ("TIMESTAMP",),
    "key": ("BINARY", "STRING"),
    "headers": ("ARRAY<STRUCT<key: STRING, value: BINARY>>",),
    "step_time": ("TIMESTAMP",),
}
"""What Kafka knows of a record, under the names of Spark's Kafka source, and the types of each; and
the time of the step that took it in, which is when it was processed, and stays with it."""

_WORD = r"(?:\w+|`(?:[^`]|``)+`)"
_METADATA_ITEM = re.compile(rf"(\w+)(?:\s+as\s+({_WORD}))?", re.IGNORECASE)
_FIELD_ITEM = re.compile(rf"({_WORD})\s*=\s*({_WORD}(?:\.{_WORD})*)")
_ELSEWHERE = frozenset(
    {
        *("subscribe", "format", "missing_columns", "on_error", "startingoffsets"),
        *("schema.registry.url", "partition_growth"),
    }
)


@dataclass(frozen=True)
class Layout:
    """Where columns are read from; all names of columns are lower case.

    `format` is that of the values; `kind` says what a record means: `rows` (each record is a row),
    `upsert` (the row of a key) or `debezium` (a change of a row). `metadata` maps a column to what
    it shows, `fields` one of the value to its path there. `keys` are the columns by which records
    replace each other; with kind `upsert` they are read from the record's key, by `key_format`.
    """

    kind: str
    format: str
    key_format: str
    metadata: Mapping[str, str]
    fields: Mapping[str, tuple[str, ...]]
    keys: tuple[str, ...]

    @property
    def takes_back(self) -> bool:
        """Whether a record can take a row back by itself."""
        return self.kind == "debezium" and not self.keys

    def is_of_key(self, column: SourceColumn) -> bool:
        """Whether the column is read from the record's key."""
        return self.kind == "upsert" and column.key in self.keys

    def is_of_value(self, column: SourceColumn) -> bool:
        """Whether the column is read from the record's value."""
        return column.key not in self.metadata and not self.is_of_key(column)

    def path(self, column: SourceColumn) -> tuple[str, ...]:
        """The path of the field, in values that have names."""
        return self.fields.get(column.key, (column.name,))


def layout_of(source: SourceTable) -> Layout:
    """The layout that checked options say."""
    options = source.options
    return Layout(
        *formats_of(source),
        read_metadata(options.get("metadata", "")),
        read_fields(options.get("fields", "")),
        read_names(options.get("key", "")),
    )


def formats_of(source: SourceTable) -> tuple[str, str, str]:
    """What a record means, the format of values and that of keys."""
    options = source.options
    match options.get("format", "json"):
        case "upsert":
            value = options.get("value.format", "json")
            return "upsert", value, options.get("key.format", value)
        case "debezium":
            return "debezium", "json", "json"
        case name:
            return "rows", name, name


def avro_schema_option(source: SourceTable, column: SourceColumn) -> str:
    """The option with the schema of the records that hold the column."""
    return "key.avro.schema" if layout_of(source).is_of_key(column) else "avro.schema"


def csv_signs(options: Mapping[str, str]) -> tuple[str, str, str]:
    """The separator, the quote and the sign that escapes a quote."""
    separator = options.get("sep", options.get("delimiter", ","))
    # As Spark reads it, too: a tab can hardly be seen in a file.
    separator = "\t" if separator == "\\t" else separator
    return separator, options.get("quote", '"'), options.get("escape", "\\")


def decoding_options(source: SourceTable) -> dict[str, str]:
    """The options, beside format and topic, by which the same bytes become other rows."""
    return {
        key: value
        for key, value in sorted(source.options.items())
        if key not in _ELSEWHERE and not key.startswith("kafka.")
    }


def read_metadata(text: str) -> dict[str, str]:
    """'partition AS p, topic' is {'p': 'partition', 'topic': 'topic'}. Raises ValueError with the
    part that can't be read."""
    found: dict[str, str] = {}
    for part in _parts(text):
        match = _METADATA_ITEM.fullmatch(part)
        if match is None:
            raise ValueError(part)
        name = _plain(match[2] or match[1]).lower()
        if name in found:
            raise ValueError(part)
        found[name] = match[1].lower()
    return found


def read_fields(text: str) -> dict[str, tuple[str, ...]]:
    """'id = _id, at = meta.ts' is {'id': ('_id',), 'at': ('meta', 'ts')}. Raises ValueError with
    the part that can't be read."""
    found: dict[str, tuple[str, ...]] = {}
    for part in _parts(text):
        match = _FIELD_ITEM.fullmatch(part)
        if match is None or _plain(match[1]).lower() in found:
            raise ValueError(part)
        path = re.findall(_WORD, match[2])
        found[_plain(match[1]).lower()] = tuple(map(_plain, path))
    return found


def read_names(text: str) -> tuple[str, ...]:
    """'a, `b c`' is ('a', 'b c'), in lower case. Raises ValueError with the part that can't be read."""
    found: list[str] = []
    for part in _parts(text):
        name = _plain(part).lower()
        if not re.fullmatch(_WORD, part) or name in found:
            raise ValueError(part)
        found.append(name)
    return tuple(found)


def _parts(text: str) -> list[str]:
    """What stands between commas, but for those within backticks."""
    return [part.strip() for part in re.findall(r"(?:`[^`]*`|[^,`])+|`", text) if part.strip()]


def _plain(word: str) -> str:
    return word[1:-1].replace("``", "`") if word.startswith("`") else word
