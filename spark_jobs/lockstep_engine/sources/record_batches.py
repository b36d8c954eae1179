"""Batches of records as brokers keep them and hand them on
(https://kafka.apache.org/documentation/#recordbatch): which are there, which are committed, and their
records.

A batch is taken apart by aiokafka's compiled parser, in an eighth of a microsecond a record, as long as
no record is kept: of each only what is asked for is, and what is asked for seldom is taken out later.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from operator import attrgetter, itemgetter
from typing import Any, Final

import numpy as np
from aiokafka.errors import CorruptRecordException, UnsupportedVersionError
from aiokafka.record.default_records import DefaultRecordBatch
from google_crc32c import value as crc32c

from lockstep_engine.kernels.groups import Integers

__all__ = ["Batch", "Records", "committed", "whole_batches"]

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
"""Of its first offset, its bytes behind this number, the leader's epoch, its format, a checksum of what
follows it, its attributes, how much greater its last offset is, two times, the producer's id, epoch and
first number, and how many records it has."""
_BEFORE_LENGTH: Final = 12
_FORMAT_AT, _CHECKED_FROM = 16, 21
_FORMAT: Final = 2
_TRANSACTIONAL, _CONTROL = 1 << 4, 1 << 5
_ABORTED: Final = 0

_VALUE, _KEY, _TIMESTAMP, _OFFSET = map(attrgetter, ("value", "key", "timestamp", "offset"))


@dataclass(frozen=True)
class Records:
    """Values and offsets of records in order of offset. `parts` are the batches that hold them, with the
    place of the first in it, and of the one behind the last."""

    values: list[bytes | None]
    offsets: Integers
    parts: tuple[tuple[bytes, int, int], ...]

    def __len__(self) -> int:
        return len(self.values)

    def keys(self) -> Iterator[bytes | None]:
        return self._each(_KEY)

    def timestamps(self) -> Iterator[int]:
        """Milliseconds since 1970."""
        return self._each(_TIMESTAMP)

    def _each(self, what: attrgetter[Any]) -> Iterator[Any]:
        for data, first, end in self.parts:
            yield from islice(map(what, DefaultRecordBatch(data)), first, end)

    def between(self, start: int, end: int) -> Records:
        """Those with offsets from `start` and before `end`."""
        first, last = np.searchsorted(self.offsets, (start, end)).tolist()
        return self if last - first == len(self) else self.part(first, last)

    def part(self, first: int, end: int) -> Records:
        """Those from the first on and before the end, by place."""
        parts, behind = [], 0
        for data, start, stop in self.parts:
            before, behind = behind, behind + stop - start
            if first < behind and end > before:
                parts.append(
                    (data, start + max(first - before, 0), min(stop, start + end - before))
                )
        return Records(self.values[first:end], self.offsets[first:end], tuple(parts))

    @staticmethod
    def of(all_: Sequence[Records]) -> Records:
        """One after the other; at least one."""
        if len(all_) == 1:
            return all_[0]
        return Records(
            list(chain.from_iterable(one.values for one in all_)),
            np.concatenate([one.offsets for one in all_]),
            tuple(chain.from_iterable(one.parts for one in all_)),
        )


@dataclass(frozen=True)
class Batch:
    """A batch, whose bytes may be those of a buffer that is used again."""

    data: memoryview
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

    def records(self) -> Records:
        """Its records, for good. Raises CorruptRecordException where they are not what was written,
        UnsupportedCodecError."""
        if crc32c(bytes(self.data[_CHECKED_FROM:])) != self.checksum:
            raise CorruptRecordException(
                f"the batch before offset {self.next_offset} is not what its checksum says"
            )
        data = bytes(self.data)
        values = list(map(_VALUE, DefaultRecordBatch(data)))
        first = struct.unpack_from(">q", data)[0]
        if self.next_offset - first == len(values):
            offsets = np.arange(first, self.next_offset)
        else:
            # Some are gone, as their keys have newer ones.
            offsets = np.fromiter(map(_OFFSET, DefaultRecordBatch(data)), np.int64, len(values))
        return Records(values, offsets, ((data, 0, len(values)),))

    def has_aborted(self) -> bool:
        """Whether it ends a transaction of which no record counts."""
        marker = next(self.records().keys(), None) if self.is_control else None
        return marker is not None and struct.unpack_from(">hh", marker)[1] == _ABORTED


def whole_batches(data: memoryview) -> Iterator[Batch]:
    """The batches that are there with all their bytes: a broker cuts off where it has told enough.

    Raises UnsupportedVersionError for those of before Kafka 0.11."""
    place = 0
    while place + _HEADER.size <= len(data):
        end = place + _BEFORE_LENGTH + struct.unpack_from(">i", data, place + 8)[0]
        if end > len(data):
            return
        if data[place + _FORMAT_AT] != _FORMAT:
            raise UnsupportedVersionError(f"records of format {data[place + _FORMAT_AT]}")
        first, _, _, _, checksum, attributes, more, _, _, producer_id, *_ = _HEADER.unpack_from(
            data, place
        )
        yield Batch(data[place:end], first + more + 1, checksum, attributes, producer_id)
        place = end


def committed(batches: Iterable[Batch], aborted: Iterable[tuple[int, int]]) -> Iterator[Batch]:
    """The batches whose records count, in order. `aborted`: producers and first offsets of transactions
    that were aborted, as the broker tells them with the batches, of which none is open."""
    waiting = sorted(aborted, key=itemgetter(1), reverse=True)
    open_: set[int] = set()
    for batch in batches:
        while waiting and waiting[-1][1] < batch.next_offset:
            open_.add(waiting.pop()[0])
        if batch.is_control:
            if batch.has_aborted():
                open_.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in open_):
            yield batch
