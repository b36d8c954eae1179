"""Files of an outbox that stand in a view, too: what is only inserted is written once by Spark.

Iceberg's data files name columns by the ids that their table gave them, and a reader takes those that
its own table has (https://iceberg.apache.org/spec/#column-projection). So where a view has the ids of
its outbox, a file of which each row was inserted once is one of the view as well: `_weight` and `_step`
are columns in it that nobody asks for. It is copied, as each table's maintenance deletes files that
this table no longer needs.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import AddSchemaUpdate
from pyiceberg.types import LongType

from lockstep.adapters.iceberg_commits import LeanTransaction
from lockstep.adapters.iceberg_history import snapshot_of, summary_of
from lockstep.control.ports import OutboxSteps
from lockstep.errors import StateDiverged
from lockstep.threads import in_parallel

__all__ = [
    "COPIED_BYTES",
    "STEP",
    "WEIGHT",
    "append_files",
    "copied",
    "files_of",
    "inserted_files",
    "is_within",
    "is_written_alike",
]

COPIED_BYTES = 1 << 30
"""So much is copied from here at most, which takes no longer than Spark's reading and writing it; more
is written by Spark's workers."""

CHUNK_BYTES = 1 << 23
STEP, WEIGHT = "_step", "_weight"

_WRITTEN_BY = (
    "write.parquet.",
    "write.format.",
    "write.metadata.metrics.",
    "write.object-storage.",
)
"""Properties that say how files are written: a table whose user has changed them has its own written."""


def inserted_files(view: Table, outbox: Table, steps: OutboxSteps) -> list[DataFile] | None:
    """The outbox's files of these steps, where they can stand in the view: they hold rows of no other
    steps, each inserted once, and are not too many. Else None. Reads manifests, and no rows."""
    if not _is_alike(view.metadata, outbox.metadata):
        return None
    schema = outbox.schema()
    found = []
    for file in files_of(outbox, steps):
        if file is None or file.file_format != FileFormat.PARQUET or file.key_metadata:
            return None
        if not is_within(outbox, file, steps) or _bounds(file, schema, WEIGHT) != (1, 1):
            return None
        found.append(file)
    return found if sum(file.file_size_in_bytes for file in found) <= COPIED_BYTES else None


def copied(view: Table, outbox: Table, files: Sequence[DataFile]) -> list[DataFile]:
    """These files once more, where the view keeps its own, and as the view's metadata names them."""
    places = load_location_provider(view.location(), view.properties)
    kept = frozenset(view.schema().field_ids)

    def copy(file: DataFile) -> DataFile:
        place = places.new_data_location(f"{uuid.uuid4()}.parquet")
        _copy(outbox.io, file, view.io, place)
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=place,
            file_format=FileFormat.PARQUET,
            partition=file.partition,
            record_count=file.record_count,
            file_size_in_bytes=file.file_size_in_bytes,
            split_offsets=file.split_offsets,
            spec_id=view.metadata.default_spec_id,
            **_of_columns(file, kept),
        )

    return in_parallel(copy, files)


def append_files(
    view: Table, branch: str, outbox: Table, files: Sequence[DataFile], summary: Mapping[str, str]
) -> None:
    """One snapshot on the branch with these copies, which carries the summary."""
    with LeanTransaction(view) as transaction:
        if view.metadata.last_column_id < outbox.metadata.last_column_id:
            # A later column of the view must not find its id in the copies: ids that a schema has named
            # are never given again.
            schema_id = max(schema.schema_id for schema in view.metadata.schemas) + 1
            schema = Schema(*outbox.schema().fields, schema_id=schema_id)
            transaction._apply((AddSchemaUpdate(schema=schema),))
        append = transaction.update_snapshot(dict(summary), branch).merge_append()
        for file in files:
            append.append_data_file(file)
        append.commit()


_OF_COLUMNS = (
    "column_sizes",
    "value_counts",
    "null_value_counts",
    "nan_value_counts",
    "lower_bounds",
    "upper_bounds",
)


