"""Processes that read slices of topics for another: what they answer, and when they end."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_builders import idle_processes

from lockstep.control.model import OffsetRange
from lockstep_engine.sources import reader, readers
from lockstep_engine.sources.readers import CannotRead, Reader, a_reader, seats


@pytest.fixture(autouse=True)
def _no_readers() -> Iterator[None]:
    """Each test starts its own."""
    readers._READERS.end()
    yield
    readers._READERS.end()


def test_a_process_ends_where_its_questions_do() -> None:
    one = Reader()
    one._link.shutdown(socket.SHUT_WR)
    assert one._process.wait(60) == 0
    assert one._link.recv(1) == b""
    one.end()


def test_a_process_answers_failures_and_goes_on() -> None:
    """What is printed has no part in the answers."""
    wanted = OffsetRange(0, 0, 9)
    batch = pa.record_batch({"n": pa.array([1, 2, 3])})
    with a_reader() as one:
        with pytest.raises(CannotRead, match=r"^TypeError: 'NoneType' object is not iterable$"):
            _ask(one, SimpleNamespace(told=print), wanted)
        with pytest.raises(CannotRead, match=r"^AttributeError: "):
            _ask(one, SimpleNamespace(), wanted)
        # Of a terminal, which interrupts them all.
        one._process.send_signal(signal.SIGINT)
        assert _ask(one, _told({wanted: [batch]}), wanted) == [batch]
    assert idle_processes() == [one._process]


def _told(batches: Mapping[OffsetRange, Sequence[pa.RecordBatch]]) -> SimpleNamespace:
    """Of records all of whose columns are told."""
    return SimpleNamespace(told=batches.get, whole=_as_it_is)


def _as_it_is(batch: pa.RecordBatch, _partition: int) -> pa.RecordBatch:
    return batch


def _ask(one: Reader, reading: Any, wanted: OffsetRange) -> list[pa.RecordBatch]:
    """With what stands for a reading of Kafka."""
    return list(one.read(reading, wanted))


def test_there_are_as_many_as_have_a_seat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "seats", lambda: 2)
    own = readers._Readers()
    monkeypatch.setattr(readers, "_READERS", own)
    with ExitStack() as every:
        every.callback(own.end)
        with a_reader() as one, a_reader() as another:
            assert one is not another
            assert not own.seats.acquire(blocking=False)
        assert set(own.idle) == {one, another}
        with a_reader() as again:
            assert again in (one, another)
            assert own.seats.acquire(blocking=False)


@pytest.mark.parametrize("is_reading", [False, True])
@pytest.mark.parametrize("end", ["", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_processes_end_with_the_one_that_they_read_for(end: str, is_reading: bool) -> None:
    """All of them have what it prints to: who reads that waits for the last."""
    program = f"""
import operator, os, signal
from types import SimpleNamespace
import pyarrow as pa
from lockstep.control.model import OffsetRange
from lockstep_engine.sources.readers import a_reader
with a_reader() as one:
    if {is_reading}:
        # Of a thousand batches the first is taken only.
        wanted, batch = OffsetRange(0, 0, 9), pa.record_batch({{"n": pa.array(range(70_000))}})
        reading = SimpleNamespace(told={{wanted: [batch] * 1000}}.get, whole=operator.is_)
        next(one.read(reading, wanted))
        {end or "pass"}
{end}
"""
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=300,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (-signal.SIGKILL if end else 0, b"")


def test_a_fork_has_no_readers_of_its_parent() -> None:
    batch, wanted = pa.record_batch({"n": pa.array([1])}), OffsetRange(0, 0, 1)
    with a_reader() as one:
        pass
    with ExitStack() as taken:
        for _ in range(seats()):
            taken.enter_context(readers._READERS.seats)
        assert _in_fork(_is_without_readers) == 0
        assert _in_fork(lambda: not _has_link(one)) == 0
    assert _has_link(one)
    assert list(readers._READERS.idle) == [one]
    assert _ask(one, _told({wanted: [batch]}), wanted) == [batch]


def _is_without_readers() -> bool:
    """And has seats for its own; to end them ends none of its parent's."""
    none = not readers._READERS.idle
    free = [readers._READERS.seats.acquire(blocking=False) for _ in range(seats() + 1)]
    readers._READERS.end()
    return none and free == [True] * seats() + [False]


def _has_link(one: Reader) -> bool:
    """Whether what leads to a reader is a socket."""
    return stat.S_ISSOCK(os.fstat(one._link.fileno()).st_mode)


def _in_fork(is_so: Callable[[], bool]) -> int:
    """The exit code of a forked process in which this is so: 0."""
    pid = os.fork()
    if pid == 0:
        code = 2
        try:
            code = 0 if is_so() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@given(st.lists(st.integers(0, 30), max_size=40), st.integers(1, 50))
def test_large_batches_have_the_same_rows(sizes: Sequence[int], rows: int) -> None:
    batches, start = [], 0
    for size in sizes:
        batches.append(pa.record_batch({"n": pa.array(range(start, start + size), pa.int64())}))
        start += size
    with patch.object(reader, "_ROWS", rows):
        found = list(reader.large(batches))
    assert [number for one in found for number in one["n"].to_pylist()] == list(range(start))
    assert all(rows <= one.num_rows < rows + 30 for one in found[:-1])
    assert all(one.num_rows < rows + 30 for one in found[-1:])
    assert bool(found) == bool(sizes)
