"""Batches as brokers hand them on, made by aiokafka's own builder, and markers that end transactions."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from google_crc32c import value as crc32c

from lockstep_engine.sources.record_batches import Taken, WholeBatches, taken

__all__ = ["Sent", "all_of", "batch", "marker", "taken_of"]

NOBODY = -1
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@dataclass(frozen=True)
class Sent:
    """A record as it was sent, and where it is."""

    offset: int
    value: bytes | None = b"{}"
    key: bytes | None = None
    timestamp: int = 0


def batch(
    records: Sequence[Sent],
    last: int,
    producer: int = NOBODY,
    codec: str = "none",
    first: int = 0,
    headers: Sequence[tuple[str, bytes]] = (),
    appended: int | None = None,
) -> bytes:
    """A batch of the offsets `first` to `last`, of which there are these records: others are gone. One
    of a producer is of a transaction; of one that was `appended` the broker's time is told."""
    is_transaction = producer != NOBODY
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=CODECS[codec],
        is_transactional=is_transaction,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        batch_size=1 << 30,
    )
    for one in records:
        builder.append(one.offset - first, one.timestamp, one.key, one.value, list(headers))
    data = bytearray(builder.build())
    if appended is not None:
        # As brokers do, which leave what the producer wrote of times.
        data[22] |= 1 << 3
        struct.pack_into(">q", data, 35, appended)
    return _at(data, first, last)


def marker(offset: int, producer: int, *, commits: bool) -> bytes:
    """What a coordinator writes at the end of a transaction."""
    key = struct.pack(">hh", 0, int(commits))
    data = bytearray(batch([Sent(offset, b"\0" * 6, key)], offset, producer, first=offset))
    attributes = struct.unpack_from(">h", data, 21)[0]
    struct.pack_into(">h", data, 21, attributes | 1 << 5)
    return _at(data, offset, offset)


def taken_of(records: Sequence[Sent]) -> Taken:
    """These as they come out of a batch."""
    first, last = records[0].offset, records[-1].offset
    return all_of(batch(records, last, first=first))


def all_of(*batches: bytes) -> Taken:
    """What comes out of these."""
    (found,) = taken(WholeBatches(memoryview(b"".join(batches))), 1 << 31, 1 << 62)
    return found


def _at(data: bytearray, first: int, last: int) -> bytes:
    struct.pack_into(">q", data, 0, first)
    struct.pack_into(">i", data, 23, last - first)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)
