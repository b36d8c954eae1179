"""Iceberg tables in memory, and the twin of `control.ports.State`.

Snapshots with parents, summaries and files; branches and tags; a table's refs change by compare and
set, so that a request that arrives late is refused where a ref that it names has moved since.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sim_world import World, milliseconds_of

from lockstep.control.ports import Marker, ViewHead
from lockstep.errors import StateDiverged
from lockstep.ids import MAIN, MARKED_TAG, ROOT_TAG, swap_branches

Row = tuple[Any, ...]

APPEND, REPLACE, OVERWRITE, DELETE = "append", "replace", "overwrite", "delete"
FILE_BYTES = 1_000


@dataclass(frozen=True)
class File:
    path: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Snapshot:
    """`sequence` counts the table's snapshots from 1, `made` is in milliseconds."""

    id: int
    parent: int | None
    sequence: int
    made: int
    operation: str
    summary: Mapping[str, str]
    files: tuple[File, ...]
    added: int

    @property
    def rows(self) -> tuple[Row, ...]:
        return tuple(row for file in self.files for row in file.rows)


@dataclass
class Table:
    """`shown` are the snapshots that `main` has ever pointed to, in that order."""

    name: str
    snapshots: dict[int, Snapshot] = field(default_factory=dict)
    refs: dict[str, int] = field(default_factory=dict)
    shown: list[Snapshot] = field(default_factory=list)
    last_sequence: int = 0

    def line(self, head: int) -> Iterator[Snapshot]:
        """The snapshot and its ancestors that are kept, newest first."""
        snapshot = self.snapshots.get(head)
        while snapshot is not None:
            yield snapshot
            snapshot = None if snapshot.parent is None else self.snapshots.get(snapshot.parent)

    def descends(self, snapshot_id: int, ancestor: int) -> bool:
        return any(snapshot.id == ancestor for snapshot in self.line(snapshot_id))

    def snapshot(self, snapshot_id: int) -> Snapshot:
        if snapshot_id not in self.snapshots:
            raise StateDiverged(f"table {self.name} has no snapshot {snapshot_id}")
        return self.snapshots[snapshot_id]

    def over(self, older_than: int) -> list[int]:
        """The old snapshots that are no head of a ref."""
        held = set(self.refs.values())
        return [i for i, s in self.snapshots.items() if s.made < older_than and i not in held]

    def expire(self, older_than: int) -> int:
        """What `expire_snapshots` does: the heads of refs stay, and what is young; returns how many
        snapshots went."""
        over = self.over(older_than)
        for snapshot_id in over:
            del self.snapshots[snapshot_id]
        return len(over)

    def at(self, ref: str) -> Snapshot:
        if ref not in self.refs:
            raise StateDiverged(f"table {self.name} has no branch or tag {ref}")
        return self.snapshot(self.refs[ref])

    def root(self) -> Snapshot:
        for snapshot in self.snapshots.values():
            if snapshot.parent is None and snapshot.sequence == 1:
                return snapshot
        raise StateDiverged(f"table {self.name} has lost its root")

    def after(self, ref: str, base: int) -> list[Snapshot]:
        """The snapshots on a branch after `base`, oldest first."""
        found: list[Snapshot] = []
        for snapshot in self.line(self.at(ref).id):
            if snapshot.id == base:
                return found[::-1]
            found.append(snapshot)
        raise StateDiverged(f"table {self.name}: {ref} does not descend from {base}")


@dataclass(frozen=True)
class RefChange:
    """Refs to set (branches and tags are alike here) and refs to drop."""

    moved: Mapping[str, int]
    dropped: tuple[str, ...] = ()


