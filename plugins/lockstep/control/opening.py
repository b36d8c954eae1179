"""Which versions can be opened: what every table can open, intersected.

The recorded newest version is the one to open, one more than last time; the control store's compare and
set sees to that. What it names may still be gone: an expiry by hand, a table dropped, a catalog restored
from a backup. Asking all tables costs a load of each one's metadata, so an interval does not ask before
it begins: what it opens fails by itself, and then the question says what is lost and what is left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from lockstep.control.model import PipelineState, Version
from lockstep.control.ports import State
from lockstep.errors import StateDiverged
from lockstep.threads import in_parallel

__all__ = ["Opening", "examine", "openable", "require", "versions_by_table"]

TABLES_SHOWN = 5


@dataclass(frozen=True)
class Opening:
    """`versions`: the numbers of those that every table can open, oldest first; `lacking`: for each
    other recorded version, the tables that cannot."""

    versions: tuple[int, ...]
    lacking: Mapping[int, tuple[str, ...]] = field(hash=False)

    @property
    def newest(self) -> int | None:
        """The greatest that can be opened, None where there is none."""
        return max(self.versions, default=None)


def versions_by_table(
    versions: Iterable[Version], snapshots: Mapping[str, Collection[int | None]]
) -> Mapping[str, frozenset[int]]:
    """What each table answers to `versions()`: the numbers whose snapshot of it is in `snapshots`.

    A table that a version does not name is new after it, and is opened at its empty root: None.
    """
    recorded = tuple(versions)
    return {
        table: frozenset(
            version.number for version in recorded if version.tables.get(table) in held
        )
        for table, held in snapshots.items()
    }


def openable(versions: Iterable[Version], by_table: Mapping[str, Collection[int]]) -> Opening:
    """The recorded versions that all of the tables can open."""
    lacking = {
        version.number: tuple(
            sorted(t for t, held in by_table.items() if version.number not in held)
        )
        for version in versions
    }
    return Opening(
        tuple(sorted(number for number, tables in lacking.items() if not tables)),
        {number: tables for number, tables in lacking.items() if tables},
    )


def examine(tables: State, versions: Iterable[Version]) -> Opening:
    """Ask every table that one of the versions names: a load of its metadata each."""
    recorded = tuple(versions)
    names = sorted({table for version in recorded for table in version.tables})
    snapshots = dict(zip(names, in_parallel(tables.snapshots, names), strict=True))
    return openable(recorded, versions_by_table(recorded, snapshots))


def require(recorded: PipelineState, number: int, opening: Opening) -> None:
    """Raise StateDiverged where version `number` cannot be opened, naming the tables that lack it."""
    lacking = opening.lacking.get(number)
    if lacking is None:
        return
    shown = ", ".join(lacking[:TABLES_SHOWN])
    more = len(lacking) - TABLES_SHOWN
    tables = f"{shown} and {more} more" if more > 0 else shown
    if recorded.dropped and number == recorded.version.number:
        raise StateDiverged(
            f"pipeline {recorded.name}: version {number}, to which it was rolled back, cannot be opened",
            expected="its snapshot of every table",
            found=f"none of {tables}",
            next_step=f"lockstep rollback {recorded.name} --undo",
        )
    if opening.newest is None:
        raise StateDiverged(
            f"pipeline {recorded.name}: no version can be opened",
            expected=f"one of {_numbers(opening.lacking)}, all of whose snapshots are there",
            found=f"version {number} without its snapshots of {tables}",
            next_step="restore the tables' metadata, or deploy the project under another name",
        )
    raise StateDiverged(
        f"pipeline {recorded.name}: version {number} cannot be opened",
        expected="its snapshot of every table",
        found=f"none of {tables}; {_numbers(opening.versions)} can be opened",
        next_step=f"lockstep rollback {recorded.name} --to-version {opening.newest}, which runs the "
        "steps after it again",
    )


def _numbers(numbers: Iterable[int]) -> str:
    return "versions " + ", ".join(map(str, sorted(numbers)))
