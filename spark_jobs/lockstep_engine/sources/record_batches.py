"""Batches of records as brokers keep them and hand them on
(https://kafka.apache.org/documentation/#recordbatch): which are there, which are committed, and their
records.

A batch is taken apart by aiokafka's compiled parser, in an eighth of a microsecond a record, as long as
no record is kept: of each only what is asked for is, and what is asked for seldom is taken out later.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, islice
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple

import numpy as np
from aiokafka.errors import CorruptRecordException, KafkaError, UnsupportedVersionError
from aiokafka.record.default_records import DefaultRecordBatch
from google_crc32c import value as crc32c

from lockstep_engine.kernels.groups import Integers

__all__ = ["Batch", "Records", "Taken", "committed", "whole_batches"]

_HEADER: Final = struct.Struct(">q9xIhi16xq10x")
"""Of its first offset, a checksum, attributes, how much greater its last offset is, and the producer's
id; between them its length, the leader's epoch, its format, times, and how many records it has."""
_LENGTH: Final = struct.Struct(">i")
_LENGTH_AT, _BEFORE_LENGTH = 8, 12
_FORMAT_AT, _CHECKED_FROM = 16, 21
_FORMAT: Final = 2
_CODEC, _TRANSACTIONAL, _CONTROL = 0b111, 1 << 4, 1 << 5
_ABORTED: Final = 0

_VALUE, _KEY, _TIMESTAMP, _OFFSET = map(attrgetter, ("value", "key", "timestamp", "offset"))


class Taken(NamedTuple):
    """Records of a batch: where the first is in it, their values and offsets, and their bytes, about."""

    data: bytes
    first: int
    values: list[bytes | None]
    offsets: Sequence[int]
    size: int

    def cut(self, first: int, end: int) -> Taken:
        """Those from the first on and before the end, by place."""
        values = self.values[first:end]
        size = self.size * len(values) // max(len(self.values), 1)
        return Taken(self.data, self.first + first, values, self.offsets[first:end], size)

    def between(self, start: int, end: int) -> Taken:
        """Those with offsets from `start` and before `end`."""
        return self.cut(bisect_left(self.offsets, start), bisect_left(self.offsets, end))


class Records:
    """Records in order of offset, at least one. There may be as many batches as records."""

    def __init__(self, parts: Sequence[Taken]) -> None:
        self._parts = parts
        self.values = list(chain.from_iterable(part.values for part in parts))

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def offsets(self) -> Integers:
        offsets = [part.offsets for part in self._parts]
        if not all(isinstance(one, range) for one in offsets):
            return np.fromiter(chain.from_iterable(offsets), np.int64, len(self))
        counts = np.fromiter(map(len, offsets), np.int64, len(offsets))
        firsts = np.fromiter((one[0] for one in offsets), np.int64, len(offsets))
        # Each goes on from its first, as places do from that of the first.
        return np.arange(len(self)) + np.repeat(firsts - np.cumsum(counts) + counts, counts)

    def keys(self) -> Iterator[bytes | None]:
        return self._each(_KEY)

    def timestamps(self) -> Iterator[int]:
        """Milliseconds since 1970."""
        return self._each(_TIMESTAMP)

    def _each(self, what: attrgetter[Any]) -> Iterator[Any]:
        for part in self._parts:
            yield from _taken(part.data, what, part.first, part.first + len(part.values))


class Batch(NamedTuple):
    """A batch, whose bytes may be those of a buffer that is used again."""

    data: memoryview
    first_offset: int
    next_offset: int
    checksum: int
    attributes: int
    producer_id: int

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

    def taken(self) -> Taken:
        """Its records, for good. Raises CorruptRecordException where the parser makes nothing of them,
        UnsupportedCodecError."""
        data = bytes(self.data)
        values = _taken(data, _VALUE)
        offsets: Sequence[int] = range(self.first_offset, self.next_offset)
        if len(offsets) != len(values):
            # Some are gone, as their keys have newer ones.
            offsets = _taken(data, _OFFSET)
        is_packed = self.attributes & _CODEC
        size = sum(map(len, filter(None, values))) if is_packed else len(data)
        return Taken(data, 0, values, offsets, size)

    def has_aborted(self) -> bool:
        """Whether it ends a transaction of which no record counts."""
        markers = _taken(bytes(self.data), _KEY) if self.is_control else ()
        return any(one and struct.unpack_from(">hh", one)[1] == _ABORTED for one in markers)


def whole_batches(data: memoryview) -> Iterator[Batch]:
    """The batches that are there with all their bytes: a broker cuts off where it has told enough.

    Raises UnsupportedVersionError for those of before Kafka 0.11, CorruptRecordException."""
    place, size = 0, len(data)
    while place + _FORMAT_AT < size:
        end = place + _BEFORE_LENGTH + _LENGTH.unpack_from(data, place + _LENGTH_AT)[0]
        if end > size:
            return
        if data[place + _FORMAT_AT] != _FORMAT:
            raise UnsupportedVersionError(f"records of format {data[place + _FORMAT_AT]}")
        if end < place + _HEADER.size:
            raise CorruptRecordException(f"a batch of {end - place} bytes, which is none")
        first, checksum, attributes, more, producer_id = _HEADER.unpack_from(data, place)
        yield Batch(data[place:end], first, first + more + 1, checksum, attributes, producer_id)
        place = end


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


def _taken(data: bytes, what: attrgetter[Any], first: int = 0, end: int | None = None) -> list[Any]:
    """Something of each record of a batch, or of some. What the parser and the codecs raise is of many
    kinds: for a header whose name is not UTF-8, which some producers let through, or a text that was
    packed wrongly."""
    try:
        found = map(what, DefaultRecordBatch(data))
        return list(found if end is None else islice(found, first, end))
    except (KafkaError, MemoryError):
        raise
    except Exception as error:
        raise CorruptRecordException(f"{type(error).__name__}: {error}") from error