class Lake:
    """The tables themselves: what happens at the catalog's end, at once and without faults."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.tables: dict[str, Table] = {}

    def table(self, name: str) -> Table:
        if name not in self.tables:
            raise StateDiverged(f"table {name} is not in the catalog")
        return self.tables[name]

    def make(self, name: str, summary: Mapping[str, str]) -> None:
        """A table with an empty root snapshot, unless it is there."""
        if name not in self.tables:
            table = self.tables[name] = Table(name)
            root = self.add(table, None, APPEND, summary, ())
            self.change(table, RefChange({MAIN: root.id}))

    def add(
        self,
        table: Table,
        parent: Snapshot | None,
        operation: str,
        summary: Mapping[str, str],
        files: tuple[File, ...],
    ) -> Snapshot:
        """A snapshot that no ref points to yet."""
        snapshot_id = self.world.random.getrandbits(48)
        table.last_sequence += 1
        before = set() if parent is None else {file.path for file in parent.files}
        added = sum(len(file.rows) for file in files if file.path not in before)
        snapshot = Snapshot(
            snapshot_id,
            None if parent is None else parent.id,
            table.last_sequence,
            self.world.now,
            operation,
            dict(summary),
            files,
            added,
        )
        table.snapshots[snapshot_id] = snapshot
        return snapshot

    def new_files(self, rows: Sequence[Row]) -> tuple[File, ...]:
        """Rows as data files, several of them as Spark's tasks write them."""
        tasks = self.world.random.randint(1, 4)
        parts = [tuple(rows[task::tasks]) for task in range(tasks) if rows[task::tasks]]
        return tuple(File(f"file_{self.world.new_id()}", part) for part in parts)

    def append(
        self, table: Table, branch: str, rows: Sequence[Row], summary: Mapping[str, str]
    ) -> Snapshot:
        head = table.at(branch)
        files = head.files + self.new_files(rows)
        snapshot = self.add(table, head, APPEND, summary, files)
        self.change(table, RefChange({branch: snapshot.id}))
        return snapshot

    def overwrite(
        self,
        table: Table,
        branch: str,
        rows: Sequence[Row],
        summary: Mapping[str, str],
        operation: str = OVERWRITE,
    ) -> Snapshot:
        snapshot = self.add(table, table.at(branch), operation, summary, self.new_files(rows))
        self.change(table, RefChange({branch: snapshot.id}))
        return snapshot

    def change(self, table: Table, change: RefChange) -> None:
        for name in change.dropped:
            table.refs.pop(name, None)
        table.refs.update(change.moved)
        if MAIN in change.moved and (not table.shown or table.shown[-1].id != change.moved[MAIN]):
            table.shown.append(table.snapshot(change.moved[MAIN]))

    def expire(self, older_than: int) -> int:
        """`Table.expire` of all tables."""
        return sum(table.expire(older_than) for table in self.tables.values())


