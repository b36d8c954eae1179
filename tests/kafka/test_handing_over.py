"""What one process tells another of what it has read, and which columns of it it does not tell."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FuturesTimeoutError
from contextlib import suppress
from dataclasses import replace
from tempfile import TemporaryFile
from unittest.mock import Mock

import pyarrow as pa
import pytest
from batch_builders import Sent, taken_of

from lockstep.control.kafka_options import KafkaConnection
from lockstep.control.model import OffsetRange
from lockstep_engine.kernels.plain_json import PLAIN, PlainObject
from lockstep_engine.kernels.plain_kinds import PlainRows
from lockstep_engine.kernels.plain_values import PlainColumn
from lockstep_engine.sources import handing_over, plain_reading, reader
from lockstep_engine.sources.handing_over import (
    BATCH,
    DONE,
    FAILED,
    NobodyThere,
    Telling,
    receive,
)
from lockstep_engine.sources.offsets import StepRange
from lockstep_engine.sources.plain_reading import PlainReading
from lockstep_engine.sources.record_batches import Records, Taken

Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    here, there = socket.socketpair()
    with here, there:
        for end in (here, there):
            # Else one would wait for ever for the other, where that fails.
            end.settimeout(60)
        yield here, there


def numbers(first: int, end: int) -> pa.RecordBatch:
    texts = [None if number % 3 else f"text {number}" for number in range(first, end)]
    columns = {"n": pa.array(range(first, end), pa.int64()), "t": pa.array(texts, pa.string())}
    return pa.record_batch(columns)


def unnamed_files() -> set[tuple[str, str]]:
    """Those that this process has open, and their descriptors."""
    found = set[tuple[str, str]]()
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found.add((descriptor, os.readlink(f"/proc/self/fd/{descriptor}")))
    return {one for one in found if one[1].endswith(" (deleted)")}


def no_such_call(name: str) -> int:
    raise OSError(f"{name}: not permitted")


@pytest.mark.parametrize("has_memory_files", [True, False])
def test_what_is_told_is_what_comes(
    ends: Ends, monkeypatch: pytest.MonkeyPatch, has_memory_files: bool
) -> None:
    """Batches stay what they are once nobody is there any more."""
    temporary = Mock(wraps=TemporaryFile)
    monkeypatch.setattr(handing_over, "TemporaryFile", temporary)
    if not has_memory_files:
        monkeypatch.setattr(os, "memfd_create", no_such_call)
    here, there = ends
    before = unnamed_files()
    batches = [numbers(0, 3), numbers(3, 50_000), numbers(0, 0)]

    def tell() -> None:
        telling = Telling(there)
        for batch in batches:
            telling.hand_over(batch)
        telling.end(DONE)
        telling.end(FAILED, "\xe9: no".encode())
        there.close()

    with ThreadPoolExecutor(1) as beside:
        told = beside.submit(tell)
        found = [receive(here) for _ in range(5)]
        told.result()
    assert found == [*batches, None, "\xe9: no"]
    assert temporary.call_count == (0 if has_memory_files else len(batches))
    with pytest.raises(EOFError, match="nothing more"):
        receive(here)
    # A thousand batches may be there at a time.
    assert unnamed_files() - before == set()


def test_one_batch_is_under_way(ends: Ends) -> None:
    here, there = ends
    telling = Telling(there)
    with ThreadPoolExecutor(1) as beside:
        telling.hand_over(numbers(0, 3))
        second = beside.submit(telling.hand_over, numbers(3, 6))
        with pytest.raises(FuturesTimeoutError):
            second.result(0.3)
        assert receive(here) == numbers(0, 3)
        second.result()
        assert receive(here) == numbers(3, 6)


def test_a_batch_that_did_not_come_is_not_waited_for(ends: Ends) -> None:
    """The system leaves out a descriptor of which a process may have no more."""
    here, there = ends
    there.sendall(handing_over._HEAD.pack(BATCH, 1 << 40) + handing_over._HEAD.pack(DONE, 0))
    with pytest.raises(EOFError, match="did not come"):
        receive(here)


def test_nobody_is_told_where_nobody_is(ends: Ends) -> None:
    here, there = ends
    telling, before = Telling(there), unnamed_files()
    telling.hand_over(numbers(0, 3))
    assert len(unnamed_files() - before) == 1
    here.close()
    with pytest.raises(NobodyThere):
        telling.hand_over(numbers(3, 6))
    with pytest.raises(NobodyThere):
        telling.end(DONE)
    assert unnamed_files() - before == set()


def test_batches_of_another_shape_are_not_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_ROWS", 5)
    other = pa.record_batch({"n": pa.array([7, 8], pa.int64())})
    given = [numbers(0, 2), numbers(2, 4), other, numbers(4, 6), numbers(6, 10), numbers(10, 11)]
    assert list(reader.large(given)) == [numbers(0, 4), other, numbers(4, 10), numbers(10, 11)]


def sent(texts: Sequence[bytes]) -> Taken:
    """These from offset 10 on, each with a key and a time of its own."""
    places = range(10, 10 + len(texts))
    return taken_of(
        [
            Sent(at, text, b"key of %d" % at, 1000 * at)
            for at, text in zip(places, texts, strict=True)
        ]
    )


SHAPE = pa.schema(
    [
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
        ("_timestamp", pa.timestamp("us", "UTC")),
        ("_key", pa.binary()),
        ("_value", pa.binary()),
        ("_topic", pa.string()),
        ("_step", pa.int64()),
        (PLAIN, pa.bool_()),
        ("n of it", pa.int64()),
    ]
)
STEPS = (StepRange(3, 10, 12, 0), StepRange(3, 12, 20, 1))
READING = PlainReading(
    KafkaConnection("h:1"),
    "t",
    STEPS,
    PlainRows(PlainObject((PlainColumn("n", pa.int64(), False),))),
    (0,),
    SHAPE,
    "_step",
)
GOOD, BAD = [b'{"n": 1}', b'{"n": 2}', b'{"n": 3}'], b"[1]"


def told_of(
    monkeypatch: pytest.MonkeyPatch, reading: PlainReading, texts: Sequence[bytes]
) -> pa.RecordBatch:
    monkeypatch.setattr(plain_reading, "fetched", lambda *_: iter([Records([sent(texts)])]))
    [told] = reading.told(OffsetRange(3, 10, 10 + len(texts)))
    return told


def test_after_a_mixed_batch_all_have_the_same_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a record here and there that is not plain would make many small batches."""
    texts = [*GOOD[:2], BAD, GOOD[1], *GOOD[:2], *GOOD[:2]]
    records = sent(texts)
    parts = [Records([records.cut(place, place + 2)]) for place in range(0, 8, 2)]
    monkeypatch.setattr(plain_reading, "fetched", lambda *_: iter(parts))
    first, *others = READING.told(OffsetRange(3, 10, 18))
    assert first.schema.names == ["_offset", "_step", "n of it"]
    assert [one.schema == others[0].schema for one in others] == [True] * 3
    assert PLAIN in others[0].schema.names
    assert whole(READING, others[1]) == [row(4, **{"n of it": 1}), row(5, **{"n of it": 2})]


