"""Batches of records as brokers keep them and hand them on
(https://kafka.apache.org/documentation/#recordbatch): which are there, which are committed, and their
records.

Records are taken out by aiokafka's compiled parser, in an eighth of a microsecond each, as long as none
is kept: of each only what is asked for is, and what is asked for seldom is taken out later. To begin
with a batch costs as much as many records, and there may be as many batches as records: they are
put together as one before.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any, Final

import numpy as np
from aiokafka.codec import gzip_decode, lz4_decode, snappy_decode, zstd_decode
from aiokafka.errors import (
    CorruptRecordException,
    KafkaError,
    UnsupportedCodecError,
    UnsupportedVersionError,
)
from aiokafka.record.default_records import DefaultRecordBatch
from google_crc32c import value as crc32c

from lockstep_engine.kernels.groups import Integers

__all__ = ["Batch", "Records", "Taken", "WholeBatches", "committed", "taken"]

_HEADER: Final = struct.Struct(">q9xIhiqqq6xi")
"""Of its first offset, a checksum, attributes, how much greater its last offset is, the first time and
the last, the producer's id, and how many records there are; between them its length, the leader's
epoch, its format, and what a producer counts."""
_TOGETHER: Final = struct.Struct(">qiibIhiqqqhii")
"""The same, whole: of batches that are put together."""
_LENGTH: Final = struct.Struct(">i")
_LENGTH_AT, _BEFORE_LENGTH = 8, 12
_FORMAT_AT, _CHECKED_FROM = 16, 21
_FORMAT: Final = 2
_CODEC, _APPENDED, _TRANSACTIONAL, _CONTROL = 0b111, 1 << 3, 1 << 4, 1 << 5
_UNPACKED: Final[Mapping[int, Callable[[bytes], bytes]]] = {
    1: gzip_decode,
    2: snappy_decode,
    3: lz4_decode,
    4: zstd_decode,
}
_ABORTED: Final = 0


_Head = tuple[int, int, int, int, bool]
"""Of a batch: its first offset, the one after its last, how many records it has, the time that those of
its records count from, and whether they do."""


@dataclass(slots=True)
class Batch:
    """A batch, whose bytes may be those of a buffer that is used again."""

    data: memoryview
    first_offset: int
    checksum: int
    attributes: int
    more: int
    first_time: int
    last_time: int
    producer_id: int
    rows: int

    @property
    def next_offset(self) -> int:
        return self.first_offset + self.more + 1

    @property
    def is_control(self) -> bool:
        """Whether it says how a transaction ended, and holds nobody's records."""
        return bool(self.attributes & _CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)

    def check(self) -> None:
        """Raises CorruptRecordException where its bytes are not what was written: where it ends, and
        whose it is, can be believed of none before."""
        if crc32c(bytes(self.data[_CHECKED_FROM:])) != self.checksum:
            raise CorruptRecordException(
                f"the batch before offset {self.next_offset} is not what its checksum says"
            )

    @property
    def head(self) -> _Head:
        # Of one that was appended one time is told: the broker's.
        is_appended = self.attributes & _APPENDED
        time = self.last_time if is_appended else self.first_time
        return self.first_offset, self.next_offset, self.rows, time, not is_appended

    def payload(self) -> bytes | memoryview:
        """Its records as the parser reads them. Raises CorruptRecordException, UnsupportedCodecError."""
        packed = self.data[_HEADER.size :]
        codec = self.attributes & _CODEC
        if not (codec and self.rows):
            return packed
        if codec not in _UNPACKED:
            raise UnsupportedCodecError(f"records are packed in way {codec}, which nobody knows")
        try:
            return _UNPACKED[codec](bytes(packed))
        except MemoryError:
            raise
        except Exception as error:
            # What codecs raise is of many kinds.
            raise CorruptRecordException(f"{type(error).__name__}: {error}") from error

    def has_aborted(self) -> bool:
        """Whether it ends a transaction of which no record counts."""
        if not self.is_control:
            return False
        markers = _Together([self.payload()], self.head).keys
        return any(one and struct.unpack_from(">hh", one)[1] == _ABORTED for one in markers)


class WholeBatches:
    """The batches that are there with all their bytes: a broker cuts off where it has told enough. They
    are made one after the other: Python's garbage collector would look at thousands.

    Raises UnsupportedVersionError for those of before Kafka 0.11, CorruptRecordException."""

    def __init__(self, data: memoryview) -> None:
        self._data, self._places = data, [0]
        place, size = 0, len(data)
        while place + _FORMAT_AT < size:
            end = place + _BEFORE_LENGTH + _LENGTH.unpack_from(data, place + _LENGTH_AT)[0]
            if end > size:
                break
            if data[place + _FORMAT_AT] != _FORMAT:
                raise UnsupportedVersionError(f"records of format {data[place + _FORMAT_AT]}")
            if end < place + _HEADER.size:
                raise CorruptRecordException(f"a batch of {end - place} bytes, which is none")
            self._places.append(end)
            place = end

    def __len__(self) -> int:
        return len(self._places) - 1

    def __iter__(self) -> Iterator[Batch]:
        return map(self._batch, self._places, self._places[1:])

    @property
    def next_offset(self) -> int:
        """What comes after the batches; 0: there are none."""
        return self._batch(*self._places[-2:]).next_offset if len(self) else 0

    def _batch(self, place: int, end: int) -> Batch:
        return Batch(self._data[place:end], *_HEADER.unpack_from(self._data, place))