class SimulatedState:
    """Implements `control.ports.State` over the network."""

    def __init__(self, lake: Lake, columns: Mapping[str, tuple[str, ...]]) -> None:
        self._lake = lake
        self._columns = columns

    def _read(self, what: str, table: str, question: Callable[[Table], Any]) -> Any:
        return self._lake.world.exchange(
            f"{what} {table}", lambda: question(self._lake.table(table))
        )

    def tables(self) -> tuple[str, ...]:
        return self._lake.world.exchange("tables", lambda: tuple(sorted(self._lake.tables)))

    def refs(self, table: str) -> Mapping[str, int]:
        found: Mapping[str, int] = self._read("refs", table, lambda t: dict(sorted(t.refs.items())))
        return found

    def head(self, table: str, branch: str) -> int:
        found: int = self._read(f"head {branch}", table, lambda t: t.at(branch).id)
        return found

    def added_records(self, table: str, snapshot_id: int) -> int:
        found: int = self._read("added", table, lambda t: t.snapshot(snapshot_id).added)
        return found

    def total_records(self, table: str, snapshot_id: int) -> int:
        found: int = self._read("total", table, lambda t: len(t.snapshot(snapshot_id).rows))
        return found

    def records_after(self, table: str, snapshot_id: int, step: int) -> int:
        def count(found: Table) -> int:
            added = 0
            head = oldest = found.snapshot(snapshot_id)
            for oldest in found.line(head.id):
                if oldest.operation != APPEND:
                    continue
                said = oldest.summary.get("lockstep.step")
                if said is not None and int(said) <= step:
                    return added
                if oldest.added and said is None:
                    raise StateDiverged(f"table {table}: rows that Lockstep has not written")
                added += oldest.added
            is_whole = oldest.parent is None and oldest.sequence == 1
            return added if is_whole else len(head.rows)

        answer: int = self._read("records after", table, count)
        return answer

    def appended(self, table: str, branch: str, base_snapshot_id: int | None) -> tuple[str, ...]:
        def write_ids(found: Table) -> tuple[str, ...]:
            base = found.root().id if base_snapshot_id is None else base_snapshot_id
            after = found.after(branch, base)
            for snapshot in after:
                if snapshot.operation != APPEND or not snapshot.summary.get("lockstep.write"):
                    raise StateDiverged(f"table {table}: {branch} holds what no attempt appended")
            return tuple(snapshot.summary["lockstep.write"] for snapshot in after)

        answer: tuple[str, ...] = self._read(f"appended {branch}", table, write_ids)
        return answer

    def summaries(
        self, table: str, branch: str, base_snapshot_id: int
    ) -> tuple[tuple[int, Mapping[str, str]], ...]:
        def read(found: Table) -> tuple[tuple[int, Mapping[str, str]], ...]:
            after = found.after(branch, base_snapshot_id)
            return tuple((s.id, {"operation": s.operation, **s.summary}) for s in after)

        answer: tuple[tuple[int, Mapping[str, str]], ...] = self._read("summaries", table, read)
        return answer

    def summary(self, table: str, snapshot_id: int) -> Mapping[str, str]:
        def question(found: Table) -> Mapping[str, str]:
            snapshot = found.snapshot(snapshot_id)
            return {"operation": snapshot.operation, **snapshot.summary}

        answer: Mapping[str, str] = self._read("summary", table, question)
        return answer

    def view_head(self, table: str) -> ViewHead | None:
        def read() -> ViewHead | None:
            found = self._lake.tables.get(table)
            if found is None:
                return None
            if MAIN not in found.refs:
                return ViewHead(None, 0, None, tuple(found.refs), columns)
            head = found.at(MAIN)
            marker = newest_marker(found, head)
            return ViewHead(head.id, len(head.rows), marker, tuple(found.refs), columns)

        columns = self._columns.get(table, ())

        return self._lake.world.exchange(f"view head {table}", read)

    # ── changing refs ───────────────────────────────────────────────────────────────────────────

    def _change(self, what: str, table: str, change: Callable[[Table], RefChange]) -> None:
        """Compare and set: the change is worked out from the refs, and written if those that it
        names are as they were. Late, they may not be."""
        lake = self._lake

        def act() -> None:
            found = lake.table(table)
            lake.change(found, change(found))

        def prepare() -> Callable[[], None]:
            found = lake.table(table)
            wanted = change(found)
            named = {name: found.refs.get(name) for name in (*wanted.moved, *wanted.dropped)}

            def set_late() -> None:
                stands = all(found.refs.get(name) == at for name, at in named.items())
                if stands and all(at in found.snapshots for at in wanted.moved.values()):
                    lake.change(found, wanted)

            return set_late

        lake.world.exchange(f"{what} {table}", act, prepare)

    def open_branch(self, table: str, branch: str, snapshot_id: int | None) -> int:
        opened = 0

        def change(found: Table) -> RefChange:
            nonlocal opened
            opened = found.root().id if snapshot_id is None else found.snapshot(snapshot_id).id
            if found.refs.get(branch, opened) != opened:
                raise StateDiverged(f"table {table}: branch {branch} is there already")
            root = {ROOT_TAG: opened} if snapshot_id is None else {}
            return RefChange({branch: opened, **root})

        self._change(f"open {branch} on", table, change)
        return opened

    def make_opened(
        self,
        table: str,
        branch: str,
        rows: Sequence[Mapping[str, object]] | None,
        summary: Mapping[str, str],
    ) -> None:
        """One commit where the table is not there, else the branch and the rows by themselves."""

        def act() -> bool:
            if table in self._lake.tables:
                return False
            self._lake.make(table, {})
            made = self._lake.table(table)
            root = made.root().id
            self._lake.change(made, RefChange({branch: root, ROOT_TAG: root}))
            if rows is not None:
                self._lake.append(made, branch, self._written(table, rows), summary)
            return True

        if self._lake.world.exchange(f"make {table} with {branch}", act):
            return
        self.open_branch(table, branch, None)
        if rows is not None:
            self.append_rows(table, branch, rows, summary)

    def append_rows(
        self,
        table: str,
        branch: str,
        rows: Sequence[Mapping[str, object]],
        summary: Mapping[str, str],
    ) -> None:
        def act() -> None:
            found = self._lake.table(table)
            self._lake.append(found, branch, self._written(table, rows), summary)

        self._lake.world.exchange(f"append rows to {branch} of {table}", act)

    def _written(self, table: str, rows: Sequence[Mapping[str, object]]) -> list[Row]:
        return [tuple(row[name] for name in self._columns[table]) for row in rows]

    def ages(self, table: str, older_than: datetime) -> tuple[int, int]:
        limit = milliseconds_of(older_than)

        def question(found: Table) -> tuple[int, int]:
            over = len(found.over(limit))
            return over, len(found.snapshots) - over

        ages: tuple[int, int] = self._read("ages of", table, question)
        return ages

    def snapshots(self, table: str) -> frozenset[int | None]:
        def question(found: Table) -> list[int | None]:
            roots = [s for s in found.snapshots.values() if s.parent is None and s.sequence == 1]
            return [*sorted(found.snapshots), *([None] if roots else [])]

        return frozenset(self._read("snapshots of", table, question))

    def rows(self, table: str, snapshot_id: int) -> Sequence[Mapping[str, Any]]:
        columns = self._columns[table]
        found: Sequence[Mapping[str, Any]] = self._read(
            "rows",
            table,
            lambda t: [
                dict(zip(columns, row, strict=True)) for row in t.snapshot(snapshot_id).rows
            ],
        )
        return found

    def settle(
        self,
        table: str,
        snapshot_id: int,
        tag: str,
        drop: Sequence[str] = (),
        replaced: Collection[str] | None = (),
    ) -> None:
        def change(found: Table) -> RefChange:
            found.snapshot(snapshot_id)
            if tag in found.refs and not found.descends(snapshot_id, found.refs[tag]):
                raise StateDiverged(f"table {table}: tag {tag} pins another snapshot")
            dropped = tuple(sorted(set(drop) & set(found.refs) - {MAIN, tag}))
            main = {} if replaced is None else advance(found, snapshot_id, replaced)
            return RefChange({**main, tag: snapshot_id}, dropped)

        self._change(f"settle {tag} of", table, change)

    def drop_refs(self, table: str, names: Sequence[str]) -> None:
        self._change(
            f"drop {', '.join(names)} of",
            table,
            lambda found: RefChange({}, tuple(sorted(set(names) & set(found.refs) - {MAIN}))),
        )

    def show_marked(
        self, table: str, expected: int, snapshot_id: int, drop: Sequence[str] = ()
    ) -> bool:
        landed = True

        def change(found: Table) -> RefChange:
            nonlocal landed
            landed = found.refs.get(MAIN) in (expected, snapshot_id)
            if not landed:
                return RefChange({})
            if not found.descends(found.snapshot(snapshot_id).id, expected):
                raise StateDiverged(f"view {table}: {snapshot_id} is no descendant of {expected}")
            dropped = tuple(sorted(set(drop) & set(found.refs) - {MAIN, MARKED_TAG}))
            return RefChange({MAIN: snapshot_id, MARKED_TAG: snapshot_id}, dropped)

        self._change(f"show {snapshot_id} as", table, change)
        return landed


