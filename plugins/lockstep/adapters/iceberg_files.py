"""Data files of a table on a branch: few rows written from here, and files swapped.

A swap is the metadata half of a compaction. The rows of merged files are written by the engine; here
only manifests change, so a swap costs milliseconds and can be made anew on a newer version without
reading a row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import _check_pyarrow_schema_compatible, _dataframe_to_data_files
from pyiceberg.manifest import DataFile, DataFileContent, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import ManageSnapshots, _OverwriteFiles
from pyiceberg.typedef import EMPTY_DICT

from lockstep.adapters.iceberg_commits import LeanTransaction, OpeningTransaction, ref_changes
from lockstep.control.compaction import DataFileInfo
from lockstep.control.job import CatalogSettings
from lockstep.errors import AttemptLost, StateDiverged
from lockstep.ids import is_trace
from lockstep.lake.opening import OpenCatalog
from lockstep.threads import in_parallel, shares

__all__ = [
    "IcebergFiles",
    "append_in",
    "append_to",
    "as_table",
    "files_at",
    "head_of",
    "info_of",
    "of_replace",
    "open_in",
    "replace_on",
    "written_files",
]

_MANY_ROWS = 250_000
"""Of a file: what is read of it by a key is a part of that."""


class IcebergFiles:
    """Data files of the tables of one catalog and database, of tables without delete files only."""

    def __init__(self, catalog: CatalogSettings) -> None:
        self._catalog, self._database = OpenCatalog(catalog), catalog.database

    def _load(self, table: str) -> Table:
        return self._catalog.load(self._database, table)

    def data_files(self, table: str, snapshot_id: int) -> tuple[DataFileInfo, ...]:
        """The data files at a snapshot, sorted by path."""
        files = files_at(self._load(table), snapshot_id).values()
        return tuple(sorted(map(info_of, files)))

    def narrow(self, table: str, branch: str, snapshot_id: int, keep: Collection[str]) -> int:
        """Make `branch` at a snapshot with only the files `keep`; returns the branch's snapshot.

        What is read there is what is merged: an engine needs no way to name files."""
        loaded = self._load(table)
        others = [f for path, f in files_at(loaded, snapshot_id).items() if path not in keep]
        return _commit_on_branch(loaded, branch, snapshot_id, remove=others, add=[], summary={})

    def swap(
        self,
        table: str,
        branch: str,
        snapshot_id: int,
        removed: Collection[str],
        merged_snapshot_id: int,
        summary: Mapping[str, str],
    ) -> int:
        """On `branch`, made at a snapshot of the newest version: the files `removed` go out, those
        that `merged_snapshot_id` added come in. Returns the new snapshot: of a trace an overwrite, as
        rows have cancelled; of another table a replace, so that who follows it has nothing to read.

        Raises StateDiverged where a file to be removed is not there: it was merged before."""
        loaded = self._load(table)
        present = files_at(loaded, snapshot_id)
        missing = sorted(set(removed) - set(present))
        if missing:
            raise StateDiverged(
                f"table {table}: the files to merge are not in snapshot {snapshot_id}",
                expected=f"{len(removed)} files of the version that was read",
                found=f"{len(missing)} of them gone, {missing[0]} for one",
                next_step="run maintenance again: it starts from the newest version",
            )
        return _commit_on_branch(
            loaded,
            branch,
            snapshot_id,
            remove=[present[path] for path in removed],
            add=_files_added_by(loaded, merged_snapshot_id),
            summary=summary,
            same_rows=not is_trace(table),
        )


def as_table(schema: Schema, rows: pa.Table | Sequence[Mapping[str, object]]) -> pa.Table:
    """Rows as Python has them in Arrow, with these columns."""
    if isinstance(rows, pa.Table):
        return rows
    return pa.Table.from_pylist(list(rows), schema=schema.as_arrow())


def append_to(
    table: Table,
    branch: str,
    rows: pa.Table,
    summary: Mapping[str, str],
    opened_at: int | None = None,
    tags: Mapping[str, int] = EMPTY_DICT,
) -> None:
    """One snapshot on the branch with these rows, by column name, which carries the summary; where
    `opened_at` is a snapshot, the branch is made there, and these tags with it, in the same commit."""
    kind = LeanTransaction if opened_at is None else OpeningTransaction
    with kind(table) as transaction:
        if opened_at is not None:
            open_in(transaction, branch, opened_at, tags)
        append_in(transaction, branch, rows, summary)


def open_in(transaction: Transaction, branch: str, opened_at: int, tags: Mapping[str, int]) -> None:
    """The branch is made at that snapshot, and these tags with it."""
    opening = ManageSnapshots(transaction).create_branch(opened_at, branch)
    for name, snapshot_id in tags.items():
        opening = opening.create_tag(snapshot_id, name)
    opening.commit()


def append_in(
    transaction: Transaction, branch: str, rows: pa.Table, summary: Mapping[str, str]
) -> None:
    """One snapshot on the branch with these rows, by column name, which carries the summary."""
    if rows.num_rows >= 2 * _MANY_ROWS:
        _append_at_once(transaction, rows, summary, branch)
    elif rows.num_rows:
        transaction.append(rows, dict(summary), branch)
    else:
        transaction.update_snapshot(dict(summary), branch).fast_append().commit()


def _append_at_once(
    transaction: Transaction, rows: pa.Table, summary: Mapping[str, str], branch: str
) -> None:
    """`transaction.append` of many rows, as so many files as there are processors, none of them small:
    one file is written by one of these."""
    metadata, io = transaction.table_metadata, transaction._table.io
    _check_pyarrow_schema_compatible(
        metadata.schema(), rows.schema, format_version=metadata.format_version
    )
    with transaction._append_snapshot_producer(dict(summary), branch) as update:
        for file in written_files(metadata, rows, io):
            update.append_data_file(file)


def written_files(metadata: TableMetadata, rows: pa.Table, io: FileIO) -> list[DataFile]:
    """The rows in files, of which none is small where there are several."""
    parts = [rows[share] for share in shares(rows.num_rows, _MANY_ROWS)]
    written = in_parallel(lambda part: list(_dataframe_to_data_files(metadata, part, io)), parts)
    return list(chain.from_iterable(written))


def replace_on(table: Table, branch: str, rows: pa.Table, summary: Mapping[str, str]) -> None:
    """One snapshot on the branch with these rows, by column name, in place of all others. PyIceberg
    (0.12) itself makes two of it, one that deletes and one that appends.

    Raises AttemptLost where the branch is no longer there."""
    there = files_at(table, head_of(table, branch)).values()
    written = _dataframe_to_data_files(table.metadata, rows, table.io) if rows.num_rows else ()
    _overwrite(table, branch, _AllFiles, there, written, summary)


def head_of(table: Table, branch: str) -> int:
    """The snapshot at which the branch stands. Raises AttemptLost where it is no longer there."""
    head = table.metadata.snapshot_by_name(branch)
    if head is None:
        raise AttemptLost(
            f"table {'.'.join(table.name()[-2:])}: branch {branch} is gone",
            expected="the branch that this writer made",
            found="none: whoever moved main first has swept it",
            next_step="run the command again",
        )
    return head.snapshot_id


class _AllFiles(_OverwriteFiles):
    """All files go: no manifest stays, not even those that say which files went before."""

    def _existing_manifests(self) -> list[ManifestFile]:
        return []


class _ReplaceFiles(_OverwriteFiles):
    """The same rows in other files."""

    def _summary(self, snapshot_properties: Mapping[str, str] = EMPTY_DICT) -> Summary:
        return of_replace(super()._summary(dict(snapshot_properties)))


def of_replace(summary: Summary) -> Summary:
    """The same of a snapshot of the operation `replace` (https://iceberg.apache.org/spec/#snapshots):
    PyIceberg (0.12) writes none, though it reads them."""
    return Summary(Operation.REPLACE, **summary.additional_properties)


def _overwrite(
    table: Table,
    branch: str,
    kind: type[_OverwriteFiles],
    remove: Iterable[DataFile],
    add: Iterable[DataFile],
    summary: Mapping[str, str],
) -> None:
    """One snapshot of the `kind` on the branch: these files go, those come."""
    with LeanTransaction(table) as transaction:
        update = kind(
            operation=Operation.OVERWRITE,
            transaction=transaction,
            io=table.io,
            branch=branch,
            snapshot_properties=dict(summary),
        )
        for file in remove:
            update.delete_data_file(file)
        for file in add:
            update.append_data_file(file)
        update.commit()


def info_of(file: DataFile) -> DataFileInfo:
    """What it is to who plans merges."""
    return DataFileInfo(file.file_path, file.file_size_in_bytes, file.record_count)


def files_at(table: Table, snapshot_id: int) -> dict[str, DataFile]:
    snapshot = table.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise StateDiverged(
            f"table {table.name()}: snapshot {snapshot_id} of the newest version is gone",
            next_step="lockstep doctor DIR",
        )
    return {
        entry.data_file.file_path: entry.data_file
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        if entry.data_file.content == DataFileContent.DATA
    }


def _files_added_by(table: Table, snapshot_id: int) -> list[DataFile]:
    snapshot = table.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise StateDiverged(
            f"table {table.name()}: snapshot {snapshot_id}, which has the merged files, is gone",
            expected="the branch of the merge, which holds it",
            found="none: another maintenance has trimmed the version that was merged",
            next_step="run maintenance again: it starts from the newest version",
        )
    return [
        entry.data_file
        for manifest in snapshot.manifests(table.io)
        if manifest.added_snapshot_id == snapshot_id
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        if entry.snapshot_id in (None, snapshot_id)
    ]


def _commit_on_branch(
    table: Table,
    branch: str,
    snapshot_id: int,
    *,
    remove: Collection[DataFile],
    add: Collection[DataFile],
    summary: Mapping[str, str],
    same_rows: bool = False,
) -> int:
    """Make the branch, and one overwrite of whole files on it, or a replace."""
    try:
        ref_changes(table).create_branch(snapshot_id, branch).commit()
        if remove or add:
            kind = _ReplaceFiles if same_rows else _OverwriteFiles
            _overwrite(table, branch, kind, remove, add, summary)
    except CommitFailedException as error:
        raise AttemptLost(
            f"table {table.name()}: somebody else changed it while files were swapped",
            found=str(error),
            next_step="run maintenance again",
        ) from error
    head = table.refresh().snapshot_by_name(branch)
    assert head is not None, "the branch has just been made"
    return head.snapshot_id
