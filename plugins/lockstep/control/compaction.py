"""Which files of a table are merged, and when: levels by size, so that a row is rewritten rarely.

Files fall into levels, each `GROWTH` times the size of the one below. A level with `FANOUT` files is
merged together with everything below it into the level above. A row therefore takes part in about
log(size of the table) merges over its life, and a table has at most FANOUT files a level.

Merging takes what cancels out of a trace, so that all of it takes part. Of other tables (outboxes,
errors, the log of steps) every row stays: their files are merged until they are large.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["FANOUT", "LARGE_FILE_BYTES", "DataFileInfo", "files_to_merge"]

FANOUT = 8
GROWTH = 4
LEVEL_ZERO_BYTES = 1 << 20
LARGE_FILE_BYTES = 64 << 20
"""A file of so many bytes gains nothing by being merged with others, if no row of it goes."""


@dataclass(frozen=True, order=True)
class DataFileInfo:
    """One data file of a table at a snapshot."""

    path: str
    bytes: int
    records: int


def _level(file: DataFileInfo) -> int:
    level, limit = 0, LEVEL_ZERO_BYTES
    while file.bytes > limit:
        level, limit = level + 1, limit * GROWTH
    return level


def files_to_merge(
    files: Iterable[DataFileInfo], *, keeps_all_rows: bool = False
) -> tuple[DataFileInfo, ...]:
    """The files to merge now, sorted by path; empty where no level is full.

    The highest full level decides, and takes all below it along: one merge instead of several.
    `keeps_all_rows`: the table is no trace, and large files of it stay as they are.
    """
    levels: dict[int, list[DataFileInfo]] = {}
    for file in files:
        if file.bytes < LARGE_FILE_BYTES or not keeps_all_rows:
            levels.setdefault(_level(file), []).append(file)
    full = [level for level, members in levels.items() if len(members) >= FANOUT]
    if not full:
        return ()
    return tuple(
        sorted(f for level, members in levels.items() if level <= max(full) for f in members)
    )