def advance(table: Table, snapshot_id: int, replaced: Collection[str] = ()) -> Mapping[str, int]:
    """`main` moved forward; nothing where it is there or beyond. It leaves what the attempts `replaced`
    alone have written."""
    main = table.refs.get(MAIN)
    if main is None or table.descends(snapshot_id, main):
        return {MAIN: snapshot_id}
    head = table.snapshots[main].summary
    swaps = tuple(map(swap_branches, replaced))
    if head.get("lockstep.attempt") in replaced or head.get("lockstep.merge", "").startswith(swaps):
        return {MAIN: snapshot_id}
    if table.descends(main, snapshot_id):
        return {}
    raise StateDiverged(f"table {table.name}: main holds snapshots that are in no version")


def newest_marker(table: Table, head: Snapshot) -> Marker | None:
    """Of the newest marked ancestor; only compactions may stand on the way."""
    snapshot = head
    for snapshot in table.line(head.id):
        if "lockstep.step" in snapshot.summary:
            return marker_of(snapshot)
        is_root = snapshot.parent is None and not snapshot.files
        if snapshot.operation != REPLACE and not is_root:
            raise StateDiverged(f"view {table.name}: somebody has changed rows on main")
    if snapshot.parent is None or MARKED_TAG not in table.refs:
        return None
    pinned = table.snapshots.get(table.refs[MARKED_TAG])
    if pinned is None or pinned.sequence >= snapshot.sequence:
        return None
    return marker_of(pinned) if "lockstep.step" in pinned.summary else None


def marker_of(snapshot: Snapshot) -> Marker:
    return Marker(
        snapshot.id,
        int(snapshot.summary["lockstep.step"]),
        snapshot.summary.get("lockstep.incarnation", ""),
        snapshot.parent,
    )
