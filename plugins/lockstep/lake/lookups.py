"""Rows of a large table by their keys, read by whoever asks.

The law: what is found are rows of the snapshot, each as often as it is there; and among them is every
row that holds, in each column of the keys, one of the wanted numbers, or null: without keys, all rows.

Spark takes longer to plan a scan, and to compile the loop over its rows, than it takes to read the few
row groups in which keys stand that are near one another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, compress
from math import inf
from threading import Lock
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    GreaterThanOrEqual,
    IsNull,
    LessThanOrEqual,
    Or,
    Reference,
)
from pyiceberg.expressions.literals import literal
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import FileFormat
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import IntegerType, LongType

from lockstep.lake.changed_files import are_readable_deletes, has_equality_deletes
from lockstep.lake.deleted_positions import Positions, deleted_positions, positions_within
from lockstep.lake.file_batches import are_readable, names_in_file
from lockstep.lake.kept_batches import (
    BATCH_ROWS,
    KEPT_BYTES,
    are_kept,
    batches_of_group,
    footer_of,
    is_footer_kept,
    place_of,
    places_of_batches,
)
from lockstep.lake.manifests import manifests_of, planned_files
from lockstep.lake.selective_scan import (
    Selected,
    are_never_null,
    can_select,
    selected_rows,
)
from lockstep.lake.sorted_copies import Copied, SortedCopies, SortedCopy
from lockstep.lake.wanted_rows import Numbers, Wanted, wanted_places
from lockstep.lake.zones import ZONES, are_between
from lockstep.threads import in_parallel

__all__ = ["MOST_BYTES", "MOST_ROWS", "Located", "locate", "look_up"]

MOST_BYTES = 256 << 20
"""As they lie in the files, of the columns that are read: of more, Spark's tasks read. So many take a
second and a half of two cores, and Spark's tasks, with what they take to begin, twice as long."""
MOST_ROWS = 300_000
MOST_LISTED = 1000
"""So many files a snapshot may have: to read what is said of each takes longer here than in Spark."""
MOST_OPENED = 100
"""So many files, of a small change: to look at each takes a millisecond."""
_WORTH_COPYING = 3
"""To copy a file takes as long as some look-ups do: it has been looked up for the third time."""
MOST_COPIED = 64 << 20
"""So many values of a file are copied in a few seconds, which an interval waits for: merged files of
traces have no more."""
_LEARNED = 2
"""What is looked up for the second time will be again: it is worth to be known, and kept."""
LARGE_VALUES = 2 << 20
"""So many values of a file take a twentieth of a second to decode."""
MOST_KEPT = 8 << 20
"""So many values may be in the batches that a look-up keeps at once, in all columns: it leaves others
theirs."""
MOST_KEPT_AGAIN = KEPT_BYTES // 32
"""So many, where they are looked up again and again: a quarter of what is kept, if they are numbers."""

_WHOLE = (IntegerType, LongType)


@dataclass(frozen=True)
class _Group:
    """A row group in which wanted rows can be: the position of its first row, how many there are, and in
    which batches."""

    number: int
    first: int
    size: int
    places: Sequence[int]


@dataclass(frozen=True)
class _Part:
    """What of a file can hold wanted rows; `names` are the file's of the columns, `size` the bytes of
    these."""

    task: FileScanTask
    names: Mapping[str, str]
    groups: Sequence[_Group]
    size: int

    @property
    def path(self) -> str:
        return self.task.file.file_path

    @property
    def values(self) -> int:
        """How many are in the batches, in all columns."""
        return sum(len(one.places) for one in self.groups) * BATCH_ROWS * len(self.names)

    def is_kept(self, group: _Group) -> bool:
        """Whether no file has to be opened."""
        return are_kept(self.path, group.number, list(self.names.values()), group.places)


class Located(NamedTuple):
    """Rows of data files, those of one place after those of another, and their positions in these."""

    rows: pa.Table
    places: Sequence[tuple[FileScanTask, Positions]]


def look_up(
    table: Table,
    snapshot_id: int,
    columns: Sequence[str],
    keys: Mapping[str, Numbers],
    copies: SortedCopies | None = None,
    times: int = 1,
) -> pa.Table | None:
    """These columns of the rows, whose names' letters may be of another case in the table.

    `keys` are some of the columns; one that does not hold whole numbers says nothing. Of large files
    copies are read, and made. None where all keys say nothing, much would have to be read, there are
    more rows than `times` MOST_ROWS or as many times MOST_OPENED files, of MOST_LISTED, or files hold
    them in another form than the table.
    """
    found = locate(table, snapshot_id, columns, keys, copies, times)
    return None if found is None else found.rows


