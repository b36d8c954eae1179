"""Copies of large data files on this machine, in the order of a key: a look-up reads little more of one
than what it finds.

Law: a data file never changes, and no other one ever has its name; so a copy has its rows, and whoever
finds one may read it in the file's place. It can be deleted at any time, and is made again.

Keys that are anywhere in a large file cost all of it: Parquet is decoded by the page, and each page
holds one. A copy lies on the disk as Arrow has rows in memory, by key, so that a search by halves finds
them. To make one takes as long as a few look-ups do; so a file has to be asked for as often first, by
any process, and an interval goes on once it has copied for a while.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from tempfile import mkstemp
from threading import Lock
from typing import BinaryIO

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO

from lockstep.control.job import CopySettings
from lockstep.lake.kept_batches import batches_of_group, footer_of, places_of_batches
from lockstep.lake.selective_scan import Selected
from lockstep.lake.wanted_rows import Wanted, places_in_order, wanted_places

__all__ = ["Copied", "SortedCopies", "SortedCopy"]

_LOG = logging.getLogger(__name__)
_FORMAT = 1
"""Of the copies: others are not looked at."""
_POSITION = "lockstep position in its file"
RUN_ROWS, RUN_BYTES = 4 << 20, 128 << 20
"""So much is in memory, and in one order, at a time: as many rows as a merged file of a trace has. A few
times as many bytes are in memory while they are brought into order."""
MOST_OF_ONE = 1 << 30
"""So many bytes are written in a few seconds."""
COPYING_SECONDS = 2.0
"""An interval begins no other copy after that."""
_SHARE = 4
"""Copies take up to this part of what would be free without them."""
_RECENT_SECONDS = 3600
"""What has been used since then will be used again: it does not make room for others."""
_UNUSED_SECONDS = 7 * 24 * 3600
_ABANDONED_SECONDS = 600
"""So long nobody takes to write a copy."""
_TIDY_SECONDS = 3600

_MAKING = Lock()
"""A process makes one copy at a time."""


@dataclass(frozen=True)
class Copied:
    """What is copied: of the data file at `path`, with so many bytes and rows, these columns, by their
    names in it, in the order of `key`, which is a whole number in each row."""

    path: str
    size: int
    rows: int
    columns: tuple[str, ...]
    key: str

    @property
    def name(self) -> str:
        """Of the copy's file."""
        text = json.dumps([_FORMAT, *astuple(self)])
        return hashlib.sha256(text.encode()).hexdigest()[:40]

    @property
    def least_bytes(self) -> int:
        """No copy is smaller by much: columns of numbers, and positions."""
        return self.rows * (4 * len(self.columns) + 8)


@dataclass(frozen=True)
class SortedCopy:
    """A copy that is there."""

    path: Path
    copied: Copied

    def rows(self, wanted: Wanted, names: Mapping[str, str], most: int) -> Selected | None:
        """The rows whose keys are wanted, with the columns of `names`, which are the file's by the
        table's. None where the copy cannot be read, or by its own key more than `most` are wanted."""
        [key] = [name for name, column in names.items() if column == self.copied.key]
        try:
            with pa.memory_map(str(self.path)) as source, pa.ipc.open_file(source) as copy:
                runs = [copy.get_batch(number) for number in range(copy.num_record_batches)]
                places = [
                    places_in_order(run[self.copied.key].to_numpy(), wanted[key]) for run in runs
                ]
                if sum(map(len, places)) > most:
                    return None
                taken = [
                    pa.table(run.take(pa.array(at)))
                    for run, at in zip(runs, places, strict=True)
                    if len(at)
                ]
                near = pa.concat_tables([copy.schema.empty_table(), *taken])
        except pa.ArrowException:
            with suppress(OSError):
                self.path.unlink()  # it is damaged
            return None
        except OSError:
            return None
        near = near.sort_by(_POSITION)
        columns = [near[column].combine_chunks() for column in names.values()]
        if any(isinstance(column, pa.ChunkedArray) for column in columns):
            return None  # texts of gigabytes
        rows = pa.RecordBatch.from_arrays(columns, names=list(names))
        others = {name: numbers for name, numbers in wanted.items() if name != key}
        at = wanted_places(rows, others)
        return Selected(near[_POSITION].to_numpy()[at], rows.take(pa.array(at)))


