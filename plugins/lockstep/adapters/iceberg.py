"""Branches, tags and snapshots through PyIceberg: `control.ports.State`.

Law: every change of refs is a function of the metadata just read, and is written by compare and set
on the refs that it looked at. A refused or unknown write is therefore answered by reading again: what
has landed needs nothing more, and what has not is worked out anew.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import pyarrow as pa
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchNamespaceError,
    NoSuchTableError,
)
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.utils.datetime import datetime_to_millis

from lockstep.adapters.iceberg_commits import ref_changes
from lockstep.adapters.iceberg_files import append_to, as_table
from lockstep.adapters.iceberg_history import (
    count_of,
    descends,
    is_root,
    line,
    lost_columns,
    newest_marker,
    root_of,
    snapshot_of,
    summary_of,
    write_id_of,
)
from lockstep.control.job import CatalogSettings
from lockstep.control.ports import ViewHead
from lockstep.errors import StateDiverged, Unreachable
from lockstep.ids import MAIN, MARKED_TAG, ROOT_TAG, swap_branches
from lockstep.lake.opening import OpenCatalog

__all__ = ["IcebergState", "is_open", "opened_at"]

COMMIT_TRIES = 12
LONGEST_WAIT_SECONDS = 1.0

_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class _RefChange:
    """Refs to point at snapshots, and refs to remove; nothing to do where both are empty."""

    branches: Mapping[str, int]
    tags: Mapping[str, int]
    dropped: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.branches or self.tags or self.dropped)


class IcebergState:
    """The tables of one catalog and database. May be used from several threads at once.

    Each call loads the table's metadata once (a few milliseconds) and reads no data file.
    """

    def __init__(self, catalog: CatalogSettings) -> None:
        self._settings = catalog
        self._catalog = OpenCatalog(catalog)

    # ── reading ─────────────────────────────────────────────────────────────────────────────────

    def tables(self) -> tuple[str, ...]:
        with self._catalog.plain_errors(self._settings.database):
            try:
                found = self._catalog.connected().list_tables(self._settings.database)
            except NoSuchNamespaceError:
                return ()
        return tuple(sorted(identifier[-1] for identifier in found))

    def refs(self, table: str) -> Mapping[str, int]:
        metadata = self._load(table).metadata
        return {name: ref.snapshot_id for name, ref in sorted(metadata.refs.items())}

    def snapshots(self, table: str) -> frozenset[int | None]:
        with self._catalog.plain_errors(table):
            try:
                metadata = self._catalog.load(self._settings.database, table).metadata
            except (NoSuchTableError, NoSuchNamespaceError):
                return frozenset({None})
        kept = frozenset(snapshot.snapshot_id for snapshot in metadata.snapshots)
        return kept | {None} if any(map(is_root, metadata.snapshots)) else kept

    def ages(self, table: str, older_than: datetime) -> tuple[int, int]:
        metadata = self._load(table).metadata
        held = {ref.snapshot_id for ref in metadata.refs.values()}
        limit = datetime_to_millis(older_than)
        over = sum(s.timestamp_ms < limit and s.snapshot_id not in held for s in metadata.snapshots)
        return over, len(metadata.snapshots) - over

    def head(self, table: str, branch: str) -> int:
        return self._ref(table, self._load(table).metadata, branch).snapshot_id

    def added_records(self, table: str, snapshot_id: int) -> int:
        snapshot = snapshot_of(table, self._load(table).metadata, snapshot_id)
        return count_of(snapshot, "added-records")

    def summary(self, table: str, snapshot_id: int) -> Mapping[str, str]:
        return summary_of(snapshot_of(table, self._load(table).metadata, snapshot_id))

    def total_records(self, table: str, snapshot_id: int) -> int:
        snapshot = snapshot_of(table, self._load(table).metadata, snapshot_id)
        return count_of(snapshot, "total-records")

    def total_bytes(self, table: str, snapshot_id: int) -> int:
        snapshot = snapshot_of(table, self._load(table).metadata, snapshot_id)
        return count_of(snapshot, "total-files-size")

    def records_after(self, table: str, snapshot_id: int, step: int) -> int:
        metadata = self._load(table).metadata
        head = oldest = snapshot_of(table, metadata, snapshot_id)
        added = 0
        for oldest in line(metadata, head.snapshot_id):
            records, summary = count_of(oldest, "added-records"), summary_of(oldest)
            if summary.get("operation") != Operation.APPEND.value:
                continue
            said = summary.get("lockstep.step")
            if said is not None and int(said) <= step:
                return added
            if records and said is None:
                raise StateDiverged(
                    f"table {table}: snapshot {oldest.snapshot_id} added rows, and Lockstep has not "
                    "written it",
                    expected="appends with lockstep.step",
                    found=f"{records:,} rows without it",
                    next_step="lockstep doctor DIR",
                )
            added += records
        # Where an ancestor has expired, its rows are there, and nothing says of which steps.
        return added if is_root(oldest) else count_of(head, "total-records")

    def appended(self, table: str, branch: str, base_snapshot_id: int | None) -> tuple[str, ...]:
        metadata = self._load(table).metadata
        base = (
            root_of(table, metadata).snapshot_id if base_snapshot_id is None else base_snapshot_id
        )
        after = self._after(table, metadata, branch, base)
        return tuple(write_id_of(table, branch, snapshot) for snapshot in after)

    def summaries(
        self, table: str, branch: str, base_snapshot_id: int
    ) -> tuple[tuple[int, Mapping[str, str]], ...]:
        metadata = self._load(table).metadata
        after = self._after(table, metadata, branch, base_snapshot_id)
        return tuple((snapshot.snapshot_id, summary_of(snapshot)) for snapshot in after)

    def _after(
        self, table: str, metadata: TableMetadata, branch: str, base: int
    ) -> tuple[Snapshot, ...]:
        """The snapshots on the branch after `base`, oldest first."""
        after: list[Snapshot] = []
        for snapshot in line(metadata, self._ref(table, metadata, branch).snapshot_id):
            if snapshot.snapshot_id == base:
                return tuple(reversed(after))
            after.append(snapshot)
        raise StateDiverged(
            f"table {table}: branch {branch} does not descend from the snapshot it was opened at",
            expected=f"snapshot {base} among its ancestors",
            found=f"{len(after)} snapshots, none of which is it",
            next_step="lockstep doctor DIR",
        )

    def view_head(self, table: str) -> ViewHead | None:
        with self._catalog.plain_errors(table):
            try:
                metadata = self._catalog.load(self._settings.database, table).metadata
            except (NoSuchTableError, NoSuchNamespaceError):
                return None
        main = metadata.refs.get(MAIN)
        columns = tuple(field.name for field in metadata.schema().fields)
        if main is None:
            return ViewHead(None, 0, None, tuple(metadata.refs), columns)
        head = snapshot_of(table, metadata, main.snapshot_id)
        marker = newest_marker(table, metadata, head)
        return ViewHead(
            head.snapshot_id,
            count_of(head, "total-records"),
            marker,
            tuple(metadata.refs),
            columns,
            not count_of(head, "total-delete-files") and metadata.spec().is_unpartitioned(),
            lost_columns(metadata, marker),
        )

    # ── changing refs ───────────────────────────────────────────────────────────────────────────

    def open_branch(self, table: str, branch: str, snapshot_id: int | None) -> int:
        opened = 0

        def change(metadata: TableMetadata) -> _RefChange:
            nonlocal opened
            opened, tags = opened_at(table, metadata, snapshot_id)
            if is_open(table, metadata, branch, opened):
                return _RefChange({}, {})
            return _RefChange({branch: opened}, tags)

        self._change_refs(table, change)
        return opened

    def append_rows(
        self,
        table: str,
        branch: str,
        rows: pa.Table | Sequence[Mapping[str, object]],
        summary: Mapping[str, str],
    ) -> None:
        self._write(
            table,
            branch,
            lambda loaded: append_to(loaded, branch, as_table(loaded.schema(), rows), summary),
        )

    def _write(self, table: str, branch: str, write: Callable[[Table], None]) -> None:
        try:
            self._commit_anew(table, write)
        except CommitStateUnknownException as error:
            raise Unreachable(
                f"table {table}: the catalog does not say whether a write to {branch} has landed",
                found=str(error)[:300],
                next_step="run the interval again: another attempt has another branch",
            ) from error

    def rows(self, table: str, snapshot_id: int) -> Sequence[Mapping[str, Any]]:
        with self._catalog.plain_errors(table):
            found = self._load(table).scan(snapshot_id=snapshot_id).to_arrow()
        rows: list[Mapping[str, Any]] = found.to_pylist()
        return rows

    def settle(
        self,
        table: str,
        snapshot_id: int,
        tag: str,
        drop: Sequence[str] = (),
        replaced: Collection[str] | None = (),
    ) -> None:
        def change(metadata: TableMetadata) -> _RefChange:
            snapshot_of(table, metadata, snapshot_id)
            existing = metadata.refs.get(tag)
            # A version whose files were merged has later snapshots of the same content.
            if existing is not None and not descends(metadata, snapshot_id, existing.snapshot_id):
                raise StateDiverged(
                    f"table {table}: tag {tag} pins another snapshot",
                    expected=str(snapshot_id),
                    found=str(existing.snapshot_id),
                    next_step="lockstep doctor DIR",
                )
            return _RefChange(
                {} if replaced is None else _advance(table, metadata, snapshot_id, replaced),
                _moved(metadata, {tag: snapshot_id}),
                _present(metadata, drop, (MAIN, tag)),
            )

        self._change_refs(table, change)

    def drop_refs(self, table: str, names: Sequence[str]) -> None:
        self._change_refs(
            table, lambda metadata: _RefChange({}, {}, _present(metadata, names, (MAIN,)))
        )

    def show_marked(
        self, table: str, expected: int, snapshot_id: int, drop: Sequence[str] = ()
    ) -> bool:
        landed = True

        def change(metadata: TableMetadata) -> _RefChange:
            nonlocal landed
            main = metadata.refs.get(MAIN)
            landed = main is not None and main.snapshot_id in (expected, snapshot_id)
            if not landed:
                return _RefChange({}, {})
            snapshot_of(table, metadata, snapshot_id)
            if not descends(metadata, snapshot_id, expected):
                raise StateDiverged(
                    f"view {table}: snapshot {snapshot_id} does not descend from {expected}",
                    next_step="publish again",
                )
            branches = {MAIN: snapshot_id}
            tags = {MARKED_TAG: snapshot_id}
            return _RefChange(
                _moved(metadata, branches),
                _moved(metadata, tags),
                _present(metadata, drop, (MAIN, MARKED_TAG)),
            )

        self._change_refs(table, change)
        return landed

    # ── inside ──────────────────────────────────────────────────────────────────────────────────

    def _change_refs(self, table: str, change: Callable[[TableMetadata], _RefChange]) -> None:
        """Write what `change` says of the newest metadata."""

        def commit(loaded: Table) -> None:
            wanted = change(loaded.metadata)
            if not wanted.is_empty:
                _commit(loaded, wanted)

        self._commit_missing(table, commit)

    def _commit_missing(self, table: str, commit: Callable[[Table], None]) -> None:
        """The same as `_commit_anew` for what changes nothing once it has landed."""

        def tried(loaded: Table) -> None:
            try:
                commit(loaded)
            except CommitStateUnknownException as error:
                # Found out by reading.
                raise CommitFailedException(str(error)) from error

        self._commit_anew(table, tried)

    def _commit_anew(self, table: str, commit: Callable[[Table], None]) -> None:
        """Do `commit` on the table as it is now; again where somebody else was first."""
        last = ""
        for attempt in range(COMMIT_TRIES):
            if attempt:
                time.sleep(random.uniform(0, min(LONGEST_WAIT_SECONDS, 0.02 * 2**attempt)))
            try:
                with self._catalog.plain_errors(table):
                    commit(self._load(table))
                return
            except CommitFailedException as error:
                last = str(error)
            except ValueError as error:
                # PyIceberg (0.12) finds out by the sequence number that somebody was first, where that
                # happened while it tried again by itself.
                if "sequence number" not in str(error):
                    raise
                last = str(error)
        raise Unreachable(
            f"table {table}: nothing could be committed to it in {COMMIT_TRIES} tries",
            found=last[:300],
            next_step="run the command again once fewer writers are at work on the table",
        )

    def _load(self, table: str) -> Table:
        try:
            return self._catalog.load(self._settings.database, table)
        except (NoSuchTableError, NoSuchNamespaceError) as error:
            raise StateDiverged(
                f"table {self._settings.database}.{table} is not in catalog {self._settings.name}",
                expected="a table that the pipeline has made",
                found="none",
                next_step="lockstep doctor DIR",
            ) from error

    def _ref(self, table: str, metadata: TableMetadata, name: str) -> SnapshotRef:
        ref = metadata.refs.get(name)
        if ref is None:
            raise StateDiverged(
                f"table {table} has no branch or tag {name}",
                expected=name,
                found=", ".join(sorted(metadata.refs)) or "none",
                next_step="run the interval again; if this stays, lockstep doctor DIR",
            )
        return ref


# ── pure functions of the metadata ──────────────────────────────────────────────────────────────


def opened_at(
    table: str, metadata: TableMetadata, snapshot_id: int | None
) -> tuple[int, Mapping[str, int]]:
    """The snapshot that a branch is made at, None for the root, and the tags to be made with it: the
    root is pinned."""
    if snapshot_id is not None:
        return snapshot_id, {}
    root = root_of(table, metadata).snapshot_id
    return root, _moved(metadata, {ROOT_TAG: root})


def is_open(table: str, metadata: TableMetadata, branch: str, snapshot_id: int) -> bool:
    """Whether a branch is there, as it was made at the snapshot. Raises StateDiverged where it has gone
    on, or there is no such snapshot."""
    snapshot_of(table, metadata, snapshot_id)
    existing = metadata.refs.get(branch)
    if existing is None or (existing.snapshot_id == snapshot_id and _is_branch(existing)):
        return existing is not None
    raise StateDiverged(
        f"table {table}: {existing.snapshot_ref_type} {branch} is there already",
        expected=f"no such branch, or one at snapshot {snapshot_id}",
        found=f"it stands at snapshot {existing.snapshot_id}",
        next_step="run the interval again: each attempt has a branch of its own",
    )


def _advance(
    table: str, metadata: TableMetadata, snapshot_id: int, replaced: Collection[str]
) -> Mapping[str, int]:
    """`main` moved forward to the snapshot; nothing where it is there or beyond.

    What only versions hold that a rollback has dropped is no place to be at or beyond.
    """
    main = metadata.refs.get(MAIN)
    if main is None or _is_replaced(metadata, main.snapshot_id, snapshot_id, replaced):
        return {MAIN: snapshot_id}
    if descends(metadata, main.snapshot_id, snapshot_id):
        return {}
    if descends(metadata, snapshot_id, main.snapshot_id):
        return {MAIN: snapshot_id}
    raise StateDiverged(
        f"table {table}: main holds snapshots that are not in any version",
        expected=f"main at an ancestor of snapshot {snapshot_id}",
        found=f"main at {main.snapshot_id}",
        next_step="lockstep doctor DIR; where it finds nothing but this, nothing is lost: move main to "
        f"{snapshot_id} with `CALL <catalog>.system.set_current_snapshot`, then run again",
    )


def _is_replaced(
    metadata: TableMetadata, head: int, snapshot_id: int, replaced: Collection[str]
) -> bool:
    """Whether `head` is of one of the attempts `replaced`, or files of theirs that were merged, and the
    snapshot does not stand on it. What is below such a head, it stood on when it was settled."""
    found = metadata.snapshot_by_id(head)
    if found is None or not replaced or descends(metadata, snapshot_id, head):
        return False
    summary = summary_of(found)
    merged = summary.get("lockstep.merge", "")
    return summary.get("lockstep.attempt", "") in replaced or merged.startswith(
        tuple(map(swap_branches, replaced))
    )


def _moved(metadata: TableMetadata, wanted: Mapping[str, int]) -> Mapping[str, int]:
    return {
        name: snapshot_id
        for name, snapshot_id in wanted.items()
        if name not in metadata.refs or metadata.refs[name].snapshot_id != snapshot_id
    }


def _present(metadata: TableMetadata, names: Sequence[str], kept: Sequence[str]) -> tuple[str, ...]:
    """Those of the refs that exist, each once; `main` and what is being set are never dropped."""
    return tuple(sorted(set(names) & set(metadata.refs) - set(kept)))


def _is_branch(ref: SnapshotRef) -> bool:
    return ref.snapshot_ref_type == SnapshotRefType.BRANCH


def _commit(table: Table, change: _RefChange) -> None:
    """All of it in one commit, which fails unless every ref named still stands where it was read."""
    manage = ref_changes(table)
    for name, snapshot_id in change.branches.items():
        existing = table.metadata.refs.get(name)
        manage = manage.create_branch(
            snapshot_id,
            name,
            # Setting a ref replaces its retention, too, which on main is the user's.
            max_ref_age_ms=existing.max_ref_age_ms if existing else None,
            max_snapshot_age_ms=existing.max_snapshot_age_ms if existing else None,
            min_snapshots_to_keep=existing.min_snapshots_to_keep if existing else None,
        )
    for name, snapshot_id in change.tags.items():
        manage = manage.create_tag(snapshot_id, name)
    for name in change.dropped:
        is_branch = _is_branch(table.metadata.refs[name])
        manage = manage.remove_branch(name) if is_branch else manage.remove_tag(name)
    manage.commit()