def locate(
    table: Table,
    snapshot_id: int,
    columns: Sequence[str],
    keys: Mapping[str, Numbers],
    copies: SortedCopies | None = None,
    times: int = 1,
) -> Located | None:
    """The same rows, and where each of them is."""
    if _files_listed(table, snapshot_id) > times * MOST_LISTED:
        return None
    if has_equality_deletes(table, snapshot_id) or not are_readable(table, columns, ()):
        return None
    schema = table.schema().select(*columns, case_sensitive=False)
    names = {name: schema.find_field(name, case_sensitive=False).name for name in columns}
    wanted = {
        names[name]: numbers
        for name, numbers in keys.items()
        if isinstance(schema.find_type(names[name]), _WHOLE)
    }
    if keys and not wanted:
        return None
    tasks = planned_files(table, manifests_of(table, snapshot_id), _near(wanted))
    others = any(task.file.file_format is not FileFormat.PARQUET for task in tasks)
    if others or len(tasks) > times * MOST_OPENED:
        return None
    if not all(are_readable_deletes(task.delete_files) for task in tasks):
        return None
    paths = [task.file.file_path for task in tasks]
    in_parallel(lambda path: footer_of(table.io, path), [p for p in paths if not is_footer_kept(p)])
    shape = schema_to_pyarrow(schema)
    found = [_part(table.io, task, shape, wanted) for task in tasks]
    parts = [part for part in found if part is not None]
    if len(parts) < len(found):
        return None
    most = times * MOST_ROWS
    copied = {} if copies is None else _of_copies(table.io, parts, wanted, copies, most)
    uncopied = [part for part in parts if part.path not in copied]
    if sum(part.size for part in uncopied) > MOST_BYTES:
        return None
    known = _asked_again(uncopied, wanted)
    if _LEARNED in known.values():
        learned = [part for part in parts if known.get(part.path) == _LEARNED and _is_large(part)]
        in_parallel(lambda part: _learn(table.io, part, wanted), learned)
        again = [_part(table.io, part.task, shape, wanted) for part in parts]
        parts = [part for part in again if part is not None]
    left = [part for part in parts if part.path not in copied]
    read = _read(table.io, parts, wanted, _worth_keeping(left, known), copied, most)
    if read is None:
        return None
    plain = schema_to_pyarrow(schema, include_field_ids=False)
    tables = (pa.Table.from_batches([found.rows]).cast(plain) for _, found in read)
    rows = pa.concat_tables([plain.empty_table(), *tables])
    return Located(
        rows.select(list(names.values())).rename_columns(list(names)),
        [(task, found.positions) for task, found in read],
    )


def _files_listed(table: Table, snapshot_id: int) -> float:
    """How many files a snapshot has. Infinitely many where it does not say, or is not there: PyIceberg
    would find no rows in one that is gone, and Spark says what is wrong."""
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    if snapshot is None or snapshot.summary is None:
        return inf
    said = snapshot.summary.additional_properties
    return sum(float(said.get(f"total-{kind}-files", inf)) for kind in ("data", "delete"))


def _near(wanted: Wanted) -> BooleanExpression:
    """By which files are left out that hold neither a number between the ends nor null. Not as text: to
    read one takes two milliseconds, and names may hold any mark."""
    near: BooleanExpression = AlwaysTrue()
    for name, numbers in wanted.items():
        key, low, high = Reference(name), literal(int(numbers[0])), literal(int(numbers[-1]))
        ends = (GreaterThanOrEqual(term=key, value=low), LessThanOrEqual(term=key, value=high))
        near = And(near, Or(And(*ends), IsNull(term=key)))
    return near


