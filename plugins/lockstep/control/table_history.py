"""The snapshots of a followed Iceberg table: which a step ends at, and how its rows are found.

The law: the slices of a table continue each other, snapshot to snapshot, and what a slice changes
depends on its two snapshots alone. A step ends at what `main` has shown, by its time: a snapshot on
the way there, of a branch that came to `main` in several commits, is a state that nobody has seen.
Times only choose where steps end: once recorded, nothing looks at one again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from lockstep.control.model import TableSlice
from lockstep.errors import SourceChanged

__all__ = ["Reading", "Shown", "TableHistory", "TableSnapshot"]

_APPEND, _REPLACE = "append", "replace"


class Reading(Enum):
    """How the rows of a slice are found.

    NOTHING      no row changes: no snapshot, or only ones that put the same rows into other files
    ALL          every row at the slice's end, as nothing was read before
    APPENDS      the rows of the files that its snapshots appended
    DIFFERENCE   the rows at its end less those at its start, from the files that differ
    """

    NOTHING = "nothing"
    ALL = "all"
    APPENDS = "appends"
    DIFFERENCE = "difference"


@dataclass(frozen=True)
class TableSnapshot:
    """One snapshot by its own summary: `added` and `removed` are upper bounds of the rows that it put
    in and took away, `total` of the rows that it holds. `time` is that of its commit, UTC. `misfit`
    names a declared column that the snapshot's schema has not, or has as another column of that name
    than the table has now; '' where there is none."""

    snapshot_id: int
    parent_id: int | None
    time: datetime
    operation: str
    added: int
    removed: int
    total: int
    misfit: str = ""

    @property
    def changed(self) -> int:
        return 0 if self.operation == _REPLACE else self.added + self.removed


@dataclass(frozen=True)
class Shown:
    """A snapshot to which `main` went, and when, UTC."""

    snapshot_id: int
    time: datetime


@dataclass(frozen=True)
class TableHistory:
    """A table as its metadata shows it at one moment.

    `snapshots` are all that are kept, on whatever branch, by id; `head` is that of `main`, None where
    there is none. With `append_only` a snapshot that takes rows away is refused. `log` is where `main`
    went, oldest first, as far as that is known: what was before a snapshot that has expired may be
    missing, and what a writer did that keeps no log.
    """

    source: str
    table: str
    table_id: str
    head: int | None
    snapshots: Mapping[int, TableSnapshot] = field(hash=False)
    append_only: bool = False
    log: tuple[Shown, ...] = ()

    def between(self, start: int | None, end: int | None) -> tuple[TableSnapshot, ...] | None:
        """The snapshots after `start` up to `end`, oldest first; from the oldest kept where `start` is
        None. None where `end` does not descend from `start` over snapshots that are kept; `start`
        itself may have expired."""
        if start == end:
            return ()
        found: list[TableSnapshot] = []
        for snapshot in self._line(end):
            found.append(snapshot)
            if snapshot.parent_id == start and start is not None:
                break
        else:
            if start is not None:
                return None
        return tuple(reversed(found))

    def reading(self, start: int | None, end: int | None) -> Reading:
        """How the rows of a slice are found. Raises SourceChanged where they cannot be: a snapshot has
        expired or has other columns, or the source is append-only and rows were taken away."""
        if start == end:
            return Reading.NOTHING
        for snapshot_id in (start, end):
            self._check_columns(snapshot_id)
        self._check_kept(end, "which a recorded step reads up to, has expired")
        if start is None:
            return Reading.ALL
        line = self.between(start, end)
        if line is not None:
            operations = {snapshot.operation for snapshot in line} - {_REPLACE}
            if not operations:
                return Reading.NOTHING
            if operations == {_APPEND}:
                return Reading.APPENDS
        self._check_kept(start, "which was read last, has expired, and what replaced it is unknown")
        if self.append_only:
            self._check_append_only(start, end, line)
        return Reading.DIFFERENCE

    def records(self, start: int | None, end: int | None) -> int:
        """An upper bound of the rows that a slice changes."""
        if start is None and end is not None:
            return self._total(end)
        line = self.between(start, end)
        if line is None:
            return self._total(start) + self._total(end)
        return sum(snapshot.changed for snapshot in line)

    def ends(
        self, start: int | None, times: tuple[datetime, ...], *, last_is_newest: bool
    ) -> tuple[int | None, ...]:
        """Where steps of these times end, if the table was read up to `start`: at the newest snapshot
        that `main` showed before the time, of those that lead to its head. With `last_is_newest` the
        last one ends at the head, whatever its clock said. A snapshot whose clock was behind that of
        the one shown before it counts as shown with that one."""
        if self.head is None:
            return (None,) * len(times)
        shown = self._shown_after(start)
        ends: list[int | None] = []
        reached, at = start, 0
        latest: datetime | None = None
        for time in times:
            while at < len(shown):
                since = max(latest or shown[at].time, shown[at].time)
                if since >= time:
                    break
                reached, latest, at = shown[at].snapshot_id, since, at + 1
            ends.append(reached)
        if last_is_newest and ends:
            ends[-1] = self.head
        return tuple(ends)

    def pieces(
        self, start: int | None, end: int | None, rows_per_piece: int
    ) -> Iterator[int | None]:
        """Ends that cut (start, end] at what `main` showed in between into pieces of at most so many
        rows; what came from one showing to the next is in one piece, even where it is more."""
        rows, coming, last = 0, 0, start
        line = () if start is None else self.between(start, end) or ()
        shown = {one.snapshot_id for one in self._shown_after(start)} - self._later(start, end) | {
            end
        }
        for snapshot in line:
            coming += snapshot.changed
            if snapshot.snapshot_id in shown:
                if rows and rows + coming > rows_per_piece:
                    yield last
                    rows = 0
                rows, coming, last = rows + coming, 0, snapshot.snapshot_id
        yield end

    def slice(self, start: int | None, end: int | None) -> TableSlice:
        """The slice from `start` to `end`. Raises SourceChanged where it could not be read."""
        self.reading(start, end)
        return TableSlice(
            self.source, self.table, self.table_id, start, end, self.records(start, end)
        )

    def check_same(self, before: TableSlice) -> None:
        """Raise SourceChanged unless this is the table whose snapshots are recorded."""
        if before.table != self.table:
            raise SourceChanged(
                f"source {self.source} reads another table than before",
                expected=f"table {before.table}, whose snapshots are recorded",
                found=f"table {self.table}",
                next_step=f"give the source of {self.table} another name, then lockstep deploy DIR",
            )
        if before.table_id != self.table_id:
            raise SourceChanged(
                f"source {self.source}: table {self.table} was dropped and made anew",
                expected=f"table uuid {before.table_id}, whose snapshots are recorded",
                found=f"table uuid {self.table_id}",
                next_step=_ANEW,
            )

    def _shown_after(self, start: int | None) -> tuple[Shown, ...]:
        """What `main` showed on its way from `start` to its head, each snapshot after its ancestors.

        Where the head does not descend from `start`, which was rolled back, its own past is the way.
        What `main` showed and has left again is passed over, as it would have to be taken back. What
        comes after the newest that is logged counts as shown when it was committed: who wrote it keeps
        no log, and to wait until such a table rests could take forever.
        """
        line = self.between(start, self.head)
        if line is None:
            line = self.between(None, self.head) or ()
        places = {snapshot.snapshot_id: place for place, snapshot in enumerate(line)}
        left = [place for place, one in enumerate(self.log) if one.snapshot_id == start]
        found: list[Shown] = []
        reached = -1
        for one in self.log[left[-1] + 1 if left else 0 :]:
            place = places.get(one.snapshot_id, -1)
            if place > reached:
                found.append(one)
                reached = place
        found += (Shown(snapshot.snapshot_id, snapshot.time) for snapshot in line[reached + 1 :])
        return tuple(found)

    def _later(self, start: int | None, end: int | None) -> set[int]:
        """What `main` showed for the first time after it had gone from `start` to `end`: it may have
        gone back and come again, by other snapshots."""
        log = [one.snapshot_id for one in self.log]
        first = log.index(start) if start in log else 0
        reached = log.index(end, first) if end in log[first:] else len(log)
        return {*log[reached:]} - {*log[:reached]}

    def _line(self, head: int | None) -> Iterator[TableSnapshot]:
        """The snapshot and its ancestors, newest first, as far as they are kept."""
        while head is not None and (snapshot := self.snapshots.get(head)) is not None:
            yield snapshot
            head = snapshot.parent_id

    def _total(self, snapshot_id: int | None) -> int:
        snapshot = None if snapshot_id is None else self.snapshots.get(snapshot_id)
        return 0 if snapshot is None else snapshot.total

    def _check_kept(self, snapshot_id: int | None, what: str) -> None:
        if snapshot_id is None or snapshot_id in self.snapshots:
            return
        raise SourceChanged(
            f"source {self.source}: snapshot {snapshot_id} of table {self.table}, {what}",
            expected=f"snapshot {snapshot_id}",
            found=f"{len(self.snapshots)} others in the table's metadata",
            next_step=f"{_ANEW}; keep snapshots longer than the longest time between two intervals "
            f"(history.expire.max-snapshot-age-ms of {self.table})",
        )

    def _check_columns(self, snapshot_id: int | None) -> None:
        snapshot = None if snapshot_id is None else self.snapshots.get(snapshot_id)
        if snapshot is None or not snapshot.misfit:
            return
        raise SourceChanged(
            f"source {self.source}: column {snapshot.misfit} of table {self.table} was added or made "
            f"anew after snapshot {snapshot_id}",
            expected="the column that the table has now",
            found="another one, or none",
            next_step="if no step has read the table yet, commit to it (an INSERT of no rows will do); "
            f"else {_ANEW}",
        )

    def _check_append_only(
        self, start: int | None, end: int | None, line: tuple[TableSnapshot, ...] | None
    ) -> None:
        if line is None:
            found = f"snapshot {end}, which does not descend from snapshot {start}"
        else:
            others = (s for s in line if s.operation not in {_APPEND, _REPLACE})
            removing = next((s for s in others if s.removed), None)
            if removing is None:
                return
            found = (
                f"snapshot {removing.snapshot_id}, a commit of type {removing.operation} that took "
                f"away up to {removing.removed:,} rows"
            )
        raise SourceChanged(
            f"source {self.source} says 'append_only' = 'true', and rows of table {self.table} were "
            "taken away",
            expected="appends alone",
            found=found,
            next_step="take 'append_only' out of the source, and deploy the project under another name "
            "and database",
        )


_ANEW = "deploy the project under another name and database, which reads the table as it is now"
