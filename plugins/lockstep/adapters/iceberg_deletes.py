"""Rows of a table deleted by their positions, and others added, in one snapshot.

Of each data file that loses rows there is one delete file afterwards
(https://iceberg.apache.org/spec/#position-delete-files): what was deleted of it before stands in the new
one, too, and the ones before it go. So a reader opens one for each data file, however often rows change.
PyIceberg (0.12) reads such files, and writes none.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    ManifestWriterV2,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.delete_file_index import PATH_FIELD_ID
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _ManifestMergeManager, _MergeAppendFiles
from pyiceberg.typedef import EMPTY_DICT, Record
from pyiceberg.types import LongType

from lockstep.adapters.iceberg_commits import LeanTransaction
from lockstep.adapters.iceberg_files import head_of, written_files
from lockstep.adapters.iceberg_merging import live_rows
from lockstep.lake.deleted_positions import Positions, deleted_positions, is_of_one
from lockstep.lake.manifests import live_entries
from lockstep.threads import in_parallel

__all__ = ["RowFiles", "are_deleted_by_position", "change_on", "row_files"]

_FORMAT_VERSION = 2
"""Later ones delete by vectors, earlier ones not at all."""
_POSITION_FIELD_ID = 2147483545
_FIELD_IDS = (PATH_FIELD_ID, _POSITION_FIELD_ID)
_DELETES = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": str(PATH_FIELD_ID)}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": str(_POSITION_FIELD_ID)}),
    ]
)


class RowFiles(NamedTuple):
    """Files of rows, and delete files, that come, and those that go."""

    added: Sequence[DataFile]
    deletes: Sequence[DataFile]
    gone: frozenset[DataFile]


def are_deleted_by_position(metadata: TableMetadata) -> bool:
    """Whether the table's format has such files, and its properties ask for them, one for each data
    file."""
    said = metadata.properties
    modes = [said.get(f"write.{name}.mode") for name in ("delete", "merge")]
    return (
        metadata.format_version == _FORMAT_VERSION
        and modes == ["merge-on-read"] * 2
        and said.get("write.delete.granularity", "file") == "file"
    )


def row_files(
    table: Table,
    rows: pa.Table,
    deleted: Sequence[tuple[FileScanTask, Positions]],
    merged: Sequence[FileScanTask] = (),
) -> RowFiles | None:
    """Written, but not yet the table's: the rows, with those that stay of the files that are `merged`;
    and of others that lose some what deletes them. None where one of the files is of other partitions
    than a file of the table is now."""
    spec_id = table.metadata.default_spec_id
    if any(task.file.spec_id != spec_id for task in (*merged, *(task for task, _ in deleted))):
        return None
    merged_paths = {task.file.file_path for task in merged}
    left = [one for one in deleted if one[0].file.file_path not in merged_paths]

    def delete(one: tuple[FileScanTask, Positions]) -> DataFile:
        task, positions = one
        before = deleted_positions(table.io, _own_deletes(task), task.file.file_path)
        return _delete_file(table, task.file.file_path, np.union1d(positions, before))

    deletes = in_parallel(delete, left)
    if merged:
        positions = {task.file.file_path: at for task, at in deleted}
        rows = pa.concat_tables([rows, live_rows(table, merged, positions).cast(rows.schema)])
    added = written_files(table.metadata, rows, table.io) if rows.num_rows else []
    gone = chain.from_iterable(map(_own_deletes, (*merged, *(task for task, _ in left))))
    return RowFiles(added, deletes, frozenset((*gone, *(task.file for task in merged))))


def _own_deletes(task: FileScanTask) -> tuple[DataFile, ...]:
    """The delete files that are of this data file alone."""
    return tuple(one for one in task.delete_files if is_of_one(one, task.file.file_path))


def change_on(table: Table, branch: str, files: RowFiles, summary: Mapping[str, str]) -> None:
    """One snapshot on the branch with these files, which carries the summary: an append, where nothing
    goes.

    Raises AttemptLost where the branch is no longer there."""
    head_of(table, branch)
    with LeanTransaction(table) as transaction:
        update = _ChangeRows(
            operation=Operation.OVERWRITE if files.deletes or files.gone else Operation.APPEND,
            transaction=transaction,
            io=table.io,
            branch=branch,
            snapshot_properties=dict(summary),
        )
        update.files = files
        update.commit()


def _delete_file(table: Table, path: str, positions: Positions) -> DataFile:
    """A file that deletes these positions, which are in order, of the data file at `path`."""
    places = load_location_provider(table.location(), table.properties)
    place = places.new_data_location(f"{uuid.uuid4()}-deletes.parquet")
    paths = pa.DictionaryArray.from_arrays(np.zeros(len(positions), np.int32), [path])
    rows = pa.table([paths.cast(pa.string()), positions], schema=_DELETES)
    with table.io.new_output(place).create() as output:
        pq.write_table(rows, output, compression="zstd")
    of_path, [first, last] = (
        path.encode(),
        [to_bytes(LongType(), int(positions[at])) for at in (0, -1)],
    )
    return DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=place,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=len(positions),
        file_size_in_bytes=len(table.io.new_input(place)),
        value_counts=dict.fromkeys(_FIELD_IDS, len(positions)),
        null_value_counts=dict.fromkeys(_FIELD_IDS, 0),
        # By these a reader knows that all positions are of one data file.
        lower_bounds=dict(zip(_FIELD_IDS, (of_path, first), strict=True)),
        upper_bounds=dict(zip(_FIELD_IDS, (of_path, last), strict=True)),
        spec_id=table.metadata.default_spec_id,
    )


class _ChangeRows(_MergeAppendFiles):
    """An append that deletes, too."""

    files = RowFiles((), (), frozenset())

    def _manifests(self) -> list[ManifestFile]:
        return [
            *self._of(ManifestContent.DATA, self, self.files.added),
            *self._of(ManifestContent.DELETES, _DeleteManifests(self), self.files.deletes),
        ]

    def _of(
        self, content: ManifestContent, writers: _Writers, files: Sequence[DataFile]
    ) -> list[ManifestFile]:
        """The manifests of this content: one of the files that come, and those that are there, of which
        some now say which files go; many of them are merged by PyIceberg's rule for appends."""
        there = [one for one in self._existing_manifests() if one.content == content]
        found = [self._without_gone(one, writers) for one in there]
        if files:
            found.insert(0, self._added(files, writers))
        merging = _ManifestMergeManager(
            self._target_size_bytes,
            self._min_count_to_merge,
            self._merge_enabled,
            cast("_MergeAppendFiles", writers),
        )
        return merging.merge_manifests(found)

    def _without_gone(self, manifest: ManifestFile, writers: _Writers) -> ManifestFile:
        entries = live_entries(manifest, self._io)
        if not any(entry.data_file in self.files.gone for entry in entries):
            return manifest
        with writers.new_manifest_writer(self.spec(manifest.partition_spec_id)) as writer:
            for entry in entries:
                if entry.data_file in self.files.gone:
                    writer.delete(entry)
                else:
                    writer.existing(entry)
        return writer.to_manifest_file()

    def _added(self, files: Iterable[DataFile], writers: _Writers) -> ManifestFile:
        with writers.new_manifest_writer(self._transaction.table_metadata.spec()) as writer:
            for file in files:
                writer.add(
                    ManifestEntry.from_args(
                        status=ManifestEntryStatus.ADDED,
                        snapshot_id=self.snapshot_id,
                        sequence_number=None,
                        file_sequence_number=None,
                        data_file=file,
                    )
                )
        return writer.to_manifest_file()

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        # What the base class counts.
        self._added_data_files = [*self.files.added, *self.files.deletes]
        self._deleted_data_files = set(self.files.gone)
        return super()._summary(snapshot_properties)

    def _refresh_for_retry(self) -> None:
        super()._refresh_for_retry()
        if self._parent_snapshot_id != self._starting_snapshot_id:
            raise CommitFailedException("the branch has moved, or has gone")


class _Writers(Protocol):
    """Who writes manifests of one content."""

    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriter: ...


class _DeleteManifests:
    """What PyIceberg's merges of manifests ask of a snapshot that is being made, for those of delete
    files: its own ones are of data files."""

    def __init__(self, update: _ChangeRows) -> None:
        self._update = update
        self.snapshot_id = update.snapshot_id
        self.spec = update.spec
        self.fetch_manifest_entry = update.fetch_manifest_entry

    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriter:
        update = self._update
        return _DeleteManifestWriter(
            spec,
            update.schema(),
            update.new_manifest_output(),
            update.snapshot_id,
            update._compression,
        )


class _DeleteManifestWriter(ManifestWriterV2):
    """PyIceberg (0.12) has none."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}