def _part(files: FileIO, task: FileScanTask, shape: pa.Schema, wanted: Wanted) -> _Part | None:
    """None where the file has a column in another form."""
    path = task.file.file_path
    footer = footer_of(files, path)
    names = names_in_file(footer, shape)
    if names is None:
        return None
    by_name = {names[name]: numbers for name, numbers in wanted.items()}
    groups, size, first = list[_Group](), 0, 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        chunks = {c.path_in_schema: c for c in map(group.column, range(group.num_columns))}
        if all(_may_hold(chunks[name], numbers) for name, numbers in by_name.items()):
            places = [
                place
                for place in places_of_batches(group.num_rows)
                if ZONES.may_hold((path, number, place), by_name)
            ]
            if places:
                groups.append(_Group(number, first, group.num_rows, places))
            # What a column holds has paths that begin with its name.
            read = (c for path, c in chunks.items() if path.split(".")[0] in names.values())
            # As if nothing was known of batches: what is looked up here does not depend on the process.
            size += sum(chunk.total_compressed_size for chunk in read)
        first += group.num_rows
    return _Part(task, names, groups, size)


def _may_hold(chunk: pq.ColumnChunkMetaData, numbers: Numbers) -> bool:
    """Whether one of the numbers, or null, can be in a column of a row group, as far as it says."""
    found = chunk.statistics
    if found is None or not found.has_min_max or found.null_count != 0:
        return True
    return are_between(numbers, found.min, found.max)


def _of_copies(
    files: FileIO, parts: Sequence[_Part], wanted: Wanted, copies: SortedCopies, most: int
) -> Mapping[str, Selected]:
    """The wanted rows of large files that are copied, by path; some are copied now, of those that were
    asked for often."""
    found, missing = dict[str, Selected](), list[tuple[_Part, Copied]]()

    def rows_of(part: _Part, copy: SortedCopy) -> Selected | None:
        # Deleted rows may be found beside as many as may be looked up.
        deleted = sum(one.record_count for one in part.task.delete_files)
        return copy.rows(wanted, part.names, most + deleted)

    def look_at(part: _Part) -> None:
        left = None
        for copied in _forms(files, part, wanted):
            copy = copies.find(copied)
            if copy is None:
                left = left or copied
            elif (rows := rows_of(part, copy)) is not None:
                found[part.path] = rows
                return
        if left is not None and copies.times_asked(left) >= _WORTH_COPYING:
            missing.append((part, left))

    in_parallel(look_at, filter(_is_large, parts))
    for part, copied in missing:
        copy = copies.make(files, copied)
        rows = None if copy is None else rows_of(part, copy)
        if rows is not None:
            found[part.path] = rows
    return found


def _forms(files: FileIO, part: _Part, wanted: Wanted) -> Iterator[Copied]:
    """What copies of a file can be read by wanted keys, that of the fewest first."""
    footer, file = footer_of(files, part.path), part.task.file
    if footer.num_rows * len(part.names) > MOST_COPIED:
        return
    columns = tuple(sorted(part.names.values()))
    for name in sorted(wanted, key=lambda name: len(wanted[name])):
        if are_never_null(footer, [part.names[name]]):
            key = part.names[name]
            yield Copied(part.path, file.file_size_in_bytes, footer.num_rows, columns, key)


def _asked_again(parts: Sequence[_Part], wanted: Wanted) -> Mapping[str, int]:
    """How often the files have been asked for, where that was not for the first time, and all that would
    be read is too much to be kept at once."""
    if not wanted or _values(parts) <= MOST_KEPT:
        return {}
    times = {part.path: ZONES.times_asked(part.path, wanted) for part in parts}
    return {path: number for path, number in times.items() if number >= _LEARNED}


def _worth_keeping(parts: Sequence[_Part], known: Mapping[str, int]) -> Collection[str]:
    """The paths of the files whose batches are kept: of all, where that is not much, or, of those that
    are asked for again and again, and the few that are new beside them."""
    new = [part for part in parts if part.path not in known]
    if _values(parts) > MOST_KEPT_AGAIN or _values(new) > MOST_KEPT:
        return ()
    return {part.path for part in parts}


def _values(parts: Iterable[_Part]) -> int:
    return sum(part.values for part in parts)


def _is_large(part: _Part) -> bool:
    """Whether so much of a file would be decoded that another reader is worth its while."""
    return part.values > LARGE_VALUES


_NONE: Positions = np.empty(0, np.int64)


def _learn(files: FileIO, part: _Part, wanted: Wanted) -> None:
    """Have the ends of all batches' keys known: where rows are in a key's order few can hold one."""
    names = {name: part.names[name] for name in wanted}
    for group in part.groups:
        places = places_of_batches(group.size)
        for first, rows in batches_of_group(
            files, part.path, group.number, names, places, keeps=False
        ):
            _note(part, group, first, rows, wanted)


