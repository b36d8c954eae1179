"""The watermark of a source: the options `watermark` and `watermark_delay`.

Options, and no clause of CREATE TABLE: a declaration stays one that Spark can read, as all that is
said of a source. Databricks' `WATERMARK column DELAY OF INTERVAL ...` stands behind a source's name in a
query, where each query could have another; here late rows leave the source itself, into one table.
"""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.errors import NotSupported
from lockstep.sql.circuit import SourceTable
from lockstep.sql.names import closest
from lockstep.sql.reading.intervals import interval_microseconds, interval_text
from lockstep.sql.sources.options import need, wrong
from lockstep.sql.sources.source_layout import layout_of

__all__ = ["WATERMARK_OPTIONS", "SourceWatermark", "checked_watermark", "watermark_of"]

WATERMARK_OPTIONS = ("watermark", "watermark_delay")
_COLUMN, _DELAY = WATERMARK_OPTIONS


@dataclass(frozen=True)
class SourceWatermark:
    """The column, in lower case, and by how many microseconds the watermark is behind its greatest
    value."""

    column: str
    delay: int


def watermark_of(source: SourceTable) -> SourceWatermark | None:
    """What checked options say; None where they say nothing."""
    if _COLUMN not in source.options:
        return None
    return SourceWatermark(source.options[_COLUMN], interval_microseconds(source.options[_DELAY]))


def checked_watermark(source: SourceTable) -> dict[str, str]:
    """The two options in one spelling, none where there is no watermark; other options are checked.

    Raises ProjectError; NotSupported for a source whose records replace each other.
    """
    options = source.options
    if _COLUMN not in options:
        if _DELAY in options:
            need(source, _COLUMN, "ts")
        return {}
    named = {column.key: column for column in source.columns}
    column = named.get(options[_COLUMN].lower())
    if column is None or column.type != "TIMESTAMP":
        times = [one.name for one in source.columns if one.type == "TIMESTAMP"]
        known = ", ".join(closest(options[_COLUMN], times)) or "none is declared"
        found = f"{column.name} {column.type}" if column else options[_COLUMN]
        raise wrong(source, _COLUMN, f"a declared column of type TIMESTAMP: {known}", found)
    try:
        delay = interval_microseconds(options.get(_DELAY, "0 seconds"))
    except ValueError:
        delay = -1
    if delay < 0:
        raise wrong(source, _DELAY, "a length such as '10 seconds' or '1 hour 30 minutes'")
    if not source.is_table and layout_of(source).keys:
        raise NotSupported(
            f"{source.name} has a watermark, and records that replace each other by key",
            position=source.position,
            expected="a source whose records are rows",
            found=f"'format' = '{options['format']}' with a key",
            next_step="leave the watermark out: of a key the last record counts, however late it is",
        )
    return {_COLUMN: column.key, _DELAY: interval_text(delay) if delay else "0 seconds"}