def whole(reading: PlainReading, told: pa.RecordBatch) -> list[dict[str, object]]:
    found = reading.whole(told, 3)
    assert found.schema == SHAPE
    found.validate(full=True)
    times = found["_timestamp"].cast(pa.int64()).to_pylist()
    return [{**row, "_timestamp": time} for row, time in zip(found.to_pylist(), times, strict=True)]


def row(place: int, **others: object) -> dict[str, object]:
    known = {"_partition": 3, "_offset": 10 + place, "_topic": "t", "_step": int(place >= 2)}
    plain = {"_timestamp": None, "_key": None, "_value": None, PLAIN: True, "n of it": place + 1}
    return {**known, **plain, **others}


def test_of_plain_records_their_values_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told = told_of(monkeypatch, READING, GOOD)
    assert told.schema.names == ["_offset", "_step", "n of it"]
    assert whole(READING, told) == [row(0), row(1), row(2)]


def test_times_are_told_where_they_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = replace(READING, shows_timestamp=True)
    told = told_of(monkeypatch, reading, GOOD)
    assert told.schema.names == ["_offset", "_timestamp", "_step", "n of it"]
    times = [{"_timestamp": 1_000_000 * place} for place in (10, 11, 12)]
    assert whole(reading, told) == [row(place, **times[place]) for place in range(3)]


def test_a_record_that_is_not_plain_is_told_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    told = told_of(monkeypatch, READING, [GOOD[0], BAD, GOOD[2]])
    assert told.schema.names == [
        *("_offset", "_timestamp", "_key", "_value", "_step", PLAIN, "n of it")
    ]
    first, bad, last = whole(READING, told)
    assert (first, last) == (row(0), row(2))
    undecided = {PLAIN: False, "_timestamp": 11_000_000, "_key": b"key of 11", "_value": BAD}
    assert bad == row(1, **undecided, **{"n of it": bad["n of it"]})
