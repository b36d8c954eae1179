"""The options of a source: which of them its format has, and whether they fit the columns.

Everything that can be known from the declaration alone is refused here, with its place, so that
what decodes records need not look for it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from lockstep.errors import NotSupported, ProjectError
from lockstep.sql.circuit import SourceColumn, SourceTable
from lockstep.sql.names import closest
from lockstep.sql.sources.avro_schema import UnreadableSchemaError, fits_column, read_avro_schema
from lockstep.sql.sources.options import BROKER, check_known, choice, need, wrong
from lockstep.sql.sources.source_layout import (
    METADATA_TYPES,
    avro_schema_option,
    csv_signs,
    formats_of,
    layout_of,
    read_fields,
    read_metadata,
    read_names,
)
from lockstep.sql.sources.time_formats import READABLE, read_time_format
from lockstep.sql.sources.watermarks import WATERMARK_OPTIONS, checked_watermark

__all__ = ["checked_source"]

_COMMON = ("subscribe", "format", "on_error", "metadata", "startingoffsets", *WATERMARK_OPTIONS)
_CHOICES: Mapping[str, Mapping[str, str]] = {
    "on_error": {"table": "bad records go to <source>_errors", "fail": "they end the interval"},
    "missing_columns": {
        "error": "a record without a declared column is bad",
        "null": "nullable columns may be absent",
    },
    "partition_growth": {
        "multiple": "a topic grows to a multiple of its partitions",
        "any": "to any number, and who sends to it sees to the order of a key's records",
    },
}


@dataclass(frozen=True)
class _Format:
    """`options` are those that it has beside the common ones; `check` looks at its columns, those
    that are read with it."""

    options: tuple[str, ...]
    check: Callable[[SourceTable, Sequence[SourceColumn]], None]


def checked_source(source: SourceTable, files: Mapping[str, str]) -> SourceTable:
    """The source with its options as the engine reads them; `files` are those of the project, which
    schemas are taken from. Raises ProjectError, NotSupported."""
    options = {"format": "json", **source.options}
    source = replace(source, options=options)
    options["format"] = _format_name(source, "format", {**_FORMATS, **_KINDS})
    for key in ("value.format", "key.format"):
        if options["format"] == "upsert" and key in options:
            options[key] = _format_name(source, key, _FORMATS)
    need(source, "subscribe", "topic")
    need(source, BROKER, "${lockstep.kafka}")
    if "header" in options:
        raise NotSupported(
            f"{source.name} has an option 'header', which a topic's records have none of",
            position=source.position,
            expected="records that are one line of fields each",
            found=f"'header' = {options['header']!r}",
            next_step="leave it out, and let the producer send no header",
        )
    check_known(source, _known_options(source), f" with 'format' = '{options['format']}'")
    if "," in options["subscribe"]:
        raise NotSupported(
            f"{source.name} reads several topics",
            position=source.position,
            expected="one topic",
            found=options["subscribe"],
            next_step="declare one source per topic and UNION ALL them in a view",
        )
    for key, values in _CHOICES.items():
        if key in options:
            options[key] = choice(source, key, values)
    _check_metadata(source)
    _check_key(source)
    _check_fields(source)
    options.update(_schemas(source, files))
    options.update(checked_watermark(source))
    layout = layout_of(source)
    value = [column for column in source.columns if layout.is_of_value(column)]
    if not value:
        raise ProjectError(
            f"{source.name} declares no column of the value",
            position=source.position,
            expected="at least one column that neither 'metadata' nor 'key' names",
            found=", ".join(column.name for column in source.columns),
        )
    _FORMATS[layout.format].check(source, value)
    if layout.kind == "upsert":
        keys = [column for column in source.columns if layout.is_of_key(column)]
        _FORMATS[layout.key_format].check(source, keys)
    return source


def _schemas(source: SourceTable, files: Mapping[str, str]) -> dict[str, str]:
    """The options with schemas, as the text of the schema: it stands there or in a file."""
    found = {}
    for key in ("avro.schema", "key.avro.schema"):
        text = source.options.get(key, "").strip()
        if not text:
            continue
        if not text.startswith("{"):
            if text not in files:
                known = [name for name in files if name.endswith(".avsc")]
                expected = closest(text, known) or ["a file that ends in .avsc"]
                raise wrong(source, key, f"a schema as JSON, or {', '.join(expected)}")
            text = files[text]
        try:
            read_avro_schema(text)
        except UnreadableSchemaError as error:
            raise wrong(source, key, "the Avro schema of a record", str(error)) from None
        # Spacing is not what a schema says.
        found[key] = json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
    return found


def _format_name(source: SourceTable, key: str, known: Mapping[str, object]) -> str:
    name = source.options[key].lower()
    if name not in known:
        raise NotSupported(
            f"{source.name} has a format that is not supported",
            position=source.position,
            expected=" or ".join(f"{key!r} = {one!r}" for one in closest(name, known)),
            found=f"{key!r} = {source.options[key]!r}",
            next_step="write the topic's values in one of these",
        )
    return name


def _known_options(source: SourceTable) -> tuple[str, ...]:
    _, *formats = formats_of(source)
    own = [option for name in sorted(set(formats)) for option in _FORMATS[name].options]
    return tuple(dict.fromkeys((*_COMMON, *_KINDS.get(source.options["format"], ()), *own)))


def _check_metadata(source: SourceTable) -> None:
    """Each entry names what Kafka has, and a column of a type that can show it."""
    try:
        metadata = read_metadata(source.options.get("metadata", ""))
    except ValueError as error:
        raise wrong(
            source, "metadata", "entries such as `offset AS position`, each column once", str(error)
        ) from None
    for name, kind in metadata.items():
        if kind not in METADATA_TYPES:
            raise wrong(
                source, "metadata", f"one of {', '.join(closest(kind, METADATA_TYPES))}", kind
            )
        column = _declared(source, "metadata", name)
        if column.type not in METADATA_TYPES[kind]:
            types = " or ".join(METADATA_TYPES[kind])
            raise ProjectError(
                f"{source.name}: column {column.name} shows the {kind} of a record, "
                "and has another type",
                position=source.position,
                expected=f"{column.name} {types}",
                found=column.type,
            )


def _declared(source: SourceTable, key: str, name: str) -> SourceColumn:
    """The declared column of that lower-case name, which option `key` names."""
    for column in source.columns:
        if column.key == name:
            return column
    known = closest(name, [column.name for column in source.columns])
    raise wrong(
        source,
        key,
        f"declared columns: {', '.join(known)}",
        name,
        "declare the column with its type, or correct the name",
    )


def _check_key(source: SourceTable) -> None:
    """Keys are plain columns, and rows can be compared by all of theirs."""
    kind = source.options["format"]
    if kind == "upsert":
        need(source, "key", "id")
    try:
        keys = read_names(source.options.get("key", ""))
    except ValueError as error:
        raise wrong(source, "key", "declared columns: `a, b`, each once", str(error)) from None
    metadata = read_metadata(source.options.get("metadata", ""))
    for name in keys:
        column = _declared(source, "key", name)
        if name in metadata or "<" in column.type:
            raise wrong(
                source,
                "key",
                "columns of the record, and of types that are no ARRAY, MAP or STRUCT",
                f"{column.name} {column.type}"
                + (", which is metadata" if name in metadata else ""),
            )
    for column in source.columns:
        if keys and "MAP<" in column.type:
            raise NotSupported(
                f"{source.name} has a key and a column {column.name} of a type without equality",
                position=source.position,
                expected="another type than MAP",
                found=column.type,
                next_step="declare it as an ARRAY<STRUCT<...>>, or leave it out",
            )
    if "partition_growth" in source.options and not keys:
        raise wrong(
            source,
            "partition_growth",
            "an option 'key' beside it: without one no order counts, and a topic may grow as it likes",
        )
    if kind == "debezium" and metadata and not keys:
        raise wrong(
            source,
            "metadata",
            "an option 'key' beside it: a row that is taken back has the metadata of another record",
        )


def _check_fields(source: SourceTable) -> None:
    """Each path leads to one column, and none into what another column takes as a whole."""
    try:
        fields = read_fields(source.options.get("fields", ""))
    except ValueError as error:
        raise wrong(
            source,
            "fields",
            "entries such as `id = _id, at = meta.ts`, each column once",
            str(error),
        ) from None
    for name in fields:
        _declared(source, "fields", name)
    layout = layout_of(source)
    for name in fields:
        if name in layout.metadata:
            raise wrong(source, "fields", "columns of the value", f"{name}, which is metadata")
    for is_of_place in (layout.is_of_value, layout.is_of_key):
        _check_paths(source, [(c, layout.path(c)) for c in source.columns if is_of_place(c)])


def _check_paths(
    source: SourceTable, paths: Sequence[tuple[SourceColumn, tuple[str, ...]]]
) -> None:
    """Spark's names are the same without regard to case, those of JSON are not."""
    begins = [path[:length] for _, path in paths for length in range(1, len(path) + 1)]
    uses = Counter(map(_lower, begins))
    spelt = Counter(map(_lower, set(begins)))
    for column, path in paths:
        if uses[_lower(path)] > 1 or any(
            spelt[_lower(path[:length])] > 1 for length in range(1, len(path))
        ):
            raise wrong(
                source,
                "fields",
                "a field of its own for each column, without regard to case",
                f"{column.name} = {'.'.join(path)}, which another column reads, too",
            )


