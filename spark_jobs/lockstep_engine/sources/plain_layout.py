"""Which sources have records that may be plain, and what is made of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from lockstep.sql.sources.source_layout import Layout
from lockstep_engine.kernels.plain_json import PlainObject
from lockstep_engine.kernels.plain_kinds import (
    PlainEvents,
    PlainKey,
    PlainKeyed,
    PlainRecords,
    PlainRows,
)
from lockstep_engine.kernels.plain_values import PlainColumn
from lockstep_engine.sources.debezium import HAS_AFTER, HAS_BEFORE, IS_CHANGE, before_name
from lockstep_engine.sources.decoding import IS_DELETED, DeclaredColumn, value_name
from lockstep_engine.sources.metadata import metadata_decoding

__all__ = ["PlainLayout", "plain_layout"]

_TYPES = (
    BooleanType(),
    ByteType(),
    ShortType(),
    IntegerType(),
    LongType(),
    DoubleType(),
    StringType(),
    DateType(),
    TimestampType(),
    TimestampNTZType(),
)

_Columns = Sequence[DeclaredColumn]


@dataclass(frozen=True)
class PlainLayout:
    """What records are, and which columns `decoding` would make of them in place of theirs, in their
    order, with types."""

    records: PlainRecords
    columns: tuple[tuple[str, DataType], ...]


def plain_layout(
    layout: Layout, declared: Sequence[DeclaredColumn], absent_is_null: bool
) -> PlainLayout | None:
    """None where records or types are others."""
    shown = [one for one in declared if one.name.lower() in layout.metadata]
    # What is bad by what is shown of it is kept whole.
    if layout.format != "json" or metadata_decoding(shown, layout.metadata).is_good != "true":
        return None
    keys = [one for one in declared if one.name.lower() in layout.keys and one not in shown]
    others = [one for one in declared if one not in shown and one not in keys]
    if layout.kind == "debezium":
        return _of_events([one for one in declared if one not in shown], keys, absent_is_null)
    if layout.kind == "upsert":
        return _of_keys(layout, others, keys, absent_is_null)
    return _of_rows(others, absent_is_null)


def _of_rows(fields: _Columns, absent_is_null: bool) -> PlainLayout | None:
    if not _are_plain(fields):
        return None
    records = PlainRows(_object(fields, absent_is_null=absent_is_null))
    return PlainLayout(records, _named(fields))


def _of_keys(
    layout: Layout, fields: _Columns, keys: _Columns, absent_is_null: bool
) -> PlainLayout | None:
    is_raw = layout.key_format == "raw"
    if is_raw:
        are_keys = [one.type for one in keys] == [StringType()]
    else:
        are_keys = layout.key_format == "json" and _are_plain(keys)
    if not are_keys or not _are_plain(fields):
        return None
    content = _object(fields, absent_is_null=absent_is_null)
    records = PlainKeyed(content, PlainKey(_object(keys, keys), is_raw))
    columns = (*_named(fields), *_named(keys), (IS_DELETED, BooleanType()))
    return PlainLayout(records, columns)


def _of_events(fields: _Columns, keys: _Columns, absent_is_null: bool) -> PlainLayout | None:
    if not _are_plain(fields):
        return None
    columns = _object(fields, keys, absent_is_null=absent_is_null).columns
    records = PlainEvents(columns, tuple(fields.index(key) for key in keys))
    before = [] if keys else [(before_name(one.number), one.type) for one in fields]
    flags = (IS_CHANGE, IS_DELETED) if keys else (HAS_AFTER, HAS_BEFORE)
    return PlainLayout(
        records, (*_named(fields), *before, *((flag, BooleanType()) for flag in flags))
    )


def _object(fields: _Columns, keys: _Columns = (), *, absent_is_null: bool = False) -> PlainObject:
    """Fields, of which the `keys` are never null."""
    return PlainObject(
        tuple(
            PlainColumn(
                one.path[0],
                to_arrow_type(one.type),
                may_be_null := one.nullable and one not in keys,
                may_be_null and absent_is_null,
            )
            for one in fields
        )
    )


def _named(fields: _Columns) -> tuple[tuple[str, DataType], ...]:
    return tuple((value_name(one.number), one.type) for one in fields)


def _are_plain(fields: _Columns) -> bool:
    """Arrow takes no name twice, and finds no row where it looks for no field."""
    return all(map(_is_plain, fields)) and len({one.path for one in fields}) == len(fields) > 0


def _is_plain(column: DeclaredColumn) -> bool:
    """A field of the object itself; a decimal's name stands in the text as it is."""
    if len(column.path) != 1 or re.search(r"['?:,]", column.path[0]):
        # Of the first two Spark finds no field where it looks closer at a text; for the last two see
        # `says_null`.
        return False
    if isinstance(column.type, DecimalType):
        return column.path[0].isascii() and column.path[0].isidentifier()
    return column.type in _TYPES