def committed(batches: Iterable[Batch], aborted: Iterable[tuple[int, int]]) -> Iterator[Batch]:
    """The batches whose records count, in order. `aborted`: producers and first offsets of transactions
    that were aborted, as the broker tells them with the batches, of which none is open. Each batch is
    checked: also one that is passed by says where the next one begins. Raises CorruptRecordException."""
    waiting = sorted(aborted, key=itemgetter(1), reverse=True)
    open_: set[int] = set()
    for batch in batches:
        batch.check()
        while waiting and waiting[-1][1] < batch.next_offset:
            open_.add(waiting.pop()[0])
        if batch.is_control:
            if batch.has_aborted():
                open_.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in open_):
            yield batch


def taken(batches: Iterable[Batch], most: int, most_bytes: int) -> Iterator[Taken]:
    """Their records, for good: of batches together until there are `most` records, or that many bytes.
    Raises CorruptRecordException where the parser makes nothing of them, UnsupportedCodecError."""
    # No object of each batch: Python's garbage collector would look at thousands.
    payloads, heads, rows, size = list[bytes | memoryview](), list[int](), 0, 0
    for batch in batches:
        payload = batch.payload()
        payloads.append(payload)
        heads += batch.head
        rows, size = rows + batch.rows, size + len(payload)
        if rows >= most or size >= most_bytes:
            yield Taken(_Together(payloads, heads), 0, rows)
            payloads, heads, rows, size = [], [], 0, 0
    if payloads:
        yield Taken(_Together(payloads, heads), 0, rows)


class _Together:
    """Batches as if they were one, whose first offset and time are 0: of their payloads and heads, one
    after the other."""

    def __init__(self, payloads: Sequence[bytes | memoryview], heads: Sequence[int]) -> None:
        of_each = np.array(heads, np.int64).reshape(len(payloads), -1).T
        self._firsts, ends, self._counts, self._times, self._are_counted = of_each
        self.first_offset, self.next_offset = int(self._firsts[0]), int(ends[-1])
        rows = int(self._counts.sum())
        header = _TOGETHER.pack(0, 0, 0, _FORMAT, 0, 0, 0, 0, 0, -1, -1, -1, rows)
        self._data = b"".join([header, *payloads])
        self.size = len(self._data)
        self.values: list[bytes | None] = self._each("value")
        # Of some there are records gone, as their keys have newer ones.
        are_whole = np.array_equal(self._firsts + self._counts, ends)
        places = self._places() if are_whole else np.array(self._each("offset"), np.int64)
        self.offsets: Integers = np.repeat(self._firsts, self._counts) + places

    @cached_property
    def keys(self) -> list[bytes | None]:
        return self._each("key")

    @cached_property
    def timestamps(self) -> list[int]:
        """Milliseconds since 1970."""
        later = np.array(self._each("timestamp"), np.int64)
        later *= np.repeat(self._are_counted, self._counts)
        found: list[int] = (np.repeat(self._times, self._counts) + later).tolist()
        return found

    def _places(self) -> Integers:
        """Of each record in its batch."""
        ends = np.cumsum(self._counts)
        return np.arange(len(self.values)) - np.repeat(ends - self._counts, self._counts)

    def _each(self, what: str) -> list[Any]:
        """Something of each record. What the parser raises is of many kinds: for a header whose name is
        not UTF-8, which some producers let through."""
        try:
            return list(map(attrgetter(what), DefaultRecordBatch(self._data)))
        except (KafkaError, MemoryError):
            raise
        except Exception as error:
            raise CorruptRecordException(f"{type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True)
class Taken:
    """Records of batches that were put together: from the first on and before the end, by place."""

    of: _Together
    first: int
    end: int

    def __len__(self) -> int:
        return self.end - self.first

    @property
    def size(self) -> int:
        """Their bytes, about."""
        return self.of.size * len(self) // max(len(self.of.values), 1)

    @property
    def values(self) -> list[bytes | None]:
        return self.of.values[self.first : self.end]

    @property
    def offsets(self) -> Integers:
        offsets: Integers = self.of.offsets[self.first : self.end]
        return offsets

    @property
    def keys(self) -> list[bytes | None]:
        return self.of.keys[self.first : self.end]

    @property
    def timestamps(self) -> list[int]:
        """Milliseconds since 1970."""
        return self.of.timestamps[self.first : self.end]

    @property
    def next_offset(self) -> int:
        """Where what comes after all of them begins."""
        return self.of.next_offset

    def cut(self, first: int, end: int) -> Taken:
        """Those from the first on and before the end, by place."""
        return Taken(self.of, self.first + first, min(self.first + end, self.end))

    def between(self, start: int, end: int) -> Taken:
        """Those with offsets from `start` and before `end`."""
        if start <= self.of.first_offset and self.of.next_offset <= end:
            return self
        return self.cut(*np.searchsorted(self.offsets, (start, end)).tolist())


class Records:
    """Records in order of offset, at least one."""

    def __init__(self, parts: Sequence[Taken]) -> None:
        self._parts = parts
        self.values = list(chain.from_iterable(part.values for part in parts))

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def offsets(self) -> Integers:
        return np.concatenate([part.offsets for part in self._parts])

    def keys(self) -> Iterator[bytes | None]:
        return chain.from_iterable(part.keys for part in self._parts)

    def timestamps(self) -> Iterator[int]:
        """Milliseconds since 1970."""
        return chain.from_iterable(part.timestamps for part in self._parts)