class SortedCopies:
    """The copies in a folder, for an interval. Several processes may have the same folder."""

    def __init__(self, settings: CopySettings) -> None:
        self._folder = Path(settings.folder)
        self._most_bytes = settings.most_bytes
        self._copying_seconds = 0.0

    def find(self, copied: Copied) -> SortedCopy | None:
        """The copy, if there is one."""
        path = self._folder / f"{copied.name}.arrow"
        try:
            os.utime(path)  # it has been used
        except OSError:
            return None
        return SortedCopy(path, copied)

    def times_asked(self, copied: Copied) -> int:
        """How often, with this time, a copy has been asked for that was not there, by any process; 0
        where it is not to be made."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._tidy()
            if (self._folder / f"{copied.name}.not").exists():
                return 0
            with (self._folder / f"{copied.name}.asked").open("ab") as asked:
                asked.write(b".")
                return asked.tell()
        except OSError:
            return 0

    def make(self, files: FileIO, copied: Copied) -> SortedCopy | None:
        """Make the copy; None where it cannot be made, or not now."""
        if self._copying_seconds > COPYING_SECONDS or not _MAKING.acquire(blocking=False):
            return None
        made, started = self._folder / f"{copied.name}.arrow", time.monotonic()
        try:
            # A process that does not survive it does not begin again at once.
            made.with_suffix(".asked").unlink(missing_ok=True)
            if not made.exists() and not self._written(files, copied, made):
                return None
            return SortedCopy(made, copied)
        except OSError as error:
            _LOG.warning("no copy of %s in %s: %s", copied.path, self._folder, error)
            return None
        finally:
            self._copying_seconds += time.monotonic() - started
            _MAKING.release()

    def _written(self, files: FileIO, copied: Copied, made: Path) -> bool:
        """Whether there was room for it, and it is of a form that is copied."""
        room = self._room()
        most = min(room, MOST_OF_ONE)
        left = room - self._bytes_used_since(time.time() - _RECENT_SECONDS)
        if copied.least_bytes > left and copied.least_bytes <= most:
            return False
        handle, path = mkstemp(".new", dir=self._folder)
        new = Path(path)
        try:
            with os.fdopen(handle, "wb") as file:
                is_whole = _write(files, copied, file, min(left, most))
                # What is found under the copy's name is whole, also after the machine has stopped.
                file.flush()
                os.fsync(file.fileno())
            if is_whole:
                new.rename(made)
                self._make_room(made)
        except pa.ArrowException as error:
            _LOG.warning("%s is not copied: %s", copied.path, error)
            is_whole = False
        finally:
            new.unlink(missing_ok=True)
        if not is_whole and left >= most:
            # No matter what else is there.
            made.with_suffix(".not").touch()
        return is_whole

    def _room(self) -> int:
        """The bytes that all copies may take."""
        disk = os.statvfs(self._folder)
        free = disk.f_bavail * disk.f_frsize
        return min(self._most_bytes, (free + self._bytes_used_since(0)) // _SHARE)

    def _bytes_used_since(self, moment: float) -> int:
        return sum(size for used, size, _ in self._files("*.arrow") if used > moment)

    def _files(self, pattern: str) -> Sequence[tuple[float, int, Path]]:
        """Of what is in the folder when it was last used, its bytes and its path, oldest first."""
        found = []
        for path in self._folder.glob(pattern):
            with suppress(FileNotFoundError):
                about = path.stat()
                found.append((about.st_mtime, about.st_size, path))
        return sorted(found)

    def _make_room(self, newest: Path) -> None:
        """Delete copies that have not been used of late, the oldest first, where they are too many."""
        files, room = self._files("*.arrow"), self._room()
        total, recent = sum(size for _, size, _ in files), time.time() - _RECENT_SECONDS
        for used, size, path in files:
            if total > room and used <= recent and path != newest:
                path.unlink(missing_ok=True)
                total -= size

    def _tidy(self) -> None:
        """Now and then: delete what nobody has used for long, and what nobody has brought to an end."""
        now, mark = time.time(), self._folder / "tidied"
        if mark.exists() and now - mark.stat().st_mtime < _TIDY_SECONDS:
            return
        mark.touch()
        for used, _, path in self._files("*"):
            most = _ABANDONED_SECONDS if path.suffix == ".new" else _UNUSED_SECONDS
            if now - used > most:
                path.unlink(missing_ok=True)


def _write(files: FileIO, copied: Copied, file: BinaryIO, most: int) -> bool:
    """Whether the copy is whole: it may come to more than `most` bytes, or be of a form that is not
    copied."""
    if _POSITION in copied.columns:
        return False
    writer: pa.RecordBatchFileWriter | None = None
    for start, run in _runs(files, copied):
        rows = _in_order(start, run, copied.key)
        if rows is None or file.tell() + rows.nbytes > most:
            return False
        if writer is None:
            writer = pa.ipc.new_file(file, rows.schema)
        writer.write_batch(rows)
    if writer is None:
        return False
    writer.close()
    return True


def _runs(files: FileIO, copied: Copied) -> Iterator[tuple[int, pa.Table]]:
    """The rows of the file, as many at a time as are brought into order at once, with the position of
    the first of them."""
    names = {name: name for name in copied.columns}
    footer, start, count, size = footer_of(files, copied.path), 0, 0, 0
    batches = list[pa.RecordBatch]()
    for group in range(footer.num_row_groups):
        places = places_of_batches(footer.row_group(group).num_rows)
        for _, rows in batches_of_group(files, copied.path, group, names, places, keeps=False):
            batches.append(rows)
            count, size = count + len(rows), size + rows.nbytes
            if count >= RUN_ROWS or size >= RUN_BYTES:
                run = pa.Table.from_batches(batches)
                batches.clear()
                yield start, run
                start, count, size = start + count, 0, 0
    if batches:
        yield start, pa.Table.from_batches(batches)


def _in_order(start: int, run: pa.Table, key: str) -> pa.RecordBatch | None:
    """The rows by their key, with their positions; None where one has none, or the texts are too long
    for one batch."""
    positions = np.arange(start, start + run.num_rows)
    if run[key].null_count:
        return None
    keys = run[key].to_numpy()
    if np.any(keys[:-1] > keys[1:]):
        order = np.argsort(keys, kind="stable")
        run, positions = run.take(pa.array(order)), positions[order]
    found = run.append_column(_POSITION, pa.array(positions)).combine_chunks().to_batches()
    return found[0] if len(found) == 1 else None