def _note(part: _Part, group: _Group, first: int, rows: pa.RecordBatch, wanted: Wanted) -> None:
    place = place_of(first, rows, group.size)
    if place is not None:
        keys = {part.names[name]: rows.column(name) for name in wanted}
        ZONES.note((part.path, group.number, place), keys)


def _read(
    files: FileIO,
    parts: Sequence[_Part],
    wanted: Wanted,
    keeps: Collection[str],
    copied: Mapping[str, Selected],
    most: int,
) -> list[tuple[FileScanTask, Selected]] | None:
    """The wanted rows of files, in one order, whatever is kept, which is that of the files at the paths
    `keeps`, or `copied`; None where they are more than `most`: it is seen as they come, as a
    column with few values lies in few bytes."""
    count, counting = 0, Lock()

    def positions(part: _Part) -> Positions:
        return deleted_positions(files, tuple(part.task.delete_files), part.path)

    # First, and of each file once.
    some = [part for part in parts if part.groups and part.task.delete_files]
    deleted = dict(zip((part.path for part in some), in_parallel(positions, some), strict=True))
    todo = list[tuple[_Part, Sequence[_Group], bool]]()
    for part in parts:
        if part.path in copied or (
            part.path not in keeps
            and _is_for_duckdb(files, part, wanted, deleted.get(part.path, _NONE), most)
        ):
            todo.append((part, part.groups, True))
        else:
            todo.extend((part, [group], False) for group in part.groups)

    def rows_of(one: tuple[_Part, Sequence[_Group], bool]) -> list[tuple[FileScanTask, Selected]]:
        nonlocal count
        part, groups, is_apart = one
        gone, found = deleted.get(part.path, _NONE), list[tuple[FileScanTask, Selected]]()
        selected = None
        if is_apart and count <= most:
            selected = _selected(files, part, wanted, gone, copied.get(part.path), most)
        batches = (
            chain.from_iterable(
                _rows(files, part, g, wanted, gone, keeps=part.path in keeps) for g in groups
            )
            if selected is None
            else iter([selected])
        )
        while count <= most and (batch := next(batches, None)) is not None:
            found.append((part.task, batch))
            with counting:
                count += batch.rows.num_rows
        return found

    # What is kept takes less time than threads do to begin.
    is_opened = [not all(map(part.is_kept, groups)) for part, groups, _ in todo]
    opened = iter(in_parallel(rows_of, compress(todo, is_opened)))
    found = [
        next(opened) if is_new else rows_of(one)
        for one, is_new in zip(todo, is_opened, strict=True)
    ]
    return list(chain.from_iterable(found)) if count <= most else None


def _is_for_duckdb(
    files: FileIO, part: _Part, wanted: Wanted, deleted: Positions, most: int
) -> bool:
    """Whether a file's rows are selected by the reader for large ones, if that can read it."""
    return (
        _is_large(part)
        and len(deleted) <= most
        and can_select(part.path, footer_of(files, part.path), part.names, wanted)
    )


def _selected(
    files: FileIO,
    part: _Part,
    wanted: Wanted,
    deleted: Positions,
    copied: Selected | None,
    most: int,
) -> Selected | None:
    """The wanted rows of a file, no more than one beyond `most`; `copied` are those of its copy, if
    there is one."""
    found = copied
    if found is None:
        footer = footer_of(files, part.path)
        found = selected_rows(part.path, footer, part.names, wanted, most + len(deleted))
    if found is None:
        return None
    there = np.isin(found.positions, deleted, assume_unique=True, invert=True)
    return Selected(found.positions[there], found.rows.filter(pa.array(there)))


def _rows(
    files: FileIO, part: _Part, group: _Group, wanted: Wanted, deleted: Positions, *, keeps: bool
) -> Iterator[Selected]:
    for first, rows in batches_of_group(
        files, part.path, group.number, part.names, group.places, keeps=keeps
    ):
        _note(part, group, first, rows, wanted)
        start = group.first + first
        gone = positions_within(deleted, start, rows.num_rows)
        kept = np.setdiff1d(wanted_places(rows, wanted), gone, True)
        if len(kept):
            yield Selected(start + kept, rows.take(pa.array(kept)))