def _lower(path: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part.lower() for part in path)


def _check_json(source: SourceTable, columns: Sequence[SourceColumn]) -> None:
    """Any type that can be declared has a form in JSON."""


def _check_raw(source: SourceTable, columns: Sequence[SourceColumn]) -> None:
    if len(columns) != 1 or columns[0].type not in ("BINARY", "STRING"):
        raise ProjectError(
            f"{source.name} has 'raw' records, which are one column",
            position=source.position,
            expected="one column of type BINARY or STRING, beside those of 'metadata' and 'key'",
            found=", ".join(f"{column.name} {column.type}" for column in columns),
        )


def _check_csv(source: SourceTable, columns: Sequence[SourceColumn]) -> None:
    for column in columns:
        if "<" in column.type:
            raise NotSupported(
                f"{source.name}: column {column.name} has a type that CSV cannot hold",
                position=source.position,
                expected="a type that is no ARRAY, MAP or STRUCT",
                found=column.type,
                next_step="declare it as STRING, and take it apart in a view: from_json(...)",
            )
    if "sep" in source.options and "delimiter" in source.options:
        raise wrong(source, "delimiter", "'sep' or 'delimiter', which are the same, and not both")
    signs = csv_signs(source.options)
    for key, sign in zip(("sep", "quote", "escape"), signs, strict=True):
        if len(sign) != 1 or sign in "\r\n\0" or (sign == signs[0] and key != "sep"):
            given = next(k for k in (key, "sep", "delimiter") if k in source.options)
            raise wrong(source, given, "one character, the separator another than the others", sign)
    for key in ("dateformat", "timestampformat"):
        try:
            parts = read_time_format(source.options[key]) if key in source.options else ()
        except ValueError as error:
            raise wrong(source, key, READABLE, str(error)) from None
        if key == "dateformat" and any(
            part.letters[:1] in ("H", "m", "s", "S", "X") for part in parts if part.letters
        ):
            raise wrong(source, key, "a date alone: yyyy, MM, dd and literals")


