"""Records of the plain kind, read by this process, or by others for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

import pyarrow as pa
import pyarrow.compute as pc
from aiokafka.errors import KafkaError

from lockstep.control.model import OffsetRange
from lockstep.errors import LockstepError
from lockstep.threads import in_parallel
from lockstep_engine.kernels.plain_json import PLAIN
from lockstep_engine.sources.offsets import partition_ranges, records_of, slices_of
from lockstep_engine.sources.plain_reading import PlainReading
from lockstep_engine.sources.reader import large
from lockstep_engine.sources.readers import CannotRead, a_reader, seats

__all__ = ["read_here"]

MOST_UNDECIDED, MOST_UNDECIDED_BYTES = 20_000, 8 << 20
"""So many are sent to Spark to be decoded; of more it had better read all."""
MANY_RECORDS = 50_000
"""More are read by processes, which take half a second to start, once."""


def read_here(reading: PlainReading, most_bytes: int) -> pa.Table | None:
    """All records of its ranges. None where they have more bytes, or many are not plain, or cannot be
    read: Spark, which then reads them, says why."""
    room, ranges = _Room(most_bytes), reading.ranges
    try:
        if records_of(ranges) <= MANY_RECORDS:
            slices = partition_ranges(ranges)
            parts = in_parallel(
                lambda wanted: list(large(room.taken(reading.records(wanted)))), slices
            )
        else:
            slices = slices_of(ranges, 2 * seats())
            with ThreadPoolExecutor(seats()) as pool:
                parts = list(pool.map(lambda wanted: _by_another(reading, wanted, room), slices))
    except (CannotRead, KafkaError, LockstepError, OSError, pa.ArrowException):
        return None
    batches = [batch for part in parts for batch in part]
    return pa.Table.from_batches(batches, schema=reading.shape)


def _by_another(reading: PlainReading, wanted: OffsetRange, room: _Room) -> list[pa.RecordBatch]:
    with a_reader() as reader:
        return list(room.taken(reader.read(reading.of(wanted), wanted)))


class _Room:
    """So many bytes, and records that are not plain, taken by several threads."""

    def __init__(self, most_bytes: int) -> None:
        self._left, self._lock = most_bytes, Lock()
        self._undecided, self._raw = MOST_UNDECIDED, MOST_UNDECIDED_BYTES

    def taken(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches, as long as there is room. Raises CannotRead."""
        for batch in batches:
            undecided = batch.num_rows - batch.column(PLAIN).true_count
            with self._lock:
                self._left -= batch.nbytes
                self._undecided -= undecided
                self._raw -= _raw_bytes(batch) if undecided else 0
            if self._left < 0:
                raise CannotRead("it is more than this process should hold")
            if self._undecided < 0 or self._raw < 0:
                raise CannotRead("too little of it is plain")
            yield batch


def _raw_bytes(batch: pa.RecordBatch) -> int:
    """Of those that are undecided: others have neither."""
    lengths = (pc.binary_length(batch.column(name)) for name in ("_key", "_value"))
    return sum(pc.sum(one).as_py() or 0 for one in lengths)