def _is_alike(view: TableMetadata, outbox: TableMetadata) -> bool:
    """Whether the outbox's files are such as the view's could be."""
    theirs = {field.name: field for field in outbox.schema().fields}
    has_its_columns = all(
        field.name in theirs
        and field.field_id == theirs[field.name].field_id
        and field.field_type == theirs[field.name].field_type
        and not field.required
        for field in view.schema().fields
    )
    return has_its_columns and is_written_alike(view, outbox)


def is_written_alike(view: TableMetadata, outbox: TableMetadata) -> bool:
    """Whether nobody has said that the view's files are to be other ones: sorted, in partitions, of
    another format. Such are Spark's to write."""
    is_plain = view.spec().is_unpartitioned() and view.sort_order().is_unsorted
    return is_plain and outbox.spec().is_unpartitioned() and _written(view) == _written(outbox)


def _written(metadata: TableMetadata) -> Mapping[str, str]:
    return {
        name: value for name, value in metadata.properties.items() if name.startswith(_WRITTEN_BY)
    }


def files_of(outbox: Table, steps: OutboxSteps) -> Iterator[DataFile | None]:
    """The data files that may hold rows of these steps; None for one that deletes."""
    snapshot = snapshot_of(steps.table, outbox.metadata, steps.snapshot_id)
    for manifest in snapshot.manifests(outbox.io):
        if manifest.content != ManifestContent.DATA:
            yield None
        elif not _is_before(outbox.metadata, manifest.added_snapshot_id, steps.after):
            for entry in manifest.fetch_manifest_entry(outbox.io, discard_deleted=True):
                of_step = _bounds(entry.data_file, outbox.schema(), STEP)
                if of_step is None or (of_step[1] > steps.after and of_step[0] <= steps.last):
                    yield entry.data_file


def is_within(outbox: Table, file: DataFile, steps: OutboxSteps) -> bool:
    """Whether all rows of a data file are of these steps, by what its table says of it."""
    of_step = _bounds(file, outbox.schema(), STEP)
    return of_step is not None and steps.after < of_step[0] and of_step[1] <= steps.last


def _is_before(metadata: TableMetadata, snapshot_id: int | None, step: int) -> bool:
    """Whether an append says that it went up to this step at most: so do then those before it, whose
    files its manifest may hold."""
    snapshot = None if snapshot_id is None else metadata.snapshot_by_id(snapshot_id)
    summary = {} if snapshot is None else summary_of(snapshot)
    said = summary.get("lockstep.step")
    is_append = summary.get("operation") == Operation.APPEND.value
    return is_append and said is not None and int(said) <= step


def _bounds(file: DataFile, schema: Schema, name: str) -> tuple[int, int] | None:
    """The least and the greatest number of a column; None where the file does not say, or has nulls."""
    field_id = schema.find_field(name).field_id
    least, most = (file.lower_bounds or {}).get(field_id), (file.upper_bounds or {}).get(field_id)
    if least is None or most is None or (file.null_value_counts or {}).get(field_id) != 0:
        return None
    kind = schema.find_type(field_id)
    assert isinstance(kind, LongType), "steps and weights are bigint"
    return int(from_bytes(kind, least)), int(from_bytes(kind, most))


def _of_columns(file: DataFile, kept: frozenset[int]) -> dict[str, Any]:
    """What the metadata say of single columns, of those that are kept."""
    found = {name: getattr(file, name) for name in _OF_COLUMNS}
    return {
        name: of and {field_id: value for field_id, value in of.items() if field_id in kept}
        for name, of in found.items()
    }


def _copy(source: FileIO, file: DataFile, target: FileIO, place: str) -> None:
    with (
        source.new_input(file.file_path).open() as read,
        target.new_output(place).create() as write,
    ):
        shutil.copyfileobj(read, write, CHUNK_BYTES)
    found = len(target.new_input(place))
    if found != file.file_size_in_bytes:
        raise StateDiverged(
            f"{place} is no whole copy of {file.file_path}",
            expected=f"{file.file_size_in_bytes:,} bytes",
            found=f"{found:,}",
            next_step="publish again",
        )