def _check_avro(source: SourceTable, columns: Sequence[SourceColumn]) -> None:
    key = avro_schema_option(source, columns[0])
    has_registry = "schema.registry.url" in source.options
    if (key in source.options) == has_registry:
        raise ProjectError(
            f"{source.name} has Avro records, and does not say by which schema",
            position=source.position,
            expected=f"either {key!r} (JSON, or a file of the project) or 'schema.registry.url'",
            found="both" if has_registry else "neither",
        )
    for column in columns:
        if "STRUCT<" in column.type:
            raise NotSupported(
                f"{source.name}: column {column.name} has a type that is not read from Avro",
                position=source.position,
                expected="a type without STRUCT",
                found=column.type,
                next_step="declare a column for each field: 'fields' = 'city = address.city'",
            )
    if has_registry:
        return
    schema, layout = read_avro_schema(source.options[key]), layout_of(source)
    for column in columns:
        found = schema.at(layout.path(column))
        if found is None and not (column.nullable and source.absent_is_null):
            raise wrong(
                source, key, f"a field {'.'.join(layout.path(column))}", "none of that name"
            )
        if found is not None and not fits_column(schema, found[0], column.type):
            kind = found[0].get("logicalType", found[0]["type"])
            raise wrong(
                source, key, f"a type of {column.name} that fits {column.type}", f"Avro's {kind}"
            )


_CSV_OPTIONS = (
    *("sep", "delimiter", "quote", "escape", "nullvalue", "dateformat", "timestampformat"),
)
_JSON = _Format(("missing_columns", "fields"), _check_json)
_FORMATS: Mapping[str, _Format] = {
    "json": _JSON,
    "csv": _Format(_CSV_OPTIONS, _check_csv),
    "avro": _Format(
        ("avro.schema", "schema.registry.url", "missing_columns", "fields"), _check_avro
    ),
    "raw": _Format((), _check_raw),
}
_KINDS: Mapping[str, tuple[str, ...]] = {
    "upsert": ("key", "key.format", "value.format", "key.avro.schema", "partition_growth"),
    "debezium": ("key", "partition_growth"),
}
"""Formats that say what records mean, and take the values in another; with options of their own."""
