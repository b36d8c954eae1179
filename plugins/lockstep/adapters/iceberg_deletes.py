"""Rows of a table deleted by their positions, and others added, in one snapshot.

Of each data file that loses rows there is one delete file afterwards that is of this file alone
(https://iceberg.apache.org/spec/#position-delete-files): what such ones deleted of it before stands in
the new one, too, and they go. So a reader opens one for each data file, however often rows change.
PyIceberg (0.12) reads such files, and writes none.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
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
from lockstep.adapters.iceberg_files import head_of, of_replace, written_files
from lockstep.errors import AttemptLost
from lockstep.lake.deleted_positions import Positions, deleted_positions, is_of_one
from lockstep.lake.manifests import live_entries
from lockstep.threads import in_parallel

__all__ = ["RowFiles", "are_deleted_by_position", "change_on", "own_deletes", "row_files"]

_FORMAT_VERSION = 2
"""Later ones delete by vectors, earlier ones not at all."""
_POSITION_FIELD_ID = 2147483545
_FIELD_IDS = (PATH_FIELD_ID, _POSITION_FIELD_ID)
_TEXT = pa.dictionary(pa.int32(), pa.string())
"""One for all rows: each alone would have it in memory, too."""
_DELETES = pa.schema(
    [
        pa.field("file_path", _TEXT, False, {"PARQUET:field_id": str(PATH_FIELD_ID)}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": str(_POSITION_FIELD_ID)}),
    ]
)
_MOST_DELETED = 2_000_000
"""Of a data file: each publish writes those of before once more. Files of which half is gone are merged
(`iceberg_merging`), unless they are large."""


class RowFiles(NamedTuple):
    """Files of rows, and delete files, that come, all of a partition spec, and those that go."""

    spec_id: int
    added: Sequence[DataFile]
    deletes: Sequence[DataFile]
    gone: frozenset[DataFile]


def are_deleted_by_position(metadata: TableMetadata) -> bool:
    """Whether the table's format has such files, and its properties ask for them, one for each data
    file, in Parquet."""
    said = metadata.properties
    modes = [said.get(f"write.{name}.mode") for name in ("delete", "merge")]
    return (
        metadata.format_version == _FORMAT_VERSION
        and modes == ["merge-on-read"] * 2
        and said.get("write.delete.granularity", "file") == "file"
        and said.get("write.delete.format.default", "parquet") == "parquet"
    )


def row_files(
    table: Table, rows: pa.Table, deleted: Sequence[tuple[FileScanTask, Positions]]
) -> RowFiles | None:
    """Written, but not yet the table's. None where a data file is of other partitions than a file of the
    table is now, or has lost more rows than are deleted from here."""
    spec_id = table.metadata.default_spec_id
    if any(task.file.spec_id != spec_id for task, _ in deleted):
        return None
    own = [own_deletes(task) for task, _ in deleted]
    counts = [sum(one.record_count for one in before) for before in own]
    if any(n + len(new) > _MOST_DELETED for n, (_, new) in zip(counts, deleted, strict=True)):
        return None

    def delete(place: int) -> DataFile:
        task, positions = deleted[place]
        path = task.file.file_path
        before = deleted_positions(table.io, own[place], path)
        # Two runs, each in order.
        return _delete_file(
            table, path, np.sort(np.concatenate([before, positions]), kind="stable")
        )

    deletes = in_parallel(delete, range(len(deleted)))
    added = written_files(table.metadata, rows, table.io)
    return RowFiles(spec_id, added, deletes, frozenset(chain.from_iterable(own)))


def own_deletes(task: FileScanTask) -> tuple[DataFile, ...]:
    """The delete files that are of this data file alone."""
    return tuple(one for one in task.delete_files if is_of_one(one, task.file.file_path))


def change_on(
    table: Table,
    branch: str,
    base: int,
    files: RowFiles,
    summary: Mapping[str, str],
    *,
    same_rows: bool = False,
) -> None:
    """One snapshot on the branch, which stands at `base`, with these files; it carries the summary. It
    is an append, where nothing goes, and with `same_rows` a replace.

    Raises AttemptLost where the branch is no longer there."""
    if head_of(table, branch) != base:
        raise AttemptLost(
            f"table {'.'.join(table.name()[-2:])}: branch {branch} has moved",
            expected=f"snapshot {base}, where this writer made it",
            found="another one",
            next_step="run the command again",
        )
    with LeanTransaction(table) as transaction:
        update = _ChangeRows(
            operation=Operation.OVERWRITE if files.deletes or files.gone else Operation.APPEND,
            transaction=transaction,
            io=table.io,
            branch=branch,
            snapshot_properties=dict(summary),
        )
        update.files, update.same_rows = files, same_rows
        update.commit()


def _delete_file(table: Table, path: str, positions: Positions) -> DataFile:
    """A file that deletes these positions, which are in order, of the data file at `path`."""
    places = load_location_provider(table.location(), table.properties)
    place = places.new_data_location(f"{uuid.uuid4()}-deletes.parquet")
    paths = pa.DictionaryArray.from_arrays(np.zeros(len(positions), np.int32), [path])
    rows = pa.table([paths, positions], schema=_DELETES)
    with table.io.new_output(place).create() as output:
        pq.write_table(rows, output, compression="zstd", store_schema=False)
    ends = [to_bytes(LongType(), int(positions[at])) for at in (0, -1)]
    # By those of the path a reader knows that all positions are of one data file.
    lower, upper = (dict(zip(_FIELD_IDS, (path.encode(), end), strict=True)) for end in ends)
    return DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=place,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=len(positions),
        file_size_in_bytes=len(table.io.new_input(place)),
        value_counts=dict.fromkeys(_FIELD_IDS, len(positions)),
        null_value_counts=dict.fromkeys(_FIELD_IDS, 0),
        lower_bounds=lower,
        upper_bounds=upper,
    )


class _ChangeRows(_MergeAppendFiles):
    """An append that deletes, too."""

    files = RowFiles(0, (), (), frozenset())
    same_rows = False

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

    def _added(self, files: Sequence[DataFile], writers: _Writers) -> ManifestFile:
        with writers.new_manifest_writer(self.spec(self.files.spec_id)) as writer:
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
        found = super()._summary(snapshot_properties)
        return of_replace(found) if self.same_rows else found

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
