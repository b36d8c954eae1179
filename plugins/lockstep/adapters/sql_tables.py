"""The tables of the control store, as the newest migration leaves them (a test compares the two).

Times are UTC milliseconds since the epoch. Every table starts with its pipeline's name, so that
what a change touches lies together.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, Integer, MetaData, Table, Text

__all__ = [
    "HEAD",
    "METADATA",
    "attempts",
    "coordination",
    "divisions",
    "dropped_version_tables",
    "dropped_versions",
    "layouts",
    "pipelines",
    "sinks",
    "steps",
    "table_slices",
    "version_tables",
    "versions",
]

HEAD = "0007"
"""The revision that this code works with; `migrations/versions` ends with it."""

METADATA = MetaData()


def _table(name: str, *columns: Column[int] | Column[str]) -> Table:
    return Table(name, METADATA, *columns, sqlite_with_rowid=False)


def _key(name: str, kind: type[Text | BigInteger | Integer] = Text) -> Column[Any]:
    return Column(name, kind, primary_key=True, autoincrement=False)


def _number(name: str, *, nullable: bool = False) -> Column[int]:
    return Column(name, BigInteger, nullable=nullable)


def _text(name: str, *, nullable: bool = False) -> Column[str]:
    return Column(name, Text, nullable=nullable)


pipelines = _table(
    "pipelines",
    _key("name"),
    _text("incarnation"),
    _number("revision"),
    _text("files"),
    _text("desired"),
    _text("lease_holder", nullable=True),
    _number("lease_expires_ms", nullable=True),
    _number("next_step"),
    _number("oldest_step"),
    _number("last_time_ms", nullable=True),
    _text("positions"),
    _text("replaced", nullable=True),
    _number("stop_at", nullable=True),
    _number("rebuilt_step"),
    _text("first_counts"),
    _text("loads"),
)

steps = _table("steps", _key("pipeline"), _key("step", BigInteger), _number("time_ms"))

divisions = _table(
    "divisions",
    _key("pipeline"),
    _key("step", BigInteger),
    _key("source"),
    _key("partition", Integer),
    _text("topic"),
    _text("topic_id"),
    _number("start_offset"),
    _number("end_offset"),
)

table_slices = _table(
    "table_slices",
    _key("pipeline"),
    _key("step", BigInteger),
    _key("source"),
    _text("table_name"),
    _text("table_id"),
    _number("start_snapshot", nullable=True),
    _number("end_snapshot", nullable=True),
    _number("records"),
)


def _versions(name: str) -> Table:
    return _table(
        name,
        _key("pipeline"),
        _key("number", BigInteger),
        _text("attempt"),
        _number("last_step"),
        _number("layout_epoch"),
    )


def _version_tables(name: str) -> Table:
    return _table(
        name,
        _key("pipeline"),
        _key("number", BigInteger),
        _key("table_name"),
        _number("snapshot_id"),
    )


versions = _versions("versions")
version_tables = _version_tables("version_tables")

# A replay makes versions of the same numbers: those that a rollback dropped have tables of their own.
dropped_versions = _versions("dropped_versions")
dropped_version_tables = _version_tables("dropped_version_tables")

attempts = _table(
    "attempts",
    _key("pipeline"),
    _key("id"),
    # The revision at which it began gives the order of attempts: a change begins one at most.
    _number("begun_revision"),
    _number("first_step"),
    _number("last_step"),
    _text("base"),
    _text("state"),
    _text("session"),
)

sinks = _table(
    "sinks",
    _key("pipeline"),
    _key("name"),
    _number("ordinal"),
    _text("view"),
    _text("provider"),
    _number("published_step"),
    _number("intent_first_step", nullable=True),
    _number("intent_last_step", nullable=True),
)

layouts = _table(
    "layouts",
    _key("pipeline"),
    _key("epoch", BigInteger),
    _number("from_step", nullable=True),
    _text("layout"),
)

coordination = _table(
    "coordination",
    _key("pipeline"),
    _key("group_name"),
    _key("worker"),
    # JSON of control.coordination: each row is written by its worker alone.
    _text("progress"),
)
